//! The other groups: what their relays say, and what they are told of checkpoints and of an abort.

use super::{Act, Heart, Log, Place};
use crate::Error;
use crate::prints::{Compared, PRINT_BYTES, Print};
use crate::words::{Progress, abort, about, channel, trouble};
use mlog::channel::Arrived;
use mlog::frame::{Frame, Kind};

/// Fingerprints in one frame.
const PRINTS_AT_ONCE: usize = 1 << 16;

impl<L: Log> Heart<L> {
    /// Another group's relay is reached: it is told what is wanted of it, and what never will be.
    pub fn connected(&mut self, group: usize) {
        self.connected[group] = true;
        for place in 0..self.ranks.len() {
            for (other, _) in self.others().filter(|(_, g)| *g == group) {
                self.log.want(place, other, 0);
                self.ranks[place].sending[other].learnt = false;
                self.collect(place, other, group);
                self.tell_prints(place, other, group);
                self.want(place, other, group);
            }
        }
        if let Some((rank, code)) = self.aborted {
            self.acts.push_back(Act::Group(group, abort(rank, code)));
        }
    }

    /// Another group's relay is not reached any more.
    pub fn parted(&mut self, group: usize) {
        self.connected[group] = false;
        for place in 0..self.ranks.len() {
            self.others().filter(|(_, g)| *g == group).for_each(|(other, _)| self.log.want(place, other, 0));
        }
    }

    /// What another group's relay says.
    ///
    /// # Errors
    /// [`Error::Garbage`]: the connection is to be broken. Or what the disk says.
    pub fn heard(&mut self, group: usize, frame: Frame) -> Result<(), Error> {
        let header = frame.header;
        match header.kind {
            Kind::Message => {
                let (from, to) = self.between(&frame, group, self.group)?;
                self.deliver(from, to, frame)
            }
            Kind::Want | Kind::Collect => {
                let (from, to) = self.between(&frame, self.group, group)?;
                let Some(place) = self.layout.place_in(self.group, from) else { return Ok(()) };
                if header.kind == Kind::Collect {
                    return self.log.collect(place, to, header.number);
                }
                self.log.want(place, to, header.number);
                if let Some(has) = header.number.checked_sub(1) {
                    self.learn(place, to, has);
                    self.tell_loss(place, to);
                    self.queue(place, to);
                }
                Ok(())
            }
            Kind::Prints => {
                let (from, to) = self.between(&frame, self.group, group)?;
                let Some(place) = self.layout.place_in(self.group, from) else { return Ok(()) };
                self.take_prints(place, to, header.number, &frame.body)
            }
            Kind::Forget => {
                let (from, to) = self.between(&frame, group, self.group)?;
                let Some(place) = self.layout.place_in(self.group, to) else { return Ok(()) };
                self.ranks[place].got[from].forget(header.number);
                Ok(())
            }
            Kind::Lost => {
                let (from, to) = self.between(&frame, group, self.group)?;
                // Only the sender can make it again: its relay's status shows it.
                let Some(place) = self.layout.place_in(self.group, to) else { return Ok(()) };
                if !self.rules.patient {
                    let text = format!("message {} of rank {from} to rank {to} is in no log any more", header.number);
                    self.acts.push_back(Act::Rank(place, trouble(&Error::Lost(text))));
                }
                Ok(())
            }
            Kind::Abort => {
                self.abort(u32::from(header.group), header.tag);
                Ok(())
            }
            kind => Err(Error::Garbage(format!("{kind:?} from a relay"))),
        }
    }

    fn between(&self, frame: &Frame, from: usize, to: usize) -> Result<(usize, usize), Error> {
        let header = frame.header;
        channel(&header, &self.layout, from, to).ok_or_else(|| {
            Error::Garbage(format!("{:?} from rank {} to rank {}", header.kind, header.group, header.tag))
        })
    }

