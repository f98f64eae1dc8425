//! When messages may leave: after the next reading of all ranks, and when what was recorded until then is durable.

use super::{Act, Heart, Log, Place, Rank};

impl<L: Log> Heart<L> {
    /// Keeps a new message until the next reading is over.
    pub(super) fn hold(&mut self, place: usize, to: usize, number: u64) {
        let held = &mut self.ranks[place].sending[to].held;
        if held.is_empty() {
            self.holding.push((place, to));
        }
        if held.back().is_none_or(|(_, reading)| *reading != self.reading) {
            held.push_back((number, self.reading));
        }
        self.newest_held = self.reading;
    }

    pub(super) fn hand_on_records(&mut self) {
        if !self.fresh.is_empty() {
            let records = std::mem::take(&mut self.fresh);
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
            Place::Away | Place::Condemned => false,
        };
        if self.ranks.iter().enumerate().all(settled) {
            let needed = self.outcomes.recorded();
            match self.waiting.back_mut().filter(|(_, records)| *records == needed) {
                Some((reading, _)) => *reading = self.reading - 1,
                None => self.waiting.push_back((self.reading - 1, needed)),
            }
        }
        self.reading += 1;
        self.release();
    }

    /// So many records are durable.
    pub fn safe(&mut self, records: u64) {
        self.outcomes.safe(records);
        self.release();
    }

    fn release(&mut self) {
        let before = self.released;
        while let Some((reading, _)) = self.waiting.front().filter(|(_, needed)| *needed <= self.outcomes.durable()) {
            self.released = *reading;
            self.waiting.pop_front();
        }
        if self.released == before {
            return;
        }
        for (place, to) in std::mem::take(&mut self.holding) {
            let released = self.released;
            let held = &mut self.ranks[place].sending[to].held;
            while held.front().is_some_and(|(_, reading)| *reading <= released) {
                held.pop_front();
            }
            if !held.is_empty() {
                self.holding.push((place, to));
            }
            self.queue(place, to);
        }
    }

    /// True if messages wait for another reading.
    pub fn wants_reading(&self) -> bool {
        self.reading < self.newest_held + 2
    }
}
