//! When a rank may carry out what others ask of its part of a window.
//!
//! A restored rank gets what others had sent before as soon as it is back, perhaps before it is where it was when it first
//! got it. What is meant for a later fence or a later `MPI_Win_post` waits until it is there, and so does all that the same rank
//! has sent after it. As long as nothing was restored, nothing waits for long: nobody passes a fence before all have come to it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::letter::{Letter, Word};
use crate::lock::Lock;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How far a rank is with a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Fences that it has left.
    pub fences: u32,
    /// How often it has begun to access the receiver's memory (`MPI_Win_start`).
    pub starts: u32,
}

/// What a rank asked, with the bytes that belong to it.
pub type Asked = (usize, Word, Vec<u8>);

/// A rank's part of a window, as others see it.
#[derive(Clone, Debug)]
pub struct Target {
    fences: u32,
    /// How often it was opened to each rank.
    posts: Vec<u32>,
    /// How often each rank has completed.
    completed: Vec<u32>,
    /// What waits, by sender, in its order.
    waiting: Vec<VecDeque<(Letter, Vec<u8>)>>,
    /// Its lock.
    pub lock: Lock,
}

impl Target {
    /// That of a window of so many ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Target {
        Target {
            fences: 0,
            posts: vec![0; ranks],
            completed: vec![0; ranks],
            waiting: vec![VecDeque::new(); ranks],
            lock: Lock::default(),
        }
    }

    /// Fences that this rank has left.
    #[must_use]
    pub fn fences(&self) -> u32 {
        self.fences
    }

    /// Whether what a rank asks at this stage of its own is to be carried out now.
    #[must_use]
    pub fn is_due(&self, from: usize, stage: Stage) -> bool {
        self.waiting[from].is_empty() && self.has_come(from, stage)
    }

    /// Keeps what a rank asks until it is due.
    pub fn keep(&mut self, from: usize, letter: Letter, bytes: &[u8]) {
        self.waiting[from].push_back((letter, bytes.to_vec()));
    }

    /// This rank has left another fence; what is to be carried out now.
    #[must_use]
    pub fn fenced(&mut self) -> Vec<Asked> {
        self.fences += 1;
        (0..self.waiting.len()).flat_map(|from| self.due(from)).collect()
    }

    /// This rank's memory is open to these (`MPI_Win_post`); what is to be carried out now.
    #[must_use]
    pub fn post(&mut self, origins: &[usize]) -> Vec<Asked> {
        origins.iter().for_each(|origin| self.posts[*origin] += 1);
        origins.iter().flat_map(|origin| self.due(*origin)).collect()
    }

    /// A rank has completed an access.
    pub fn complete(&mut self, from: usize) {
        self.completed[from] += 1;
    }

    /// Whether all of these have completed what they were let in for.
    #[must_use]
    pub fn are_complete(&self, origins: &[usize]) -> bool {
        origins.iter().all(|origin| self.completed[*origin] >= self.posts[*origin])
    }

    fn has_come(&self, from: usize, stage: Stage) -> bool {
        stage.fences <= self.fences && stage.starts <= self.posts[from]
    }

    fn due(&mut self, from: usize) -> Vec<Asked> {
        let due = self.waiting[from].iter().take_while(|(letter, _)| self.has_come(from, letter.stage)).count();
        self.waiting[from].drain(..due).map(|(letter, bytes)| (from, letter.word, bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(fences: u32, starts: u32) -> Letter {
        Letter { stage: Stage { fences, starts }, word: Word::Put { runs: Vec::new() } }
    }

    /// Whether it is to be carried out now.
    fn take(target: &mut Target, from: usize, letter: Letter, bytes: &[u8]) -> bool {
        let due = target.is_due(from, letter.stage);
        if !due {
            target.keep(from, letter, bytes);
        }
        due
    }

    fn order(asked: &[Asked]) -> Vec<(usize, u8)> {
        asked.iter().map(|(from, _, bytes)| (*from, bytes[0])).collect()
    }

    #[test]
    fn what_is_for_a_later_fence_waits_for_it_and_keeps_up_what_the_same_rank_sent_after_it() {
        let mut target = Target::new(3);
        assert!(take(&mut target, 1, put(0, 0), b"a"));
        assert!(!take(&mut target, 1, put(2, 0), b"b"));
        let flush = Letter { stage: Stage { fences: 2, starts: 0 }, word: Word::Flush { answer: 1 } };
        assert!(!take(&mut target, 1, flush, b"c"));
        assert!(take(&mut target, 2, put(0, 0), b"d"), "others go on");
        assert!(!take(&mut target, 2, put(1, 0), b"e"));
        assert_eq!(order(&target.fenced()), [(2, b'e')]);
        assert_eq!(order(&target.fenced()), [(1, b'b'), (1, b'c')]);
    }

    #[test]
    fn what_is_for_a_later_post_waits_for_it_and_a_wait_is_for_as_many_ends() {
        let mut target = Target::new(2);
        assert_eq!(order(&target.post(&[1])), []);
        assert!(take(&mut target, 1, put(0, 1), b"a"));
        assert!(!take(&mut target, 1, put(0, 2), b"b"));
        assert!(!target.are_complete(&[1]));
        target.complete(1);
        assert!(target.are_complete(&[1]));
        assert_eq!(order(&target.post(&[1])), [(1, b'b')]);
        assert!(!target.are_complete(&[1]));
    }
}
