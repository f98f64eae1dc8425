//! The node services of a site, in one process: their sessions, their heartbeats, and what they testify.

use super::place::{NODE_PORT, Place, address, name, url};
use anyhow::{Context, Result};
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Json};
use listener::{Access, Answer, Document, Gate, Limits, Listener, Route, Users, blocking, now_s};
use node::reach::{Places, see};
use protocol::{Beat, BeatReply, JobReading, Testimony, TestimonyRequest, WakeReply, WakeRequest};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use watch::Testimonies;
use wire::session::{SessionClient, SessionRequest};
use wire::{Client, Munge, Peer};

/// Threads that carry the heartbeats.
const CARRIERS: usize = 48;

/// Time over which the first heartbeats are spread.
const SPREAD: Duration = Duration::from_secs(20);

/// What a node's service waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// All node services.
pub struct Fleet {
    nodes: Vec<Arc<Node>>,
    _runtime: tokio::runtime::Runtime,
}

/// One node service.
struct Node {
    name: String,
    url: String,
    boot_id: String,
    started_s: f64,
    client: SessionClient,
    is_on: AtomicBool,
    heart: Arc<Heart>,
    number: usize,
    state: Mutex<Told>,
}

/// What it has heard and said.
#[derive(Default)]
struct Told {
    epoch: Option<u64>,
    may_rest: bool,
    counts_boots: bool,
    testimonies: Testimonies,
    jobs: Vec<JobReading>,
    due: Option<Instant>,
}

/// When each node beats next.
#[derive(Default)]
struct Heart {
    due: Mutex<BinaryHeap<Reverse<(Instant, usize)>>>,
    news: Condvar,
}

impl Heart {
    fn at(&self, when: Instant, node: usize) {
        lock(&self.due).push(Reverse((when, node)));
        self.news.notify_one();
    }

