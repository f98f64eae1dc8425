//! What came of calls whose end depends on time: kept for a restored rank, which then repeats it.
//!
//! A restored rank runs again from its checkpoint. It sends the same messages only if each such call ends as it did:
//! which source a receive from anybody had, what `MPI_Test` said. Runs of the same answer are kept as a count.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::world::{self, World};
use mpi_relay::transport::Transport;
use mpi_relay::{Error, Outcome};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

/// The source of a receive from anybody: its number, shifted by 32 bits, and the rank.
pub const SOURCE: u32 = 1;
/// `MPI_Test`, `MPI_Testall`, `MPI_Request_get_status`: 0 or 1.
pub const TEST: u32 = 2;
/// `MPI_Waitany`, `MPI_Testany`: -1 or the index. After [`SOME`]: each index.
pub const INDEX: u32 = 3;
/// `MPI_Waitsome`, `MPI_Testsome`: how many.
pub const SOME: u32 = 4;
/// A probe: -1 or the rank of the source.
pub const PROBE: u32 = 5;

/// What a user reads of a rank that cannot be restored.
const DIFFERS: &str = "the run after the restore is not the one before";

/// The outcomes of this rank.
#[derive(Default)]
pub struct Outcomes {
    /// What is to be repeated, in order, but for sources.
    queue: RefCell<VecDeque<Outcome>>,
    /// Sources that are to be repeated, by the number of their receive.
    sources: RefCell<HashMap<u64, i32>>,
    /// A run of "no" that has not been handed on.
    run: Cell<Option<Outcome>>,
    /// How many receives from anybody have been posted.
    receives: Cell<u64>,
}

impl Outcomes {
    /// The number of a new receive from anybody.
    pub fn number(&self) -> u64 {
        let number = self.receives.get();
        self.receives.set(number + 1);
        number
    }

    /// Takes over what a restored rank has to repeat. Whether there was anything.
    pub fn refresh(&self, transport: &dyn Transport) -> bool {
        let mut any = false;
        while let Some(outcome) = transport.replayed() {
            any = true;
            if outcome.call == SOURCE {
                self.sources.borrow_mut().insert((outcome.value >> 32) as u64, outcome.value as i32);
            } else {
                self.queue.borrow_mut().push_back(outcome);
            }
        }
        if any {
            self.go_on_with_run();
        }
        any
    }

    /// A run that was under way at the checkpoint was kept later, when it was longer: its beginning is not repeated.
    fn go_on_with_run(&self) {
        let Some(run) = self.run.get() else { return };
        if self.is_next(run) {
            self.run.set(None);
        }
    }

    /// Whether the next outcome to be repeated, but for sources, is this one or begins with it; then it is taken out.
    fn is_next(&self, outcome: Outcome) -> bool {
        let mut queue = self.queue.borrow_mut();
        let Some(next) = queue.front_mut() else { return false };
        if (next.call, next.value) != (outcome.call, outcome.value) || next.count < outcome.count {
            return false;
        }
        next.count -= outcome.count;
        if next.count == 0 {
            queue.pop_front();
        }
        true
    }

    /// The source that receive `number` must have.
    pub fn source(&self, number: u64) -> Option<i32> {
        self.sources.borrow().get(&number).copied()
    }

    /// Keeps the source that receive `number` had.
    pub fn record_source(&self, world: &World, number: u64, source: i32) {
        self.hand_on(world, Outcome { call: SOURCE, value: (number as i64) << 32 | i64::from(source), count: 1 });
    }

    /// What this call must give, if it is to be repeated.
    pub fn repeat(&self, world: &World, call: u32) -> Option<i64> {
        world.refresh_outcomes();
        let mut queue = self.queue.borrow_mut();
        let next = queue.front_mut()?;
        if next.call != call {
            let found = *next;
            drop(queue);
            world::end(1, &format!("{DIFFERS}: {found:?} was kept, and now call {call} came"));
        }
        let value = next.value;
        next.count = next.count.saturating_sub(1);
        if next.count == 0 {
            queue.pop_front();
        }
        Some(value)
    }

    /// Keeps what a call gave. `common`: an answer of which runs are expected.
    pub fn record(&self, world: &World, call: u32, value: i64, common: bool) {
        match self.run.get() {
            Some(mut run) if common && run.call == call && run.value == value && run.count < u32::MAX => {
                run.count += 1;
                self.run.set(Some(run));
            }
            _ => {
                self.flush(world);
                let outcome = Outcome { call, value, count: 1 };
                if common { self.run.set(Some(outcome)) } else { self.hand_on(world, outcome) }
            }
        }
    }

    /// Hands on the run of "no", before anything leaves this rank that may depend on it.
    #[inline]
    pub fn flush(&self, world: &World) {
        if let Some(run) = self.run.take() {
            self.hand_on(world, run);
        }
    }

    /// Keeps an outcome. A rank that was restored since it was asked for had one before: it must be the same.
    fn hand_on(&self, world: &World, outcome: Outcome) {
        loop {
            world.refresh_outcomes();
            let had = match outcome.call {
                SOURCE => self.had_source(outcome),
                _ => self.had(outcome),
            };
            if had {
                return;
            }
            match world.transport.record(outcome) {
                Ok(()) => return,
                Err(Error::Repeating(_)) => {}
                Err(error) => world::lost("what came of a call could not be kept", &error),
            }
        }
    }

