//! Whether a person or its own time limit has ended a step, as accounting tells, which hears of it a moment later.

use crate::script::Steps;
use slurm::{Error, JobState};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How accounting begins the state of a step that a person has ended; the person's number follows.
const BY_SOMEBODY: &str = "CANCELLED by ";

/// What it says of a step that has reached the limit of its own.
const BY_LIMIT: &str = "TIMEOUT";

/// Longest wait for accounting.
const LIMIT: Duration = Duration::from_secs(5);

/// Time between two questions to it.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// Whether Slurm says that it takes nothing from the job: only then a signal is a person's wish. What is preempted, requeued
/// or loses a node gets the same ones, and has to go back.
pub fn is_left_in_peace(steps: Option<&Steps>) -> bool {
    let Some(Steps { slurm, job }) = steps else { return true };
    let runs = |state| matches!(state, JobState::Running | JobState::Suspended);
    matches!(slurm.job(*job), Ok(Some(job)) if runs(job.state) && !job.preempted && !job.has_flag("COMPLETING"))
}

/// Whether a step's state, as `ask` reads it, says so; not if accounting is slow.
pub fn is_cancelled(ask: impl Fn() -> Result<Option<String>, Error> + Send + 'static) -> bool {
    let until = Instant::now() + LIMIT;
    let (tell, heard) = mpsc::channel();
    threads::start(move || {
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
