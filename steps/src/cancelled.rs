//! Whether a person or its own time limit has ended a step, as accounting tells, which hears of it a moment later.

use slurm::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How accounting begins the state of a step that a person has ended; the person's number follows.
const BY_SOMEBODY: &str = "CANCELLED by ";

/// What it says of a step that has reached the limit of its own.
const BY_LIMIT: &str = "TIMEOUT";

/// Longest wait for accounting.
const LIMIT: Duration = Duration::from_secs(2);

/// Time between two questions to it.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// Whether a step's state, as `ask` reads it, says so; not if accounting is slow.
pub fn is_cancelled(ask: impl Fn() -> Result<Option<String>, Error> + Send + 'static) -> bool {
    let until = Instant::now() + LIMIT;
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        let cancelled = loop {
            match ask() {
                Ok(Some(state)) if state != "RUNNING" => {
                    break state.starts_with(BY_SOMEBODY) || state == BY_LIMIT;
                }
                Ok(_) if Instant::now() < until => thread::sleep(ASK_AGAIN),
                _ => break false,
            }
        };
        tell.send(cancelled)
    });
    heard.recv_timeout(LIMIT) == Ok(true)
}
