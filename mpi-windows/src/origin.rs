//! What a rank may do to others' memory, and what it waits for.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::collections::BTreeMap;

/// A rank's way into the memory of the others.
#[derive(Clone, Debug)]
pub struct Origin {
    /// How often it has begun to access each rank's memory.
    starts: Vec<u32>,
    /// How often each rank has opened its memory to this one.
    posted: Vec<u32>,
    /// Ranks that were asked for what they do not answer by themselves.
    unanswered: Vec<bool>,
    /// Whose lock it holds, each or all of them, and whether it has asked for it.
    locked: BTreeMap<Option<usize>, bool>,
    /// Whether a fence has let all in.
    is_fenced: bool,
    /// Ranks whose memory it accesses by `MPI_Win_start`.
    accessed: Option<Vec<usize>>,
    /// Ranks to which it has opened its own by `MPI_Win_post`.
    exposed: Option<Vec<usize>>,
}

impl Origin {
    /// That of a window of so many ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Origin {
        Origin {
            starts: vec![0; ranks],
            posted: vec![0; ranks],
            unanswered: vec![false; ranks],
            locked: BTreeMap::new(),
            is_fenced: false,
            accessed: None,
            exposed: None,
        }
    }

    /// How often it has begun to access a rank's memory.
    #[must_use]
    pub fn starts(&self, rank: usize) -> u32 {
        self.starts[rank]
    }

    /// A rank has opened its memory to this one.
    pub fn posted_by(&mut self, from: usize) {
        self.posted[from] += 1;
    }

    /// Whether all of these have opened their memory, since it was accessed last.
    #[must_use]
    pub fn may_start(&self, targets: &[usize]) -> bool {
        targets.iter().all(|target| self.posted[*target] > self.starts[*target])
    }

    /// Begins to access these.
    pub fn start(&mut self, targets: Vec<usize>) {
        targets.iter().for_each(|target| self.starts[*target] += 1);
        self.accessed = Some(targets);
    }

    /// Ends that; whom it has accessed.
    pub fn complete(&mut self) -> Option<Vec<usize>> {
        self.accessed.take()
    }

    /// Opens its own memory to these.
    pub fn expose(&mut self, to: Vec<usize>) {
        self.exposed = Some(to);
    }

    /// To whom its memory is open.
    #[must_use]
    pub fn exposed(&self) -> Option<&[usize]> {
        self.exposed.as_deref()
    }

    /// Its memory is open to nobody any more.
    pub fn close(&mut self) {
        self.exposed = None;
    }

    /// A fence is left; whether accesses follow.
    pub fn fenced(&mut self, follows: bool) {
        self.is_fenced = follows;
    }

    /// Holds the lock of a rank, or those of all; whether it has asked for it, or relies on nobody else's having it.
    pub fn lock(&mut self, rank: Option<usize>, has_asked: bool) {
        self.locked.insert(rank, has_asked);
    }

    /// Gives it back; whether it had asked for it. None if it holds none.
    pub fn unlock(&mut self, rank: Option<usize>) -> Option<bool> {
        self.locked.remove(&rank)
    }

    /// Whether it holds the lock of a rank, or those of all.
    #[must_use]
    pub fn holds(&self, rank: Option<usize>) -> bool {
        self.locked.contains_key(&rank)
    }

    /// Whether it may take the lock of a rank, or those of all: it would wait for itself for one that it holds.
    #[must_use]
    pub fn may_lock(&self, rank: Option<usize>) -> bool {
        match rank {
            Some(_) => !self.holds(rank) && !self.holds(None),
            None => self.locked.is_empty(),
        }
    }

    /// Whether it holds some lock by which it may ask a rank, or somebody, to be done.
    #[must_use]
    pub fn may_flush(&self, rank: Option<usize>) -> bool {
        self.holds(None) || rank.map_or(!self.locked.is_empty(), |rank| self.holds(Some(rank)))
    }

    /// Whether it may access a rank's memory now.
    #[must_use]
    pub fn may_access(&self, rank: usize) -> bool {
        let is_started = self.accessed.as_ref().is_some_and(|accessed| accessed.contains(&rank));
        self.is_fenced || is_started || self.may_flush(Some(rank))
    }

    /// Asks a rank for what it does not answer by itself.
    pub fn note_unanswered(&mut self, rank: usize) {
        self.unanswered[rank] = true;
    }

    /// Those of some ranks that have yet to say that all is done; they are asked now.
    #[must_use]
    pub fn take_unanswered(&mut self, of: impl Fn(usize) -> bool) -> Vec<usize> {
        let open: Vec<usize> = (0..self.unanswered.len()).filter(|rank| self.unanswered[*rank] && of(*rank)).collect();
        open.iter().for_each(|rank| self.unanswered[*rank] = false);
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_accessed_after_a_fence_a_start_or_with_a_lock() {
        let mut origin = Origin::new(3);
        assert!(!origin.may_access(1));
        origin.fenced(true);
        assert!(origin.may_access(1));
        origin.fenced(false);
        assert!(!origin.may_access(1) && !origin.may_start(&[1]));
        origin.posted_by(1);
        assert!(origin.may_start(&[1]));
        origin.start(vec![1]);
        assert!(origin.may_access(1) && !origin.may_access(2) && !origin.may_start(&[1]));
        assert_eq!((origin.complete(), origin.complete()), (Some(vec![1]), None));
        origin.lock(Some(2), true);
        assert!(!origin.may_lock(Some(2)) && origin.may_lock(Some(1)) && !origin.may_lock(None));
        assert!(origin.may_access(2) && !origin.may_access(1) && origin.may_flush(None) && !origin.holds(None));
        assert_eq!((origin.unlock(None), origin.unlock(Some(2)), origin.unlock(Some(2))), (None, Some(true), None));
        origin.note_unanswered(2);
        assert_eq!(
            (
                origin.take_unanswered(|rank| rank == 1),
                origin.take_unanswered(|_| true),
                origin.take_unanswered(|_| true)
            ),
            (vec![], vec![2], vec![])
        );
    }
}
