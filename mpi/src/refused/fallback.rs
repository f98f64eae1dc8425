//! Notes what this library does not serve, for who has started the ranks: the program is started again without it then.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names the file in which it is noted; without it nobody would start the program again.
const VARIABLE: &str = "JOULEPOINT_FALLBACK";

/// For so long a note is new: a program may ask again and again for what it does not get.
const NEW: Duration = Duration::from_secs(10);

/// Notes what is in the way: if the program ends soon, it was for that.
pub fn note(reason: &str) {
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_none_or(|(at, said)| said != reason || at.elapsed() > NEW) {
        *last = Some((Instant::now(), reason.to_owned()));
        // The program hears of it in any case. Nothing is taken out before: the first rank that ends has the others killed,
        // perhaps between two calls of the system here.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let _ = opened.and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
    }
}

/// Tells that two threads are in MPI at once, though at most `MPI_THREAD_SERIALIZED` is provided.
#[derive(Default)]
pub struct Guard(AtomicUsize);

/// The thread is in MPI until this is dropped.
pub struct Inside<'a> {
    guard: &'a Guard,
    before: usize,
}

impl Guard {
    /// Lets this thread in; none if another one is in.
    pub fn enter(&self) -> Option<Inside<'_>> {
        thread_local!(static OWN: Cell<u8> = const { Cell::new(0) });
        let own = OWN.with(|own| own.as_ptr() as usize);
        // No lock: a pair of threads that meets often is seen, if not at its first meeting.
        let before = self.0.load(Ordering::Relaxed);
        if before != 0 && before != own {
            return None;
        }
        self.0.store(own, Ordering::Relaxed);
        Some(Inside { guard: self, before })
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.guard.0.store(self.before, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_enter_again_and_no_other_one_before_it_has_left() {
        let guard = Guard::default();
        let enters = || std::thread::scope(|scope| scope.spawn(|| guard.enter().is_some()).join().unwrap());
        let outer = guard.enter();
        drop(guard.enter());
        assert!(outer.is_some() && !enters());
        drop(outer);
        assert!(enters() && guard.enter().is_some());
    }
}
