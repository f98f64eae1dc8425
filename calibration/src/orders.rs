//! Which points are measured: the five of the method on every axis, or few of them in a hurry.

use policy::Invalid;
use policy::calibration::points;
use protocol::{Operation, Storage};
use serde::{Deserialize, Serialize};

const MIB: f64 = 1_048_576.0;

/// Frequencies at which everything is measured, at most.
const MOST_FREQUENCIES: usize = 5;

/// Files at most that one node gathers, each of which a thread writes.
const MOST_GATHERED: f64 = 1024.0;

/// One point to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The operation; absent for idle power.
    pub operation: Option<Operation>,
    /// Storage target of a checkpoint.
    pub storage: Option<Storage>,
    /// Nodes that do it at the same time.
    pub nodes: u32,
    /// Processes on each.
    pub processes: u32,
    /// Volume of each node, bytes.
    pub bytes: f64,
    /// Share of the time that compute computes.
    pub intensity: f64,
    /// CPU frequency to set, Hz.
    pub frequency_hz: Option<f64>,
}

impl Order {
    /// Whether it is measured by the site's MPI.
    pub fn is_mpi(&self) -> bool {
        matches!(self.operation, Some(Operation::Synchro | Operation::Polling))
    }
}

/// What the points depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// CPUs of a node.
    pub cores: u32,
    /// Nodes that take part.
    pub nodes: u32,
    /// All nodes of the type, which tell their idle power.
    pub nodes_of_type: u32,
    /// Storage targets.
    pub storage: Vec<Storage>,
    /// Frequencies that can be set, Hz; empty where none can.
    pub frequencies_hz: Vec<f64>,
    /// Largest checkpoint of a node, MiB.
    pub largest_checkpoint_mib: f64,
    /// Largest message of a node, MiB.
    pub largest_message_mib: f64,
    /// Whether there is an MPI.
    pub mpi: bool,
    /// Few points.
    pub fast: bool,
}

/// All points, in the order in which they are measured: idle first.
///
/// # Errors
/// When a largest value is not a whole number from 1.
pub fn orders(scope: &Scope) -> Result<Vec<Order>, Invalid> {
    let some = |max: f64, keep: &[usize]| -> Result<Vec<f64>, Invalid> {
        let mut all = points(max)?.to_vec();
        if scope.fast {
            all = keep.iter().map(|i| all[*i]).collect();
        }
        all.dedup();
        Ok(all)
    };
    let p = some(f64::from(scope.cores), &[0, 4])?;
    let n = some(f64::from(scope.nodes), &[0, 4])?;
    let checkpoints: Vec<f64> = some(scope.largest_checkpoint_mib, &[0, 2, 4])?.iter().map(|v| v * MIB).collect();
    let messages = messages(scope)?;
    let intensities: &[f64] = if scope.fast { &[0.5, 1.0] } else { &[0.25, 0.5, 0.75, 1.0] };
    let mut all = Vec::new();
    let mut add = |operation, storage, nodes: f64, processes: f64, bytes, intensity, frequency_hz| {
        let (nodes, processes) = (nodes as u32, processes as u32);
        all.push(Order { operation, storage, nodes, processes, bytes, intensity, frequency_hz });
    };
    add(None, None, f64::from(scope.nodes_of_type), 0.0, 0.0, 0.0, None);
    for f in frequencies(&scope.frequencies_hz) {
        for p in &p {
            intensities.iter().for_each(|i| add(Some(Operation::Compute), None, 1.0, *p, 0.0, *i, f));
            for v in &messages {
                add(Some(Operation::LogMemory), None, 1.0, *p, *v, 1.0, f);
                add(Some(Operation::LogDisk), None, 1.0, *p, *v, 1.0, f);
            }
        }
        for (p, v) in p.iter().flat_map(|p| checkpoints.iter().map(move |v| (*p, *v))) {
            for target in &scope.storage {
                add(Some(Operation::CheckpointWrite), Some(*target), 1.0, p, v, 1.0, f);
                add(Some(Operation::CheckpointRead), Some(*target), 1.0, p, v, 1.0, f);
            }
        }
    }
    if scope.storage.contains(&Storage::Shared) {
        // One node copies what the processes of several have written.
        let gathered = n.iter().map(|n| n * f64::from(scope.cores)).filter(|p| *p > f64::from(scope.cores));
        for (p, v) in gathered.filter(|p| *p <= MOST_GATHERED).flat_map(|p| checkpoints.iter().map(move |v| (p, *v))) {
            add(Some(Operation::CheckpointWrite), Some(Storage::Shared), 1.0, p, v, 1.0, None);
            add(Some(Operation::CheckpointRead), Some(Storage::Shared), 1.0, p, v, 1.0, None);
        }
        let ends = [1.0, f64::from(scope.cores)];
        for n in n.iter().filter(|n| **n > 1.0) {
            for (p, v) in ends.iter().take(p.len()).flat_map(|p| checkpoints.iter().map(move |v| (*p, *v))) {
                add(Some(Operation::CheckpointWrite), Some(Storage::Shared), *n, p, v, 1.0, None);
                add(Some(Operation::CheckpointRead), Some(Storage::Shared), *n, p, v, 1.0, None);
            }
        }
    }
    if scope.mpi {
        for (n, p) in n.iter().flat_map(|n| p.iter().map(move |p| (*n, *p))).filter(|(n, p)| n * p > 1.0) {
            add(Some(Operation::Synchro), None, n, p, 0.0, 1.0, None);
        }
        if scope.nodes >= 2 {
            for (p, v) in p.iter().flat_map(|p| messages.iter().map(move |v| (*p, *v))) {
                add(Some(Operation::Polling), None, 2.0, p, v, 1.0, None);
            }
        }
    }
    Ok(all)
}

