//! One life of a run: a wrapper's driver in virtual time, with a scripted program and cluster.

use super::oracle::{Announced, Oracle};
use super::program::Program;
use driver::ports::{Child, Clock, Cluster, Happening, Meter, NodeCounter, NotStarted, Ports};
use driver::setup::{Outcome, Setup, Started};
use faultfs::{Cut, FaultFs};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, Figure, JobReading, Plan};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use run::line::Claim;
use run::{Checkpoints, Holder, Patience, TakenUp, journal::Journal, seal};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Calls of ports after which a life is taken to have no end.
const MOST_CALLS: u64 = 20_000;

/// Errors are tried again for so long: some times.
const QUICK: Patience = Patience { limit: Duration::from_millis(3), pause: Duration::from_micros(200) };

/// The wrapper is killed: unwinds through the driver.
pub struct Killed;

/// What all lives of a run share.
#[derive(Clone, Debug)]
pub struct Shape {
    work_s: f64,
    interval_s: f64,
    files: u32,
    /// Checkpoints to keep.
    pub keep: u32,
}

impl Shape {
    /// Some run.
    pub fn some(rng: &mut impl Rng) -> Shape {
        Shape {
            work_s: rng.random_range(30.0..500.0),
            interval_s: rng.random_range(5.0..150.0),
            files: rng.random_range(1..4),
            keep: rng.random_range(1..4),
        }
    }
}

/// How a life has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program has.
    Finished,
    /// It was killed, or its node died.
    Killed,
    /// Another has the run.
    Superseded,
    /// It goes on later.
    Requeued,
    /// The program has failed.
    Failed,
    /// The folder could not be taken up.
    NotTaken,
}

impl End {
    /// For a count.
    pub fn name(self) -> &'static str {
        match self {
            End::Finished => "finished",
            End::Killed => "killed",
            End::Superseded => "superseded",
            End::Requeued => "requeued",
            End::Failed => "failed",
            End::NotTaken => "not taken up",
        }
    }
}

/// One life, before it begins.
pub struct Life {
    pub fs: FaultFs,
    pub mount: usize,
    pub run: PathBuf,
    pub work: PathBuf,
    pub claim: Claim,
    pub shape: Shape,
    /// Nothing strikes it by chance.
    pub is_kind: bool,
    pub seed: u64,
    /// At this call of a port what hangs goes on.
    pub releases_at: Option<u64>,
    pub oracle: Arc<Oracle>,
}

impl Life {
    /// So many lives later than the one with its number; it has a folder of its own for its program.
    pub fn is_later(&mut self, by: u32) {
        self.claim.restart_count += by;
        self.work.as_mut_os_string().push(".other");
    }

    /// Plays it; an error is something that must not happen.
    pub fn play(self) -> Result<End, String> {
        match catch_unwind(AssertUnwindSafe(|| self.live())) {
            Ok(end) => Ok(end),
            Err(cause) if cause.is::<Killed>() => Ok(End::Killed),
            Err(cause) => Err(words(cause.as_ref())),
        }
    }

    fn live(&self) -> End {
        let taken = match run::take_up(&self.run, &self.claim, QUICK) {
            Ok(taken) => taken,
            Err(e) if e.is_superseded() => return End::Superseded,
            Err(_) if self.fs.is_cut(self.mount) => return End::Killed,
            Err(_) => return End::NotTaken,
        };
        let TakenUp { holder, journal, history } = taken;
        let number = holder.number().unwrap_or(0);
        self.oracle.lock().taken_up(number, &history);
        let folder = self.run.join(seal::CHECKPOINTS);
        let owners = Arc::new(history.owners);
        let Ok(checkpoints) = Checkpoints::of_run(folder, self.shape.keep, holder.clone(), owners, QUICK) else {
            return if self.fs.is_cut(self.mount) { End::Killed } else { End::NotTaken };
        };
        let world = World {
            rng: ChaCha8Rng::seed_from_u64(self.seed),
            now_s: self.oracle.lock().next_start_s(),
            started_s: 0.0,
            calls: 0,
            releases_at: self.releases_at,
            fs: self.fs.clone(),
            mount: self.mount,
            is_kind: self.is_kind,
            shape: self.shape.clone(),
            program: Program::new(self.work.clone(), self.shape.files),
            running: None,
            asked: None,
            from_s: 0.0,
            cause: None,
            pending: Vec::new(),
            number,
            holder,
            journal,
            checkpoints,
            to_read_back: Vec::new(),
            oracle: self.oracle.clone(),
        };
        self.drive(world, !history.records.is_empty())
    }

