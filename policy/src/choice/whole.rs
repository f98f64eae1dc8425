//! Adds up the time and energy of a whole run under one protocol, failures and recovery included.
//!
//! Exponential failures and blocking checkpoints, exactly as in [`crate::memoryless`]; with groups it is
//! Bouteiller13's application waste with overlapping failures (erratum D5, [`crate::waste::Bouteiller::overlap_waste`]
//! with alpha = 0 and rho = 1). Of a failure, one group re-executes while the others idle, or are lent.

use crate::interval::{Expectation, Expected};
use crate::memoryless::golden_section;
use crate::shadow::Shadow;

/// The largest exponent that is evaluated, as in [`crate::memoryless`].
const EXPONENT_LIMIT: f64 = 300.0;

/// Intervals beyond this many MTBFs are never best.
const LONGEST_IN_MTBF: f64 = 20.0;

/// Where time (s, mean over the nodes) or energy (J, all nodes) of a run goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Work that counts.
    pub work: f64,
    /// Logging of messages.
    pub logging: f64,
    /// Checkpoints that complete.
    pub checkpoint: f64,
    /// Coordination of those checkpoints.
    pub coordination: f64,
    /// Work and checkpoints that are done again after a failure.
    pub lost_work: f64,
    /// Restarts.
    pub restart: f64,
    /// Waiting for another group, or for a node to come back.
    pub idle: f64,
    /// Time for which nodes are lent; their energy is the borrower's.
    pub lent: f64,
    /// Shadows that follow the work.
    pub replica: f64,
}

impl Parts {
    /// Every part with its name, in the order of tables.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("work", self.work),
            ("logging", self.logging),
            ("checkpoint", self.checkpoint),
            ("coordination", self.coordination),
            ("lost_work", self.lost_work),
            ("restart", self.restart),
            ("idle", self.idle),
            ("lent", self.lent),
            ("replica", self.replica),
        ]
    }

    /// The sum.
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, x)| x).sum()
    }
}

/// What a run spends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub time: Parts,
    pub energy: Parts,
    /// Complete checkpoints.
    pub checkpoints: f64,
    /// Expected failures.
    pub failures: f64,
}

/// A run under one protocol: seconds, and watts of all nodes; all powers but `static_w` are above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Whole {
    pub work_s: f64,
    pub mtbf_s: f64,
    /// Groups that recover on their own; 1 if coordinated.
    pub groups: f64,
    pub static_w: f64,
    pub compute_w: f64,
    pub checkpoint_s: f64,
    pub checkpoint_w: f64,
    pub coordination_s: f64,
    pub coordination_w: f64,
    pub restart_s: f64,
    pub restart_w: f64,
    pub down_s: f64,
    /// Logging over the run.
    pub logging_s: f64,
    pub logging_w: f64,
    /// Growth of a checkpoint by the log it carries, per second of the interval (Bouteiller13's beta).
    pub growth_per_s: f64,
    /// Saving and loading a borrower, where idle groups are lent.
    pub load_save_s: Option<f64>,
}

impl Whole {
    fn written_s(&self, interval_s: f64) -> f64 {
        self.checkpoint_s * (1.0 + self.growth_per_s * interval_s)
    }

    /// Time of the run in which checkpoints carry the memory log.
    pub fn carried_s(&self) -> f64 {
        self.checkpoint_s * self.growth_per_s * (self.work_s + self.logging_s)
    }

    /// Mean power above idle of a checkpoint and its coordination.
    pub fn pause_w(&self) -> f64 {
        let pause_s = self.checkpoint_s + self.coordination_s;
        let j = self.checkpoint_s * self.checkpoint_w + self.coordination_s * self.coordination_w;
        if pause_s > 0.0 { j / pause_s } else { 0.0 }
    }

    /// Share of the survivors' wait that is not lent: Bouteiller13's platform waste per failure over the wait itself,
    /// Y = C + L + S, Z = min(Y, T) (eq. 12, erratum D2).
    fn kept_share(&self, period_s: f64, interval_s: f64) -> f64 {
        let Some(load_save_s) = self.load_save_s else { return 1.0 };
        let y = self.written_s(interval_s) + load_save_s;
        let z = y.min(period_s);
        let kept_s = (period_s - z) / period_s * y + z / period_s * z / 2.0;
        (kept_s / (period_s / 2.0)).min(1.0)
    }

