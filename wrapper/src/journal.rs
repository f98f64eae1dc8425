//! A run's append-only journal: one checksummed JSON record a line, synced before it counts.

use protocol::{Event, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// No line is shorter: checksum, number, time, event, bytes.
const SHORTEST_LINE: usize = 40;

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    next_seq: u64,
}

impl Journal {
    /// Opens or creates a journal; a line torn by a crash is cut off, whole ones are read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path) -> io::Result<(Journal, Vec<Record>)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
            file.sync_all()?;
        }
        let records = read(&bytes[..whole]);
        let next_seq = records.last().map_or(1, |r| r.seq + 1);
        file.seek(io::SeekFrom::End(0))?;
        Ok((Journal { file, next_seq }, records))
    }

    /// Appends events as records, in one write and one sync.
    ///
    /// # Errors
    /// What the file system says; nothing counts as written then.
    pub fn append(&mut self, at_s: f64, events: Vec<Event>) -> io::Result<Vec<Record>> {
        let length = self.file.metadata()?.len();
        let records: Vec<Record> =
            (self.next_seq..).zip(events).map(|(seq, event)| Record { seq, at_s, event }).collect();
        let mut lines = Vec::new();
        for record in &records {
            encode(record, &mut lines)?;
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        if let Err(e) = written {
            // A half-written line would hide what follows it.
            self.file.set_len(length)?;
            return Err(e);
        }
        self.next_seq += records.len() as u64;
        Ok(records)
    }
}

/// The records of a journal's whole lines.
///
/// A line that rotted leaves a hole; what stands in it says so, since whoever counts records would wait for it. A
/// record whose number the file is too short for is not believed.
pub fn read(bytes: &[u8]) -> Vec<Record> {
    let most = (bytes.len() / SHORTEST_LINE + 1) as u64;
    let mut whole: Vec<Record> = Vec::new();
    for record in bytes.split(|b| *b == b'\n').filter_map(decode).filter(|r| (1..=most).contains(&r.seq)) {
        let next = whole.last().map_or(1, |r| r.seq + 1);
        if record.seq < next {
            continue;
        }
        for seq in next..record.seq {
            let reason = format!("record {seq} of the journal was damaged");
            let event = Event::Decided { action: "journal damaged".to_string(), reason, interval_s: 0.0 };
            whole.push(Record { seq, at_s: record.at_s, event });
        }
        whole.push(record);
    }
    whole
}

fn encode(record: &Record, lines: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(record)?;
    write!(lines, "{:08x} ", crc32fast::hash(&json))?;
    lines.extend_from_slice(&json);
    lines.push(b'\n');
    Ok(())
}

/// A record, if the line is whole and unchanged.
fn decode(line: &[u8]) -> Option<Record> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = u32::from_str_radix(std::str::from_utf8(&sum[..8]).ok()?, 16).ok()?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> Event {
        Event::CheckpointFailed { reason: format!("reason {n}") }
    }

    #[test]
    fn records_survive_and_a_torn_line_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert!(records.is_empty());
        journal.append(1.0, vec![event(1), event(2)]).unwrap();
        journal.append(2.0, vec![event(3)]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, records) = Journal::open(&path).unwrap();
            assert_eq!(records.len(), whole[..cut].iter().filter(|b| **b == b'\n').count());
            journal.append(3.0, vec![event(9)]).unwrap();
            let (_, after) = Journal::open(&path).unwrap();
            let seqs: Vec<u64> = after.iter().map(|r| r.seq).collect();
            assert_eq!(seqs, (1..=records.len() as u64 + 1).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_record_keeps_its_own_time_beside_its_event_s() {
        let failure = Event::Failure {
            kind: protocol::FailureKind::Node,
            node: Some("n1".into()),
            failed_s: 5.0,
            detected_s: 8.0,
            reason: "dead".into(),
        };
        let record = Record { seq: 1, at_s: 9.0, event: failure };
        let mut line = Vec::new();
        encode(&record, &mut line).unwrap();
        line.pop();
        assert_eq!(decode(&line), Some(record));
    }

    #[test]
    fn a_number_beyond_the_file_is_not_believed_and_a_repeated_one_is_left_out() {
        let event = || Event::CheckpointFailed { reason: String::new() };
        let mut lines = Vec::new();
        for seq in [1, u64::MAX, 1, 2] {
            encode(&Record { seq, at_s: 0.0, event: event() }, &mut lines).unwrap();
        }
        assert!(lines.len() > 4 * SHORTEST_LINE, "{}", lines.len());
        assert_eq!(read(&lines).iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::open(&path).unwrap().0.append(1.0, vec![event(1), event(2)]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let (_, records) = Journal::open(&path).unwrap();
        assert_eq!(records.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(&records[0].event, Event::Decided { action, .. } if action == "journal damaged"));
        assert_eq!(records[1].event, event(2));
    }
}
