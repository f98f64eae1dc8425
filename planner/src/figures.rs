//! The figures that a plan rests on, each with the place it comes from.

use crate::known::{self, Calibrated, NOTHING, together};
use crate::{History, Wanted};
use config::Site;
use options::{counted, spoken};
use policy::choice;
use policy::estimate::{Cost, Estimate};
use policy::interval::Costs;
use protocol::Figure;

/// Work that is assumed of a run whose duration is not known, s.
const USUAL_WORK_S: f64 = 86_400.0;

/// Saving and loading a borrower is assumed to take as long as this many checkpoints of the lender.
const LOAN_CHECKPOINTS: f64 = 2.0;

/// Longest over shortest runtime of a shadowed run: the widest that Mills looks at.
const SHADOW_LAXITY: f64 = 2.0;

/// The figures that a plan rests on, each with the place it comes from.
pub(crate) struct Figures {
    pub mtbf_s: Figure,
    pub mtbf_reason: String,
    /// Duration of a checkpoint from the request until it is complete, coordination included.
    pub checkpoint_s: Figure,
    pub restart_s: Figure,
    /// The job's share of its nodes, where it shares them: the powers are those of this share.
    pub node_share: Option<f64>,
    pub idle_w: Figure,
    pub busy_w: Figure,
    /// While the program stands still.
    pub checkpoint_w: Figure,
    /// For which part of a checkpoint's time that is, if anybody has seen it.
    pub still_share: Option<f64>,
    pub work_s: Figure,
    /// Idle power of the switches, for each node.
    pub switch_w: f64,
    /// Extra power of the switches in a coordination, and in a checkpoint: per node, and part of no node's figure.
    pub coordinating_switch_w: f64,
    pub writing_switch_w: f64,
    /// Volume of a checkpoint on each node.
    pub bytes: Option<f64>,
}

/// Volume of a checkpoint on each node, if it was given or measured.
pub(crate) fn bytes(wanted: &Wanted<'_>, history: &History) -> Option<f64> {
    let told = wanted.settings.memory_bytes.map(|b| b as f64);
    told.or(history.checkpoint_bytes).filter(|b| b.is_finite() && *b > 0.0).map(|b| b / f64::from(wanted.nodes))
}

/// Duration of a run without failures and checkpoints: as it was told, as earlier runs took, or as it is assumed.
pub(crate) fn work(told_s: Option<f64>, history: &History) -> Figure {
    told_s.map_or_else(|| or_history(history.work_s, figure(USUAL_WORK_S, "default")), |told_s| figure(told_s, "told"))
}

/// What earlier runs have shown, if they have.
fn or_history(seen: Option<f64>, otherwise: Figure) -> Figure {
    match seen {
        Some(value) if value.is_finite() && value > 0.0 => figure(value, "history"),
        _ => otherwise,
    }
}

