//! Signals by which somebody has ended the script or its steps: what ends so has not crashed.

use criu::line::EXPLAINS;
use host::supervise::PASSED_ON;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// So long the wrapper needs at most to hear of a signal.
const HEARD: Duration = Duration::from_millis(500);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The signals of this start of the script, and when they came last.
#[derive(Clone, Debug, Default)]
pub struct Wishes(Arc<Mutex<BTreeMap<i32, Instant>>>);

impl Wishes {
    /// Somebody gives this signal.
    pub fn asks(&self, signal: i32) {
        self.signals().insert(signal, Instant::now());
    }

    /// Whether an end with this exit code, which may be 128 + signal, is what somebody wanted.
    pub fn explain(&self, code: i32) -> bool {
        self.signals().get(&(code - 128)).is_some_and(|at| at.elapsed() < EXPLAINS)
    }

    /// Likewise; who has signalled both the script and its wrapper may have ended the one before the other has heard.
    pub fn explain_soon(&self, code: i32) -> bool {
        let until = Instant::now() + HEARD;
        // SIGTERM ends the driver, too.
        let may_come = PASSED_ON.iter().any(|s| *s != Signal::SIGTERM && code == 128 + *s as i32);
        while may_come && !self.explain(code) && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.explain(code)
    }

    /// The script starts again, or something has crashed.
    pub fn forgets(&self) {
        self.signals().clear();
    }

    fn signals(&self) -> MutexGuard<'_, BTreeMap<i32, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_is_heard_a_moment_after_the_end_explains_it_and_a_crash_waits_for_none() {
        let wishes = Wishes::default();
        let late = wishes.clone();
        let thread = thread::spawn(move || {
            thread::sleep(LOOK);
            late.asks(libc::SIGINT);
        });
        assert!(wishes.explain_soon(128 + libc::SIGINT));
        thread.join().unwrap();
        let begun = Instant::now();
        assert!(!wishes.explain_soon(128 + libc::SIGSEGV) && !wishes.explain_soon(3));
        assert!(begun.elapsed() < HEARD);
    }
}