    fn deliver(&mut self, from: usize, to: usize, mut frame: Frame) -> Result<(), Error> {
        let Some(place) = self.layout.place_in(self.group, to) else { return Ok(()) };
        let rank = &mut self.ranks[place];
        let incoming = &mut rank.receiving[from];
        if rank.behind
            && let Some(arrived) = incoming.arrived()
        {
            // It must come again anyway: let the sender's log hold it until the rank has taken in what waits for it.
            rank.resume[from] = Some(arrived);
            incoming.leave();
            self.tally.duplicates += 1;
            let group = self.layout.group_of(from).unwrap_or(0);
            self.want(place, from, group);
            return Ok(());
        }
        match incoming.arrive(frame.header.number) {
            Arrived::Deliver => {
                self.tally.delivered += 1;
                self.tally.delivered_bytes += frame.body.len() as u64;
                if let Some(print) = Print::of_body(&frame.body, frame.header.rest) {
                    rank.got[from].put(frame.header.number, print);
                }
                (frame.header.group, frame.header.tag) = (from as u16, 0);
                self.acts.push_back(Act::Rank(place, frame));
            }
            Arrived::Drop => self.tally.duplicates += 1,
            Arrived::Broken => {
                let number = frame.header.number;
                return Err(Error::Garbage(format!("message {number} of rank {from} to rank {to} too early")));
            }
        }
        Ok(())
    }

    /// Tells a sender's relay what this rank has got of it, for one that does not know it any more.
    fn tell_prints(&mut self, place: usize, from: usize, group: usize) {
        let prints: Vec<(u64, Print)> = self.ranks[place].got[from].iter().collect();
        for some in prints.chunks(PRINTS_AT_ONCE) {
            let body: Vec<u8> = some.iter().flat_map(|(_, print)| print.encode()).collect();
            let to = self.rank_of(place) as i32;
            let frame = Frame::new(Kind::Prints, from, to, some[0].0, body);
            self.acts.push_back(Act::Group(group, frame));
        }
    }

    /// Hears how much a receiver has. What this relay did not send it, and was sent to this relay since, was sent again.
    fn learn(&mut self, place: usize, to: usize, has: u64) {
        let sending = &mut self.ranks[place].sending[to];
        sending.learnt = true;
        sending.theirs.cut(has);
        let known = sending.peak.max(sending.has);
        sending.has = if has > sending.peak { has } else { sending.has.min(has) };
        if known >= has {
            return;
        }
        let again = sending.prints.iter().filter(|(number, _)| (known + 1..=has).contains(number));
        let again: Vec<_> = again.map(|(n, print)| (n, print, sending.theirs.compare(n, print))).collect();
        for (number, print, what) in again {
            if self.ranks[place].place != Place::Condemned {
                self.tally.repeated += 1;
                self.judge(place, to, number, print, what);
            }
        }
    }

    /// Hears what a receiver has got: what was sent again since must be the same.
    fn take_prints(&mut self, place: usize, to: usize, first: u64, body: &[u8]) -> Result<(), Error> {
        let (prints, rest) = body.as_chunks::<PRINT_BYTES>();
        if !rest.is_empty() || first == 0 {
            return Err(Error::Garbage(format!("fingerprints of {} bytes", body.len())));
        }
        for (number, print) in (first..).zip(prints.iter().filter_map(|bytes| Print::decode(bytes))) {
            let sending = &mut self.ranks[place].sending[to];
            sending.theirs.put(number, print);
            let what = match sending.unproven.remove(&number) {
                Some(again) => sending.theirs.compare(number, again),
                None => sending.prints.compare(number, print),
            };
            if !matches!(what, Compared::Same | Compared::Unknown) && self.ranks[place].place != Place::Condemned {
                self.judge(place, to, number, print, what);
            }
        }
        Ok(())
    }

    /// Whether a rank has so much to take in that no more is to be kept for it here. A log that forgets cannot send
    /// again, so that nothing is dropped then.
    pub fn set_behind(&mut self, place: usize, behind: bool) {
        let behind = behind && !self.log.forgets();
        if std::mem::replace(&mut self.ranks[place].behind, behind) == behind || behind {
            return;
        }
        for (other, group) in self.others() {
            let rank = &mut self.ranks[place];
            if let Some(arrived) = rank.resume[other].take() {
                rank.receiving[other].join(arrived);
                self.want(place, other, group);
            }
        }
    }

