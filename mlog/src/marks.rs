//! The counters of a group's checkpoints, on disk whatever the log is on: small, and needed to resume.

use crate::book::replace;
use crate::inbox::Counters;
use crate::{Error, system};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file `marks.json` of a log's folder.
#[derive(Debug)]
pub struct Marks {
    path: PathBuf,
    keep: usize,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    marks: BTreeMap<u64, Counters>,
    committed: Vec<u64>,
    /// How many messages an ended program had sent to each group.
    #[serde(default)]
    ended: Option<Vec<u64>>,
}

impl Marks {
    /// Reads the marks of a folder; logs will be held back to the oldest of the `keep` newest committed checkpoints.
    ///
    /// # Errors
    /// What the file system says, or the file is damaged.
    pub fn open(folder: &Path, keep: usize) -> Result<Marks, Error> {
        let path = folder.join("marks.json");
        let kept = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Kept::default(),
            Err(e) => return Err(system(path.display())(e)),
        };
        Ok(Marks { path, keep: keep.max(1), kept })
    }

    /// Counters of a checkpoint.
    pub fn get(&self, checkpoint: u64) -> Option<&Counters> {
        self.kept.marks.get(&checkpoint)
    }

    /// The checkpoints whose counters are kept.
    pub fn checkpoints(&self) -> Vec<u64> {
        self.kept.marks.keys().copied().collect()
    }

    /// Keeps the counters of a checkpoint that is being made.
    ///
    /// # Errors
    /// What the file system says.
    pub fn mark(&mut self, checkpoint: u64, counters: Counters) -> Result<(), Error> {
        self.kept.marks.insert(checkpoint, counters);
        self.write()
    }

    /// Notes that a checkpoint is durable.
    ///
    /// # Errors
    /// [`Error::Unmarked`], or what the file system says.
    pub fn commit(&mut self, checkpoint: u64) -> Result<(), Error> {
        if !self.kept.marks.contains_key(&checkpoint) {
            return Err(Error::Unmarked(checkpoint));
        }
        let committed = &mut self.kept.committed;
        committed.retain(|c| *c != checkpoint);
        committed.push(checkpoint);
        let surplus = committed.len().saturating_sub(self.keep);
        committed.drain(..surplus);
        if let Some(oldest) = committed.iter().min() {
            self.kept.marks = self.kept.marks.split_off(oldest);
        }
        self.write()
    }

    /// The program resumes from a checkpoint: later ones are forgotten.
    ///
    /// # Errors
    /// [`Error::Unmarked`], or what the file system says.
    pub fn go_back(&mut self, checkpoint: u64) -> Result<Counters, Error> {
        let counters = self.get(checkpoint).ok_or(Error::Unmarked(checkpoint))?.clone();
        self.kept.marks.retain(|c, _| *c <= checkpoint);
        self.kept.committed.retain(|c| *c <= checkpoint);
        self.write()?;
        Ok(counters)
    }

    /// The program begins anew: checkpoints after its first message are forgotten. Returns whether there were any.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(&mut self, groups: usize) -> Result<bool, Error> {
        let start = Counters::start(groups);
        let Kept { marks, committed, .. } = &mut self.kept;
        let before = marks.len();
        marks.retain(|_, counters| *counters == start);
        committed.retain(|c| marks.contains_key(c));
        if marks.len() == before {
            return Ok(false);
        }
        self.write()?;
        Ok(true)
    }

    /// Notes that the program has ended after so many messages to each group, or (none) that it runs again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn end(&mut self, sent: Option<Vec<u64>>) -> Result<(), Error> {
        if self.kept.ended == sent {
            return Ok(());
        }
        self.kept.ended = sent;
        self.write()
    }

    /// What the program had sent to each group when it ended.
    pub fn ended(&self) -> Option<&[u64]> {
        self.kept.ended.as_deref()
    }

    /// Number of the last message of each group that no kept checkpoint will want again; 0 until enough checkpoints
    /// are committed.
    pub fn collected(&self, from: usize) -> u64 {
        if self.kept.committed.len() < self.keep {
            return 0;
        }
        let committed = self.kept.committed.iter().filter_map(|c| self.get(*c));
        committed.filter_map(|c| c.received.get(from)).min().copied().unwrap_or(0)
    }

    /// Writes the marks into another folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        replace(&folder.join("marks.json"), &serde_json::to_vec(&self.kept)?)
    }

    fn write(&mut self) -> Result<(), Error> {
        self.kept.version = protocol::VERSION;
        replace(&self.path, &serde_json::to_vec(&self.kept)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(received: u64) -> Counters {
        Counters { received: vec![received], ..Counters::start(1) }
    }

    #[test]
    fn logs_are_held_back_to_the_oldest_checkpoint_that_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut marks = Marks::open(folder.path(), 2).expect("opened");
        for k in 1..=4 {
            marks.mark(k, counters(10 * k)).expect("marked");
            assert_eq!(marks.collected(0), 10 * k.saturating_sub(2));
            marks.commit(k).expect("committed");
        }
        let mut marks = Marks::open(folder.path(), 2).expect("opened again");
        assert_eq!((marks.collected(0), marks.checkpoints()), (30, vec![3, 4]));
        assert_eq!(marks.go_back(3).expect("known").received, [30]);
        assert!(matches!(marks.go_back(4), Err(Error::Unmarked(4))));
        assert!(matches!(marks.commit(9), Err(Error::Unmarked(9))));
    }
}
