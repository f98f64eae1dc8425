//! The real driver in a scripted world: thousands of random failure histories in virtual time.
//!
//! Every history is a seed. A failing one is printed; `SEED=n cargo test -p driver --test simulation` repeats it.

mod common;

use common::{Killed, check_energy, disk_full, plan};
use driver::coordinated;
use driver::ledger::Earlier;
use driver::ports::{
    Child, Clock, Cluster, Engine, Happening, Meter, NodeCounter, NotSaved, NotStarted, Ports, Saved, Store, Unprepared,
};
use driver::setup::{Outcome, Setup, Started};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, JobReading, Manifest, ManifestFile, Order, OrderState, Verb};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;

const SEEDS: u64 = 4000;
/// Calls of ports after which a history is taken to have no end.
const MOST_CALLS: u64 = 200_000;
const KEEP: usize = 2;

/// What the world does to a run, each with a chance per port call or per checkpoint.
struct Chances {
    wrapper_killed: f64,
    node_dies: f64,
    step_crashes: f64,
    preempted: f64,
    checkpoint_fails: f64,
    checkpoint_hangs: f64,
    disk_full: f64,
    checkpoint_rots: f64,
    meter_fails: f64,
    ordered: f64,
}

struct World {
    rng: ChaCha8Rng,
    now_s: f64,
    calls: u64,
    chances: Chances,
    work_s: f64,
    // The program.
    running_since: Option<(f64, f64)>,
    asked: Option<(f64, f64, bool)>,
    stored_progress: Option<f64>,
    pending: Vec<Happening>,
    // The machine.
    nodes: BTreeMap<String, Option<f64>>,
    /// Orders that this wrapper was told, and how many there were in all.
    told: Vec<Order>,
    orders: u64,
    record_started_s: f64,
    cause: Option<FailureKind>,
    // What outlives a wrapper.
    journal: Vec<Event>,
    lines: Vec<(Manifest, f64, bool)>,
    next_number: u64,
}

type Shared = Rc<RefCell<World>>;

impl World {
    fn chance(&mut self, p: f64) -> bool {
        self.rng.random_bool(p)
    }

    /// Every port call takes a moment, and may be the wrapper's last.
    fn call(&mut self) {
        self.calls += 1;
        assert!(self.calls < MOST_CALLS, "the driver waits without end");
        self.now_s += 0.001;
        let p = self.chances.wrapper_killed;
        if self.chance(p) {
            resume_unwind(Box::new(Killed));
        }
    }

    fn progress(&self) -> f64 {
        self.running_since.map_or(0.0, |(t, from)| from + (self.now_s - t))
    }

    fn joules(&self, node: &str) -> f64 {
        let until = self.nodes.get(node).copied().flatten().unwrap_or(self.now_s);
        200.0 * (until - self.record_started_s).max(0.0)
    }

    fn live_nodes(&self) -> Vec<String> {
        self.nodes.iter().filter(|(_, dead)| dead.is_none()).map(|(n, _)| n.clone()).collect()
    }

    /// The next thing that happens at or before `until`.
    fn next(&mut self, until: f64) -> Option<Happening> {
        if let Some(happening) = self.pending.pop() {
            return Some(happening);
        }
        let span = (until - self.now_s).max(0.0);
        let mut first: (f64, u8) = (until, 0);
        let mut consider = |at: f64, what: u8| {
            if at < first.0 {
                first = (at, what);
            }
        };
        if let Some((t, from)) = self.running_since {
            consider(t + (self.work_s - from).max(0.0), 1);
        }
        if let Some((asked, takes, _)) = self.asked {
            consider((asked + takes).max(self.now_s), 2);
        }
        let rate = |p: f64| 1.0 - (1.0 - p).powf(span);
        let chances = [
            (self.chances.node_dies, 3u8),
            (self.chances.step_crashes, 4),
            (self.chances.preempted, 5),
            (self.chances.ordered, 6),
        ];
        for (p, what) in chances {
            if self.rng.random_bool(rate(p)) {
                let at = self.now_s + self.rng.random_range(0.0..=span);
                consider(at, what);
            }
        }
        self.now_s = first.0.max(self.now_s);
        match first.1 {
            1 => {
                self.running_since = None;
                Some(Happening::Exited { code: 0 })
            }
            2 => Some(self.finish_checkpoint()),
            3 => self.kill_node(),
            4 => {
                self.running_since = self.running_since.take().and(None);
                Some(Happening::Exited { code: 139 })
            }
            5 => {
                self.cause = Some(FailureKind::Preempted);
                Some(Happening::Terminate)
            }
            6 => Some(Happening::Ordered(self.order())),
            _ => None,
        }
    }

