//! Signals by which somebody has ended the script or its steps: what ends so has not crashed.

use criu::line::EXPLAINS;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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

    /// The script starts again, or something has crashed.
    pub fn forgets(&self) {
        self.signals().clear();
    }

    fn signals(&self) -> MutexGuard<'_, BTreeMap<i32, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
