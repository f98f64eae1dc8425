//! The role `node`: puts its parts together, and answers for those that have no file of their own.

use crate::capabilities::Published;
use crate::frequency::{self, Frequency, Setting};
use crate::gpus;
use crate::heart::Heart;
use crate::heart::rest::{self, Rest};
use crate::lease::{self, Holder};
use crate::leavings::{self, Looker, Walks};
use crate::metering::{Metering, reading};
use crate::open_files;
use crate::pmix::Pmix;
use crate::signal;
use crate::spool::Spool;
use anyhow::{Context, Result};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRef, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use config::Site;
use listener::health::SelfLook;
use listener::metrics::{self, Family};
use listener::{Access, Document, Gate, Hidden, Limits, Listener, Refusal, Route, Users, blocking, for_ever, now_s};
use parking_lot::Mutex;
use protocol::{Batch, Delivered, NodeReading};
use slurm::Slurm;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::spawn;
use std::time::Duration;
use wire::session::{SessionClient, SessionRequest};
use wire::{Client, Munge, Peer};

/// Longest wait for the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// For how long what this service saw of itself counts, beyond the time for which it may be silent.
const LOOKED_FOR: Duration = Duration::from_secs(30);

/// Longest wait for the controller to store what the spool holds.
const DELIVERY_LIMIT: Duration = Duration::from_secs(30);

/// How a node service is to run.
pub struct Params {
    /// The site file.
    pub site: Site,
    /// Node name as Slurm knows it.
    pub node: String,
    /// Root of the process tree.
    pub proc_root: PathBuf,
}

/// What handlers answer from, each from its own part.
#[derive(Clone)]
struct Parts {
    metering: Arc<Metering>,
    lease: Arc<Holder>,
    setting: Arc<Setting>,
    looker: Arc<Looker>,
    spool: Arc<Spool>,
    looks: Arc<SelfLook>,
    rest: Arc<Rest>,
}

macro_rules! parts {
    ($($part:ident: $kind:ty),*) => {$(
        impl FromRef<Parts> for Arc<$kind> {
            fn from_ref(parts: &Parts) -> Arc<$kind> {
                parts.$part.clone()
            }
        }
    )*};
}
parts!(metering: Metering, lease: Holder, setting: Setting, looker: Looker, spool: Spool, looks: SelfLook, rest: Rest);

/// Serves until told to stop.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(params: Params) -> Result<()> {
    let listen = params.site.node.listen.clone();
    let listener = tokio::net::TcpListener::bind(&listen).await.with_context(|| format!("node.listen = {listen}"))?;
    let url = url(listener.local_addr()?, &params.node);
    let (site, name) = (&params.site, &params.node);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let metering =
        Metering::new(name.clone(), params.proc_root.clone(), &energy_config(&params), cpus, site.energy.idle_w);
    for (kind, why) in metering.lock().meter.refused() {
        tracing::info!(source = kind.as_str(), why, "an energy source is not used");
    }
    let source = metering.lock().meter.source();
    tracing::info!(node = name, url, source = source.as_str(), "the node service serves");
    let mut listeners = vec![Listener::Tcp(listener)];
    let socket = site.node.socket_of(name);
    if let Some(path) = &socket {
        match local(path) {
            Ok(listener) => listeners.push(Listener::Local(listener)),
            Err(e) => {
                tracing::warn!(path = %path.display(), error = format!("{e:#}"), "no socket: wrappers here use TCP")
            }
        }
    }
    let munge = Munge::new(site.munge_socket.clone());
    let users = Arc::new(Users::new(site.limits));
    let gate = Arc::new(Gate::new(munge.clone(), wire::node_audience(name), Limits::default(), users));
    let parts = begin(site, Arc::new(metering), munge, url)?;
    let app = listener::router(routes(), gate.clone(), parts);
    let is_local = listeners.len() > 1;
    listener::serve(listeners, app, gate.limits, gate.refusals.clone(), listener::stopping()).await;
    if let Some(path) = socket.filter(|_| is_local) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Takes up what an earlier life of the service has left, and starts the threads; others reach this node at `url`.
