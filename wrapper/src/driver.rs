//! Owns a run's state: starts the program, checkpoints it when policy says so, and recovers it.
//!
//! One thread runs this loop. Everything it knows of the world comes through [`Ports`], so that the seeded
//! simulation in `tests/` drives the very same code through thousands of failure histories.

use crate::adapt::Adaptation;
use crate::ledger::{Cut, Ledger};
use crate::orders::Desk;
use crate::ports::{Happening, Ports};
use options::Settings;
use policy::decide::{Action, Situation, Why, decide};
use protocol::{Event, FailureKind, Manifest, ManifestFile, Order, OrderState, OrderedCheckpoint, Phase, Plan, Verb};
use std::path::PathBuf;

/// Longest time between two cuts of the energy account, s: what a dying batch host can leave unassigned.
pub(crate) const LONGEST_CUT_S: f64 = 60.0;

/// Longest wait for a verdict on nodes that are suspected when the script ends, s.
pub(crate) const VERDICT_LIMIT_S: f64 = 30.0;

/// Longest wait for a checkpoint that the program leaves behind when it ends, s.
const LAST_FILES_LIMIT_S: f64 = 60.0;

/// Longest wait for the script after it was asked to end, s; Slurm's KillWait is shorter.
pub(crate) const LEAVE_LIMIT_S: f64 = 300.0;

/// Longest wait for the delivery of the last records, s.
pub(crate) const FLUSH_LIMIT_S: f64 = 10.0;

/// Pause after a checkpoint that failed, s, at least.
pub(crate) const RETRY_PAUSE_S: f64 = 10.0;

/// Exit code of a run whose checkpoint could not be brought back.
pub(crate) const EXIT_NOT_RESTORED: i32 = 125;

/// What a driver is given.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The record of this wrapper, ready for the journal but for `resumed_from`.
    pub started: Started,
    /// What is to be done.
    pub plan: Plan,
    /// What the user and the site want.
    pub settings: Settings,
    /// End of the walltime.
    pub end_s: Option<f64>,
    /// Time kept free before it.
    pub margin_s: f64,
    /// Whether to requeue after the last checkpoint before it.
    pub requeue_at_end: bool,
    /// How often a crashed step is tried again without a new checkpoint in between.
    pub step_retries: u32,
    /// Longest time that the engine may take.
    pub checkpoint_limit_s: f64,
    /// Whether earlier wrappers have worked on this run.
    pub resumes: bool,
    /// Counters that earlier wrappers of the same job record have accounted for.
    pub accounted: Vec<crate::ports::NodeCounter>,
    /// Orders that earlier wrappers of the run have answered.
    pub answered: Vec<Event>,
}

/// Who and where this record of the run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Started {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
    /// User name.
    pub user: String,
    /// Slurm account.
    pub account: String,
    /// Slurm partition.
    pub partition: String,
    /// Job name.
    pub job_name: String,
    /// Nodes of the allocation.
    pub nodes: Vec<String>,
    /// Folder of the run.
    pub dir: String,
}

/// How a driver leaves its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The script ended, or was ended, with this exit code.
    Ended(i32),
    /// The run is back in the queue.
    Requeued,
}

/// How one attempt of the script ended.
enum End {
    Finished(i32),
    Again,
    Requeue(FailureKind),
    Vacate { by: String },
    Restart,
    Terminated(FailureKind),
}

/// A checkpoint on its way.
struct Checkpointing {
    number: u64,
    folder: PathBuf,
    begun_s: f64,
    why: Why,
    orders: Vec<Order>,
}

struct Driver<'a> {
    setup: &'a Setup,
    ports: Ports<'a>,
    nodes: Vec<String>,
    ledger: Ledger,
    adaptation: Adaptation,
    checkpointing: Option<Checkpointing>,
    desk: Desk,
    line_s: f64,
    not_before_s: f64,
    final_line_taken: bool,
    crashes: u32,
    last_reason: String,
}

