//! What operations cost on one type of node of a cluster: measured points, their fits, and what corrects them later.
//!
//! The points are what counts: fits are stored beside them for people, and estimates are made anew from the points
//! (`policy::estimate`). Aupy15 §1.3 names the operations; powers are per node, volumes per node, `p` is processes
//! per node.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of [`Calibration`]; a document of another one is refused.
pub const CALIBRATION_VERSION: u32 = 1;

/// An operation whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A fixed amount of arithmetic in every process, at an intensity.
    Compute,
    /// A checkpoint as the wrapper writes it: copied, hashed, synced, committed.
    CheckpointWrite,
    /// A checkpoint as the wrapper reads it before a restart.
    CheckpointRead,
    /// Messages logged to memory at the sender.
    LogMemory,
    /// Messages logged to the node's disk at the sender.
    LogDisk,
    /// A barrier of all processes of all nodes (MPI).
    Synchro,
    /// Waiting actively for a message of some volume (MPI).
    Polling,
}

impl Operation {
    /// All operations, in the order in which they are measured and shown.
    pub const ALL: [Operation; 7] = [
        Operation::Compute,
        Operation::CheckpointWrite,
        Operation::CheckpointRead,
        Operation::LogMemory,
        Operation::LogDisk,
        Operation::Synchro,
        Operation::Polling,
    ];

    /// The name used in files, on the wire and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Compute => "compute",
            Operation::CheckpointWrite => "checkpoint_write",
            Operation::CheckpointRead => "checkpoint_read",
            Operation::LogMemory => "log_memory",
            Operation::LogDisk => "log_disk",
            Operation::Synchro => "synchro",
            Operation::Polling => "polling",
        }
    }
}

/// Where a checkpoint is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// The node's memory (`/dev/shm`).
    Memory,
    /// The node's own disk.
    Local,
    /// The file system that all nodes share.
    Shared,
}

impl Storage {
    /// All targets, nearest first.
    pub const ALL: [Storage; 3] = [Storage::Memory, Storage::Local, Storage::Shared];

    /// The name used in options, files and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Storage::Memory => "memory",
            Storage::Local => "local",
            Storage::Shared => "shared",
        }
    }
}

/// The calibration of one type of node: `POST /v1/calibrations`, and the file of `calibrate export`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`CALIBRATION_VERSION`] of the writer.
    pub version: u32,
    /// Cluster name as Slurm knows it.
    pub cluster: String,
    /// Name of the node type: configured, or made of Slurm features and CPU model.
    pub node_type: String,
    /// When the measurement ended.
    pub at_s: f64,
    /// Whether it was cut short (`--fast`): fewer points, wider intervals.
    pub fast: bool,
    /// What it was measured on.
    pub fingerprint: Fingerprint,
    /// Nodes of the type that were something else, such as ones with another disk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differing: BTreeMap<String, Fingerprint>,
    /// Source of the energy figures: `rapl`, `model`, ...
    pub energy_source: String,
    /// Power that is drawn whatever the nodes do.
    pub power: BasePower,
    /// Spread of the same measurement repeated, below which nothing can be told.
    pub noise: Noise,
    /// The operations that were measured.
    pub measured: Vec<Measured>,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
}

/// The hardware and software on which a calibration holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// CPU model, as `/proc/cpuinfo` says it.
    pub cpu: String,
    /// CPUs that a job can have on a node.
    pub cores: u32,
    /// Kernel release.
    pub kernel: String,
    /// File system of each storage target, with its device: `xfs /dev/sda1 Model`.
    pub storage: BTreeMap<Storage, String>,
    /// First line of `mpirun --version` beside the site's `mpicc`; absent without MPI.
    pub mpi: Option<String>,
}

/// Power that is drawn whatever the nodes do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasePower {
    /// Idle power of every node of the type, by node name, W.
    pub idle_w: BTreeMap<String, f64>,
    /// Idle power of each switch, from the site file, W.
    pub switches_idle_w: Vec<f64>,
    /// Extra power of a busy switch, from the site file, W.
    pub switch_delta_w: f64,
}

