//! The format of a journal's lines: a checksum, and a record or a mark of the holder, in JSON.

use protocol::Record;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An event of the run.
    Record(Record),
    /// A fact about the journal's holder.
    Mark(Mark),
}

/// What a holder writes of itself before its first record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The holder took the run up.
    Claim(Claim),
    /// The point from which the run is the holder's.
    Seal(Seal),
}

/// Who took a run up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Number of the holder: higher than that of each holder before.
    pub holder: u64,
    /// Slurm job id; absent outside Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// SLURM_RESTART_COUNT.
    #[serde(default)]
    pub restart_count: u32,
    /// The node on which it runs.
    #[serde(default)]
    pub node: String,
    /// When, in seconds since the Unix epoch.
    #[serde(default)]
    pub at_s: f64,
}

/// Where a holder's part of the run begins. What earlier holders write beyond it does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Number of the last record of the holders before.
    pub after: u64,
    /// The lowest number that a checkpoint of this holder may have.
    pub first_checkpoint: u64,
}

/// Appends a line.
///
/// # Errors
/// What JSON cannot hold.
pub fn encode(content: &impl Serialize, lines: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(content)?;
    write!(lines, "{:08x} ", crc32fast::hash(&json))?;
    lines.extend_from_slice(&json);
    lines.push(b'\n');
    Ok(())
}

/// The content of a line given without its end; none if it is incomplete or damaged.
pub fn decode(line: &[u8]) -> Option<Line> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = u32::from_str_radix(std::str::from_utf8(&sum[..8]).ok()?, 16).ok()?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    let record = serde_json::from_slice(json).map(Line::Record);
    record.or_else(|_| serde_json::from_slice(json).map(Line::Mark)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Event;

    fn there_and_back(content: &impl Serialize) -> Option<Line> {
        let mut line = Vec::new();
        encode(content, &mut line).unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        let read = decode(&line);
        line[12] ^= 1;
        assert_eq!(decode(&line), None, "a flipped bit is seen");
        read
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
        assert_eq!(there_and_back(&record), Some(Line::Record(record)));
    }

    #[test]
    fn the_marks_of_a_holder_are_no_records() {
        let claim = Mark::Claim(Claim { holder: 3, job: Some(7), restart_count: 2, node: "n1".into(), at_s: 1.5 });
        assert_eq!(there_and_back(&claim), Some(Line::Mark(claim)));
        let seal = Mark::Seal(Seal { after: 12, first_checkpoint: 4 });
        assert_eq!(there_and_back(&seal), Some(Line::Mark(seal)));
    }
}
