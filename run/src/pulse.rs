//! Tells slow work from work that hangs: a thread that touches the storage beats as it advances.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static OWN: RefCell<Option<Pulse>> = const { RefCell::new(None) };
}

/// The beats of one thread.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Counts the beats of the calling thread from now on.
    pub fn take(&self) {
        OWN.set(Some(self.clone()));
    }

    /// Number of beats so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notes that this thread has advanced.
pub fn beat() {
    OWN.with_borrow(|own| {
        if let Some(pulse) = own {
            pulse.0.fetch_add(1, Ordering::Relaxed);
        }
    });
}