    /// What the run spends with checkpoints every `interval_s` of execution.
    pub fn spend(&self, interval_s: f64) -> Spent {
        let mu = self.mtbf_s;
        let (x, written_s) = (interval_s, self.written_s(interval_s));
        let pause_s = written_s + self.coordination_s;
        let period_s = x + pause_s;
        let segments = (self.work_s + self.logging_s) / x;
        let attempts = (period_s / mu).min(EXPONENT_LIMIT).exp();
        let failures = (period_s / mu).min(EXPONENT_LIMIT).exp_m1();
        let lost_s = (mu * failures - period_s).max(0.0);
        let lost_compute_s = (attempts * mu * -(-x / mu).exp_m1() - x).clamp(0.0, lost_s);
        let recovery = (self.restart_s / mu).min(EXPONENT_LIMIT);
        let restart_s = failures * mu * recovery.exp_m1();
        let down_s = failures * recovery.exp() * self.down_s;
        let failing = 1.0 / self.groups;
        let waiting_s = (1.0 - failing) * lost_s;
        let kept = self.kept_share(period_s, x);
        let lost_j = lost_compute_s * (self.static_w + self.compute_w)
            + (lost_s - lost_compute_s) * (self.static_w + self.pause_w());
        let idle_s = kept * waiting_s + (1.0 - failing) * restart_s + down_s;
        let time = Parts {
            work: self.work_s,
            logging: self.logging_s,
            checkpoint: segments * written_s,
            coordination: segments * self.coordination_s,
            lost_work: segments * failing * lost_s,
            restart: segments * failing * restart_s,
            idle: segments * idle_s,
            lent: segments * (1.0 - kept) * waiting_s,
            replica: 0.0,
        };
        let energy = Parts {
            work: time.work * (self.static_w + self.compute_w),
            logging: time.logging * (self.static_w + self.logging_w),
            checkpoint: time.checkpoint * (self.static_w + self.checkpoint_w),
            coordination: time.coordination * (self.static_w + self.coordination_w),
            lost_work: segments * failing * lost_j,
            restart: time.restart * (self.static_w + self.restart_w),
            idle: time.idle * self.static_w,
            lent: 0.0,
            replica: 0.0,
        };
        Spent { time, energy, checkpoints: segments, failures: time.total() / mu }
    }

    /// Two nodes for each, the second a shadow of best speed (Mills); `laxity` is the longest over the shortest
    /// runtime. Power above idle is taken as the square of the speed, and a run with any failure as the longest.
    pub fn spend_shadowed(&self, nodes: f64, laxity: f64) -> Spent {
        let shadow = Shadow { work: self.work_s, speed_max: 1.0, laxity, mtbf_s: self.mtbf_s * nodes };
        let energy = shadow.energy(shadow.speed_optimal());
        let failing = -(-self.work_s / self.mtbf_s).exp_m1();
        let late_s = failing * (laxity - 1.0) * self.work_s;
        let shadows_j = self.compute_w * (energy.shadow_before + energy.shadow_after);
        Spent {
            time: Parts { work: self.work_s, replica: late_s, ..Parts::default() },
            energy: Parts {
                work: self.work_s * self.static_w + self.compute_w * energy.main,
                replica: (self.work_s + 2.0 * late_s) * self.static_w + shadows_j,
                ..Parts::default()
            },
            checkpoints: 0.0,
            failures: self.work_s / self.mtbf_s,
        }
    }

    fn best(&self, cost: impl Fn(&Spent) -> f64) -> f64 {
        golden_section(|x| cost(&self.spend(x.exp())), self.floor().ln(), self.ceiling().ln()).exp()
    }
}

impl Expectation for Whole {
    fn checkpoint_s(&self) -> f64 {
        self.checkpoint_s
    }

    fn floor(&self) -> f64 {
        1e-3 * (self.checkpoint_s + self.coordination_s)
    }

    fn ceiling(&self) -> f64 {
        (LONGEST_IN_MTBF * self.mtbf_s).max(1e3 * self.floor())
    }

    fn time_optimum(&self) -> f64 {
        self.best(|spent| spent.time.total())
    }

    fn energy_optimum(&self) -> f64 {
        self.best(|spent| spent.energy.total())
    }

    fn io_edge(&self, io: f64) -> f64 {
        let times = 1.0 / io - 1.0;
        let left = 1.0 - times * self.checkpoint_s * self.growth_per_s;
        if left > 0.0 { times * (self.checkpoint_s + self.coordination_s) / left } else { self.ceiling() }
    }

    fn expect(&self, interval_s: f64) -> Expected {
        let spent = self.spend(interval_s);
        let pause_s = self.written_s(interval_s) + self.coordination_s;
        Expected {
            time_overhead: spent.time.total() / self.work_s - 1.0,
            energy_overhead: spent.energy.total() / spent.energy.work - 1.0,
            io_share: pause_s / (interval_s + pause_s),
        }
    }
}
