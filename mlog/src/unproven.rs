//! Callers of a relay that have not yet said, or not yet proved, who they are: programs, commands and other relays.
//!
//! What they may take is bounded here, for every relay: bytes, time, and places for those from the network.

use crate::frame::{Frame, UNPROVEN_BYTES};
use crate::link::{Link, Stream};
use crate::peer::Greeted;
use crate::proof::{MOST_UNPROVEN, PROOF_LIMIT, Token, UNPROVEN_UNDISTURBED};
use crate::{Error, system};
use std::time::Instant;

/// A connection that has not said, or not proved, who it is.
#[derive(Debug)]
pub struct Unproven {
    /// The connection.
    pub link: Link,
    since: Instant,
    greeted: Option<Greeted>,
}

/// All of them.
#[derive(Debug)]
pub struct Callers {
    group: usize,
    waiting: Vec<Unproven>,
    refused: u64,
}

impl Callers {
    /// Those of the relay of this group.
    pub fn new(group: usize) -> Callers {
        Callers { group, waiting: Vec::new(), refused: 0 }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many have been refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Their connections with their indices, from the last to the first: reading from one may remove it.
    pub fn links(&self) -> impl Iterator<Item = (usize, &Link)> {
        self.waiting.iter().enumerate().rev().map(|(index, caller)| (index, &caller.link))
    }

    /// Counts a refused caller; only the first is a warning, so that callers cannot fill the log.
    pub fn refuse(&mut self, why: &str) {
        self.refused += 1;
        match self.refused {
            1 => tracing::warn!(group = self.group, "refused: {why}; those to come are only counted"),
            _ => tracing::debug!(group = self.group, "refused: {why}"),
        }
    }

    /// Accepts a caller, unless too many from the network are unproven already. A caller on the unix socket is the
    /// user's own.
    pub fn admit(&mut self, stream: Stream) {
        if matches!(stream, Stream::Tcp(_)) && !self.has_room() {
            return self.refuse("too many callers without a proof at a time");
        }
        match Link::new(stream, UNPROVEN_BYTES) {
            Ok(link) => self.waiting.push(Unproven { link, since: Instant::now(), greeted: None }),
            Err(e) => self.refuse(&e.to_string()),
        }
    }

    /// Whether there is room for one more caller from the network. If all places are taken, the oldest is closed,
    /// unless it has just come.
    fn has_room(&mut self) -> bool {
        let is_remote = |(_, caller): &(usize, &Unproven)| matches!(caller.link.stream(), Stream::Tcp(_));
        let remote = self.waiting.iter().enumerate().filter(is_remote);
        if remote.clone().count() < MOST_UNPROVEN {
            return true;
        }
        let oldest = remote.min_by_key(|(_, caller)| caller.since);
        let Some((index, _)) = oldest.filter(|(_, g)| g.since.elapsed() >= UNPROVEN_UNDISTURBED) else { return false };
        self.waiting.remove(index);
        self.refuse("it proved nothing while others waited");
        true
    }

    /// Closes callers that have not said in time who they are.
    pub fn dismiss_late(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|caller| caller.since.elapsed() < PROOF_LIMIT);
        (self.waiting.len()..before).for_each(|_| self.refuse("it did not say in time who it is"));
    }

    /// Reads from a caller, and takes it out with its first frame when that is whole; one that is gone or wrong, too.
    pub fn read(&mut self, index: usize) -> Option<(Unproven, Frame)> {
        let mut caller = self.waiting.remove(index);
        let heard = caller.link.receive().map_err(system("a caller"));
        match heard.and_then(|open| Ok((open, caller.link.next_frame()?))) {
            Ok((_, Some(frame))) => return Some((caller, frame)),
            Ok((true, None)) => self.waiting.push(caller),
            Ok((false, None)) => {}
            Err(e) => self.refuse(&e.to_string()),
        }
        None
    }

    /// A relay, of so many groups, greets or proves who it is. Its group and its connection when it has.
    ///
    /// # Errors
    /// What it said is neither, or a wrong proof.
    pub fn prove(
        &mut self,
        mut caller: Unproven,
        frame: &Frame,
        token: &Token,
        groups: usize,
    ) -> Result<Option<(usize, Link)>, Error> {
        match caller.greeted.take() {
            None => {
                let (greeted, challenge) = Greeted::answer(frame, token, self.group, groups)?;
                caller.greeted = Some(greeted);
                caller.link.push(challenge);
                caller.link.flush().map_err(system("a caller"))?;
                self.waiting.push(caller);
                Ok(None)
            }
            Some(greeted) if greeted.is_proved(frame, token) => Ok(Some((greeted.group, caller.link))),
            Some(greeted) => Err(Error::Garbage(format!("a wrong proof, as group {}", greeted.group))),
        }
    }
}
