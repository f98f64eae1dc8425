//! Says who holds a run, and which processes of it have to end: a file in the run's folder whose numbers only grow.
//!
//! Each driver that takes a run up gets a higher number than the one before (a fencing token). Slurm may forget a step,
//! and nobody can end it then: so whoever runs in one looks into the file. What a node's cache still shows of an older
//! state ends nobody. This room only reads; the room `run` writes.

mod placement;

pub use placement::{Malformed, Placement};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// File in a run's folder.
pub const FILE: &str = "fencing-token";

/// Its name in the runs of versions before.
pub const OLDER_FILE: &str = "turns";

/// Time between two looks of a process.
pub const LOOK: Duration = Duration::from_secs(2);

/// How long the next relay waits for the log of one whose placement is over.
pub const SUCCESSION: Duration = Duration::from_secs(10);

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Version of the document.
    pub version: u32,
    /// Number of the run's holder: each has a higher one than the one before.
    pub holder: u64,
    /// Whether the holder has left the run, so that all of its processes have to end.
    #[serde(default)]
    pub left: bool,
    /// How many placements are over in each place that has one, under this holder.
    pub over: BTreeMap<String, u64>,
}

impl Token {
    /// Reads the file. It is opened anew each time, so that a node asks the server for it.
    ///
    /// # Errors
    /// What the file system says, or it is damaged.
    pub fn read(file: &Path) -> io::Result<Token> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    /// Whether a placement is over by this.
    pub fn ends(&self, placement: &Placement) -> bool {
        let over = self.over.get(&placement.place).copied().unwrap_or(0);
        self.holder > placement.holder || self.holder == placement.holder && (self.left || over > placement.number)
    }
}
