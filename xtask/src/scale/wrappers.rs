//! The wrappers of one user's jobs, in one process of that user: plans, records, and the question after their nodes.

use anyhow::{Context, Result, bail};
use protocol::{
    Batch, BeginReply, BeginRequest, Delivered, Event, FormerNode, Incarnation, Phase, Plan, PlanRequest, Record,
    Request, RunHealth, RunKey, Setting, Source,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::Client;

/// Longest wait for an answer that is not held back.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// How long the question after a run's nodes is held back, s.
const HELD_S: u64 = 30;

/// How often a run has a checkpoint to tell of.
const CHECKPOINT_EACH: Duration = Duration::from_secs(600);

/// One user's wrappers: a process of that user.
#[derive(clap::Args, Debug)]
pub struct Wrappers {
    /// The folder into which each life of a job writes where it is.
    lives: PathBuf,
    /// Where the controller answers.
    url: String,
    /// munged's socket.
    munge: PathBuf,
    /// The list of dead nodes.
    dead: PathBuf,
}

/// Where a life of a job is, and since when, s.
pub struct Life {
    since_s: u64,
    pub node: String,
}

/// Reads what a life of a job has written: `JOB.RESTART`.
pub fn life(path: &Path) -> Option<(Incarnation, Life)> {
    let (job, restart_count) = path.file_name()?.to_str()?.split_once('.')?;
    let of = Incarnation { job: job.parse().ok()?, restart_count: restart_count.parse().ok()? };
    let text = std::fs::read_to_string(path).ok()?;
    let (since_s, node) = text.trim().split_once(' ')?;
    Some((of, Life { since_s: since_s.parse().ok()?, node: node.to_string() }))
}

/// All users' wrappers, as who measures sees them.
#[derive(Default)]
pub struct All {
    children: Vec<Child>,
    told: Arc<Mutex<Vec<Told>>>,
}

/// A life that has begun.
struct Told {
    at: Instant,
    job: u32,
    restart_count: u32,
    plan_ms: f64,
}

impl Drop for All {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl All {
    /// Starts one user's.
    pub fn start(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let told = self.told.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(std::io::Result::ok) {
                let mut words = line.split(' ').filter_map(|word| word.parse::<f64>().ok());
                if let (Some(job), Some(restart_count), Some(plan_ms)) = (words.next(), words.next(), words.next()) {
                    let (job, restart_count) = (job as u32, restart_count as u32);
                    let one = Told { at: Instant::now(), job, restart_count, plan_ms };
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                }
            }
        });
        self.children.push(child);
        Ok(())
    }

    /// Waits until so many runs have begun.
    pub fn wait_for(&self, count: usize, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.told().len() < count {
            if Instant::now() > deadline {
                bail!("{} of {count} runs have begun", self.told().len());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// When runs of these jobs went on.
    pub fn begun_again(&self, jobs: &BTreeSet<u32>) -> Vec<Instant> {
        self.told()
            .iter()
            .filter(|told| told.restart_count > 0 && jobs.contains(&told.job))
            .map(|told| told.at)
            .collect()
    }

    /// How long plans took, as they were asked for.
    pub fn plans(&self) -> String {
        let mut all: Vec<f64> = self.told().iter().map(|told| told.plan_ms).collect();
        let mut at = |share| crate::bench::quantile(&mut all, share);
        format!("{:.0} {:.0}", at(0.5), at(0.99))
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this user's wrappers share.
struct Shared {
    url: String,
    munge: PathBuf,
    dead: PathBuf,
    /// How many records each run has, and when it began first.
    runs: Mutex<BTreeMap<u32, Run>>,
}

#[derive(Clone)]
struct Run {
    key: RunKey,
    records: u64,
    last: FormerNode,
}

/// Takes up each life of a job as it begins.
pub fn run(of: &Wrappers) -> Result<()> {
    let shared = Arc::new(Shared {
        url: of.url.clone(),
        munge: of.munge.clone(),
        dead: of.dead.clone(),
        runs: Mutex::default(),
    });
    let mut known = BTreeSet::new();
    loop {
        for entry in std::fs::read_dir(&of.lives)?.flatten() {
            let Some((incarnation, life)) = life(&entry.path()) else { continue };
            if known.insert(incarnation) {
                let shared = shared.clone();
                let builder = std::thread::Builder::new().stack_size(256 << 10);
                builder.spawn(move || shared.live(incarnation, &life))?;
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

impl Shared {
    /// One life of a run, until its node is dead.
    fn live(&self, of: Incarnation, life: &Life) {
        let client = Client::new(&self.url, Some(self.munge.clone()), ANSWER_LIMIT);
        let now_s = now_s();
        let begun = Instant::now();
        let plan: Plan = again(|| client.post("/v1/plan", &question(life)));
        let plan_ms = begun.elapsed().as_secs_f64() * 1e3;
        let former = self.run(of.job).map(|run| run.last);
        let key = self.run(of.job).map_or_else(
            || RunKey { cluster: "scale".into(), run: format!("{}.{}", of.job, life.since_s) },
            |run| run.key,
        );
        let path = format!("/v1/runs/{}/{}", key.cluster, key.run);
        if let Some(former) = former {
            let question = BeginRequest { version: protocol::VERSION, former: vec![former] };
            while !again(|| client.post::<_, BeginReply>(&format!("{path}/begin"), &question)).waits.is_empty() {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        let mut run = Run {
            key,
            records: self.run(of.job).map_or(0, |run| run.records),
            last: FormerNode { node: life.node.clone(), of },
        };
        self.tell(&client, &mut run, now_s, vec![started(of, life), Event::Planned(Box::new(plan))]);
        println!("{} {} {plan_ms}", of.job, of.restart_count);
        let (mut since, mut number, mut last) = (0, 0, Instant::now());
        // Not all at the same moment.
        let mut each = CHECKPOINT_EACH.mul_f64(f64::from(of.job % 100) / 100.0);
        while !self.is_dead(&life.node) {
            let question = format!("{path}/health?restart_count={}&since={since}&wait_s={HELD_S}", of.restart_count);
            match client.get::<RunHealth>(&question) {
                Ok(health) => since = health.news,
                Err(_) => std::thread::sleep(Duration::from_secs(1)),
            }
            if last.elapsed() >= each && !self.is_dead(&life.node) {
                (last, each, number) = (Instant::now(), CHECKPOINT_EACH, number + 1);
                self.tell(&client, &mut run, now_s, checkpoint(&life.node, number, now_s));
            }
        }
    }

    fn run(&self, job: u32) -> Option<Run> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).get(&job).cloned()
    }

    fn is_dead(&self, node: &str) -> bool {
        std::fs::read_to_string(&self.dead).is_ok_and(|text| text.lines().any(|line| line == node))
    }

    fn tell(&self, client: &Client, run: &mut Run, at_s: f64, events: Vec<Event>) {
        let first = run.records + 1;
        let records = (first..).zip(events).map(|(seq, event)| Record { seq, at_s, event }).collect();
        let batch = Batch { version: protocol::VERSION, key: run.key.clone(), holder: None, records };
        run.records = again(|| client.post::<Batch, Delivered>("/v1/records", &batch)).upto;
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run.last.of.job, run.clone());
    }
}

/// Asks until there is an answer, as a wrapper does.
fn again<T>(ask: impl Fn() -> std::result::Result<T, wire::Error>) -> T {
    let mut pause = Duration::from_millis(500);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(_) => std::thread::sleep(pause),
        }
        pause = (2 * pause).min(Duration::from_secs(8));
    }
}

fn now_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn question(life: &Life) -> PlanRequest {
    let setting = Setting { value: "energy".into(), source: Source::Option };
    PlanRequest {
        request: Request { settings: [("ft-energy".to_string(), setting)].into() },
        nodes: 1,
        cpus_per_node: 1,
        job_name: "load".into(),
        node_names: vec![life.node.clone()],
        walltime_s: Some(86_400.0),
        ..PlanRequest::default()
    }
}

fn started(of: Incarnation, life: &Life) -> Event {
    Event::Started {
        job: of.job,
        restart_count: of.restart_count,
        user: String::new(),
        account: String::new(),
        partition: "all".into(),
        job_name: "load".into(),
        nodes: vec![life.node.clone()],
        resumed_from: None,
        dir: "/tmp".into(),
    }
}

fn checkpoint(node: &str, number: u64, now_s: f64) -> Vec<Event> {
    let phase = |phase, start_s, end_s| Event::Phase {
        phase,
        node: node.to_string(),
        start_s,
        end_s,
        joules: Some(100.0),
        source: "model".into(),
    };
    let committed = Event::Committed {
        number,
        begun_s: now_s - 1.0,
        ended_s: now_s,
        bytes: 1 << 30,
        written_bytes: None,
        joules: Some(100.0),
        still_s: Some(1.0),
    };
    vec![phase(Phase::Compute, now_s - 10.0, now_s - 1.0), phase(Phase::Checkpoint, now_s - 1.0, now_s), committed]
}
