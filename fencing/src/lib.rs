//! The fencing token of a run: who holds the run, and which of its processes have to end. A file in the run's folder
//! whose numbers only grow.
//!
//! Each driver that takes a run up gets a higher number than the one before. Slurm may forget a step, and nobody can
//! end its processes then: so processes of a run look into the file themselves. An old version of the file in a
//! node's cache ends nobody, since numbers only grow. This room only reads; the room `run` writes.

mod placement;

pub use placement::{Malformed, Placement};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Name of the file in a run's folder.
pub const FILE: &str = "fencing-token";

/// Its name in runs of earlier versions.
pub const OLDER_FILE: &str = "turns";

/// Time between two reads of the file by a process.
pub const LOOK: Duration = Duration::from_secs(2);

/// How long a relay waits until its predecessor, whose placement is over, releases the log.
pub const SUCCESSION: Duration = Duration::from_secs(10);

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Version of the document.
    pub version: u32,
    /// Number of the run's holder; each holder has a higher one than the one before.
    pub holder: u64,
    /// Whether the holder has left the run, so that all of its processes have to end.
    #[serde(default)]
    pub left: bool,
    /// For each place, how many of its placements are over under this holder.
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

    /// Whether this token ends a placement: by a later holder, by the end of the run, or by a later placement in its
    /// place.
    pub fn ends(&self, placement: &Placement) -> bool {
        let over = self.over.get(&placement.place).copied().unwrap_or(0);
        self.holder > placement.holder || self.holder == placement.holder && (self.left || over > placement.number)
    }
}
