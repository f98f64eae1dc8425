//! How an attempt of the script ends: by itself, by a crash, with a node, or because somebody wants it; and what follows.

use super::{Driver, End, LAST_FILES_LIMIT_S};
use crate::ports::{ASKING, CANCELLED, Happening, by_signal};
use crate::setup::{
    AskedToEnd, COMPLETED, DOUBTED, EXIT_NOT_RESTORED, FAILED, FLUSH_LIMIT_S, HELD, LEAVE_LIMIT_S, Outcome, SUPERSEDED,
    VERDICT_LIMIT_S, asked_to_end, ended_as, failure,
};
use options::Resume;
use policy::decide::Why;
use protocol::{Event, FailureKind, Messages, Phase};

/// How long files may take to be taken that a program has written just before its end, s.
const LAST_LOOK_S: f64 = 5.0;

/// Whether an exit code is that of a signal by which somebody asks for an end.
fn is_of_asking(code: i32) -> bool {
    ASKING.contains(&(code - 128))
}

impl Driver<'_> {
    /// The script ended: by itself, by a crash, or with a node; or a step was lost. None if the script goes on after that.
    pub(super) fn exited(&mut self, code: i32) -> Option<End> {
        // It is that of a step if the script still runs.
        self.exited = (!self.ports.child.runs()).then_some(code);
        let exited_s = self.ports.clock.now_s();
        let limit_s = exited_s + VERDICT_LIMIT_S;
        // What has ended it by a signal may have asked us at the same time.
        let asked_s = if is_of_asking(code) { exited_s + 1.0 } else { exited_s };
        let mut is_doubted = false;
        loop {
            if let Some(end) = self.lost_nodes() {
                return Some(end);
            }
            if code != 0
                && let Some(cause) = self.ports.cluster.cause()
            {
                return Some(End::Terminated(cause));
            }
            let now_s = self.ports.clock.now_s();
            let counts_s = self.exited.map_or(asked_s, |_| asked_s.max(self.counts_from_s));
            if now_s >= limit_s.max(counts_s) || now_s >= counts_s && !self.ports.cluster.suspects() {
                break;
            }
            if counts_s > asked_s && !std::mem::replace(&mut is_doubted, true) {
                protocol::say!("joulepoint: {DOUBTED}");
            }
            let end = match self.ports.clock.wait(limit_s.max(counts_s).min(now_s + 1.0)) {
                // The script after its step: its own end counts.
                Some(Happening::Exited { code }) => return self.exited(code),
                Some(Happening::Ordered(order)) => {
                    self.ordered(order);
                    None
                }
                // What it was doing is over.
                Some(Happening::Appeared | Happening::Back | Happening::Hindered(_)) | None => None,
                Some(happening) => self.hear(happening),
            };
            if end.is_some() {
                return end;
            }
        }
        if self.ports.engine.halted() {
            self.begin(Why::BeforeEnd, "the program was halted before the walltime ends");
            self.checkpointing.iter_mut().for_each(|c| c.why = Why::BeforeEnd);
        } else if code == 0 {
            return Some(End::Finished(0));
        }
        if let Some(end) = self.left_after_checkpoint() {
            return Some(end);
        }
        match self.exited {
            Some(0) if code != 0 => Some(End::Finished(0)),
            own => self.crashed(own.unwrap_or(code), exited_s),
        }
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
                        // The script may run on: of a step whose task was lost nobody has told it.
                        self.ports.child.stop();
                        return Some(End::Again);
                    }
                }
                Some(Happening::Terminate) => {
                    if let Some(end) = self.asked_to_end() {
                        return Some(end);
                    }
                }
                Some(Happening::Exited { code }) => self.exited = Some(code),
                Some(other) => {
                    if let Some(end) = self.hear(other) {
                        return Some(end);
                    }
                }
                None => self.give_up(),
            }
        }
        None
    }

    /// The script has ended at `exited_s` with an error of its own; a crash by a signal is tried again.
    fn crashed(&mut self, code: i32, exited_s: f64) -> Option<End> {
        // A checkpoint that could not be restored, or not be finished, is no fault of the script.
        let was_asked = self.ports.child.was_asked(code);
        let not_its_fault = self.ports.engine.has_killed().filter(|_| !was_asked).or_else(|| self.not_back(code));
        if let Some(number) = self.from.filter(|_| not_its_fault.is_none() && !was_asked && self.is_away(code)) {
            let reason = format!("checkpoint {number} could not be restored, in two tries; why is said above");
            return Some(End::Held(reason));
        }
        // A script may have waited for what it has ended itself.
        let is_own_end = self.exited.is_some() && is_of_asking(code);
        let is_last = self.crashes >= self.setup.step_retries || !self.has_more();
        let is_over = by_signal(code).is_none() || was_asked || is_last || is_own_end;
        if not_its_fault.is_none() && is_over {
            if self.ports.child.runs() {
                // Without us it would hear of the step's end, and may know what to do.
                let reason = "the step has failed as often as it is tried again: the script goes on as after an error";
                protocol::say!("joulepoint: {reason}");
                self.decided("go on", reason);
                self.exited = None;
                return None;
            }
            if let Some(why) = self.may_fail_by.filter(|_| !was_asked) {
                protocol::say!("joulepoint: the script ended with exit code {code} after it had gone back: {why}");
            }
            return Some(End::Finished(code));
        }
        self.crashes += u32::from(not_its_fault.is_none());
        let now_s = self.ports.clock.now_s();
        let by_a_signal = || {
            format!("the job script ended with exit code {code}, as by signal {}", by_signal(code).unwrap_or_default())
        };
        let reason = not_its_fault.unwrap_or_else(by_a_signal);
        self.note(vec![failure(FailureKind::Step, None, exited_s, now_s, &reason)]);
        self.cut(Phase::Restart);
        self.ports.child.stop();
        Some(End::Again)
    }

    /// Whether the script would go on from something that it has done: one that begins anew does what it did before over its
    /// own results, and comes to the same end.
    fn has_more(&mut self) -> bool {
        let may_go_back = self.setup.settings.resume != Resume::None;
        let has_steps = self.ports.store.finished_s() > 0.0;
        self.from.is_some() || has_steps || may_go_back && self.ports.store.has_any() != Some(false)
    }

    /// That the checkpoint from which the script was to go on could not be restored, if that is why it ended.
    fn not_back(&mut self, code: i32) -> Option<String> {
        let is_not_back = code == protocol::EXIT_KILLED && (self.is_unrestored() || self.has_lost_its_line());
        self.from.filter(|_| is_not_back).map(|number| format!("checkpoint {number} could not be restored"))
    }

    /// Whether what was to go on from a checkpoint ended before it was back.
    fn is_away(&self, code: i32) -> bool {
        code == protocol::EXIT_KILLED && self.ports.engine.is_unrestored()
    }

    /// Whether the script or a step could not be restored, for the first time from this checkpoint.
    fn is_unrestored(&mut self) -> bool {
        let is_first = self.ports.engine.is_unrestored() && self.from.is_some() && self.unrestored != self.from;
        if is_first {
            self.unrestored = self.from;
        }
        is_first
    }

    /// Whether the checkpoint from which the script was to go on is not to be used since.
    pub(super) fn has_lost_its_line(&mut self) -> bool {
        let Some(from) = self.from else { return false };
        let Ok((line, notes)) = self.ports.store.look() else { return true };
        notes.iter().for_each(|note| protocol::say!("joulepoint: {note}"));
        line.is_none_or(|line| line.number < from)
    }

    /// Looks for dead nodes of the run.
    fn lost_nodes(&mut self) -> Option<End> {
        let dead = self.ports.cluster.dead_nodes();
        dead.into_iter().find_map(|(node, at_s)| self.lost(&node, at_s))
    }

    /// A node is dead: in place on what is left, or back to the queue.
    pub(super) fn lost(&mut self, node: &str, at_s: f64) -> Option<End> {
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
        let left = format!("left: {}; needed: {needed}", options::counted(self.nodes.len(), "node"));
        if self.nodes.len() >= needed.max(1) {
            self.decided("restart in place", &left);
            return Some(End::Again);
        }
        self.decided("requeue", &left);
        Some(End::Requeue(FailureKind::Node))
    }

    /// SIGTERM has come. None if the script has got it, and the run goes on.
    pub(super) fn asked_to_end(&mut self) -> Option<End> {
        match asked_to_end(&mut *self.ports.cluster, self.setup, self.life_s, self.ports.clock.now_s()) {
            AskedToEnd::ByMistake(reason) => {
                self.decided("requeue", reason);
                self.give_up();
                Some(End::Requeue(FailureKind::Requeued))
            }
            AskedToEnd::Signal { counts_from_s } => {
                self.ports.child.pass_term_on();
                self.counts_from_s = self.counts_from_s.max(counts_from_s);
                None
            }
            AskedToEnd::Because(kind) => Some(End::Terminated(kind)),
            AskedToEnd::Unsure(kind) => {
                self.ports.child.pass_term_on();
                Some(End::Terminated(kind))
            }
        }
    }

    /// Slurm or a person ends the job: write down why, let the script leave.
    pub(super) fn terminated(&mut self, kind: FailureKind) -> Outcome {
        self.give_up();
        let kind = self.desk.cause(kind);
        let now_s = self.ports.clock.now_s();
        // What the script does until it has left it would do without us.
        self.cut(Phase::Compute);
        let reason = format!("the job is ended from outside: {}", kind.as_str());
        self.note(vec![failure(kind, None, now_s, now_s, &reason)]);
        if self.exited.is_none() {
            self.ports.child.terminate();
        }
        let mut limit_s = now_s + LEAVE_LIMIT_S;
        let code = loop {
            if let Some(code) = self.exited {
                break code;
            }
            match self.ports.clock.wait(limit_s) {
                Some(Happening::Exited { code }) => break code,
                Some(Happening::Ordered(order)) => self.ordered(order),
                Some(Happening::Superseded) => return self.abandon(),
                Some(happening) => self.takes(happening),
                // Nobody has ended it, after all.
                None if self.ports.child.runs() && self.ports.cluster.runs_on() => limit_s += LEAVE_LIMIT_S,
                None => break CANCELLED,
            }
        };
        if matches!(kind, FailureKind::Preempted | FailureKind::Requeued) {
            self.take_last();
        }
        self.leave(ended_as(kind), code)
    }

    /// What the program writes when it is asked to end is its newest checkpoint.
    fn takes(&mut self, happening: Happening) {
        match happening {
            Happening::Appeared => self.appeared(),
            Happening::Checkpointed(result) => drop(self.checkpointed(result)),
            _ => {}
        }
    }

    /// Waits a moment for what it has written last.
    fn take_last(&mut self) {
        let (limit_s, made_s) = (self.ports.clock.now_s() + LAST_LOOK_S, self.line_s);
        while self.line_s == made_s && (self.checkpointing.is_some() || !self.ports.engine.on_demand()) {
            match self.ports.clock.wait(limit_s) {
                Some(happening) => self.takes(happening),
                None => return self.give_up(),
            }
        }
    }

    /// Hands the run back to the queue because somebody wants its nodes.
    pub(super) fn vacate(&mut self, kind: FailureKind, reason: &str) -> Outcome {
        protocol::say!("joulepoint: {reason}");
        let now_s = self.ports.clock.now_s();
        self.note(vec![failure(kind, None, now_s, now_s, reason)]);
        self.requeue(kind)
    }

    /// Another wrapper has taken the run up: the job, its steps and its folder are that one's.
    pub(super) fn abandon(&mut self) -> Outcome {
        protocol::say!("joulepoint: {SUPERSEDED}");
        if self.checkpointing.take().is_some() {
            self.ports.engine.give_up();
        }
        self.ports.child.abandon();
        Outcome::Superseded
    }

    /// The run can go on from nowhere now, and does not begin anew for that: it waits in the queue for a person.
    pub(super) fn hold(&mut self, reason: &str) -> Outcome {
        protocol::say!("joulepoint: {reason}; {HELD}");
        self.decided("hold", reason);
        self.ports.child.stop();
        self.cut(Phase::Idle);
        self.end("requeued", 0);
        if self.is_superseded {
            return self.abandon();
        }
        self.ports.store.flush(FLUSH_LIMIT_S);
        match self.ports.cluster.requeue_held() {
            Ok(()) => Outcome::Requeued,
            Err(reason) => {
                self.decided("end", &format!("could not be requeued: {reason}"));
                self.leave(FAILED, EXIT_NOT_RESTORED)
            }
        }
    }

    /// Hands the run back to the queue.
    pub(super) fn requeue(&mut self, kind: FailureKind) -> Outcome {
        self.ports.child.stop();
        self.cut(Phase::Idle);
        if kind == FailureKind::Timeout {
            let now_s = self.ports.clock.now_s();
            let reason = "the walltime ends; the run goes on from its last checkpoint";
            self.note(vec![failure(kind, None, now_s, now_s, reason)]);
        }
        if self.ports.cluster.is_cancelled(kind) {
            return self.leave(ended_as(FailureKind::Cancelled), CANCELLED);
        }
        self.end("requeued", 0);
        if self.is_superseded {
            return self.abandon();
        }
        self.ports.store.flush(FLUSH_LIMIT_S);
        match self.ports.cluster.requeue() {
            Ok(()) => Outcome::Requeued,
            Err(reason) => {
                self.decided("end", &format!("could not be requeued: {reason}"));
                self.leave(FAILED, 1)
            }
        }
    }

    pub(super) fn leave(&mut self, state: &str, exit_code: i32) -> Outcome {
        self.cut(Phase::Idle);
        self.end(state, exit_code);
        if self.is_superseded {
            return self.abandon();
        }
        self.ports.store.flush(FLUSH_LIMIT_S);
        Outcome::Ended(exit_code)
    }

    /// What is known of the messages of the script. Those of its part say nothing of the whole.
    fn messages(&self, state: &str) -> Option<Messages> {
        let is_whole = state == COMPLETED && !self.setup.resumes;
        let messages = self.ports.engine.messages()?;
        let counted = messages.counted.filter(|_| is_whole);
        (counted.is_some() || messages.together.is_some()).then_some(Messages { counted, ..messages })
    }

    /// Writes the last records: whoever still waits for a checkpoint learns that there will be none.
    fn end(&mut self, state: &str, exit_code: i32) {
        self.give_up();
        let mut events = self.desk.fail_waiting(&format!("the run ended before: {state}"));
        events.extend(self.messages(state).map(Event::Messages));
        events.push(Event::Ended { state: state.to_string(), exit_code });
        self.note(events);
    }
}
