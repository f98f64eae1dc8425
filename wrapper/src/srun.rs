//! Stands for `srun` in the script's `PATH`: runs the real one, and once a call has ended, only tells how it did; in a
//! job of several groups, one for each.
//!
//! Signals, descriptors and exit code are those of the real `srun`. Whatever keeps the stand-in from remembering a
//! call is no reason not to run it.

use crate::calls::{Call, Calls, End, Output, Target, VARIABLE};
use crate::groups::{shim, words};
use crate::mail::now_s;
use crate::resized;
use crate::sandboxes::{self, Sandboxes};
use crate::supervise::{block_signals, exit_code, unblocked};
use ::criu::line::{Line, Said};
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

/// Name by which the stand-in is called.
pub const NAME: &str = "srun";

/// Most that is kept of what a call wrote to one file, bytes; a call that wrote more, into a file that is emptied
/// before it is called again, is run again.
const SAVED_LIMIT_BYTES: u64 = 16 << 20;

/// How much of an input file tells calls apart, bytes.
const INPUT_LIMIT_BYTES: u64 = 1 << 20;

/// How long a script of several nodes waits to hear that a step failed by itself and not by a dead node.
const VERDICT: Duration = Duration::from_secs(5);

/// Time between two looks, ms.
const LOOK_MS: u8 = 50;

/// Daemons of MPI launchers, which call `srun` themselves.
const LAUNCHED: [&str; 3] = ["orted", "prted", "hydra_pmi_proxy"];

/// Signals that ask a call to end, so that its end tells nothing.
pub(crate) const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Runs one call; the exit code is the real one's.
pub fn run() -> i32 {
    let words = words_of_call();
    if let Some(socket) = std::env::var_os(words::SOCKET) {
        return shim::run(Path::new(&socket), &words);
    }
    let Some(mut real) = real() else {
        protocol::say!("joulepoint: srun: not found in the PATH");
        return 127;
    };
    let sandboxes = Sandboxes::of_environment();
    let Some((calls, key)) = Calls::of_environment().and_then(|calls| Some((calls, key(&words)?))) else {
        real.args(&words);
        if let Some(line) = sandboxes.and_then(|s| outside(&s, "", &words, "a step that reads or writes a pipe".into()))
        {
            // The driver knows of the step for as long as the real one runs.
            let _ = line.outlive();
        }
        return exec(real);
    };
    match calls.claim(&key) {
        Ok((number, before)) => {
            let name = format!("{key}.{}", before + 1);
            let known = calls.read(&name);
            match known.as_ref().and_then(|call| replayed(&calls, number, call)) {
                Some(code) => code,
                None => {
                    let held = sandboxes.and_then(|s| hold(&s, &name, &words, known.is_some(), &mut real));
                    if held.is_none() {
                        real.args(&words);
                    }
                    let starts = held.as_ref().and_then(|h| h.starts.clone()).unwrap_or_else(positions);
                    let mut call = fresh(number, key, &words, known);
                    call.targets = targets(&starts);
                    follow(&calls, &name, call, real, held)
                }
            }
        }
        Err(e) => {
            protocol::say!("joulepoint: this step cannot be remembered: {e}");
            real.args(&words);
            exec(real)
        }
    }
}

/// What the script calls `srun` with.
fn words_of_call() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// A call that has not ended; one that was interrupted began when it began first.
fn fresh(number: usize, key: String, words: &[OsString], known: Option<Call>) -> Call {
    let begun_s = known.map_or_else(now_s, |c| c.begun_s);
    Call { number, key, command: text(words), begun_s, ended: None, targets: Vec::new() }
}

