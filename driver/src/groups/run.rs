//! Owns the state of an uncoordinated run: its groups checkpoint alone, and a group that fails goes back alone.
//!
//! Like [`crate::coordinated`], one thread that knows the world only through ports; the seeded simulation in `tests/`
//! drives it through thousands of failure histories.

use super::group::{Group, Share, State, head_start_s};
use super::pace::Pace;
use super::place::{Before, Places};
use super::ports::{GroupPorts, News};
use super::ports::{NODE_MEMORY, own_code};
use super::together::Together;
use super::under_way::{Lent, Sweep, Then};
use crate::ledger::Ledger;
use crate::orders::Desk;
use crate::ports::{CANCELLED, Happening};
use crate::setup::{
    EXIT_NOT_RESTORED, FAILED, FLUSH_LIMIT_S, HELD, LONGEST_CUT_S, Limit, Outcome, SUPERSEDED, Setup, ended_as,
    failure, rolled_back,
};
use protection::{EXIT_NOT_PROTECTED, Guard};
use protocol::{Event, FailureKind, Manifest, Phase};
use std::collections::{BTreeMap, BTreeSet};

/// Why `joulepoint restart` is refused here.
const NO_RESTART: &str = "a group goes back alone, when it fails; joulepoint vacate JOB takes the whole run back";

/// Exit code of a share that the script asked to end while it did not run.
const ASKED_TO_END: i32 = 128 + 15;

/// With this, `srun` begins a step on what Slurm takes for used: a slurmctld that was killed may count the step that was
/// put aside as running, with all its CPUs and memory.
const TAKES_NOTHING: [(&str, &str); 3] = [("SLURM_OVERLAP", "1"), ("SLURM_OVERCOMMIT", "1"), (NODE_MEMORY, "0")];

/// The state of the run.
pub struct Groups<'a> {
    pub(super) setup: &'a Setup,
    pub(super) ports: GroupPorts<'a>,
    pub(super) all: Vec<Group>,
    pub(super) guard: Guard,
    pub(super) spares: Vec<String>,
    pub(super) spare_ledger: Ledger,
    pub(super) desk: Desk,
    pub(super) sweep: Option<Sweep>,
    /// What is known of lines of all groups.
    pub(super) together: Together,
    /// The survivors that are put aside.
    pub(super) lent: Option<Lent>,
    /// The end of the wait about which it was decided last whether to lend.
    pub(super) decided_s: f64,
    /// How fast a group did its lost work again, beside the first time, when that was seen last (rho).
    pub(super) replay: Option<f64>,
    /// How long an earlier loan of this run took to give its nodes away and to have them back, s.
    pub(super) handing_s: Option<f64>,
    /// Nodes that wait and are not lent, as they were told last.
    pub(super) idle: BTreeSet<String>,
    /// When each open call began.
    pub(super) calls: BTreeMap<u64, f64>,
    /// Those of them that the script has asked to end.
    pub(super) ending: BTreeSet<u64>,
    pub(super) limit: Limit,
    /// When this wrapper took the run up.
    pub(super) started_s: f64,
    /// From when on an end of the script counts.
    pub(super) counts_from_s: f64,
    /// How often in a row the run was handed back since no relay could begin.
    pub(super) unserved: u32,
    /// Nodes that live and on which no relay can begin.
    pub(super) aside: BTreeSet<String>,
    /// When the accounts are cut at the latest.
    pub(super) next_cut_s: f64,
    /// Another wrapper has taken the run up: nothing of it is written any more.
    pub(super) is_superseded: bool,
    /// Why the run cannot go on now, and waits in the queue for a person.
    pub(super) held: Option<String>,
}

