//! Runs the events of a machine in order: arrivals, failures, repairs, and what jobs do by themselves.

use policy::Invalid;
use policy::shadow::Shadow;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::backfill::{Request, to_start};
use super::checkpointed::Checkpointed;
use super::events::{Event, Events};
use super::failures::FailureSource;
use super::job::{Job, Queue, Task, Workload};
use super::machine::Machine;
use super::outcome::Outcome;
use super::phase::{Ledger, Phase};
use super::protocol::{Period, Protocol, plan};
use super::running::{Running, World};
use super::shadowed::{Shadowed, Tasks};
use super::spares::Spares;
use crate::Error;

/// Waiting jobs that the scheduler looks at.
const BACKFILL_DEPTH: usize = 1_000;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// On which machine.
    pub machine: &'a Machine,
    /// Under which protocol.
    pub protocol: Protocol,
    /// At which period.
    pub period: Period,
    /// Which jobs.
    pub workload: &'a Workload,
    /// For how long; a queue may end before.
    pub horizon_s: f64,
}

impl Scenario<'_> {
    /// Simulates one run per seed, on all cores; the outcomes come in the order of the seeds.
    pub fn runs(&self, seeds: std::ops::Range<u64>) -> Result<Vec<Outcome>, Error> {
        seeds.into_par_iter().map(|seed| self.run(seed)).collect()
    }

    /// Simulates one run; a seed gives the same outcome everywhere.
    pub fn run(&self, seed: u64) -> Result<Outcome, Error> {
        self.machine.check()?;
        if !(self.horizon_s.is_finite() && self.horizon_s > 0.0) {
            return Err(Invalid { parameter: "horizon", value: self.horizon_s, range: "finite, > 0" }.into());
        }
        let mut engine = Engine::new(*self, seed)?;
        let end_s = engine.run()?;
        Ok(engine.finish(end_s))
    }
}

/// A running job.
struct Slot {
    run: Box<dyn Running>,
    /// Number in the queue; none for the backlog's application and tasks.
    job: Option<usize>,
    /// Nodes that work, and nodes that are taken: shadows take as many again.
    nodes: u32,
    width: u32,
    period_s: f64,
    began_s: f64,
    announced_end_s: f64,
    epoch: u64,
    instance: u64,
}

struct Engine<'a> {
    world: World<'a>,
    scenario: Scenario<'a>,
    task: Option<Task>,
    events: Events,
    failures: FailureSource,
    random: ChaCha8Rng,
    spares: Spares,
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    /// The shadow's speed before a failure is costly to find, and mostly the same as for the last task.
    last_before: Option<(Shadow, f64)>,
    /// Nodes in service that wait for a job, and those that wait for a repair.
    free: u32,
    down: u32,
    /// Free nodes and waiting jobs when the scheduler last looked: until they change it need not look again.
    scheduled: (u32, usize),
    settled_s: f64,
    instances: u64,
    own_node_s: f64,
    held_node_s: f64,
    struck: u64,
    count: u64,
}

