//! Owns the state of a coordinated run: starts the program, checkpoints it when policy says so, and recovers it.
//!
//! One thread runs this loop. Everything it knows of the world comes through [`Ports`], so that the seeded
//! simulation in `tests/` drives the very same code through thousands of failure histories.

mod ends;
mod line;

use crate::adapt::Adaptation;
use crate::ledger::{Cut, Ledger, Used};
use crate::orders::Desk;
use crate::ports::{Happening, Ports, read_for};
use crate::setup::{
    COMPLETED, EXIT_NOT_RESTORED, FAILED, LONGEST_CUT_S, Limit, Outcome, REPEATED_WORK, Setup, not_by, of_killed,
    rolled_back,
};
use policy::decide::{Action, Situation, Why, decide};
use protection::{EXIT_NOT_PROTECTED, Guard};
use protocol::{Event, FailureKind, Manifest, Order, Phase};
use std::path::PathBuf;

/// Longest wait for a checkpoint that the program leaves behind when it ends, s.
const LAST_FILES_LIMIT_S: f64 = 60.0;

/// Why a script may fail that has gone back.
const BY_FILES: &str = "what is told above of files may be why";
const BY_FIRST_LINES: &str = "it began from its first line again, and what it had made is there (use mkdir -p)";

/// How one attempt of the script ended.
enum End {
    Finished(i32),
    Again,
    Requeue(FailureKind),
    Vacate { kind: FailureKind, reason: String },
    Restart,
    Terminated(FailureKind),
    Held(String),
    Superseded,
}

/// A checkpoint on its way.
struct Checkpointing {
    number: u64,
    folder: PathBuf,
    begun_s: f64,
    why: Why,
    orders: Vec<Order>,
    /// What was used until the program went on, if it has.
    used: Used,
}

struct Driver<'a> {
    setup: &'a Setup,
    ports: Ports<'a>,
    nodes: Vec<String>,
    ledger: Ledger,
    adaptation: Adaptation,
    guard: Guard,
    checkpointing: Option<Checkpointing>,
    desk: Desk,
    line_s: f64,
    /// When this driver began.
    life_s: f64,
    /// When this wrapper began; or the one before, until the program is started.
    begun_s: f64,
    not_before_s: f64,
    limit: Limit,
    final_line_taken: bool,
    crashes: u32,
    /// How the script has ended, until it is started again.
    exited: Option<i32>,
    /// From when on an end of it counts.
    counts_from_s: f64,
    /// The checkpoint from which the script goes on.
    from: Option<u64>,
    /// The last checkpoint of which a step could not be restored.
    unrestored: Option<u64>,
    /// Why it may end with an error that it would not have without going back.
    may_fail_by: Option<&'static str>,
    last_reason: String,
    /// Another wrapper has taken the run up: nothing of it is written any more.
    is_superseded: bool,
}

/// Runs a job script to its end, or hands the run back to the queue.
pub fn run<'a>(setup: &'a Setup, ports: Ports<'a>) -> Outcome {
    let now_s = ports.clock.now_s();
    let adaptation = Adaptation::new(now_s, ports.clock.local_s(now_s), &setup.settings, &setup.plan);
    let mut driver = Driver {
        guard: Guard::new(&setup.prospect, ports.engine.on_demand(), 1, now_s, adaptation.interval_s()),
        nodes: setup.started.nodes.clone(),
        ledger: Ledger::open(now_s, setup.first_phase(), &setup.started.nodes, &setup.accounted),
        adaptation,
        setup,
        ports,
        checkpointing: None,
        desk: Desk::resume(&setup.answered),
        line_s: now_s,
        life_s: now_s,
        begun_s: setup.prospect.before.map_or(now_s, |(begun_s, _)| begun_s),
        not_before_s: f64::NEG_INFINITY,
        limit: Limit::new(now_s, setup.end_s),
        final_line_taken: false,
        crashes: 0,
        exited: None,
        counts_from_s: f64::NEG_INFINITY,
        from: None,
        unrestored: None,
        may_fail_by: None,
        last_reason: String::new(),
        is_superseded: false,
    };
    driver.run()
}

