//! The outcomes of a group's ranks, in order, and how far they are durable.
//!
//! They are kept in the run's folder, which outlives any node, and not at another relay: whoever received a message that
//! depends on an outcome may have passed it on, so that with several nodes lost at once only a place that none of
//! them takes along is safe. The price is one sync for a batch of outcomes, and only for groups that have any.

use crate::Outcome;
use crate::envelope::OUTCOME_BYTES;
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64;

/// Marks a record of a rank's base: outcomes up to its number are not in the file.
const BASE: u32 = 1 << 31;

/// Bytes of a record: rank, number, outcome, checksum.
pub const RECORD_BYTES: usize = 4 + 8 + OUTCOME_BYTES + 8;

/// One rank's outcomes, numbered from 1.
#[derive(Debug, Default)]
struct Row {
    base: u64,
    kept: VecDeque<Outcome>,
}

impl Row {
    fn end(&self) -> u64 {
        self.base + self.kept.len() as u64
    }
}

/// Those of all ranks of a group.
#[derive(Debug)]
pub struct Outcomes {
    rows: Vec<Row>,
    /// Those that are made, and those of them that are safe; all that the ranks ever made count, also what is forgotten.
    recorded: u64,
    durable: u64,
    /// Records that are to be made durable.
    fresh: Vec<u8>,
    /// Outcomes that no log has any more.
    pub lost: u64,
}

impl Outcomes {
    /// Of so many ranks.
    pub fn new(ranks: usize) -> Outcomes {
        Outcomes {
            rows: (0..ranks).map(|_| Row::default()).collect(),
            recorded: 0,
            durable: 0,
            fresh: Vec::new(),
            lost: 0,
        }
    }

    /// Takes in a file's records up to the first that is torn or out of place; bytes that were good. After a gap, where
    /// outcomes were lost, a row begins anew.
    pub fn restore(&mut self, bytes: &[u8]) -> usize {
        let mut good = 0;
        for record in bytes.chunks_exact(RECORD_BYTES) {
            let Some((rank, number, outcome)) = decode(record) else { break };
            let Some(row) = self.rows.get_mut(rank) else { break };
            let Some(base) = number.checked_sub(u64::from(outcome.is_some())).filter(|base| *base >= row.end()) else {
                break;
            };
            if base != row.end() {
                *row = Row { base, kept: VecDeque::new() };
            }
            row.kept.extend(outcome);
            good += RECORD_BYTES;
        }
        self.recorded = self.rows.iter().map(Row::end).sum();
        self.durable = self.recorded;
        good
    }

    /// A rank has seen something by chance. False if it is not its next outcome.
    pub fn record(&mut self, rank: usize, number: u64, outcome: Outcome) -> bool {
        let Some(row) = self.rows.get_mut(rank).filter(|row| number == row.end() + 1) else { return false };
        row.kept.push_back(outcome);
        self.recorded += 1;
        self.fresh.extend(encode(rank as u32, number, Some(outcome)));
        true
    }

    /// Takes the records that are to be made durable.
    pub fn take_fresh(&mut self) -> Option<Vec<u8>> {
        (!self.fresh.is_empty()).then(|| std::mem::take(&mut self.fresh))
    }

    /// How many all ranks have made, since their beginning.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// So many of them are safe.
    pub fn safe(&mut self, count: u64) {
        self.durable = self.durable.max(count);
    }

    /// How many are safe.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The number of a rank's newest.
    pub fn end(&self, rank: usize) -> u64 {
        self.rows.get(rank).map_or(0, Row::end)
    }

    /// A rank joins: it has `own`, and can tell those after `held` again. What it must repeat; `None` if some of it is
    /// no longer kept.
    pub fn join(&mut self, rank: usize, own: u64, held: u64) -> Option<Vec<Outcome>> {
        let row = self.rows.get_mut(rank)?;
        if held > row.end() {
            // Nothing that depended on them has left, and the rank has them: only a restore from before would want them.
            self.lost += held - row.end();
            self.recorded += held - row.end();
            *row = Row { base: held, kept: VecDeque::new() };
            self.fresh.extend(encode(rank as u32, held, None));
        }
        let skip = own.checked_sub(row.base)?;
        Some(row.kept.iter().skip(usize::try_from(skip).ok()?).copied().collect())
    }

