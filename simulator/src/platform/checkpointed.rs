//! Runs a job under coordinated or uncoordinated checkpoints: computing, checkpointing, recovering.

use super::machine::Machine;
use super::phase::{Ledger, Phase};
use super::protocol::Plan;
use super::recovery::Recovery;
use super::running::{Running, World};

/// What does not change while a job runs.
pub(super) struct Protected {
    pub(super) plan: Plan,
    pub(super) nodes: f64,
    pub(super) group_nodes: f64,
    /// Work to do; infinite for the backlog's application.
    work_s: f64,
    /// Work speed during a checkpoint.
    slow: f64,
    /// Work from one recovery line to the start of the next checkpoint.
    stride_s: f64,
    /// Speed of re-execution; rolled back jobs compute again as they did.
    replay: f64,
}

/// A job in progress. Progress is counted in seconds of work at full speed.
pub(super) struct Checkpointed {
    job: Protected,
    done_s: f64,
    /// Progress in the last complete checkpoint.
    saved_s: f64,
    /// Progress in the checkpoint being written.
    captured_s: f64,
    /// The furthest that it has come.
    peak_s: f64,
    since_s: f64,
    state: State,
}

enum State {
    Computing,
    Checkpointing {
        left_s: f64,
    },
    /// A checkpoint that a failure interrupted is carried on afterwards.
    Recovering {
        recovery: Recovery,
        checkpoint_left_s: Option<f64>,
    },
}

impl Protected {
    pub(super) fn group_of(&self, node: f64) -> u32 {
        ((node / self.group_nodes) as u32).min(self.plan.groups - 1)
    }
}

impl Checkpointed {
    pub(super) fn start(plan: Plan, nodes: u32, work_s: f64, now_s: f64, machine: &Machine) -> Checkpointed {
        let alpha = machine.costs.alpha;
        let nodes = f64::from(nodes);
        let job = Protected {
            plan,
            nodes,
            group_nodes: nodes / f64::from(plan.groups),
            work_s,
            slow: alpha * plan.lambda,
            stride_s: plan.lambda * (plan.period_s - (1.0 - alpha) * plan.checkpoint_s),
            replay: machine.costs.rho * plan.lambda,
        };
        Checkpointed {
            job,
            done_s: 0.0,
            saved_s: 0.0,
            captured_s: 0.0,
            peak_s: 0.0,
            since_s: now_s,
            state: State::Computing,
        }
    }

    /// Where computing stops: at the next checkpoint, or at the end.
    fn target_s(&self) -> f64 {
        (self.saved_s + self.job.stride_s).min(self.job.work_s)
    }

    /// How long a checkpoint goes on: it ends with the work.
    fn checkpointing_s(&self, left_s: f64) -> f64 {
        let work_left_s = self.job.work_s - self.done_s;
        if work_left_s > self.job.slow * left_s { left_s } else { (work_left_s / self.job.slow).min(left_s) }
    }

    /// Charges what went on since the last event.
    fn settle(&mut self, now_s: f64, ledger: &mut Ledger) {
        let (nodes, lambda) = (self.job.nodes, self.job.plan.lambda);
        let seconds = now_s - self.since_s;
        self.since_s = now_s;
        match &mut self.state {
            State::Computing => {
                let mut again_s = 0.0;
                if self.peak_s > self.done_s {
                    again_s = ((self.peak_s - self.done_s) / lambda).min(seconds);
                    ledger.charge(Phase::Reexecution, nodes, again_s);
                }
                ledger.charge(Phase::Compute, nodes, (seconds - again_s) * lambda);
                ledger.charge(Phase::Logging, nodes, (seconds - again_s) * (1.0 - lambda));
                self.done_s += seconds * lambda;
            }
            State::Checkpointing { left_s } => {
                ledger.charge(Phase::Checkpoint, nodes, seconds);
                *left_s -= seconds;
                self.done_s += seconds * self.job.slow;
            }
            State::Recovering { .. } => {}
        }
    }

    fn resume(&mut self, now_s: f64, world: &mut World<'_>) {
        if let State::Recovering { recovery, checkpoint_left_s } = &mut self.state {
            recovery.close(&self.job, now_s, world);
            self.state = match *checkpoint_left_s {
                Some(left_s) => State::Checkpointing { left_s },
                None => State::Computing,
            };
            self.since_s = now_s;
        }
    }
}

impl Running for Checkpointed {
    fn next_s(&self) -> f64 {
        match &self.state {
            State::Computing => self.since_s + (self.target_s() - self.done_s).max(0.0) / self.job.plan.lambda,
            State::Checkpointing { left_s } => self.since_s + self.checkpointing_s(*left_s),
            State::Recovering { recovery, .. } => recovery.resume_s,
        }
    }

    fn step(&mut self, now_s: f64, world: &mut World<'_>) -> bool {
        match &self.state {
            State::Computing => {
                let target_s = self.target_s();
                self.settle(now_s, &mut world.ledger);
                self.done_s = target_s;
                self.captured_s = target_s;
                self.state = State::Checkpointing { left_s: self.job.plan.checkpoint_s };
            }
            State::Checkpointing { left_s } => {
                let ends = self.checkpointing_s(*left_s) < *left_s;
                self.settle(now_s, &mut world.ledger);
                self.saved_s = self.captured_s;
                self.done_s = if ends { self.job.work_s } else { self.done_s };
                self.state = State::Computing;
            }
            State::Recovering { .. } => self.resume(now_s, world),
        }
        self.done_s >= self.job.work_s
    }

    fn strike(&mut self, node: f64, now_s: f64, ready_s: f64, world: &mut World<'_>) {
        if let State::Recovering { recovery, .. } = &mut self.state {
            recovery.strike(&self.job, node, now_s, ready_s, world);
            return;
        }
        self.settle(now_s, &mut world.ledger);
        let lost_s = self.done_s - self.saved_s;
        let (reexecution_s, checkpoint_left_s) = if self.job.plan.rolls_back {
            self.peak_s = self.peak_s.max(self.done_s);
            self.done_s = self.saved_s;
            (0.0, None)
        } else {
            let left_s = match self.state {
                State::Checkpointing { left_s } => Some(left_s),
                _ => None,
            };
            (lost_s / self.job.replay, left_s)
        };
        let group = self.job.group_of(node);
        let recovery = Recovery::begin(&self.job, group, now_s, ready_s, reexecution_s, world);
        self.state = State::Recovering { recovery, checkpoint_left_s };
    }

    fn close(&mut self, now_s: f64, world: &mut World<'_>) {
        self.settle(now_s, &mut world.ledger);
        self.resume(now_s, world);
    }

    fn done_s(&self) -> f64 {
        self.done_s
    }

    fn recovers_until_s(&self) -> Option<f64> {
        match &self.state {
            State::Recovering { recovery, .. } => Some(recovery.resume_s),
            _ => None,
        }
    }
}
