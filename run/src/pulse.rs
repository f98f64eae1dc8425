//! Tells work that is slow from work that hangs: a thread that touches the storage beats while it gets on.

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
    /// From now on the beats of the calling thread.
    pub fn take(&self) {
        OWN.set(Some(self.clone()));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// This thread gets on.
pub fn beat() {
    OWN.with_borrow(|own| {
        if let Some(pulse) = own {
            pulse.0.fetch_add(1, Ordering::Relaxed);
        }
    });
}
