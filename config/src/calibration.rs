//! The section `[calibration]`: how the cluster is measured.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `[calibration]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// Work folder on a file system that all nodes share; `{home}` and `{user}` stand for the user's.
    pub dir: String,
    /// Node types by name, as node lists; other nodes are told apart by features and CPU model.
    pub classes: BTreeMap<String, String>,
    /// Folder on the node's own disk.
    pub local_dir: PathBuf,
    /// Folder in the node's memory.
    pub memory_dir: PathBuf,
    /// Compiler of the site's MPI.
    pub mpicc: String,
    /// Command that starts MPI programs within a job.
    pub mpi_launch: Vec<String>,
    /// Largest checkpoint of a node that is measured, MiB.
    pub largest_checkpoint_mib: u32,
    /// Largest message of a node that is measured, MiB.
    pub largest_message_mib: u32,
    /// Idle power of each network switch, W.
    pub switches_idle_w: Vec<f64>,
    /// Power of a busy switch above idle, W.
    pub switch_delta_w: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            dir: "{home}/.joulepoint/calibration".to_string(),
            classes: BTreeMap::new(),
            local_dir: PathBuf::from("/tmp"),
            memory_dir: PathBuf::from("/dev/shm"),
            mpicc: "mpicc".to_string(),
            mpi_launch: ["srun", "--mpi=pmix"].map(str::to_string).to_vec(),
            largest_checkpoint_mib: 1024,
            largest_message_mib: 64,
            switches_idle_w: Vec::new(),
            switch_delta_w: 0.0,
        }
    }
}
