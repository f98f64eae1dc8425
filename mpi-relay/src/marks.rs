//! How far a group's ranks were at each of its checkpoints, and what no checkpoint will want again.

use crate::words::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Marks of a group, by the number of the checkpoint; on disk whatever the log is on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Marks {
    version: u32,
    /// Committed checkpoints to which the group must be able to go back.
    #[serde(skip)]
    keep: usize,
    marks: BTreeMap<u64, Vec<Progress>>,
    /// How far the ranks were at the newest rest, for a checkpoint that is named only when it is safe.
    latest: Option<Vec<Progress>>,
    committed: Vec<u64>,
}

impl Marks {
    /// None yet.
    pub fn new(keep: usize) -> Marks {
        Marks { version: protocol::VERSION, keep: keep.max(1), ..Marks::default() }
    }

    /// Those that were kept, if they are of so many ranks among so many.
    pub fn keeping(mut self, keep: usize, ranks: usize, world: usize) -> Option<Marks> {
        self.keep = keep.max(1);
        let fits = |mark: &Vec<Progress>| mark.len() == ranks && mark.iter().all(|rank| rank.fits(world));
        self.marks.values().chain(&self.latest).all(fits).then_some(self)
    }

    /// The checkpoints that are known.
    pub fn checkpoints(&self) -> Vec<u64> {
        self.marks.keys().copied().collect()
    }

    /// The mark of a checkpoint.
    pub fn get(&self, checkpoint: u64) -> Option<&Vec<Progress>> {
        self.marks.get(&checkpoint)
    }

    /// Keeps how far the ranks are, for a checkpoint that is being made; 0 for one that has no number yet.
    pub fn mark(&mut self, checkpoint: u64, ranks: Vec<Progress>) {
        self.latest = None;
        if checkpoint == 0 {
            self.latest = Some(ranks);
        } else {
            self.marks.insert(checkpoint, ranks);
        }
    }

    /// A checkpoint is safe; false if it has no mark. One without a number when the ranks rested is that of the newest rest.
    pub fn commit(&mut self, checkpoint: u64) -> bool {
        if checkpoint > self.marks.keys().max().copied().unwrap_or(0)
            && let Some(latest) = self.latest.take()
        {
            self.marks.insert(checkpoint, latest);
        }
        if !self.marks.contains_key(&checkpoint) {
            return false;
        }
        self.committed.retain(|c| *c != checkpoint);
        self.committed.push(checkpoint);
        let surplus = self.committed.len().saturating_sub(self.keep);
        self.committed.drain(..surplus);
        if let Some(oldest) = self.committed.iter().min() {
            self.marks = self.marks.split_off(oldest);
        }
        true
    }

    /// A rank joins and is only so far: checkpoints beyond that never were. Whether there were some.
    pub fn joined(&mut self, place: usize, progress: &Progress) -> bool {
        let before = self.marks.len();
        self.marks.retain(|_, mark| mark.get(place).is_some_and(|then| is_before(then, progress)));
        self.committed.retain(|c| self.marks.contains_key(c));
        let latest = self.latest.take_if(|mark| !mark.get(place).is_some_and(|then| is_before(then, progress)));
        latest.is_some() || self.marks.len() < before
    }

    /// How far a rank is in each checkpoint that must be kept, at the least; `None` if it must be able to begin anew.
    pub fn oldest(&self, place: usize) -> Option<Progress> {
        if self.committed.len() < self.keep {
            return None;
        }
        let mut kept = self.committed.iter().filter_map(|c| self.marks.get(c)?.get(place));
        let first = kept.next()?.clone();
        Some(kept.fold(first, |least, mark| Progress {
            arrived: least.arrived.iter().zip(&mark.arrived).map(|(a, b)| *a.min(b)).collect(),
            sent: least.sent.iter().zip(&mark.sent).map(|(a, b)| *a.min(b)).collect(),
            held: least.held.iter().zip(&mark.held).map(|(a, b)| *a.min(b)).collect(),
            outcomes: least.outcomes.min(mark.outcomes),
            outcomes_held: least.outcomes_held.min(mark.outcomes_held),
            proved: least.proved && mark.proved,
            gone: Vec::new(),
        }))
    }

    /// Messages of another rank that a rank will never want again.
    pub fn oldest_arrived(&self, place: usize, from: usize) -> u64 {
        if self.committed.len() < self.keep {
            return 0;
        }
        let kept = self.committed.iter().filter_map(|c| self.marks.get(c)?.get(place)?.arrived.get(from));
        kept.min().copied().unwrap_or(0)
    }
}

fn is_before(then: &Progress, now: &Progress) -> bool {
    let arrived = then.arrived.iter().zip(&now.arrived).all(|(then, now)| then <= now);
    arrived && then.outcomes <= now.outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(arrived: u64) -> Vec<Progress> {
        let row = vec![arrived];
        vec![Progress { arrived: row.clone(), sent: row.clone(), held: row, outcomes: arrived, ..Progress::default() }]
    }

    #[test]
    fn what_must_be_kept_is_that_of_the_oldest_checkpoint_kept_and_a_rank_that_went_back_forgets_later_ones() {
        let mut marks = Marks::new(2);
        for k in 1..=3 {
            marks.mark(k, at(10 * k));
            assert!(marks.commit(k));
        }
        assert!(!marks.commit(9));
        assert_eq!((marks.checkpoints(), marks.oldest(0).map(|p| p.arrived)), (vec![2, 3], Some(vec![20])));
        marks.mark(0, at(30));
        assert!(marks.clone().commit(7) && !marks.clone().commit(1));
        let json = serde_json::to_vec(&marks).expect("written");
        let read: Marks = serde_json::from_slice(&json).expect("read");
        assert!(read.clone().keeping(2, 2, 1).is_none() && read.clone().keeping(2, 1, 2).is_none());
        let mut marks = read.keeping(2, 1, 1).expect("fits");
        assert!(!marks.joined(0, &at(30)[0]) && marks.joined(0, &at(20)[0]));
        assert_eq!((marks.checkpoints(), marks.oldest(0)), (vec![2], None));
    }
}
