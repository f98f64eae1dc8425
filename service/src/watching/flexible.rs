//! Runs that may wait for hours of less price or carbon: asked to leave their nodes while others are better.

use super::state::Watching;
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

/// A run that begins so long before it was to does so because somebody wanted that, s.
const SOONER_S: f64 = 60.0;

/// What is known of runs that may wait.
type Known = BTreeMap<RunKey, OfRun>;

struct OfRun {
    /// SLURM_RESTART_COUNT of the life of which it is known.
    restart_count: u32,
    /// What Slurm has said of the job's limits; none of a job that cannot wait.
    limits: Option<Limits>,
    /// When Slurm was asked about it, or it was asked to leave, on the watch's clock.
    at_s: f64,
    /// Whether it was asked to leave in this life.
    is_asked: bool,
    /// Until when it was to wait last, s since the epoch.
    until_s: f64,
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
        let mut known = Known::new();
        loop {
            std::thread::sleep(LOOK);
            if let Err(e) = self.look(&mut known) {
                tracing::warn!(%e, "runs that may wait were not looked at; they go on");
            }
        }
    }

    fn look(&self, known: &mut Known) -> store::Result<()> {
        let (tariff, watch_s) = (self.tariff.tariff(), self.watching.now_s());
        let runs = self.readers.free().flexible_runs()?;
        let open: BTreeSet<&RunKey> = runs.iter().map(|may| &may.run.key).collect();
        // One that waits is in no life now.
        known.retain(|key, of| open.contains(key) || now_s() < of.until_s + AGAIN_S);
        let mut asked = 0;
        for may in runs.iter().filter(|may| may.can_be_asked()) {
            let before = known.get(&may.run.key);
            let until_s = before.map_or(f64::NEG_INFINITY, |of| of.until_s);
            let of_life = before.filter(|of| of.restart_count == may.run.restart_count);
            let is_recent = of_life.is_some_and(|of| watch_s - of.at_s < AGAIN_S);
            let pause = |limits: Option<Limits>| tariff.pause(self.aim, &limits?.wish(may, now_s()));
            let stays = of_life.is_some_and(|of| is_recent && (of.is_asked || pause(of.limits).is_none()));
            if stays || may.start_s < until_s - SOONER_S || asked >= MOST_AT_ONCE {
                continue;
            }
            // Slurm is asked before it is asked to leave, and else now and then.
            asked += 1;
            let (limits, at_s) = match self.limits(may) {
                Ok(limits) => (limits, watch_s),
                Err(e) => {
                    tracing::debug!(job = may.run.job, %e, "it is not known how long a run may run; it goes on");
                    (None, watch_s - AGAIN_S + SOONER_S)
                }
            };
            let left = pause(limits);
            if let Some(pause) = &left {
                self.leave(may, pause);
            }
            let until_s = left.as_ref().map_or(until_s, |pause| pause.until_s);
            let (restart_count, is_asked) = (may.run.restart_count, left.is_some());
            known.insert(may.run.key.clone(), OfRun { restart_count, limits, at_s, is_asked, until_s });
        }
        Ok(())
    }

    /// The limits of a job that may wait, by Slurm's word; none of one that cannot, such as in a reservation, which ends when
    /// it ends.
    fn limits(&self, may: &FlexibleRun) -> Result<Option<Limits>, slurm::Error> {
        let slurm = self.slurm.when_idle();
        let job = slurm.job(may.run.job)?.filter(|job| job.is_life(may.run.uid, may.run.restart_count));
        let can = |job: &slurm::Job| job.requeue && job.batch && job.reservation.is_empty();
        let Some(job) = job.filter(can) else { return Ok(None) };
        let deadline_s = slurm.deadline_s(&job)?.unwrap_or(f64::INFINITY);
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