fn text(words: &[OsString]) -> String {
    words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A step that the driver knows of.
struct Held {
    /// The step has ended when it is closed.
    line: Line,
    /// Whether its tasks are in sandboxes.
    sandboxed: bool,
    /// Where the output of the whole call begins, by descriptor, if it goes on from a recovery line.
    starts: Option<Vec<(i32, u64)>>,
}

/// Tells the driver of a step and puts its tasks into sandboxes, if they can be.
fn hold(sandboxes: &Sandboxes, name: &str, words: &[OsString], before: bool, real: &mut Command) -> Option<Held> {
    let plain: Option<Vec<String>> = words.iter().map(|w| w.to_str().map(str::to_string)).collect();
    let inside = plain.ok_or("its words are no plain text".to_string()).and_then(|plain| {
        let has_input =
            !takes_no_input(words) && fs::read_link("/proc/self/fd/0").is_ok_and(|p| p != Path::new("/dev/null"));
        if has_input {
            Err("it reads standard input; write 'srun ... </dev/null'".to_string())
        } else {
            sandboxes.words(&plain, name, before)
        }
    });
    let inside = match inside {
        Ok(inside) => inside,
        Err(reason) => {
            let line = outside(sandboxes, name, words, reason)?;
            real.args(words);
            return Some(Held { line, sandboxed: false, starts: None });
        }
    };
    let line = sandboxes
        .begin(name, &text(words), None)
        .inspect_err(|e| protocol::say!("joulepoint: {e}; no checkpoints"))
        .ok()?;
    let starts = sandboxes.outputs(name).map(|(outputs, folder)| {
        let back = |output: &Output| Ok((output.descriptor, put_back(output, missing(folder, output)?, true)?));
        outputs.iter().map(back).collect::<io::Result<Vec<_>>>()
    });
    let starts = starts.transpose().unwrap_or_else(|e| {
        protocol::say!("joulepoint: what this step wrote before cannot be put back: {e}");
        None
    });
    real.args(inside);
    Some(Held { line, sandboxed: true, starts })
}

/// Tells the driver of a step whose tasks are in no sandbox, and the user why.
fn outside(sandboxes: &Sandboxes, name: &str, words: &[OsString], reason: String) -> Option<Line> {
    protocol::say!("joulepoint: no checkpoint while srun {} runs: {reason}", text(words));
    sandboxes.begin(name, &text(words), Some(reason)).inspect_err(|e| protocol::say!("joulepoint: {e}")).ok()
}

/// Where a call writes: its output begins at `starts`, and what it writes from now on at the present positions.
fn targets(starts: &[(i32, u64)]) -> Vec<Target> {
    let now = positions();
    let file = |descriptor: i32| regular(descriptor).map(|(m, path)| ((m.dev(), m.ino()), path));
    let of = |descriptor: i32| {
        let (inode, path) = file(descriptor)?;
        let same = |d: &i32| file(*d).is_some_and(|(other, _)| other == inode);
        let at = |all: &[(i32, u64)]| all.iter().find(|(d, _)| same(d)).map(|(_, at)| *at);
        let from = at(&now)?;
        Some(Target { descriptor, path, start: at(starts).unwrap_or(from), from })
    };
    [1, 2].into_iter().filter_map(of).collect()
}

/// The real `srun` with the environment that it would have without us, if the `PATH` has one.
pub(crate) fn real() -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    let us = fs::metadata("/proc/self/exe").ok()?;
    let is_us = |m: &fs::Metadata| (m.dev(), m.ino()) == (us.dev(), us.ino());
    let holds_us = |folder: &PathBuf| fs::metadata(folder.join(NAME)).is_ok_and(|m| is_us(&m));
    let folders: Vec<PathBuf> = std::env::split_paths(&path).filter(|f| !holds_us(f)).collect();
    let runs = |p: &PathBuf| nix::unistd::access(p, nix::unistd::AccessFlags::X_OK).is_ok() && p.is_file();
    let program = folders.iter().map(|f| f.join(NAME)).find(runs)?;
    let mut command = Command::new(program);
    command
        .arg0(NAME)
        .env_remove(VARIABLE)
        .env_remove(sandboxes::VARIABLE)
        .env_remove(words::SOCKET)
        .env_remove("_")
        .env("PATH", std::env::join_paths(folders).ok()?);
    let words: Vec<String> = words_of_call().iter().map(|w| w.to_string_lossy().into_owned()).collect();
    resized::for_srun(&mut command, &words);
    Some(command)
}

