//! A world of groups in virtual time: nodes die and return, steps crash, checkpoints fail, and the wrapper is killed.

mod ports;
mod together;

pub use ports::play_record;

use crate::common::Killed;
use driver::groups::ports::LoanOutcome;
use driver::groups::ports::News;
use driver::ports::{Happening, NotSaved, Saved};
use protocol::{Event, FailureKind, Manifest, ManifestFile, Order, OrderState, Verb};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::rc::Rc;

/// Calls of ports after which a history is taken to have no end.
const MOST_CALLS: u64 = 400_000;
const KEEP: usize = 2;

/// What the world does to a run, each with a chance per port call, per second, or per checkpoint.
#[derive(Default)]
pub struct Chances {
    pub wrapper_killed: f64,
    pub node_dies: f64,
    pub node_returns: f64,
    pub step_crashes: f64,
    /// Slurm does not begin a step that had run before.
    pub step_refused: f64,
    pub preempted: f64,
    pub checkpoint_fails: f64,
    pub checkpoint_hangs: f64,
    pub disk_full: f64,
    pub checkpoint_rots: f64,
    pub meter_fails: f64,
    pub ordered: f64,
    pub park_fails: f64,
    pub loan_refused: f64,
    pub lent_node_dies: f64,
    pub relay_dies: f64,
    pub relay_refused: f64,
    pub asked_to_end: f64,
    /// A step that begins again needs long for it.
    pub begins_late: f64,
    /// A group that went back alone sends something else than before.
    pub differs: f64,
    /// Checkpoints of all groups are no line.
    pub no_line: f64,
}

/// A group's program.
#[derive(Default)]
pub struct Program {
    /// Since when it runs, and with how much done.
    pub running: Option<(f64, f64)>,
    /// The call that it is part of; its step is there until it is told to have ended.
    pub call: Option<u64>,
    /// It failed since it was started: it may be stopped and started again.
    pub failed: bool,
    /// When a checkpoint was asked for, how long it takes, whether it fails, and the progress in it.
    pub asked: Option<(f64, f64, bool, f64)>,
    /// Complete checkpoints: with the progress in them, and whether they rot.
    pub lines: Vec<(Manifest, f64, bool)>,
    /// Progress of the line that was brought back last.
    pub restored: f64,
    pub done: bool,
    /// It was started in this record.
    pub started: bool,
    /// It is being dumped: when that is done, whether it fails, and the progress in it.
    pub parking: Option<(f64, bool, f64)>,
    /// How far it was when it was asked to stand still.
    pub parked_at: f64,
    /// It stands still after its next checkpoint.
    pub stays: bool,
    /// The progress in its image.
    pub image: Option<f64>,
    /// How far it has been.
    pub peak: f64,
    /// Where its relay is, and the progress from which the log in its memory begins, if the program has joined it.
    pub relay: Option<(String, Option<f64>)>,
    /// It stands still, since it wants what is in no log.
    pub waits: bool,
    /// The driver was told that it has to go back further.
    pub told: bool,
    /// When it will send something else than before.
    pub differs_at: Option<f64>,
}

pub struct World {
    pub rng: ChaCha8Rng,
    pub now_s: f64,
    pub calls: u64,
    pub chances: Chances,
    pub work_s: Vec<f64>,
    pub programs: Vec<Program>,
    pub places: Vec<Vec<String>>,
    pub pending: Vec<Happening>,
    pub nodes: BTreeMap<String, Option<f64>>,
    /// Nodes that have left the job since their death.
    pub gone: BTreeSet<String>,
    /// Nodes on which no relay can begin.
    pub unserved: BTreeSet<String>,
    pub told: Vec<Order>,
    pub orders: u64,
    pub record: u32,
    pub record_started_s: f64,
    pub cause: Option<FailureKind>,
    pub journal: Vec<Event>,
    pub next_number: u64,
    pub count: usize,
    pub spare: u32,
    pub interval_s: f64,
    /// Set if the groups talk to each other.
    pub log: Option<options::Log>,
    /// How often a group alone started again.
    pub restarts: u64,
    /// How often a group was to go back because its log was lost.
    pub lacking: u64,
    /// How often a relay could not begin.
    pub refused: u64,
    /// The nodes that the broker was asked to lend: since when, until when.
    pub loan: Option<(Vec<String>, f64, f64)>,
    /// The job has given them up.
    pub lent: bool,
    /// Survivors are put aside by checkpoints of their own.
    pub by_checkpoint: bool,
    /// How often nodes came back.
    pub loans: u64,
    /// The script has asked its call to end, in this record.
    pub asked: bool,
    /// Seconds of progress for each message; relays say anything if absent.
    pub message_s: Option<f64>,
    /// A program's messages stop at this progress.
    pub falls_silent: Option<f64>,
    /// The program of a group that is to crash, and when.
    pub crash: Option<(usize, f64)>,
    /// The groups are one program, of which lines can be made.
    pub gathers: bool,
    /// Its relays run.
    pub is_open: bool,
    /// Numbers of what is a line, and of what was begun as one.
    pub lines: Vec<u64>,
    pub begun: Vec<u64>,
    /// A group has sent something else, and not all have gone back since.
    pub wrong: Option<usize>,
    /// The line to which all groups went back last, and those that have not started from it yet.
    pub back: Option<(Option<u64>, BTreeSet<usize>)>,
    /// How often all groups went back together.
    pub together: u64,
    /// How often that was to a line.
    pub to_lines: u64,
}

