//! What a CRIU without our patch, or with an older one, would lose.

use crate::{peers, unshared};
use std::path::Path;

/// The patch with which a file that is mapped and open stays one.
pub const KEEPS_FILES: u32 = 2;

/// The patch with which it stays locked.
const KEEPS_LOCKS: u32 = 3;

/// The patch with which shared memory comes back as it was, and takes no more than it did.
const KEEPS_HOLES: u32 = 4;

/// The patch with which daemons stay below the script, and what waits in sockets comes back or is refused.
const KEEPS_DAEMONS: u32 = 5;

/// What a CRIU would lose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum Lost {
    /// That two are one file.
    Files(#[from] peers::TwoFiles),
    /// A lock.
    Lock(#[from] peers::MappedLock),
    /// What shared memory holds, or that it holds little.
    Memory(#[from] peers::SharedMemory),
    /// Nobody knows what.
    Unseen(#[from] peers::Unseen),
    /// A process.
    Daemon(#[from] unshared::Daemon),
}

/// Refuses a program of which a CRIU with the patch of this number, 0 for none, would lose something that ours keeps; `tree` finds
/// its processes, the one above all first.
///
/// # Errors
/// What it would lose.
pub fn refuse_lost(patch: u32, tree: impl FnOnce() -> Vec<i32>) -> Result<(), Lost> {
    if patch >= KEEPS_DAEMONS {
        return Ok(());
    }
    let (tree, proc) = (tree(), Path::new("/proc"));
    if patch < KEEPS_FILES {
        peers::refuse_memory_files(&peers::mapped(proc, &tree)?)?;
    }
    if patch < KEEPS_LOCKS {
        peers::refuse_mapped_locks(&peers::mapped(proc, &tree)?)?;
    }
    if patch < KEEPS_HOLES {
        peers::refuse_shared_memory(&peers::memory(proc, &tree)?)?;
    }
    Ok(unshared::refuse_daemons(proc, &tree)?)
}
