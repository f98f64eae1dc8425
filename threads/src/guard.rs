//! A place for one thread at a time.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tells that two threads are in the same place at once.
#[derive(Default)]
pub struct Guard(AtomicUsize);

/// The thread is in it until this is dropped.
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
