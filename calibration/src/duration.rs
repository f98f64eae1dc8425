//! Reckons how long points take, from the rules alone: what the disk takes beyond a window is not known beforehand.

use crate::orders::Order;
use crate::state::Rules;
use crate::worker::IDLE_WINDOWS;
use protocol::Operation;

/// Time of a point beside its repetitions, s: making its files, and for MPI starting its ranks.
const MAKING_S: f64 = 0.1;
const STARTING_S: f64 = 2.0;

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

    fn order(operation: Option<Operation>, nodes: u32) -> Order {
        Order { operation, storage: None, nodes, processes: 1, bytes: 1e6, intensity: 1.0, frequency_hz: None }
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
