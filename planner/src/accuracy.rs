//! Sets what plans predicted beside what runs measured.

use protocol::{Phase, RunAccount};
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
    /// `checkpoint` or `restart`.
    pub operation: &'static str,
    /// Node type of the calibration that was used; `uncalibrated` without one.
    pub node_type: String,
    /// Of its duration.
    pub time: Option<Deviation>,
    /// Of its energy.
    pub energy: Option<Deviation>,
}

/// Mean and worst error of predicted against measured time and energy, by operation and node type.
///
/// A run counts once for each operation, by its means; runs without a plan or without measurements do not count.
pub fn accuracy(runs: &[RunAccount]) -> Vec<Accuracy> {
    let mut errors: BTreeMap<(&'static str, String), [Vec<f64>; 2]> = BTreeMap::new();
    for (run, plan) in runs.iter().filter_map(|r| r.plan.as_ref().map(|p| (r, p))) {
        let node_type = plan.choice.as_ref().and_then(|c| c.node_type.clone());
        let node_type = node_type.unwrap_or_else(|| "uncalibrated".to_string());
        let nodes = run.records.first().map_or(1, |r| r.nodes.len().max(1)) as f64;
        let checkpoint_j = plan.checkpoint_s.value * plan.checkpoint_w.value * nodes;
        for (operation, [time, energy]) in [
            ("checkpoint", [(plan.checkpoint_s.value, checkpoint_s(run)), (checkpoint_j, checkpoint_energy_j(run))]),
            ("restart", [(plan.restart_s.value, restart_s(run, nodes)), (f64::NAN, None)]),
        ] {
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

fn error((predicted, measured): (f64, Option<f64>)) -> Option<f64> {
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

/// Mean time of a restart: node-seconds of the phase over nodes and failures.
fn restart_s(run: &RunAccount, nodes: f64) -> Option<f64> {
    let phase = run.phases.iter().find(|p| p.phase == Phase::Restart)?;
    (run.total.failures > 0).then(|| phase.node_seconds / nodes / f64::from(run.total.failures))
}