    /// Ends the program everywhere.
    pub fn abort(&mut self, rank: u32, code: i32) {
        if self.aborted.is_some() {
            return;
        }
        self.aborted = Some((rank, code));
        (0..self.ranks.len()).for_each(|place| self.acts.push_back(Act::Rank(place, abort(rank, code))));
        let others = (0..self.layout.groups()).filter(|group| *group != self.group);
        others.for_each(|group| self.acts.push_back(Act::Group(group, abort(rank, code))));
    }

    /// Messages that were sent again while nothing was known of the first time: that they are the same is not proved.
    pub fn uncompared(&self) -> u64 {
        self.ranks.iter().flat_map(|rank| &rank.sending).map(|sending| sending.unproven.len() as u64).sum()
    }

    /// Whether all that was sent again is known to be the same as before.
    fn is_proved(&self) -> bool {
        let learnt = |rank: &super::Rank| self.others().all(|(other, _)| rank.sending[other].learnt);
        let is_well = self.differences.is_empty() && self.losses.is_empty() && self.uncompared() == 0;
        is_well && self.ranks.iter().all(learnt)
    }

    /// Keeps how far all ranks were when they left for this checkpoint; false if one of them has not left.
    pub fn mark(&mut self, checkpoint: u64) -> bool {
        let start = Progress::start(self.layout.world());
        let left = |rank: &super::Rank| match rank.place {
            Place::Away | Place::Finished => Some(rank.left.clone().unwrap_or_else(|| start.clone())),
            Place::Here(_) | Place::Condemned => None,
        };
        let progress: Option<Vec<Progress>> = self.ranks.iter().map(left).collect();
        let Some(mut progress) = progress else { return false };
        let proved = self.is_proved();
        for (place, rank) in progress.iter_mut().enumerate() {
            // What it has still to send again may become another message than the one that is logged.
            let logged = self.log.logged(place);
            let caught_up = logged.iter().zip(&rank.sent).all(|(logged, sent)| logged <= sent);
            // What its receiver has from a relay before must be in this log again, to be compared after another loss.
            let regained = logged.iter().zip(&self.ranks[place].sending).all(|(logged, to)| to.has <= *logged);
            rank.proved = proved && caught_up && regained;
            rank.gone = (0..self.layout.world()).map(|to| self.log.gone(place, to)).collect();
        }
        self.marks.mark(checkpoint, progress);
        self.acts.push_back(Act::Marks);
        true
    }

    /// A checkpoint is safe: what no checkpoint will want again goes, here and at the other groups. False if it has no mark.
    pub fn commit(&mut self, checkpoint: u64) -> bool {
        if !self.marks.commit(checkpoint) {
            return false;
        }
        self.acts.push_back(Act::Marks);
        for place in 0..self.ranks.len() {
            let Some(oldest) = self.marks.oldest(place) else { continue };
            self.outcomes.forget(place, oldest.outcomes);
            for (other, group) in self.others() {
                let held = oldest.held[other];
                let sending = &mut self.ranks[place].sending[other];
                if sending.learnt {
                    // Before, they may have to be compared with what the receiver has got.
                    sending.prints.forget(held);
                }
                self.ranks[place].sending[other].theirs.forget(held);
                let forget = about(Kind::Forget, self.rank_of(place), other, held);
                self.acts.push_back(Act::Group(group, forget));
                self.collect(place, other, group);
            }
        }
        // The new file holds them: they must not come again after it.
        self.hand_on_records();
        self.acts.push_back(Act::Rewrite(self.outcomes.encode()));
        true
    }

    fn collect(&mut self, place: usize, from: usize, group: usize) {
        let upto = self.marks.oldest_arrived(place, from);
        let frame = about(Kind::Collect, from, self.rank_of(place), upto);
        self.acts.push_back(Act::Group(group, frame));
    }
}
