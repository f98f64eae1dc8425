//! The role `node`: meters the jobs on this node, beats, and ends what must not go on here.

use crate::http::{Refusal, asked, blocking};
use crate::metrics::{self, Family};
use crate::now_s;
use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use axum::routing::get;
use config::Site;
use energy::{Accounts, JobEnergy, Meter, Processes};
use protocol::{Beat, BeatReply, Held, JobReading, NodeReading};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How a node service is to run.
pub struct Params {
    /// The site file.
    pub site: Site,
    /// Node name as Slurm knows it.
    pub node: String,
    /// Root of the process tree.
    pub proc_root: PathBuf,
}

struct Node {
    params: Params,
    munge: wire::Munge,
    books: Mutex<Books>,
    started_s: f64,
}

/// The meter, the accounts, and the last look at the processes.
struct Books {
    meter: Meter,
    accounts: Accounts,
    processes: Processes,
    /// Whose jobs they are, as the owners of their processes tell.
    owners: BTreeMap<u32, u32>,
    tick_hz: u32,
}

/// Serves until told to stop.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(params: Params) -> Result<()> {
    let listen = params.site.node.listen.clone();
    let listener = tokio::net::TcpListener::bind(&listen).await.with_context(|| format!("node.listen = {listen}"))?;
    let url = url(listener.local_addr()?, &params.node);
    let config = energy_config(&params);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let books = Books {
        meter: energy::open(&config),
        accounts: Accounts::new(cpus, params.site.energy.idle_w),
        processes: Processes::default(),
        owners: BTreeMap::new(),
        tick_hz: energy::tick_hz(),
    };
    for (kind, why) in books.meter.refused() {
        tracing::info!(source = kind.as_str(), why, "an energy source is not used");
    }
    tracing::info!(node = params.node, url, source = books.meter.source().as_str(), "the node service serves");
    let munge = wire::Munge::new(params.site.munge_socket.clone());
    let node = Arc::new(Node { params, munge, books: Mutex::new(books), started_s: now_s() });
    let beating = node.clone();
    std::thread::spawn(move || beating.beat_for_ever(&url));
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .route("/v1/jobs/{job}/energy", get(job_energy))
        .with_state(node);
    axum::serve(listener, app).with_graceful_shutdown(crate::told_to_stop()).await?;
    Ok(())
}

/// Where others reach this service: an address that is not one is replaced by the node's name.
fn url(address: std::net::SocketAddr, node: &str) -> String {
    if address.ip().is_unspecified() {
        format!("http://{node}:{}", address.port())
    } else {
        format!("http://{address}")
    }
}

fn energy_config(params: &Params) -> energy::Config {
    let mut config = params.site.energy.sources();
    config.proc_root.clone_from(&params.proc_root);
    if let Ok(program) = std::env::current_exe() {
        config.slurm_command = vec![program.to_string_lossy().into_owned(), "slurm-energy".into(), params.node.clone()];
    }
    config
}

impl Books {
    fn look(&mut self, proc_root: &std::path::Path) {
        match energy::scan(proc_root, self.tick_hz) {
            Ok(processes) => self.processes = processes,
            Err(e) => tracing::warn!(%e, "the processes cannot be read"),
        }
        for job in &self.processes.jobs {
            let mut owners = job.pids.iter().filter_map(|pid| owner(proc_root, *pid)).filter(|uid| *uid != 0);
            if let Some(uid) = owners.next() {
                self.owners.insert(job.job_id, uid);
            }
        }
        let sample = self.accounts.sample(now_s(), &mut self.meter, &self.processes);
        self.owners.retain(|job, _| self.accounts.job(*job).is_some());
        for mark in sample.marks {
            tracing::warn!(source = mark.source.as_str(), kind = mark.kind.as_str(), text = mark.text, "energy source");
        }
    }
}

fn reading(job: &JobEnergy) -> JobReading {
    JobReading {
        job: job.job_id,
        joules: job.joules,
        cpu_s: job.cpu_s,
        source: job.source.as_str().to_string(),
        since_s: job.since_s,
    }
}

