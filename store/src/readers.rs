//! Several connections for questions that come over HTTP, so that one does not wait for another's answer.

use crate::error::Result;
use crate::store::Store;
use parking_lot::{Mutex, MutexGuard};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many there are; each may keep two megabytes of a SQLite file.
const CONNECTIONS: usize = 8;

/// Connections to a store that has been opened.
pub struct Readers {
    all: Vec<Mutex<Store>>,
    turn: AtomicUsize,
    plans: Semaphore,
}

impl Readers {
    /// Connects.
    ///
    /// # Errors
    /// As [`Store::open_again`] says.
    pub fn open(place: &Path) -> Result<Readers> {
        let all = (0..CONNECTIONS).map(|_| Ok(Mutex::new(Store::open_again(place)?))).collect::<Result<_>>()?;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Readers { all, turn: AtomicUsize::new(0), plans: Semaphore::new(cores.min(CONNECTIONS)) })
    }

    /// Waits until a core is free to make a plan on: more at once would only take turns, and all of them be late.
    pub async fn turn_to_plan(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.plans.acquire().await.ok()
    }

    /// One that is free, or the next in turn when it is.
    pub fn free(&self) -> MutexGuard<'_, Store> {
        self.all.iter().find_map(Mutex::try_lock).unwrap_or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            self.all[turn % self.all.len()].lock()
        })
    }
}
