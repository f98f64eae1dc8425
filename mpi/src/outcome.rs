//! What came of calls whose end depends on time: kept for a restored rank, which then repeats it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::world::{self, World};
use mpi_relay::client::repeat::{Differs, Repeats, SOURCE};
pub use mpi_relay::client::repeat::{INDEX, PROBE, SOME, TEST};
use mpi_relay::{Error, Outcome};

/// The outcomes of this rank.
#[derive(Default)]
pub struct Outcomes(Repeats);

/// A rank that cannot be restored ends all.
fn same<T>(repeated: Result<T, Differs>) -> T {
    repeated.unwrap_or_else(|differs| world::end(1, &differs.to_string()))
}

impl Outcomes {
    /// The number of a new receive from anybody.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// Takes over what a restored rank has to repeat. Whether there was anything.
    pub fn refresh(&self, world: &World) -> bool {
        self.0.take_over(std::iter::from_fn(|| world.transport.replayed()))
    }

    /// The source that receive `number` must have.
    pub fn source(&self, number: u64) -> Option<i32> {
        self.0.source(number)
    }

    /// Keeps the source that receive `number` had.
    pub fn record_source(&self, world: &World, number: u64, source: i32) {
        self.hand_on(world, Outcome { call: SOURCE, value: (number as i64) << 32 | i64::from(source), count: 1 });
    }

    /// What this call must give, if it is to be repeated.
    pub fn repeat(&self, world: &World, call: u32) -> Option<i64> {
        world.refresh_outcomes();
        same(self.0.repeat(call))
    }

    /// Keeps what a call gave. `common`: an answer of which runs are expected.
    pub fn record(&self, world: &World, call: u32, value: i64, common: bool) {
        for outcome in self.0.note(call, value, common).into_iter().flatten() {
            self.hand_on(world, outcome);
            // The rank may have been restored meanwhile.
            self.0.go_on_with_run();
        }
    }

    /// Hands on the run of "no", before anything leaves this rank that may depend on it.
    #[inline]
    pub fn flush(&self, world: &World) {
        if let Some(run) = self.0.take_run() {
            self.hand_on(world, run);
        }
    }

    /// Keeps an outcome. A rank that was restored since it was asked for had one before: it must be the same.
    fn hand_on(&self, world: &World, outcome: Outcome) {
        loop {
            world.refresh_outcomes();
            if same(self.0.had(outcome)) {
                return;
            }
            match world.transport.record(outcome) {
                Ok(()) => return,
                Err(Error::Repeating(_)) => {}
                Err(error) => world::lost("what came of a call could not be kept", &error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpi_ranks::Place;
    use mpi_relay::transport::Transport;
    use mpi_relay::{Body, Envelope};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    /// Keeps what is recorded.
    #[derive(Clone, Default)]
    struct Log {
        kept: Rc<RefCell<Vec<Outcome>>>,
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
            None
        }
        fn varies(&self) -> Result<(), Error> {
            Ok(())
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
}
