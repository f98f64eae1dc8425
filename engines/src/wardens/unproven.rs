//! Callers of a driver that have not yet proved that they belong to the run: few at a time, and none for long.

use ::criu::line::{MOST_UNPROVEN, UNPROVEN_UNDISTURBED};
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The places for unproven callers, oldest first.
#[derive(Clone, Default)]
pub(super) struct Unproven(Arc<Shared>);

#[derive(Default)]
struct Shared {
    held: Mutex<BTreeMap<u64, (Instant, TcpStream)>>,
    next: AtomicU64,
    has_warned: AtomicBool,
}

/// A caller's place, until it is dropped.
pub(super) struct Place {
    of: Unproven,
    number: u64,
}

impl Unproven {
    /// A place for one more caller. If all are taken, the oldest caller makes room, unless it has just come.
    pub(super) fn admit(&self, stream: &TcpStream) -> Option<Place> {
        let own = stream.try_clone().inspect_err(|e| self.refuse(&e.to_string())).ok()?;
        let mut held = self.held();
        if held.len() >= MOST_UNPROVEN {
            let Some(oldest) = held.first_entry().filter(|e| e.get().0.elapsed() >= UNPROVEN_UNDISTURBED) else {
                drop(held);
                self.refuse("too many callers without a proof at a time");
                return None;
            };
            // Its thread gets an error, and ends.
            let _ = oldest.remove().1.shutdown(Shutdown::Both);
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        held.insert(number, (Instant::now(), own));
        Some(Place { of: self.clone(), number })
    }

    /// Logs why a caller was refused; only the first as a warning, so that callers cannot fill the output of a job.
    pub(super) fn refuse(&self, why: &str) {
        match self.0.has_warned.swap(true, Ordering::Relaxed) {
            false => tracing::warn!(why, "one that called is no task of this run"),
            true => tracing::debug!(why, "one that called is no task of this run"),
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, TcpStream)>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.held().remove(&self.number);
    }
}