    /// A new order, or one that is told again.
    fn order(&mut self) -> Order {
        if !self.told.is_empty() && self.chance(0.3) {
            return self.told[self.rng.random_range(0..self.told.len())].clone();
        }
        let verbs =
            [Verb::Checkpoint, Verb::Vacate, Verb::Preempt, Verb::Restart, Verb::Disable, Verb::Enable, Verb::Enable];
        let verb = verbs[self.rng.random_range(0..verbs.len())];
        self.orders += 1;
        let order = Order { id: self.orders.to_string(), verb, by: "alice".into(), begin_s: None };
        self.told.push(order.clone());
        order
    }

    fn finish_checkpoint(&mut self) -> Happening {
        let (_, _, fails) = self.asked.take().expect("asked");
        if fails {
            return Happening::Checkpointed(Err(NotSaved::Failed("disk quota exceeded".into())));
        }
        let file = ManifestFile {
            copy: "0".into(),
            original: "o".into(),
            bytes: 1,
            xxh3: "x".into(),
            ..ManifestFile::default()
        };
        Happening::Checkpointed(Ok(Saved { files: vec![file], still_s: None, kept: None }))
    }

    fn kill_node(&mut self) -> Option<Happening> {
        let live = self.live_nodes();
        if live.len() < 2 {
            return None;
        }
        let node = live[self.rng.random_range(1..live.len())].clone();
        self.nodes.insert(node.clone(), Some(self.now_s));
        let at_s = self.now_s;
        self.now_s += 3.0;
        if self.chance(0.3) {
            // The script dies of it before anybody says why.
            self.running_since = None;
            self.pending.push(Happening::NodeLost { node, at_s });
            return Some(Happening::Exited { code: 1 });
        }
        Some(Happening::NodeLost { node, at_s })
    }
}

struct Port(Shared);

impl Clock for Port {
    fn now_s(&self) -> f64 {
        self.0.borrow().now_s
    }

    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        let mut w = self.0.borrow_mut();
        w.call();
        assert!(until_s.is_finite() && until_s < w.now_s + 86_400.0, "a wait until {until_s}");
        w.next(until_s)
    }
}

impl Meter for Port {
    fn read(&mut self) -> Vec<NodeCounter> {
        let mut w = self.0.borrow_mut();
        w.call();
        let p = w.chances.meter_fails;
        let nodes: Vec<String> = w.nodes.keys().cloned().collect();
        let since_s = w.record_started_s;
        nodes
            .into_iter()
            .map(|node| {
                let joules = w.joules(&node);
                let reading = JobReading { job: 1, joules, cpu_s: 0.0, source: "model".into(), since_s };
                NodeCounter { reading: (!w.chance(p)).then_some(reading), node }
            })
            .collect()
    }
}

impl Engine for Port {
    fn name(&self) -> &str {
        "scripted"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, _: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut w = self.0.borrow_mut();
        w.call();
        let newest = w.lines.iter().rev().find(|(_, _, rotten)| !rotten);
        assert_eq!(from.map(|m| m.number), newest.map(|(m, _, _)| m.number), "a complete checkpoint is not used");
        w.stored_progress = newest.map(|(_, progress, _)| *progress);
        Ok(Vec::new())
    }

    fn begin(&mut self, _: PathBuf) {
        let mut w = self.0.borrow_mut();
        w.call();
        let (fails, hangs) = (w.chances.checkpoint_fails, w.chances.checkpoint_hangs);
        let fails = w.chance(fails);
        let takes = if w.chance(hangs) { 1e6 } else { w.rng.random_range(1.0..20.0) };
        w.stored_progress = Some(w.progress());
        w.asked = Some((w.now_s, takes, fails));
    }

    fn give_up(&mut self) {
        self.0.borrow_mut().asked = None;
    }
}

