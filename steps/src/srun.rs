//! Stands for `srun` in the script's `PATH`, and for the launchers of MPI: runs the real one, and once a call has ended, only
//! tells how it did; in a job of several groups, one for each.
//!
//! Signals, descriptors and exit code are those of the real one. Whatever keeps the stand-in from remembering a
//! call is no reason not to run it.

use crate::calls::{self, Call, Calls, End, LAUNCHERS, VARIABLE};
use crate::doubts::{Doubts, VERDICT, Waited, comes_before};
use crate::fallback;
use crate::groups::{shim, split, words};
use crate::inputs::{READS_PIPE, hash_input, input, takes_no_input};
use crate::mpirun;
use crate::redirects::{Input, LABELS};
use crate::resized;
use crate::sandboxes::{self, Placed, Sandboxes};
use crate::slurmd;
use crate::streams::{self, Inode, Streams, distinct, is_fleeting, regular};
use ::criu::line::{Line, Said};
use host::mail::now_s;
use host::passing::Passing;
use host::supervise::{block_signals, exit_code, unblocked};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, Whence, lseek};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

/// Name by which the stand-in is called.
pub const NAME: &str = "srun";

/// Names of all programs for which it stands.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(NAME).chain(LAUNCHERS)
}

/// What a call writes to a pipe in its first moments may be read twice.
const BEGINNING: Duration = Duration::from_secs(60);

/// How long a step may take to end that nobody reads any more; then its `srun` is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Daemons of MPI launchers, which call `srun` themselves.
const LAUNCHED: [&str; 3] = ["orted", "prted", "hydra_pmi_proxy"];

/// Signals that ask a call to end, so that its end tells nothing.
pub(crate) const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Runs one call of the program of this name; the exit code is the real one's.
pub fn run(name: &str) -> i32 {
    let words = words_of_call();
    let is_srun = name == NAME;
    if let Some(socket) = std::env::var_os(words::SOCKET).filter(|_| is_srun) {
        return shim::run(Path::new(&socket), &words);
    }
    let Some(mut real) = real_of(name) else {
        protocol::say!("joulepoint: {name}: not found in the PATH");
        return 127;
    };
    let sandboxes = Sandboxes::of_environment();
    if only_answers(is_srun, &words) || !is_srun && sandboxes.is_none() {
        return exec(real.args(&words));
    }
    let place = sandboxes.as_ref().map(|s| match is_srun {
        true => s.place(&words),
        false => s.place_of_launcher(&real, &words).map_err(|why| format!("{why}; {}", sandboxes::LAUNCHER_CURE)),
    });
    let may_pipe = matches!(place, Some(Ok(_)));
    let asked = Words { name, words: &words };
    let known = |calls: Calls| Some((asked.key(may_pipe, &calls)?, calls));
    let Some((key, calls)) = Calls::of_environment().and_then(known) else {
        let why = place.and_then(Result::err).unwrap_or_else(|| READS_PIPE.to_string());
        return match sandboxes {
            Some(_) => unremembered(sandboxes.as_ref(), &asked, why, &mut real),
            None => exec(real.args(&words)),
        };
    };
    let claimed = calls.claim(&key).and_then(|(number, before)| {
        let name = format!("{key}.{}", before + 1);
        calls.read(&name).map(|known| (number, name, known))
    });
    match claimed {
        Ok((number, name, known)) => {
            let native = sandboxes.as_ref().and_then(|s| fallback::native(&fallback::file(&s.run, &name)));
            let place = place.map(|place| native.map_or(place, Err));
            let (streams, place) = streams(place, sandboxes.as_ref(), &calls, &name);
            if let Some(code) = known.as_ref().and_then(|call| streams.replayed(&calls, number, call)) {
                return code;
            }
            let before = if known.is_none() { calls.alike(&asked.text()) } else { None };
            let one = Asked { calls: &calls, name: &name, words: &asked, before: known.is_some() };
            let call = fresh(number, key, &asked, known);
            let (begins, starts) = (input_begins(), streams.positions());
            let mut held =
                sandboxes.as_ref().zip(place).and_then(|(s, place)| hold(s, &one, place, &streams, &mut real));
            before.into_iter().for_each(|before| say_that_it_begins_anew(&asked, &before));
            if held.as_ref().is_some_and(|h| h.sandboxed) {
                match follow(&calls, &name, call.clone(), &streams, &mut real, held) {
                    Followed::Ended(code) => return code,
                    Followed::Unheld(why) => {
                        let stays = calls.has_output_in_common(&name);
                        let how = if stays { "; what it has written stays beside what others write" } else { "" };
                        streams.take_back(if stays { &[] } else { &starts });
                        protocol::say!("joulepoint: {why}: the step is started again, from its beginning{how}");
                        let Some(again) = real_of(asked.name) else { return 127 };
                        real = again;
                        begins.into_iter().for_each(seek_input);
                        held = sandboxes.as_ref().and_then(|s| hold(s, &one, Err(why), &streams, &mut real));
                    }
                }
            }
            if held.is_none() {
                real.args(&words);
            }
            let streams = streams.own();
            if output_is_fleeting() {
                // What a call is that nothing is remembered of.
                calls.forget(&name).unwrap_or_else(|e| protocol::say!("joulepoint: {name}: {e}"));
                let _ = held.map(|h| h.line.outlive());
                return exec(&mut real);
            }
            match follow(&calls, &name, call, &streams, &mut real, held) {
                Followed::Ended(code) => code,
                Followed::Unheld(_) => unreachable!("it is in no sandbox"),
            }
        }
        Err(e) => unremembered(sandboxes.as_ref(), &asked, format!("it cannot be remembered: {e}"), &mut real),
    }
}

