//! Trims the logs of groups that all go back together: what has arrived is wanted by no checkpoint, since each is saved whole.
//!
//! How far a rank has taken in what was sent to it, it tells when it leaves its relay. So all ranks of a group leave for a
//! moment whenever so much has come and gone, and the senders' logs give up what has arrived: they stay small however
//! far apart checkpoints are.

use crate::Error;
use crate::heart::Tally;
use crate::relay::Relay;
use mlog::absent;

/// Between two times at most so much comes and goes, bytes.
const MOST_BYTES: u64 = 128 << 20;

/// What a message counts beside its body: its entry in a log, and fingerprints.
const MESSAGE_BYTES: u64 = 128;

/// When ranks leave for a moment.
#[derive(Debug)]
pub(crate) struct Trim {
    every_bytes: u64,
    /// What had come and gone the last time.
    last_bytes: u64,
    /// The ranks are asked to leave.
    is_under_way: bool,
}

impl Trim {
    /// So often that no log of so many groups is ever full.
    pub(crate) fn new(limit_bytes: u64, groups: usize) -> Trim {
        let every_bytes = (limit_bytes / (2 * groups.max(1) as u64)).clamp(1, MOST_BYTES);
        Trim { every_bytes, last_bytes: 0, is_under_way: false }
    }
}

/// What has come and gone since the relay's start, bytes.
fn moved_bytes(tally: &Tally) -> u64 {
    tally.bytes + tally.delivered_bytes + MESSAGE_BYTES * (tally.messages + tally.delivered)
}

impl Relay {
    /// Has the ranks leave for a moment, if it is time.
    pub(crate) fn trim(&mut self) -> Result<(), Error> {
        let moved_bytes = moved_bytes(&self.heart.tally);
        let Some(trim) = &mut self.trim else { return Ok(()) };
        let is_due = moved_bytes - trim.last_bytes >= trim.every_bytes && !self.rest.exists();
        trim.is_under_way |= is_due;
        if !trim.is_under_way || !self.send_away(0)? {
            return Ok(());
        }
        let newest = self.heart.marks.checkpoints().last().copied().unwrap_or(0);
        self.heart.commit(newest + 1);
        self.end_trim();
        self.rested = false;
        Ok(absent(&self.rest)?)
    }

    /// The ranks are away for long enough, or somebody else has them leave.
    pub(crate) fn end_trim(&mut self) {
        let last_bytes = moved_bytes(&self.heart.tally);
        self.trim.iter_mut().for_each(|trim| (trim.last_bytes, trim.is_under_way) = (last_bytes, false));
    }
}
