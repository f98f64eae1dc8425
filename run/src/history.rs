//! Reads the journals of all holders of a run and merges them by holder and number; duplicates and late records are
//! reported.

use crate::holder::{self, of_journal};
use crate::line::{Claim, Line, Mark, Seal, decode};
use crate::owners::Owners;
use crate::patience::Patience;
use crate::{Result, storage};
use protocol::{Event, Record};
use std::path::Path;

/// Length of the shortest line: checksum, number, time, event, bytes.
const SHORTEST_LINE: usize = 40;

/// More missing records than this are not believed: the number that implies them is taken to be damaged.
const MOST_MISSING: u64 = 100_000;

/// The merged history of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All records that count, by number, without gaps.
    pub records: Vec<Record>,
    /// Who owns which checkpoints.
    pub owners: Owners,
    /// Sentences about records that do not count.
    pub conflicts: Vec<String>,
}

/// The journal of one holder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub holder: u64,
    pub claim: Option<Claim>,
    pub seal: Option<Seal>,
    records: Vec<Record>,
    bytes: usize,
}

/// Reads the journals of a run, by holder.
pub(crate) fn parts(run: &Path, patience: Patience) -> Result<Vec<Part>> {
    let names = storage::names(run, patience)?;
    let mut holders: Vec<u64> = names.iter().filter_map(|name| of_journal(name.to_str()?)).collect();
    holders.sort_unstable();
    let read = |holder| {
        let content = storage::read_if_there(&holder::journal(run, holder), patience)?;
        Ok(Part::read(holder, &content.unwrap_or_default()))
    };
    holders.into_iter().map(read).collect()
}

/// Reads the history of a run without taking it up.
///
/// # Errors
/// What the file system says.
pub fn read(run: &Path, patience: Patience) -> Result<History> {
    Ok(merge(parts(run, patience)?))
}

/// The records of one journal whose holder is the run's first.
pub fn records(bytes: &[u8]) -> Vec<Record> {
    merge(vec![Part::read(holder::FIRST, bytes)]).records
}

impl Part {
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    fn read(holder: u64, bytes: &[u8]) -> Part {
        let mut part = Part { holder, bytes: bytes.len(), ..Part::default() };
        // An incomplete last line was torn by a crash, or is being written.
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        for line in bytes[..whole].split(|b| *b == b'\n').filter_map(decode) {
            match line {
                Line::Record(record) => part.records.push(record),
                Line::Mark(Mark::Claim(claim)) => part.claim = Some(claim),
                Line::Mark(Mark::Seal(seal)) => part.seal = Some(seal),
            }
        }
        part
    }

    /// The number of its first record, if it has begun. Records without a seal are those of the run's first holder,
    /// or their seal is damaged.
    fn first(&self) -> Option<u64> {
        match self.seal {
            _ if self.holder == holder::FIRST => Some(1),
            Some(seal) => Some(seal.after.saturating_add(1)),
            None => Some(self.records.first()?.seq),
        }
    }

    /// The highest record number that is believed: the file is too short for more.
    fn most(&self) -> u64 {
        self.first().unwrap_or(0).saturating_add((self.bytes / SHORTEST_LINE) as u64)
    }
}

/// Merges the journals of all holders, from the first on.
pub(crate) fn merge(parts: Vec<Part>) -> History {
    let mut history = History::default();
    for (i, part) in parts.iter().enumerate() {
        if let Some(seal) = part.seal {
            history.owners.add(part.holder, seal.first_checkpoint);
        } else if part.claim.is_some() {
            history.owners.add_unsealed(part.holder);
        }
        let until = parts[i + 1..].iter().find_map(Part::first).map(|first| first.saturating_sub(1));
        let doubled = take(&mut history.records, part, until);
        if let (Some(first), Some(last)) = (doubled.first(), doubled.last()) {
            let name = holder::journal(Path::new(""), part.holder);
            history.conflicts.push(format!(
                "{}: {} of its records (numbers {first} to {last}) were written though another wrapper had the run; \
                 they count for nothing",
                name.display(),
                doubled.len()
            ));
        }
    }
    history
}

