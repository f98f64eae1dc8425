//! Strangers at the relay's doors: programs, commands and relays that have not yet said, or proved, who they are.

use crate::frame::{Frame, STRANGER_BYTES};
use crate::link::{Link, Stream};
use crate::peer::Greeted;
use crate::proof::{MOST_STRANGERS, STRANGER_PATIENCE, STRANGER_UNDISTURBED};
use crate::relay::Relay;
use crate::{Error, system};
use std::time::Instant;

/// A connection that has not said, or not proved, who it is.
pub(crate) struct Guest {
    /// The connection.
    pub(crate) link: Link,
    since: Instant,
    greeted: Option<Greeted>,
}

impl Relay {
    /// Counts one that is sent away; only the first aloud, since strangers are not to fill the log.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.counts.refused += 1;
        match self.counts.refused {
            1 => tracing::warn!(group = self.group, "refused: {why}; those to come are only counted"),
            _ => tracing::debug!(group = self.group, "refused: {why}"),
        }
    }

    /// Hears one more out, if it is not one of too many from the network: a caller on the unix socket is the user's own.
    pub(crate) fn admit(&mut self, stream: Stream) {
        if matches!(stream, Stream::Tcp(_)) && !self.has_room() {
            return self.refuse("too many strangers at a time");
        }
        match Link::new(stream, STRANGER_BYTES) {
            Ok(link) => self.guests.push(Guest { link, since: Instant::now(), greeted: None }),
            Err(e) => self.refuse(&e.to_string()),
        }
    }

    /// Whether there is a place for one more from the network. If there is none, who has been there longest goes; nobody
    /// who has just come.
    fn has_room(&mut self) -> bool {
        let is_stranger = |(_, guest): &(usize, &Guest)| matches!(guest.link.stream(), Stream::Tcp(_));
        let strangers = self.guests.iter().enumerate().filter(is_stranger);
        if strangers.clone().count() < MOST_STRANGERS {
            return true;
        }
        let oldest = strangers.min_by_key(|(_, guest)| guest.since);
        let Some((index, _)) = oldest.filter(|(_, g)| g.since.elapsed() >= STRANGER_UNDISTURBED) else { return false };
        self.guests.remove(index);
        self.refuse("it proved nothing while others waited");
        true
    }

    /// Sends away who has not said in time who it is.
    pub(crate) fn dismiss_late(&mut self) {
        let before = self.guests.len();
        self.guests.retain(|guest| guest.since.elapsed() < STRANGER_PATIENCE);
        (self.guests.len()..before).for_each(|_| self.refuse("it did not say in time who it is"));
    }

    /// Hears what a stranger says: a program opens, a command asks, a relay greets and proves.
    pub(crate) fn read_guest(&mut self, index: usize) {
        let mut guest = self.guests.remove(index);
        let heard = guest.link.receive().map_err(system("a stranger"));
        let frame = match heard.and_then(|open| Ok((open, guest.link.next_frame()?))) {
            Ok((true, None)) => return self.guests.push(guest),
            Ok((_, Some(frame))) => frame,
            Ok((false, None)) => return,
            Err(e) => return self.refuse(&e.to_string()),
        };
        let outcome = match guest.link.stream() {
            Stream::Unix(_) => self.welcome_local(guest.link, &frame),
            Stream::Tcp(_) => self.welcome_relay(guest, &frame),
            Stream::Closed(_) => return,
        };
        if let Err(e) = outcome {
            self.refuse(&e.to_string());
        }
    }

    fn welcome_relay(&mut self, mut guest: Guest, frame: &Frame) -> Result<(), Error> {
        match guest.greeted.take() {
            None => {
                let (greeted, challenge) = Greeted::answer(frame, &self.token, self.group, self.groups)?;
                guest.greeted = Some(greeted);
                guest.link.push(challenge);
                guest.link.flush().map_err(system("a stranger"))?;
                self.guests.push(guest);
            }
            Some(greeted) if greeted.is_proved(frame, &self.token) => self.connected(greeted.group, guest.link),
            Some(greeted) => return Err(Error::Garbage(format!("a wrong proof, as group {}", greeted.group))),
        }
        Ok(())
    }
}