impl<'a> Engine<'a> {
    fn new(scenario: Scenario<'a>, seed: u64) -> Result<Engine<'a>, Error> {
        let machine = scenario.machine;
        let (jobs, task) = match scenario.workload {
            Workload::Backlog(task) => (Vec::new(), Some(*task)),
            Workload::Jobs(jobs) => (jobs.clone(), None),
        };
        let mut engine = Engine {
            world: World {
                machine,
                ledger: Ledger::default(),
                queue: Queue::new(jobs),
                backlog: task.is_some(),
                lent_node_s: 0.0,
                lent: 0,
                kept: 0,
                tasks: Tasks::default(),
            },
            scenario,
            task,
            events: Events::until(scenario.horizon_s),
            failures: FailureSource::new(machine, seed)?,
            random: ChaCha8Rng::seed_from_u64(!seed),
            spares: Spares::new(machine.spares),
            slots: Vec::new(),
            vacant: Vec::new(),
            last_before: None,
            free: machine.nodes,
            down: 0,
            scheduled: (machine.nodes, 0),
            settled_s: 0.0,
            instances: 0,
            own_node_s: 0.0,
            held_node_s: 0.0,
            struck: 0,
            count: 0,
        };
        engine.next_failure()?;
        engine.refuse_wide_jobs()?;
        match engine.task {
            Some(task) => engine.start_backlog(task)?,
            None => engine.next_arrival(0),
        }
        Ok(engine)
    }

    fn refuse_wide_jobs(&self) -> Result<(), Error> {
        let nodes = self.world.machine.nodes;
        let task = self.task.filter(|_| matches!(self.scenario.protocol, Protocol::Shadow(_))).map(|t| t.nodes);
        let widths = self.world.queue.jobs.iter().map(|j| j.nodes).chain(task).map(|n| self.width(n));
        let widest = widths.max().unwrap_or(0);
        if widest > nodes {
            return Err(Invalid {
                parameter: "nodes",
                value: f64::from(nodes),
                range: "as many as the widest job needs, shadows included",
            }
            .into());
        }
        Ok(())
    }

    /// Nodes that a job on `nodes` nodes takes.
    fn width(&self, nodes: u32) -> u32 {
        match self.scenario.protocol {
            Protocol::Shadow(_) => nodes.saturating_mul(2),
            _ => nodes,
        }
    }

    fn next_failure(&mut self) -> Result<(), Error> {
        let (at_s, position) = self.failures.draw()?;
        self.events.push(at_s, Event::Failure { position });
        Ok(())
    }

    fn next_arrival(&mut self, job: usize) {
        if let Some(next) = self.world.queue.jobs.get(job) {
            self.events.push(next.submit_s, Event::Arrival { job });
        }
    }

    /// Runs until the horizon, or until the queue has ended; returns when that was.
    fn run(&mut self) -> Result<f64, Error> {
        while let Some((now_s, event)) = self.events.pop() {
            self.count += 1;
            match event {
                Event::Step { slot, epoch } => self.step(slot, epoch, now_s)?,
                Event::Failure { position } => {
                    self.next_failure()?;
                    self.fail(position, now_s);
                }
                Event::PutOff { slot, instance } => self.strike_again(slot, instance, now_s),
                Event::NodeBack => {
                    self.settle(now_s);
                    self.down -= 1;
                    self.free += 1;
                }
                Event::Arrival { job } => {
                    self.world.queue.waiting.insert(job);
                    self.next_arrival(job + 1);
                }
            }
            if !self.world.backlog {
                self.schedule(now_s)?;
                if self.world.queue.finished == self.world.queue.jobs.len() {
                    return Ok(now_s);
                }
            }
        }
        Ok(self.scenario.horizon_s)
    }

    /// Lets a job go on until something else comes first.
    fn step(&mut self, index: usize, epoch: u64, at_s: f64) -> Result<(), Error> {
        let others_s = self.events.next_s();
        // With a queue the scheduler looks after every event.
        let alone = self.world.backlog;
        let Some(slot) = self.slots[index].as_mut().filter(|s| s.epoch == epoch) else { return Ok(()) };
        let mut now_s = at_s;
        loop {
            if slot.run.step(now_s, &mut self.world) {
                return self.end(index, now_s);
            }
            let next_s = slot.run.next_s();
            if next_s > others_s || !alone {
                self.events.push(next_s, Event::Step { slot: index, epoch });
                return Ok(());
            }
            now_s = next_s;
            self.count += 1;
        }
    }

    fn end(&mut self, index: usize, now_s: f64) -> Result<(), Error> {
        self.settle(now_s);
        if let Some(slot) = self.slots[index].take() {
            self.vacant.push(index);
            self.free += slot.width;
            self.held_node_s += f64::from(slot.width) * (now_s - slot.began_s);
            match slot.job {
                Some(job) => {
                    let queue = &mut self.world.queue;
                    self.own_node_s += f64::from(queue.jobs[job].nodes) * queue.left_s[job];
                    queue.finish(job, now_s);
                }
                None => {
                    if let Some(task) = self.task {
                        self.own_node_s += f64::from(task.nodes) * task.work_s;
                        self.start(None, task.nodes, task.work_s, f64::INFINITY, now_s)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts the application without end, or as many tasks as fit.
    fn start_backlog(&mut self, task: Task) -> Result<(), Error> {
        let nodes = self.world.machine.nodes;
        if !matches!(self.scenario.protocol, Protocol::Shadow(_)) {
            return self.start(None, nodes, f64::INFINITY, f64::INFINITY, 0.0);
        }
        for _ in 0..task.fitting(nodes) {
            self.start(None, task.nodes, task.work_s, f64::INFINITY, 0.0)?;
        }
        Ok(())
    }

    fn start(&mut self, job: Option<usize>, nodes: u32, work_s: f64, limit_s: f64, now_s: f64) -> Result<(), Error> {
        self.settle(now_s);
        let machine = self.world.machine;
        let (run, period_s): (Box<dyn Running>, f64) = match self.scenario.protocol {
            Protocol::Shadow(rule) => {
                let model = rule.model(machine, nodes, work_s);
                model.check()?;
                let before =
                    self.last_before.filter(|(last, _)| *last == model).map_or_else(|| rule.before(&model), |(_, b)| b);
                self.last_before = Some((model, before));
                (Box::new(Shadowed::start(rule, model, before, nodes, now_s)), work_s)
            }
            protocol => {
                let plan = plan(machine, protocol, self.scenario.period, nodes)?;
                (Box::new(Checkpointed::start(plan, nodes, work_s, now_s, machine)), plan.period_s)
            }
        };
        let (width, instance) = (self.width(nodes), self.instances);
        self.instances += 1;
        self.free -= width;
        let next_s = run.next_s();
        let slot = Slot {
            run,
            job,
            nodes,
            width,
            period_s,
            began_s: now_s,
            announced_end_s: now_s + limit_s,
            epoch: 0,
            instance,
        };
        let index = self.vacant.pop().unwrap_or(self.slots.len());
        let epoch = instance << 32;
        let slot = Slot { epoch, ..slot };
        if index == self.slots.len() {
            self.slots.push(Some(slot));
        } else {
            self.slots[index] = Some(slot);
        }
        self.events.push(next_s, Event::Step { slot: index, epoch });
        Ok(())
    }

    /// Charges the nodes in service without a job, and the spare ones.
    fn settle(&mut self, now_s: f64) {
        let seconds = now_s - self.settled_s;
        self.settled_s = now_s;
        self.world.ledger.charge(Phase::Empty, f64::from(self.free), seconds);
        self.world.ledger.charge(Phase::Down, f64::from(self.down), seconds);
    }

    fn fail(&mut self, position: u32, now_s: f64) {
        let mut position = position;
        for index in 0..self.slots.len() {
            let Some(slot) = &self.slots[index] else { continue };
            if position < slot.width {
                self.struck += 1;
                return self.strike(index, f64::from(position) + 0.5, now_s);
            }
            position -= slot.width;
        }
        // A node without a job; one that is down already cannot fail again.
        if position < self.free {
            self.struck += 1;
            self.settle(now_s);
            self.free -= 1;
            self.down += 1;
            let back_s = self.replacement_s(now_s);
            self.events.push(back_s, Event::NodeBack);
        }
    }

    fn replacement_s(&mut self, now_s: f64) -> f64 {
        let machine = self.world.machine;
        self.spares.replace(now_s, machine.costs.down_s, machine.repair_s, &mut self.world.ledger)
    }

    fn strike(&mut self, index: usize, node: f64, now_s: f64) {
        let overlap = self.world.machine.overlap;
        let Some(slot) = self.slots[index].as_ref() else { return };
        if let Some(until_s) = slot.run.recovers_until_s().filter(|_| !overlap) {
            // A period is the time in which the state recurs: anywhere in it is as likely as anywhere else.
            let (share, period_s, instance): (f64, _, _) = (self.random.random(), slot.period_s, slot.instance);
            self.events.push(until_s + share * period_s, Event::PutOff { slot: index, instance });
            return;
        }
        let ready_s = self.replacement_s(now_s);
        if let Some(slot) = self.slots[index].as_mut() {
            slot.run.strike(node, now_s, ready_s, &mut self.world);
            slot.epoch += 1;
            let (next_s, epoch) = (slot.run.next_s(), slot.epoch);
            self.events.push(next_s, Event::Step { slot: index, epoch });
        }
    }

    fn strike_again(&mut self, index: usize, instance: u64, now_s: f64) {
        if let Some(slot) = self.slots[index].as_ref().filter(|s| s.instance == instance) {
            let node = self.random.random_range(0.0..f64::from(slot.width));
            self.strike(index, node, now_s);
        }
    }

    fn schedule(&mut self, now_s: f64) -> Result<(), Error> {
        if self.scheduled == (self.free, self.world.queue.waiting.len()) {
            return Ok(());
        }
        let queue = &self.world.queue;
        let request = |job: &usize| {
            let Job { nodes, limit_s, .. } = queue.jobs[*job];
            Request { job: *job, nodes: self.width(nodes), limit_s }
        };
        let waiting: Vec<Request> = queue.waiting.iter().take(BACKFILL_DEPTH).map(request).collect();
        let running: Vec<(f64, u32)> =
            self.slots.iter().flatten().map(|s| (s.announced_end_s.max(now_s), s.width)).collect();
        for job in to_start(now_s, self.free, &waiting, &running) {
            self.world.queue.begin(job, now_s);
            let (nodes, limit_s) = (self.world.queue.jobs[job].nodes, self.world.queue.jobs[job].limit_s);
            self.start(Some(job), nodes, self.world.queue.left_s[job], limit_s, now_s)?;
        }
        self.scheduled = (self.free, self.world.queue.waiting.len());
        Ok(())
    }

    /// Ends the accounting.
    fn finish(mut self, end_s: f64) -> Outcome {
        self.settle(end_s);
        for mut slot in std::mem::take(&mut self.slots).into_iter().flatten() {
            slot.run.close(end_s, &mut self.world);
            self.own_node_s += f64::from(slot.nodes) * slot.run.done_s();
            self.held_node_s += f64::from(slot.width) * (end_s - slot.began_s);
        }
        self.spares.settle(end_s, &mut self.world.ledger);
        let World { machine, ledger, queue, lent_node_s, lent, kept, tasks, .. } = self.world;
        let (wait_s, slowdown) = queue.wait_and_slowdown();
        Outcome {
            elapsed_s: end_s,
            nodes: machine.nodes + machine.spares,
            energy_j: ledger.total_j(&machine.watts),
            ledger,
            own_node_s: self.own_node_s,
            lent_node_s,
            held_node_s: self.held_node_s,
            failures: self.struck,
            lent,
            kept,
            finished: queue.finished,
            unfinished: queue.jobs.len() - queue.finished,
            wait_s,
            slowdown,
            tasks,
            events: self.count,
        }
    }
}