impl Figures {
    pub fn gather(wanted: &Wanted<'_>, history: &History, site: &Site, calibrated: Option<&Calibrated>) -> Figures {
        let (settings, nodes) = (wanted.settings, wanted.nodes);
        let e = &site.estimates;
        // The site's figure counts as one failure seen in one MTBF: measured failures soon outweigh it.
        let node_mtbf_s = (history.node_seconds + e.node_mtbf_s) / f64::from(history.node_failures + 1);
        let mtbf_s = policy::mtbf::combine_prior(node_mtbf_s, nodes);
        let mtbf_reason = format!(
            "MTBF of {} {}: {} in {} of a node seen, and the site's {} a node counted as one failure",
            counted(nodes, "node"),
            spoken(mtbf_s),
            counted(history.node_failures, "failure"),
            spoken(history.node_seconds),
            spoken(e.node_mtbf_s)
        );
        let or_calibration = |value: Option<f64>, otherwise: Figure| match value {
            Some(value) if value.is_finite() && value > 0.0 => figure(value, "calibration"),
            _ => otherwise,
        };
        let costs = calibrated.map(|c| &c.costs);
        let pause = costs.and_then(|c| Some(together(c.write?, c.coordination)));
        let by_volume = match settings.memory_bytes {
            Some(bytes) => figure((bytes as f64 / e.write_bytes_per_s).max(0.1), "ft-energy-memory"),
            None => figure(e.checkpoint_s, "site"),
        };
        let whole_idle_w = or_calibration(calibrated.map(|c| c.idle_w), figure(site.energy.idle_w, "site"));
        let node_share = share(history, whole_idle_w.value, site.energy.busy_w);
        let part = node_share.unwrap_or(1.0);
        // Idle power is divided among the jobs of a node, as the node service does it; what a job adds is its own.
        let idle_w = Figure { value: part * whole_idle_w.value, ..whole_idle_w };
        let above_w = part * (site.energy.busy_w - site.energy.idle_w);
        let above_idle = |delta_w: Option<f64>| delta_w.map(|d| idle_w.value + part * d);
        let busy_w = or_calibration(
            above_idle(costs.and_then(|c| c.compute_w).map(|d| d.value)),
            figure(idle_w.value + above_w, "site"),
        );
        let checkpoint_w = or_calibration(
            above_idle(pause.map(|p| p.delta_w.value)),
            figure(idle_w.value + e.checkpoint_power_share * above_w, "site"),
        );
        let read_s = costs.and_then(|c| c.read).map(|r| r.time_s.value);
        let of_each = |of: fn(&Calibrated) -> f64| part * calibrated.map_or(0.0, of) / f64::from(nodes);
        Figures {
            mtbf_s: figure(mtbf_s, if history.node_failures > 0 { "history" } else { "site" }),
            mtbf_reason,
            checkpoint_s: or_history(history.checkpoint_s, or_calibration(pause.map(|p| p.time_s.value), by_volume)),
            restart_s: or_history(history.restart_s, or_calibration(read_s, figure(e.restart_s, "site"))),
            busy_w: or_history(history.busy_w, busy_w),
            checkpoint_w: or_history(history.checkpoint_w, checkpoint_w),
            still_share: history.still_share.filter(|share| (0.0..=1.0).contains(share)),
            idle_w,
            node_share,
            work_s: work(wanted.work_s, history),
            switch_w: of_each(|c| c.switches_w),
            coordinating_switch_w: of_each(|c| c.coordinating_switches_w),
            writing_switch_w: of_each(|c| c.writing_switches_w),
            bytes: bytes(wanted, history),
        }
    }

    fn above(&self, figure: &Figure) -> f64 {
        (figure.value - self.idle_w.value).max(0.0)
    }

    /// The costs on which the interval of a coordinated run rests, for one node.
    pub fn costs(&self) -> Costs {
        Costs {
            checkpoint_s: self.checkpoint_s.value,
            restart_s: self.restart_s.value,
            down_s: 0.0,
            overlap: 0.0,
            static_w: self.idle_w.value + self.switch_w,
            compute_w: self.above(&self.busy_w),
            checkpoint_w: self.pause_w() + self.writing_switch_w,
            down_w: 0.0,
        }
    }

    /// What a node draws above idle, on the mean of a checkpoint's time.
    fn pause_w(&self) -> f64 {
        let still = self.still_share.unwrap_or(1.0);
        still * self.above(&self.checkpoint_w) + (1.0 - still) * self.above(&self.busy_w)
    }

    /// The same costs, of a program that was seen to go on beside its checkpoints.
    pub fn seen_costs(&self) -> Option<Costs> {
        let still = self.still_share.filter(|still| *still < 1.0)?;
        let checkpoint_w = still * self.above(&self.checkpoint_w) + self.writing_switch_w;
        Some(Costs { overlap: 1.0 - still, checkpoint_w, ..self.costs() })
    }

