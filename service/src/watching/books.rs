//! Keeps the books of a controller: what may wait as long as Slurm's accounting takes to answer, and must hold up no watch.

use super::state::Watching;
use crate::accounting::Accounting;
use crate::history;
use parking_lot::Mutex;
use slurm::Slurm;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two tellings of the energy of jobs to Slurm's accounting, s.
const TELL_ENERGY_S: f64 = 10.0;

/// Time between two bookings of watched time, s.
const BOOK_S: f64 = 60.0;

/// Most runs that are forgotten in one transaction.
const FORGET_TOGETHER: u32 = 100;

/// What of the books is due again and again.
pub(crate) struct Books {
    pub watching: Arc<Watching>,
    pub slurm: Slurm,
    pub store: Arc<Mutex<Store>>,
    pub accounting: Arc<Accounting>,
    /// How long runs are kept that have ended, days; for ever if 0.
    pub keep_days: f64,
}

impl Books {
    /// Keeps them for ever.
    pub(crate) fn keep_for_ever(&self) {
        if let Err(e) = history::take_over(&self.slurm, &self.store, listener::now_s()) {
            tracing::info!(reason = format!("{e:#}"), "no history is taken over from Slurm");
        }
        let (mut told_s, mut booked_s) = (0.0, 0.0);
        loop {
            std::thread::sleep(LOOK);
            let now_s = self.watching.now_s();
            if now_s - told_s >= TELL_ENERGY_S {
                told_s = now_s;
                if let Err(e) = self.accounting.tell_energy() {
                    tracing::warn!(%e, "Slurm's accounting was not told the energy of jobs; it will be tried again");
                }
            }
            if now_s - booked_s >= BOOK_S {
                match self.book(now_s - booked_s) {
                    Ok(()) => booked_s = now_s,
                    Err(e) => tracing::error!(%e, "the watched time is not booked yet"),
                }
                if let Err(e) = self.forget() {
                    tracing::error!(%e, "runs of long ago are not forgotten yet");
                }
            }
        }
    }

    /// Books for how long nodes were watched, s.
    fn book(&self, seconds: f64) -> store::Result<()> {
        let nodes: Vec<(String, f64)> = self.watching.heard_names().into_iter().map(|n| (n, seconds)).collect();
        self.store.lock().watched(&nodes)
    }

    /// Forgets runs that ended longer ago than the site keeps them, a few at a time: a clock that is set wrongly takes no more
    /// than these before somebody sees it.
    fn forget(&self) -> store::Result<()> {
        let keep_s = self.keep_days * 86_400.0;
        if keep_s > 0.0 {
            self.store.lock().forget(listener::now_s() - keep_s, FORGET_TOGETHER)?;
        }
        Ok(())
    }
}
