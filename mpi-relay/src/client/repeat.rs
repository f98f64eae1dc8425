//! What a rank keeps of calls whose end depends on time, and repeats when it is restored.
//!
//! A restored rank runs again from its checkpoint. It sends the same messages only if each such call ends as it did:
//! which source a receive from anybody had, what `MPI_Test` said. Runs of the same answer are kept as a count.

use crate::Outcome;
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

/// The run after a restore is not the one before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the run after the restore is not the one before: {before} was kept, and now {now} came")]
pub struct Differs {
    before: String,
    now: String,
}

fn differs<T>(before: impl ToString, now: impl ToString) -> Result<T, Differs> {
    Err(Differs { before: before.to_string(), now: now.to_string() })
}

/// The outcomes of one rank: those that it is to repeat, and those that it has yet to hand on.
#[derive(Default)]
pub struct Repeats {
    /// What is to be repeated, in order, but for sources.
    queue: RefCell<VecDeque<Outcome>>,
    /// Sources that are to be repeated, by the number of their receive.
    sources: RefCell<HashMap<u64, i32>>,
    /// A run of "no" that has not been handed on.
    run: Cell<Option<Outcome>>,
    /// How many receives from anybody have been posted.
    receives: Cell<u64>,
}

impl Repeats {
    /// The number of a new receive from anybody.
    pub fn number(&self) -> u64 {
        let number = self.receives.get();
        self.receives.set(number + 1);
        number
    }

    /// Takes over what a restored rank has to repeat. Whether there was anything.
    pub fn take_over(&self, outcomes: impl Iterator<Item = Outcome>) -> bool {
        let mut any = false;
        for outcome in outcomes {
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
    pub fn go_on_with_run(&self) {
        if self.run.get().is_some_and(|run| self.is_next(run)) {
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

    /// What this call must give, if it is to be repeated.
    ///
    /// # Errors
    /// Another call came then.
    pub fn repeat(&self, call: u32) -> Result<Option<i64>, Differs> {
        let mut queue = self.queue.borrow_mut();
        let Some(next) = queue.front_mut() else { return Ok(None) };
        if next.call != call {
            return differs(format!("{next:?}"), format!("call {call}"));
        }
        let value = next.value;
        next.count = next.count.saturating_sub(1);
        if next.count == 0 {
            queue.pop_front();
        }
        Ok(Some(value))
    }

    /// Notes what a call gave; `common`: an answer of which runs are expected. What is to be handed on, in this order.
    pub fn note(&self, call: u32, value: i64, common: bool) -> [Option<Outcome>; 2] {
        let outcome = Outcome { call, value, count: 1 };
        match self.run.get() {
            Some(run) if common && (run.call, run.value) == (call, value) && run.count < u32::MAX => {
                self.run.set(Some(Outcome { count: run.count + 1, ..run }));
                [None, None]
            }
            before => {
                self.run.set(common.then_some(outcome));
                [before, (!common).then_some(outcome)]
            }
        }
    }

    /// The run of "no" that is to be handed on, before anything leaves this rank that may depend on it.
    #[inline]
    pub fn take_run(&self) -> Option<Outcome> {
        self.run.take()
    }

    /// Whether an outcome that is about to be kept is one that is to be repeated; it is taken out then.
    ///
    /// # Errors
    /// Another one was kept.
    pub fn had(&self, outcome: Outcome) -> Result<bool, Differs> {
        if outcome.call == SOURCE {
            let (number, source) = ((outcome.value >> 32) as u64, outcome.value as i32);
            return match self.sources.borrow_mut().remove(&number) {
                Some(before) if before != source => {
                    differs(format!("source {before} of receive {number}"), format!("source {source}"))
                }
                before => Ok(before.is_some()),
            };
        }
        let first = self.queue.borrow().front().copied();
        match first {
            Some(before) if !self.is_next(outcome) => differs(format!("{before:?}"), format!("{outcome:?}")),
            before => Ok(before.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(call: u32, value: i64, count: u32) -> Outcome {
        Outcome { call, value, count }
    }

    fn source(number: i64, rank: i64) -> Outcome {
        outcome(SOURCE, number << 32 | rank, 1)
    }

    #[test]
    fn a_restored_rank_repeats_its_outcomes_in_order_and_its_sources_by_number() {
        let repeats = Repeats::default();
        let again = [source(1, 7), outcome(TEST, 0, 2), outcome(PROBE, -1, 1), source(0, 5), outcome(TEST, 1, 1)];
        assert!(repeats.take_over(again.into_iter()));
        assert_eq!(repeats.repeat(TEST), Ok(Some(0)));
        assert_eq!([0, 1, 2].map(|number| repeats.source(number)), [Some(5), Some(7), None]);
        assert_eq!(repeats.repeat(TEST), Ok(Some(0)));
        assert!(repeats.repeat(TEST).is_err());
        assert_eq!(repeats.repeat(PROBE), Ok(Some(-1)));
        assert_eq!(repeats.repeat(TEST), Ok(Some(1)));
        assert_eq!(repeats.repeat(TEST), Ok(None));
        // What was repeated is not kept again; what is new is.
        assert_eq!(repeats.had(source(0, 5)), Ok(true));
        assert_eq!(repeats.had(source(2, 3)), Ok(false));
        assert!(repeats.had(source(1, 6)).is_err());
    }

    #[test]
    fn a_rank_that_is_restored_within_a_call_keeps_nothing_twice() {
        let repeats = Repeats::default();
        // Two of five that came before the next answer; and a receive that is about to be kept.
        for _ in 0..2 {
            assert_eq!(repeats.note(TEST, 0, true), [None, None]);
        }
        assert!(repeats.take_over([outcome(TEST, 0, 5), source(3, 4), outcome(TEST, 1, 1)].into_iter()));
        assert_eq!(repeats.had(source(3, 4)), Ok(true));
        for expected in [0, 0, 0, 1] {
            assert_eq!(repeats.repeat(TEST), Ok(Some(expected)));
        }
        assert_eq!((repeats.repeat(TEST), repeats.take_run()), (Ok(None), None));
        // It had asked before it was frozen, and keeps the answer when it is back.
        assert!(repeats.take_over([outcome(PROBE, 7, 1)].into_iter()));
        assert_eq!(repeats.had(outcome(PROBE, 7, 1)), Ok(true));
        assert_eq!(repeats.had(outcome(PROBE, 7, 1)), Ok(false));
    }

    #[test]
    fn a_run_of_no_is_one_record() {
        let repeats = Repeats::default();
        for _ in 0..3 {
            assert_eq!(repeats.note(TEST, 0, true), [None, None]);
        }
        assert_eq!(repeats.note(TEST, 1, false), [Some(outcome(TEST, 0, 3)), Some(outcome(TEST, 1, 1))]);
        assert_eq!(repeats.note(PROBE, -1, true), [None, None]);
        assert_eq!(repeats.note(TEST, 0, true), [Some(outcome(PROBE, -1, 1)), None]);
        assert_eq!(repeats.take_run(), Some(outcome(TEST, 0, 1)));
    }
}