    /// No checkpoint will want a rank's outcomes up to this number again.
    pub fn forget(&mut self, rank: usize, upto: u64) {
        let Some(row) = self.rows.get_mut(rank) else { return };
        let count = upto.min(row.end()).saturating_sub(row.base);
        row.kept.drain(..usize::try_from(count).unwrap_or(usize::MAX));
        row.base += count;
    }

    /// All that is kept, as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (rank, row) in (0..).zip(&self.rows) {
            if row.base > 0 {
                out.extend(encode(rank, row.base, None));
            }
            let numbered = (row.base + 1..).zip(&row.kept);
            numbered.for_each(|(number, outcome)| out.extend(encode(rank, number, Some(*outcome))));
        }
        out
    }
}

/// A record of an outcome, or of a rank's base.
fn encode(rank: u32, number: u64, outcome: Option<Outcome>) -> [u8; RECORD_BYTES] {
    let mut out = [0; RECORD_BYTES];
    let mark = if outcome.is_some() { 0 } else { BASE };
    out[0..4].copy_from_slice(&(rank | mark).to_le_bytes());
    out[4..12].copy_from_slice(&number.to_le_bytes());
    out[12..28].copy_from_slice(&outcome.unwrap_or_default().encode());
    let sum = xxh3_64(&out[..28]);
    out[28..].copy_from_slice(&sum.to_le_bytes());
    out
}

fn decode(record: &[u8]) -> Option<(usize, u64, Option<Outcome>)> {
    let (body, sum) = record.split_at_checked(RECORD_BYTES - 8)?;
    if sum != xxh3_64(body).to_le_bytes() {
        return None;
    }
    let (rank, body) = body.split_first_chunk()?;
    let (number, outcome) = body.split_first_chunk()?;
    let (rank, outcome) = (u32::from_le_bytes(*rank), Outcome::decode(outcome)?);
    Some(((rank & !BASE) as usize, u64::from_le_bytes(*number), (rank & BASE == 0).then_some(outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(value: i64) -> Outcome {
        Outcome { call: 1, value, count: 1 }
    }

    #[test]
    fn outcomes_are_repeated_from_where_a_rank_is_and_a_torn_record_ends_the_file() {
        let mut outcomes = Outcomes::new(2);
        assert!((1..=3).all(|number| outcomes.record(1, number, outcome(number as i64))));
        assert!(!outcomes.record(1, 3, outcome(0)) && !outcomes.record(2, 1, outcome(0)));
        let mut file = outcomes.take_fresh().expect("records");
        assert_eq!(outcomes.join(1, 1, 1), Some(vec![outcome(2), outcome(3)]));
        file.extend_from_slice(&[9; 20]);
        let mut again = Outcomes::new(2);
        assert_eq!(again.restore(&file), 3 * RECORD_BYTES);
        again.forget(1, 2);
        assert_eq!((again.join(1, 2, 2), again.join(1, 1, 1)), (Some(vec![outcome(3)]), None));
        let mut third = Outcomes::new(2);
        third.restore(&again.encode());
        assert_eq!((third.end(1), third.join(1, 2, 2)), (3, Some(vec![outcome(3)])));
        assert_eq!((third.recorded(), third.durable()), (3, 3), "what is forgotten was made, too");
        third.forget(1, 3);
        let mut fourth = Outcomes::new(2);
        assert_eq!((fourth.restore(&third.encode()), fourth.end(1), fourth.recorded()), (RECORD_BYTES, 3, 3));
        file[40] ^= 1;
        assert_eq!(Outcomes::new(2).restore(&file), RECORD_BYTES);
    }

    #[test]
    fn outcomes_that_were_lost_are_counted_and_never_repeated_in_part() {
        let mut outcomes = Outcomes::new(1);
        assert!(outcomes.record(0, 1, outcome(1)));
        assert_eq!(outcomes.join(0, 6, 4), Some(vec![]));
        assert_eq!(outcomes.recorded(), 4, "the lost ones were made, too");
        assert_eq!((outcomes.lost, outcomes.end(0), outcomes.join(0, 1, 1)), (3, 4, None));
        // Those after the gap are found again.
        assert!(outcomes.record(0, 5, outcome(5)));
        let file = outcomes.take_fresh().expect("records");
        let mut again = Outcomes::new(1);
        assert_eq!((again.restore(&file), again.recorded()), (3 * RECORD_BYTES, 5));
        assert_eq!((again.join(0, 4, 4), again.join(0, 3, 3)), (Some(vec![outcome(5)]), None));
    }
}
