//! Carries messages between groups, logs them at the sender, replays them.
//!
//! A program of several groups, each of which checkpoints and restarts alone, must get again what it had received
//! since its checkpoint, and nobody else should go back for that. So each group has a [`relay`]: a process beside the
//! program, which holds the log of what its group sent and the connections to the other relays. The program's
//! [`Endpoint`] (in C: `mlog.h`) speaks only to its relay, over a unix socket. `docs/mlog.md` has the whole.
//!
//! This room does not checkpoint, does not start programs, and knows no Slurm.

pub mod book;
pub mod buffer;
mod call;
pub mod channel;
mod collective;
pub mod door;
mod endpoint;
mod ffi;
pub mod frame;
mod inbox;
pub mod link;
mod marks;
pub mod peer;
mod program;
pub mod proof;
pub mod relay;
mod segment;
mod status;
pub mod store;
pub mod unproven;

pub use call::exchange;
pub use collective::{Number, Operation};
pub use door::connect;
pub use endpoint::{Endpoint, Request};
pub use inbox::Counters;
pub use link::{Link, Stream};
pub use status::{Counts, Loss, PeerStatus, Status};
pub use store::Medium;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong use of the library.
    #[error("{0}")]
    Usage(String),
    /// Receiving from whoever comes first cannot be repeated.
    #[error("a receive from any source cannot be replayed: name the source")]
    Wildcard,
    /// A checkpoint while requests are open.
    #[error("{0} requests are open: wait for them before a checkpoint")]
    Open(usize),
    /// A message that is longer than the space for it, or than any may be.
    #[error("a message of {bytes} bytes, and room for {room}")]
    TooLong {
        /// Its length, bytes.
        bytes: usize,
        /// The room, bytes.
        room: usize,
    },
    /// The relay is away and does not come back.
    #[error("no relay at {socket} for {waited_s} s ({reason}): start joulepoint-relay, or set FT_ENERGY_RELAY_WAIT")]
    Away {
        /// Where it should be.
        socket: String,
        /// How long it was waited for, s.
        waited_s: u64,
        /// The last reason.
        reason: String,
    },
    /// The log has reached its bound.
    #[error("the log has reached its bound: {0}")]
    Full(String),
    /// Messages that are wanted are in no log any more.
    #[error("the recovery line must go back: {0}")]
    Lost(String),
    /// A program that executes again does not send what it had sent.
    #[error("the program does not repeat itself: {0}")]
    Diverged(String),
    /// A checkpoint that the relay does not know.
    #[error("no counters for checkpoint {0}: resume from one that was marked")]
    Unmarked(u64),
    /// The other side does not keep to the protocol.
    #[error("the other side sent {0}")]
    Garbage(String),
    /// What the operating system says.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it did not work.
        source: std::io::Error,
    },
}

impl Error {
    /// The number of the error in C and between relay and program.
    pub fn code(&self) -> i32 {
        match self {
            Error::Usage(_) => 1,
            Error::Wildcard => 2,
            Error::Open(_) => 3,
            Error::TooLong { .. } => 4,
            Error::Away { .. } => 5,
            Error::Full(_) => 6,
            Error::Lost(_) => 7,
            Error::Diverged(_) => 8,
            Error::Unmarked(_) => 9,
            Error::Garbage(_) => 10,
            Error::System { .. } => 11,
        }
    }

    /// The error that a relay reported.
    pub fn told(code: i32, text: String, number: u64) -> Error {
        match code {
            6 => Error::Full(text),
            7 => Error::Lost(text),
            8 => Error::Diverged(text),
            9 => Error::Unmarked(number),
            11 => Error::System { what: "the relay".into(), source: std::io::Error::other(text) },
            _ => Error::Garbage(text),
        }
    }

    /// The text that the relay reports, without what [`Error::told`] adds again.
    pub fn text(&self) -> String {
        match self {
            Error::Full(t) | Error::Lost(t) | Error::Diverged(t) | Error::Garbage(t) => t.clone(),
            other => other.to_string(),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Error {
        Error::Garbage(format!("something else than the JSON expected: {e}"))
    }
}

/// Adds what was tried to an error of the operating system.
pub fn system(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what: what.to_string(), source }
}

/// Removes a file that may be there.
///
/// # Errors
/// What the file system says.
pub fn absent(path: &std::path::Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(system(path.display())(e)),
        _ => Ok(()),
    }
}