fn exec(mut real: Command) -> i32 {
    protocol::say!("joulepoint: srun: {}", real.exec());
    126
}

/// What tells a call from others; none for calls that are not to be remembered: those of MPI launchers, and those
/// at the end of a pipe, since what went through it is gone.
fn key(words: &[OsString]) -> Option<String> {
    if [1, 2].into_iter().any(is_pipe) {
        return None;
    }
    let mut hash = place(words)?;
    if !takes_no_input(words) {
        hash_input(&mut hash)?;
    }
    Some(format!("{:032x}", hash.digest128()))
}

/// The key of a call to which no input is passed, and of which all output is kept.
pub(crate) fn key_of_groups(words: &[OsString]) -> Option<String> {
    Some(format!("{:032x}", place(words)?.digest128()))
}

/// Words, working folder and output files of a call; none for those of MPI launchers.
fn place(words: &[OsString]) -> Option<Xxh3> {
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
        if let Some((_, path)) = regular(descriptor) {
            hash.update(path.as_os_str().as_bytes());
        }
    }
    Some(hash)
}

fn takes_no_input(words: &[OsString]) -> bool {
    let pair = |p: &[OsString]| (p[0] == "-i" || p[0] == "--input") && p[1] == "none";
    words.iter().any(|w| w == "--input=none" || w == "-inone") || words.windows(2).any(pair)
}

/// Adds what tells one input from another: the beginning and the length of a file, or what is left in a pipe that
/// nobody writes to any more (a shell's here-document); none for another pipe.
fn hash_input(hash: &mut Xxh3) -> Option<()> {
    if is_pipe(0) {
        hash.update(&left_in_pipe().ok()??);
    } else if let Some((metadata, _)) = regular(0) {
        let mut beginning = Vec::new();
        File::open("/proc/self/fd/0").ok()?.take(INPUT_LIMIT_BYTES).read_to_end(&mut beginning).ok()?;
        hash.update(&beginning);
        hash.update(&metadata.len().to_le_bytes());
    }
    Some(())
}

/// The content of standard input, a pipe, without taking it out; none while somebody may still write to it.
fn left_in_pipe() -> io::Result<Option<Vec<u8>>> {
    let stdin = io::stdin();
    let mut poll = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    nix::poll::poll(&mut poll, PollTimeout::ZERO)?;
    let seen = poll[0].revents().unwrap_or(PollFlags::empty());
    if !seen.contains(PollFlags::POLLHUP) {
        return Ok(None);
    }
    let (mut copy, into) = io::pipe()?;
    fcntl(&into, FcntlArg::F_SETPIPE_SZ(fcntl(&stdin, FcntlArg::F_GETPIPE_SZ)?))?;
    if seen.contains(PollFlags::POLLIN) {
        nix::fcntl::tee(&stdin, &into, usize::MAX >> 1, SpliceFFlags::SPLICE_F_NONBLOCK)?;
    }
    drop(into);
    let mut content = Vec::new();
    copy.read_to_end(&mut content)?;
    Ok(Some(content))
}

fn is_pipe(descriptor: i32) -> bool {
    let kind = fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|m| m.file_type());
    kind.is_ok_and(|k| k.is_fifo() || k.is_socket())
}

fn regular(descriptor: i32) -> Option<(fs::Metadata, PathBuf)> {
    let link = format!("/proc/self/fd/{descriptor}");
    let metadata = fs::metadata(&link).ok().filter(fs::Metadata::is_file)?;
    Some((metadata, fs::read_link(link).ok()?))
}