pub type Shared = Rc<RefCell<World>>;

impl World {
    pub fn shared(mut rng: ChaCha8Rng, chances: Chances) -> Shared {
        let groups = rng.random_range(2..5);
        let spare = rng.random_range(0..3);
        let log = [None, Some(options::Log::Disk), Some(options::Log::Memory)][rng.random_range(0..3)];
        let world = World {
            work_s: (0..groups).map(|_| rng.random_range(10.0..2000.0)).collect(),
            programs: (0..groups).map(|_| Program::default()).collect(),
            count: groups * rng.random_range(1..3) + spare as usize,
            spare,
            interval_s: rng.random_range(5.0..500.0),
            log,
            restarts: 0,
            lacking: 0,
            refused: 0,
            loan: None,
            lent: false,
            by_checkpoint: rng.random_bool(0.5),
            loans: 0,
            asked: false,
            message_s: rng.random_bool(0.7).then(|| rng.random_range(0.1..5.0)),
            falls_silent: None,
            crash: None,
            gathers: log.is_some() && rng.random_bool(0.5),
            is_open: false,
            lines: Vec::new(),
            begun: Vec::new(),
            wrong: None,
            back: None,
            together: 0,
            to_lines: 0,
            rng,
            now_s: 1e9,
            calls: 0,
            chances,
            places: Vec::new(),
            pending: Vec::new(),
            nodes: BTreeMap::new(),
            gone: BTreeSet::new(),
            unserved: BTreeSet::new(),
            told: Vec::new(),
            orders: 0,
            record: 0,
            record_started_s: 0.0,
            cause: None,
            journal: Vec::new(),
            next_number: 0,
        };
        Rc::new(RefCell::new(world))
    }

    /// Slurm starts the job (again) on healthy nodes; tells where its part of the journal begins.
    pub fn new_record(&mut self, record: u32) -> usize {
        self.nodes = (0..self.count).map(|i| (format!("n{i}"), None)).collect();
        self.gone.clear();
        self.unserved.clear();
        self.now_s += 60.0;
        (self.record, self.record_started_s) = (record, self.now_s);
        self.cause = None;
        self.pending.clear();
        self.told.clear();
        self.calls = 0;
        (self.loan, self.lent, self.asked) = (None, false, false);
        (self.back, self.is_open) = (None, false);
        for p in &mut self.programs {
            *p = Program { lines: std::mem::take(&mut p.lines), ..Program::default() };
        }
        // Every so often the world is kind, so that every history has an end.
        if record > 50 {
            let c = &mut self.chances;
            (c.wrapper_killed, c.node_dies, c.step_crashes, c.preempted, c.ordered) = (0.0, 0.0, 0.0, 0.0, 0.0);
            (c.relay_dies, c.relay_refused, c.step_refused, c.asked_to_end) = (0.0, 0.0, 0.0, 0.0);
        }
        self.journal.len()
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.rng.random_bool(p)
    }

    /// Every port call takes a moment, and may be the wrapper's last.
    pub fn call(&mut self) {
        self.calls += 1;
        assert!(self.calls < MOST_CALLS, "the driver waits without end");
        self.now_s += 0.001;
        let p = self.chances.wrapper_killed;
        if self.chance(p) {
            resume_unwind(Box::new(Killed));
        }
    }

    pub fn progress(&self, group: usize) -> f64 {
        let p = &self.programs[group];
        p.running.map_or(0.0, |(t, from)| if p.waits { from } else { from + (self.now_s - t).max(0.0) })
    }