    fn next(&self) -> (Instant, usize) {
        let mut due = lock(&self.due);
        loop {
            let now = Instant::now();
            let wait = match due.peek() {
                Some(Reverse((when, _))) if *when <= now => {
                    if let Some(Reverse(first)) = due.pop() {
                        return first;
                    }
                    continue;
                }
                Some(Reverse((when, _))) => *when - now,
                None => Duration::from_secs(1),
            };
            due = self.news.wait_timeout(due, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Starts them: each opens its session and beats, and each answers at its own address.
    pub fn start(place: &Place, count: u32) -> Result<Fleet> {
        let heart = Arc::new(Heart::default());
        let (munge, started_s) = (place.munge(), now_s());
        let node = |number: u32| {
            let name = name(number);
            let boot_id = format!("00000000-0000-4000-8000-{number:012}");
            let request = SessionRequest { version: protocol::VERSION, node: name.clone(), boot_id: boot_id.clone() };
            let client = Client::new(&url(number as usize), munge.socket().map(PathBuf::from), ANSWER_LIMIT);
            Arc::new(Node {
                url: format!("http://{}:{NODE_PORT}", address(number)),
                client: SessionClient::new(client, munge.clone(), request),
                name,
                boot_id,
                started_s,
                is_on: AtomicBool::new(true),
                heart: heart.clone(),
                number: number as usize,
                state: Mutex::default(),
            })
        };
        let nodes: Vec<Arc<Node>> = (0..count).map(node).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(serve(&nodes, &munge))?;
        for (number, node) in nodes.iter().enumerate() {
            let first = Instant::now() + SPREAD.mul_f64(number as f64 / f64::from(count));
            lock(&node.state).due = Some(first);
            heart.at(first, number);
        }
        for _ in 0..CARRIERS {
            let (heart, nodes) = (heart.clone(), nodes.clone());
            std::thread::spawn(move || {
                loop {
                    let (when, number) = heart.next();
                    let node = &nodes[number];
                    // Whoever was woken meanwhile has another moment.
                    if lock(&node.state).due == Some(when) {
                        node.beat(when);
                    }
                }
            });
        }
        let lives = (nodes.clone(), place.lives());
        std::thread::spawn(move || {
            loop {
                note_jobs(&lives.0, &lives.1);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Ok(Fleet { nodes, _runtime: runtime })
    }

    /// The power of some is gone.
    pub fn power_off(&self, dead: &BTreeSet<String>) {
        self.nodes.iter().filter(|n| dead.contains(&n.name)).for_each(|n| n.is_on.store(false, Ordering::Relaxed));
    }
}

/// Sees which jobs have begun where.
fn note_jobs(nodes: &[Arc<Node>], lives: &std::path::Path) {
    let users = std::fs::read_dir(lives).into_iter().flatten().flatten();
    for life in users.flat_map(|user| std::fs::read_dir(user.path())).flatten().flatten() {
        let Some((job, node)) = super::wrappers::life(&life.path()) else { continue };
        let Some(node) = node.node.strip_prefix('n').and_then(|n| nodes.get(n.parse::<usize>().ok()?)) else {
            continue;
        };
        let mut state = lock(&node.state);
        if state.jobs.iter().all(|j| j.job != job.job) {
            let reading =
                JobReading { job: job.job, joules: 0.0, cpu_s: 0.0, source: "model".into(), since_s: now_s() };
            state.jobs.push(reading);
            drop(state);
            node.wake();
        }
    }
}

impl Node {
    fn beat(&self, when: Instant) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let beat = self.reading();
        let pause_s = beat.pause_s;
        let heard = self.client.post::<Beat, BeatReply>("/v1/beats", &beat);
        let mut state = lock(&self.state);
        let mut next_s = 1.0;
        if let Ok(reply) = heard {
            state.testimonies.controller_answered();
            (state.epoch, state.may_rest, state.counts_boots) = (Some(reply.epoch), reply.may_rest, reply.boots);
            if reply.held.is_empty() && state.jobs.is_empty() {
                next_s = pause_s.unwrap_or(next_s);
            }
        }
        let next = (when + Duration::from_secs_f64(next_s)).max(Instant::now());
        state.due = Some(next);
        self.heart.at(next, self.number);
    }

    fn reading(&self) -> Beat {
        let mut state = lock(&self.state);
        state.jobs.iter_mut().for_each(|job| {
            job.joules += 100.0;
            job.cpu_s += 1.0;
        });
        Beat {
            version: protocol::VERSION,
            node: self.name.clone(),
            at_s: now_s(),
            started_s: self.started_s,
            url: self.url.clone(),
            slurmd_up: true,
            node_joules: 300.0 * (now_s() - self.started_s),
            source: "model".into(),
            jobs: state.jobs.clone(),
            fingerprint: None,
            boot_id: self.boot_id.clone(),
            epoch: Some(state.epoch.unwrap_or_default()),
            engines: None,
            pause_s: (state.may_rest && state.jobs.is_empty()).then_some(config::Site::default().node.idle_beat_s),
            up_s: state.counts_boots.then_some(86_400.0 + now_s() - self.started_s),
        }
    }

    fn wake(&self) {
        let now = Instant::now();
        lock(&self.state).due = Some(now);
        self.heart.at(now, self.number);
    }
}

/// Answers for all, each at its own address.
async fn serve(nodes: &[Arc<Node>], munge: &Munge) -> Result<()> {
    let users = Arc::new(Users::new(config::Site::default().limits));
    for node in nodes {
        let at = node.url.trim_start_matches("http://");
        let listener = tokio::net::TcpListener::bind(at).await.with_context(|| at.to_string())?;
        let gate = Gate::new(munge.clone(), wire::node_audience(&node.name), Limits::default(), users.clone());
        let gate = Arc::new(gate);
        let routes = vec![
            Route::new("GET", "/healthz", Access::Open, get(|| async { "ok" })),
            Route::new("POST", "/v1/testimony", Access::Known, post(testify)),
            Route::new("POST", "/v1/wake", Access::Known, post(wake)),
        ];
        let app = listener::router(routes, gate.clone(), node.clone());
        let listeners = vec![Listener::Tcp(listener)];
        let (keep, stop) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            listener::serve(listeners, app, gate.limits, gate.refusals.clone(), stop).await;
            drop(keep);
        });
    }
    Ok(())
}

async fn testify(
    State(node): State<Arc<Node>>,
    Extension(_): Extension<Peer>,
    Document(request): Document<TestimonyRequest>,
) -> Answer<Testimony> {
    let said = blocking(move || {
        let seen = see(&Places { url: request.url.clone(), slurmd: request.slurmd.clone() });
        lock(&node.state).testimonies.testify(now_s(), &request.node, request.epoch, seen)
    });
    Ok(Json(said.await?))
}

async fn wake(
    State(node): State<Arc<Node>>,
    Extension(_): Extension<Peer>,
    Document(_): Document<WakeRequest>,
) -> Answer<WakeReply> {
    node.wake();
    Ok(Json(WakeReply { rested: true }))
}
