//! Sets what plans predicted beside what runs measured.

use crate::restart::restart_s;
use protocol::{Phase, Plan, RunAccount};
use std::collections::BTreeMap;

/// How far predictions were from measurements, as fractions of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Mean over the runs.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// Runs that count.
    pub runs: u32,
}

/// The accuracy of one operation on one node type.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// `checkpoint`, `restart` or `compute`.
    pub operation: &'static str,
    /// Node type of the calibration that was used; `uncalibrated` without one.
    pub node_type: String,
    /// Of its duration.
    pub time: Option<Deviation>,
    /// Of its energy.
    pub energy: Option<Deviation>,
}

/// Mean and worst error of predicted against measured time and energy, by operation and node type. Of computing only the
/// power is predicted, and of a restart only the time is measured by itself.
///
/// A run counts once for each operation, by its means; runs without a plan or without measurements do not count.
pub fn accuracy(runs: &[RunAccount]) -> Vec<Accuracy> {
    let mut errors: BTreeMap<(&'static str, String), [Vec<f64>; 2]> = BTreeMap::new();
    for (run, plan) in runs.iter().filter_map(|r| r.plan.as_ref().map(|p| (r, p))) {
        let node_type = plan.choice.as_ref().and_then(|c| c.node_type.clone());
        let node_type = node_type.unwrap_or_else(|| "uncalibrated".to_string());
        for (operation, [time, energy]) in compared(run, plan) {
            let of = errors.entry((operation, node_type.clone())).or_default();
            of[0].extend(error(time));
            of[1].extend(error(energy));
        }
    }
    let found = errors.into_iter().map(|((operation, node_type), [time, energy])| Accuracy {
        operation,
        node_type,
        time: deviation(&time),
        energy: deviation(&energy),
    });
    found.filter(|a| a.time.is_some() || a.energy.is_some()).collect()
}

/// What was predicted, and what was measured.
type Pair = (f64, Option<f64>);

/// What a checkpoint was expected to use, J: all nodes of the run, or those of one group if groups recover alone.
pub fn expected_checkpoint_j(run: &RunAccount, plan: &Plan) -> f64 {
    let nodes = run.records.first().map_or(1, |r| r.nodes.len());
    let choice = plan.choice.as_ref().filter(|_| plan.protocol.starts_with("uncoordinated"));
    // Spares are fewer than groups, and hold none.
    let nodes = nodes / choice.map_or(1, |c| c.groups.max(1) as usize);
    plan.checkpoint_s.value * checkpoint_power_w(plan) * nodes.max(1) as f64
}

/// What a node is expected to draw on the mean of a checkpoint's time, W: while its program stands still, and while it
/// computes beside the rest.
pub fn checkpoint_power_w(plan: &Plan) -> f64 {
    let still = plan.still_share.unwrap_or(1.0);
    still * plan.checkpoint_w.value + (1.0 - still) * plan.busy_w.value
}

/// Time and energy of each operation.
fn compared(run: &RunAccount, plan: &Plan) -> [(&'static str, [Pair; 2]); 3] {
    let checkpoint_s = plan.checkpoint_s.value;
    [
        (
            "checkpoint",
            [(checkpoint_s, self::checkpoint_s(run)), (expected_checkpoint_j(run, plan), checkpoint_energy_j(run))],
        ),
        ("restart", [(plan.restart_s.value, restart_s(run)), (f64::NAN, None)]),
        ("compute", [(f64::NAN, None), (plan.busy_w.value, busy_w(run))]),
    ]
}

fn error((predicted, measured): Pair) -> Option<f64> {
    let measured = measured.filter(|m| m.is_finite() && *m > 0.0)?;
    Some((predicted - measured).abs() / measured).filter(|e| e.is_finite())
}

fn deviation(errors: &[f64]) -> Option<Deviation> {
    let mean = mean(errors.iter().copied())?;
    Some(Deviation { mean, worst: errors.iter().copied().fold(0.0, f64::max), runs: errors.len() as u32 })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(s, n), v| (s + v, n + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn checkpoint_s(run: &RunAccount) -> Option<f64> {
    mean(run.checkpoints.iter().map(|c| c.seconds))
}

fn checkpoint_energy_j(run: &RunAccount) -> Option<f64> {
    mean(run.checkpoints.iter().filter_map(|c| c.joules))
}

/// Mean power of a computing node.
fn busy_w(run: &RunAccount) -> Option<f64> {
    let phase = run.phases.iter().find(|p| p.phase == Phase::Compute)?;
    Some(phase.joules? / phase.node_seconds)
}
