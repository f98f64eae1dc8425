//! How the script of a run of groups ends: by itself, or because somebody wants it.

use super::run::Groups;
use super::under_way::Then;
use crate::ports::{CANCELLED, Happening};
use crate::setup::{AskedToEnd, COMPLETED, DOUBTED, FAILED, LEAVE_LIMIT_S, Outcome, asked_to_end, ended_as, failure};
use protocol::FailureKind;

impl Groups<'_> {
    /// The script has ended.
    pub(super) fn exited(&mut self, code: i32) -> Outcome {
        if self.ports.clock.now_s() < self.counts_from_s {
            protocol::say!("joulepoint: {DOUBTED}");
        }
        if let Some(outcome) = self.ended_in_doubt(code) {
            return outcome;
        }
        for (node, at_s) in self.ports.cluster.dead_nodes() {
            self.note_lost(&node, at_s);
        }
        if code != 0
            && let Some(cause) = self.ports.cluster.cause()
        {
            return self.terminated(cause, Some(code));
        }
        self.ports.lending.stop();
        self.ports.relays.stop();
        // What it left running would go on without anybody to protect it.
        self.ports.child.stop();
        self.leave(if code == 0 { COMPLETED } else { FAILED }, code)
    }

    /// Waits until the end of the script counts; how the run ends, if that is known before.
    fn ended_in_doubt(&mut self, code: i32) -> Option<Outcome> {
        while self.ports.clock.now_s() < self.counts_from_s {
            // Its program is over with it: of that nothing is heard any more.
            match self.ports.clock.wait(self.counts_from_s) {
                Some(Happening::Terminate) => {
                    return self.asked_to_end(Some(code)).or_else(|| self.ended_in_doubt(code));
                }
                Some(Happening::Superseded) => {
                    self.is_superseded = true;
                    return Some(Outcome::Superseded);
                }
                _ => {}
            }
        }
        None
    }

    /// SIGTERM has come. None if the script has got it, and the run goes on. The script may have ended, with this code.
    pub(super) fn asked_to_end(&mut self, exited: Option<i32>) -> Option<Outcome> {
        match asked_to_end(&mut *self.ports.cluster, self.setup, self.started_s, self.ports.clock.now_s()) {
            AskedToEnd::ByMistake(reason) => {
                self.decided("requeue", reason);
                self.give_all_up(reason);
                Some(self.requeue(&Then::Vacate { kind: FailureKind::Requeued, reason: reason.to_string() }))
            }
            AskedToEnd::Signal { counts_from_s } => {
                self.ports.child.pass_term_on();
                self.counts_from_s = self.counts_from_s.max(counts_from_s);
                None
            }
            AskedToEnd::Because(kind) => Some(self.terminated(kind, exited)),
            AskedToEnd::Unsure(kind) => {
                self.ports.child.pass_term_on();
                Some(self.terminated(kind, exited))
            }
        }
    }

    /// Slurm or a person ends the job: write down why, let the script leave, if it has not ended with this code.
    fn terminated(&mut self, kind: FailureKind, exited: Option<i32>) -> Outcome {
        let kind = self.desk.cause(kind);
        self.give_all_up("the job is ended from outside");
        self.ports.lending.stop();
        self.ports.relays.stop();
        let now_s = self.ports.clock.now_s();
        // What the groups do until the script has left they would do without us.
        self.phase_all();
        self.cut_all(None);
        let reason = format!("the job is ended from outside: {}", kind.as_str());
        self.note(vec![failure(kind, None, now_s, now_s, &reason)]);
        self.ports.child.terminate();
        let mut limit_s = now_s + LEAVE_LIMIT_S;
        let code = loop {
            if let Some(code) = exited {
                break code;
            }
            match self.ports.clock.wait(limit_s) {
                Some(Happening::Exited { code }) => break code,
                Some(Happening::Ordered(order)) => {
                    let answer = self.desk.hear(order, self.on_demand());
                    self.note(answer.into_iter().collect());
                }
                Some(Happening::Superseded) => self.is_superseded = true,
                Some(_) => {}
                // Nobody has ended it, after all.
                None if self.ports.child.runs() && self.ports.cluster.runs_on() => limit_s += LEAVE_LIMIT_S,
                None => break CANCELLED,
            }
        };
        self.leave(ended_as(kind), code)
    }
}
