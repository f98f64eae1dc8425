//! Callers that have not yet said, or not yet proved, who they are: programs, commands and other relays.

use crate::frame::{Frame, UNPROVEN_BYTES};
use crate::link::{Link, Stream};
use crate::peer::Greeted;
use crate::proof::{MOST_UNPROVEN, PROOF_LIMIT, UNPROVEN_UNDISTURBED};
use crate::relay::Relay;
use crate::{Error, system};
use std::time::Instant;

/// A connection that has not said, or not proved, who it is.
pub(crate) struct Unproven {
    /// The connection.
    pub(crate) link: Link,
    since: Instant,
    greeted: Option<Greeted>,
}

impl Relay {
    /// Counts a refused caller; only the first is a warning, so that callers cannot fill the log.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.counts.refused += 1;
        match self.counts.refused {
            1 => tracing::warn!(group = self.group, "refused: {why}; those to come are only counted"),
            _ => tracing::debug!(group = self.group, "refused: {why}"),
        }
    }

    /// Accepts a caller, unless too many from the network are unproven already. A caller on the unix socket is the
    /// user's own.
    pub(crate) fn admit(&mut self, stream: Stream) {
        if matches!(stream, Stream::Tcp(_)) && !self.has_room() {
            return self.refuse("too many callers without a proof at a time");
        }
        match Link::new(stream, UNPROVEN_BYTES) {
            Ok(link) => self.unproven.push(Unproven { link, since: Instant::now(), greeted: None }),
            Err(e) => self.refuse(&e.to_string()),
        }
    }

    /// Whether there is room for one more caller from the network. If all places are taken, the oldest is closed,
    /// unless it has just come.
    fn has_room(&mut self) -> bool {
        let is_remote = |(_, caller): &(usize, &Unproven)| matches!(caller.link.stream(), Stream::Tcp(_));
        let remote = self.unproven.iter().enumerate().filter(is_remote);
        if remote.clone().count() < MOST_UNPROVEN {
            return true;
        }
        let oldest = remote.min_by_key(|(_, caller)| caller.since);
        let Some((index, _)) = oldest.filter(|(_, g)| g.since.elapsed() >= UNPROVEN_UNDISTURBED) else { return false };
        self.unproven.remove(index);
        self.refuse("it proved nothing while others waited");
        true
    }

    /// Closes callers that have not said in time who they are.
    pub(crate) fn dismiss_late(&mut self) {
        let before = self.unproven.len();
        self.unproven.retain(|caller| caller.since.elapsed() < PROOF_LIMIT);
        (self.unproven.len()..before).for_each(|_| self.refuse("it did not say in time who it is"));
    }

    /// Reads from a caller: a program opens, a command asks, a relay greets and proves.
    pub(crate) fn read_unproven(&mut self, index: usize) {
        let mut caller = self.unproven.remove(index);
        let heard = caller.link.receive().map_err(system("a caller"));
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
                let (greeted, challenge) = Greeted::answer(frame, &self.token, self.group, self.groups)?;
                caller.greeted = Some(greeted);
                caller.link.push(challenge);
                caller.link.flush().map_err(system("a caller"))?;
                self.unproven.push(caller);
            }
            Some(greeted) if greeted.is_proved(frame, &self.token) => self.connected(greeted.group, caller.link),
            Some(greeted) => return Err(Error::Garbage(format!("a wrong proof, as group {}", greeted.group))),
        }
        Ok(())
    }
}
