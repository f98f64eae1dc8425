//! Follows a group that works its lost time again until it is where it was, by how fast it sends its messages again.

use super::group::{Group, State};
use super::pace::LOOK_S;
use super::run::Groups;
use planner::CAUGHT_UP;
use policy::lending::SCHEDULER_S;

/// A smaller change of the moment is none, as a share of the time until then.
const SMALL: f64 = 0.1;

/// A group that has sent nothing again for so long, or for as long as its lost work took, is waited for no longer, s.
const STILL_S: f64 = 60.0;

/// Less lost work than this tells no pace: a program's start takes its part of the time, s.
const WORTH_S: f64 = 60.0;

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
