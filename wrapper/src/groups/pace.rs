//! Follows a group that works its lost time again until it is where it was, by how fast it sends its messages again.

use super::driver::Groups;
use super::group::{Group, State};
use planner::CAUGHT_UP;
use policy::lending::SCHEDULER_S;

/// Time between two looks at it, s: its relay writes its status as often.
pub const LOOK_S: f64 = 2.0;

/// So many messages tell a pace.
const FEWEST: u64 = 3;

/// A smaller change of the moment is none, as a share of the time until then.
const SMALL: f64 = 0.1;

/// A group that has sent nothing again for so long, or for as long as its lost work took, is waited for no longer, s.
const STILL_S: f64 = 60.0;

/// Less lost work than this tells no pace: a program's start takes its part of the time, s.
const WORTH_S: f64 = 60.0;

/// What was seen of a group since its program was started.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// When that was.
    begun_s: f64,
    /// The first look: when, and how many messages were to be sent again.
    first: Option<(f64, u64)>,
    /// When what is left changed last, and how many messages that is.
    last: (f64, u64),
    /// It is where it was, or nobody waits for that any more.
    pub done: bool,
}

impl Pace {
    /// Nothing is seen yet.
    pub fn new(begun_s: f64) -> Pace {
        Pace { begun_s, first: None, last: (begun_s, 0), done: false }
    }

    /// When the group will have sent again what it had sent; none before that shows. `behind` messages are left.
    fn caught_up_s(&mut self, now_s: f64, behind: u64) -> Option<f64> {
        let (from_s, from) = self.first.filter(|(_, from)| behind <= *from).unwrap_or((now_s, behind));
        // Where nothing was to be sent again, the other relays have perhaps not yet said what they have.
        self.first = (from > 0).then_some((from_s, from));
        if self.last.1 != behind {
            self.last = (now_s, behind);
        }
        let sent = from - behind;
        (sent >= FEWEST || sent > 0 && behind == 0).then(|| now_s + behind as f64 * (now_s - from_s) / sent as f64)
    }
}

impl Group {
    /// Whether it has still to do again what it lost, as far as that is known.
    pub(super) fn is_behind(&self) -> bool {
        self.caught_up_s > f64::NEG_INFINITY && !self.pace.done
    }

    /// Nothing of it is left to run: it has done all that it had done.
    fn has_ended(&self) -> bool {
        self.state == State::Well && !self.runs() && self.down().is_empty()
    }
}

impl Groups<'_> {
    /// Corrects when the groups that are behind will have caught up, and tells when they have: the wait for a group whose
    /// relay says that it is still behind goes on beyond the moment that was expected.
    pub(super) fn follow(&mut self) {
        let now_s = self.ports.clock.now_s();
        for group in 0..self.all.len() {
            let g = &mut self.all[group];
            if !g.is_behind() || g.caught_up_s == f64::INFINITY {
                continue;
            }
            if g.has_ended() {
                (g.caught_up_s, g.pace.done) = (g.caught_up_s.min(now_s), true);
                continue;
            }
            let behind = if g.works() { self.ports.relays.behind(group) } else { None };
            self.look(group, now_s, behind);
        }
    }

    fn look(&mut self, group: usize, now_s: f64, behind: Option<u64>) {
        let g = &mut self.all[group];
        let expected_s = g.caught_up_s;
        let is_due = expected_s <= now_s;
        let at_s = behind.and_then(|behind| g.pace.caught_up_s(now_s, behind));
        match (behind, at_s) {
            (Some(0), Some(_)) => self.has_caught_up(group, now_s),
            (Some(1..), _) if now_s - g.pace.last.0 > STILL_S.max(g.lost_s) => {
                (g.caught_up_s, g.pace.done) = (now_s, true);
                self.decided_in(group, "idle", "sends nothing again; it is not waited for any longer");
            }
            (Some(1..), _) if is_due => {
                // Too little to ask policy again.
                let until_s = at_s.unwrap_or(now_s).max(now_s + LOOK_S);
                g.caught_up_s = until_s;
                if self.lent.is_none() && self.decided_s == expected_s && until_s - now_s < SCHEDULER_S {
                    self.decided_s = until_s;
                }
            }
            (Some(1..), Some(at_s)) if (at_s - expected_s).abs() > LOOK_S.max(SMALL * (expected_s - now_s)) => {
                g.caught_up_s = at_s;
            }
            // Nothing tells that it is not where it was.
            _ => g.pace.done = is_due,
        }
    }

    /// A group is where it was.
    fn has_caught_up(&mut self, group: usize, now_s: f64) {
        let g = &mut self.all[group];
        (g.caught_up_s, g.pace.done) = (now_s, true);
        let (took_s, lost_s) = (now_s - g.pace.begun_s, g.lost_s);
        let mut reason = format!("has sent again in {took_s:.1} s what it had sent");
        if g.lost_alone && lost_s > 0.0 && took_s > 0.0 {
            reason += &format!(" in {lost_s:.1} s");
            if lost_s >= WORTH_S {
                self.replay = Some(lost_s / took_s);
            }
        }
        self.decided_in(group, CAUGHT_UP, &reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_known_after_some_messages_and_followed() {
        let mut pace = Pace::new(99.0);
        assert_eq!(pace.caught_up_s(100.0, 0), None, "nobody has said yet what is to be sent again");
        assert_eq!(pace.caught_up_s(102.0, 40), None);
        assert_eq!(pace.caught_up_s(104.0, 38), None, "two messages are no pace");
        assert_eq!(pace.caught_up_s(106.0, 20), Some(110.0));
        assert_eq!(pace.caught_up_s(112.0, 20), Some(122.0), "it stands still meanwhile");
        assert_eq!(pace.caught_up_s(114.0, 60), None, "more is wanted: what was seen is of another way");
        assert_eq!(pace.caught_up_s(124.0, 0), Some(124.0));
    }

    #[test]
    fn one_message_that_is_the_last_is_enough() {
        let mut pace = Pace::new(99.0);
        assert_eq!(pace.caught_up_s(100.0, 1), None);
        assert_eq!(pace.caught_up_s(102.0, 0), Some(102.0));
    }
}