    /// The costs on which the choice of a protocol rests: the checkpoint is parted from its coordination.
    pub fn choice_costs(&self, nodes: u32, known: Option<&known::Costs>) -> choice::Costs {
        let (pause_s, pause_w) = (self.checkpoint_s.value, self.pause_w());
        let coordination = known.map_or(NOTHING, |c| c.coordination);
        let write = known.and_then(|c| c.write).filter(|_| self.checkpoint_s.from == "calibration");
        // A checkpoint that was measured as a whole contains its coordination.
        let most_s = if write.is_some() { pause_s } else { 0.5 * pause_s };
        let coordination = at_most(coordination, most_s, pause_s * pause_w);
        let (t, w) = (coordination.time_s.value, coordination.delta_w.value);
        let checkpoint_w = (pause_s * pause_w - t * w) / (pause_s - t);
        let checkpoint = Cost {
            time_s: like(write.map(|c| c.time_s), pause_s - t),
            delta_w: like(write.map(|c| c.delta_w), checkpoint_w).through(|w| w + self.writing_switch_w),
            extrapolated: write.is_some_and(|c| c.extrapolated),
        };
        let compute = known.and_then(|c| c.compute_w).filter(|_| self.busy_w.from == "calibration");
        let exactly = |value| like(None, value);
        let with_switches = |c: Cost| Cost { delta_w: c.delta_w.through(|w| w + self.coordinating_switch_w), ..c };
        choice::Costs {
            checkpoint,
            coordination: with_switches(coordination),
            group_coordination: known
                .map_or(NOTHING, |c| with_switches(at_most(c.group_coordination, t, f64::INFINITY))),
            restart: Cost {
                time_s: exactly(self.restart_s.value),
                delta_w: exactly(self.above(&self.checkpoint_w)),
                extrapolated: false,
            },
            disk_log: known.and_then(|c| c.disk_log.clone().ok()),
            memory_log: known.and_then(|c| c.memory_log.clone().ok()),
            compute_w: like(compute, self.above(&self.busy_w)),
            static_w: f64::from(nodes) * (self.idle_w.value + self.switch_w),
        }
    }

    /// The run as the choice of a protocol sees it.
    pub fn run(&self, wanted: &Wanted<'_>) -> choice::Run {
        let log_bytes = wanted.messages.map_or(0.0, |(_, bytes)| bytes as f64 / f64::from(wanted.nodes));
        choice::Run {
            nodes: f64::from(wanted.nodes),
            groups: f64::from(wanted.groups()),
            mtbf_s: self.mtbf_s.value,
            work_s: self.work_s.value,
            growth_per_s: self.bytes.map_or(0.0, |b| log_bytes / b / self.work_s.value),
            load_save_s: LOAN_CHECKPOINTS * self.checkpoint_s.value,
            laxity: SHADOW_LAXITY,
            interval_s: wanted.settings.interval.map(|i| i.as_secs_f64()),
        }
    }
}

/// A value with the relative interval of an estimate; without one it is taken as exact.
fn like(estimate: Option<Estimate>, value: f64) -> Estimate {
    match estimate.filter(|e| e.value > 0.0) {
        Some(e) => e.through(|x| x / e.value * value),
        None => Estimate { value, low: value, high: value },
    }
}

/// An operation cut to a time and an extra energy of a node.
fn at_most(cost: Cost, most_s: f64, most_j: f64) -> Cost {
    let time_s = cost.time_s.through(|t| t.min(most_s));
    let most_w = if time_s.value > 0.0 { most_j / time_s.value } else { f64::INFINITY };
    Cost { time_s, delta_w: cost.delta_w.through(|w| w.min(most_w)), ..cost }
}

/// A job's share of a node, where earlier runs drew less than an idle node: the share of a busy node's power.
fn share(history: &History, idle_w: f64, busy_w: f64) -> Option<f64> {
    history.busy_w.filter(|w| *w > 0.0 && *w < idle_w).map(|w| w / busy_w.max(idle_w))
}

fn figure(value: f64, from: &str) -> Figure {
    Figure { value, from: from.to_string() }
}
