//! A simulated cluster: controller, slurmctld, nodes and runs, driven in steps of simulated time.

use crate::net::{Host, Net};
use crate::node::{Generation, Node, Program, REST_S};
use protocol::{Held, Incarnation, Seen, Testimony};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use watch::lease::{Action as LeaseAction, Word};
use watch::nodes::{Action, Heard, Known};
use watch::set_down::{Fate, JobOn, judge};
use watch::{Limits, Nodes, Released, SetDowns};

/// Time between two moments, s.
pub const STEP_S: f64 = 0.1;
pub const LIMITS: Limits = Limits { detect_s: 3.0, freeze_s: 5.0, lease_s: 8.0, set_down_per_minute: 10 };

/// A message, or something that takes its time.
#[derive(Clone, Debug)]
enum Message {
    Beat { node: usize, heard: Heard, sent_s: f64, back_s: f64, service: (u32, f64) },
    Answer { node: usize, word: Word, sent_s: f64, pause_s: f64, boot: u32 },
    Wake { node: usize },
    Ask { node: usize, witness: usize, epoch: u64, sent_s: f64, back_s: f64 },
    Grant { node: usize, witness: usize, epoch: u64, sent_s: f64, boot: u32 },
    Looked { node: String, epoch: u64, here: Seen, testimonies: BTreeMap<String, Testimony>, life: u32 },
    Froze { node: usize, of: Incarnation, boot: u32 },
}

/// Where a run's job is.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    Running,
    /// In the queue, until a moment, s.
    Queued {
        from_s: f64,
    },
    /// It has nodes, and waits until nothing of it goes on elsewhere.
    Waiting,
    Done,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    pub of: Incarnation,
    pub number: u32,
    pub job: Job,
    pub nodes: Vec<usize>,
    /// Nodes that earlier generations had, with the life that they had there.
    pub former: BTreeSet<(usize, Incarnation)>,
    /// With a spare, a loss of another node than the first is mended in place.
    pub in_place: bool,
    pub left_s: f64,
    /// When its program was started last, s.
    pub started_s: f64,
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub detections_s: Vec<f64>,
    pub set_down: u32,
    pub set_down_s: Vec<f64>,
    pub frozen: u32,
}

/// The cluster.
pub struct World {
    pub seed: u64,
    pub rng: ChaCha8Rng,
    pub now_s: f64,
    pub net: Net,
    pub nodes: Vec<Node>,
    pub runs: Vec<Run>,
    pub controller: Option<(Nodes, SetDowns)>,
    /// Lives of the controller, so that late answers to an earlier one are told apart.
    life: u32,
    /// What the controller has on disk.
    kept: BTreeMap<String, Known>,
    kept_down: BTreeSet<String>,
    mail: Vec<(f64, Message)>,
    /// Since when slurmctld does not reach each slurmd, s.
    missing_s: Vec<Option<f64>>,
    pub slurm_down: BTreeSet<usize>,
    slurmd_timeout_s: f64,
    died_s: BTreeMap<usize, f64>,
    /// Part of the orders to Slurm that fail.
    pub failing: f64,
    /// Part of what the controller cannot write to its disk.
    pub forgetting: f64,
    /// Whether slurmctld is killed before it has written that the next node is down.
    pub slurm_forgets: bool,
    pub tally: Tally,
    pub history: Vec<String>,
}

pub fn name(node: usize) -> String {
    format!("n{node:02}")
}

fn number(name: &str) -> usize {
    name[1..].parse().expect("a number")
}

