//! What a calibration says of a plan's operations: costs from its points, corrected by real runs.

use options::Engine;
use policy::Invalid;
use policy::calibration::{Fits, VolumeModel};
use policy::estimate::{At, Cost, Estimate, Sample, estimate, logging, of_frequency, outside};
use policy::frequency::Models;
use protocol::{Calibration, Fingerprint, Measured, Operation, Quantity, Storage, StoredCalibration};
use std::collections::BTreeMap;

/// The points of one operation, for estimates; of compute only those at full intensity.
pub fn samples(calibration: &Calibration, operation: Operation, storage: Option<Storage>) -> Vec<Sample> {
    let of = |m: &&Measured| m.operation == operation && m.storage == storage;
    let points = calibration.measured.iter().filter(of).flat_map(|m| &m.points).filter(|p| p.intensity == 1.0);
    points
        .map(|p| Sample {
            nodes: f64::from(p.nodes),
            processes: f64::from(p.processes),
            bytes: p.bytes,
            frequency_hz: p.frequency_hz,
            time_s: p.time_s,
            time_ci_s: p.time_ci_s,
            delta_w: p.delta_w,
            delta_ci_w: p.delta_ci_w.unwrap_or(0.0),
        })
        .collect()
}

/// Where checkpoints are taken to go: the farthest target that was measured.
pub fn target(calibration: &Calibration) -> Option<Storage> {
    let written = |m: &&Measured| m.operation == Operation::CheckpointWrite;
    calibration.measured.iter().filter(written).filter_map(|m| m.storage).max()
}

/// Where among the measured points a run's checkpoint lies, and its restart, with `bytes` on each of its nodes.
pub fn place(engine: Option<Engine>, nodes: f64, processes: f64, bytes: f64) -> At {
    match gathers(engine) {
        true => At { nodes: 1.0, processes: nodes * processes, bytes: nodes * bytes },
        false => At { nodes, processes, bytes },
    }
}

/// Whether one node copies the files of all: the wrapper's own, for what a program or a command has written.
pub(crate) fn gathers(engine: Option<Engine>) -> bool {
    matches!(engine, None | Some(Engine::App | Engine::Hook))
}

/// What an operation costs at a point and a CPU frequency, corrected by what real runs have shown.
///
/// # Errors
/// When the operation was not measured, or the point makes no sense.
pub fn cost(
    stored: &StoredCalibration,
    operation: Operation,
    storage: Option<Storage>,
    at: At,
    frequency_hz: Option<f64>,
    fits: &Fits,
) -> Result<Cost, Invalid> {
    let measured = measured_cost(&stored.calibration, operation, storage, at, frequency_hz, fits)?;
    Ok(corrected(stored, operation, storage, measured))
}

/// What a checkpoint costs at any CPU frequency (Balladini), corrected by what real runs have shown. Its processes enter
/// only in whether the point was measured.
///
/// # Errors
/// When too few points of too few frequencies were measured, or the point makes no sense.
pub fn cost_at_frequency(
    stored: &StoredCalibration,
    storage: Storage,
    at: At,
    frequency_hz: f64,
) -> Result<Cost, Invalid> {
    let calibration = &stored.calibration;
    let (models, set_hz) = frequencies(calibration, storage)?;
    let one = models.predict(at.bytes, frequency_hz)?;
    let mut points = samples(calibration, Operation::CheckpointWrite, Some(storage));
    points.retain(|s| s.frequency_hz.is_some());
    let (lowest_hz, highest_hz) = (set_hz[0], set_hz[set_hz.len() - 1]);
    let away_hz = (lowest_hz - frequency_hz).max(frequency_hz - highest_hz).max(0.0);
    let outside = outside(&points, at).max(away_hz / (highest_hz - lowest_hz));
    let wider = 1.0 + outside;
    let cost = Cost {
        time_s: Estimate::around(one.checkpoint.time_s, wider * one.error_s),
        delta_w: Estimate::around(one.checkpoint.power_w - mean_idle_w(calibration), wider * one.error_w),
        extrapolated: outside > 0.0,
    };
    Ok(corrected(stored, Operation::CheckpointWrite, Some(storage), cost))
}

