//! The role `node`: meters the jobs on this node, beats, and ends what must not go on here.

use crate::capabilities::{self, Published};
use crate::frequency::{self, Frequency};
use crate::gpus;
use crate::health::part;
use crate::http::{self, Access, Document, Gate, Hidden, Limits, Listener, Refusal, Route, blocking};
use crate::lease::{self, Holder};
use crate::leavings::{self, Walks};
use crate::metrics::{self, Family};
use crate::now_s;
use crate::open_files;
use crate::pmix::{Ended, Folders};
use crate::signal;
use crate::spool::Spool;
use crate::users::Users;
use anyhow::{Context, Result};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use config::Site;
use energy::{Accounts, JobEnergy, Meter, Processes};
use parking_lot::Mutex;
use protocol::{Batch, Beat, BeatReply, Delivered, Fingerprint, Health, Held, JobReading, NodeReading, Part, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::Peer;

/// Longest wait for the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Longest wait for the controller to store what the spool holds.
const DELIVERY_LIMIT: Duration = Duration::from_secs(30);

/// Time between two looks at which checkpoint engines are installed.
const LOOK_AT_ENGINES: Duration = Duration::from_secs(20);

/// At one of so many of them it is also looked at what the node is made of.
const LOOKS_FOR_HARDWARE: u32 = 30;

/// So many jobs that have ended here are remembered until their files are looked at.
const MOST_ENDED: usize = 1024;

/// How a node service is to run.
pub struct Params {
    /// The site file.
    pub site: Site,
    /// Node name as Slurm knows it.
    pub node: String,
    /// Root of the process tree.
    pub proc_root: PathBuf,
}

/// The node service.
pub(crate) struct Node {
    pub(crate) params: Params,
    munge: wire::Munge,
    pub(crate) books: Mutex<Books>,
    health: Mutex<Health>,
    spool: Spool,
    started_s: f64,
    fingerprint: Mutex<Option<Fingerprint>>,
    /// Checkpoint engines that are installed here; none before the first look.
    engines: Mutex<Option<BTreeSet<String>>>,
    /// Whether the controller knows what to do with them.
    is_asked_for_engines: AtomicBool,
    published: Published,
    pub(crate) frequency: Frequency,
    pub(crate) lease: Holder,
    /// The jobs that hold this node, as the controller said last.
    held: Mutex<Vec<Held>>,
    /// CPUs of this node that Slurm gives out.
    cpus: OnceLock<u32>,
    pub(crate) slurmd_folders: OnceLock<Folders>,
    /// Hears of jobs that have ended here, whose steps may have left something.
    pub(crate) ended: SyncSender<Ended>,
    pub(crate) walks: Walks,
}

/// The meter, the accounts, and the last look at the processes.
pub(crate) struct Books {
    pub(crate) meter: Meter,
    pub(crate) accounts: Accounts,
    pub(crate) processes: Processes,
    /// Whose jobs they are, as the owners of their processes tell.
    owners: BTreeMap<u32, u32>,
    scanner: energy::Scanner,
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
        scanner: energy::Scanner::new(params.proc_root.clone(), energy::tick_hz()),
    };
    for (kind, why) in books.meter.refused() {
        tracing::info!(source = kind.as_str(), why, "an energy source is not used");
    }
    tracing::info!(node = params.node, url, source = books.meter.source().as_str(), "the node service serves");
    let munge = wire::Munge::new(params.site.munge_socket.clone());
    let mut listeners = vec![Listener::Tcp(listener)];
    let socket = params.site.node.socket_of(&params.node);
    if let Some(path) = &socket {
        match local(path) {
            Ok(listener) => listeners.push(Listener::Local(listener)),
            Err(e) => {
                tracing::warn!(path = %path.display(), error = format!("{e:#}"), "no socket: wrappers here use TCP")
            }
        }
    }
    let users = Arc::new(Users::new(params.site.limits));
    let gate = Arc::new(Gate::new(munge.clone(), wire::node_audience(&params.node), Limits::default(), users));
    let health = Mutex::new(Health { ok: false, parts: BTreeMap::new() });
    let spool = Spool::open(&params.site.node.spool.join(&params.node), params.site.node.spool_bytes)?;
    let own = &params.site.node;
    let [cpus, own_frequency] = own.cpufreq_of(&params.node);
    let frequency = Frequency::open(cpus, own_frequency);
    let lease = Holder::open(&params.site, &params.node, &params.proc_root)?;
    let published = Published::new(own.capabilities.clone(), &params.node);
    let (tell_ended, ended) = std::sync::mpsc::sync_channel(MOST_ENDED);
    let node = Arc::new(Node {
        params,
        munge,
        books: Mutex::new(books),
        health,
        spool,
        started_s: now_s(),
        fingerprint: Mutex::default(),
        engines: Mutex::default(),
        is_asked_for_engines: AtomicBool::new(false),
        published,
        frequency,
        lease,
        held: Mutex::default(),
        cpus: OnceLock::new(),
        slurmd_folders: OnceLock::new(),
        ended: tell_ended,
        walks: Walks::default(),
    });
    let delivering = node.clone();
    std::thread::spawn(move || delivering.spool.deliver_for_ever(&delivering.controller(DELIVERY_LIMIT)));
    let looking = node.clone();
    std::thread::spawn(move || looking.look_at_hardware_for_ever());
    let asking = node.clone();
    std::thread::spawn(move || gpus::ask_for_ever(&asking));
    let holding = node.clone();
    std::thread::spawn(move || holding.hold_for_ever());
    let clearing = node.clone();
    std::thread::spawn(move || clearing.clear_up_after_pmix(&ended));
    let beating = node.clone();
    std::thread::spawn(move || beating.beat_for_ever(&url));
    let app = http::router(routes(), gate.clone(), node);
    let is_local = listeners.len() > 1;
    http::serve(listeners, app, gate.limits, gate.refusals.clone(), crate::told_to_stop()).await;
    if let Some(path) = socket.filter(|_| is_local) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The node service's route table.
pub(crate) fn routes() -> Vec<Route<Arc<Node>>> {
    vec![
        Route::new("GET", "/healthz", Access::Open, get(healthz)),
        Route::new("GET", "/metrics", Access::Open, get(metrics)),
        Route::new("GET", "/v1/jobs/{job}/energy", Access::Known, get(job_energy)),
        Route::new("POST", "/v1/jobs/{job}/frequency", Access::Known, post(frequency::set)),
        Route::new("POST", "/v1/jobs/{job}/end", Access::Known, post(lease::end)),
        Route::new("POST", "/v1/lease", Access::Known, post(lease::grant)),
        Route::new("POST", "/v1/testimony", Access::Known, post(lease::testify)),
        Route::new("POST", "/v1/jobs/{job}/writers", Access::Known, post(open_files::writers)),
        Route::new("POST", "/v1/jobs/{job}/signal", Access::Known, post(signal::signal)),
        Route::new("POST", "/v1/jobs/{job}/leavings", Access::Known, post(leavings::leavings)),
        Route::new("POST", "/v1/records", Access::Known, post(records)),
    ]
}

/// Listens on a socket of this host that everybody may use: the kernel says who they are.
fn local(path: &FilePath) -> Result<tokio::net::UnixListener> {
    let folder = path.parent().context("a socket needs a folder")?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    if UnixStream::connect(path).is_ok() {
        anyhow::bail!("another service answers there");
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let listener = tokio::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
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
    /// The processes of a job at the last look.
    pub(crate) fn pids_of(&self, job: u32) -> Vec<i32> {
        self.processes.pids_of(job).to_vec()
    }

    fn look(&mut self, proc_root: &std::path::Path) {
        match self.scanner.scan(now_s()) {
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
    fn controller(&self, limit: Duration) -> wire::Client {
        let site = &self.params.site;
        wire::Client::new(&site.controller.url, site.munge_socket.clone(), limit)
    }

    fn beat_for_ever(self: &Arc<Self>, url: &str) {
        let site = &self.params.site;
        let client = self.controller(ANSWER_LIMIT);
        let period = Duration::from_secs_f64(site.node.beat_s);
        loop {
            let held = self.held.lock().clone();
            let beat = {
                let mut books = self.books.lock();
                books.accounts.hold(now_s(), &held.iter().map(|h| (h.job, h.restart_count)).collect::<Vec<_>>());
                for job in held.iter().filter(|h| h.cpus > 0) {
                    books.accounts.set_share(job.job, job.cpus);
                }
                books.look(&self.params.proc_root);
                self.beat(&books, url)
            };
            self.note_lives();
            let here: Vec<u32> = beat.jobs.iter().map(|job| job.job).collect();
            self.frequency.expire(Instant::now(), |job| here.contains(&job));
            // What is answered proves that this node was reached when it asked, not when it heard.
            let sent_s = lease::now_s();
            let heard = client.post::<Beat, BeatReply>("/v1/beats", &beat);
            self.look_at_self(&heard);
            match heard {
                Ok(mut reply) => {
                    let told = reply.capabilities.take();
                    self.is_asked_for_engines.store(told.is_some(), Ordering::Relaxed);
                    told.into_iter().for_each(|told| self.published.publish(told));
                    let actions = self.lease.answered(sent_s, &reply);
                    *self.held.lock() = reply.held;
                    self.act_on_lease(actions);
                }
                Err(e) => tracing::debug!(%e, "the controller did not hear"),
            }
            std::thread::sleep(period);
        }
    }

    /// What calibrations and engines depend on changes with a boot, a mount, a package.
    fn look_at_hardware_for_ever(&self) {
        let of = &self.params.site.calibration;
        let storage = [(Storage::Memory, of.memory_dir.clone()), (Storage::Local, of.local_dir.clone())].into();
        let criu = self.params.site.criu.command.as_deref();
        let path = std::env::var_os("PATH").unwrap_or_default();
        for n in (0..LOOKS_FOR_HARDWARE).cycle() {
            *self.engines.lock() = Some(capabilities::installed(criu, &path, &self.params.proc_root));
            match (n == 0).then(|| hardware::facts::look(&self.params.node, &storage, &of.mpicc)) {
                Some(Ok(facts)) => *self.fingerprint.lock() = Some(facts.fingerprint),
                Some(Err(e)) => tracing::warn!(error = format!("{e:#}"), "the hardware cannot be looked at"),
                None => {}
            }
            std::thread::sleep(LOOK_AT_ENGINES);
        }
    }

    fn look_at_self(&self, heard: &Result<BeatReply, wire::Error>) {
        // Whoever was heard has a munged that answers.
        let munge = if heard.is_ok() { Ok(()) } else { self.munge.encode(b"").map(drop) };
        let source = self.books.lock().meter.source().as_str().to_string();
        let lease = match self.lease.is_cut_off() {
            true => Err("nobody reaches this node: what is protected is frozen"),
            false => Ok("held".to_string()),
        };
        let parts = BTreeMap::from([
            ("lease".to_string(), part(lease)),
            ("controller".to_string(), part(heard.as_ref().map(|_| "hears".to_string()))),
            ("munge".to_string(), part(munge.map(|()| "answers".to_string()))),
            ("energy".to_string(), Part { ok: true, text: source }),
        ]);
        *self.health.lock() = Health { ok: parts.values().all(|p| p.ok), parts };
    }

    fn beat(&self, books: &Books, url: &str) -> Beat {
        Beat {
            version: protocol::VERSION,
            node: self.params.node.clone(),
            at_s: now_s(),
            started_s: self.started_s,
            url: url.to_string(),
            slurmd_up: books.processes.slurmd_up,
            node_joules: books.accounts.node_joules(),
            source: books.meter.source().as_str().to_string(),
            jobs: books.accounts.jobs().iter().filter(|j| j.ended_s.is_none()).map(reading).collect(),
            fingerprint: self.fingerprint.lock().clone(),
            boot_id: self.lease.boot_id(),
            epoch: Some(self.lease.epoch()),
            engines: self.engines.lock().clone().filter(|_| self.is_asked_for_engines.load(Ordering::Relaxed)),
        }
    }

    /// Looks at the processes of this node anew.
    pub(crate) fn look_at_processes(&self) {
        self.books.lock().look(&self.params.proc_root);
    }

    /// Whether a job that has processes here is this user's; none if it has none.
    pub(crate) fn is_owner(&self, uid: u32, job: u32) -> Option<bool> {
        let mut books = self.books.lock();
        books.look(&self.params.proc_root);
        let is_here = books.processes.jobs.iter().any(|j| j.job_id == job);
        is_here.then(|| uid == 0 || books.owners.get(&job) == Some(&uid))
    }

    /// The processes of a job here, for its owner and root; none if it is somebody else's.
    pub(crate) fn processes_of(&self, uid: u32, job: u32) -> Option<Vec<i32>> {
        let pids = {
            let mut books = self.books.lock();
            books.look(&self.params.proc_root);
            let (owner, pids) = (books.owners.get(&job), books.pids_of(job));
            let is_theirs = uid == 0 || owner.map_or(pids.is_empty(), |owner| *owner == uid);
            is_theirs.then_some(pids)?
        };
        Some([self.strays(job, &pids), pids].concat())
    }

    /// The owner of a job and the processes of its steps here, scripts and Slurm's own step apart; none if it is somebody
    /// else's.
    pub(crate) fn tasks_of(&self, uid: u32, job: u32) -> Option<(u32, Vec<i32>)> {
        let mut books = self.books.lock();
        books.look(&self.params.proc_root);
        let owner = books.owners.get(&job).copied();
        let of_job = books.processes.jobs.iter().find(|j| j.job_id == job);
        if of_job.is_some() && uid != 0 && owner != Some(uid) {
            return None;
        }
        let is_task = |step: &&energy::StepCpu| !step.is_script() && !step.is_extern();
        let steps = of_job.into_iter().flat_map(|j| &j.steps).filter(is_task);
        Some((owner.unwrap_or(uid), steps.flat_map(|step| &step.pids).copied().collect()))
    }

    /// Whether the CPU frequency is a job's to set: the site allows it, and all CPUs that Slurm gives out are the job's.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_set_frequency(&self, job: u32) -> Result<(), String> {
        if !self.params.site.node.cpufreq {
            return Err("node.cpufreq is off on this site".to_string());
        }
        let own = self.held.lock().iter().find(|h| h.job == job).map_or(0, |h| h.cpus);
        let others = self.books.lock().processes.jobs.iter().any(|j| j.job_id != job);
        match self.cpus()? {
            all if others || own < all => {
                Err(format!("the job has {own} of {all} CPUs here: only one that has the whole node may set them"))
            }
            _ => Ok(()),
        }
    }

    fn cpus(&self) -> Result<u32, String> {
        if let Some(cpus) = self.cpus.get() {
            return Ok(*cpus);
        }
        let slurm = slurm::Slurm::new(self.params.site.slurm_bin.clone());
        let here = slurm.node(&self.params.node).map_err(|e| e.to_string())?;
        let cpus = here.ok_or_else(|| format!("Slurm does not know node {}", self.params.node))?.cpus;
        Ok(*self.cpus.get_or_init(|| cpus))
    }

    /// Processes of the job that left its steps' trees, found by their owner and their environment.
    pub(crate) fn strays(&self, job: u32, pids: &[i32]) -> Vec<i32> {
        let books = self.books.lock();
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
#[serde(deny_unknown_fields)]
struct Which {
    restart: Option<u32>,
}

async fn healthz(State(node): State<Arc<Node>>) -> Response {
    crate::health::tell(&node.health.lock())
}

/// What a job has used here. Somebody else's job looks like one that was never here.
async fn job_energy(
    State(node): State<Arc<Node>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path(job), Query(which)) = (job?, which?);
    let (reading, is_hidden) = blocking(move || {
        let at_s = now_s();
        let mut books = node.books.lock();
        books.look(&node.params.proc_root);
        let is_hidden = peer.uid != 0 && books.owners.get(&job).is_some_and(|owner| *owner != peer.uid);
        if let Some(restart) = which.restart.filter(|_| !is_hidden) {
            books.accounts.belongs(job, restart);
        }
        let job = books.accounts.job(job).filter(|_| !is_hidden).as_ref().map(reading);
        (NodeReading { node: node.params.node.clone(), at_s, job }, is_hidden)
    })
    .await?;
    let mut answer = Json(reading).into_response();
    if is_hidden {
        answer.extensions_mut().insert(Hidden("the job is somebody else's"));
    }
    Ok(answer)
}

/// Keeps a user's records for the controller, as long as it is away.
async fn records(
    State(node): State<Arc<Node>>,
    Extension(peer): Extension<Peer>,
    Document(batch): Document<Batch>,
) -> Result<Json<Delivered>, Refusal> {
    crate::http::version(batch.version)?;
    let upto = blocking(move || node.spool.keep(peer.uid, &batch)).await?;
    Ok(Json(Delivered { upto: upto.map_err(|e| Refusal(StatusCode::INSUFFICIENT_STORAGE, e.to_string()))? }))
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let (joules, source, jobs) = {
        let books = node.books.lock();
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
