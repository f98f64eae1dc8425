//! What ranks and relays say to each other beside messages.
//!
//! In frames between relays `group` is the rank that sent a message and `tag` the rank that receives it. In frames
//! between a rank and its relay `group` is the other side's rank.

use crate::layout::Layout;
use crate::{Error, Outcome};
use mlog::frame::{Frame, Header, Kind};
use serde::{Deserialize, Serialize};

/// Tag of a fingerprint that a rank had told before it left for a dump.
pub const COMPARED: i32 = 1;

/// How far a rank is: at its beginning, at a join, at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// From each world rank: messages, or parts of one, that have arrived.
    pub arrived: Vec<u64>,
    /// To each world rank: messages sent.
    pub sent: Vec<u64>,
    /// To each world rank: messages up to this number it cannot send again by itself.
    pub held: Vec<u64>,
    /// Outcomes recorded or repeated.
    pub outcomes: u64,
    /// Outcomes up to this number it cannot tell again by itself.
    pub outcomes_held: u64,
    /// In a mark: to each world rank, messages up to this number are in no log.
    #[serde(default)]
    pub gone: Vec<u64>,
    /// In a mark: its relay knows that it has sent again all that it had to, and that all is the same as before.
    #[serde(default)]
    pub proved: bool,
}

impl Progress {
    /// Of a rank that begins.
    pub fn start(world: usize) -> Progress {
        Progress { arrived: vec![0; world], sent: vec![0; world], held: vec![0; world], ..Progress::default() }
    }

    /// Whether it is that of so many ranks.
    pub fn fits(&self, world: usize) -> bool {
        [&self.arrived, &self.sent, &self.held].iter().all(|row| row.len() == world)
            && self.outcomes_held <= self.outcomes
    }
}

/// The answer to a join.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Welcome {
    /// To each world rank: the highest number logged; up to there only fingerprints are to be sent.
    pub known: Vec<u64>,
    /// Outcomes that are kept.
    pub outcomes: u64,
    /// Those after the rank's own, to be repeated: call, value and count.
    pub repeat: Vec<Outcome>,
}

/// A frame between relays about the channel between two ranks.
pub fn about(kind: Kind, from: usize, to: usize, number: u64) -> Frame {
    let mut frame = Frame::number(kind, number);
    (frame.header.group, frame.header.tag) = (from as u16, to as i32);
    frame
}

/// Sender and receiver that a frame between relays names; `None` if there is no such channel between these groups.
pub fn channel(header: &Header, layout: &Layout, from: usize, to: usize) -> Option<(usize, usize)> {
    let (sender, receiver) = (usize::from(header.group), usize::try_from(header.tag).ok()?);
    let fits = layout.group_of(sender)? == from && layout.group_of(receiver)? == to;
    fits.then_some((sender, receiver))
}

/// That a rank has aborted the program.
pub fn abort(rank: u32, code: i32) -> Frame {
    Frame::new(Kind::Abort, rank as usize, code, 0, Vec::new())
}

/// Tells a rank, or a command, what went wrong.
pub fn trouble(error: &Error) -> Frame {
    Frame::new(Kind::Trouble, 0, error.code(), 0, error.text().into_bytes())
}