/// Whether a call starts nothing: it asks for a version or for help.
fn only_answers(is_srun: bool, words: &[OsString]) -> bool {
    if is_srun { split::only_answers(&texts(words)) } else { mpirun::only_answers(words) }
}

/// The driver says it, if it knows of the step: the standard error may be a file of results.
fn say_that_it_begins_anew(asked: &Words, before: &str) {
    let words = asked.text();
    protocol::say!("joulepoint: {words} is another step than {before}, which ran before: it begins from its beginning");
}

/// Becomes the real one for a call of which nothing is written down; the driver knows of the step for as long as it runs.
fn unremembered(sandboxes: Option<&Sandboxes>, asked: &Words, why: String, real: &mut Command) -> i32 {
    match sandboxes {
        Some(sandboxes) => drop(outside(sandboxes, "", asked, why).map(Line::outlive)),
        None => protocol::say!("joulepoint: {}: {why}", asked.text()),
    }
    exec(real.args(asked.words))
}

/// What the script calls: `srun` or a launcher, and with which words.
#[derive(Clone, Copy)]
struct Words<'a> {
    name: &'a str,
    words: &'a [OsString],
}

impl Words<'_> {
    /// For people.
    fn text(&self) -> String {
        [&[self.name.to_string()], &texts(self.words)[..]].concat().join(" ")
    }

    /// What tells a call from others; none for calls that are not to be remembered: those of MPI launchers, and those that
    /// write to a pipe, since what went through it is gone, unless it is spooled (`may_pipe`).
    fn key(&self, may_pipe: bool, calls: &Calls) -> Option<String> {
        if !may_pipe && output_is_fleeting() {
            return None;
        }
        let mut hash = place(self.words, calls.names_of_outputs())?;
        if self.name != NAME {
            hash.update(self.name.as_bytes());
        }
        if self.name != NAME || !takes_no_input(self.words) {
            hash_input(&mut hash)?;
        }
        Some(format!("{:032x}", hash.digest128()))
    }
}

/// What the script calls `srun` with.
fn words_of_call() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// Words as text, as well as they can be.
fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A call that has not ended; one that was interrupted began when it began first.
fn fresh(number: usize, key: String, words: &Words, known: Option<Call>) -> Call {
    let begun_s = known.map_or_else(now_s, |c| c.begun_s);
    Call { number, key, command: words.text(), begun_s, ended: None, targets: Vec::new() }
}