/// Runs a job script to its end, or hands the run back to the queue.
pub fn run<'a>(setup: &'a Setup, ports: Ports<'a>) -> Outcome {
    let now_s = ports.clock.now_s();
    let first_phase = if setup.resumes { Phase::Restart } else { Phase::Compute };
    let mut driver = Driver {
        nodes: setup.started.nodes.clone(),
        ledger: Ledger::open(now_s, first_phase, &setup.started.nodes, &setup.accounted),
        adaptation: Adaptation::new(now_s, ports.clock.local_s(now_s), &setup.settings, &setup.plan),
        setup,
        ports,
        checkpointing: None,
        desk: Desk::resume(&setup.answered),
        line_s: now_s,
        not_before_s: f64::NEG_INFINITY,
        final_line_taken: false,
        crashes: 0,
        last_reason: String::new(),
    };
    driver.run()
}

impl Driver<'_> {
    fn run(&mut self) -> Outcome {
        let mut from = self.take_up();
        loop {
            match self.attempt(from.as_ref()) {
                End::Finished(code) => {
                    return self.leave(if code == 0 { "completed" } else { "failed" }, code);
                }
                End::Again => from = self.roll_back(),
                End::Requeue(kind) => return self.requeue(kind),
                End::Restart => from = self.restart(),
                End::Vacate { by } => return self.vacate(&by),
                End::Terminated(kind) => return self.terminated(kind),
            }
        }
    }

    /// Tells who takes the run up, and from which recovery line.
    fn take_up(&mut self) -> Option<Manifest> {
        let (from, damaged) = self.ports.store.newest();
        let s = &self.setup.started;
        let started = Event::Started {
            job: s.job,
            restart_count: s.restart_count,
            user: s.user.clone(),
            account: s.account.clone(),
            partition: s.partition.clone(),
            job_name: s.job_name.clone(),
            nodes: s.nodes.clone(),
            resumed_from: from.as_ref().map(|m| m.number),
            dir: s.dir.clone(),
        };
        let mut events = vec![started, Event::Planned(Box::new(self.setup.plan.clone()))];
        events.extend(damaged.into_iter().map(|reason| Event::CheckpointFailed { reason }));
        if self.setup.resumes {
            events.push(rolled_back(from.as_ref(), self.ports.store.finished_s()));
        }
        self.note(events);
        from
    }

    /// Goes back to the newest recovery line after a failure within this record.
    fn roll_back(&mut self) -> Option<Manifest> {
        let (from, damaged) = self.ports.store.newest();
        let mut events: Vec<Event> = damaged.into_iter().map(|reason| Event::CheckpointFailed { reason }).collect();
        events.push(rolled_back(from.as_ref(), self.ports.store.finished_s()));
        events.append(&mut self.desk.restarted(from.as_ref().map(|m| m.number)));
        self.note(events);
        from
    }

    /// Goes back because a person wants it.
    fn restart(&mut self) -> Option<Manifest> {
        self.give_up();
        self.ports.child.stop();
        self.cut(Phase::Restart);
        self.roll_back()
    }

    /// Starts the script once and follows it until it ends or has to be ended.
    fn attempt(&mut self, from: Option<&Manifest>) -> End {
        let interval_s = self.adaptation.interval_s();
        let environment = match self.ports.engine.prepare(from, interval_s) {
            Ok(environment) => environment,
            Err(reason) => {
                self.failed_checkpoint(format!("could not be brought back: {reason}"), &[]);
                return End::Finished(EXIT_NOT_RESTORED);
            }
        };
        if let Err(reason) = self.ports.child.start(&environment) {
            self.decided("end", &format!("the job script could not be started: {reason}"));
            return End::Finished(126);
        }
        if self.ledger.phase() != Phase::Compute {
            self.cut(Phase::Compute);
        }
        self.line_s = self.ports.clock.now_s();
        loop {
            let until_s = self.act();
            match self.ports.clock.wait(until_s) {
                None => self.timed_out(),
                Some(Happening::Exited { code }) => return self.exited(code),
                Some(Happening::Checkpointed(result)) => {
                    if let Some(end) = self.checkpointed(result) {
                        return end;
                    }
                }
                Some(Happening::Appeared) if self.desk.disabled_by().is_some() => {}
                Some(Happening::Appeared) => self.begin(Why::Interval, "the program wrote a checkpoint"),
                Some(Happening::Ordered(order)) => {
                    self.ordered(order);
                    if self.desk.wants_restart() {
                        return End::Restart;
                    }
                }
                Some(Happening::NodeLost { node, at_s }) => {
                    if let Some(end) = self.lost(&node, at_s) {
                        return end;
                    }
                }
                Some(Happening::Terminate) => {
                    return self.ended_from_outside();
                }
                // A coordinated run has one group.
                Some(Happening::Group(_)) => {}
            }
        }
    }

    /// Asks policy, begins a checkpoint if it says so, and tells until when to wait.
    fn act(&mut self) -> f64 {
        let now_s = self.ports.clock.now_s();
        let next_cut_s = now_s + LONGEST_CUT_S;
        if let Some(running) = &self.checkpointing {
            return next_cut_s.min(running.begun_s + self.setup.checkpoint_limit_s);
        }
        if let Some(by) = self.desk.disabled_by() {
            let reason = format!("checkpoints are disabled by {by}");
            let answers = self.desk.fail_waiting(&reason);
            self.note(answers);
            self.reasoned("rest", reason);
            return next_cut_s;
        }
        if self.desk.is_waiting() {
            self.begin(Why::Asked, "a person asked");
            return self.ports.clock.now_s() + LONGEST_CUT_S.min(self.setup.checkpoint_limit_s);
        }
        if !self.ports.engine.on_demand() {
            return next_cut_s;
        }
        let decision = decide(&Situation {
            now_s,
            last_line_s: self.line_s,
            interval_s: self.adaptation.interval_s(),
            checkpoint_s: self.adaptation.checkpoint_s(),
            end_s: self.setup.end_s,
            margin_s: self.setup.margin_s,
            remaining_work_s: None,
            restart_s: self.adaptation.restart_s(),
            mtbf_s: self.adaptation.mtbf_s(now_s),
            final_line_taken: self.final_line_taken,
        });
        match decision.action {
            Action::Checkpoint(_) if now_s < self.not_before_s => next_cut_s.min(self.not_before_s),
            Action::Checkpoint(why) => {
                self.begin(why, &decision.reason);
                self.ports.clock.now_s() + LONGEST_CUT_S.min(self.setup.checkpoint_limit_s)
            }
            Action::Wait { until_s } => {
                self.reasoned("wait", decision.reason);
                next_cut_s.min(until_s)
            }
            Action::Rest => {
                self.reasoned("rest", decision.reason);
                next_cut_s
            }
        }
    }

    /// Asks the engine for a checkpoint.
    fn begin(&mut self, why: Why, reason: &str) {
        if self.checkpointing.is_some() {
            return;
        }
        let orders = self.desk.take();
        match self.ports.store.room() {
            Ok((number, folder)) => {
                self.decided("checkpoint", reason);
                let cut = self.split(Phase::Checkpoint);
                let begun_s = self.ports.clock.now_s();
                self.checkpointing = Some(Checkpointing { number, folder: folder.clone(), begun_s, why, orders });
                self.ports.engine.begin(folder);
                // The journal is synced while the engine works: the phase is as long as the checkpoint.
                self.note(cut.events);
            }
            Err(reason) => self.failed_checkpoint(format!("no room for a checkpoint: {reason}"), &orders),
        }
    }

    /// The engine has answered.
    fn checkpointed(&mut self, result: Result<Vec<ManifestFile>, String>) -> Option<End> {
        let running = self.checkpointing.take()?;
        match result {
            Ok(files) => {
                if !self.commit(&running, files) {
                    return None;
                }
                if running.why == Why::BeforeEnd {
                    self.final_line_taken = true;
                    if self.setup.requeue_at_end {
                        return Some(End::Requeue(FailureKind::Timeout));
                    }
                }
                let vacate = running.orders.into_iter().find(|o| o.verb == Verb::Vacate);
                vacate.map(|order| End::Vacate { by: order.by })
            }
            Err(reason) => {
                self.cut(Phase::Compute);
                self.failed_checkpoint(reason, &running.orders);
                None
            }
        }
    }

    /// A person orders something.
    fn ordered(&mut self, order: Order) {
        if let Some(answer) = self.desk.hear(order, self.ports.engine.on_demand()) {
            self.note(vec![answer]);
        }
    }

    /// Gives up a checkpoint on its way; orders for it wait for the next one.
    fn give_up(&mut self) {
        if let Some(running) = self.checkpointing.take() {
            self.ports.engine.give_up();
            self.desk.put_back(running.orders);
        }
    }

    /// Makes a checkpoint complete and learns from what it cost.
    fn commit(&mut self, running: &Checkpointing, files: Vec<ManifestFile>) -> bool {
        // Reading the counters of all nodes takes its time, and the checkpoint does not wait for it.
        let ended_s = self.ports.clock.now_s();
        let cut = self.cut(Phase::Compute);
        let step = self.ports.child.step();
        let manifest = Manifest {
            version: protocol::VERSION,
            number: running.number,
            begun_s: running.begun_s,
            ended_s,
            joules: cut.joules,
            bytes: files.iter().map(|f| f.bytes).sum(),
            step,
            engine: self.ports.engine.name().to_string(),
            files,
        };
        if let Err(reason) = self.ports.store.commit(&manifest) {
            self.failed_checkpoint(reason, &running.orders);
            return false;
        }
        self.line_s = ended_s;
        self.crashes = 0;
        let mut events = vec![Event::Committed {
            number: manifest.number,
            begun_s: manifest.begun_s,
            ended_s,
            bytes: manifest.bytes,
            joules: manifest.joules,
        }];
        let made = OrderedCheckpoint {
            number: manifest.number,
            path: running.folder.to_string_lossy().into_owned(),
            seconds: ended_s - running.begun_s,
            bytes: manifest.bytes,
            joules: manifest.joules,
        };
        for order in &running.orders {
            let then = if order.verb == Verb::Vacate { "; the job goes back into the queue" } else { "" };
            let text = format!("checkpoint {} is complete{then}", made.number);
            events.push(self.desk.answer(order, OrderState::Done, &text, Some(made.clone())));
        }
        let power_w = cut.joules.filter(|_| cut.node_s > 0.0).map(|j| j / cut.node_s);
        // What a program writes by itself costs it more than the time to take it up.
        if self.ports.engine.on_demand()
            && let Some(reason) = self.adaptation.checkpointed(ended_s, ended_s - running.begun_s, power_w)
        {
            events.push(self.decision("interval", reason));
        }
        self.note(events);
        true
    }

    /// Nothing happened for a while.
    fn timed_out(&mut self) {
        let now_s = self.ports.clock.now_s();
        let limit_s = self.setup.checkpoint_limit_s;
        if let Some(running) = self.checkpointing.take_if(|c| now_s >= c.begun_s + limit_s) {
            self.ports.engine.give_up();
            self.cut(Phase::Compute);
            self.failed_checkpoint(format!("took longer than {limit_s} s"), &running.orders);
            return;
        }
        let phase = self.ledger.phase();
        let cut = self.cut(phase);
        if phase == Phase::Compute
            && let Some(joules) = cut.joules.filter(|_| cut.node_s > 0.0)
        {
            self.adaptation.computed(joules / cut.node_s);
        }
    }

    /// The script ended: by itself, by a crash, or with a node.
    fn exited(&mut self, code: i32) -> End {
        let limit_s = self.ports.clock.now_s() + VERDICT_LIMIT_S;
        loop {
            if let Some(end) = self.lost_nodes() {
                return end;
            }
            if code != 0
                && let Some(cause) = self.ports.cluster.cause()
            {
                return End::Terminated(cause);
            }
            let now_s = self.ports.clock.now_s();
            if now_s >= limit_s || !self.ports.cluster.suspects() {
                break;
            }
            match self.ports.clock.wait(limit_s.min(now_s + 1.0)) {
                Some(Happening::NodeLost { node, at_s }) => {
                    if let Some(end) = self.lost(&node, at_s) {
                        return end;
                    }
                }
                Some(Happening::Terminate) => {
                    return self.ended_from_outside();
                }
                Some(Happening::Checkpointed(result)) => {
                    if let Some(end) = self.checkpointed(result) {
                        return end;
                    }
                }
                Some(Happening::Ordered(order)) => self.ordered(order),
                _ => {}
            }
        }
        if self.ports.engine.halted() {
            self.begin(Why::BeforeEnd, "the program was halted before the walltime ends");
            self.checkpointing.iter_mut().for_each(|c| c.why = Why::BeforeEnd);
        } else if code == 0 {
            return End::Finished(0);
        }
        if let Some(end) = self.left_after_checkpoint() {
            return end;
        }
        self.crashed(code)
    }

    /// Programs that leave after writing the checkpoint they were asked for are started again from it.
    fn left_after_checkpoint(&mut self) -> Option<End> {
        let limit_s = self.ports.clock.now_s() + LAST_FILES_LIMIT_S;
        while self.checkpointing.is_some() {
            match self.ports.clock.wait(limit_s) {
                Some(Happening::Checkpointed(result)) => {
                    let taken = result.is_ok();
                    if let Some(end) = self.checkpointed(result) {
                        return Some(end);
                    }
                    if taken && self.line_s >= limit_s - LAST_FILES_LIMIT_S {
                        self.cut(Phase::Restart);
                        return Some(End::Again);
                    }
                }
                Some(Happening::Terminate) => {
                    return Some(self.ended_from_outside());
                }
                Some(Happening::Ordered(order)) => self.ordered(order),
                Some(_) => {}
                None => self.give_up(),
            }
        }
        None
    }

    /// The script ended with an error of its own; a crash by a signal is tried again.
    fn crashed(&mut self, code: i32) -> End {
        if code < 128 || self.crashes >= self.setup.step_retries {
            return End::Finished(code);
        }
        self.crashes += 1;
        let now_s = self.ports.clock.now_s();
        let reason = format!("the job script ended by signal {}", code - 128);
        self.note(vec![failure(FailureKind::Step, None, now_s, now_s, &reason)]);
        self.cut(Phase::Restart);
        self.ports.child.stop();
        End::Again
    }

    /// Looks for dead nodes of the run.
    fn lost_nodes(&mut self) -> Option<End> {
        let dead = self.ports.cluster.dead_nodes();
        dead.into_iter().find_map(|(node, at_s)| self.lost(&node, at_s))
    }

    /// A node is dead: in place on what is left, or back to the queue.
    fn lost(&mut self, node: &str, at_s: f64) -> Option<End> {
        if !self.nodes.iter().any(|n| n == node) {
            return None;
        }
        let now_s = self.ports.clock.now_s();
        self.cut(Phase::Restart);
        self.ledger.drop_node(node);
        self.nodes.retain(|n| n != node);
        let reason = format!("node {node} is dead, last heard of {:.1} s ago", now_s - at_s);
        let mut events = vec![failure(FailureKind::Node, Some(node), at_s, now_s, &reason)];
        if let Some(reason) = self.adaptation.failed(at_s, now_s) {
            events.push(self.decision("interval", reason));
        }
        self.note(events);
        self.give_up();
        if let Some(cause) = self.ports.cluster.cause() {
            return Some(End::Terminated(cause));
        }
        self.ports.child.stop();
        let needed = self.setup.started.nodes.len().saturating_sub(self.setup.settings.spare as usize);
        if self.nodes.len() >= needed.max(1) {
            self.decided("restart in place", &format!("{} nodes are left, {needed} are needed", self.nodes.len()));
            return Some(End::Again);
        }
        self.decided("requeue", &format!("{} nodes are left, {needed} are needed", self.nodes.len()));
        Some(End::Requeue(FailureKind::Node))
    }

    /// Somebody asked the job to end; a reason that Slurm does not tell is a person's.
    fn ended_from_outside(&mut self) -> End {
        End::Terminated(self.ports.cluster.cause().unwrap_or(FailureKind::Cancelled))
    }

    /// Slurm or a person ends the job: write down why, let the script leave.
    fn terminated(&mut self, kind: FailureKind) -> Outcome {
        self.give_up();
        let now_s = self.ports.clock.now_s();
        self.cut(Phase::Idle);
        let reason = format!("the job is ended from outside: {}", kind.as_str());
        self.note(vec![failure(kind, None, now_s, now_s, &reason)]);
        self.ports.child.terminate();
        let limit_s = now_s + LEAVE_LIMIT_S;
        let code = loop {
            match self.ports.clock.wait(limit_s) {
                Some(Happening::Exited { code }) => break code,
                Some(Happening::Ordered(order)) => self.ordered(order),
                Some(_) => {}
                None => break 143,
            }
        };
        let state = match kind {
            FailureKind::Cancelled => "cancelled",
            FailureKind::Timeout => "timeout",
            _ => "interrupted",
        };
        self.leave(state, code)
    }

    /// Hands the run back to the queue because a person wants its nodes.
    fn vacate(&mut self, by: &str) -> Outcome {
        let now_s = self.ports.clock.now_s();
        let reason = format!("vacated on the order of {by}");
        self.note(vec![failure(FailureKind::Requeued, None, now_s, now_s, &reason)]);
        self.requeue(FailureKind::Requeued)
    }

    /// Hands the run back to the queue.
    fn requeue(&mut self, kind: FailureKind) -> Outcome {
        self.ports.child.stop();
        self.cut(Phase::Idle);
        if kind == FailureKind::Timeout {
            let now_s = self.ports.clock.now_s();
            let reason = "the walltime ends; the run goes on from its last checkpoint";
            self.note(vec![failure(kind, None, now_s, now_s, reason)]);
        }
        self.end("requeued", 0);
        self.ports.store.flush(FLUSH_LIMIT_S);
        match self.ports.cluster.requeue() {
            Ok(()) => Outcome::Requeued,
            Err(reason) => {
                self.decided("end", &format!("could not be requeued: {reason}"));
                self.leave("failed", 1)
            }
        }
    }

    fn leave(&mut self, state: &str, exit_code: i32) -> Outcome {
        self.cut(Phase::Idle);
        self.end(state, exit_code);
        self.ports.store.flush(FLUSH_LIMIT_S);
        Outcome::Ended(exit_code)
    }

    /// Writes the last records: whoever still waits for a checkpoint learns that there will be none.
    fn end(&mut self, state: &str, exit_code: i32) {
        self.give_up();
        let mut events = self.desk.fail_waiting(&format!("the run ended before: {state}"));
        events.push(Event::Ended { state: state.to_string(), exit_code });
        self.note(events);
    }

    fn failed_checkpoint(&mut self, reason: String, orders: &[Order]) {
        let now_s = self.ports.clock.now_s();
        self.not_before_s = now_s + RETRY_PAUSE_S.max(self.adaptation.checkpoint_s());
        tracing::warn!(%reason, "checkpoint failed; earlier ones stay valid");
        let mut events = self.desk.fail(orders, &reason);
        events.push(Event::CheckpointFailed { reason });
        self.note(events);
    }

    fn cut(&mut self, next: Phase) -> Cut {
        let mut cut = self.split(next);
        self.note(std::mem::take(&mut cut.events));
        cut
    }

    /// Ends the running phase without noting it.
    fn split(&mut self, next: Phase) -> Cut {
        let counters = self.ports.meter.read();
        let cut = self.ledger.cut(self.ports.clock.now_s(), next, &counters);
        self.ports.meter.enter(next);
        cut
    }

    fn decision(&self, action: &str, reason: String) -> Event {
        tracing::info!(action, %reason, "decided");
        Event::Decided { action: action.to_string(), reason, interval_s: self.adaptation.interval_s() }
    }

    fn decided(&mut self, action: &str, reason: &str) {
        let event = self.decision(action, reason.to_string());
        self.note(vec![event]);
    }

    /// Logs what policy says when there is nothing to do; the journal keeps actions only.
    fn reasoned(&mut self, action: &str, reason: String) {
        if self.last_reason != reason {
            tracing::debug!(action, %reason, "decided");
            self.last_reason = reason;
        }
    }

    fn note(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let now_s = self.ports.clock.now_s();
        if let Err(reason) = self.ports.store.append(now_s, events) {
            tracing::error!(%reason, "the journal cannot be written; the job goes on");
        }
    }
}

pub(crate) fn rolled_back(from: Option<&Manifest>, finished_s: f64) -> Event {
    Event::RolledBack { to: from.map(|m| m.number), kept_until_s: from.map_or(0.0, |m| m.begun_s).max(finished_s) }
}

pub(crate) fn failure(kind: FailureKind, node: Option<&str>, at_s: f64, detected_s: f64, reason: &str) -> Event {
    tracing::warn!(kind = kind.as_str(), reason, "failure");
    Event::Failure { kind, node: node.map(str::to_string), failed_s: at_s, detected_s, reason: reason.to_string() }
}
