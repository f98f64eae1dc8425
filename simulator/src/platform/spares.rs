//! Keeps the spare nodes: says when a replacement is there, and counts idle and broken ones.

use std::collections::VecDeque;

use super::phase::{Ledger, Phase};

/// The pool of spare nodes.
pub(super) struct Spares {
    count: usize,
    /// When each unclaimed node can be had, ascending.
    free_from_s: VecDeque<f64>,
    /// When each broken node will be whole, ascending.
    whole_from_s: VecDeque<f64>,
    since_s: f64,
}

impl Spares {
    pub(super) fn new(count: u32) -> Spares {
        let count = count as usize;
        Spares { count, free_from_s: vec![0.0; count].into(), whole_from_s: VecDeque::new(), since_s: 0.0 }
    }

    /// Takes the node that failed now away for `repair_s`, and says when a replacement is there: after `down_s`, or
    /// later if all spares are broken.
    pub(super) fn replace(&mut self, now_s: f64, down_s: f64, repair_s: f64, ledger: &mut Ledger) -> f64 {
        self.settle(now_s, ledger);
        self.whole_from_s.push_back(now_s + repair_s);
        self.free_from_s.push_back(now_s + repair_s);
        let free_s = self.free_from_s.pop_front().unwrap_or(now_s);
        (now_s + down_s).max(free_s)
    }

    /// Charges the pool up to now. A broken node beyond the pool's size leaves its position empty, and its job pays for it.
    pub(super) fn settle(&mut self, now_s: f64, ledger: &mut Ledger) {
        while let Some(&whole_s) = self.whole_from_s.front()
            && whole_s <= now_s
        {
            self.charge(whole_s, ledger);
            self.whole_from_s.pop_front();
        }
        self.charge(now_s, ledger);
    }

    fn charge(&mut self, until_s: f64, ledger: &mut Ledger) {
        let broken = self.whole_from_s.len().min(self.count);
        let seconds = until_s - self.since_s;
        ledger.charge(Phase::Down, broken as f64, seconds);
        ledger.charge(Phase::Spare, (self.count - broken) as f64, seconds);
        self.since_s = until_s;
    }
}
