//! A lock that its thread may take again, and leaves as a whole while it waits.

use parking_lot::RawMutex;
use parking_lot::lock_api::{RawMutex as _, RawMutexFair as _};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A lock that its thread may take again.
pub struct Reentrant {
    lock: RawMutex,
    /// The thread that has it; 0 if none has.
    owner: AtomicUsize,
    waiting: AtomicUsize,
    /// The thread that had it last, and whether another one has ever had it.
    last: AtomicUsize,
    several: AtomicBool,
}

/// The thread has the lock until this is dropped.
pub struct Inside<'a> {
    of: &'a Reentrant,
    is_outermost: bool,
}

impl Default for Reentrant {
    fn default() -> Reentrant {
        Reentrant {
            lock: RawMutex::INIT,
            owner: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            last: AtomicUsize::default(),
            several: AtomicBool::default(),
        }
    }
}

/// A number of this thread; no other one has it now.
fn own() -> usize {
    thread_local!(static OWN: Cell<u8> = const { Cell::new(0) });
    OWN.with(|own| own.as_ptr() as usize)
}

impl Reentrant {
    /// Takes it, unless this thread has it already.
    pub fn enter(&self) -> Inside<'_> {
        let is_outermost = !self.is_own();
        if is_outermost {
            self.take();
        }
        Inside { of: self, is_outermost }
    }

    /// Whether more than one thread has had it.
    pub fn had_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// Does something that may take long without it, if this thread has it.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        if !self.is_own() {
            return work();
        }
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: this thread has it.
        unsafe { self.lock.unlock() };
        let done = work();
        self.take();
        done
    }

    /// Hands it to a thread that waits for it, if one does, and takes it again after that.
    pub fn step_aside(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 || !self.is_own() {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: this thread has it.
        unsafe { self.lock.unlock_fair() };
        self.take();
    }

    fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == own()
    }

    fn take(&self) {
        if !self.lock.try_lock() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.lock.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let own = own();
        self.owner.store(own, Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        if last != own {
            self.last.store(own, Ordering::Relaxed);
            self.several.fetch_or(last != 0, Ordering::Relaxed);
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.is_outermost {
            self.of.owner.store(0, Ordering::Relaxed);
            // SAFETY: this thread has taken it.
            unsafe { self.of.lock.unlock() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[test]
    fn one_thread_has_it_at_a_time_and_may_take_it_again() {
        let lock = Reentrant::default();
        drop(lock.enter());
        assert!(!lock.had_several());
        let (within, sum) = (AtomicU32::new(0), AtomicU32::new(0));
        let alone = || {
            assert_eq!(within.fetch_add(1, Ordering::SeqCst), 0);
            sum.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            within.fetch_sub(1, Ordering::SeqCst);
        };
        let work = || {
            for _ in 0..200 {
                let _outer = lock.enter();
                alone();
                let _inner = lock.enter();
                lock.outside(thread::yield_now);
                alone();
                lock.step_aside();
                alone();
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(sum.into_inner(), 4 * 200 * 3);
        assert!(lock.had_several());
        assert_eq!(lock.outside(|| 7), 7);
    }

    #[test]
    fn who_steps_aside_comes_after_who_waits() {
        let lock = Reentrant::default();
        let turn = AtomicU32::new(0);
        thread::scope(|scope| {
            let inside = lock.enter();
            scope.spawn(|| {
                let _inside = lock.enter();
                turn.store(1, Ordering::SeqCst);
            });
            while lock.waiting.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            // The other one may not be asleep yet.
            thread::sleep(std::time::Duration::from_millis(50));
            lock.step_aside();
            assert_eq!(turn.load(Ordering::SeqCst), 1);
            drop(inside);
        });
    }
}