/// A step that the driver knows of.
struct Held {
    /// The step has ended when it is closed.
    line: Line,
    /// Whether its tasks are in sandboxes.
    sandboxed: bool,
    /// Where the output of the whole call begins, by descriptor, if it goes on from a recovery line.
    starts: Option<Vec<(i32, u64)>>,
    /// Where it is noted if no sandbox can hold its tasks after all.
    fallback: Option<PathBuf>,
}

/// A call that the script makes now.
struct Asked<'a> {
    calls: &'a Calls,
    name: &'a str,
    words: &'a Words<'a>,
    /// Whether it was made in an earlier life.
    before: bool,
}

/// The streams of a call: its own, unless its tasks are to be in sandboxes.
fn streams(
    place: Option<Result<Placed, String>>,
    sandboxes: Option<&Sandboxes>,
    calls: &Calls,
    name: &str,
) -> (Streams, Option<Result<Placed, String>>) {
    let (Some(Ok(placed)), Some(sandboxes)) = (&place, sandboxes) else { return (Streams::default(), place) };
    match Streams::open(&placed.call, calls, name, &sandboxes.common) {
        Ok(streams) => (streams, place),
        Err(e) => (Streams::default(), Some(Err(format!("its output cannot be kept: {e}")))),
    }
}

/// Tells the driver of a step and puts its tasks into sandboxes, if they can be.
fn hold(
    sandboxes: &Sandboxes,
    asked: &Asked,
    place: Result<Placed, String>,
    streams: &Streams,
    real: &mut Command,
) -> Option<Held> {
    let Asked { calls, name, words, before } = asked;
    let inside = place.and_then(|placed| {
        let reads = placed.call.input == Input::Standard;
        let near = has_other_nodes().then_some(sandboxes.run.as_path());
        let input = input(&placed.call.input, &calls.output(&format!("{name}.in")), near)?;
        let srun = (words.name != NAME).then(|| real_srun(&["--mpi=none"]).ok_or("there is no srun")).transpose()?;
        let reads_input = || input.is_some().then(|| "it reads standard input, or a file by --input".to_string());
        let adds = || adds_to_file(&sandboxes.common).then(|| "it adds to a file (srun ... >> FILE)".to_string());
        let together = placed.together.clone().or_else(reads_input).or_else(adds);
        let outputs = sandboxes.outputs(name).map_err(|e| format!("its checkpoint: {e}"))?;
        let line = outputs.as_ref().map(|(_, line)| *line);
        let inside = sandboxes.words(&placed, name, line, *before, input)?;
        Ok((inside, reads, srun, together, outputs))
    });
    let (inside, reads, srun, together, outputs) = match inside {
        Ok(inside) => inside,
        Err(reason) => {
            let line = outside(sandboxes, name, words, reason)?;
            real.args(words.words);
            return Some(Held { line, sandboxed: false, starts: None, fallback: None });
        }
    };
    let line = sandboxes
        .begin(name, &words.text(), None, together)
        .inspect_err(|e| protocol::say!("joulepoint: {e}; no checkpoints"))
        .ok()?;
    // Not before it is certain that a launcher's words are not for the real one.
    if let Some(srun) = srun {
        *real = srun;
    }
    let starts = outputs.map(|(outputs, folder)| streams.put_back(&outputs, folder, &sandboxes.run));
    let starts = starts.transpose().unwrap_or_else(|e| {
        protocol::say!("joulepoint: what this step wrote before cannot be put back: {e}");
        None
    });
    if starts.is_none()
        && let Err(e) = streams.begin()
    {
        protocol::say!("joulepoint: what this step wrote before stays: {e}");
    }
    if reads && streams::regular(0).is_some() {
        // The real one reads ahead to its end, too.
        let _ = lseek(io::stdin(), 0, Whence::SeekEnd);
    }
    for name in LABELS {
        real.env_remove(name);
    }
    real.args(inside);
    let fallback = fallback::file(&sandboxes.run, name);
    let made = fallback::prepare(&fallback);
    let fallback = made.map(|()| fallback).inspect_err(|e| tracing::warn!(%e, "what no sandbox can hold ends")).ok();
    Some(Held { line, sandboxed: true, starts, fallback })
}