impl Driver<'_> {
    fn run(&mut self) -> Outcome {
        let mut from = self.take_up();
        if let Some(outcome) = self.refused() {
            return outcome;
        }
        loop {
            let end = match from {
                Ok(line) => self.attempt(line.as_ref()),
                Err(end) => end,
            };
            from = match end {
                _ if self.is_superseded => return self.abandon(),
                End::Finished(code) => return self.leave(if code == 0 { COMPLETED } else { FAILED }, code),
                End::Again => self.roll_back(),
                End::Requeue(kind) => return self.requeue(kind),
                End::Restart => self.restart(),
                End::Vacate { kind, reason } => return self.vacate(kind, &reason),
                End::Terminated(kind) => return self.terminated(kind),
                End::Held(reason) => return self.hold(&reason),
                End::Superseded => return self.abandon(),
            }
        }
    }

    /// The newest recovery line, with what is to be told of others; or the run cannot go on now.
    fn newest(&mut self) -> Result<(Option<Manifest>, Vec<Event>), End> {
        match self.ports.store.newest() {
            Ok((line, notes)) => {
                notes.iter().for_each(|note| protocol::say!("joulepoint: {note}"));
                let others = line.as_ref().and_then(|line| not_by(line, self.ports.engine.name()));
                if let Some(reason) = others {
                    return Err(End::Held(format!("{reason}: {}", self.setup.prospect.protection.reason)));
                }
                Ok((line, notes.into_iter().map(|reason| Event::CheckpointFailed { reason }).collect()))
            }
            Err(e) if e.is_superseded() => Err(End::Superseded),
            Err(e) => Err(End::Held(e.to_string())),
        }
    }

    /// Tells who takes the run up, and from which recovery line.
    fn take_up(&mut self) -> Result<Option<Manifest>, End> {
        let newest = self.newest();
        let s = &self.setup.started;
        let started = Event::Started {
            job: s.job,
            restart_count: s.restart_count,
            user: s.user.clone(),
            account: s.account.clone(),
            partition: s.partition.clone(),
            job_name: s.job_name.clone(),
            nodes: s.nodes.clone(),
            resumed_from: newest.as_ref().ok().and_then(|(line, _)| line.as_ref()).map(|m| m.number),
            dir: s.dir.clone(),
        };
        let mut events = vec![started, Event::Planned(Box::new(self.setup.plan.clone()))];
        if let Some(killed) = &self.setup.accounted.killed {
            let now_s = self.ports.clock.now_s();
            let counters = self.ports.meter.read();
            events.push(of_killed(self.setup, killed, now_s));
            events.append(&mut self.ledger.cut_killed(killed.at_s, now_s, Phase::Restart, &counters).events);
        }
        let line = newest.map(|(line, mut notes)| {
            events.append(&mut notes);
            if self.setup.resumes {
                let heard_s = self.setup.prospect.before.map(|(_, heard_s)| heard_s);
                events.append(&mut self.goes_back(line.as_ref(), heard_s));
            } else {
                events.push(self.guard.begins(self.adaptation.interval_s(), self.adaptation.checkpoint_s()));
            }
            line
        });
        self.note(events);
        line
    }

    /// Ends a run that is not to run as it would; one that has run already waits for a person.
    fn refused(&mut self) -> Option<Outcome> {
        let reason = self.setup.prospect.refused.as_ref().filter(|_| !self.is_superseded)?;
        if self.setup.resumes {
            return Some(self.hold(reason));
        }
        protocol::say!("joulepoint: {reason}; the job ends before it has begun");
        self.decided("end", reason);
        Some(self.leave(FAILED, EXIT_NOT_PROTECTED))
    }

    /// Tells from where the run goes on, after what ended it at `ended_s`.
    fn goes_back(&mut self, line: Option<&Manifest>, ended_s: Option<f64>) -> Vec<Event> {
        let (now_s, finished_s) = (self.ports.clock.now_s(), self.ports.store.finished_s());
        let kept_until_s = line.map_or(0.0, |m| m.begun_s).max(finished_s).max(self.begun_s);
        // What was done before this run went on from a checkpoint that cannot be had any more nobody has counted.
        let is_counted = line.is_some() || self.begun_s <= self.life_s;
        let again_s = ended_s.filter(|_| is_counted).map(|ended_s| ended_s - kept_until_s);
        let told = self.guard.goes_back(now_s, None, line, finished_s > 0.0, again_s);
        self.begun_s = now_s;
        let repeated = match line {
            Some(line) => self.ports.engine.repeated(line),
            None => self.ports.store.left(),
        };
        let repeated = repeated.line(line.is_some());
        let begins_anew = line.is_some() && self.ports.engine.begins_anew();
        self.may_fail_by = repeated.as_ref().map(|_| BY_FILES).or(begins_anew.then_some(BY_FIRST_LINES));
        let repeated = repeated.map(|text| {
            protocol::say!("joulepoint: {text}");
            self.decision(REPEATED_WORK, text)
        });
        [rolled_back(line, finished_s)].into_iter().chain(told).chain(repeated).collect()
    }

    /// Goes back to the newest recovery line after a failure within this record.
    fn roll_back(&mut self) -> Result<Option<Manifest>, End> {
        let (line, mut events) = self.newest()?;
        let now_s = self.ports.clock.now_s();
        events.append(&mut self.goes_back(line.as_ref(), Some(now_s)));
        events.append(&mut self.desk.restarted(line.as_ref().map(|m| m.number)));
        self.note(events);
        Ok(line)
    }

    /// Goes back because a person wants it.
    fn restart(&mut self) -> Result<Option<Manifest>, End> {
        self.give_up();
        self.ports.child.stop();
        self.cut(Phase::Restart);
        self.roll_back()
    }

    /// Starts the script once and follows it until it ends or has to be ended.
    fn attempt(&mut self, from: Option<&Manifest>) -> End {
        if !self.ports.child.is_gone() {
            self.decided("requeue", "steps of the script do not end while the job has its nodes");
            return End::Requeue(FailureKind::Step);
        }
        let interval_s = self.adaptation.interval_s();
        if let Err(e) = self.ports.store.show() {
            return if e.is_superseded() { End::Superseded } else { End::Held(e.to_string()) };
        }
        (self.exited, self.from) = (None, from.map(|line| line.number));
        let environment = match self.ports.engine.prepare(from, interval_s) {
            Ok(environment) => environment,
            // It is damaged, and was set aside by that look: the one before is tried.
            Err(_) if self.has_lost_its_line() => return End::Again,
            Err(e) if from.is_some() || self.setup.resumes => {
                return End::Held(format!("the run could not be brought back: {e}"));
            }
            Err(e) => {
                self.failed_checkpoint(format!("could not be brought back: {e}"), &[]);
                return End::Finished(EXIT_NOT_RESTORED);
            }
        };
        if let Err(why) = self.ports.child.start(&environment) {
            self.decided("end", &format!("the job script could not be started: {why}"));
            return End::Finished(why.code);
        }
        // A program that is brought back whole works only when it is there.
        if self.ledger.phase() != Phase::Compute && !(from.is_some() && self.ports.engine.tells_return()) {
            self.cut(Phase::Compute);
        }
        self.line_s = self.ports.clock.now_s();
        loop {
            let until_s = self.act();
            if self.is_superseded {
                return End::Superseded;
            }
            let Some(happening) = self.ports.clock.wait(until_s) else {
                self.timed_out();
                continue;
            };
            if let Some(end) = self.hear(happening) {
                return end;
            }
        }
    }

    /// Takes up what happens while the script runs; how the attempt ends, if that ends it.
    fn hear(&mut self, happening: Happening) -> Option<End> {
        match happening {
            Happening::Exited { code } => return self.exited(code),
            Happening::Checkpointed(result) => return self.checkpointed(result),
            Happening::NodeLost { node, at_s } => return self.lost(&node, at_s),
            Happening::Terminate => return self.asked_to_end(),
            Happening::Superseded => return Some(End::Superseded),
            Happening::Ordered(order) => {
                self.ordered(order);
                return self.desk.wants_restart().then_some(End::Restart);
            }
            Happening::Hindered(reason) => {
                let told = self.guard.hindered(&reason);
                self.note(told.into_iter().collect());
            }
            Happening::GoesOn => self.goes_on(Phase::Checkpoint),
            Happening::Back => self.goes_on(Phase::Restart),
            Happening::Appeared => self.appeared(),
            // A coordinated run has one group.
            Happening::Group(_) => {}
        }
        None
    }

    /// Asks policy, begins a checkpoint if it says so, and tells until when to wait.
    fn act(&mut self) -> f64 {
        let now_s = self.ports.clock.now_s();
        let told = self.guard.overdue(now_s);
        self.note(told.into_iter().collect());
        let next_cut_s = (now_s + LONGEST_CUT_S).min(self.guard.due_s());
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
            end_s: self.limit.end_s,
            margin_s: self.setup.margin_s,
            remaining_work_s: None,
            restart_s: self.adaptation.restart_s(),
            mtbf_s: self.adaptation.mtbf_s(now_s),
            final_line_taken: self.final_line_taken,
        });
        match decision.action {
            Action::Checkpoint(_) if now_s < self.not_before_s => next_cut_s.min(self.not_before_s),
            Action::Checkpoint(why) if self.end_has_moved(now_s, why == Why::BeforeEnd) => now_s,
            Action::Checkpoint(why) => {
                self.begin(why, &decision.reason);
                self.ports.clock.now_s() + LONGEST_CUT_S.min(self.setup.checkpoint_limit_s)
            }
            Action::Wait { .. } | Action::Rest if self.limit.is_over(now_s) && self.end_has_moved(now_s, false) => {
                now_s
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

    /// Whether the time limit was changed, by Slurm's word.
    fn end_has_moved(&mut self, now_s: f64, is_near: bool) -> bool {
        let has_moved = self.limit.has_moved(now_s, is_near, || self.ports.cluster.end_s());
        self.final_line_taken &= !has_moved;
        has_moved
    }

    /// A person orders something.
    fn ordered(&mut self, order: Order) {
        let answer = self.desk.hear(order, self.ports.engine.on_demand());
        let told = self.guard.switched(self.desk.disabled_by());
        self.note(answer.into_iter().chain(told).collect());
    }

    fn cut(&mut self, next: Phase) -> Cut {
        let mut cut = self.split(next);
        self.note(std::mem::take(&mut cut.events));
        cut
    }

    /// Ends the running phase without noting it.
    fn split(&mut self, next: Phase) -> Cut {
        let (counters, at_s) = read_for(&mut *self.ports.meter, &*self.ports.clock, next);
        let cut = self.ledger.cut(at_s, next, &counters);
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
        match self.ports.store.append(now_s, events) {
            Ok(()) => {}
            Err(e) if e.is_superseded() => self.is_superseded = true,
            Err(e) => tracing::error!(%e, "the journal cannot be written; the job goes on"),
        }
    }
}
