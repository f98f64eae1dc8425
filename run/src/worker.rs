//! A thread that touches the storage for others: who asks it waits no longer than he can, whatever the storage does.

use crate::pulse::Pulse;
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two looks at the beats of the thread.
const LOOK: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;

/// The thread: it does one thing after the other, in the order in which it is asked.
#[derive(Clone, Debug)]
pub struct Worker {
    to: Sender<Job>,
    pulse: Pulse,
    /// Somebody waits no more for what it is at.
    stalled: Arc<AtomicBool>,
}

impl Worker {
    /// Starts the thread.
    pub fn start() -> Worker {
        let (to, jobs) = channel::<Job>();
        let (pulse, stalled) = (Pulse::default(), Arc::new(AtomicBool::new(false)));
        let (own, is_stalled) = (pulse.clone(), stalled.clone());
        threads::start(move || {
            own.take();
            for job in jobs {
                job();
                is_stalled.store(false, Ordering::SeqCst);
            }
        });
        Worker { to, pulse, stalled }
    }

    /// Has it done, and does not wait.
    pub fn post(&self, act: impl FnOnce() + Send + 'static) {
        // The thread lives as long as there is somebody to ask it.
        let _ = self.to.send(Box::new(act));
    }

    /// Has it done and waits for the answer, as long as the thread gets on. If nobody waits any more when its turn comes, it is
    /// not done.
    ///
    /// # Errors
    /// The storage does not answer: the thread has not got on for `limit`.
    pub fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        limit: Duration,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let given_up = Arc::new(AtomicBool::new(false));
        let unwanted = given_up.clone();
        let answer = self.ask(what, limit, move || (!unwanted.load(Ordering::SeqCst)).then(act));
        given_up.store(answer.is_err(), Ordering::SeqCst);
        answer?.ok_or_else(|| stalled(what, limit))
    }

    /// Like [`Worker::call`], but it is done also if nobody waits any more.
    ///
    /// # Errors
    /// As there.
    pub fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        limit: Duration,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = channel();
        self.post(move || {
            // Nobody may be left to hear it.
            let _ = answer.send(act());
        });
        let (mut beats, mut since) = (self.pulse.count(), Instant::now());
        loop {
            // What comes after somebody has waited in vain does not wait again.
            let limit_now = if self.stalled.load(Ordering::SeqCst) { Duration::ZERO } else { limit };
            match answered.recv_timeout(LOOK.min(limit_now.saturating_sub(since.elapsed()))) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(stalled(what, since.elapsed())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.pulse.count();
            if now != beats {
                (beats, since) = (now, Instant::now());
            } else if since.elapsed() >= limit_now {
                self.stalled.store(true, Ordering::SeqCst);
                return Err(stalled(what, since.elapsed()));
            }
        }
    }
}

fn stalled(what: &'static str, waited: Duration) -> Error {
    Error::Stalled { what, waited_s: waited.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse;
    use std::sync::Mutex;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn what_hangs_is_not_waited_for_and_what_is_asked_meanwhile_is_done_later_or_not_at_all() {
        let worker = Worker::start();
        let (go_on, hold) = channel::<()>();
        let done: Arc<Mutex<Vec<&str>>> = Arc::default();
        let note = |what| {
            let done = done.clone();
            move || done.lock().unwrap().push(what)
        };
        let hangs = worker.ask("reading", SHORT, move || hold.recv());
        assert!(matches!(hangs, Err(Error::Stalled { what: "reading", .. })));
        let begun = Instant::now();
        assert!(worker.call("writing", SHORT, note("called")).is_err());
        assert!(worker.ask("appending", SHORT, note("asked")).is_err());
        assert!(begun.elapsed() < SHORT, "nobody waits twice");
        go_on.send(()).unwrap();
        // What comes back is used again.
        let limit = Instant::now() + Duration::from_secs(30);
        while worker.call("reading", SHORT, || 7).is_err() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(*done.lock().unwrap(), ["asked"]);
    }

    #[test]
    fn what_is_slow_and_gets_on_is_waited_for() {
        let worker = Worker::start();
        let slow = || {
            for _ in 0..10 {
                thread::sleep(SHORT / 4);
                pulse::beat();
            }
            7
        };
        assert_eq!(worker.call("copying", SHORT, slow).unwrap(), 7);
    }
}