    /// What the log of a group in memory holds begins here.
    pub fn log_begins(&mut self, group: usize, at: f64) {
        if let Some((_, begins)) =
            self.programs[group].relay.as_mut().filter(|_| self.log == Some(options::Log::Memory))
        {
            *begins = Some(begins.map_or(at, |b| b.min(at)));
            self.programs[group].told = false;
            let of_another =
                |h: &Happening| !matches!(h, Happening::Group(News::Lacking { group: g, .. }) if *g == group);
            self.pending.retain(of_another);
        }
        self.weigh();
    }

    /// Who wants what is in no log stands still, and the driver is told who has to send it.
    fn weigh(&mut self) {
        for to in 0..self.programs.len() {
            let Some((since_s, _)) = self.programs[to].running else { continue };
            let at = self.progress(to);
            let begins_late = |p: &Program| p.relay.as_ref().and_then(|(_, begins)| *begins).is_some_and(|b| b > at);
            let late: Vec<usize> =
                (0..self.programs.len()).filter(|g| *g != to && begins_late(&self.programs[*g])).collect();
            let p = &mut self.programs[to];
            (p.running, p.waits) = (Some((since_s.max(self.now_s), at)), !late.is_empty());
            for group in late {
                let p = &mut self.programs[group];
                if !std::mem::replace(&mut p.told, true) {
                    p.failed = true;
                    self.lacking += 1;
                    self.pending.insert(0, Happening::Group(News::Lacking { group, to }));
                }
            }
        }
    }

    /// A relay dies alone, and is started again; its program joins it.
    fn kill_relay(&mut self) -> Option<Happening> {
        let group = self.rng.random_range(0..self.programs.len());
        let at = if self.programs[group].done { self.work_s[group] } else { self.progress(group) };
        let p = &mut self.programs[group];
        let (_, begins) = p.relay.as_mut().filter(|_| self.log == Some(options::Log::Memory))?;
        *begins = None;
        if p.done || p.running.is_some() {
            self.log_begins(group, at);
        }
        Some(Happening::Group(News::LogLost { group }))
    }

    /// One relay, or each, ends and cannot begin again where it was.
    fn refuse_relays(&mut self) -> Option<Happening> {
        let one = self.rng.random_range(0..self.programs.len());
        if self.rng.random_bool(0.3) {
            for group in (0..self.programs.len()).filter(|g| *g != one) {
                let news = self.refuse_relay(group);
                news.into_iter().for_each(|n| self.pending.insert(0, n));
            }
        }
        self.refuse_relay(one)
    }

    fn refuse_relay(&mut self, group: usize) -> Option<Happening> {
        let p = &mut self.programs[group];
        let (node, _) = p.relay.as_ref().filter(|_| self.log.is_some())?;
        p.failed = true;
        self.unserved.insert(node.clone());
        self.refused += 1;
        Some(Happening::Group(News::Unserved { group, node: node.clone(), why: "no space".into() }))
    }

    pub fn joules(&self, node: &str) -> f64 {
        let until = self.nodes.get(node).copied().flatten().unwrap_or(self.now_s);
        200.0 * (until - self.record_started_s).max(0.0)
    }

    /// Messages that a group has to send again until it is where it was.
    pub fn behind(&mut self, group: usize) -> Option<u64> {
        let Some(message_s) = self.message_s else {
            // What is said of a pace may be anything: it moves the end of a wait and nothing else.
            return self.rng.random_bool(0.5).then(|| self.rng.random_range(0..30));
        };
        let p = &self.programs[group];
        let sent = |progress: f64| (progress.min(self.falls_silent.unwrap_or(f64::INFINITY)) / message_s) as u64;
        p.running.map(|_| ((p.peak / message_s) as u64).saturating_sub(sent(self.progress(group))))
    }

    /// A program is where it stays.
    pub fn halts(&mut self, group: usize) {
        let progress = self.progress(group);
        let p = &mut self.programs[group];
        (p.running, p.peak, p.differs_at) = (None, p.peak.max(progress), None);
    }

    /// A group's share ends by itself or by a failure.
    pub fn ends(&mut self, group: usize, code: i32) -> Option<Happening> {
        self.halts(group);
        let p = &mut self.programs[group];
        (p.asked, p.parking, p.stays) = (None, None, false);
        let call = p.call.take()?;
        p.failed |= code != 0;
        p.done = code == 0;
        let is_cancelled = code != 0 && self.rng.random_bool(0.1);
        Some(Happening::Group(News::Ended { call, group, code, is_cancelled }))
    }