    fn drive(&self, mut world: World, resumes: bool) -> End {
        world.started_s = world.now_s;
        let world = Rc::new(RefCell::new(world));
        let restart_count = self.claim.restart_count;
        let setup = setup(restart_count, self.shape.interval_s, resumes);
        let [mut clock, mut meter, mut engine, mut child, mut cluster, mut store] =
            std::array::from_fn(|_| Port(world.clone()));
        let outcome = driver::coordinated::run(
            &setup,
            Ports {
                clock: &mut clock,
                meter: &mut meter,
                engine: &mut engine,
                child: &mut child,
                cluster: &mut cluster,
                store: &mut store,
            },
        );
        if self.fs.is_cut(self.mount) {
            return End::Killed;
        }
        match outcome {
            Outcome::Ended(0) => End::Finished,
            Outcome::Ended(_) => End::Failed,
            Outcome::Requeued => End::Requeued,
            Outcome::Superseded => End::Superseded,
        }
    }
}

/// What a panic says.
pub fn words(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_string()
}

/// The world of one life.
pub struct World {
    pub rng: ChaCha8Rng,
    pub now_s: f64,
    started_s: f64,
    calls: u64,
    releases_at: Option<u64>,
    pub fs: FaultFs,
    pub mount: usize,
    is_kind: bool,
    shape: Shape,
    pub program: Program,
    /// Since when the program runs, and from which progress, s.
    running: Option<(f64, f64)>,
    /// When a checkpoint is there, and its folder; absent where the program could not write it.
    pub asked: Option<(f64, Option<PathBuf>)>,
    /// Progress of the state that was brought back, s.
    pub from_s: f64,
    cause: Option<FailureKind>,
    pub pending: Vec<Happening>,
    pub number: u64,
    pub holder: Holder,
    pub journal: Journal,
    pub checkpoints: Checkpoints,
    pub to_read_back: Vec<u64>,
    pub oracle: Arc<Oracle>,
}

/// A port to it.
pub struct Port(pub Rc<RefCell<World>>);

impl World {
    /// Each call of a port takes a moment, and may be the last.
    pub fn call(&mut self) {
        self.calls += 1;
        assert!(self.calls < MOST_CALLS, "the driver waits without end");
        self.now_s += 0.001;
        if self.releases_at == Some(self.calls) {
            self.fs.release_hung();
        }
        if !self.is_kind && self.rng.random_bool(0.0005) {
            let _ = self.fs.cut(self.mount, Cut::Process);
        }
        if self.fs.is_cut(self.mount) {
            resume_unwind(Box::new(Killed));
        }
        // A checkpoint is read back while the others go on.
        if !self.to_read_back.is_empty() && self.rng.random_bool(0.3) {
            self.read_back();
        }
    }

    /// The program's progress, s.
    pub fn progress_s(&self) -> f64 {
        self.running.map_or(0.0, |(since, from)| from + (self.now_s - since))
    }

