//! What the driver and the program in place of `srun` say to each other, one JSON object a line.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use worlds::kinds::World;

/// Names the socket of the driver, for the program in place of `srun`.
pub const SOCKET: &str = "JOULEPOINT_GROUPS";

/// Tells `srun` how to exit if Slurm does not begin its step.
pub const EXIT_ERROR: &str = "SLURM_EXIT_ERROR";

/// The other ways than [`driver::groups::ports::NODE_MEMORY`] to say how much memory a step has.
pub const OTHER_MEMORY: [&str; 2] = ["SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"];

/// The files of a group's standard output and standard error in one call.
pub type Outputs = [PathBuf; 2];

/// What the program in place of `srun` says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// It was called; first of all.
    Called {
        /// Arguments.
        args: Vec<String>,
        /// `SLURM_*` and `SRUN_*` variables.
        variables: BTreeMap<String, String>,
        /// What tells it from other calls; absent if nothing does.
        key: Option<String>,
        /// Why no sandbox can hold its tasks, if so.
        unfit: Option<String>,
        /// What makes one MPI world of the groups' ranks, or why nothing does; absent if its program is not linked to MPI.
        #[serde(default)]
        world: Option<Result<World, String>>,
    },
    /// The script has asked it to end.
    Ending,
    /// A group's real `srun` has ended.
    Ended {
        /// Whose.
        group: usize,
        /// Exit code; 128 + signal if it was killed.
        code: i32,
        /// Whether it was killed itself: Slurm then cancels its step, which nobody has asked for.
        #[serde(default)]
        is_killed: bool,
    },
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The call cannot be split: become the real `srun`.
    Pass {
        /// Why; absent if it starts no program.
        why: Option<String>,
    },
    /// `srun` refuses the call.
    Refuse {
        /// Its words.
        why: String,
    },
    /// Start a group's real `srun`.
    Start {
        /// Whose.
        group: usize,
        /// A line of the shell before it.
        first: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables to add.
        environment: Vec<(String, String)>,
        /// The files that take what it writes; absent if it writes where the call does.
        outputs: Option<Outputs>,
    },
    /// Write what these files have up to so many bytes where the call writes, but for what was written before.
    Print {
        /// The files.
        outputs: Outputs,
        /// How much of each counts, bytes.
        upto_bytes: [u64; 2],
    },
    /// End a group's `srun` and its step.
    Stop {
        /// Whose.
        group: usize,
    },
    /// The call has ended.
    End {
        /// Exit code.
        code: i32,
    },
}
