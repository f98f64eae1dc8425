//! Reckons how long points take: by the rules, and once some are finished also by the pace so far, since what a disk takes
//! beyond a window is not known beforehand.

use crate::orders::Order;
use crate::state::Rules;
use crate::worker::IDLE_WINDOWS;
use protocol::Operation;
use std::time::Instant;

/// Time of a point beside its repetitions, s: making its files, and for MPI starting its ranks.
const MAKING_S: f64 = 0.1;
const STARTING_S: f64 = 2.0;

/// How much slower points are finished than the rules have it.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// When the first finished point was seen, and the most that was left then, s: before, jobs wait for their nodes.
    first: Option<(Instant, f64)>,
    /// What was left last, s.
    last_s: Option<(f64, f64)>,
    /// Time past over the most that what is finished should have taken, where that is above 1.
    slower: f64,
}

impl Pace {
    /// What is left at `now`, s, of which the rules say `rules_s`: more, where what is finished took longer than its most
    /// repetitions should.
    pub fn left_s(&mut self, now: Instant, rules_s: (f64, f64)) -> (f64, f64) {
        if self.last_s.replace(rules_s).is_some_and(|last_s| last_s != rules_s) {
            let (begun, most_s) = *self.first.get_or_insert((now, rules_s.1));
            let past_s = now.saturating_duration_since(begun).as_secs_f64();
            self.slower = if past_s > 0.0 { past_s / (most_s - rules_s.1) } else { 1.0 };
        }
        let slower = self.slower.max(1.0);
        (slower * rules_s.0, slower * rules_s.1)
    }
}

/// Shortest and longest time that points take, one after the other, s.
pub fn bounds_s<'a>(orders: impl IntoIterator<Item = &'a Order>, rules: &Rules) -> (f64, f64) {
    let each = orders.into_iter().map(|o| (point_s(o, rules, rules.least), point_s(o, rules, most(o, rules))));
    each.fold((0.0, 0.0), |(low, high), (least, most)| (low + least, high + most))
}

/// Most repetitions of a point on each of its nodes.
pub fn most(order: &Order, rules: &Rules) -> usize {
    let together = order.operation.map_or(1, |_| order.nodes.max(1));
    rules.most.div_ceil(together as usize).max(rules.least)
}

fn point_s(order: &Order, rules: &Rules, times: usize) -> f64 {
    let window_s = rules.window_s;
    let times = times as f64;
    match order.operation {
        None => times * IDLE_WINDOWS * window_s,
        Some(Operation::Synchro | Operation::Polling) => {
            STARTING_S + (rules.least + 1) as f64 * window_s.max(crate::mpi::WINDOW_S)
        }
        // Beside a pause there is one checkpoint to a window, which lasts less.
        Some(Operation::CheckpointWrite) => MAKING_S + times * window_s.max(rules.apart_s),
        Some(_) => MAKING_S + times * window_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn order(operation: Option<Operation>, nodes: u32) -> Order {
        Order { operation, storage: None, nodes, processes: 1, bytes: 1e6, intensity: 1.0, frequency_hz: None }
    }

    #[test]
    fn a_slow_disk_is_told_once_points_are_finished() {
        let (begun, mut pace) = (Instant::now(), Pace::default());
        let mut at = |s: u64, rules_s| pace.left_s(begun + Duration::from_secs(s), rules_s);
        assert_eq!(at(0, (100.0, 300.0)), (100.0, 300.0));
        assert_eq!(at(500, (100.0, 300.0)), (100.0, 300.0), "the job waits");
        assert_eq!(at(510, (90.0, 270.0)), (90.0, 270.0), "from here on time counts");
        assert_eq!(at(520, (80.0, 240.0)), (80.0, 240.0), "10 s for what takes 10 to 30 s");
        assert_eq!(at(625, (80.0, 240.0)), (80.0, 240.0), "a point is not finished");
        assert_eq!(at(630, (70.0, 210.0)), (140.0, 420.0), "twice the most");
    }

    #[test]
    fn a_point_lasts_from_its_fewest_to_its_most_windows() {
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        let bounds = |operation, nodes| bounds_s([&order(operation, nodes)], &Rules::FULL);
        assert!(near(bounds(Some(Operation::LogDisk), 1), (5.1, 30.1)));
        assert!(near(bounds(Some(Operation::CheckpointWrite), 1), (15.1, 90.1)), "a pause before each");
        assert!(near(bounds(Some(Operation::CheckpointWrite), 4), (15.1, 24.1)), "nodes share the windows");
        assert!(near(bounds(None, 9), (20.0, 120.0)), "each node tells its own idle power");
        assert!(near(bounds(Some(Operation::Synchro), 4), (8.0, 8.0)));
    }
}