    fn next(&mut self, until_s: f64) -> Option<Happening> {
        if let Some(happening) = self.pending.pop() {
            return Some(happening);
        }
        let ends_s = self.running.map_or(f64::INFINITY, |(since, from)| since + (self.shape.work_s - from).max(0.0));
        let copied_s = self.asked.as_ref().map_or(f64::INFINITY, |(at_s, _)| *at_s);
        let next_s = until_s.min(ends_s).min(copied_s).max(self.now_s);
        let span_s = next_s - self.now_s;
        let mut sudden = |per_s: f64| !self.is_kind && self.rng.random_bool(1.0 - (1.0 - per_s).powf(span_s));
        let (crashes, preempted) = (sudden(0.001), sudden(0.001));
        self.fs.advance(Duration::from_secs_f64(span_s));
        self.now_s = next_s;
        // Another wrapper may have the run.
        if self.rng.random_bool(0.3) && self.holder.patient(Patience::NONE).show().is_err_and(|e| e.is_superseded()) {
            return Some(Happening::Superseded);
        }
        if crashes {
            self.running = None;
            return Some(Happening::Exited { code: 139 });
        }
        if preempted {
            self.cause = Some(FailureKind::Preempted);
            return Some(Happening::Terminate);
        }
        if next_s >= copied_s {
            return Some(self.copied());
        }
        (next_s >= ends_s).then(|| {
            self.running = None;
            Happening::Exited { code: 0 }
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.oracle.lock().ends_at(self.now_s);
    }
}

impl Clock for Port {
    fn now_s(&self) -> f64 {
        self.0.borrow().now_s
    }

    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.next(until_s)
    }
}

impl Meter for Port {
    fn read(&mut self) -> Vec<NodeCounter> {
        let mut w = self.0.borrow_mut();
        w.call();
        let (joules, since_s) = (200.0 * (w.now_s - w.started_s), w.started_s);
        let reading = JobReading { job: 1, joules, cpu_s: 0.0, source: "model".into(), since_s };
        vec![NodeCounter { node: "n0".to_string(), reading: Some(reading) }]
    }
}

impl Child for Port {
    fn start(&mut self, _: &[(String, String)]) -> Result<(), NotStarted> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.running = Some((w.now_s, w.from_s));
        w.asked = None;
        Ok(())
    }

    fn terminate(&mut self) {
        let mut w = self.0.borrow_mut();
        w.running = None;
        w.pending.push(Happening::Exited { code: 143 });
    }

    fn stop(&mut self) {
        let mut w = self.0.borrow_mut();
        w.call();
        w.running = None;
    }

    fn step(&mut self) -> String {
        "1.0".into()
    }
}

impl Cluster for Port {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        Vec::new()
    }

    fn suspects(&mut self) -> bool {
        false
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

/// What a program has announced, once it is written.
pub fn announces(world: &mut World, number: u64) -> Option<Announced> {
    let (progress_s, seed) = (world.progress_s(), world.rng.random());
    let announced = world.program.save(progress_s, seed).ok()?;
    let holder = world.number;
    world.oracle.lock().announces(holder, number, announced.clone());
    Some(announced)
}

fn setup(restart_count: u32, interval_s: f64, resumes: bool) -> Setup {
    Setup {
        started: Started { job: 1, restart_count, nodes: vec!["n0".to_string()], ..Started::default() },
        plan: plan(interval_s),
        settings: settings(),
        prospect: Prospect::default(),
        end_s: None,
        margin_s: 20.0,
        requeue_at_end: false,
        step_retries: 1,
        checkpoint_limit_s: 300.0,
        resumes,
        accounted: driver::ledger::Earlier::default(),
        was_lost: false,
        answered: Vec::<Event>::new(),
    }
}

fn settings() -> Settings {
    let on = protocol::Setting { value: "energy".into(), source: protocol::Source::Option };
    let request = protocol::Request { settings: BTreeMap::from([("ft-energy".to_string(), on)]) };
    options::resolve(&request, &BTreeMap::new()).expect("an option that there is")
}

fn plan(interval_s: f64) -> Plan {
    let figure = |value: f64| Figure { value, from: "a history".into() };
    Plan {
        version: protocol::VERSION,
        objective: "energy".into(),
        protocol: "coordinated".into(),
        engine: "app".into(),
        options: Default::default(),
        policy: "ema".into(),
        interval_s,
        longest_interval_s: None,
        interval_fixed: true,
        mtbf_s: figure(5000.0),
        past: None,
        local_s: None,
        checkpoint_s: figure(10.0),
        restart_s: figure(5.0),
        node_share: None,
        idle_w: figure(100.0),
        busy_w: figure(300.0),
        checkpoint_w: figure(150.0),
        still_share: None,
        checkpoint_hz: None,
        stale: Vec::new(),
        expected_time_overhead: 0.0,
        expected_energy_overhead: 0.0,
        expected_io_share: 0.0,
        flexible_s: None,
        alternatives: Vec::new(),
        choice: None,
        reasons: Vec::new(),
        made_by: "a history".into(),
    }
}