/// Adds a journal's records up to a number; returns the numbers of records that do not count.
///
/// A damaged line leaves a hole, which is filled by a record that says so: whoever counts records would wait for it
/// for ever.
fn take(whole: &mut Vec<Record>, part: &Part, until: Option<u64>) -> Vec<u64> {
    let mut doubled = Vec::new();
    let (first, most) = (part.first(), part.most());
    let until_s = part.records.last().map_or(0.0, |r| r.at_s);
    for record in &part.records {
        let next = whole.last().map_or(1, |r| r.seq + 1);
        let is_ours = first.is_some_and(|first| record.seq >= first) && until.is_none_or(|until| record.seq <= until);
        match record.seq {
            seq if is_ours && (next..=most.min(next + MOST_MISSING)).contains(&seq) => {
                fill(whole, seq, record.at_s);
                whole.push(record.clone());
            }
            // A write that seemed to fail was repeated with the same content.
            seq if seq >= 1 && whole.get((seq - 1) as usize) == Some(record) => {}
            seq if seq >= 1 && seq <= most => doubled.push(seq),
            // A number that is not believed: skipped.
            _ => {}
        }
    }
    if let Some(until) = until.filter(|until| first.is_some_and(|first| *until >= first) && *until <= most) {
        fill(whole, until + 1, until_s);
    }
    doubled.sort_unstable();
    doubled
}

fn fill(whole: &mut Vec<Record>, until: u64, at_s: f64) {
    for seq in whole.last().map_or(1, |r| r.seq + 1)..until {
        let reason = format!("record {seq} of the journal was damaged");
        let event = Event::Decided { action: "journal damaged".to_string(), reason, interval_s: 0.0 };
        whole.push(Record { seq, at_s, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::encode;

    fn record(seq: u64, reason: &str) -> Record {
        Record { seq, at_s: seq as f64, event: Event::CheckpointFailed { reason: reason.to_string() } }
    }

    fn part(holder: u64, after: Option<u64>, numbers: &[u64]) -> Part {
        let mut lines = Vec::new();
        encode(&Mark::Claim(Claim { holder, ..Claim::default() }), &mut lines).unwrap();
        if let Some(after) = after {
            encode(&Mark::Seal(Seal { after, first_checkpoint: after }), &mut lines).unwrap();
        }
        for seq in numbers {
            encode(&record(*seq, &format!("a record of holder {holder}")), &mut lines).unwrap();
        }
        Part::read(holder, &lines)
    }

    fn merged(parts: Vec<Part>) -> (Vec<u64>, Vec<String>) {
        let history = merge(parts);
        (history.records.iter().map(|r| r.seq).collect(), history.conflicts)
    }

    #[test]
    fn what_a_holder_writes_after_another_has_taken_the_run_up_counts_for_nothing_and_is_told() {
        let parts = vec![part(1, None, &[1, 2, 3, 4, 5]), part(2, None, &[]), part(3, Some(3), &[4, 5])];
        let history = merge(parts);
        assert_eq!(history.records.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let of_third =
            |r: &Record| matches!(&r.event, Event::CheckpointFailed { reason } if reason.ends_with("holder 3"));
        assert_eq!(history.records.iter().filter(|r| of_third(r)).count(), 2);
        assert_eq!(history.conflicts.len(), 1);
        assert!(
            history.conflicts[0].starts_with("journal: 2 of its records (numbers 4 to 5)"),
            "{:?}",
            history.conflicts
        );
    }

    #[test]
    fn two_writers_of_one_journal_of_a_version_before_are_told_and_a_line_that_was_written_twice_is_not() {
        let mut lines = Vec::new();
        for (seq, writer) in [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (3, "a"), (3, "b")] {
            encode(&record(seq, writer), &mut lines).unwrap();
        }
        let (numbers, conflicts) = merged(vec![Part::read(1, &lines)]);
        assert_eq!(numbers, [1, 2, 3]);
        assert!(conflicts[0].contains("2 of its records (numbers 2 to 3)"), "{conflicts:?}");
    }

    #[test]
    fn a_holder_without_a_seal_has_written_nothing_or_its_seal_has_rotted() {
        assert_eq!(merged(vec![part(1, None, &[1, 2]), part(2, None, &[])]), (vec![1, 2], vec![]));
        let (numbers, conflicts) = merged(vec![part(1, None, &[1, 2]), part(2, None, &[2, 3])]);
        assert_eq!((numbers, conflicts.len()), (vec![1, 2, 3], 1));
    }

    #[test]
    fn a_hole_says_so_also_at_the_end_of_a_holder() {
        let (numbers, conflicts) = merged(vec![part(1, None, &[1, 3]), part(2, Some(5), &[6])]);
        assert_eq!((numbers, conflicts), (vec![1, 2, 3, 4, 5, 6], vec![]));
    }

    #[test]
    fn a_torn_line_does_not_count_and_a_number_beyond_the_file_is_not_believed() {
        let mut lines = Vec::new();
        for seq in [1, 2, u64::MAX] {
            encode(&record(seq, "a"), &mut lines).unwrap();
        }
        for cut in 0..lines.len() {
            let whole = lines[..cut].iter().filter(|b| **b == b'\n').count().min(2);
            assert_eq!(records(&lines[..cut]).len(), whole);
        }
        assert_eq!(merged(vec![Part::read(1, &lines)]), (vec![1, 2], vec![]));
    }
}