fn begin(site: &Site, metering: Arc<Metering>, munge: Munge, url: String) -> Result<Parts> {
    let (own, name, slurm) =
        (&site.node, &metering.name, Slurm::new(site.slurm_bin.clone()).with_budget(site.slurm.budget));
    let spool = Arc::new(Spool::open(&own.spool.join(name), own.spool_bytes)?);
    let [cpus, own_frequency] = own.cpufreq_of(name);
    let setting = Arc::new(Setting {
        frequency: Frequency::open(cpus, own_frequency),
        is_allowed: own.cpufreq,
        metering: metering.clone(),
        slurm: slurm.clone(),
        cpus: OnceLock::new(),
    });
    let (pmix, ended) = Pmix::new(metering.clone(), slurm.clone());
    let pmix = Arc::new(pmix);
    let lease = Arc::new(Holder::open(site, metering.clone(), pmix.clone())?);
    let looker = Arc::new(Looker {
        metering: metering.clone(),
        lease: lease.clone(),
        pmix: pmix.clone(),
        runs: site.runs.clone(),
        walks: Walks::default(),
    });
    // A node that rests looks at itself when it beats.
    let looks = Arc::new(SelfLook::new(LOOKED_FOR + Duration::from_secs_f64(site.node.idle_beat_s)));
    let rest = Arc::new(Rest::default());
    let heart = Arc::new(Heart {
        site: site.clone(),
        munge,
        metering: metering.clone(),
        lease: lease.clone(),
        setting: setting.clone(),
        published: Published::new(own.capabilities.clone(), name),
        looks: looks.clone(),
        started_s: now_s(),
        fingerprint: Mutex::default(),
        engines: Mutex::default(),
        is_asked_for_engines: AtomicBool::new(false),
        rest: rest.clone(),
        may_rest: AtomicBool::new(false),
        counts_boots: AtomicBool::new(false),
    });
    let controller = |limit| Client::new(&site.controller.url, site.munge_socket.clone(), limit);
    let (delivering, to_store) = (spool.clone(), controller(DELIVERY_LIMIT));
    let request = SessionRequest { version: protocol::VERSION, node: name.clone(), boot_id: lease.boot_id() };
    let to_hear = SessionClient::new(controller(ANSWER_LIMIT), Munge::new(site.munge_socket.clone()), request);
    let (looking, asking, holding, finding) = (heart.clone(), metering.clone(), lease.clone(), lease.clone());
    for_ever("spool", move || delivering.deliver_for_ever(&to_store))?;
    spawn(move || looking.look_at_hardware_for_ever());
    spawn(move || gpus::ask_for_ever(&asking, &slurm));
    for_ever("lease", move || holding.hold_for_ever())?;
    for_ever("lives", move || finding.look_for_lives_for_ever())?;
    spawn(move || pmix.clear_up(&ended));
    for_ever("heart", move || heart.beat_for_ever(&to_hear, &url))?;
    Ok(Parts { metering, lease, setting, looker, spool, looks, rest })
}

/// Method and path of every route.
pub fn paths() -> Vec<(&'static str, &'static str)> {
    routes().into_iter().map(|r| (r.method, r.path)).collect()
}

/// The node service's route table.
fn routes() -> Vec<Route<Parts>> {
    vec![
        Route::new("GET", "/healthz", Access::Open, get(healthz)),
        Route::new("GET", "/metrics", Access::Open, get(metrics)),
        Route::new("GET", "/v1/jobs/{job}/energy", Access::Known, get(job_energy)),
        Route::new("POST", "/v1/jobs/{job}/frequency", Access::Known, post(frequency::set)),
        Route::new("POST", "/v1/jobs/{job}/end", Access::Known, post(lease::end)),
        Route::new("POST", "/v1/wake", Access::Known, post(rest::wake)),
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

/// `?restart=N`: which record of the job asks.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    restart: Option<u32>,
}

async fn healthz(State(looks): State<Arc<SelfLook>>) -> Response {
    looks.tell()
}

/// What a job has used here. Somebody else's job looks like one that was never here, and so does one without processes,
/// since nobody knows whose it is; the controller has what heartbeats told of it.
async fn job_energy(
    State(metering): State<Arc<Metering>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path(asked), Query(which)) = (job?, which?);
    let (reading, is_hidden) = blocking(move || {
        let at_s = now_s();
        let mut meters = metering.lock();
        meters.look(&metering.proc_root);
        let job = meters.told_to(peer.uid, asked, which.restart);
        let is_hidden = peer.uid != 0 && meters.owners.get(&asked).is_some_and(|owner| *owner != peer.uid);
        (NodeReading { node: metering.name.clone(), at_s, job: job.as_ref().map(reading) }, is_hidden)
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
    State(spool): State<Arc<Spool>>,
    Extension(peer): Extension<Peer>,
    Document(batch): Document<Batch>,
) -> Result<Json<Delivered>, Refusal> {
    listener::version(batch.version)?;
    let upto = blocking(move || spool.keep(peer.uid, &batch)).await?;
    Ok(Json(Delivered { upto: upto.map_err(|e| Refusal(StatusCode::INSUFFICIENT_STORAGE, e.to_string()))? }))
}

async fn metrics(State(metering): State<Arc<Metering>>) -> Result<Response, Refusal> {
    let (joules, source, jobs) = blocking(move || {
        let meters = metering.lock();
        let jobs = meters.accounts.jobs().iter().filter(|j| j.ended_s.is_none()).count();
        (meters.accounts.node_joules(), meters.meter.source().as_str(), jobs)
    })
    .await?;
    let mut families = metrics::process("node");
    families.extend([
        Family::counter("joulepoint_node_energy_joules", "joules", "Energy of this node since the service began.")
            .sample(&[("source", source)], joules),
        Family::gauge("joulepoint_node_jobs", "", "Jobs with processes on this node.").sample(&[], jobs as f64),
    ]);
    Ok(metrics::exposition(families))
}
