//! Signals by which somebody has ended the script or its steps: what ends so has not crashed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The signals of this start of the script.
#[derive(Clone, Debug, Default)]
pub struct Wishes(Arc<Mutex<BTreeSet<i32>>>);

impl Wishes {
    /// Somebody gives this signal.
    pub fn asks(&self, signal: i32) {
        self.signals().insert(signal);
    }

    /// Whether an end with this exit code, which may be 128 + signal, is what somebody wanted.
    pub fn explain(&self, code: i32) -> bool {
        self.signals().contains(&(code - 128))
    }

    /// The script starts again, or something has crashed.
    pub fn forgets(&self) {
        self.signals().clear();
    }

    fn signals(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