/// Runs a job script to its end, or hands the run back to the queue.
///
/// `before` is what wrappers before have left.
pub fn run<'a>(setup: &'a Setup, places: &Places, before: &Before, ports: GroupPorts<'a>) -> Outcome {
    let now_s = ports.clock.now_s();
    let local_s = ports.clock.local_s(now_s);
    let numbered = places.groups.iter().enumerate();
    let all: Vec<Group> = numbered.map(|(g, nodes)| Group::new(g, nodes, now_s, local_s, setup)).collect();
    let on_demand = ports.engines.iter().all(|engine| engine.on_demand());
    let interval_s = all.iter().map(|g| g.adaptation.interval_s()).fold(0.0, f64::max);
    let mut run = Groups {
        guard: Guard::new(&setup.prospect, on_demand, all.len(), now_s, interval_s),
        all,
        spares: places.spares.clone(),
        spare_ledger: Ledger::open(now_s, Phase::Idle, &places.spares, &setup.accounted),
        setup,
        ports,
        desk: Desk::resume(&setup.answered),
        sweep: None,
        together: Together::new(before.together),
        lent: None,
        decided_s: f64::NEG_INFINITY,
        replay: None,
        handing_s: None,
        idle: BTreeSet::new(),
        calls: BTreeMap::new(),
        ending: BTreeSet::new(),
        limit: Limit::new(now_s, setup.end_s),
        started_s: now_s,
        counts_from_s: f64::NEG_INFINITY,
        unserved: before.unserved,
        aside: BTreeSet::new(),
        next_cut_s: now_s + LONGEST_CUT_S,
        is_superseded: false,
        held: None,
    };
    run.take_up(&before.groups);
    if let Some(outcome) = run.refused() {
        return outcome;
    }
    if !run.may_go_on() {
        return run.stopped();
    }
    if let Err(why) = run.ports.child.start(&[]) {
        run.decided("end", &format!("the job script could not be started: {why}"));
        return run.leave(FAILED, why.code);
    }
    loop {
        let until_s = run.act();
        if run.is_superseded || run.held.is_some() {
            return run.stopped();
        }
        let happening = run.ports.clock.wait(until_s);
        run.cut_in_time();
        if let Some(outcome) = happening.and_then(|h| run.hear(h)).or_else(|| run.swept()) {
            return if run.is_superseded { run.stopped() } else { outcome };
        }
    }
}

