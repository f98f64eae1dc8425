//! Says what failed while energy or CPU time was read.

use std::io;
use std::path::{Path, PathBuf};

/// Everything that can go wrong in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder is not there, so this machine has no such source.
    #[error("{path}: not there")]
    Absent {
        /// The path looked for.
        path: PathBuf,
    },
    /// A counter may not be read by this user.
    #[error(
        "{path}: permission denied; energy counters are root's since Linux 5.10: run it as root, or ask the node service"
    )]
    Denied {
        /// The file refused.
        path: PathBuf,
    },
    /// Another failure while reading.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file that failed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A value does not have the form that it must have.
    #[error("{what}: cannot understand {text:?}")]
    Malformed {
        /// What was read.
        what: String,
        /// The beginning of what stood there.
        text: String,
    },
    /// A counter fell without an explanation.
    #[error("{what}: ran backwards from {from} to {to}")]
    Backwards {
        /// The counter.
        what: String,
        /// The value before, in the counter's own unit.
        from: u64,
        /// The value now.
        to: u64,
    },
    /// A counter rose faster than the machine can consume.
    #[error("{what}: jumped by {delta_j:.1} J in {dt_s:.3} s, above the limit of {limit_w:.0} W")]
    Jump {
        /// The counter.
        what: String,
        /// The rise.
        delta_j: f64,
        /// The interval.
        dt_s: f64,
        /// The highest believable power.
        limit_w: f64,
    },
    /// A counter stands still.
    #[error("{what}: unchanged for {for_s:.0} s")]
    Stale {
        /// The counter.
        what: String,
        /// For how long.
        for_s: f64,
    },
    /// A command failed.
    #[error("{command}: {text}")]
    Command {
        /// The program.
        command: String,
        /// What went wrong.
        text: String,
    },
    /// A source cannot be used here, for the reason given.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, source: io::Error) -> Error {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Error::Absent { path },
            io::ErrorKind::PermissionDenied => Error::Denied { path },
            _ => Error::Unreadable { path, source },
        }
    }

    pub(crate) fn malformed(what: impl Into<String>, text: &str) -> Error {
        Error::Malformed { what: what.into(), text: text.trim().chars().take(60).collect() }
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Error {
        Error::Refused { reason: reason.into() }
    }
}
