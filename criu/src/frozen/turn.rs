//! Who of the tasks that come back on one node is the first to put back a folder that they share: that one may write over what is
//! there, and later ones meet programs that run already.

use crate::task::Task;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// How the names of files begin that say that somebody was first.
const FIRST: &str = "put-back-tmp";

/// The same of those that say what one has put back for all tasks of its step.
const FOR_ALL: &str = "put-back-of";

/// A task puts a folder back; the others of its node wait as long as this is held.
pub(super) struct Turn {
    /// Whether nobody has since the tasks began to come back.
    pub(super) is_first: bool,
    lock: Option<File>,
}

impl Turn {
    /// Waits for the turn of a task to put back the folder of an archive.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn take(task: &Task, of: &Path) -> io::Result<Turn> {
        let Some(placement) = task.placement.as_ref().filter(|_| task.member.is_some()) else {
            return Ok(Turn { is_first: true, lock: None });
        };
        let both = [placement.to_string().as_bytes(), archive::first(of)?.as_os_str().as_bytes()].concat();
        let mark = task.whole_run().join(format!("{FIRST}.{}.{:016x}", super::host(), xxh3_64(&both)));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(mark)?;
        // Not every file system has locks.
        let _ = file.lock();
        let is_first = file.metadata()?.len() == 0;
        Ok(Turn { is_first, lock: Some(file) })
    }

    /// All of the folder is back.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn done(self) -> io::Result<()> {
        self.lock.filter(|_| self.is_first).map_or(Ok(()), |mut file| file.write_all(b"\n"))
    }
}

/// Where the tasks of a step on this node find what was put back for all of them.
pub fn for_all(task: &Task) -> Option<PathBuf> {
    let call = &task.member.as_ref()?.call;
    Some(task.whole_run().join(format!("{FOR_ALL}.{}.{call}", super::host())))
}