/// Volumes of messages: the method's points are dense at the top, messages are small, so the first is split off.
fn messages(scope: &Scope) -> Result<Vec<f64>, Invalid> {
    let top: Vec<f64> = points(scope.largest_message_mib)?.iter().map(|v| v * MIB).collect();
    let mut all = match scope.fast {
        true => vec![top[0] / 64.0, top[0], top[4]],
        false => vec![top[0] / 64.0, top[0], top[1], top[2], top[4]],
    };
    all.dedup();
    Ok(all)
}

/// The node's own choice where none can be set; else the ends and what lies between, evenly.
fn frequencies(usable_hz: &[f64]) -> Vec<Option<f64>> {
    let last = usable_hz.len().saturating_sub(1);
    let many = usable_hz.len().min(MOST_FREQUENCIES);
    let chosen = (0..many).map(|i| Some(usable_hz[if many > 1 { i * last / (many - 1) } else { 0 }]));
    if many == 0 { vec![None] } else { chosen.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope {
            cores: 16,
            nodes: 8,
            nodes_of_type: 20,
            storage: Storage::ALL.to_vec(),
            frequencies_hz: Vec::new(),
            largest_checkpoint_mib: 1024.0,
            largest_message_mib: 64.0,
            mpi: true,
            fast: false,
        }
    }

    fn values(orders: &[Order], operation: Operation, of: impl Fn(&Order) -> f64) -> Vec<f64> {
        let mut all: Vec<f64> = orders.iter().filter(|o| o.operation == Some(operation)).map(of).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    #[test]
    fn five_points_on_every_axis_as_the_method_says() {
        let all = orders(&scope()).unwrap();
        assert_eq!(values(&all, Operation::Compute, |o| f64::from(o.processes)), [1.0, 4.0, 8.0, 12.0, 16.0]);
        assert_eq!(values(&all, Operation::CheckpointWrite, |o| o.bytes).len(), 5);
        assert_eq!(values(&all, Operation::Synchro, |o| f64::from(o.nodes)), [1.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(all.iter().filter(|o| o.operation.is_none()).count(), 1);
    }

    #[test]
    fn one_node_gathers_the_files_of_all_on_the_shared_target() {
        let all = orders(&scope()).unwrap();
        let gathered = |o: &&Order| o.nodes == 1 && o.processes > 16;
        let found: Vec<Order> = all.iter().filter(gathered).cloned().collect();
        assert!(found.iter().all(|o| o.storage == Some(Storage::Shared)));
        assert_eq!(values(&found, Operation::CheckpointWrite, |o| f64::from(o.processes)), [32.0, 64.0, 96.0, 128.0]);
        let wide = orders(&Scope { cores: 512, ..scope() }).unwrap();
        assert!(wide.iter().all(|o| o.nodes > 1 || o.processes <= 1024), "threads have an end");
    }

    #[test]
    fn a_site_without_mpi_measures_none_of_it_and_one_without_cpufreq_sets_nothing() {
        let all = orders(&Scope { mpi: false, ..scope() }).unwrap();
        assert!(all.iter().all(|o| !o.is_mpi() && o.frequency_hz.is_none()));
    }

    #[test]
    fn frequencies_are_spread_over_what_can_be_set() {
        let hz: Vec<f64> = (12..=24).map(|f| f64::from(f) * 1e8).collect();
        let chosen = frequencies(&hz);
        assert_eq!((chosen.len(), chosen[0], chosen[4]), (5, Some(1.2e9), Some(2.4e9)));
        assert_eq!(frequencies(&[2e9]), [Some(2e9)]);
    }

    #[test]
    fn a_hurry_measures_far_fewer() {
        let small = Scope { cores: 2, fast: true, ..scope() };
        assert!(orders(&small).unwrap().len() < 100);
    }
}
