//! The lock of a rank's part of a window: held by one, or shared; who asks first has it first.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::collections::VecDeque;

/// A rank that asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The rank.
    pub rank: usize,
    /// Whether alone.
    pub alone: bool,
    /// The number of the answer that it waits for.
    pub answer: u32,
}

/// The lock.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    holders: Vec<usize>,
    alone: bool,
    waiting: VecDeque<Asker>,
}

impl Lock {
    /// A rank asks; who has the lock now and waits to hear so.
    #[must_use]
    pub fn ask(&mut self, asker: Asker) -> Vec<Asker> {
        self.waiting.push_back(asker);
        self.granted()
    }

    /// A rank gives it back; who has it now and waits to hear so.
    #[must_use]
    pub fn give_back(&mut self, rank: usize) -> Vec<Asker> {
        if let Some(at) = self.holders.iter().position(|holder| *holder == rank) {
            self.holders.swap_remove(at);
        }
        self.granted()
    }

    fn granted(&mut self) -> Vec<Asker> {
        let mut granted = Vec::new();
        while let Some(next) = self.waiting.front().copied()
            && (self.holders.is_empty() || !next.alone && !self.alone)
        {
            self.waiting.pop_front();
            self.holders.push(next.rank);
            self.alone = next.alone;
            granted.push(next);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_or_many_hold_it_and_who_asks_first_has_it_first() {
        let mut lock = Lock::default();
        let asker = |rank, alone| Asker { rank, alone, answer: rank as u32 };
        assert_eq!(lock.ask(asker(1, false)), [asker(1, false)]);
        assert_eq!(lock.ask(asker(2, false)), [asker(2, false)]);
        assert_eq!(lock.ask(asker(3, true)), []);
        assert_eq!(lock.ask(asker(4, false)), [], "those that share do not keep up one that asked before");
        assert_eq!(lock.give_back(1), []);
        assert_eq!(lock.give_back(2), [asker(3, true)]);
        assert_eq!(lock.ask(asker(5, false)), []);
        assert_eq!(lock.give_back(3), [asker(4, false), asker(5, false)]);
    }
}
