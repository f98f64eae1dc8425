//! Predicts one checkpoint for any volume, and any CPU frequency where several were measured (Aupy15 §1.3, Balladini).

use crate::calibrated::{busy_switches_w, cost, cost_at_frequency, mean_idle_w, place, target};
use options::Engine;
use policy::Invalid;
use policy::calibration::Fits;
use policy::estimate::{Base, Estimate};
use protocol::{Operation, Storage, StoredCalibration};

/// A checkpoint whose cost is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoint {
    /// Volume on all nodes, bytes.
    pub bytes: f64,
    /// Nodes.
    pub nodes: u32,
    /// Processes on each.
    pub processes: u32,
    /// Engine that makes it: it decides whether one node copies the files of all.
    pub engine: Option<Engine>,
    /// Where it is kept; where runs keep theirs if absent.
    pub storage: Option<Storage>,
    /// CPU frequency that is set, Hz; the nodes' own if absent.
    pub frequency_hz: Option<f64>,
}

/// What it is expected to cost, with 95 % intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Where it is kept.
    pub storage: Storage,
    /// Duration, s.
    pub time_s: Estimate,
    /// Energy of all nodes, idle power included, J.
    pub energy_j: Estimate,
    /// Whether it lies outside of what was measured.
    pub extrapolated: bool,
}

