//! What a relay tells of itself, as JSON: what `joulepoint-relay status` tells, and what is of ranks only.

use crate::decide::{Difference, Loss};
use crate::heart::Tally;
use serde::{Deserialize, Serialize};

/// The state of a relay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// As of any relay: groups in place of ranks in `peers` and `lost`; `program`: all ranks are here.
    #[serde(flatten)]
    pub relay: mlog::Status,
    /// The ranks of this group.
    pub ranks: Vec<RankStatus>,
    /// What was counted, with parts and envelopes.
    pub tally: Tally,
    /// The log has so many thousandths of what it may take: at 1000 those who send wait for a checkpoint of others.
    pub full_permille: u64,
    /// Ranks have waited for room in the log since the relay's start, s.
    pub waited_s: f64,
    /// Differences found when messages were sent again: all groups are to go back.
    pub differences: Vec<Difference>,
    /// A rank has said that what it does depends on when messages come: no group can go back alone.
    #[serde(default)]
    pub varies: bool,
    /// Messages that were sent again while nothing was known of the first time: that they are the same is not proved.
    pub uncompared: u64,
    /// By rank: what is wanted and in no log.
    pub lost_messages: Vec<Loss>,
    /// Outcomes that were recorded and not yet durable: messages wait for them.
    pub outcomes_waiting: u64,
    /// Outcomes that no log has any more.
    pub outcomes_lost: u64,
    /// Who has aborted the program, and with which code.
    pub aborted: Option<(u32, i32)>,
}

/// The state of one rank, as its relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStatus {
    /// World rank.
    pub rank: u32,
    /// It has joined.
    pub here: bool,
    /// It has said goodbye.
    pub finished: bool,
    /// Bytes that wait for it here.
    pub waiting_bytes: usize,
    /// Outcomes that it has recorded.
    pub outcomes: u64,
}