    /// The next thing that happens at or before `until`.
    pub fn next(&mut self, until: f64) -> Option<Happening> {
        if let Some(happening) = self.pending.pop() {
            return Some(happening);
        }
        let span = (until - self.now_s).max(0.0);
        let mut first: (f64, u8, usize) = (until, 0, 0);
        let mut consider = |at: f64, what: u8, group: usize| {
            if at < first.0 {
                first = (at, what, group);
            }
        };
        for (g, p) in self.programs.iter().enumerate() {
            if let Some((t, from)) = p.running.filter(|_| !p.waits) {
                consider(t + (self.work_s[g] - from).max(0.0), 1, g);
            }
            if let Some(at) = p.differs_at {
                consider(at.max(self.now_s), 14, g);
            }
            if let Some((asked, takes, ..)) = p.asked {
                consider((asked + takes).max(self.now_s), 2, g);
            }
        }
        let parking = self.programs.iter().enumerate();
        parking.filter_map(|(g, p)| Some((g, p.parking?.0))).for_each(|(g, at)| consider(at.max(self.now_s), 8, g));
        if let Some((_, since, until)) = &self.loan {
            consider(if self.lent { until.max(since + 30.0) } else { since + 5.0 }.max(self.now_s), 9, 0);
        }
        if let Some((group, at)) = self.crash {
            consider(at.max(self.now_s), 13, group);
        }
        let rate = |p: f64| 1.0 - (1.0 - p).powf(span);
        let c = &self.chances;
        let failures = [(c.node_dies, 3), (c.step_crashes, 4), (c.preempted, 5), (c.relay_dies, 10)];
        let chances = failures.into_iter().chain([(c.ordered, 6), (c.node_returns, 7), (c.asked_to_end, 11)]);
        let chances = chances.chain([(c.relay_refused, 12)]);
        for (p, what) in chances {
            if self.rng.random_bool(rate(p)) {
                let at = self.now_s + self.rng.random_range(0.0..=span);
                consider(at, what, 0);
            }
        }
        self.now_s = first.0.max(self.now_s);
        match first.1 {
            1 => self.ends(first.2, 0),
            2 => Some(self.finish_checkpoint(first.2)),
            3 => self.kill_node(),
            4 => {
                let group = self.rng.random_range(0..self.programs.len());
                self.programs[group].running?;
                self.ends(group, 139)
            }
            5 => {
                self.cause = Some(FailureKind::Preempted);
                Some(Happening::Terminate)
            }
            6 => Some(Happening::Ordered(self.order())),
            7 => self.return_node(),
            8 => Some(self.finish_parking(first.2)),
            9 => Some(self.broker()),
            10 => self.kill_relay(),
            11 => Some(self.ask_to_end()),
            12 => self.refuse_relays(),
            14 => {
                // It sends nothing more that counts, and what others have got of it is wrong.
                let group = first.2;
                let p = &mut self.programs[group];
                (p.differs_at, p.waits) = (None, true);
                self.wrong = Some(group);
                Some(Happening::Group(News::Differs { group, from: group, to: (group + 1) % self.programs.len() }))
            }
            13 => {
                self.crash = None;
                self.ends(first.2, 139)
            }
            _ => None,
        }
    }

    /// The script asks its call to end: whoever runs ends by that, and nobody is started again.
    fn ask_to_end(&mut self) -> Happening {
        self.asked = true;
        for group in 0..self.programs.len() {
            if let Some(ended) = self.ends(group, 143) {
                self.pending.insert(0, ended);
            }
        }
        Happening::Group(News::Ending { call: 0 })
    }

    /// A new order, or one that is told again.
    fn order(&mut self) -> Order {
        if !self.told.is_empty() && self.chance(0.3) {
            return self.told[self.rng.random_range(0..self.told.len())].clone();
        }
        let verbs = [Verb::Checkpoint, Verb::Vacate, Verb::Preempt, Verb::Disable, Verb::Enable, Verb::Enable];
        let verb = verbs[self.rng.random_range(0..verbs.len())];
        self.orders += 1;
        let order = Order { id: self.orders.to_string(), verb, by: "alice".into(), begin_s: None };
        self.told.push(order.clone());
        order
    }

    fn finish_checkpoint(&mut self, group: usize) -> Happening {
        let (_, _, fails, progress) = self.programs[group].asked.take().expect("asked");
        self.programs[group].restored = progress;
        if self.programs[group].stays && !fails {
            self.halts(group);
            self.programs[group].parked_at = progress;
        }
        let file = ManifestFile {
            copy: "0".into(),
            original: "o".into(),
            bytes: 1,
            xxh3: "x".into(),
            ..ManifestFile::default()
        };
        let result = if fails {
            Err(NotSaved::Failed("disk quota exceeded".into()))
        } else {
            Ok(Saved { files: vec![file], still_s: Some(0.0), kept: None })
        };
        Happening::Group(News::Checkpointed { group, result })
    }

