//! Knows what each holder of a run was told to be done, and says when the folder of the run says otherwise.

use faultfs::FaultFs;
use protocol::{Manifest, Record};
use run::History;
use run::checkpoint::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a program had announced: its files by name.
pub type Announced = BTreeMap<String, Vec<u8>>;

/// Most lines of what has happened that are kept.
const MOST_LINES: usize = 400;

/// All that is known of one history.
#[derive(Debug, Default)]
pub struct Known {
    keep: u32,
    /// By holder and number of the checkpoint.
    announced: BTreeMap<(u64, u64), Announced>,
    /// Numbers of checkpoints of which a holder was told that they are complete, with the holder.
    committed: BTreeMap<u64, u64>,
    rotten: BTreeSet<u64>,
    /// Records of which a holder was told that they count, with the holder.
    acknowledged: BTreeMap<u64, (u64, Record)>,
    restored: u64,
    now_s: f64,
    log: Vec<String>,
}

/// The same, for lives in several threads.
#[derive(Debug, Default)]
pub struct Oracle(Mutex<Known>);

impl Oracle {
    /// Nothing is known yet of a run that keeps so many checkpoints.
    pub fn new(keep: u32) -> Oracle {
        Oracle(Mutex::new(Known { keep, ..Known::default() }))
    }

    /// What is known.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a bit of the newest checkpoint, if there is one before it to go back to.
    pub fn rot(&self, fs: &FaultFs, root: &Path, at: u64) -> Option<String> {
        let mut known = self.lock();
        let good: Vec<u64> = known.committed.keys().copied().filter(|n| !known.rotten.contains(n)).collect();
        let [.., _, newest] = good[..] else { return None };
        if known.keep < 2 || !known.rotten.is_empty() {
            return None;
        }
        let folder = root.join("run/checkpoints").join(newest.to_string());
        let file = folder.join(format!("0000-{}", super::program::FIRST));
        if fs.rot(&file, at) != Ok(true) {
            return None;
        }
        known.rotten.insert(newest);
        Some(format!("a bit of checkpoint {newest} changes"))
    }
}

impl Known {
    /// Notes what has happened.
    pub fn note(&mut self, line: String) {
        if self.log.len() < MOST_LINES {
            self.log.push(line);
        }
    }

    /// What has happened.
    pub fn log(&self) -> Vec<String> {
        self.log.clone()
    }

    /// How many checkpoints holders were told to be complete.
    pub fn committed(&self) -> u64 {
        self.committed.len() as u64
    }

    /// How many were brought back.
    pub fn restored(&self) -> u64 {
        self.restored
    }

    /// When the next life begins, s.
    pub fn next_start_s(&self) -> f64 {
        self.now_s.max(1e9) + 60.0
    }

    /// A life has ended.
    pub fn ends_at(&mut self, now_s: f64) {
        self.now_s = self.now_s.max(now_s);
    }

    /// A program says that these files are a checkpoint.
    pub fn announces(&mut self, holder: u64, number: u64, files: Announced) {
        self.announced.insert((holder, number), files);
    }

    /// A holder was told that a checkpoint is complete.
    pub fn completes(&mut self, holder: u64, number: u64) {
        let before = self.committed.insert(number, holder);
        assert!(
            before.is_none_or(|before| before == holder),
            "holders {before:?} and {holder} both have number {number}"
        );
        self.note(format!("holder {holder} completes checkpoint {number}"));
    }

    /// A holder was told that these records count.
    pub fn acknowledges(&mut self, holder: u64, records: &[Record]) {
        for record in records {
            let before = self.acknowledged.insert(record.seq, (holder, record.clone()));
            assert!(before.is_none_or(|(_, before)| before == *record), "two records have number {}", record.seq);
        }
    }

    /// A holder has taken the run up, and this is what it has read.
    pub fn taken_up(&mut self, holder: u64, history: &History) {
        self.note(format!(
            "holder {holder} takes the run up after {} records; conflicts: {:?}; owners {:?}",
            history.records.len(),
            history.conflicts,
            history.owners
        ));
        // One that was superseded as soon as it had the run may not know what the next one has done.
        for (seq, (_, record)) in self.acknowledged.iter().filter(|(_, (of, _))| *of < holder) {
            let read = seq.checked_sub(1).and_then(|i| history.records.get(i as usize));
            assert!(read == Some(record), "record {seq} was told to count, and is now {read:?}: {record:?}");
        }
    }

    /// A holder is told from which checkpoint to go on.
    pub fn goes_on_from(&mut self, holder: u64, line: Option<&Manifest>, notes: &[String]) {
        let number = line.map_or(0, |line| line.number);
        self.note(format!("holder {holder} goes on from {number}: {notes:?}"));
        let newer = self.committed.iter().filter(|(n, of)| **n > number && **of <= holder && !self.rotten.contains(n));
        for (best, of) in newer {
            let told = format!("checkpoint {best} ");
            let is_unread = notes.iter().any(|note| note.starts_with(&told) && note.contains("cannot be read"));
            assert!(
                is_unread,
                "checkpoint {best} of holder {of} was complete, and holder {holder} goes on from {number}"
            );
        }
        let damaged = notes.iter().filter(|note| note.contains("is damaged"));
        for note in damaged {
            let is_rotten = self.rotten.iter().any(|n| note.starts_with(&format!("checkpoint {n} ")));
            let was_complete = self.committed.keys().any(|n| note.starts_with(&format!("checkpoint {n} ")));
            assert!(is_rotten || !was_complete, "nothing is wrong with it: {note}");
        }
    }

    /// A checkpoint was read back.
    pub fn reads_back(&mut self, number: u64, verdict: &Verdict) {
        let is_damaged = matches!(verdict, Verdict::Damaged(_));
        assert!(!is_damaged || self.rotten.contains(&number), "nothing is wrong with checkpoint {number}: {verdict:?}");
        assert!(
            *verdict != Verdict::Good || !self.rotten.contains(&number),
            "checkpoint {number} has rotted, and is said to be good"
        );
    }

    /// A program finds these files when it begins again.
    pub fn brings_back(&mut self, line: &Manifest, found: &Announced) {
        let of = line.holder.unwrap_or(0);
        let announced = self.announced.get(&(of, line.number));
        assert!(
            announced == Some(found),
            "checkpoint {} of holder {of} is not what its program announced",
            line.number
        );
        self.restored += 1;
    }
}
