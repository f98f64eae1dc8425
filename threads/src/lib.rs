//! Starts threads although the user's limit of processes (`ulimit -u`) is reached: they start when there is room.
//!
//! The limit counts all processes and threads of the user on the node, also those of a job's own program and of other
//! jobs. `std::thread::spawn` panics where it is reached for a moment, which would end what protects the job.

mod reentrant;

pub use reentrant::{Inside, Reentrant};

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(50);

/// Starts a thread, as soon as there is room for one.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    patiently(work, |work| Builder::new().spawn(work))
}

/// Starts a thread that ends with a scope, as soon as there is room for one.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    patiently(work, |work| Builder::new().spawn_scoped(scope, work))
}

/// A try that fails drops what it was given: the work itself stays here.
fn patiently<'a, T: 'a, H>(
    work: impl FnOnce() -> T + Send + 'a,
    begin: impl Fn(Box<dyn FnOnce() -> T + Send + 'a>) -> io::Result<H>,
) -> H {
    let work: Box<dyn FnOnce() -> T + Send + 'a> = Box::new(work);
    let kept = Arc::new(Mutex::new(Some(work)));
    loop {
        let own = kept.clone();
        let taken = move || {
            let work = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            work.expect("one thread takes it")()
        };
        match begin(Box::new(taken)) {
            Ok(handle) => return handle,
            // EAGAIN: a limit is reached.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(AGAIN),
            Err(e) => panic!("no thread can be started: {e}"),
        }
    }
}

/// Whether so many threads find room at the same time, within this time.
pub fn have_room(count: usize, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let (end, ended) = channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let wait = |_| {
            let ended = ended.clone();
            Builder::new().spawn(move || drop(ended.lock().map(|ended| ended.recv()))).ok()
        };
        let all: Vec<_> = (0..count).map_while(wait).collect();
        drop(end);
        let found = all.len();
        all.into_iter().for_each(|thread| drop(thread.join()));
        if found == count {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_that_finds_no_room_is_done_once_when_there_is_some() {
        let tries = AtomicUsize::new(0);
        let handle = patiently(
            || 7,
            |work| match tries.fetch_add(1, Ordering::SeqCst) {
                0..3 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Builder::new().spawn(work),
            },
        );
        assert_eq!((handle.join().expect("done"), tries.into_inner()), (7, 4));
    }

    #[test]
    fn room_is_looked_for_and_given_back() {
        assert!((0..50).all(|_| have_room(8, Duration::ZERO)));
        std::thread::scope(|scope| assert_eq!(start_in(scope, || 3).join().expect("done"), 3));
        assert_eq!(start(|| 4).join().expect("done"), 4);
    }
}