impl Child for Port {
    fn start(&mut self, _: &[(String, String)]) -> Result<(), NotStarted> {
        let mut w = self.0.borrow_mut();
        w.call();
        let newest = w.lines.iter().rev().find(|(_, _, rotten)| !rotten).map_or(0.0, |(_, p, _)| *p);
        w.running_since = Some((w.now_s, newest));
        w.asked = None;
        Ok(())
    }

    fn terminate(&mut self) {
        let mut w = self.0.borrow_mut();
        w.running_since = None;
        w.pending.push(Happening::Exited { code: 143 });
    }

    fn stop(&mut self) {
        let mut w = self.0.borrow_mut();
        w.call();
        w.running_since = None;
    }

    fn step(&mut self) -> String {
        "1.0".into()
    }
}

impl Cluster for Port {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        let w = self.0.borrow();
        w.nodes.iter().filter_map(|(n, dead)| dead.map(|t| (n.clone(), t))).collect()
    }

    fn suspects(&mut self) -> bool {
        !self.0.borrow().pending.is_empty()
    }

    fn runs_on(&mut self) -> bool {
        false
    }

    fn cause(&mut self) -> Option<FailureKind> {
        self.0.borrow().cause
    }

    fn requeue(&mut self) -> Result<(), String> {
        self.0.borrow_mut().call();
        Ok(())
    }
}

impl Store for Port {
    fn append(&mut self, _: f64, events: Vec<Event>) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.journal.extend(events);
        Ok(())
    }

    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.next_number += 1;
        Ok((w.next_number, PathBuf::new()))
    }

    fn commit(&mut self, manifest: &Manifest) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        let full = w.chances.disk_full;
        if w.chance(full) {
            return Err(disk_full());
        }
        let progress = w.stored_progress.expect("a checkpoint was begun");
        let rots = w.chances.checkpoint_rots;
        let rotten = w.chance(rots);
        w.lines.push((manifest.clone(), progress, rotten));
        let surplus = w.lines.len().saturating_sub(KEEP);
        w.lines.drain(..surplus);
        Ok(())
    }

    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let mut w = self.0.borrow_mut();
        w.call();
        let damaged = w.lines.iter().filter(|(_, _, rotten)| *rotten).map(|(m, _, _)| format!("{}", m.number));
        let damaged = damaged.collect();
        w.lines.retain(|(_, _, rotten)| !rotten);
        Ok((w.lines.last().map(|(m, _, _)| m.clone()), damaged))
    }

    fn flush(&mut self, _: f64) {
        self.0.borrow_mut().call();
    }
}

fn settings(spare: u32) -> Settings {
    let on = protocol::Setting { value: "energy".into(), source: protocol::Source::Option };
    let request = protocol::Request { settings: BTreeMap::from([("ft-energy".to_string(), on)]) };
    Settings { spare, ..options::resolve(&request, &BTreeMap::new()).expect("valid") }
}

