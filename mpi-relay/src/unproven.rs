//! Unproven callers at the relay's doors: ranks, commands and relays that have not yet said, or proved, who they are.

use crate::Error;
use crate::relay::Relay;
use mlog::frame::{Frame, UNPROVEN_BYTES};
use mlog::peer::Greeted;
use mlog::proof::{MOST_UNPROVEN, PROOF_LIMIT, UNPROVEN_UNDISTURBED};
use mlog::{Link, Stream, system};
use std::time::Instant;

/// A connection that has not said, or not proved, who it is.
pub(crate) struct Unproven {
    /// The connection.
    pub(crate) link: Link,
    since: Instant,
    greeted: Option<Greeted>,
}

impl Relay {
    /// Counts one that is sent away; only the first aloud, since unproven callers are not to fill the log.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.refused += 1;
        match self.refused {
            1 => tracing::warn!(group = self.group, "refused: {why}; those to come are only counted"),
            _ => tracing::debug!(group = self.group, "refused: {why}"),
        }
    }

    /// Hears one more out, if it is not one of too many from the network: a caller on the unix socket is the user's own.
    pub(crate) fn admit(&mut self, stream: Stream) {
        if matches!(stream, Stream::Tcp(_)) && !self.has_room() {
            return self.refuse("too many callers without a proof at a time");
        }
        match Link::new(stream, UNPROVEN_BYTES) {
            Ok(link) => self.unproven.push(Unproven { link, since: Instant::now(), greeted: None }),
            Err(e) => self.refuse(&e.to_string()),
        }
    }

    /// Whether there is a place for one more from the network. If there is none, who has been there longest goes; nobody
    /// who has just come.
    fn has_room(&mut self) -> bool {
        let is_remote = |(_, caller): &(usize, &Unproven)| matches!(caller.link.stream(), Stream::Tcp(_));
        let unproven = self.unproven.iter().enumerate().filter(is_remote);
        if unproven.clone().count() < MOST_UNPROVEN {
            return true;
        }
        let oldest = unproven.min_by_key(|(_, caller)| caller.since);
        let Some((index, _)) = oldest.filter(|(_, g)| g.since.elapsed() >= UNPROVEN_UNDISTURBED) else { return false };
        self.unproven.remove(index);
        self.refuse("it proved nothing while others waited");
        true
    }

    /// Sends away who has not said in time who it is.
    pub(crate) fn dismiss_late(&mut self) {
        let before = self.unproven.len();
        self.unproven.retain(|caller| caller.since.elapsed() < PROOF_LIMIT);
        (self.unproven.len()..before).for_each(|_| self.refuse("it did not say in time who it is"));
    }

    /// Hears what an unproven caller says: a rank enters, a command asks, a relay greets and proves.
    pub(crate) fn read_unproven(&mut self, index: usize) {
        let mut caller = self.unproven.remove(index);
        let heard = caller.link.receive().map_err(system("an unproven caller"));
        let frame = match heard.and_then(|open| Ok((open, caller.link.next_frame()?))) {
            Ok((true, None)) => return self.unproven.push(caller),
            Ok((_, Some(frame))) => frame,
            Ok((false, None)) => return,
            Err(e) => return self.refuse(&e.to_string()),
        };
        let outcome = match caller.link.stream() {
            Stream::Unix(_) => self.welcome_local(caller.link, &frame),
            Stream::Tcp(_) => self.welcome_relay(caller, &frame),
            Stream::Closed(_) => return,
        };
        if let Err(e) = outcome {
            self.refuse(&e.to_string());
        }
    }

    fn welcome_relay(&mut self, mut caller: Unproven, frame: &Frame) -> Result<(), Error> {
        match caller.greeted.take() {
            None => {
                let (greeted, challenge) = Greeted::answer(frame, &self.token, self.group, self.peers.len())?;
                caller.greeted = Some(greeted);
                caller.link.push(challenge);
                caller.link.flush().map_err(system("an unproven caller"))?;
                self.unproven.push(caller);
            }
            Some(greeted) if greeted.is_proved(frame, &self.token) => self.connected(greeted.group, caller.link),
            Some(greeted) => return Err(Error::Garbage(format!("a wrong proof, as group {}", greeted.group))),
        }
        Ok(())
    }
}
