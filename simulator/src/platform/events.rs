//! A queue of events in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A node without a job is back.
    NodeBack,
    /// The job in a slot does what it announced; void if something struck it since.
    Step { slot: usize, epoch: u64 },
    /// A failure of the node at a position, among the nodes in service.
    Failure { position: u32 },
    /// A failure that was put off strikes the same job.
    PutOff { slot: usize, instance: u64 },
    /// A job is submitted.
    Arrival { job: usize },
}

/// The events to come until the horizon; equal times are ordered by the events themselves, so that a seed decides all.
pub(super) struct Events {
    /// Times as the bits of floats that are not negative, which order as the floats do.
    heap: BinaryHeap<Reverse<(u64, Event)>>,
    horizon_s: f64,
}

impl Events {
    pub(super) fn until(horizon_s: f64) -> Events {
        Events { heap: BinaryHeap::new(), horizon_s }
    }

    /// Adds an event, unless it comes after the horizon.
    pub(super) fn push(&mut self, at_s: f64, event: Event) {
        if at_s <= self.horizon_s {
            self.heap.push(Reverse((at_s.to_bits(), event)));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(f64, Event)> {
        self.heap.pop().map(|Reverse((at, event))| (f64::from_bits(at), event))
    }

    /// When the next event comes; the horizon if none does.
    pub(super) fn next_s(&self) -> f64 {
        self.heap.peek().map_or(self.horizon_s, |e| f64::from_bits(e.0.0))
    }
}