/// Noise floor of the measurement: the median over all points of the spread of one repetition about its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Of a duration, as a fraction of it.
    pub time_fraction: f64,
    /// Of an extra power, W.
    pub delta_w: f64,
}

/// One operation, at one storage target where it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The operation.
    pub operation: Operation,
    /// The storage target of a checkpoint; absent for the others.
    pub storage: Option<Storage>,
    /// What was measured.
    pub points: Vec<Point>,
    /// What people are shown; estimates are made from the points.
    pub fits: Vec<StoredFit>,
}

/// One measured point: the mean of its repetitions, without outliers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Nodes that took part, N.
    pub nodes: u32,
    /// Processes on each node, p.
    pub processes: u32,
    /// Volume of each node, all its processes together, bytes; 0 where there is none. For logging and polling that of
    /// one message of each process, and the times are those of one message.
    pub bytes: f64,
    /// Share of the time that compute really computes; 1 for all other operations.
    pub intensity: f64,
    /// CPU frequency that was set; absent where the node's own choice was left.
    pub frequency_hz: Option<f64>,
    /// Mean duration, s.
    pub time_s: f64,
    /// Half width of its 95 % confidence interval, s.
    pub time_ci_s: f64,
    /// Mean power of one node above its idle power meanwhile, W.
    pub delta_w: f64,
    /// Half width of its 95 % confidence interval, W; absent where only the sum of all repetitions could be read.
    pub delta_ci_w: Option<f64>,
    /// Repetitions that count.
    pub count: u32,
    /// Repetitions that were left out as outliers.
    pub outliers: u32,
}

/// What a fit is a curve of, or a correction is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Duration, s.
    #[default]
    TimeS,
    /// Extra power of a node, W.
    DeltaW,
}

/// Over what a fit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Nodes, N.
    Nodes,
    /// Processes on each node, p.
    Processes,
    /// Volume of each node, bytes.
    Bytes,
}

/// A fitted curve, as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFit {
    /// What it gives.
    pub of: Quantity,
    /// Over what it runs; the others are those of the point `at`.
    pub over: Axis,
    /// Index of a point on the curve, whose other coordinates all its points share.
    pub at: usize,
    /// `linear`, `logarithmic`, `power`, `exponential`.
    pub curve: String,
    /// Parameter a.
    pub alpha: f64,
    /// Parameter b.
    pub beta: f64,
    /// Coefficient of determination.
    pub r2: f64,
    /// Root mean square of what the curve misses, in the unit of `of`.
    pub residual: f64,
    /// Whether all its values are equal, so that R² says nothing.
    pub degenerate: bool,
}

/// What was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The operation.
    pub operation: Operation,
    /// Its storage target, where it has one.
    pub storage: Option<Storage>,
    /// Why, with the cure.
    pub why: String,
}

/// A calibration as the store keeps it, and what real runs have corrected since: `GET /v1/calibrations`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCalibration {
    /// Number in the store; grows with each calibration.
    pub id: u64,
    /// The calibration.
    pub calibration: Calibration,
    /// What real runs have shown since.
    pub corrections: Vec<Correction>,
    /// What has changed since on the nodes, as their services tell; empty if it still holds.
    #[serde(default)]
    pub stale: Vec<String>,
}

/// A factor by which an estimate is multiplied, learnt from the wrapper's own measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The operation.
    pub operation: Operation,
    /// Its storage target, where it has one.
    pub storage: Option<Storage>,
    /// What is corrected; older ones are of the duration.
    #[serde(default)]
    pub of: Quantity,
    /// Measured over estimated.
    pub factor: f64,
    /// Mean distance of the logarithm of a measurement from that of the factor: how far single runs lie from it.
    pub spread: f64,
    /// Measurements that went into it.
    pub count: u32,
}