/// The exit code of a call that has ended before, if all that it wrote is there or can be put back.
fn replayed(calls: &Calls, number: usize, call: &Call) -> Option<i32> {
    let end = call.ended.as_ref()?;
    // None is written before all can be.
    let lost: io::Result<Vec<_>> = end.outputs.iter().map(|output| missing(calls.folder(), output)).collect();
    let put_back = lost.and_then(|lost| {
        end.outputs.iter().zip(lost).try_for_each(|(output, lost)| put_back(output, lost, false).map(drop))
    });
    if let Err(e) = put_back {
        protocol::say!("joulepoint: step {number} (srun {}) is run again: {e}", call.command);
        return None;
    }
    protocol::say!(
        "joulepoint: step {number} (srun {}) has ended with {} before; not run again",
        call.command,
        end.code
    );
    Some(end.code)
}

/// What has to be written again of what a call wrote: nothing if it is still there; the script has emptied the file if
/// it opened it by `>`.
fn missing(folder: &Path, output: &Output) -> io::Result<Option<Vec<u8>>> {
    let Some(saved) = &output.saved else {
        let length = fs::metadata(format!("/proc/self/fd/{}", output.descriptor))?.len();
        let text = format!("its output of {} bytes is gone, and too large to keep", output.end - output.start);
        return if length >= output.end { Ok(None) } else { Err(io::Error::other(text)) };
    };
    let saved = fs::read(folder.join(saved))?;
    if saved.len() as u64 != output.end - output.start {
        return Err(io::Error::other("the copy of its output is damaged"));
    }
    let there = content(output.descriptor, output.start, saved.len()).is_ok_and(|there| there == saved);
    Ok((!there).then_some(saved))
}

/// Writes it. What a call that is not over (`goes_on`) wrote after that is forgotten. Tells where its output begins.
fn put_back(output: &Output, missing: Option<Vec<u8>>, goes_on: bool) -> io::Result<u64> {
    let mut file = descriptor_file(output.descriptor)?;
    let Some(saved) = missing else {
        if goes_on {
            file.set_len(output.end)?;
            file.seek(io::SeekFrom::End(0))?;
        }
        return Ok(output.start);
    };
    let start = position(output.descriptor, file.metadata()?.len())?;
    file.write_all(&saved)?;
    Ok(start)
}

fn content(descriptor: i32, start: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; length];
    File::open(format!("/proc/self/fd/{descriptor}"))?.read_exact_at(&mut content, start)?;
    Ok(content)
}

/// A file over the same open description as standard output or error.
fn descriptor_file(descriptor: i32) -> io::Result<File> {
    let copy = match descriptor {
        1 => nix::unistd::dup(io::stdout()),
        _ => nix::unistd::dup(io::stderr()),
    };
    Ok(File::from(copy?))
}

/// Where the next byte of an output goes; nothing for what is no file, and once only for two names of one file.
fn positions() -> Vec<(i32, u64)> {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let mut positions = Vec::new();
    for descriptor in [1, 2] {
        let Some((metadata, _)) = regular(descriptor) else { continue };
        let file = (metadata.dev(), metadata.ino());
        if !seen.contains(&file) {
            seen.push(file);
            positions.extend(position(descriptor, metadata.len()).ok().map(|at| (descriptor, at)));
        }
    }
    positions
}

fn position(descriptor: i32, length: u64) -> io::Result<u64> {
    let mut file = descriptor_file(descriptor)?;
    let flags = fcntl(&file, FcntlArg::F_GETFL)?;
    if flags & libc::O_APPEND != 0 { Ok(length) } else { file.stream_position() }
}

