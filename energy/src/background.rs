//! Asks a command or a library again and again beside the sampler, and keeps the last answer.
//!
//! A sample never waits for it: a management controller can take seconds, and a wedged one, or a wedged GPU,
//! never answers. A command is killed at its deadline; a library that hangs holds only this thread.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{Error, Feed, Latest};

/// Longest output that is read as an answer, bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;
/// Time in which a run notices that it is no longer wanted.
const SLICE: Duration = Duration::from_millis(100);

struct Shared<T> {
    state: Mutex<(Latest<T>, bool)>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, (Latest<T>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.lock().1
    }
}

/// A question asked in the background.
pub struct Background<T = f64> {
    shared: Arc<Shared<T>>,
    what: String,
}

impl Background<f64> {
    /// Starts to run `words` every `period_s`; `parse` finds the number in what it prints.
    ///
    /// # Errors
    /// When there is no such program, or no thread can be had.
    pub fn start(
        words: &[String],
        period_s: f64,
        timeout_s: f64,
        parse: fn(&str) -> Option<f64>,
    ) -> Result<Background, Error> {
        let Some(program) = words.first() else { return Err(Error::refused("no command is configured")) };
        if !found(program) {
            return Err(Error::refused(format!("{program}: no such program")));
        }
        let (words, timeout) = (words.to_vec(), seconds(timeout_s));
        Background::run(words.join(" "), period_s, move |stopped| {
            let text = run_once(stopped, &words, timeout)?;
            parse(&text).ok_or_else(|| Error::malformed(words.join(" "), &text).to_string())
        })
    }
}

impl<T: Clone + Send + 'static> Background<T> {
    /// Starts to ask `what` every `period_s`; the answer's error says why there is none.
    pub(crate) fn ask(
        what: String,
        period_s: f64,
        mut question: impl FnMut() -> Result<T, String> + Send + 'static,
    ) -> Result<Background<T>, Error> {
        Background::run(what, period_s, move |_| question())
    }

    fn run(
        what: String,
        period_s: f64,
        mut question: impl FnMut(&dyn Fn() -> bool) -> Result<T, String> + Send + 'static,
    ) -> Result<Background<T>, Error> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::default() });
        let thread = {
            let shared = shared.clone();
            move || ask_for_ever(&shared, seconds(period_s), || question(&|| shared.stopped()))
        };
        let spawned = std::thread::Builder::new().name("energy-asks".into()).spawn(thread);
        spawned.map_err(|e| Error::refused(format!("{what}: no thread to ask it: {e}")))?;
        Ok(Background { shared, what })
    }

    /// Waits until a run has ended, at most `timeout_s`; the samplers never call it.
    pub fn wait(&self, timeout_s: f64) -> Latest<T> {
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, seconds(timeout_s), |s| s.0.runs == 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.0.clone()
    }
}

impl<T: Clone + Send> Feed<T> for Background<T> {
    fn latest(&mut self) -> Latest<T> {
        self.shared.lock().0.clone()
    }

    fn describe(&self) -> String {
        self.what.clone()
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.shared.lock().1 = true;
        self.shared.changed.notify_all();
    }
}

/// A duration from the configuration, within what a clock can hold.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s.clamp(0.01, 86_400.0)).unwrap_or(Duration::from_secs(1))
}

fn found(program: &str) -> bool {
    if program.contains('/') {
        return std::path::Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn ask_for_ever<T>(shared: &Shared<T>, period: Duration, mut question: impl FnMut() -> Result<T, String>) {
    while !shared.stopped() {
        let begun = Instant::now();
        let answer = question();
        let mut state = shared.lock();
        state.0.runs += 1;
        match answer {
            Ok(value) => {
                state.0.value = Some((state.0.runs, value));
                state.0.error = None;
            }
            Err(error) => state.0.error = Some(error),
        }
        shared.changed.notify_all();
        let rest = period.saturating_sub(begun.elapsed());
        let _ = shared.changed.wait_timeout_while(state, rest, |s| !s.1);
    }
}

/// The output of one run, or why there is none.
fn run_once(stopped: &dyn Fn() -> bool, words: &[String], timeout: Duration) -> Result<String, String> {
    let deadline = Instant::now() + timeout;
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let output = child.stdout.take().map(|out| read_until(stopped, out, deadline)).unwrap_or(Ok(Vec::new()));
    let bytes = match output {
        Ok(bytes) => bytes,
        Err(error) => {
            end(&mut child);
            return Err(format!("{program}: {error}"));
        }
    };
    match wait_until(stopped, &mut child, deadline) {
        Some(status) if status.success() => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Some(status) => Err(format!("{program}: {status}")),
        None => {
            end(&mut child);
            Err(format!("{program}: closed its output but did not end in time"))
        }
    }
}

fn read_until(stopped: &dyn Fn() -> bool, mut out: ChildStdout, deadline: Instant) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no answer in time".into());
        }
        if stopped() {
            return Err("no longer wanted".into());
        }
        let slice = PollTimeout::try_from(left.min(SLICE)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLIN)], slice) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        match out.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
        if bytes.len() > OUTPUT_LIMIT {
            return Err(format!("more than {OUTPUT_LIMIT} bytes of output"));
        }
    }
}

fn wait_until(stopped: &dyn Fn() -> bool, child: &mut Child, deadline: Instant) -> Option<std::process::ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline && !stopped() => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(SLICE);
            }
            _ => return None,
        }
    }
}

/// Kills the command with all it has started, and collects it.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout_s: f64) -> Background {
        let words = ["sh", "-c", script].map(String::from);
        Background::start(&words, 3600.0, timeout_s, |t| t.trim().parse().ok()).unwrap()
    }

    #[test]
    fn an_answer_is_kept() {
        let latest = shell("echo 220", 60.0).wait(60.0);
        assert_eq!(latest, Latest { runs: 1, value: Some((1, 220.0)), error: None });
    }

    #[test]
    fn a_wedged_command_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        // The grandchild keeps the pipe open, as a hung driver's helper would.
        let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
        // On a busy machine it may be killed before it has said who its child is.
        let pid: i32 = loop {
            assert!(shell(&script, 1.0).wait(60.0).error.unwrap().contains("no answer in time"));
            if let Some(pid) = std::fs::read_to_string(&pid_file).ok().and_then(|pid| pid.trim().parse().ok()) {
                break pid;
            }
        };
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !state().is_empty() && !state().contains(") Z") {
            assert!(Instant::now() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn failures_are_told_apart() {
        assert!(shell("echo lots of words", 60.0).wait(60.0).error.unwrap().contains("lots of words"));
        assert!(shell("exit 3", 60.0).wait(60.0).error.unwrap().contains("exit status: 3"));
        assert!(shell("yes", 60.0).wait(60.0).error.unwrap().contains("bytes of output"));
        let missing = Background::start(&["no-such-program-here".into()], 1.0, 1.0, |_| None);
        assert!(missing.map(|_| ()).unwrap_err().to_string().contains("no such program"));
        assert!(Background::start(&[], 1.0, 1.0, |_| None).is_err());
    }
}
