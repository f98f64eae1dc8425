//! The coefficients that Aupy15 §1.3 prints, as a calibration, so that its examples can be planned.
//!
//! Printed are t_synchro(N, 4), t_logging(V) on a hard disk, and the rate of t_checkpointing(4, V), which erratum B1
//! puts at a tenth. No power of an operation and no log in memory is among them: each operation draws idle power.

use crate::Known;
use policy::calibration::{published_logging_hdd_s, published_synchro_p4_s};
use protocol::{
    BasePower, CALIBRATION_VERSION, Calibration, Fingerprint, Measured, Noise, Operation, Point, Skipped, Storage,
    StoredCalibration,
};
use std::collections::BTreeMap;

/// Name of the node type.
pub const NODE_TYPE: &str = "aupy15";

/// Processes on each node for which the coefficients hold.
pub const PROCESSES: u32 = 4;

/// Rate of a checkpoint of a node with four processes, bytes/s (erratum B1).
const CHECKPOINT_BYTES_PER_S: f64 = 0.056_569e9;

/// Nodes, and volumes of a node, at which the curves are sampled.
const NODES: [u32; 6] = [1, 2, 4, 8, 16, 32];
const BYTES: [f64; 3] = [1e6, 1e9, 1e12];

/// The published coefficients as a calibration; `idle_w` is the idle power of a node, which is not printed either.
pub fn calibration(idle_w: f64) -> Known {
    let point = |nodes: u32, bytes: f64, time_s: f64| Point {
        nodes,
        processes: PROCESSES,
        bytes,
        intensity: 1.0,
        frequency_hz: None,
        time_s,
        time_ci_s: 0.0,
        delta_w: 0.0,
        delta_ci_w: None,
        count: 1,
        outliers: 0,
    };
    let measured = |operation, storage, points| Measured { operation, storage, points, fits: Vec::new() };
    let synchro = NODES.into_iter().filter_map(|n| {
        let time_s = published_synchro_p4_s(f64::from(n)).ok()?;
        Some(point(n, 0.0, time_s))
    });
    let log = BYTES.into_iter().filter_map(|v| Some(point(1, v, published_logging_hdd_s(v).ok()?)));
    let write = BYTES.into_iter().map(|v| point(1, v, v / CHECKPOINT_BYTES_PER_S));
    let skipped = [Operation::Compute, Operation::CheckpointRead, Operation::LogMemory, Operation::Polling]
        .map(|operation| Skipped { operation, storage: None, why: "not printed in Aupy15".to_string() });
    Known::new(StoredCalibration {
        id: 0,
        calibration: Calibration {
            version: CALIBRATION_VERSION,
            cluster: "published".to_string(),
            node_type: NODE_TYPE.to_string(),
            at_s: 0.0,
            fast: false,
            fingerprint: Fingerprint::default(),
            differing: BTreeMap::new(),
            energy_source: "none".to_string(),
            power: BasePower { idle_w: [(NODE_TYPE.to_string(), idle_w)].into(), ..BasePower::default() },
            noise: Noise::default(),
            measured: vec![
                measured(Operation::CheckpointWrite, Some(Storage::Local), write.collect()),
                measured(Operation::LogDisk, None, log.collect()),
                measured(Operation::Synchro, None, synchro.collect()),
            ],
            skipped: skipped.to_vec(),
        },
        corrections: Vec::new(),
        stale: Vec::new(),
    })
}