/// Idle power of a node, the mean.
pub(crate) fn mean_idle_w(calibration: &Calibration) -> f64 {
    let idle_w = &calibration.power.idle_w;
    idle_w.values().sum::<f64>() / idle_w.len().max(1) as f64
}

/// What the switches draw above idle while nodes coordinate, or write to the storage that all share, W.
pub(crate) fn busy_switches_w(calibration: &Calibration) -> f64 {
    calibration.power.switches_idle_w.len() as f64 * calibration.power.switch_delta_w
}

/// What an operation costs as it was measured.
///
/// # Errors
/// As [`cost`].
pub fn measured_cost(
    calibration: &Calibration,
    operation: Operation,
    storage: Option<Storage>,
    at: At,
    frequency_hz: Option<f64>,
    fits: &Fits,
) -> Result<Cost, Invalid> {
    let points = of_frequency(&samples(calibration, operation, storage), frequency_hz);
    if matches!(operation, Operation::Synchro | Operation::Compute) {
        return estimate(&points, at, VolumeModel::BestOf, fits);
    }
    // What moves bytes hardly depends on p: beyond what was measured a curve would draw out the noise.
    let most = points.iter().map(|p| p.processes).fold(1.0, f64::max);
    let held = At { processes: at.processes.min(most), ..at };
    let cost = estimate(&points, held, VolumeModel::Law, fits)?;
    Ok(Cost { extrapolated: cost.extrapolated || held != at, ..cost })
}

/// What logging a run's messages to memory or disk costs on one node: `at.bytes` is their whole volume there.
///
/// # Errors
/// As [`cost`].
pub fn logging_cost(
    stored: &StoredCalibration,
    operation: Operation,
    messages: f64,
    at: At,
    fits: &Fits,
) -> Result<Cost, Invalid> {
    let points = of_frequency(&samples(&stored.calibration, operation, None), None);
    Ok(corrected(stored, operation, None, logging(&points, messages, at, fits)?))
}

/// Models of a node's checkpoint by volume and CPU frequency, and the frequencies that were set, rising.
///
/// # Errors
/// When too few points of too few frequencies were measured.
pub fn frequencies(calibration: &Calibration, storage: Storage) -> Result<(Models, Vec<f64>), Invalid> {
    let idle_w = mean_idle_w(calibration);
    let all = samples(calibration, Operation::CheckpointWrite, Some(storage));
    let set: Vec<(f64, &Sample)> = all.iter().filter_map(|s| Some((s.frequency_hz?, s))).collect();
    let of = |f: &dyn Fn(&Sample) -> f64| set.iter().map(|(_, s)| f(s)).collect::<Vec<f64>>();
    let mut frequencies_hz: Vec<f64> = set.iter().map(|(hz, _)| *hz).collect();
    let models = Models::fit(&of(&|s| s.bytes), &frequencies_hz, &of(&|s| s.time_s), &of(&|s| idle_w + s.delta_w))?;
    frequencies_hz.sort_by(f64::total_cmp);
    frequencies_hz.dedup();
    Ok((models, frequencies_hz))
}

fn corrected(stored: &StoredCalibration, operation: Operation, storage: Option<Storage>, cost: Cost) -> Cost {
    let factor = |of: Quantity| {
        let known = stored.corrections.iter().find(|c| (c.operation, c.storage, c.of) == (operation, storage, of));
        known.map_or(1.0, |c| c.factor)
    };
    let (time, power) = (factor(Quantity::TimeS), factor(Quantity::DeltaW));
    Cost { time_s: cost.time_s.through(|t| t * time), delta_w: cost.delta_w.through(|w| w * power), ..cost }
}

