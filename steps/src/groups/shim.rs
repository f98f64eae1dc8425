//! Stands in for `srun` in the script: starts one real `srun` for each group as the driver says, and waits for all.

use super::split;
use super::words::{EXIT_ERROR, OTHER_MEMORY, Outputs, Said, Told};
use crate::sandboxes::fit;
use crate::{mpi, srun};
use driver::groups::ports::{NODE_MEMORY, NOT_BEGUN};
use host::processes;
use host::supervise::{PASSED_ON, block_signals, exit_code, unblocked};
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use worlds::kinds::{self, Hindrance, Launcher, World};
use worlds::ranks;

/// Time between asking a group's `srun` to end and asking again; after as much again it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Exit code when the driver is gone or cannot be reached.
const NO_DRIVER: i32 = 1;

/// Exit code of an `srun` that refuses its words.
const REFUSED: i32 = 1;

enum News {
    Told(Told),
    DriverGone,
    Ended { group: usize, status: Option<ExitStatus> },
    Signal(Signal),
}

/// A group's real `srun`.
struct Child {
    pid: i32,
    /// When it was asked to end, and how often.
    stopped: Option<(Instant, u32)>,
}

impl Child {
    /// Whether it was asked to end a moment ago.
    fn is_being_stopped(&self) -> bool {
        self.stopped.is_some_and(|(since, _)| since.elapsed() < PATIENCE)
    }
}

/// Runs `srun` with these arguments, split by groups as the driver at `socket` says; the exit code is the highest of
/// the groups.
pub fn run(socket: &Path, words: &[OsString]) -> i32 {
    serve(socket, words).unwrap_or_else(|e| {
        protocol::say!("joulepoint: srun cannot be split by groups: {e}");
        NO_DRIVER
    })
}

fn serve(socket: &Path, words: &[OsString]) -> io::Result<i32> {
    let real = || srun::real().ok_or_else(|| io::Error::other("the PATH has no other"));
    let plain = words.iter().map(|w| w.to_str().map(str::to_string)).collect::<Option<Vec<_>>>();
    let Some(args) = plain else {
        protocol::say!("joulepoint: this srun runs as it is, without groups: its words are no plain text");
        return Err(real()?.args(words).exec());
    };
    let signals = block_signals()?;
    let mut driver = UnixStream::connect(socket)?;
    let mut variables = variables(std::env::vars_os());
    let mpi = mpi::lookup(mpi::TYPE, &args, &std::env::current_dir()?, |name| std::env::var(name).ok());
    variables.extend(mpi.map(|mpi| (mpi::TYPE.to_string(), mpi)));
    let world = world(&args).map(|world| world.map_err(|why| why.to_string()));
    let is_world = world.as_ref().is_some_and(Result::is_ok);
    let (key, unfit) = (srun::key_of_groups(words), fit(&args, is_world).err());
    say(&mut driver, &Said::Called { args, variables, key, unfit, world })?;
    let (sender, news) = channel();
    listen(driver.try_clone()?, sender.clone());
    hear_signals(signals, sender.clone());
    let mut children: BTreeMap<usize, Child> = BTreeMap::new();
    let mut printed: BTreeMap<Outputs, [u64; 2]> = BTreeMap::new();
    let (mut ending, mut is_asked_to_end) = (None, false);
    loop {
        if let Some(code) = ending.filter(|_| children.is_empty()) {
            return Ok(code);
        }
        match next(&news, &mut children) {
            None => {}
            Some(News::Told(Told::Pass { why })) => {
                if let Some(why) = why {
                    protocol::say!("joulepoint: this srun runs as it is, without groups: {why}");
                }
                return Err(unblocked(real()?.args(words)).exec());
            }
            Some(News::Told(Told::Refuse { why })) => {
                protocol::say!("srun: error: {why}");
                return Ok(REFUSED);
            }
            Some(News::Told(Told::Start { group, first, args, environment, outputs })) => {
                if !first.is_empty() {
                    // What cannot be emptied cannot be written either, and srun tells that.
                    let _ = unblocked(Command::new("sh").args(["-c", &first])).status();
                }
                let mut command = real()?;
                if environment.iter().any(|(name, _)| name == NODE_MEMORY) {
                    for name in OTHER_MEMORY {
                        command.env_remove(name);
                    }
                }
                if std::env::var_os(EXIT_ERROR).is_none() {
                    command.env(EXIT_ERROR, NOT_BEGUN.to_string());
                }
                command.args(&args).envs(environment);
                printed.extend(outputs.clone().filter(|o| !printed.contains_key(o)).map(|o| (o, [0; 2])));
                match lead(&mut command, outputs.as_ref()).and_then(|()| start(&mut command, group, &sender)) {
                    Ok(pid) => drop(children.insert(group, Child { pid, stopped: None })),
                    Err(e) => {
                        protocol::say!("joulepoint: srun: {e}");
                        say(&mut driver, &Said::Ended { group, code: 126, is_killed: false })?;
                    }
                }
            }
            Some(News::Told(Told::Print { outputs, upto_bytes })) => {
                pass_on(&outputs, printed.entry(outputs.clone()).or_default(), upto_bytes);
            }
            Some(News::Told(Told::Stop { group })) => {
                children.get_mut(&group).into_iter().for_each(stop);
            }
            Some(News::Told(Told::End { code })) => {
                children.values_mut().for_each(stop);
                ending = Some(code);
            }
            Some(News::Ended { group, status }) => {
                children.remove(&group);
                if ending.is_none() {
                    let is_killed = status.is_some_and(|status| status.signal().is_some());
                    say(&mut driver, &Said::Ended { group, code: status.map_or(126, exit_code), is_killed })?;
                }
            }
            Some(News::Signal(signal)) => {
                if srun::ENDING.contains(&signal) && !std::mem::replace(&mut is_asked_to_end, true) {
                    // A driver that is gone needs no word.
                    let _ = say(&mut driver, &Said::Ending);
                }
                children.values().for_each(|c| processes::signal(c.pid, signal as i32));
            }
            Some(News::DriverGone) if ending.is_some() => {}
            Some(News::DriverGone) => {
                children.values_mut().for_each(stop);
                if is_asked_to_end {
                    // Nobody goes back any more.
                    printed.iter_mut().for_each(|(outputs, printed)| pass_on(outputs, printed, [u64::MAX; 2]));
                }
                return Ok(NO_DRIVER);
            }
        }
    }
}