impl World {
    pub fn new(seed: u64, nodes: usize, runs: usize) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes: Vec<Node> = (0..nodes).map(|_| Node::new(rng.random_range(0.0..1.0))).collect();
        let slurmd_timeout_s = [60.0, 300.0][rng.random_range(0..2)];
        let mut world = World {
            seed,
            now_s: 0.0,
            net: Net::default(),
            missing_s: vec![None; nodes.len()],
            nodes,
            runs: Vec::new(),
            controller: None,
            life: 0,
            kept: BTreeMap::new(),
            kept_down: BTreeSet::new(),
            mail: Vec::new(),
            slurm_down: BTreeSet::new(),
            slurmd_timeout_s,
            died_s: BTreeMap::new(),
            failing: 0.0,
            forgetting: 0.0,
            slurm_forgets: false,
            tally: Tally::default(),
            history: Vec::new(),
            rng,
        };
        for job in 1..=runs as u32 {
            let left_s = world.rng.random_range(30.0..300.0);
            world.runs.push(Run {
                of: Incarnation { job, restart_count: 0 },
                number: 0,
                job: Job::Queued { from_s: 3.0 },
                nodes: Vec::new(),
                former: BTreeSet::new(),
                in_place: world.rng.random_bool(0.4),
                left_s,
                started_s: 0.0,
            });
        }
        world.start_controller();
        world
    }

    /// Hosts of the controller service and of slurmctld.
    pub fn controller_host(&self) -> Host {
        self.nodes.len()
    }

    pub fn slurm_host(&self) -> Host {
        self.nodes.len() + 1
    }

    /// Nothing passes between a host and the nodes.
    pub fn cut_from_nodes(&mut self, host: Host) {
        (0..self.nodes.len()).for_each(|node| self.net.cut_both(host, node));
    }

    /// Nor between any host and the nodes, as without a switch.
    pub fn cut_all(&mut self) {
        (0..self.nodes.len() + 2).for_each(|host| self.cut_from_nodes(host));
    }

    pub fn note(&mut self, text: String) {
        self.history.push(format!("{:7.1} {text}", self.now_s));
    }

    pub fn start_controller(&mut self) {
        self.life += 1;
        let nodes = Nodes::new(LIMITS, self.now_s, self.kept.clone()).resting(REST_S);
        self.controller = Some((nodes, SetDowns::new(self.kept_down.iter().cloned())));
    }

    fn send(&mut self, after_s: f64, message: Message) {
        self.mail.push((self.now_s + after_s, message));
    }

    /// One moment.
    pub fn step(&mut self) {
        self.now_s += STEP_S;
        self.deliver();
        for node in 0..self.nodes.len() {
            self.step_node(node);
        }
        self.step_controller();
        self.step_slurm();
        self.step_runs();
        self.check();
    }

    fn deliver(&mut self) {
        let now_s = self.now_s;
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.mail).into_iter().partition(|(at, _)| *at <= now_s);
        self.mail = later;
        due.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, message) in due {
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        let now_s = self.now_s;
        match message {
            Message::Beat { node, heard, sent_s, back_s, service } => {
                let Some((nodes, _)) = &mut self.controller else { return };
                let pause_s = heard.pause_s;
                let actions = nodes.heard(now_s, heard);
                let word = nodes.word(now_s, &name(node));
                let is_kept = self.keep(&name(node));
                self.act(actions);
                if is_kept && service == (self.nodes[node].boot, self.nodes[node].service_from_s) {
                    self.send(back_s, Message::Answer { node, word, sent_s, pause_s, boot: service.0 });
                }
            }
            Message::Wake { node } => self.nodes[node].wake(now_s),
            Message::Answer { node, word, sent_s, pause_s, boot } => {
                let n = &mut self.nodes[node];
                if n.boot == boot && n.service_is_up(now_s) {
                    n.witness.controller_answered();
                    let is_idle = word.held.is_empty() && word.ended.is_empty();
                    let actions = n.lease.answered(sent_s, word);
                    if is_idle {
                        n.may_rest(sent_s, pause_s);
                    }
                    self.act_on_node(node, actions);
                }
            }
            Message::Ask { node, witness, epoch, sent_s, back_s } => {
                let boot = self.nodes[node].boot;
                let w = &mut self.nodes[witness];
                if w.service_is_up(now_s) && w.witness.grant(now_s, &name(node), epoch).is_ok() {
                    self.send(back_s, Message::Grant { node, witness, epoch, sent_s, boot });
                }
            }
            Message::Grant { node, witness, epoch, sent_s, boot } => {
                let n = &mut self.nodes[node];
                if n.boot == boot && n.service_is_up(now_s) {
                    n.lease.granted(sent_s, &name(witness), epoch);
                }
            }
            Message::Looked { node, epoch, here, testimonies, life } if life == self.life => {
                let Some((nodes, _)) = &mut self.controller else { return };
                let actions = nodes.looked(now_s, &node, epoch, here, &testimonies);
                self.act(actions);
            }
            Message::Looked { .. } => {}
            Message::Froze { node, of, boot } => {
                let n = &mut self.nodes[node];
                let is_still = n
                    .lease
                    .held()
                    .any(|(held, state)| held == of && matches!(state, watch::lease::State::Frozen { .. }));
                if n.boot == boot && is_still {
                    n.set(of, Program::Frozen);
                }
            }
        }
    }

    fn step_node(&mut self, node: usize) {
        let (now_s, controller) = (self.now_s, self.controller_host());
        if !self.nodes[node].service_is_up(now_s) {
            return;
        }
        if let Some(pause_s) = self.nodes[node].beats(now_s) {
            let n = &self.nodes[node];
            let heard = Heard {
                node: name(node),
                boot_id: format!("boot{}", n.boot),
                slurmd_up: n.slurmd_is_up,
                epoch: Some(n.lease.epoch()),
                jobs: n.programs.keys().map(|g| g.of.job).collect(),
                pause_s,
                up_s: None,
            };
            let service = (n.boot, n.service_from_s);
            if let Some((there_s, back_s)) = self.net.exchange(&mut self.rng, node, controller) {
                self.send(there_s, Message::Beat { node, heard, sent_s: now_s, back_s, service });
            }
        }
        let n = &mut self.nodes[node];
        let gone: Vec<Incarnation> = n
            .lease
            .held()
            .filter(|(of, state)| *state == watch::lease::State::Ending && !n.programs.keys().any(|g| g.of == *of))
            .map(|(of, _)| of)
            .collect();
        gone.into_iter().for_each(|of| n.lease.gone(of));
        let actions = n.lease.look(now_s, &LIMITS);
        self.act_on_node(node, actions);
    }

    fn act_on_node(&mut self, node: usize, actions: Vec<LeaseAction>) {
        let boot = self.nodes[node].boot;
        for action in actions {
            match action {
                LeaseAction::Freeze { of, .. } => {
                    let after_s = self.rng.random_range(0.0..1.0);
                    self.send(after_s, Message::Froze { node, of, boot });
                    self.tally.frozen += 1;
                }
                LeaseAction::Thaw(of) => self.nodes[node].set(of, Program::Running),
                LeaseAction::End(of) => self.nodes[node].end(of),
                LeaseAction::Ask { witnesses, epoch } => {
                    for witness in witnesses.iter().map(|w| number(w)) {
                        if let Some((there_s, back_s)) = self.net.exchange(&mut self.rng, node, witness) {
                            let sent_s = self.now_s;
                            self.send(there_s, Message::Ask { node, witness, epoch, sent_s, back_s });
                        }
                    }
                }
            }
        }
    }

    /// What somebody on a host sees of a node.
    fn see(&mut self, from: Host, node: usize) -> Seen {
        let mut answers = |is_up: bool| is_up && self.net.exchange(&mut self.rng, from, node).is_some();
        let n = &self.nodes[node];
        Seen { service: answers(n.service_is_up(self.now_s)), slurmd: answers(n.has_slurmd()), host: answers(n.is_on) }
    }

    fn step_controller(&mut self) {
        let now_s = self.now_s;
        let Some((nodes, _)) = &mut self.controller else { return };
        let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
        for run in self.runs.iter().filter(|r| matches!(r.job, Job::Running | Job::Waiting)) {
            for node in &run.nodes {
                held.entry(name(*node)).or_default().push(Held {
                    job: run.of.job,
                    restart_count: run.of.restart_count,
                    cpus: 1,
                });
            }
        }
        nodes.set_held(held);
        nodes.set_out(&self.slurm_down.iter().map(|n| name(*n)).collect());
        let actions = nodes.look(now_s);
        self.act(actions);
        self.set_down();
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Wake { node } => {
                    let (node, from) = (number(&node), self.controller_host());
                    if let Some((there_s, _)) = self.net.exchange(&mut self.rng, from, node) {
                        self.send(there_s, Message::Wake { node });
                    }
                }
                Action::Forget { node } => drop(self.kept.remove(&node)),
                Action::Look { node, epoch, witnesses, ended } => {
                    if self.keep(&node) {
                        self.look_at(node, epoch, &witnesses, &ended);
                    }
                }
                Action::Dead { node, silent_s } => {
                    self.note(format!("{node} is dead, silent for {silent_s:.1} s"));
                    if let Some(died_s) = self.died_s.get(&number(&node)) {
                        self.tally.detections_s.push(self.now_s - died_s);
                    }
                    if let Some((_, downs)) = &mut self.controller {
                        downs.want(self.now_s, &node);
                    }
                }
                Action::StillDead { node } => {
                    self.note(format!("{node} is still dead"));
                    if let Some((_, downs)) = &mut self.controller {
                        downs.want(self.now_s, &node);
                    }
                }
                Action::Rebooted { node, .. } => self.note(format!("{node} has booted")),
                Action::Back { node } => {
                    self.note(format!("{node} is back"));
                    let is_down = self.controller.as_mut().is_some_and(|(_, downs)| downs.back(&node));
                    if is_down && let Some((_, downs)) = &mut self.controller {
                        downs.forget(&node);
                        self.kept_down.remove(&node);
                        self.slurm_down.remove(&number(&node));
                    }
                }
            }
        }
    }

    /// Writes down what is known of a node, unless that fails; whether it is written.
    fn keep(&mut self, node: &str) -> bool {
        let fails = self.rng.random_bool(self.forgetting);
        let Some((nodes, _)) = &mut self.controller else { return false };
        if let Some(known) = nodes.known(node).cloned().filter(|_| nodes.is_unkept(node) && !fails) {
            self.kept.insert(node.to_string(), known.clone());
            nodes.kept(node, known);
        }
        !nodes.is_unkept(node)
    }

    /// The controller looks, and asks the witnesses, who look themselves.
    fn look_at(&mut self, node: String, epoch: u64, witnesses: &BTreeSet<String>, ended: &BTreeSet<Incarnation>) {
        let (of, from, life) = (number(&node), self.controller_host(), self.life);
        let here = self.see(from, of);
        let mut testimonies = BTreeMap::new();
        for witness in witnesses {
            let w = number(witness);
            if !self.nodes[w].service_is_up(self.now_s) || self.net.exchange(&mut self.rng, from, w).is_none() {
                continue;
            }
            let seen = self.see(w, of);
            let mut testimony = self.nodes[w].witness.testify(self.now_s, &node, epoch, seen);
            if seen.service {
                ended.iter().for_each(|incarnation| self.nodes[of].end(*incarnation));
                testimony.ended.clone_from(ended);
            }
            testimonies.insert(witness.clone(), testimony);
        }
        let after_s = self.rng.random_range(0.01..1.2);
        // The age of a grant is told when the testimony arrives, which is later: the world is as pessimistic as that.
        self.send(after_s, Message::Looked { node, epoch, here, testimonies, life });
    }

    fn set_down(&mut self) {
        let now_s = self.now_s;
        let holds = |r: &&Run| matches!(r.job, Job::Running | Job::Waiting);
        let ours: BTreeSet<usize> = self.runs.iter().filter(holds).flat_map(|r| r.nodes.clone()).collect();
        if let Some((nodes, downs)) = &mut self.controller {
            let mut forgotten = downs.to_compare(now_s);
            forgotten
                .retain(|n| nodes.is_dead(n) && ours.contains(&number(n)) && !self.slurm_down.contains(&number(n)));
            forgotten.iter().for_each(|node| downs.want(now_s, node));
        }
        let due = |(_, downs): &mut (_, SetDowns)| downs.due(now_s, &LIMITS, |node| ours.contains(&number(node)));
        let (due, mut room) = self.controller.as_mut().map(due).unwrap_or_default();
        for node in due {
            let of = number(&node);
            let mut jobs: Vec<JobOn> = Vec::new();
            for run in self.runs.iter().filter(|r| holds(r) && r.nodes.contains(&of)) {
                jobs.push(JobOn { job: run.of.job, fate: Fate::Recovers });
            }
            if self.nodes[of].bystander {
                jobs.push(JobOn { job: 1000, fate: Fate::Unprotected });
            }
            let fails = self.rng.random_bool(self.failing);
            let (controller, slurm) = (self.controller_host(), self.slurm_host());
            let is_heard = !fails && self.net.exchange(&mut self.rng, controller, slurm).is_some();
            let Some((_, downs)) = &mut self.controller else { return };
            match judge(&jobs, false) {
                Err(why) => drop(downs.left_to_slurm(now_s, &node, why)),
                Ok(()) if !is_heard => downs.failed(now_s, &node),
                Ok(()) if room == 0 => {}
                Ok(()) => {
                    room -= 1;
                    downs.done(now_s, &node);
                    self.kept_down.insert(node.clone());
                    assert!(!self.nodes[of].bystander, "seed {}: {node} has a job that is not ours", self.seed);
                    self.tally.set_down += 1;
                    self.tally.set_down_s.push(now_s);
                    self.note(format!("{node} is set down"));
                    if !std::mem::take(&mut self.slurm_forgets) {
                        self.take_out(of);
                    }
                }
            }
        }
    }

    /// Slurm takes a node out of service: its jobs go back to the queue, or go on without it.
    fn take_out(&mut self, node: usize) {
        self.slurm_down.insert(node);
        self.nodes[node].bystander = false;
        for i in 0..self.runs.len() {
            let run = &self.runs[i];
            let holds = matches!(run.job, Job::Running | Job::Waiting) && run.nodes.contains(&node);
            if holds {
                let in_place = run.in_place && run.nodes.len() > 2 && run.nodes[0] != node;
                self.lose(i, node, in_place);
            }
        }
    }

    /// A run loses a node: whatever runs of it and can be reached by Slurm ends; it begins again when it may.
    pub fn lose(&mut self, i: usize, node: usize, in_place: bool) {
        let (of, nodes) = (self.runs[i].of, self.runs[i].nodes.clone());
        let slurm = self.slurm_host();
        for n in &nodes {
            if self.nodes[*n].has_slurmd() && self.net.exchange(&mut self.rng, slurm, *n).is_some() {
                self.nodes[*n].end(of);
            }
        }
        let delay_s = self.rng.random_range(2.0..4.0);
        let run = &mut self.runs[i];
        if in_place {
            // Those that stay are the driver's to end.
            run.former.insert((node, of));
            run.nodes.retain(|n| *n != node);
            run.job = Job::Waiting;
        } else {
            run.former.extend(nodes.iter().map(|n| (*n, of)));
            run.of.restart_count += 1;
            run.nodes.clear();
            run.job = Job::Queued { from_s: self.now_s + delay_s };
        }
        let text = format!("job {} lost {}, in place: {in_place}", of.job, name(node));
        self.note(text);
    }

    fn step_slurm(&mut self) {
        let slurm = self.slurm_host();
        for node in 0..self.nodes.len() {
            let reached = self.nodes[node].has_slurmd() && self.net.exchange(&mut self.rng, slurm, node).is_some();
            if reached {
                self.missing_s[node] = None;
                if self.slurm_down.contains(&node) && !self.kept_down.contains(&name(node)) {
                    self.slurm_down.remove(&node);
                }
                continue;
            }
            let since_s = *self.missing_s[node].get_or_insert(self.now_s);
            if self.now_s - since_s > self.slurmd_timeout_s && !self.slurm_down.contains(&node) {
                self.note(format!("Slurm sets {} down", name(node)));
                self.take_out(node);
            }
        }
        for i in 0..self.runs.len() {
            let Job::Queued { from_s } = self.runs[i].job else { continue };
            if self.now_s < from_s {
                continue;
            }
            let wanted = if self.runs[i].in_place { 3 } else { 1 + i % 3 };
            let busy: BTreeSet<usize> = self.runs.iter().flat_map(|r| r.nodes.iter().copied()).collect();
            let free = |n: &usize| {
                !busy.contains(n)
                    && !self.slurm_down.contains(n)
                    && self.missing_s[*n].is_none()
                    && !self.nodes[*n].bystander
            };
            let nodes: Vec<usize> = (0..self.nodes.len()).filter(free).take(wanted).collect();
            if nodes.len() == wanted {
                self.runs[i].nodes = nodes;
                self.runs[i].job = Job::Waiting;
            }
        }
    }

    fn step_runs(&mut self) {
        for i in 0..self.runs.len() {
            match self.runs[i].job {
                Job::Waiting => self.begin(i),
                Job::Running => {
                    let nodes = self.runs[i].nodes.clone();
                    let generation = Generation { of: self.runs[i].of, number: self.runs[i].number };
                    let works = |n: &usize| self.nodes[*n].programs.get(&generation) == Some(&Program::Running);
                    if nodes.iter().all(works) {
                        self.runs[i].left_s -= STEP_S;
                    }
                    if self.runs[i].left_s <= 0.0 {
                        nodes.iter().for_each(|n| self.nodes[*n].end(generation.of));
                        (self.runs[i].job, self.runs[i].nodes) = (Job::Done, Vec::new());
                    }
                }
                _ => {}
            }
        }
    }

    /// A run's driver begins its program as soon as nothing of the run goes on elsewhere.
    fn begin(&mut self, i: usize) {
        let host = self.runs[i].nodes[0];
        if !self.nodes[host].is_on {
            return;
        }
        let controller = self.controller_host();
        let former: Vec<(usize, Incarnation)> = self.runs[i].former.iter().copied().collect();
        for (node, of) in former {
            let reaches =
                self.nodes[node].service_is_up(self.now_s) && self.net.exchange(&mut self.rng, host, node).is_some();
            let mut released = false;
            if reaches {
                self.nodes[node].end(of);
                released = true;
            } else if self.net.exchange(&mut self.rng, host, controller).is_some()
                && let Some((nodes, _)) = &mut self.controller
            {
                let answer = nodes.released(self.now_s, &name(node), of);
                released = self.keep(&name(node)) && matches!(answer, Released::Yes(_));
            }
            if released {
                self.runs[i].former.remove(&(node, of));
            }
        }
        if !self.runs[i].former.is_empty() {
            return;
        }
        // What an earlier try left on nodes that the run keeps is ended by their services, before anything begins.
        let (slurm, nodes, of) = (self.slurm_host(), self.runs[i].nodes.clone(), self.runs[i].of);
        for node in &nodes {
            let is_there = self.nodes[*node].has_slurmd() && self.nodes[*node].service_is_up(self.now_s);
            let reached = [host, slurm].map(|from| self.net.exchange(&mut self.rng, from, *node).is_some());
            if !is_there || reached != [true, true] {
                return;
            }
        }
        nodes.iter().for_each(|n| self.nodes[*n].end(of));
        let run = &mut self.runs[i];
        run.number += 1;
        (run.job, run.started_s) = (Job::Running, self.now_s);
        let generation = Generation { of, number: run.number };
        for node in &nodes {
            self.nodes[*node].programs.insert(generation, Program::Running);
        }
        self.note(format!("job {} begins as {generation:?} on {nodes:?}", of.job));
    }

    pub fn set_slurmd_timeout(&mut self, seconds: f64) {
        self.slurmd_timeout_s = seconds;
    }

    pub fn cut_power(&mut self, node: usize) {
        self.note(format!("{} loses its power", name(node)));
        self.died_s.insert(node, self.now_s);
        self.nodes[node].lose_power();
    }

    pub fn boot(&mut self, node: usize) {
        let now_s = self.now_s;
        self.note(format!("{} boots", name(node)));
        self.died_s.remove(&node);
        self.nodes[node].boot(now_s);
        // slurmd registers anew: Slurm notices that the node has booted, and requeues what was there.
        for i in 0..self.runs.len() {
            let generation = Generation { of: self.runs[i].of, number: self.runs[i].number };
            let lost = self.runs[i].job == Job::Running
                && self.runs[i].nodes.contains(&node)
                && !self.nodes[node].programs.contains_key(&generation);
            if lost {
                self.lose(i, node, false);
            }
        }
    }

    /// The promise: at no time do two generations of a run write.
    fn check(&self) {
        let mut writing: BTreeMap<u32, BTreeSet<Generation>> = BTreeMap::new();
        for node in self.nodes.iter().filter(|n| n.is_on) {
            for (generation, _) in node.programs.iter().filter(|(_, p)| **p == Program::Running) {
                writing.entry(generation.of.job).or_default().insert(*generation);
            }
        }
        let Some((job, two)) = writing.into_iter().find(|(_, g)| g.len() > 1) else { return };
        let last: Vec<&String> = self.history.iter().rev().take(40).collect();
        let last: Vec<&str> = last.into_iter().rev().map(String::as_str).collect();
        panic!("seed {}: two writers of job {job} at {:.1}: {two:?}\n{}", self.seed, self.now_s, last.join("\n"));
    }
}