/// Where the call's input begins, if it is a file.
fn input_begins() -> Option<i64> {
    streams::regular(0).and_then(|_| lseek(io::stdin(), 0, Whence::SeekCur).ok())
}

fn seek_input(at: i64) {
    let _ = lseek(io::stdin(), at, Whence::SeekSet);
}

/// Whether this call adds to a file that is none of the job's own, `common`.
fn adds_to_file(common: &[Inode]) -> bool {
    let adds = |descriptor: i32| {
        let is_own = regular(descriptor).is_some_and(|(m, _)| !common.contains(&(m.dev(), m.ino())));
        // SAFETY: the descriptor is one that a program is started with, and stays open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let flags = fcntl(descriptor, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
        is_own && flags.is_ok_and(|flags| flags.contains(OFlag::O_APPEND))
    };
    [1, 2].into_iter().any(adds)
}

/// Tells the driver of a step whose tasks are in no sandbox, and the user why.
fn outside(sandboxes: &Sandboxes, name: &str, words: &Words, reason: String) -> Option<Line> {
    let line = sandboxes.begin(name, &words.text(), Some(reason.clone()), None);
    let line = line.inspect_err(|e| protocol::say!("joulepoint: {e}")).ok();
    protocol::say!("joulepoint: no checkpoint while {} runs: {reason}", words.text());
    line
}

