//! Runs one command to its end, or kills it at its limit.

use crate::Error;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs a command to its end, or kills it at the limit.
pub(crate) fn run(mut command: Command, name: &str, limit: Duration) -> Result<String, Error> {
    let short: String = name.chars().take(120).collect();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| Error::Start { command: short.clone(), cause })?;
    let out = read_aside(child.stdout.take());
    let err = read_aside(child.stderr.take());
    let deadline = Instant::now() + limit;
    let left = || deadline.saturating_duration_since(Instant::now());
    let texts = out.recv_timeout(left()).ok().zip(err.recv_timeout(left()).ok());
    let status = texts.is_some().then(|| wait_until(&mut child, deadline)).flatten();
    let (Some((stdout, stderr)), Some(status)) = (texts, status) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::TimedOut { command: short, seconds: limit.as_secs() });
    };
    if status.success() {
        return Ok(stdout);
    }
    let said = stderr.lines().chain(stdout.lines()).rev().find(|l| !l.trim().is_empty());
    let text = said.map_or_else(|| status.to_string(), |l| l.trim().chars().take(300).collect());
    Err(Error::Refused { command: short, text })
}

/// Reads a pipe to its end on a thread of its own, so that neither pipe can block the other.
fn read_aside<R: Read + Send + 'static>(pipe: Option<R>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    threads::start(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Waits for the end of a child that has already closed its pipes: almost always at once.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_hangs_is_killed_at_its_limit() {
        let begun = Instant::now();
        let e = run(shell("exec sleep 3600"), "x", Duration::from_millis(50)).expect_err("limit");
        assert!(matches!(e, Error::TimedOut { .. }), "{e}");
        assert!(begun.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn a_refusal_carries_slurms_last_words() {
        let e = run(shell("echo first >&2; echo last >&2; exit 1"), "x", LIMIT).expect_err("rc 1");
        assert_eq!(e.to_string(), "x: last");
    }

    #[test]
    fn large_output_on_both_pipes_does_not_block() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; \
                      echo bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb >&2; i=$((i+1)); done";
        assert_eq!(run(shell(script), "x", LIMIT).expect("rc 0").lines().count(), 3000);
    }
}