/// What makes one world of the tasks of an `srun` with these words, if they are one MPI program.
fn world(args: &[String]) -> Option<Result<World, Hindrance>> {
    let (_, at) = split::options(args).ok()?;
    ranks::world(&args[at..], &std::env::current_dir().ok()?, &Launcher::Path(kinds::paths()))
}

/// Those of an environment by which `srun` is told something; others may be no plain text.
fn variables(environment: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let plain = environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    plain.filter(|(name, _)| ["SLURM_", "SRUN_"].iter().any(|begin| name.starts_with(begin))).collect()
}

/// Waits for news; meanwhile those that were asked to end and do not are asked again, and then killed.
fn next(news: &Receiver<News>, children: &mut BTreeMap<usize, Child>) -> Option<News> {
    match news.recv_timeout(Duration::from_secs(1)) {
        Ok(news) => return Some(news),
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => return Some(News::DriverGone),
    }
    children.values_mut().filter(|c| c.stopped.is_some()).for_each(stop);
    None
}

/// Has a command write to files of its own, if there are some.
fn lead(command: &mut Command, outputs: Option<&Outputs>) -> io::Result<()> {
    let Some([out, err]) = outputs else { return Ok(()) };
    let open = |path| File::options().append(true).create(true).open(path);
    command.stdout(open(out)?).stderr(open(err)?);
    Ok(())
}

/// Writes what files have between these numbers of bytes to standard output and error.
fn pass_on(outputs: &Outputs, printed_bytes: &mut [u64; 2], upto_bytes: [u64; 2]) {
    if let Err(e) = print(outputs, printed_bytes, upto_bytes) {
        protocol::say!("joulepoint: what a group wrote cannot be printed: {e}");
    }
}

fn print(outputs: &Outputs, printed_bytes: &mut [u64; 2], upto_bytes: [u64; 2]) -> io::Result<()> {
    let targets: [&mut dyn Write; 2] = [&mut io::stdout().lock(), &mut io::stderr().lock()];
    for (i, to) in targets.into_iter().enumerate() {
        let mut file = match File::open(&outputs[i]) {
            // It was never started.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        file.seek(SeekFrom::Start(printed_bytes[i]))?;
        printed_bytes[i] += io::copy(&mut file.take(upto_bytes[i].saturating_sub(printed_bytes[i])), to)?;
        to.flush()?;
    }
    Ok(())
}

/// `srun` ends its step on SIGTERM; who asks twice at once has asked once.
fn stop(child: &mut Child) {
    if child.is_being_stopped() {
        return;
    }
    let asked = child.stopped.map_or(0, |(_, asked)| asked);
    child.stopped = Some((Instant::now(), asked + 1));
    processes::signal(child.pid, if asked < 2 { libc::SIGTERM } else { libc::SIGKILL });
}

fn start(command: &mut Command, group: usize, news: &Sender<News>) -> io::Result<i32> {
    let mut child = unblocked(command).spawn()?;
    let (pid, news) = (child.id() as i32, news.clone());
    threads::start(move || {
        let status = child.wait().ok();
        // Nobody listens any more when the call is over.
        let _ = news.send(News::Ended { group, status });
    });
    Ok(pid)
}

fn listen(driver: UnixStream, news: Sender<News>) {
    threads::start(move || {
        for line in BufReader::new(driver).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(told) => drop(news.send(News::Told(told))),
                Err(e) => protocol::say!("joulepoint: the wrapper is not understood: {e}"),
            }
        }
        let _ = news.send(News::DriverGone);
    });
}

/// Passes signals on to the groups, as `srun` would to its tasks.
fn hear_signals(signals: SigSet, news: Sender<News>) {
    threads::start(move || {
        while let Ok(signal) = signals.wait() {
            if PASSED_ON.contains(&signal) && news.send(News::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

fn say(to: &mut UnixStream, word: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    to.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn an_environment_that_is_no_plain_text_is_read() {
        let latin = OsString::from_vec(vec![0xe9]);
        let all = [("SLURM_A", "1".into()), ("OTHER", latin.clone()), ("SRUN_B", "2".into()), ("SLURM_C", latin)];
        let read = variables(all.into_iter().map(|(name, value): (&str, OsString)| (name.into(), value)));
        assert_eq!(read.into_iter().map(|(name, value)| name + &value).collect::<Vec<_>>(), ["SLURM_A1", "SRUN_B2"]);
    }
}
