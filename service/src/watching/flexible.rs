//! Runs that may wait for hours of less price or carbon: asked to leave their nodes while others are better.

use super::state::Watching;
use anyhow::Result;
use audit::{Act, By};
use listener::now_s;
use orders::{Giver, Orders};
use parking_lot::Mutex;
use protocol::{Order, RunKey, Verb};
use slurm::Slurm;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{FlexibleRun, Readers, Store};
use tariff::{Aim, Pause, TariffFile, Waiting};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// Most runs that are asked to leave at one look: all that wait for one hour would write their checkpoints at once.
const MOST_AT_ONCE: usize = 20;

/// A run that was asked to leave and is still there is not asked again for so long, s.
const AGAIN_S: f64 = 1800.0;

/// Who orders it.
const BY: &str = "the site's tariff";

/// What asks runs to leave.
pub(crate) struct Flexible {
    pub watching: Arc<Watching>,
    pub slurm: Slurm,
    pub store: Arc<Mutex<Store>>,
    pub readers: Arc<Readers>,
    pub orders: Arc<Orders>,
    pub tariff: Arc<TariffFile>,
    pub aim: Aim,
}

/// What is known of the lives of runs that may wait.
type Lives = BTreeMap<(RunKey, u32), Life>;

#[derive(Clone, Copy)]
struct Life {
    /// What Slurm has said of the job's limits.
    limits: Limits,
    /// When it was asked to leave, on the watch's clock.
    asked_s: Option<f64>,
}

/// Limits of a job; infinite for none.
#[derive(Clone, Copy)]
struct Limits {
    time_s: f64,
    /// When it must have ended, s since the epoch.
    deadline_s: f64,
}

impl Limits {
    /// What a run that may wait needs. In its next life it has its whole time limit again, and Slurm wants it to fit before the
    /// deadline.
    fn wish(&self, may: &FlexibleRun, now_s: f64) -> Waiting {
        let mut wish = may.waiting(now_s, self.time_s - (now_s - may.start_s));
        wish.slack_s = wish.slack_s.min(self.deadline_s - now_s - self.time_s);
        wish
    }
}

impl Flexible {
    /// Looks for ever.
    pub(crate) fn look_for_ever(&self) {
        let mut lives = Lives::new();
        loop {
            std::thread::sleep(LOOK);
            if let Err(e) = self.look(&mut lives) {
                tracing::warn!(error = format!("{e:#}"), "runs that may wait were not looked at; they go on");
            }
        }
    }

    fn look(&self, lives: &mut Lives) -> Result<()> {
        let (tariff, watch_s) = (self.tariff.tariff(), self.watching.now_s());
        let runs = self.readers.free().flexible_runs()?;
        let of = |may: &FlexibleRun| (may.run.key.clone(), may.run.restart_count);
        let open: BTreeSet<_> = runs.iter().map(of).collect();
        lives.retain(|life, _| open.contains(life));
        let mut given = 0;
        for may in runs.iter().filter(|may| may.can_be_asked()) {
            let known = lives.get(&of(may)).copied();
            let is_asked = known.and_then(|life| life.asked_s).is_some_and(|at_s| watch_s - at_s < AGAIN_S);
            let pause = |limits: Limits| tariff.pause(self.aim, &limits.wish(may, now_s()));
            // Slurm is asked once for each life, and again before it is asked to leave.
            if given >= MOST_AT_ONCE || is_asked || known.is_some_and(|life| pause(life.limits).is_none()) {
                continue;
            }
            let Some(limits) = self.limits(may)? else { continue };
            let left = pause(limits);
            if let Some(pause) = &left {
                given += 1;
                self.leave(may, pause);
            }
            lives.insert(of(may), Life { limits, asked_s: left.map(|_| watch_s) });
        }
        Ok(())
    }

    /// The limits of a job that may wait, by Slurm's word; none of one that cannot, such as in a reservation, which ends when
    /// it ends.
    fn limits(&self, may: &FlexibleRun) -> Result<Option<Limits>> {
        let job = self.slurm.job(may.run.job)?.filter(|job| job.is_life(may.run.uid, may.run.restart_count));
        let can = |job: &slurm::Job| job.requeue && job.batch && job.reservation.is_empty();
        let Some(job) = job.filter(can) else { return Ok(None) };
        let deadline_s = self.slurm.deadline_s(&job)?.unwrap_or(f64::INFINITY);
        Ok(Some(Limits { time_s: job.time_limit_s.map_or(f64::INFINITY, |limit_s| limit_s as f64), deadline_s }))
    }

    fn leave(&self, may: &FlexibleRun, pause: &Pause) {
        let run = &may.run;
        let id = format!("tariff{}x{}x{:.0}", run.job, run.restart_count, now_s());
        let why = format!("{:.0}% less by the tariff until {:.0}", 100.0 * pause.saving, pause.until_s);
        let order = Order { id, verb: Verb::Vacate, by: BY.to_owned(), begin_s: Some(pause.until_s) };
        let given = self.orders.give(now_s(), &self.store, run, Giver::Operator, order);
        if let Err(e) = audit::note(By::Service, Act::Order, (run.job, ""), &why, given) {
            tracing::warn!(job = run.job, %e, "a run that may wait was not asked to leave; it goes on");
        }
    }
}