/// Plays one history to its end.
fn play(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut some = |most: f64| if rng.random_bool(0.5) { rng.random_range(0.0..most) } else { 0.0 };
    let chances = Chances {
        wrapper_killed: some(0.01),
        node_dies: some(0.001),
        step_crashes: some(0.001),
        preempted: some(0.0005),
        checkpoint_fails: some(0.3),
        checkpoint_hangs: some(0.1),
        disk_full: some(0.3),
        checkpoint_rots: some(0.3),
        meter_fails: some(0.2),
        ordered: some(0.02),
    };
    let count = rng.random_range(1..6);
    let spare = rng.random_range(0..2);
    let interval_s = rng.random_range(5.0..500.0);
    let world = Rc::new(RefCell::new(World {
        work_s: rng.random_range(10.0..3000.0),
        rng,
        now_s: 1e9,
        calls: 0,
        chances,
        running_since: None,
        asked: None,
        stored_progress: None,
        pending: Vec::new(),
        nodes: BTreeMap::new(),
        told: Vec::new(),
        orders: 0,
        record_started_s: 0.0,
        cause: None,
        journal: Vec::new(),
        lines: Vec::new(),
        next_number: 0,
    }));
    for record in 0..10_000u32 {
        assert!(record < 9_999, "the run never ends");
        {
            let mut w = world.borrow_mut();
            w.nodes = (0..count).map(|i| (format!("n{i}"), None)).collect();
            w.now_s += 60.0;
            w.record_started_s = w.now_s;
            w.cause = None;
            w.asked = None;
            w.running_since = None;
            w.pending.clear();
            w.told.clear();
            w.calls = 0;
            // Every so often the world is kind, so that every history has an end.
            if record > 50 {
                w.chances.wrapper_killed = 0.0;
                w.chances.node_dies = 0.0;
                w.chances.step_crashes = 0.0;
                w.chances.preempted = 0.0;
                w.chances.ordered = 0.0;
            }
        }
        let from = world.borrow().journal.len();
        let is_order = |e: &&Event| matches!(e, Event::Ordered { .. });
        let answered = world.borrow().journal.iter().filter(is_order).cloned().collect();
        let setup = Setup {
            started: Started {
                job: 1,
                restart_count: record,
                nodes: world.borrow().live_nodes(),
                ..Started::default()
            },
            plan: plan("coordinated", interval_s),
            settings: settings(spare),
            prospect: Prospect::default(),
            end_s: None,
            margin_s: 20.0,
            requeue_at_end: false,
            step_retries: 1,
            checkpoint_limit_s: 300.0,
            resumes: record > 0,
            accounted: Earlier::default(),
            was_lost: false,
            answered,
        };
        let [mut clock, mut meter, mut engine, mut child, mut cluster, mut store] =
            std::array::from_fn(|_| Port(world.clone()));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            coordinated::run(
                &setup,
                Ports {
                    clock: &mut clock,
                    meter: &mut meter,
                    engine: &mut engine,
                    child: &mut child,
                    cluster: &mut cluster,
                    store: &mut store,
                },
            )
        }));
        check_energy(&world.borrow().journal[from..]);
        check_orders(&world.borrow(), from, outcome.as_ref().ok());
        match outcome {
            Ok(Outcome::Ended(0)) => return,
            Ok(Outcome::Ended(_) | Outcome::Requeued) => {}
            Ok(Outcome::Superseded) => panic!("nobody else has the run"),
            Err(cause) if cause.is::<Killed>() => {}
            Err(cause) => resume_unwind(cause),
        }
    }
}

/// A wrapper that was not killed has answered every order, the same order always the same; nothing is begun while
/// checkpoints are disabled, and a run that was vacated is in the queue.
fn check_orders(world: &World, from: usize, outcome: Option<&Outcome>) {
    let mut answers: BTreeMap<&str, &Event> = BTreeMap::new();
    let (mut disabled, mut vacated) = (false, false);
    for (i, event) in world.journal.iter().enumerate() {
        match event {
            Event::Ordered { id, verb, state, checkpoint, .. } => {
                if let Some(before) = answers.insert(id, event) {
                    assert_eq!(before, event, "two answers to one order");
                    continue;
                }
                let is_done = *state == OrderState::Done;
                let makes = matches!(verb, Verb::Checkpoint | Verb::Vacate | Verb::Preempt);
                assert_eq!(checkpoint.is_some(), is_done && makes, "{event:?}");
                match verb {
                    Verb::Disable => disabled = true,
                    Verb::Enable => disabled = false,
                    Verb::Vacate | Verb::Preempt => vacated |= is_done && i >= from,
                    Verb::Checkpoint | Verb::Restart => {}
                }
            }
            Event::Decided { action, .. } => assert!(!disabled || action != "checkpoint", "begun while disabled"),
            _ => {}
        }
    }
    if let Some(outcome) = outcome {
        assert!(world.told.iter().all(|o| answers.contains_key(o.id.as_str())), "an order without an answer");
        assert!(!vacated || *outcome == Outcome::Requeued, "vacated, but {outcome:?}");
    }
}

#[test]
fn random_failure_histories_lose_nothing() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        return play(seed);
    }
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..SEEDS {
        if let Err(cause) = catch_unwind(|| play(seed)) {
            let _ = std::panic::take_hook();
            eprintln!("SEED={seed} fails");
            resume_unwind(cause);
        }
    }
    let _ = std::panic::take_hook();
    println!("{SEEDS} histories");
}