/// The real `srun` for the call that the script makes, with the environment that it would have without us, if the `PATH`
/// has one.
pub fn real() -> Option<Command> {
    let words = texts(&words_of_call());
    real_srun(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same for a call with these words.
fn real_srun(words: &[&str]) -> Option<Command> {
    let mut command = without_us(NAME)?;
    resized::for_srun(&mut command, &words.iter().map(|w| (*w).to_string()).collect::<Vec<_>>());
    Some(command)
}

fn real_of(name: &str) -> Option<Command> {
    if name == NAME {
        return real();
    }
    let mut command = without_us(name)?;
    resized::for_launcher(&mut command);
    let by_path =
        |called: &Path| called.components().count() > 1 && !called.parent().is_some_and(calls::is_of_function);
    if std::env::args_os().next().is_some_and(|called| by_path(Path::new(&called))) {
        // A launcher that is called by its path has its nodes look for it there.
        let program = command.get_program().to_os_string();
        command.arg0(program);
    }
    Some(command)
}

/// The real program of this name, as it would be started if we were not there.
fn without_us(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    let us = fs::metadata("/proc/self/exe").ok()?;
    let is_us = |m: &fs::Metadata| (m.dev(), m.ino()) == (us.dev(), us.ino());
    let holds_us = |folder: &PathBuf| names().any(|n| fs::metadata(folder.join(n)).is_ok_and(|m| is_us(&m)));
    let folders: Vec<PathBuf> = std::env::split_paths(&path).filter(|f| !holds_us(f)).collect();
    let runs = |p: &PathBuf| nix::unistd::access(p, nix::unistd::AccessFlags::X_OK).is_ok() && p.is_file();
    let program = folders.iter().map(|f| f.join(name)).find(runs)?;
    let mut command = Command::new(program);
    command
        .arg0(name)
        .env_remove(VARIABLE)
        .env_remove(sandboxes::VARIABLE)
        .env_remove(words::SOCKET)
        .env_remove("_")
        .env("PATH", std::env::join_paths(folders).ok()?);
    for name in LAUNCHERS {
        command.env_remove(calls::function(name));
    }
    Some(command)
}

fn exec(real: &mut Command) -> i32 {
    // Another one may have been followed before it.
    let why = unblocked(real).exec();
    protocol::say!("joulepoint: {}: {why}", real.get_program().to_string_lossy());
    126
}

/// The key of a call to which no input is passed, and of which all output is kept.
pub(crate) fn key_of_groups(words: &[OsString]) -> Option<String> {
    Some(format!("{:032x}", place(words, |_, path| path)?.digest128()))
}

/// Words, working folder and output files of a call, each by the name that `name` gives it; none for those of MPI launchers.
fn place(words: &[OsString], name: impl Fn(&fs::Metadata, PathBuf) -> PathBuf) -> Option<Xxh3> {
    let base = |w: &OsStr| Path::new(w).file_name().is_some_and(|n| LAUNCHED.iter().any(|l| n == *l));
    if words.iter().any(|w| base(w)) {
        return None;
    }
    let mut hash = Xxh3::new();
    for word in words {
        hash.update(word.as_bytes());
        hash.update(&[0]);
    }
    hash.update(std::env::current_dir().ok()?.as_os_str().as_bytes());
    for descriptor in [1, 2] {
        if let Some((metadata, path)) = regular(descriptor).filter(|_| !is_fleeting(descriptor)) {
            hash.update(name(&metadata, path).as_os_str().as_bytes());
        }
    }
    Some(hash)
}

fn output_is_fleeting() -> bool {
    [1, 2].into_iter().any(is_fleeting)
}

/// How a call has ended that was followed.
enum Followed {
    /// With this exit code.
    Ended(i32),
    /// No sandbox can hold it after all, for this reason.
    Unheld(String),
}

/// Runs the real one to its end and remembers how it ended, unless it was told to.
fn follow(
    calls: &Calls,
    name: &str,
    mut call: Call,
    streams: &Streams,
    real: &mut Command,
    mut held: Option<Held>,
) -> Followed {
    let starts = held.as_ref().and_then(|h| h.starts.clone()).unwrap_or_else(|| streams.positions());
    call.targets = streams.targets(&starts);
    if let Err(e) = calls.note(name, &call) {
        protocol::say!("joulepoint: this step cannot be remembered: {e}");
        return Followed::Ended(exec(real));
    }
    let starts = distinct(&call.targets);
    // A task whose sandbox was killed ends so, too: the wrapper knows.
    let sandboxed = held.as_ref().is_some_and(|h| h.sandboxed);
    let in_doubt = |code: i32| has_other_nodes() || code > 128 && sandboxed;
    let (mut unheld, mut is_kept) = (None, true);
    let mut run = || {
        let ways = streams.redirect(real)?;
        let (begun, begun_s) = (Instant::now(), now_s());
        let (child, signals) = spawn(real)?;
        let doubts = Doubts { calls, signals: &signals };
        // Not before signals are blocked: a thread that does not block them would take the news of the end.
        let passing: Vec<Option<Passing>> = ways.into_iter().map(|way| Passing::begin(way, end)).collect();
        let waited = wait(child, &signals, held.as_mut().map(|h| &mut h.line));
        is_kept &= passing.into_iter().map(|one| one.is_some_and(Passing::finish)).filter(|kept| !kept).count() == 0;
        let (code, asked) = waited?;
        if !asked && !sandboxed && slurmd::may_mean_not_launched(code) {
            match doubts.wait_for_slurmd()? {
                Waited::Back => return Ok(None),
                Waited::Ending => return Ok(Some((code, true))),
                Waited::NotAway => {}
            }
        }
        // Somebody has ended the tasks, as the driver knows.
        let was_ended = held.as_mut().is_some_and(|h| matches!(h.line.hear(), Ok(Some(Said::Ending))));
        let mut asked = asked;
        let doubt = match code {
            0 if has_other_nodes() && !asked => {
                let driver = held.as_mut().filter(|_| sandboxed).map(|h| &mut h.line);
                doubts.of_good_end(begun_s, driver, &mut asked)?
            }
            0 => None,
            _ => (calls.is_closed() || !was_ended && in_doubt(code)).then_some(VERDICT),
        };
        let waits = doubt.filter(|_| !asked);
        let asked = asked || waits.map_or(Ok(false), |limit| doubts.hold_back(limit))?;
        let file = held.as_ref().filter(|_| code != 0 && !asked).and_then(|h| h.fallback.as_deref());
        let noted = file.and_then(|file| fallback::of_failed(file, was_ended));
        unheld = noted.filter(|why| !has_given(streams, begun.elapsed(), why));
        Ok(Some((code, asked)))
    };
    let ended: io::Result<(i32, bool)> = loop {
        match run() {
            Ok(None) => {}
            Ok(Some(ended)) => break Ok(ended),
            Err(e) => break Err(e),
        }
    };
    let (code, asked) = match ended {
        Ok(ended) => ended,
        Err(e) => {
            protocol::say!("joulepoint: {}: {e}", real.get_program().to_string_lossy());
            return Followed::Ended(126);
        }
    };
    let is_closed = calls.is_closed_for_certain();
    if let Some(why) = unheld.filter(|_| !is_closed) {
        return Followed::Unheld(why);
    }
    if !asked && !is_closed {
        let saved = starts.into_iter().filter_map(|start| streams.save(calls, name, start).transpose());
        let unkept = || io::Error::other("its output is not kept");
        let outputs = if is_kept { saved.collect::<io::Result<_>>() } else { Err(unkept()) };
        let written = outputs.and_then(|outputs| {
            call.ended = Some(End { at_s: now_s(), code, outputs });
            calls.write(name, &call)?;
            calls.unsettle(name)
        });
        if let Err(e) = written {
            protocol::say!("joulepoint: the end of this step cannot be remembered: {e}");
        }
    }
    Followed::Ended(code)
}

/// Whether a call has given so much to a pipe in the time that it `lasted` that it must not begin again: who reads it would
/// read it twice.
fn has_given(streams: &Streams, lasted: Duration, why: &str) -> bool {
    let has_given = lasted > BEGINNING && streams.have_passed_on();
    if has_given {
        protocol::say!("joulepoint: {why}; it has written to a pipe, and is not started again: write to a file first");
    }
    has_given
}

/// Ends the step as `srun` does when nobody reads what it writes: as if the stand-in were asked to.
fn end() {
    protocol::say!("joulepoint: nobody reads the output of this step any more; it is ended");
    let _ = nix::sys::signal::kill(Pid::this(), Signal::SIGTERM);
}

fn has_other_nodes() -> bool {
    std::env::var("SLURM_JOB_NUM_NODES").is_ok_and(|n| n != "1")
}

fn spawn(real: &mut Command) -> io::Result<(Child, SignalFd)> {
    let signals = SignalFd::new(&block_signals()?)?;
    // SAFETY: prctl is safe between fork and exec. A call whose stand-in is killed dies as it would have.
    unsafe {
        real.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    Ok((unblocked(real).spawn()?, signals))
}

/// Passes signals on until the child ends; its exit code, and whether somebody asked it to end, which the driver hears
/// first.
fn wait(mut child: Child, signals: &SignalFd, mut driver: Option<&mut Line>) -> io::Result<(i32, bool)> {
    let (mut asked, mut limit) = (false, None);
    loop {
        if let Some(status) = child.try_wait()? {
            if status.signal().is_some() && !asked {
                let _ = driver.take().map(|line| line.tell(&Said::Killed));
            }
            return Ok((exit_code(status), asked));
        }
        if let Some(at) = limit
            && !comes_before(signals, at)?
        {
            child.kill()?;
            limit = None;
            continue;
        }
        let Some(signal) = signals.read_signal()? else { continue };
        let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else { continue };
        if ENDING.contains(&number) {
            asked = true;
            if signal.ssi_pid == std::process::id() {
                limit = Some(Instant::now() + GRACE);
            }
            // A driver that is gone needs no word.
            let _ = driver.take().map(|line| line.tell(&Said::Ending));
        }
        // What a terminal sends goes to the whole group, and has reached the child.
        if number != Signal::SIGCHLD && signal.ssi_code != libc::SI_KERNEL {
            host::processes::signal(child.id() as i32, number as i32);
        }
    }
}