/// Predicts.
///
/// # Errors
/// When no checkpoint was measured there, or, for a frequency, too few.
pub fn predict(stored: &StoredCalibration, wanted: &Checkpoint) -> Result<Predicted, Invalid> {
    let calibration = &stored.calibration;
    let nodes = f64::from(wanted.nodes.max(1));
    let storage = wanted.storage.or_else(|| target(calibration)).unwrap_or(Storage::Shared);
    let at = place(wanted.engine, nodes, f64::from(wanted.processes.max(1)), wanted.bytes / nodes);
    let cost = match wanted.frequency_hz {
        Some(hz) => cost_at_frequency(stored, storage, at, hz)?,
        None => cost(stored, Operation::CheckpointWrite, Some(storage), at, None, &Fits::default())?,
    };
    let busy_w = if storage == Storage::Shared { busy_switches_w(calibration) } else { 0.0 };
    let base = Base {
        nodes: at.nodes,
        idle_w: nodes * mean_idle_w(calibration),
        switches_w: busy_w + calibration.power.switches_idle_w.iter().sum::<f64>(),
    };
    Ok(Predicted { storage, time_s: cost.time_s, energy_j: cost.energy_j(&base), extrapolated: cost.extrapolated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Correction, Measured, Point, Quantity};

    /// A disk of 100 MB/s, nodes of 100 W and 20 W more in a checkpoint; with frequencies, 8 W/GHz^2 more.
    fn stored(frequencies_hz: &[Option<f64>]) -> StoredCalibration {
        let mut stored = (*crate::published::calibration(100.0).stored).clone();
        let point = |(hz, bytes): (Option<f64>, f64)| Point {
            nodes: 1,
            processes: 1,
            bytes,
            intensity: 1.0,
            frequency_hz: hz,
            time_s: 0.1 + bytes / 1e8,
            time_ci_s: 0.0,
            delta_w: 20.0 + hz.map_or(0.0, |hz| 8.0 * (hz * 1e-9).powi(2)),
            delta_ci_w: Some(0.0),
            count: 5,
            outliers: 0,
        };
        let all = frequencies_hz.iter().flat_map(|hz| [1e7, 5e8, 1e9].map(|v| (*hz, v)));
        let points = all.map(point).collect();
        let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
        stored.calibration.measured = vec![Measured { operation, storage, points, fits: Vec::new() }];
        stored
    }

    const CHECKPOINT: Checkpoint =
        Checkpoint { bytes: 4e8, nodes: 4, processes: 1, engine: Some(Engine::App), storage: None, frequency_hz: None };

    #[test]
    fn any_volume_is_predicted_with_the_idle_power_of_all_nodes() {
        let found = predict(&stored(&[None]), &CHECKPOINT).unwrap();
        assert!(
            (found.time_s.value - 4.1).abs() < 1e-9 && (found.energy_j.value - 4.1 * 420.0).abs() < 1e-6,
            "{found:?}"
        );
        assert!(found.extrapolated, "four files were not measured");
        let each =
            predict(&stored(&[None]), &Checkpoint { engine: Some(Engine::Criu), nodes: 1, ..CHECKPOINT }).unwrap();
        assert!((each.energy_j.value - 4.1 * 120.0).abs() < 1e-6 && !each.extrapolated, "{each:?}");
    }

    #[test]
    fn the_switches_are_busy_while_all_write_to_the_shared_storage() {
        let mut known = stored(&[None]);
        known.calibration.power.switches_idle_w = vec![50.0, 30.0];
        known.calibration.power.switch_delta_w = 5.0;
        let found = predict(&known, &CHECKPOINT).unwrap();
        assert!((found.energy_j.value - 4.1 * (420.0 + 80.0 + 2.0 * 5.0)).abs() < 1e-6, "{found:?}");
        known.calibration.measured[0].storage = Some(Storage::Local);
        let local = predict(&known, &CHECKPOINT).unwrap();
        assert!((local.energy_j.value - 4.1 * (420.0 + 80.0)).abs() < 1e-6, "{local:?}");
    }

    #[test]
    fn any_frequency_is_predicted_where_three_were_measured() {
        let set = stored(&[Some(1.2e9), Some(1.8e9), Some(2.4e9)]);
        let at = |hz| predict(&set, &Checkpoint { frequency_hz: Some(hz), nodes: 1, ..CHECKPOINT }).unwrap();
        let found = at(2e9);
        assert!((found.energy_j.value - 4.1 * (120.0 + 32.0)).abs() < 1e-6 && !found.extrapolated, "{found:?}");
        assert!(at(3e9).extrapolated);
        let of = |wanted| predict(&set, &Checkpoint { frequency_hz: Some(2e9), nodes: 1, ..wanted }).unwrap();
        assert!(of(Checkpoint { bytes: 2e9, ..CHECKPOINT }).extrapolated, "a volume beyond the measured");
        assert!(of(Checkpoint { processes: 3, ..CHECKPOINT }).extrapolated, "as many processes were not measured");
        let refused = predict(&stored(&[None]), &Checkpoint { frequency_hz: Some(2e9), ..CHECKPOINT });
        assert!(refused.is_err(), "{refused:?}");
    }

    #[test]
    fn a_set_frequency_has_the_interval_and_the_corrections_that_the_node_s_own_has() {
        let mut set = stored(&[Some(1.2e9), Some(1.8e9), Some(2.4e9)]);
        for (i, point) in set.calibration.measured[0].points.iter_mut().enumerate() {
            point.time_s *= if i % 2 == 0 { 1.05 } else { 0.95 };
        }
        let at = |set: &StoredCalibration, hz| {
            predict(set, &Checkpoint { frequency_hz: Some(hz), nodes: 1, ..CHECKPOINT }).unwrap()
        };
        let (before, beyond) = (at(&set, 2e9), at(&set, 3e9));
        let width = |e: &Estimate| (e.high - e.low) / e.value;
        for of in [|p: &Predicted| p.time_s, |p: &Predicted| p.energy_j] {
            let (narrow, wide) = (of(&before), of(&beyond));
            assert!(narrow.low < narrow.value && narrow.value < narrow.high, "{narrow:?}");
            assert!(width(&narrow) < width(&wide), "{narrow:?} {wide:?}");
        }
        let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
        let of = |of, factor| Correction { operation, storage, of, factor, spread: 0.1, count: 9 };
        set.corrections = vec![of(Quantity::TimeS, 1.5), of(Quantity::DeltaW, 2.0)];
        let after = at(&set, 2e9);
        assert!((after.time_s.value / before.time_s.value - 1.5).abs() < 1e-9, "{after:?}");
        assert!((after.energy_j.value / after.time_s.value - 100.0 - 2.0 * 52.0).abs() < 1e-6, "{after:?}");
    }
}
