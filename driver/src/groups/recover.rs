//! A group has failed: it alone is ended, goes back to its own line, and starts again with a spare for what it lost.

use super::group::{Share, State};
use super::place::{UNSERVED, in_order};
use super::ports::{NOT_BEGUN, own_code};
use super::run::Groups;
use super::under_way::Then;
use crate::ports::{Unprepared, by_signal};
use crate::setup::{EXIT_NOT_RESTORED, FAILED, Outcome, VERDICT_LIMIT_S, failure, not_by};
use protocol::{Event, FailureKind, Manifest, Phase};

/// A program that ended badly is not believed to have crashed before a dead node would have been noticed, s.
const DOUBT_S: f64 = 5.0;

/// How often in a row a run is handed back to the queue since no relay can begin.
const MOST_UNSERVED: u32 = 3;

/// How often Slurm is asked for a step that it does not begin, though the same had run before.
const MOST_REFUSALS: u32 = 12;

impl Groups<'_> {
    /// The newest line of a group; damaged ones are noted.
    pub(super) fn newest(&mut self, group: usize) -> Option<Manifest> {
        match self.ports.lines.newest(group) {
            Ok((line, notes)) => {
                for reason in notes {
                    protocol::say!("joulepoint: group {group}: {reason}");
                    self.note_in(group, Event::CheckpointFailed { reason });
                }
                let others = line.as_ref().and_then(|line| not_by(line, self.ports.engines[group].name()));
                if let Some(reason) = others {
                    self.held
                        .get_or_insert(format!("group {group}: {reason}: {}", self.setup.prospect.protection.reason));
                }
                line
            }
            Err(e) => {
                self.cannot_go_on(e);
                None
            }
        }
    }

    /// The storage does not let the run go on: another wrapper has it, or nothing can be read.
    pub(super) fn cannot_go_on(&mut self, e: run::Error) {
        if e.is_superseded() {
            self.is_superseded = true;
        } else {
            self.held.get_or_insert(e.to_string());
        }
    }

    /// Whether the run is still this wrapper's, and its checkpoints can be read: before anything is started.
    pub(super) fn may_go_on(&mut self) -> bool {
        if self.held.is_none()
            && !self.is_superseded
            && let Err(e) = self.ports.store.show()
        {
            self.cannot_go_on(e);
        }
        self.held.is_none() && !self.is_superseded
    }

    /// Brings a line of a group back, and keeps what its program is to see.
    pub(super) fn prepare(&mut self, group: usize, line: Option<&Manifest>) -> Result<(), Unprepared> {
        self.all[group].log_begins = line.map_or(0, |m| m.number);
        let interval_s = self.all[group].adaptation.interval_s();
        let mut environment = self.ports.engines[group].prepare(line, interval_s)?;
        environment.push(("FT_ENERGY_GROUP".to_string(), group.to_string()));
        environment.push(("FT_ENERGY_GROUPS".to_string(), self.all.len().to_string()));
        environment.extend(self.ports.relays.variables(group));
        self.all[group].environment = environment;
        Ok(())
    }

    /// A node is dead.
    pub(super) fn lost(&mut self, node: &str, at_s: f64) {
        if self.is_away(node) || self.goes_with_others(node) {
            // No failure of ours; who is missing at the return is told then.
            return;
        }
        let Some(group) = self.note_lost(node, at_s) else { return };
        self.keep(&format!("node {node} has died"));
        self.fail(group);
    }

    /// Writes down that a node is dead, and tells whose it was.
    pub(super) fn note_lost(&mut self, node: &str, at_s: f64) -> Option<usize> {
        let now_s = self.ports.clock.now_s();
        let group = self.all.iter().position(|g| g.nodes.iter().any(|n| n == node));
        let is_spare = self.aside.remove(node) || self.spares.iter().any(|n| n == node);
        if group.is_none() && !is_spare {
            return None;
        }
        let reason = format!("node {node} is dead, last heard of {:.1} s ago", now_s - at_s);
        let died = failure(FailureKind::Node, Some(node), at_s, now_s, &reason);
        let Some(group) = group else {
            self.cut_spares();
            self.spare_ledger.drop_node(node);
            self.spares.retain(|n| n != node);
            self.note(vec![died]);
            return None;
        };
        self.cut(group, Phase::Restart);
        self.note_in(group, died);
        let g = &mut self.all[group];
        if let Some(reason) = g.adaptation.failed(at_s, now_s) {
            self.decided("interval", &format!("group {group}: {reason}"));
        }
        // The line is noted while the dead node still counts as the group's: its work is lost, too.
        self.go_back(group, at_s);
        let g = &mut self.all[group];
        g.ledger.drop_node(node);
        g.nodes.retain(|n| n != node);
        Some(group)
    }

    /// No relay can begin on a node: to its group the node is as good as dead. Without a spare the run is handed back to
    /// the queue, and ends when that has not helped often enough.
    pub(super) fn unserved(&mut self, group: usize, node: &str, why: &str) -> Option<Outcome> {
        let now_s = self.ports.clock.now_s();
        let is_own = self.all[group].nodes.iter().any(|n| n == node);
        if !is_own && node != self.ports.lending.shelter() {
            // The node was lost, and the group goes to another.
            return None;
        }
        let reason = format!("no relay can begin on {node}: {why}");
        self.cut(group, Phase::Restart);
        self.note_in(group, failure(FailureKind::Step, Some(node), now_s, now_s, &reason));
        let missing: usize = self.all.iter().map(|g| g.size - g.nodes.len()).sum();
        if !is_own || self.spares.len() <= missing {
            if self.unserved >= MOST_UNSERVED {
                return Some(self.end_unserved(&reason));
            }
            self.decided(UNSERVED, &format!("{reason}; time {} of {MOST_UNSERVED}", self.unserved + 1));
        }
        if is_own {
            self.keep(&reason);
            self.go_back(group, now_s);
            self.set_aside(group, node);
            self.fail(group);
        } else {
            self.begin_sweep(Vec::new(), Then::Short, &reason);
        }
        None
    }

    /// A node that lives is none of its group's any more, and no spare: it idles.
    fn set_aside(&mut self, group: usize, node: &str) {
        self.cut_spares();
        let g = &mut self.all[group];
        g.ledger.hand_over(node, &mut self.spare_ledger);
        g.nodes.retain(|n| n != node);
        self.aside.insert(node.to_string());
    }

    /// Ends the run, since no relay can begin anywhere.
    fn end_unserved(&mut self, reason: &str) -> Outcome {
        let cure = "see what srun and joulepoint-relay say above, and submit with --exclude for that node";
        let text = format!("{reason}; the run was handed back {MOST_UNSERVED} times for that: {cure}");
        protocol::say!("joulepoint: {text}");
        self.decided("end", &text);
        self.ports.lending.stop();
        self.ports.relays.stop();
        self.ports.child.stop();
        self.leave(FAILED, 1)
    }

    /// Work of the group after its line is lost, up to when it failed.
    fn go_back(&mut self, group: usize, failed_s: f64) {
        if self.is_together() {
            return self.all_go_back(failed_s, None);
        }
        if self.all[group].shares.values().all(|s| matches!(s, Share::Ended(_))) {
            return;
        }
        let line = self.own_line(group);
        self.goes_back_to(group, failed_s, line);
    }

    /// The newest line of a group's open calls: one of an earlier call is none of theirs.
    pub(super) fn own_line(&mut self, group: usize) -> Option<Manifest> {
        let (begun_s, resumed) = (self.begun_s(group), self.all[group].resumed);
        self.newest(group).filter(|m| m.begun_s >= begun_s || resumed.is_some_and(|r| m.number <= r))
    }

    /// Work of the group after this line is lost.
    pub(super) fn goes_back_to(&mut self, group: usize, failed_s: f64, line: Option<Manifest>) {
        let begun_s = self.begun_s(group);
        let kept_until_s = line.as_ref().map_or(begun_s, |m| m.begun_s.max(self.started_s));
        let g = &mut self.all[group];
        // What ended badly did nothing while it was in doubt.
        let failed_s = if let State::Doubtful { since_s } = g.state { failed_s.min(since_s) } else { failed_s };
        let of_line = g.stood_still.filter(|(number, _)| line.as_ref().is_some_and(|m| m.number == *number));
        let still_s = of_line.map_or(0.0, |(_, still_s)| still_s);
        g.lost_s = (failed_s - kept_until_s - still_s).max(0.0);
        g.lost_alone = g.since_s <= line.as_ref().map_or(begun_s, |m| m.ended_s);
        self.note_in(group, Event::RolledBack { to: line.as_ref().map(|m| m.number), kept_until_s });
        (self.all[group].back, self.all[group].image) = (Some(line), None);
    }

    /// Another group wants messages that were only in a log of this one that is lost. Whatever line this log begins from
    /// is too late: the group goes back to one before, and sends them again. What it then wants itself and nobody has
    /// takes others back in the same way, until all lines fit together; the beginning of all always does.
    pub(super) fn lacking(&mut self, group: usize, to: usize) {
        let g = &mut self.all[group];
        if g.shares.is_empty() || !matches!(g.state, State::Well | State::Doubtful { .. }) {
            // Its program will join again, and we are told again if that does not do.
            return;
        }
        let has_ended = g.shares.values().any(|s| matches!(s, Share::Ended(_)));
        if self.is_together() || self.ports.relays.gathers() && has_ended {
            // With a program that has ended, others have, too: no group goes back alone any more.
            return self.take_all_back(&format!("group {to} wants messages that were only in a log that is lost"));
        }
        let g = &mut self.all[group];
        let begins = g.log_begins;
        // What has ended is needed again.
        g.shares.values_mut().filter(|s| matches!(s, Share::Ended(_))).for_each(|s| *s = Share::Down(None));
        let reason = format!("group {to} wants messages that were only in a log that is lost");
        self.decided_in(group, "go back", &reason);
        if let Err(e) = self.ports.lines.forget_from(group, begins) {
            // What it would go back to is too late, and would be gone back to without end.
            self.cannot_go_on(e);
        }
        self.cut(group, Phase::Restart);
        self.go_back(group, self.ports.clock.now_s());
        self.fail(group);
    }

    /// When the oldest open call of a group began: what was computed before is not lost with it.
    fn begun_s(&self, group: usize) -> f64 {
        let begun = self.all[group].shares.keys().filter_map(|c| self.calls.get(c)).copied();
        begun.fold(f64::INFINITY, f64::min).min(self.ports.clock.now_s())
    }

    /// Ends what is left of a group, to start it again.
    fn fail(&mut self, group: usize) {
        if self.goes_back_together() {
            return self.end_all();
        }
        self.stop(group);
        if self.all.iter().filter(|g| g.is_behind()).count() > 1 {
            self.all.iter_mut().for_each(|g| g.lost_alone = false);
        }
        self.phase_all();
        if !self.all[group].runs() {
            self.restart(group);
        }
    }

    /// Asks what runs of a group to end.
    pub(super) fn stop(&mut self, group: usize) {
        self.give_up(group, "the group failed");
        self.leave_loan(group);
        let g = &mut self.all[group];
        (g.state, g.is_cancelled) = (State::Stopping, false);
        g.caught_up_s = f64::INFINITY;
        g.pace.done = false;
        let running: Vec<u64> = g.shares.iter().filter(|(_, s)| **s == Share::Runs).map(|(c, _)| *c).collect();
        running.iter().for_each(|call| self.ports.shares.stop(*call, group));
    }

    /// Fills a group up with spares and starts it again from its line; without spares the run goes back to the queue.
    pub(super) fn restart(&mut self, group: usize) {
        if self.goes_back_together() {
            return self.restart_all();
        }
        if !self.may_go_on() {
            return;
        }
        self.fill(group);
        let serves = self.serves(group);
        let g = &mut self.all[group];
        let short = g.nodes.len() < g.size;
        if g.down().is_empty() && !(serves && g.nodes.is_empty()) {
            (g.state, g.caught_up_s) = (State::Well, f64::NEG_INFINITY);
            if serves {
                g.log_begins = u64::MAX;
                self.ports.relays.place(group, &g.nodes[0]);
            }
            self.phase_all();
            return;
        }
        if short {
            g.state = State::Short;
            self.phase(group);
            let missing = self.all[group].size - self.all[group].nodes.len();
            self.begin_sweep(Vec::new(), Then::Short, &format!("group {group} lacks {missing} nodes"));
            return;
        }
        if let Some(line) = self.all[group].back.take() {
            if let Err(e) = self.prepare(group, line.as_ref()) {
                if line.is_some() || matches!(e, Unprepared::Storage(_)) {
                    self.held.get_or_insert(format!("group {group} could not be brought back: {e}"));
                    return;
                }
                self.failed_checkpoint(group, format!("could not be brought back: {e}"));
                self.finish(group, Some(EXIT_NOT_RESTORED));
                return;
            }
            self.tell_back(group, line.as_ref(), Some(self.all[group].lost_s));
            let from = line.map_or_else(|| "the beginning".to_string(), |m| format!("checkpoint {}", m.number));
            let others = if self.goes_together() { "as all groups do" } else { "the others go on" };
            self.decided_in(group, "restart group", &format!("starts again from {from}; {others}"));
        }
        self.launch(group);
    }

    /// Whether a group's relay is needed though its program may have ended: others may want what it sent.
    fn serves(&self, group: usize) -> bool {
        self.is_coupled() && !self.all[group].shares.is_empty()
    }

    /// Spares take the places of lost nodes.
    pub(super) fn fill(&mut self, group: usize) {
        let missing = self.all[group].size.saturating_sub(self.all[group].nodes.len());
        if missing == 0 || self.spares.len() < missing {
            return;
        }
        self.cut_spares();
        for node in self.spares.drain(..missing) {
            let g = &mut self.all[group];
            self.spare_ledger.hand_over(&node, &mut g.ledger);
            g.nodes.push(node);
        }
        let g = &mut self.all[group];
        g.nodes = in_order(std::mem::take(&mut g.nodes));
    }

    /// Programs that ended badly have crashed, unless a node of theirs turns out to be dead. Tells when to look again.
    pub(super) fn judge(&mut self) -> f64 {
        let now_s = self.ports.clock.now_s();
        let mut next_s = f64::INFINITY;
        for group in 0..self.all.len() {
            let State::Doubtful { since_s } = self.all[group].state else { continue };
            let waits =
                now_s < since_s + DOUBT_S || (now_s < since_s + VERDICT_LIMIT_S && self.ports.cluster.suspects());
            if waits {
                next_s = next_s.min(now_s + 1.0);
                continue;
            }
            let dead = self.ports.cluster.dead_nodes();
            let mine = dead.into_iter().find(|(node, _)| self.all[group].nodes.contains(node));
            match mine {
                Some((node, at_s)) => self.lost(&node, at_s),
                None => self.crashed(group),
            }
        }
        next_s
    }

    /// A program ended with an error of its own; a crash by a signal is tried again.
    fn crashed(&mut self, group: usize) {
        if std::mem::take(&mut self.all[group].is_cancelled) {
            self.decided_in(group, "end", "a person has cancelled its step");
            self.finish(group, None);
            return;
        }
        let worst =
            self.all[group].shares.values().filter_map(|s| if let Share::Down(c) = s { *c } else { None }).max();
        if worst == Some(NOT_BEGUN) && self.begin_again(group) {
            return;
        }
        let code = worst.map_or(0, own_code);
        // An image that cannot be restored is no failure of the program: it has its line.
        let of_image = std::mem::take(&mut self.all[group].of_image);
        let not_now = self.ports.engines[group].has_killed();
        let mut is_not_back = || code == protocol::EXIT_KILLED && (of_image || self.has_lost_its_line(group));
        let not_restored = not_now.is_some() || is_not_back();
        let may_try = by_signal(code).is_some() && self.all[group].crashes < self.setup.step_retries;
        if !not_restored && !may_try {
            self.finish(group, None);
            return;
        }
        self.all[group].crashes += u32::from(!not_restored);
        let now_s = self.ports.clock.now_s();
        let by_a_signal = || format!("group {group} ended by signal {}", by_signal(code).unwrap_or_default());
        let reason = not_now.unwrap_or_else(by_a_signal);
        self.cut(group, Phase::Restart);
        self.note_in(group, failure(FailureKind::Step, None, now_s, now_s, &reason));
        self.go_back(group, now_s);
        self.fail(group);
    }

    /// Tries again, from the same image or line, what had run before and Slurm did not begin: a slurmctld that has just
    /// started refuses steps on nodes that it has not heard of yet.
    fn begin_again(&mut self, group: usize) -> bool {
        let g = &mut self.all[group];
        let has_failed = g.lost_s > 0.0 || g.caught_up_s > f64::NEG_INFINITY;
        let had_begun = g.of_image || has_failed || self.setup.resumes;
        if !had_begun || g.refusals >= MOST_REFUSALS {
            return false;
        }
        g.refusals += 1;
        if g.is_behind() {
            // The time of the refusal is none of its pace.
            g.caught_up_s = f64::INFINITY;
        }
        self.decided_in(group, "restart group", "Slurm did not begin its step; it is tried again");
        self.launch(group);
        true
    }

    /// Whether the line from which a group has started was set aside since; there is an end to that.
    fn has_lost_its_line(&mut self, group: usize) -> bool {
        let begun = self.all[group].log_begins;
        !self.is_coupled() && self.newest(group).map_or(0, |m| m.number) < begun
    }

    /// What is down of a group has ended for good.
    fn finish(&mut self, group: usize, code: Option<i32>) {
        let g = &mut self.all[group];
        g.state = State::Well;
        let down = g.down();
        for call in &down {
            if let Some(Share::Down(own)) = g.shares.get(call).copied() {
                g.shares.insert(*call, Share::Ended(code.or(own.map(own_code)).unwrap_or(1)));
                if let (None, Some(own), false) = (code, own, self.ending.contains(call)) {
                    self.ports.shares.over(*call, group, own_code(own));
                }
            }
        }
        if self.is_coupled() {
            // The others would wait for this group without end.
            down.iter().for_each(|call| self.break_off(*call));
        }
        down.into_iter().for_each(|call| self.settle(call));
        self.phase(group);
    }
}
