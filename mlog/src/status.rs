//! A relay's counters, as JSON for accounting (the phase `logging`) and for people.

use serde::{Deserialize, Serialize};

/// Counters of a relay since its start, and the state of its channels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this form.
    pub version: u32,
    /// The group.
    pub group: usize,
    /// `none`, `memory` or `disk`.
    pub log: String,
    /// What the log takes now, bytes.
    pub log_bytes: u64,
    /// The most it may take, bytes.
    pub log_limit_bytes: u64,
    /// Seconds spent logging: keeping, writing, syncing, collecting.
    pub logging_s: f64,
    /// The part of them that was spent syncing.
    pub sync_s: f64,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// True while the group's program is connected.
    pub program: bool,
    /// When a program has joined last, or this relay has learnt that it had ended, Unix time [s].
    pub joined_s: f64,
    /// Messages that the program has to send again until it is where it was before it went back; each part counts.
    #[serde(default)]
    pub behind: u64,
    /// Checkpoints whose counters are kept.
    pub checkpoints: Vec<u64>,
    /// The channels, by group.
    pub peers: Vec<PeerStatus>,
    /// Wanted messages that no log has: their senders must go back.
    pub lost: Vec<Loss>,
}

/// Counters since the relay's start. Each part of a long message counts, except in `messages` and `delivered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages logged.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages sent again to a receiver.
    pub replayed: u64,
    /// Their bytes.
    pub replayed_bytes: u64,
    /// Messages given to the program.
    pub delivered: u64,
    /// Messages that arrived twice and were dropped.
    pub duplicates: u64,
    /// Messages that the program sent again while it executed again; not logged, not sent.
    pub repeated: u64,
    /// Connections made to or by other relays.
    pub connections: u64,
    /// Callers refused.
    pub refused: u64,
}

/// A channel pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The other group.
    pub group: usize,
    /// True while its relay is connected.
    pub connected: bool,
    /// Highest number logged to it.
    pub logged: u64,
    /// Number up to which its relay wants nothing any more.
    pub collected: u64,
}

/// A wanted message that no log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Who sent it.
    pub from: usize,
    /// Who wants it.
    pub to: usize,
    /// Its number.
    pub number: u64,
}
