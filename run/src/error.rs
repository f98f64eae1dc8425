//! What can go wrong with the folder of a run.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A newer holder has the run: this one must not write any more.
    #[error("another wrapper has taken the run up since (holder {newer})")]
    Superseded {
        /// Number of the newer holder.
        newer: u64,
    },
    /// An error of the file system.
    #[error("{}: {source}", path.display())]
    Storage {
        /// What was read or written.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// A call to the storage hangs.
    #[error("the storage does not answer: {what} {}", waited(*waited_s))]
    Stalled {
        /// What was to be done.
        what: &'static str,
        /// For how long it was waited, s.
        waited_s: f64,
    },
    /// A file has changed.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file of a program changes while it is copied.
    #[error("{}: the program keeps writing to it", .0.display())]
    Changing(PathBuf),
    /// A file that cannot be named in a manifest.
    #[error("{}: a file of a checkpoint must have a name in UTF-8", .0.display())]
    Name(PathBuf),
    /// The journal of an earlier holder is gone: nobody knows on which nodes it worked.
    #[error("{} is not there: without it nobody knows where this run worked last; put it back, or submit the job again", .0.display())]
    NoJournal(PathBuf),
    /// There are complete checkpoints, and none can be read now.
    #[error("no checkpoint can be read now, and the run does not begin anew for that: {0}")]
    Unreadable(String),
    /// There are complete checkpoints, and none could be restored.
    #[error("no checkpoint could be restored, and the run does not begin anew for that: {0}")]
    NotRestored(String),
}

impl Error {
    /// An error of the file system at a path.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        |source| Error::Storage { path, source }
    }

    /// Whether a newer holder has the run.
    pub fn is_superseded(&self) -> bool {
        matches!(self, Error::Superseded { .. })
    }
}

/// Why a call was given up after so long, s.
fn waited(waited_s: f64) -> String {
    if waited_s < 1.0 {
        "comes after a call that hangs".into()
    } else {
        format!("has taken longer than {waited_s:.0} s")
    }
}
