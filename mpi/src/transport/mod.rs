//! The way to the ranks of other groups, as the library sees it.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod direct;

use std::time::Duration;

/// What is known of a message besides its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Envelope {
    /// World rank of the sender.
    pub source: u32,
    /// The communicator's context.
    pub context: u64,
    /// The message's tag.
    pub tag: i32,
    /// Rank of the sender in its communicator.
    pub comm_source: u32,
    /// [`DATA`] or [`ACK`].
    pub kind: u8,
    /// 0, or the number of a synchronous send, which its receiver acknowledges.
    pub sync: u32,
}

/// A message of the program's or of a collective.
pub const DATA: u8 = 0;
/// The receiver of synchronous send `sync` has begun to receive it.
pub const ACK: u8 = 1;

/// What came of a call whose end depends on time, to be repeated after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What kind of call, of those in [`crate::outcome`].
    pub call: u32,
    /// What it gave.
    pub value: i64,
    /// How many times in a row.
    pub count: u32,
}

/// Why a transport cannot go on; the program ends.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Reliable messages to ranks of other groups, in order for each pair of ranks.
pub trait Transport {
    /// Sends a copy of `body` to world rank `to`.
    fn send(&self, to: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error>;
    /// The next message, if one is there.
    fn receive(&self) -> Result<Option<(Envelope, Vec<u8>)>, Error>;
    /// Sleeps until a message may be there, at most so long.
    fn wait(&self, at_most: Duration) -> Result<bool, Error>;
    /// Keeps an outcome, before any later message of this group leaves its node.
    fn record(&self, outcome: Outcome) -> Result<(), Error>;
    /// The next outcome that must be repeated after a restore.
    fn replayed(&self) -> Option<Outcome>;
    /// Ends all ranks of all groups.
    fn abort(&self, code: i32);
    /// This rank needs the other groups no more.
    fn finish(&self) -> Result<(), Error>;
}