impl Node {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat_for_ever(&self, url: &str) {
        let site = &self.params.site;
        let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
        let period = Duration::from_secs_f64(site.node.beat_s);
        let mut held: Vec<Held> = Vec::new();
        loop {
            let beat = {
                let mut books = self.books();
                books.accounts.hold(now_s(), &held.iter().map(|h| (h.job, h.restart_count)).collect::<Vec<_>>());
                books.look(&self.params.proc_root);
                self.beat(&books, url)
            };
            match client.post::<Beat, BeatReply>("/v1/beats", &beat) {
                Ok(reply) => {
                    held = reply.held;
                    for job in reply.fence {
                        self.fence(job);
                    }
                }
                Err(e) => tracing::debug!(%e, "the controller did not hear"),
            }
            std::thread::sleep(period);
        }
    }

    fn beat(&self, books: &Books, url: &str) -> Beat {
        Beat {
            version: protocol::VERSION,
            node: self.params.node.clone(),
            at_s: now_s(),
            started_s: self.started_s,
            url: url.to_string(),
            slurmd_up: self.slurmd_up(),
            node_joules: books.accounts.node_joules(),
            source: books.meter.source().as_str().to_string(),
            jobs: books.accounts.jobs().iter().filter(|j| j.ended_s.is_none()).map(reading).collect(),
        }
    }

    /// Whether a slurmd runs here: one process of that name, or of another node's services on a shared host.
    fn slurmd_up(&self) -> bool {
        let entries = std::fs::read_dir(&self.params.proc_root).into_iter().flatten().flatten();
        entries.into_iter().any(|e| {
            let numeric = e.file_name().to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
            numeric
                && std::fs::read_to_string(e.path().join("comm")).is_ok_and(|c| c.trim() == "slurmd")
                && !std::fs::read_to_string(e.path().join("stat")).is_ok_and(|s| s.contains(") Z "))
        })
    }

    /// Ends all processes of a job that Slurm has taken away from this node.
    fn fence(&self, job: u32) {
        let pids = {
            let mut books = self.books();
            books.look(&self.params.proc_root);
            books.processes.pids_of(job).to_vec()
        };
        let strays = self.strays(job, &pids);
        let pids = [pids, strays].concat();
        if !pids.is_empty() {
            tracing::warn!(job, processes = pids.len(), "ending a job that goes on elsewhere");
        }
        for pid in pids {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Processes of the job that left its steps' trees, found by their owner and their environment.
    fn strays(&self, job: u32, pids: &[i32]) -> Vec<i32> {
        let books = self.books();
        let owners: std::collections::BTreeSet<u32> =
            pids.iter().filter_map(|pid| owner(&self.params.proc_root, *pid)).filter(|uid| *uid != 0).collect();
        let of = |uid: u32| energy::orphans(&self.params.proc_root, &books.processes, job, uid).unwrap_or_default();
        owners.into_iter().flat_map(of).collect()
    }
}

/// Who owns a process.
fn owner(proc_root: &std::path::Path, pid: i32) -> Option<u32> {
    std::fs::metadata(proc_root.join(pid.to_string())).ok().map(|m| m.uid())
}

/// `?restart=N`: which record of the job asks.
#[derive(serde::Deserialize)]
struct Which {
    restart: Option<u32>,
}

async fn job_energy(
    State(node): State<Arc<Node>>,
    Path(job): Path<u32>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let asked = asked(&node.munge, method, &uri, &headers, Bytes::new()).await?;
    let uid = asked.peer.uid;
    let restart = axum::extract::Query::<Which>::try_from_uri(&uri).ok().and_then(|q| q.0.restart);
    let answer = blocking(move || {
        let at_s = now_s();
        let mut books = node.books();
        books.look(&node.params.proc_root);
        if uid != 0 && books.owners.get(&job).is_some_and(|owner| *owner != uid) {
            return None;
        }
        if let Some(restart) = restart {
            books.accounts.belongs(job, restart);
        }
        let job = books.accounts.job(job).as_ref().map(reading);
        Some(NodeReading { node: node.params.node.clone(), at_s, job })
    })
    .await?;
    match answer {
        Some(answer) => asked.answer(&answer).await,
        None => Err(asked.forbidden("see this job")),
    }
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let (joules, source, jobs) = {
        let books = node.books();
        let jobs = books.accounts.jobs().iter().filter(|j| j.ended_s.is_none()).count();
        (books.accounts.node_joules(), books.meter.source().as_str(), jobs)
    };
    let mut families = metrics::process("node");
    families.extend([
        Family::counter("joulepoint_node_energy_joules", "joules", "Energy of this node since the service began.")
            .sample(&[("source", source)], joules),
        Family::gauge("joulepoint_node_jobs", "", "Jobs with processes on this node.").sample(&[], jobs as f64),
    ]);
    metrics::exposition(families)
}