/// Runs the real one to its end and remembers how it ended, unless it was told to.
fn follow(calls: &Calls, name: &str, mut call: Call, mut real: Command, mut held: Option<Held>) -> i32 {
    if let Err(e) = calls.note(name, &call) {
        protocol::say!("joulepoint: this step cannot be remembered: {e}");
        return exec(real);
    }
    let starts = distinct(&call.targets);
    // A task whose sandbox was killed ends so, too: the wrapper knows.
    let sandboxed = held.as_ref().is_some_and(|h| h.sandboxed);
    let in_doubt = |code: i32| has_other_nodes() || code > 128 && sandboxed;
    let ended = spawn(&mut real).and_then(|(child, signals)| {
        let (code, asked) = wait(child, &signals, held.as_mut().map(|h| &mut h.line))?;
        let waits = code != 0 && !asked && (in_doubt(code) || calls.is_closed());
        Ok((code, asked || waits && hold_back(calls, &signals)?))
    });
    let (code, asked) = match ended {
        Ok(ended) => ended,
        Err(e) => {
            protocol::say!("joulepoint: srun: {e}");
            return 126;
        }
    };
    if !asked && !calls.is_closed() {
        let saved = starts.into_iter().filter_map(|start| save(calls, name, start).transpose());
        let outputs = saved.collect::<io::Result<_>>();
        let written = outputs.and_then(|outputs| {
            call.ended = Some(End { at_s: now_s(), code, outputs });
            calls.write(name, &call)
        });
        if let Err(e) = written {
            protocol::say!("joulepoint: the end of this step cannot be remembered: {e}");
        }
    }
    code
}

/// Where the output of a call begins, once for two names of one file.
fn distinct(targets: &[Target]) -> Vec<(i32, u64)> {
    let mut seen: Vec<&Path> = Vec::new();
    let mut starts = Vec::new();
    for target in targets {
        if !seen.contains(&target.path.as_path()) {
            seen.push(&target.path);
            starts.push((target.descriptor, target.start));
        }
    }
    starts
}

fn has_other_nodes() -> bool {
    std::env::var("SLURM_JOB_NUM_NODES").is_ok_and(|n| n != "1")
}

/// Keeps the script from going on to its next step when a node died: the wrapper hears of it and stops the script.
/// Tells whether it did.
fn hold_back(calls: &Calls, signals: &SignalFd) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        let limit = if calls.is_closed() { 2 * VERDICT } else { VERDICT };
        if begun.elapsed() > limit {
            return Ok(calls.is_closed());
        }
        let mut poll = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if nix::poll::poll(&mut poll, LOOK_MS)? > 0
            && let Some(signal) = signals.read_signal()?
            && ENDING.iter().any(|s| *s as u32 == signal.ssi_signo)
        {
            return Ok(true);
        }
    }
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
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((exit_code(status), asked));
        }
        let Some(signal) = signals.read_signal()? else { continue };
        let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else { continue };
        if ENDING.contains(&number) {
            asked = true;
            // A driver that is gone needs no word.
            let _ = driver.take().map(|line| line.tell(&Said::Ending));
        }
        // What a terminal sends goes to the whole group, and has reached the child.
        if number != Signal::SIGCHLD && signal.ssi_code != libc::SI_KERNEL {
            crate::processes::signal(child.id() as i32, number as i32);
        }
    }
}

/// Makes an output durable and keeps a copy of it, if there is any.
fn save(calls: &Calls, name: &str, (descriptor, start): (i32, u64)) -> io::Result<Option<Output>> {
    let file = descriptor_file(descriptor)?;
    let end = position(descriptor, file.metadata()?.len())?.max(start);
    let length = end - start;
    if length == 0 {
        return Ok(None);
    }
    file.sync_all()?;
    let saved = (length <= SAVED_LIMIT_BYTES).then(|| format!("{name}.{descriptor}"));
    if let Some(saved) = &saved {
        let mut copy = File::create(calls.output(saved))?;
        copy.write_all(&content(descriptor, start, length as usize)?)?;
        copy.sync_all()?;
    }
    Ok(Some(Output { descriptor, start, end, saved }))
}
