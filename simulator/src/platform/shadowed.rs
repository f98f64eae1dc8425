//! Runs a task under shadow replication: a main process, and a slower shadow that takes over when it fails (Mills).

use policy::shadow::Shadow;

use super::phase::Phase;
use super::protocol::Shadowing;
use super::running::{Running, World};

/// A task in progress, on as many nodes for the shadow as for the main process.
pub(super) struct Shadowed {
    rule: Shadowing,
    model: Shadow,
    nodes: f64,
    before: f64,
    deadline_s: f64,
    began_s: f64,
    since_s: f64,
    state: State,
    /// Speed squared times seconds, per node: Mills's energy.
    energy: f64,
}

enum State {
    /// Both run.
    Both,
    /// The shadow has failed.
    MainAlone,
    /// The main process has failed.
    ShadowAlone { speed: f64, end_s: f64 },
    /// Both have failed, and the task begins anew.
    Waiting { ready_s: f64 },
}

/// What became of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tasks {
    /// Tasks that ended.
    pub done: u64,
    /// Those that ended after the response time promised.
    pub missed: u64,
    /// Their energy in Mills's unit, speed squared times seconds, per main process.
    pub energy: f64,
}

impl Shadowed {
    pub(super) fn start(rule: Shadowing, model: Shadow, before: f64, nodes: u32, now_s: f64) -> Shadowed {
        Shadowed {
            rule,
            model,
            nodes: f64::from(nodes),
            before,
            deadline_s: now_s + model.response_s(),
            began_s: now_s,
            since_s: now_s,
            state: State::Both,
            energy: 0.0,
        }
    }

    fn settle(&mut self, now_s: f64, world: &mut World<'_>) {
        let seconds = now_s - self.since_s;
        self.since_s = now_s;
        let main = Some((Phase::Compute, self.rule.speed));
        let (one, other) = match self.state {
            State::Both => (main, Some((Phase::Shadow, self.before))),
            State::MainAlone => (main, None),
            State::ShadowAlone { speed, .. } => (None, Some((Phase::Shadow, speed))),
            State::Waiting { .. } => (None, None),
        };
        for process in [one, other] {
            match process {
                Some((phase, speed)) => {
                    world.ledger.charge_at_speed(phase, self.nodes, seconds, speed);
                    self.energy += speed * speed * seconds;
                }
                None => world.ledger.charge(Phase::Down, self.nodes, seconds),
            }
        }
    }
}

impl Running for Shadowed {
    fn next_s(&self) -> f64 {
        match self.state {
            State::Both | State::MainAlone => self.began_s + self.model.completion_s(),
            State::ShadowAlone { end_s, .. } => end_s,
            State::Waiting { ready_s } => ready_s,
        }
    }

    fn step(&mut self, now_s: f64, world: &mut World<'_>) -> bool {
        self.settle(now_s, world);
        if let State::Waiting { .. } = self.state {
            self.began_s = now_s;
            self.state = State::Both;
            return false;
        }
        world.tasks.done += 1;
        world.tasks.missed += u64::from(now_s > self.deadline_s * (1.0 + 1e-12) + 1e-6);
        world.tasks.energy += self.energy;
        true
    }

    /// Its node `node` fails: the first half are the main process's. Without overlap a shadow never fails, and
    /// nothing fails after the main process has.
    fn strike(&mut self, node: f64, now_s: f64, ready_s: f64, world: &mut World<'_>) {
        let main = node < self.nodes;
        self.settle(now_s, world);
        match self.state {
            State::Both if main => {
                let failure_s = now_s - self.began_s;
                let (speed, needed_s) = self.rule.after(&self.model, self.before, failure_s);
                self.state = State::ShadowAlone { speed, end_s: now_s + needed_s };
            }
            State::Both if world.machine.overlap => self.state = State::MainAlone,
            State::MainAlone if main => self.state = State::Waiting { ready_s },
            State::ShadowAlone { .. } if !main => self.state = State::Waiting { ready_s },
            _ => {}
        }
    }

    fn close(&mut self, now_s: f64, world: &mut World<'_>) {
        self.settle(now_s, world);
    }

    fn done_s(&self) -> f64 {
        let elapsed_s = self.since_s - self.began_s;
        match self.state {
            State::Both | State::MainAlone => self.rule.speed * elapsed_s,
            State::ShadowAlone { speed, end_s } => self.model.work - speed * (end_s - self.since_s),
            State::Waiting { .. } => 0.0,
        }
    }

    fn recovers_until_s(&self) -> Option<f64> {
        (!matches!(self.state, State::Both)).then(|| self.next_s())
    }
}
