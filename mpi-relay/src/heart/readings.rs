//! When messages are logged and leave: logged after the next reading of all ranks, with the number of outcomes that were
//! recorded until then; and away when these are durable. A rank holds until then what it has sent.

use super::{Act, Heart, Log, Place, Rank, Taken};
use crate::words::trouble;
use mlog::frame::{Frame, Header, Kind};

/// What was logged at the end of one reading.
#[derive(Debug)]
pub(super) struct Batch {
    /// It leaves when so many outcomes are durable.
    needed: u64,
    /// Channels and the newest message of each.
    ends: Vec<(usize, usize, u64)>,
    /// What each rank need not hold then.
    taken: Vec<Taken>,
}

/// Whether a logged message has never left, since fewer outcomes are durable than it needs. A log keeps only 32 bits of
/// that number.
pub(super) fn is_beyond(header: &Header, durable: u64) -> bool {
    header.tag.wrapping_sub(durable as i32) > 0
}

impl<L: Log> Heart<L> {
    /// Notes a frame of a rank, which holds it until it is kept here.
    pub(super) fn take(&mut self, place: usize, bytes: usize) {
        self.ranks[place].taken.frames += 1;
        self.ranks[place].taken.bytes += bytes as u64;
        self.newest = self.reading;
    }

    /// What a rank need not hold any more: its messages may leave, its outcomes are durable.
    pub fn kept(&self, place: usize) -> Taken {
        self.ranks[place].kept
    }

    /// A rank joins anew. What was not logged of it goes: it holds that still, or has gone back behind it.
    pub(super) fn begin_anew(&mut self, place: usize) {
        let rank = &mut self.ranks[place];
        rank.young.clear();
        rank.old.clear();
        rank.parting = false;
        (rank.taken, rank.before, rank.kept) = Default::default();
        self.waiting.iter_mut().for_each(|batch| batch.taken[place] = Taken::default());
    }

    pub(super) fn hand_on_records(&mut self) {
        if let Some(records) = self.outcomes.take_fresh() {
            self.acts.push_back(Act::Record(records, self.outcomes.recorded()));
        }
    }

    /// All that ranks had said when this reading began was taken in.
    pub fn read_all(&mut self) {
        self.hand_on_records();
        let outcomes = &self.outcomes;
        let settled = |(place, rank): (usize, &Rank)| match rank.place {
            Place::Here(owed) => outcomes.end(place) >= owed,
            Place::Finished => true,
            // One that left for a dump has said all, and sees nothing by chance until it is back.
            Place::Away => rank.left.is_some(),
            Place::Condemned => false,
        };
        let settled = self.ranks.iter().enumerate().all(settled);
        if self.is_alone() {
            self.age();
        }
        if settled {
            self.log_old();
        }
        self.age();
        self.reading += 1;
        self.release();
    }

    /// A rank that is its group has told all that a message may depend on before the message: no other reading is needed.
    fn is_alone(&self) -> bool {
        self.ranks.len() == 1
    }

    /// What came in this reading is now of one before.
    fn age(&mut self) {
        for rank in &mut self.ranks {
            rank.old.append(&mut rank.young);
            rank.before = rank.taken;
        }
    }

    /// Logs the messages of readings before this one.
    fn log_old(&mut self) {
        let needed = self.outcomes.recorded();
        let taken = self.ranks.iter().map(|rank| rank.before).collect();
        let mut batch = Batch { needed, ends: Vec::new(), taken };
        for place in 0..self.ranks.len() {
            let mut messages = std::mem::take(&mut self.ranks[place].old);
            for frame in &mut messages {
                frame.header.tag = needed as i32;
                batch.ends.push((place, usize::from(frame.header.group), frame.header.number));
            }
            if let Err(e) = self.log.append(place, messages) {
                // Nothing of it may leave: the rank ends, and its program with it.
                batch.ends.retain(|(of, ..)| *of != place);
                self.acts.push_back(Act::Rank(place, trouble(&e)));
                self.leave(place, None);
            }
        }
        self.waiting.push_back(batch);
    }

    /// So many outcomes are durable.
    pub fn safe(&mut self, outcomes: u64) {
        self.outcomes.safe(outcomes);
        self.release();
    }

    fn release(&mut self) {
        while let Some(batch) = self.waiting.pop_front_if(|batch| batch.needed <= self.outcomes.durable()) {
            for (place, to, number) in batch.ends {
                self.ranks[place].sending[to].released = number;
                self.queue(place, to);
            }
            for (place, taken) in batch.taken.into_iter().enumerate() {
                let rank = &mut self.ranks[place];
                if taken.frames > rank.kept.frames {
                    rank.kept = taken;
                }
                if rank.parting && rank.kept.frames == rank.taken.frames {
                    rank.parting = false;
                    self.acts.push_back(Act::Rank(place, Frame::number(Kind::Bye, 0)));
                }
            }
        }
    }

    /// True if what was taken in waits for another reading.
    pub fn wants_reading(&self) -> bool {
        self.reading < self.newest + if self.is_alone() { 1 } else { 2 }
    }
}
