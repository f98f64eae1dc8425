//! Carries the messages of MPI ranks between recovery groups, logs them at the sender, replays them.
//!
//! A recovery group is some ranks of a program with an MPI of their own. What a rank sends to one of another group goes
//! to its group's [`relay`], a process outside of the group's sandbox, which numbers, logs and forwards it. The rank's
//! end is the [`client`]. What a relay decides is [`heart`], which knows no socket and no clock. `docs/mpi-relay.md`
//! has the whole.
//!
//! This room knows no MPI, starts no program and makes no checkpoint.

pub mod client;
mod control;
pub mod decide;
pub mod envelope;
pub mod heart;
pub mod layout;
pub mod line;
pub mod logs;
pub mod marks;
pub mod outcomes;
pub mod prints;
mod ranks;
mod recorder;
pub mod relay;
pub mod status;
pub mod transport;
mod trim;
pub mod words;

pub use client::{Body, Client};
pub use envelope::{Envelope, Outcome};
pub use layout::Layout;

/// What can go wrong at a rank's end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A call that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The relay is away and does not come back.
    #[error("no relay at {socket} for {waited_s} s: {reason}")]
    Away {
        /// Where it should be.
        socket: String,
        /// How long it was waited for, s.
        waited_s: u64,
        /// The last reason.
        reason: String,
    },
    /// What this rank sends after a restore is not what it had sent: other lengths, tags, or another order.
    #[error("the program does not repeat itself: {0}")]
    Structure(String),
    /// What this rank sends after a restore has other contents than before.
    #[error("the program repeats itself with other contents: {0}")]
    Contents(String),
    /// Messages or outcomes that are wanted are in no log any more.
    #[error("the recovery line must go back: {0}")]
    Lost(String),
    /// A restored rank has outcomes to repeat before it may keep new ones.
    #[error("{0} outcomes are still to be repeated")]
    Repeating(usize),
    /// A rank has aborted the program.
    #[error("rank {rank} has aborted the program with code {code}")]
    Aborted {
        /// Who.
        rank: u32,
        /// Its code.
        code: i32,
    },
    /// The relay does not keep to the protocol.
    #[error("the relay sent {0}")]
    Garbage(String),
    /// What the system says.
    #[error("{0}")]
    System(String),
}

impl Error {
    /// The number of the error between relay and rank.
    pub fn code(&self) -> i32 {
        match self {
            Error::Usage(_) => 1,
            Error::Repeating(_) => 2,
            Error::Away { .. } => 5,
            Error::Lost(_) => 7,
            Error::Structure(_) => 8,
            Error::Garbage(_) => 10,
            Error::System(_) => 11,
            Error::Contents(_) => 12,
            Error::Aborted { .. } => 13,
        }
    }

    /// The error that a relay told of.
    pub fn told(code: i32, text: String) -> Error {
        match code {
            1 => Error::Usage(text),
            7 => Error::Lost(text),
            8 => Error::Structure(text),
            11 => Error::System(text),
            12 => Error::Contents(text),
            _ => Error::Garbage(text),
        }
    }

    /// What the relay tells of it, without the words that [`Error::told`] adds again.
    pub fn text(&self) -> String {
        match self {
            Error::Usage(t) | Error::Lost(t) | Error::Structure(t) => t.clone(),
            Error::Contents(t) | Error::Garbage(t) | Error::System(t) => t.clone(),
            other => other.to_string(),
        }
    }
}

impl From<mlog::Error> for Error {
    fn from(e: mlog::Error) -> Error {
        match e {
            mlog::Error::Usage(text) => Error::Usage(text),
            mlog::Error::Garbage(text) => Error::Garbage(text),
            mlog::Error::Lost(text) => Error::Lost(text),
            other => Error::System(other.to_string()),
        }
    }
}
