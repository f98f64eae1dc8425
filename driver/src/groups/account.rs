//! What the nodes of groups do at each moment, how much of it has cost what, and what the journal is told.

use super::group::Group;
use super::logging;
use super::run::Groups;
use crate::ledger::{Cut, Killed};
use crate::ports::read_for;
use crate::setup::{LONGEST_CUT_S, of_killed};
use protocol::{Event, Phase};
use std::collections::BTreeSet;

impl Groups<'_> {
    /// Gives the nodes of a group the phase that they are in.
    pub(super) fn phase(&mut self, group: usize) -> Cut {
        let (before, next) = (self.all[group].ledger.phase(), self.all[group].phase(self.waits(group)));
        if before == next {
            return Cut::default();
        }
        self.cut(group, next)
    }

    /// The same for all groups.
    pub(super) fn phase_all(&mut self) {
        (0..self.all.len()).for_each(|group| drop(self.phase(group)));
    }

    /// Whether the groups talk to each other.
    pub(super) fn is_coupled(&self) -> bool {
        self.setup.settings.log.is_some()
    }

    /// Whether a group waits for another that has not done again what it lost, as far as that can be foreseen.
    pub(super) fn waits(&self, group: usize) -> bool {
        let others = self.lent.is_some() || self.all.iter().any(Group::is_behind);
        self.is_coupled() && !self.all[group].is_behind() && others
    }

    pub(super) fn cut(&mut self, group: usize, next: Phase) -> Cut {
        if self.all[group].away {
            return Cut::default();
        }
        let (counters, now_s) = read_for(&mut *self.ports.meter, &*self.ports.clock, next);
        let g = &mut self.all[group];
        match next {
            Phase::Compute if g.ledger.phase() != Phase::Compute => g.since_s = now_s,
            Phase::Idle => g.since_s = f64::INFINITY,
            _ => {}
        }
        let mut cut = g.ledger.cut(now_s, next, &counters);
        if let Some(running) = &mut g.checkpointing {
            running.used = running.used.and(&cut);
        }
        self.part_logging(group, &mut cut);
        self.note(std::mem::take(&mut cut.events));
        self.tell_idle();
        cut
    }

    /// Cuts the account of the nodes that belong to no group.
    pub(super) fn cut_spares(&mut self) {
        let (counters, now_s) = read_for(&mut *self.ports.meter, &*self.ports.clock, Phase::Idle);
        let cut = self.spare_ledger.cut(now_s, Phase::Idle, &counters);
        self.note(cut.events);
    }

    /// Tells which nodes wait and are not lent, if they are others than before.
    fn tell_idle(&mut self) {
        let waits = |g: &&Group| g.ledger.phase() == Phase::Idle && !g.away;
        let idle: BTreeSet<String> = self.all.iter().filter(waits).flat_map(|g| g.nodes.clone()).collect();
        if idle != self.idle {
            self.idle.clone_from(&idle);
            self.ports.lending.idle(idle);
        }
    }

    /// Cuts all accounts where a driver before this one was killed.
    pub(super) fn cut_killed(&mut self, killed: &Killed) {
        let (now_s, counters) = (self.ports.clock.now_s(), self.ports.meter.read());
        let mut events = vec![of_killed(self.setup, killed, now_s)];
        events.append(&mut self.spare_ledger.cut(now_s, Phase::Idle, &counters).events);
        for group in &mut self.all {
            events.append(&mut group.ledger.cut_killed(killed.at_s, now_s, Phase::Restart, &counters).events);
        }
        self.note(events);
    }

    /// Cuts all accounts, into `next` or on in their phases.
    pub(super) fn cut_all(&mut self, next: Option<Phase>) {
        let (counters, now_s) = read_for(&mut *self.ports.meter, &*self.ports.clock, next.unwrap_or(Phase::Compute));
        self.next_cut_s = now_s + LONGEST_CUT_S;
        let mut events = self.spare_ledger.cut(now_s, Phase::Idle, &counters).events;
        for group in (0..self.all.len()).filter(|g| !self.all[*g].away).collect::<Vec<_>>() {
            let g = &mut self.all[group];
            let phase = g.ledger.phase();
            let mut cut = g.ledger.cut(now_s, next.unwrap_or(phase), &counters);
            if let Some(running) = &mut g.checkpointing {
                running.used = running.used.and(&cut);
            } else if let (Phase::Compute, Some(joules)) = (phase, cut.joules.filter(|_| cut.node_s > 0.0)) {
                g.adaptation.computed(joules / cut.node_s);
            }
            self.part_logging(group, &mut cut);
            events.extend(cut.events);
        }
        self.note(events);
    }

    /// Logging is done on the group's first node, beside the computing there.
    fn part_logging(&mut self, group: usize, cut: &mut Cut) {
        if let Some(node) = self.all[group].nodes.first().filter(|_| self.is_coupled()) {
            logging::part(cut, node, || self.ports.relays.logged_node_s(group));
        }
    }

    pub(super) fn cut_in_time(&mut self) {
        if self.ports.clock.now_s() >= self.next_cut_s {
            self.cut_all(None);
        }
    }

    pub(super) fn decided(&mut self, action: &str, reason: &str) {
        tracing::info!(action, reason, "decided");
        let interval_s = self.all.iter().map(|g| g.adaptation.interval_s()).fold(f64::INFINITY, f64::min);
        self.note(vec![Event::Decided { action: action.to_string(), reason: reason.to_string(), interval_s }]);
    }

    /// A decision on one group: the journal knows by it which nodes the group has.
    pub(super) fn decided_in(&mut self, group: usize, action: &str, reason: &str) {
        let g = &self.all[group];
        let reason = format!("group {group} on {}: {reason}", g.nodes.join(","));
        tracing::info!(action, reason, "decided");
        let interval_s = g.adaptation.interval_s();
        self.note_in(group, Event::Decided { action: action.to_string(), reason, interval_s });
    }

    pub(super) fn note_in(&mut self, group: usize, of: Event) {
        let nodes = self.all[group].nodes.clone();
        self.note(vec![Event::InGroup { group: group as u32, nodes, of: Box::new(of) }]);
    }

    pub(super) fn note(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let now_s = self.ports.clock.now_s();
        match self.ports.store.append(now_s, events) {
            Ok(()) => {}
            Err(e) if e.is_superseded() => self.is_superseded = true,
            Err(e) => tracing::error!(%e, "the journal cannot be written; the job goes on"),
        }
    }
}