impl Groups<'_> {
    /// Tells who takes the run up, and each group from which line.
    fn take_up(&mut self, before: &[Vec<String>]) {
        let s = &self.setup.started;
        let started = Event::Started {
            job: s.job,
            restart_count: s.restart_count,
            user: s.user.clone(),
            account: s.account.clone(),
            partition: s.partition.clone(),
            job_name: s.job_name.clone(),
            nodes: s.nodes.clone(),
            resumed_from: None,
            dir: s.dir.clone(),
        };
        self.note(vec![started, Event::Planned(Box::new(self.setup.plan.clone()))]);
        if let Some(killed) = &self.setup.accounted.killed {
            self.cut_killed(killed);
        }
        if !self.setup.resumes {
            let adaptation = &self.all[0].adaptation;
            let told = self.guard.begins(adaptation.interval_s(), adaptation.checkpoint_s());
            self.note(vec![told]);
        }
        self.take_up_together();
        for group in 0..self.all.len() {
            let line = self.newest(group);
            if let Some(nodes) = before.get(group) {
                let of = Box::new(rolled_back(line.as_ref(), 0.0));
                self.note(vec![Event::InGroup { group: group as u32, nodes: nodes.clone(), of }]);
                let kept_s = line.as_ref().map_or(f64::NEG_INFINITY, |line| line.begun_s);
                let again_s = self.setup.prospect.before.map(|(begun_s, heard_s)| heard_s - kept_s.max(begun_s));
                self.tell_back(group, line.as_ref(), again_s);
            }
            self.decided_in(group, "place group", "has its nodes");
            self.all[group].resumed = line.as_ref().map(|m| m.number);
            if let Err(e) = self.prepare(group, line.as_ref()) {
                // Without what the engine has to do first, it would begin anew beside what it has done.
                if line.is_some() || self.setup.resumes {
                    self.held.get_or_insert(format!("group {group} could not be brought back: {e}"));
                }
                self.failed_checkpoint(group, format!("could not be brought back: {e}"));
            }
            self.phase(group);
        }
    }

    /// Ends a run that is not to run as it would; one that has run already waits for a person.
    fn refused(&mut self) -> Option<Outcome> {
        let reason = self.setup.prospect.refused.clone().filter(|_| !self.is_superseded)?;
        if self.setup.resumes {
            self.held.get_or_insert(reason);
            return Some(self.stopped());
        }
        protocol::say!("joulepoint: {reason}; the job ends before it has begun");
        self.decided("end", &reason);
        Some(self.leave(FAILED, EXIT_NOT_PROTECTED))
    }

    /// Tells from where a group goes on, which does so much of its work again, s.
    pub(super) fn tell_back(&mut self, group: usize, line: Option<&Manifest>, again_s: Option<f64>) {
        self.leaves_line(group, line.map(|line| line.number));
        let now_s = self.ports.clock.now_s();
        let told = self.guard.goes_back(now_s, Some(group), line, false, again_s);
        self.note(told.into_iter().collect());
    }

    fn hear(&mut self, happening: Happening) -> Option<Outcome> {
        match happening {
            Happening::Group(news) => return self.hear_group(news),
            Happening::Exited { code } => return Some(self.exited(code)),
            Happening::NodeLost { node, at_s } => self.lost(&node, at_s),
            Happening::Ordered(order) => {
                let on_demand = self.on_demand();
                let mut answers: Vec<_> = self.desk.hear(order, on_demand).into_iter().collect();
                answers.append(&mut self.desk.refuse_restarts(NO_RESTART));
                answers.extend(self.guard.switched(self.desk.disabled_by()));
                self.note(answers);
            }
            Happening::Terminate => return self.asked_to_end(None),
            Happening::Superseded => self.is_superseded = true,
            // Engines of groups tell no such thing.
            Happening::Checkpointed(_)
            | Happening::Appeared
            | Happening::GoesOn
            | Happening::Hindered(_)
            | Happening::Back => {}
        }
        None
    }

    fn hear_group(&mut self, news: News) -> Option<Outcome> {
        match news {
            News::Called { call, groups } => self.called(call, &groups),
            News::Ended { call, group, code, is_cancelled } => {
                self.ended(call, group, code);
                let g = &mut self.all[group];
                g.is_cancelled |= is_cancelled && matches!(g.state, State::Doubtful { .. });
            }
            News::Ending { call } => drop(self.ending.insert(call)),
            News::Dropped { call } => self.dropped(call),
            News::Checkpointed { group, result } => self.checkpointed(group, result),
            News::GoesOn { group } => self.goes_on(group),
            News::Appeared { group } => self.appeared(group),
            News::Joined { node } => self.joined(&node),
            News::Lacking { group, to } => self.lacking(group, to),
            News::Differs { group, from, to } => self.differs(group, from, to),
            News::Varies { group, why } => self.varies(group, &why),
            News::LogLost { group } => self.all[group].log_begins = u64::MAX,
            News::Unserved { group, node, why } => return self.unserved(group, &node, &why),
            News::Parked { group, result } => self.parked(group, result),
            News::Lent => self.went(),
            News::Returned(outcome) => self.returned(outcome),
        }
        None
    }

    /// The script called `srun`.
    fn called(&mut self, call: u64, groups: &[usize]) {
        self.calls.insert(call, self.ports.clock.now_s());
        for &group in groups {
            self.all[group].shares.insert(call, Share::Down(None));
        }
        for &group in groups {
            if self.all[group].nodes.len() < self.all[group].size {
                self.restart(group);
            } else if self.all[group].state == State::Well {
                self.launch(group);
            }
        }
    }

    /// Starts what is down of a group that is well.
    pub(super) fn launch(&mut self, group: usize) {
        if !self.may_go_on() {
            return;
        }
        let places: Vec<Vec<String>> = self.all.iter().map(|g| g.nodes.clone()).collect();
        let count = self.all.len();
        let now_s = self.ports.clock.now_s();
        let g = &mut self.all[group];
        if !g.runs() {
            let is_first = g.shares.values().all(|s| *s == Share::Down(None));
            let head_start_s = head_start_s(group, count, g.adaptation.interval_s());
            g.paced_s = if is_first { now_s - head_start_s } else { now_s };
            self.ports.relays.starts(group);
        }
        g.state = State::Well;
        if self.together.always && g.caught_up_s == f64::INFINITY {
            // Nobody has gone on, and nobody waits.
            (g.caught_up_s, g.pace.done) = (f64::NEG_INFINITY, true);
        } else if g.caught_up_s == f64::INFINITY {
            (g.caught_up_s, g.pace) = (now_s + g.lost_s / self.replay.unwrap_or(1.0), Pace::new(now_s));
        }
        self.ports.relays.place(group, &places[group][0]);
        let image = g.image.clone();
        let down = g.down();
        for &call in &down {
            if self.ending.contains(&call) {
                g.shares.insert(call, Share::Ended(ASKED_TO_END));
                continue;
            }
            let of_call = image.as_ref().filter(|(of, _)| *of == call);
            let mut environment = g.environment.clone();
            if let Some((_, folder)) = of_call {
                g.of_image = true;
                environment.push(self.ports.lending.image(folder));
                environment.extend(TAKES_NOTHING.map(|(name, value)| (name.to_string(), value.to_string())));
            }
            // Slurm's PMIx looks for a step's nodes in this list. The script's is as old as the script: a spare that took
            // a place since is not in it, and MPI would wait for its node without end.
            environment.push(("SLURM_JOB_NODELIST".to_string(), places.concat().join(",")));
            let ended = self.ports.shares.start(call, group, &places, &environment);
            g.shares.insert(call, ended.map_or(Share::Runs, Share::Ended));
        }
        self.together.has_run |= self.ports.relays.gathers();
        self.phase_all();
        down.into_iter().for_each(|call| self.settle(call));
    }

    /// A group's share of a call has ended.
    fn ended(&mut self, call: u64, group: usize, code: i32) {
        let now_s = self.ports.clock.now_s();
        let g = &mut self.all[group];
        if g.shares.get(&call) != Some(&Share::Runs) {
            return;
        }
        let is_asked = self.ending.contains(&call);
        match g.state {
            State::Stopping | State::Short => {
                g.shares.insert(call, if is_asked { Share::Ended(own_code(code)) } else { Share::Down(Some(code)) });
                self.settle(call);
                if !self.all[group].runs() {
                    self.restart(group);
                }
            }
            State::Well | State::Doubtful { .. } if code == 0 || is_asked => {
                g.shares.insert(call, Share::Ended(own_code(code)));
                if !is_asked {
                    self.ports.shares.over(call, group, code);
                }
                self.settle(call);
                self.phase(group);
            }
            State::Doubtful { .. } => {
                g.shares.insert(call, Share::Down(Some(code)));
            }
            State::Parked => {
                g.shares.insert(call, Share::Down(None));
                self.lend();
            }
            State::Well => {
                g.shares.insert(call, Share::Down(Some(code)));
                g.state = State::Doubtful { since_s: now_s };
            }
            State::Parking => {
                self.keep(&format!("group {group} ended meanwhile"));
                self.all[group].state = State::Well;
                self.ended(call, group, code);
            }
        }
    }

    /// Ends a call of which all shares have ended.
    pub(super) fn settle(&mut self, call: u64) {
        let shares: Vec<Share> = self.all.iter().filter_map(|g| g.shares.get(&call).copied()).collect();
        let codes: Option<Vec<i32>> =
            shares.iter().map(|s| if let Share::Ended(c) = s { Some(*c) } else { None }).collect();
        let Some(codes) = codes.filter(|_| self.calls.contains_key(&call)) else { return };
        self.ports.shares.end(call, codes.into_iter().max().unwrap_or(0));
        self.forget(call);
    }

    /// Ends a call for all groups, because one has failed for good.
    pub(super) fn break_off(&mut self, call: u64) {
        let ended = |g: &Group| if let Some(Share::Ended(code)) = g.shares.get(&call) { *code } else { 0 };
        let code = self.all.iter().map(ended).max().unwrap_or(0);
        if code != 0 && self.calls.contains_key(&call) {
            self.decided("end", &format!("a group ended with {code}, and the others need it"));
            self.ports.shares.end(call, code);
            self.forget(call);
        }
    }

    pub(super) fn forget(&mut self, call: u64) {
        self.calls.remove(&call);
        self.ending.remove(&call);
        self.keep("the program has ended");
        for group in 0..self.all.len() {
            if self.all[group].shares.remove(&call).is_some() {
                if self.all[group].shares.is_empty() {
                    (self.all[group].back, self.all[group].image) = (None, None);
                    if matches!(self.all[group].state, State::Doubtful { .. } | State::Stopping) {
                        // Its end was that of the call; a dead node is told by itself.
                        self.all[group].state = State::Well;
                    }
                    self.give_up(group, "the program has ended");
                }
                self.phase(group);
            }
        }
        self.nothing_to_park();
        self.lend();
        self.restart_all();
        self.end_lines();
    }

    /// The script does not wait for a call any more; its shares are ended by whoever told it.
    fn dropped(&mut self, call: u64) {
        if self.calls.contains_key(&call) {
            self.forget(call);
        }
    }

    /// A node has come to the job: the next spare.
    fn joined(&mut self, node: &str) {
        if self.spares.iter().chain(self.all.iter().flat_map(|g| &g.nodes)).any(|n| n == node) {
            return;
        }
        let now_s = self.ports.clock.now_s();
        self.decided("spare", &format!("node {node} has joined the job"));
        self.ports.meter.add(node);
        self.spare_ledger.add_node(node, now_s);
        self.spares.push(node.to_string());
        let short = self.all.iter().position(|g| g.state == State::Short && !g.runs());
        if let Some(group) = short {
            self.restart(group);
        }
    }

    /// The run cannot go on: another wrapper has it, or nothing of it can be read now.
    fn stopped(&mut self) -> Outcome {
        for (group, engine) in self.ports.engines.iter_mut().enumerate() {
            if self.all[group].checkpointing.take().is_some() {
                engine.give_up();
            }
        }
        let Some(reason) = self.held.take().filter(|_| !self.is_superseded) else {
            protocol::say!("joulepoint: {SUPERSEDED}");
            self.ports.child.abandon();
            return Outcome::Superseded;
        };
        protocol::say!("joulepoint: {reason}; {HELD}");
        self.decided("hold", &reason);
        self.ports.lending.stop();
        self.ports.relays.stop();
        self.ports.child.stop();
        self.cut_all(Some(Phase::Idle));
        self.end("requeued", 0);
        if self.is_superseded {
            return self.stopped();
        }
        match self.ports.cluster.requeue_held() {
            Ok(()) => Outcome::Requeued,
            Err(reason) => {
                self.decided("end", &format!("could not be requeued: {reason}"));
                self.leave(FAILED, EXIT_NOT_RESTORED)
            }
        }
    }

    /// Hands the run back to the queue.
    pub(super) fn requeue(&mut self, then: &Then) -> Outcome {
        self.ports.lending.stop();
        self.ports.relays.stop();
        self.ports.child.stop();
        self.cut_all(Some(Phase::Idle));
        let now_s = self.ports.clock.now_s();
        let told = match then {
            Then::Vacate { kind, reason } => Some((*kind, reason.clone())),
            Then::BeforeEnd => {
                let reason = "the walltime ends; the groups go on from their last checkpoints";
                Some((FailureKind::Timeout, reason.to_string()))
            }
            Then::Stay | Then::Short => None,
        };
        let kind = told.as_ref().map_or(FailureKind::Node, |(kind, _)| *kind);
        self.note(told.into_iter().map(|(kind, reason)| failure(kind, None, now_s, now_s, &reason)).collect());
        if self.ports.cluster.is_cancelled(kind) {
            return self.leave(ended_as(FailureKind::Cancelled), CANCELLED);
        }
        self.end("requeued", 0);
        if self.is_superseded {
            return self.stopped();
        }
        match self.ports.cluster.requeue() {
            Ok(()) => Outcome::Requeued,
            Err(reason) => {
                self.decided("end", &format!("could not be requeued: {reason}"));
                self.leave(FAILED, 1)
            }
        }
    }

    pub(super) fn leave(&mut self, state: &str, exit_code: i32) -> Outcome {
        self.cut_all(Some(Phase::Idle));
        self.end(state, exit_code);
        Outcome::Ended(exit_code)
    }

    /// Writes the last records: whoever still waits for a checkpoint learns that there will be none.
    fn end(&mut self, state: &str, exit_code: i32) {
        let reason = format!("the run ended before: {state}");
        self.give_all_up(&reason);
        let mut events = match self.sweep.take() {
            Some(sweep) => self.desk.fail(&sweep.orders, &reason),
            None => Vec::new(),
        };
        events.extend(self.desk.fail_waiting(&reason));
        events.extend(self.ports.shares.messages().map(Event::Messages));
        events.push(Event::Ended { state: state.to_string(), exit_code });
        self.note(events);
        self.ports.store.flush(FLUSH_LIMIT_S);
    }
}