/// Why a calibration no longer holds on the nodes that tell what they are; empty if it does. A node service does not
/// know the folder that is shared, nor how many CPUs Slurm gives out, nor an MPI that comes with a module: these are left
/// to `calibrate show`.
pub fn stale_on(calibration: &Calibration, nodes: &BTreeMap<String, Fingerprint>) -> Vec<String> {
    let mut changes = Vec::new();
    for node in calibration.power.idle_w.keys() {
        let Some(now) = nodes.get(node) else { continue };
        let mut then = fingerprint_of(calibration, node).clone();
        then.storage.retain(|target, _| now.storage.contains_key(target));
        let mpi = now.mpi.clone().or_else(|| then.mpi.clone());
        let of_node = stale(&then, &Fingerprint { cores: then.cores, mpi, ..now.clone() });
        changes.extend(of_node.into_iter().map(|change| format!("{node}: {change}")));
    }
    changes
}

/// What a node was when it was measured.
pub fn fingerprint_of<'a>(calibration: &'a Calibration, node: &str) -> &'a Fingerprint {
    calibration.differing.get(node).unwrap_or(&calibration.fingerprint)
}

/// Why a calibration no longer holds on a node; empty if it does.
pub fn stale(then: &Fingerprint, now: &Fingerprint) -> Vec<String> {
    let mut changes = Vec::new();
    let mut changed = |what: &str, then: &str, now: &str| {
        if then != now {
            changes.push(format!("{what} changed: '{then}' is now '{now}'"));
        }
    };
    changed("CPU", &then.cpu, &now.cpu);
    changed("number of CPUs", &then.cores.to_string(), &now.cores.to_string());
    changed("kernel", &then.kernel, &now.kernel);
    let (absent, none) = ("absent".to_string(), "none".to_string());
    for target in then.storage.keys() {
        let now = now.storage.get(target).unwrap_or(&absent);
        changed(&format!("storage '{}'", target.as_str()), &then.storage[target], now);
    }
    changed("MPI", then.mpi.as_ref().unwrap_or(&none), now.mpi.as_ref().unwrap_or(&none));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{BasePower, Correction, Noise, Point};

    #[test]
    fn a_changed_kernel_disk_cpu_or_mpi_makes_a_calibration_stale_and_is_named() {
        let then = Fingerprint {
            cpu: "A".into(),
            cores: 8,
            kernel: "6.1".into(),
            storage: [(Storage::Local, "ext4 /dev/sda Old".to_string())].into(),
            mpi: Some("mpirun 4.1".into()),
        };
        assert!(stale(&then, &then).is_empty());
        let disk = [(Storage::Local, "ext4 /dev/sda New".to_string())].into();
        for (now, word) in [
            (Fingerprint { cpu: "B".into(), ..then.clone() }, "CPU"),
            (Fingerprint { cores: 9, ..then.clone() }, "number of CPUs"),
            (Fingerprint { kernel: "6.2".into(), ..then.clone() }, "kernel"),
            (Fingerprint { storage: disk, ..then.clone() }, "storage 'local'"),
            (Fingerprint { mpi: None, ..then.clone() }, "MPI"),
        ] {
            let changes = stale(&then, &now);
            assert!(changes.len() == 1 && changes[0].starts_with(word), "{word}: {changes:?}");
        }
    }

    #[test]
    fn nodes_of_one_type_may_differ_and_each_is_held_to_what_it_was() {
        let mut c = stored(1.0).calibration;
        c.power.idle_w = [("n1".to_string(), 100.0), ("n2".to_string(), 100.0)].into();
        let other = Fingerprint { kernel: "6.2".into(), ..Fingerprint::default() };
        let now = |first: &Fingerprint| [("n1".to_string(), first.clone()), ("n2".to_string(), other.clone())].into();
        assert_eq!(stale_on(&c, &now(&Fingerprint::default())), ["n2: kernel changed: '' is now '6.2'"]);
        c.differing.insert("n2".into(), other.clone());
        assert!(stale_on(&c, &now(&Fingerprint::default())).is_empty());
        assert_eq!(stale_on(&c, &now(&other)), ["n1: kernel changed: '' is now '6.2'"]);
    }

    fn stored(factor: f64) -> StoredCalibration {
        let point = |bytes: f64| Point {
            nodes: 1,
            processes: 1,
            bytes,
            intensity: 1.0,
            frequency_hz: None,
            time_s: bytes / 1e9,
            time_ci_s: 0.0,
            delta_w: 10.0,
            delta_ci_w: None,
            count: 5,
            outliers: 0,
        };
        let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
        let points = vec![point(1e9), point(2e9), point(3e9)];
        StoredCalibration {
            id: 1,
            calibration: Calibration {
                version: protocol::CALIBRATION_VERSION,
                cluster: "c".into(),
                node_type: "t".into(),
                at_s: 1.0,
                fast: false,
                fingerprint: Fingerprint::default(),
                differing: BTreeMap::new(),
                energy_source: "model".into(),
                power: BasePower::default(),
                noise: Noise::default(),
                measured: vec![Measured { operation, storage, points, fits: Vec::new() }],
                skipped: Vec::new(),
            },
            corrections: [(Quantity::TimeS, factor), (Quantity::DeltaW, 2.0 * factor)]
                .map(|(of, factor)| Correction { operation, storage, of, factor, spread: 0.1, count: 3 })
                .to_vec(),
            stale: Vec::new(),
        }
    }

    #[test]
    fn the_frequency_of_a_checkpoint_comes_of_the_points_at_which_one_was_set() {
        let mut c = stored(1.0).calibration;
        assert!(frequencies(&c, Storage::Shared).is_err(), "none was set");
        let first = c.measured[0].points[0].clone();
        c.power.idle_w = [("n1".to_string(), 70.0)].into();
        c.measured[0].points.clear();
        for hz in [1.2e9, 1.8e9, 2.4e9_f64] {
            for bytes in [1e8, 5e8, 1e9] {
                let (time_s, delta_w) = (bytes / 1e8, 8.0 * (hz * 1e-9).powi(2));
                c.measured[0].points.push(Point { bytes, time_s, delta_w, frequency_hz: Some(hz), ..first.clone() });
            }
        }
        let (models, hz) = frequencies(&c, Storage::Shared).unwrap();
        assert_eq!(hz, [1.2e9, 1.8e9, 2.4e9]);
        assert_eq!(models.choose(7e8, &hz, 0.1).unwrap().frequency_hz, 1.2e9, "the disk sets the pace");
    }

    #[test]
    fn one_node_copies_the_files_of_all_where_the_program_writes_them_and_each_its_own_elsewhere() {
        let at = |engine| place(engine, 4.0, 2.0, 1e6);
        assert_eq!(at(Some(Engine::App)), At { nodes: 1.0, processes: 8.0, bytes: 4e6 });
        assert_eq!(at(None), at(Some(Engine::App)), "what no engine is known of is taken for the program's own");
        assert_eq!(at(Some(Engine::Criu)), At { nodes: 4.0, processes: 2.0, bytes: 1e6 });
    }

    #[test]
    fn beyond_the_processes_that_were_measured_a_checkpoint_does_not_follow_their_noise() {
        let mut c = stored(1.0).calibration;
        let faster = |p: &Point| Point { processes: 2, time_s: 0.9 * p.time_s, ..p.clone() };
        let more: Vec<Point> = c.measured[0].points.iter().map(faster).collect();
        c.measured[0].points.extend(more);
        let cost = |processes| {
            let at = At { nodes: 1.0, processes, bytes: 2.5e9 };
            let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
            measured_cost(&c, operation, storage, at, None, &Fits::default()).unwrap()
        };
        let (two, many) = (cost(2.0), cost(16.0));
        assert_eq!((two.time_s, two.extrapolated, many.extrapolated), (many.time_s, false, true));
    }

    #[test]
    fn an_estimate_is_corrected_by_what_runs_have_shown_at_its_target_only() {
        let at = At { nodes: 1.0, processes: 1.0, bytes: 2.5e9 };
        let cost = |s: Option<Storage>| cost(&stored(1.2), Operation::CheckpointWrite, s, at, None, &Fits::default());
        let shared = cost(Some(Storage::Shared)).unwrap();
        assert!((shared.time_s.value - 3.0).abs() < 1e-9 && (shared.delta_w.value - 24.0).abs() < 1e-9, "{shared:?}");
        assert_eq!(cost(Some(Storage::Local)).unwrap_err().parameter, "samples");
    }
}
