//! The way to the ranks of other groups, as a rank's library sees it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::{Body, Client, Envelope, Error, Outcome};
use std::time::Duration;

/// The kind of a message of the program's or of a collective.
pub const DATA: u8 = 0;
/// The kind of a receiver's word that it has begun to receive synchronous send `sync`.
pub const ACK: u8 = 1;

/// Reliable messages to ranks of other groups, in order for each pair of ranks.
pub trait Transport {
    /// Sends a copy of `body` to world rank `to`.
    ///
    /// # Errors
    /// What keeps it from going.
    fn send(&self, to: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error>;
    /// The next message, if one is there.
    ///
    /// # Errors
    /// What is wrong with the way.
    fn receive(&self) -> Result<Option<(Envelope, Body)>, Error>;
    /// Sleeps until a message may be there, at most so long.
    ///
    /// # Errors
    /// What is wrong with the way.
    fn wait(&self, at_most: Duration) -> Result<bool, Error>;
    /// Keeps an outcome, before any later message of this group leaves its node.
    ///
    /// # Errors
    /// What keeps it from being kept.
    fn record(&self, outcome: Outcome) -> Result<(), Error>;
    /// The next outcome that must be repeated after a restore.
    fn replayed(&self) -> Option<Outcome>;
    /// What this rank does depends on when messages come: restored alone, it would not send the same again.
    ///
    /// # Errors
    /// What is wrong with the way.
    fn varies(&self) -> Result<(), Error>;
    /// Ends all ranks of all groups.
    fn abort(&self, code: i32);
    /// This rank needs the other groups no more.
    ///
    /// # Errors
    /// What is wrong with the way.
    fn finish(&self) -> Result<(), Error>;
}

impl Transport for Client {
    fn send(&self, to: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error> {
        Client::send(self, to, envelope, body)
    }

    fn receive(&self) -> Result<Option<(Envelope, Body)>, Error> {
        Client::receive(self)
    }

    fn wait(&self, at_most: Duration) -> Result<bool, Error> {
        Client::wait(self, at_most)
    }

    fn record(&self, outcome: Outcome) -> Result<(), Error> {
        Client::record(self, outcome)
    }

    fn replayed(&self) -> Option<Outcome> {
        Client::replayed(self)
    }

    fn varies(&self) -> Result<(), Error> {
        Client::varies(self)
    }

    fn abort(&self, code: i32) {
        Client::abort(self, code);
    }

    fn finish(&self) -> Result<(), Error> {
        Client::finish(self)
    }
}