    fn finish_parking(&mut self, group: usize) -> Happening {
        let p = &mut self.programs[group];
        let (_, fails, progress) = p.parking.take().expect("parking");
        p.image = (!fails).then_some(progress);
        let result = if fails { Err("a socket leads out of the job".into()) } else { Ok("image".into()) };
        Happening::Group(News::Parked { group, result })
    }

    /// The broker refuses, gives the nodes away, or brings them back.
    fn broker(&mut self) -> Happening {
        let c = &self.chances;
        let (refused, dies) = (c.loan_refused, c.lent_node_dies);
        if !self.lent && !self.chance(refused) {
            self.lent = true;
            return Happening::Group(News::Lent);
        }
        let was_lent = std::mem::take(&mut self.lent);
        let (mut nodes, since_s, _) = self.loan.take().expect("a loan");
        let requeued = self.chance(0.5);
        let outcome = match (was_lent, self.chance(dies)) {
            (false, _) => LoanOutcome::Kept("the queue is empty".into()),
            (true, true) if nodes.len() == 1 && requeued => LoanOutcome::Lost("too late".into()),
            (true, dies) => {
                if dies {
                    let dead = nodes.pop().expect("a node");
                    self.nodes.insert(dead.clone(), Some(self.now_s));
                    self.gone.insert(dead);
                }
                self.loans += 1;
                LoanOutcome::Back { nodes, away_s: self.now_s - since_s, back_s: self.now_s }
            }
        };
        Happening::Group(News::Returned(outcome))
    }

    /// A node other than the batch host dies; its group's step may notice before anybody says why.
    fn kill_node(&mut self) -> Option<Happening> {
        let live: Vec<String> = self
            .nodes
            .iter()
            .filter(|(n, dead)| dead.is_none() && *n != "n0" && !self.is_lent(n))
            .map(|(n, _)| n.clone())
            .collect();
        if live.is_empty() {
            return None;
        }
        let node = live[self.rng.random_range(0..live.len())].clone();
        let at_s = self.now_s;
        self.nodes.insert(node.clone(), Some(at_s));
        self.gone.insert(node.clone());
        let lost = Happening::NodeLost { node: node.clone(), at_s };
        let group = self.places.iter().position(|nodes| nodes.contains(&node));
        if let Some(group) = group.filter(|g| self.programs[*g].call.is_some()) {
            self.halts(group);
            self.programs[group].failed = true;
            self.programs[group].asked = None;
            self.programs[group].parking = None;
            if self.chance(0.3) {
                self.pending.push(lost);
                return self.ends(group, 1);
            }
        }
        self.now_s += 3.0;
        Some(lost)
    }

    /// A node that had died joins the job again.
    fn return_node(&mut self) -> Option<Happening> {
        let node = self.gone.pop_first()?;
        self.nodes.insert(node.clone(), None);
        // A node that reboots counts from zero again.
        self.nodes.remove(&node);
        let new = format!("{node}x");
        self.nodes.insert(new.clone(), None);
        Some(Happening::Group(News::Joined { node: new }))
    }

    fn is_lent(&self, node: &String) -> bool {
        self.lent && self.loan.as_ref().is_some_and(|(nodes, ..)| nodes.contains(node))
    }

    /// A run that has ended well has done all its work.
    pub fn check_end(&self) {
        assert!(self.programs.iter().all(|p| p.done), "a group has not ended");
        assert_eq!(self.wrong, None, "the result is wrong");
    }
}

/// A wrapper that was not killed has answered every order, and nothing is begun while checkpoints are disabled.
pub fn check_orders(world: &World, ended: bool) {
    let mut answers: BTreeMap<&str, &Event> = BTreeMap::new();
    let mut disabled = false;
    for event in &world.journal {
        match event {
            Event::Ordered { id, verb, state, .. } => {
                let takes_effect = answers.insert(id, event).is_none() && *state == OrderState::Done;
                match verb {
                    Verb::Disable => disabled |= takes_effect,
                    Verb::Enable => disabled &= !takes_effect,
                    Verb::Checkpoint | Verb::Vacate | Verb::Preempt | Verb::Restart => {}
                }
            }
            Event::Decided { action, .. } => assert!(!disabled || action != "checkpoint", "begun while disabled"),
            _ => {}
        }
    }
    assert!(!ended || world.told.iter().all(|o| answers.contains_key(o.id.as_str())), "an order without an answer");
}
