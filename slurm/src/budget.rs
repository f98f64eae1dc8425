//! How often one daemon asks slurmctld: all its parts share one allowance, and what can wait asks less often while
//! slurmctld is slow.
//!
//! What people and recoveries wait for always goes, and is counted. What can wait goes only while something is left of
//! the allowance, so that it never stands before them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much of the allowance may be used at once after a pause, s worth of it.
const BURST_S: f64 = 6.0;

/// An answer that took longer is one of a slow slurmctld.
const SLOW: Duration = Duration::from_millis(500);

/// The least part of the allowance that is left to what can wait, however slow slurmctld is.
const LEAST_SHARE: f64 = 1.0 / 32.0;

/// By how much each quick answer gives back of the share that slow ones took.
const RECOVERY: f64 = 1.1;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// People, a recovery or a fence.
    #[default]
    Awaited,
    /// Nobody: it may be asked later.
    CanWait,
}

/// What was asked, and how slurmctld answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Calls that somebody waited for.
    pub awaited: u64,
    /// Calls that could have waited.
    pub could_wait: u64,
    /// Calls that were put off.
    pub postponed: u64,
    /// Answers that were slow, or did not come.
    pub slow: u64,
    /// Calls a minute that are left to what can wait.
    pub per_minute: f64,
    /// Time that the last answer took, s.
    pub last_answer_s: f64,
}

/// The allowance of one daemon.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Calls a minute; none for no bound.
    per_minute: Option<f64>,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that are left now; below zero after many that were awaited.
    left: f64,
    at_s: f64,
    /// Which part of the allowance what can wait has.
    share: f64,
    usage: Usage,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { per_minute: None, began: Instant::now(), state: Mutex::new(State { share: 1.0, ..State::default() }) }
    }
}

impl Budget {
    pub(crate) fn new(per_minute: f64) -> Budget {
        let state = State { left: burst(per_minute), share: 1.0, ..State::default() };
        Budget { per_minute: Some(per_minute), began: Instant::now(), state: Mutex::new(state) }
    }

    /// Whether a call may be made now; one that may is counted.
    pub(crate) fn take(&self, urgency: Urgency) -> bool {
        self.take_at(self.began.elapsed().as_secs_f64(), urgency)
    }

    fn take_at(&self, now_s: f64, urgency: Urgency) -> bool {
        let mut state = self.state();
        if let Some(per_minute) = self.per_minute {
            let most = burst(per_minute);
            let back = (now_s - state.at_s).max(0.0) * per_minute * state.share / 60.0;
            (state.left, state.at_s) = ((state.left + back).min(most), now_s);
            if urgency == Urgency::CanWait && state.left < 1.0 {
                state.usage.postponed += 1;
                return false;
            }
            // A crowd of urgent calls does not keep the rest waiting for longer than a burst takes to come back.
            state.left = (state.left - 1.0).max(-most);
        }
        match urgency {
            Urgency::Awaited => state.usage.awaited += 1,
            Urgency::CanWait => state.usage.could_wait += 1,
        }
        true
    }

    /// slurmctld has answered after so long, or not at all.
    pub(crate) fn answered(&self, took: Duration) {
        let mut state = self.state();
        state.usage.last_answer_s = took.as_secs_f64();
        state.share = match took > SLOW {
            true => (state.share / 2.0).max(LEAST_SHARE),
            false => (state.share * RECOVERY).min(1.0),
        };
        state.usage.slow += u64::from(took > SLOW);
    }

    pub(crate) fn usage(&self) -> Usage {
        let state = self.state();
        Usage { per_minute: self.per_minute.unwrap_or(f64::INFINITY) * state.share, ..state.usage }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn burst(per_minute: f64) -> f64 {
    (per_minute * BURST_S / 60.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::Urgency::{Awaited, CanWait};
    use super::*;

    #[test]
    fn what_is_awaited_always_goes_and_what_can_wait_has_what_is_left() {
        let budget = Budget::new(60.0);
        assert_eq!((0..10).filter(|_| budget.take_at(0.0, CanWait)).count(), 6, "a burst");
        assert!((0..100).all(|_| budget.take_at(0.0, Awaited)));
        assert!(!budget.take_at(6.0, CanWait), "what was awaited has used it up");
        assert_eq!((1..=60).filter(|s| budget.take_at(6.0 + f64::from(*s), CanWait)).count(), 60);
        let usage = budget.usage();
        assert_eq!((usage.awaited, usage.could_wait, usage.postponed), (100, 66, 5));
    }

    #[test]
    fn while_slurmctld_is_slow_what_can_wait_asks_less_and_never_stops() {
        let budget = Budget::new(600.0);
        (0..20).for_each(|_| budget.answered(Duration::from_secs(2)));
        assert_eq!(budget.usage().per_minute, 600.0 * LEAST_SHARE);
        while budget.take_at(0.0, CanWait) {}
        let in_a_minute = (1..=600).filter(|n| budget.take_at(f64::from(*n) / 10.0, CanWait)).count();
        assert!((17..=19).contains(&in_a_minute), "{in_a_minute}");
        assert!(budget.take_at(60.0, Awaited), "a fence is never put off");
        (0..50).for_each(|_| budget.answered(Duration::from_millis(10)));
        assert_eq!(budget.usage().per_minute, 600.0);
    }

    #[test]
    fn without_a_bound_nothing_is_put_off() {
        let budget = Budget::default();
        assert!((0..10_000).all(|_| budget.take(CanWait)));
        assert_eq!(budget.usage().could_wait, 10_000);
    }
}