    /// Whether this source is repeated.
    fn had_source(&self, outcome: Outcome) -> bool {
        let (number, source) = ((outcome.value >> 32) as u64, outcome.value as i32);
        match self.sources.borrow_mut().remove(&number) {
            Some(before) if before != source => {
                world::end(1, &format!("{DIFFERS}: receive {number} had source {before}, and now {source}"))
            }
            before => before.is_some(),
        }
    }

    /// Whether this outcome, which is none of a source, is repeated.
    fn had(&self, outcome: Outcome) -> bool {
        let first = self.queue.borrow().front().copied();
        match first {
            Some(before) if !self.is_next(outcome) => {
                world::end(1, &format!("{DIFFERS}: {before:?} was kept, and now {outcome:?} came"))
            }
            before => before.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpi_ranks::Place;
    use mpi_relay::{Body, Envelope, Error};
    use std::rc::Rc;
    use std::time::Duration;

    /// Keeps what is recorded, and has something to repeat.
    #[derive(Clone, Default)]
    struct Log {
        kept: Rc<RefCell<Vec<Outcome>>>,
        again: Rc<RefCell<VecDeque<Outcome>>>,
    }

    impl Transport for Log {
        fn send(&self, _: u32, _: Envelope, _: &[u8]) -> Result<(), Error> {
            self.kept.borrow_mut().push(Outcome { call: 0, value: 0, count: 0 });
            Ok(())
        }
        fn receive(&self) -> Result<Option<(Envelope, Body)>, Error> {
            Ok(None)
        }
        fn wait(&self, _: Duration) -> Result<bool, Error> {
            Ok(false)
        }
        fn record(&self, outcome: Outcome) -> Result<(), Error> {
            self.kept.borrow_mut().push(outcome);
            Ok(())
        }
        fn replayed(&self) -> Option<Outcome> {
            self.again.borrow_mut().pop_front()
        }
        fn abort(&self, _: i32) {}
        fn finish(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    fn world(log: &Log) -> World {
        World::new(Place::parse("0/1", "0").expect("two groups"), 0, Box::new(log.clone()))
    }

    fn outcome(call: u32, value: i64, count: u32) -> Outcome {
        Outcome { call, value, count }
    }

    #[test]
    fn a_run_of_no_is_one_record_that_is_kept_before_a_later_message_leaves() {
        let log = Log::default();
        let world = world(&log);
        for _ in 0..3 {
            assert_eq!(world.outcomes.repeat(&world, TEST), None);
            world.outcomes.record(&world, TEST, 0, true);
        }
        assert!(log.kept.borrow().is_empty());
        world.send(1, Envelope::default(), &[]);
        world.outcomes.record(&world, TEST, 0, true);
        world.outcomes.record(&world, TEST, 1, false);
        let sent = outcome(0, 0, 0);
        assert_eq!(*log.kept.borrow(), [outcome(TEST, 0, 3), sent, outcome(TEST, 0, 1), outcome(TEST, 1, 1)]);
    }

    #[test]
    fn a_restored_rank_repeats_its_outcomes_in_order_and_its_sources_by_number() {
        let log = Log::default();
        let world = world(&log);
        let source = |number: i64, rank| outcome(SOURCE, number << 32 | rank, 1);
        let again = [source(1, 7), outcome(TEST, 0, 2), outcome(PROBE, -1, 1), source(0, 5), outcome(TEST, 1, 1)];
        log.again.borrow_mut().extend(again);
        assert_eq!(world.outcomes.repeat(&world, TEST), Some(0));
        assert_eq!(world.outcomes.source(0), Some(5));
        assert_eq!(world.outcomes.source(1), Some(7));
        assert_eq!(world.outcomes.source(2), None);
        assert_eq!(world.outcomes.repeat(&world, TEST), Some(0));
        assert_eq!(world.outcomes.repeat(&world, PROBE), Some(-1));
        assert_eq!(world.outcomes.repeat(&world, TEST), Some(1));
        assert_eq!(world.outcomes.repeat(&world, TEST), None);
        // What was repeated is not kept again; what is new is.
        world.outcomes.record_source(&world, 0, 5);
        world.outcomes.record_source(&world, 2, 3);
        assert_eq!(*log.kept.borrow(), [source(2, 3)]);
    }

    #[test]
    fn a_rank_that_is_restored_within_a_call_keeps_nothing_twice() {
        let log = Log::default();
        let world = world(&log);
        // Two of five that came before the next answer; and a receive that is about to be kept.
        for _ in 0..2 {
            assert_eq!(world.outcomes.repeat(&world, TEST), None);
            world.outcomes.record(&world, TEST, 0, true);
        }
        let source = outcome(SOURCE, 3 << 32 | 4, 1);
        log.again.borrow_mut().extend([outcome(TEST, 0, 5), source, outcome(TEST, 1, 1)]);
        world.outcomes.record_source(&world, 3, 4);
        for expected in [0, 0, 0, 1] {
            assert_eq!(world.outcomes.repeat(&world, TEST), Some(expected));
        }
        assert_eq!(world.outcomes.repeat(&world, TEST), None);
        world.outcomes.flush(&world);
        assert!(log.kept.borrow().is_empty());
        // It had asked before it was frozen, and keeps the answer when it is back.
        log.again.borrow_mut().push_back(outcome(PROBE, 7, 1));
        world.outcomes.record(&world, PROBE, 7, false);
        assert!(log.kept.borrow().is_empty());
        world.outcomes.record(&world, PROBE, 7, false);
        assert_eq!(*log.kept.borrow(), [outcome(PROBE, 7, 1)]);
    }
}
