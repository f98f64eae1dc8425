//! The role `controller`: answers wrappers and people, watches nodes and jobs, helps where nobody else does.

use crate::access::Access;
use crate::account;
use crate::audit::{self, By};
use crate::comment;
use crate::energy_tres::EnergyTres;
use crate::history;
use crate::http::{self, Gate, Limits, Listener, Refusal, Turns};
use crate::latency::Latency;
use crate::loans::Loans;
use crate::metrics::{self, Ended, Family};
use crate::orders::Orders;
use crate::readers::Readers;
use crate::store::{OpenRun, Store};
use crate::users::Users;
use crate::watch::{Act, Watch};
use crate::words::Words;
use crate::writer::Writer;
use crate::{lock, now_s, routes};
use anyhow::{Context, Result, bail};
use axum::extract::State;
use axum::response::Response;
use config::Site;
use protocol::{FailureKind, Health, Part, RunAccount, RunKey};
use slurm::{Job, JobState, JobText, Slurm};
use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::Peer;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// Longest wait for a slurmd that may be dead.
const SLURMD_LIMIT: Duration = Duration::from_secs(1);

/// Time between two looks for nodes that are well and still down in Slurm by our doing, s.
const RESUME_S: f64 = 10.0;

/// How often a run whose wrapper is killed is put back into the queue.
const MOST_WRAPPER_DEATHS: u32 = 3;

/// What our reasons for setting a node down begin with.
const OURS: &str = "joulepoint:";

/// Time between two AdminComments of a job, s; its end is always noted.
const COMMENT_S: f64 = 10.0;

/// Most runs that are forgotten in one transaction.
const FORGET_TOGETHER: u32 = 100;

/// Time between two bookings of watched time, s.
const BOOK_S: f64 = 60.0;

/// Time between two looks at what this service itself needs.
const LOOK_AT_SELF: Duration = Duration::from_secs(10);

/// After how many of those accounting is asked for its operators again.
const ASK_OPERATORS: u64 = 6;

/// The controller.
pub struct Controller {
    pub(crate) site: Site,
    munge: wire::Munge,
    pub(crate) slurm: Slurm,
    pub(crate) store: Arc<Mutex<Store>>,
    /// For the looks at the cluster.
    pub(crate) reader: Mutex<Store>,
    /// For questions over HTTP.
    pub(crate) readers: Readers,
    /// For reports, which may take long, so that plans do not wait for them.
    pub(crate) reporter: Mutex<Store>,
    pub(crate) writer: Writer,
    pub(crate) watch: Mutex<Watch>,
    /// Open runs whose job Slurm knows as their owner's, at the last look.
    pub(crate) open: Mutex<Arc<Vec<OpenRun>>>,
    pub(crate) access: Access,
    pub(crate) orders: Orders,
    pub(crate) loans: Loans,
    pub(crate) health: Mutex<Health>,
    commented_s: Mutex<BTreeMap<RunKey, f64>>,
    pub(crate) beats: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) planning: Latency,
    /// The newest calibrations, with what plans have fitted to them.
    pub(crate) known: Mutex<Vec<planner::Known>>,
    /// What nodes are made of, as their services told last.
    pub(crate) fingerprints: Mutex<BTreeMap<String, protocol::Fingerprint>>,
    pub(crate) ended: Ended,
    energy_tres: EnergyTres,
    pub(crate) users: Arc<Users>,
    pub(crate) words: Words,
    /// Each user's turns at what reads much of the store.
    pub(crate) reports: Turns,
    pub(crate) plans: Turns,
}

/// Serves until told to stop.
///
/// # Errors
/// When the store cannot be opened or the address not be bound.
pub async fn serve(site: Site) -> Result<()> {
    let store = Arc::new(Mutex::new(Store::open(&site.controller.store)?));
    let again = || Ok::<_, anyhow::Error>(Mutex::new(lock(&store).another(&site.controller.store)?));
    let (reader, readers, reporter) = (again()?, Readers::open(&site.controller.store)?, again()?);
    let orders = Orders::new(now_s());
    orders.take_up(now_s(), lock(&store).kept_orders(now_s())?);
    let controller = Arc::new(Controller {
        munge: wire::Munge::new(site.munge_socket.clone()),
        slurm: Slurm::new(site.slurm_bin.clone()),
        writer: Writer::start(store.clone()),
        store,
        reader,
        readers,
        reporter,
        open: Mutex::default(),
        watch: Mutex::new(Watch::new(site.controller.detect_s, now_s())),
        access: Access::new(&site.controller.operators),
        orders,
        loans: Loans::default(),
        health: Mutex::new(Health { ok: false, parts: BTreeMap::new() }),
        commented_s: Mutex::default(),
        beats: AtomicU64::new(0),
        records: AtomicU64::new(0),
        planning: Latency::default(),
        known: Mutex::default(),
        fingerprints: Mutex::default(),
        ended: Ended::default(),
        energy_tres: EnergyTres::default(),
        users: Arc::new(Users::new(site.limits)),
        words: Words::default(),
        reports: Turns::new(1),
        plans: Turns::new(1),
        site,
    });
    let listener = tokio::net::TcpListener::bind(&controller.site.controller.listen)
        .await
        .with_context(|| format!("controller.listen = {}", controller.site.controller.listen))?;
    let (watching, looking, lending) = (controller.clone(), controller.clone(), controller.clone());
    std::thread::spawn(move || watching.watch_for_ever());
    std::thread::spawn(move || looking.look_at_self_for_ever());
    std::thread::spawn(move || lending.lend_for_ever());
    let gate = Arc::new(Gate::new(
        controller.munge.clone(),
        wire::CONTROLLER.to_string(),
        Limits::default(),
        controller.users.clone(),
    ));
    let app = http::router(routes::controller(), gate.clone(), controller.clone());
    tracing::info!(listen = controller.site.controller.listen, "the controller serves");
    http::serve(vec![Listener::Tcp(listener)], app, gate.limits, gate.refusals.clone(), crate::told_to_stop()).await;
    Ok(())
}

impl Controller {
    /// For whom somebody sends records: a node service (root) names the user whose records it kept.
    pub(crate) fn behalf(&self, peer: Peer, uid: Option<u32>) -> Result<Peer, Refusal> {
        match uid {
            None => Ok(peer),
            Some(uid) if peer.uid == 0 => Ok(Peer { uid, ..peer }),
            Some(_) => Err(http::forbidden(peer, "send records of others")),
        }
    }

    fn watch_for_ever(&self) {
        if let Err(e) = history::take_over(&self.slurm, &self.store, now_s()) {
            tracing::info!(reason = format!("{e:#}"), "no history is taken over from Slurm");
        }
        let (mut booked_s, mut resumed_s) = (now_s(), 0.0);
        let mut told = String::new();
        loop {
            std::thread::sleep(LOOK);
            let error = self.look(&mut booked_s, &mut resumed_s).err().map(|e| format!("{e:#}")).unwrap_or_default();
            if error != told {
                match error.as_str() {
                    "" => tracing::info!("the cluster can be looked at again"),
                    error => tracing::error!(error, "a look at the cluster failed; said once until it changes"),
                }
                told = error;
            }
        }
    }

    fn look_at_self_for_ever(&self) {
        for look in 0_u64.. {
            let parts = BTreeMap::from([
                ("store".to_string(), part(lock(&self.store).write(&[]).map(|_| "writable".to_string()))),
                ("munge".to_string(), part(self.munge.encode(b"").map(|_| "answers".to_string()))),
                ("slurm".to_string(), part(self.look_at_slurm())),
            ]);
            *lock(&self.health) = Health { ok: parts.values().all(|p| p.ok), parts };
            if let Err(e) = self.refresh_calibrations() {
                tracing::warn!(error = format!("{e:#}"), "the calibrations cannot be read");
            }
            if look.is_multiple_of(ASK_OPERATORS) {
                self.access.refresh(&self.slurm);
                if let Err(e) = self.look_at_unverified() {
                    tracing::warn!(error = format!("{e:#}"), "unverified runs cannot be looked at");
                }
            }
            std::thread::sleep(LOOK_AT_SELF);
        }
    }

    fn look_at_slurm(&self) -> Result<String> {
        let slurm_user = self.slurm.config_value("SlurmUser")?;
        self.access.slurm_user(slurm_user.as_deref().unwrap_or_default());
        Ok("slurmctld answers".to_string())
    }

    fn look(&self, booked_s: &mut f64, resumed_s: &mut f64) -> Result<()> {
        let runs = lock(&self.reader).open_runs_kept()?;
        let ids: Vec<u32> = runs.iter().map(|r| r.job).filter(|job| *job > 0).collect();
        // Without an answer of slurmctld nothing is known of jobs, and nothing done about them.
        let jobs: BTreeMap<u32, Job> = self.slurm.jobs_of(&ids)?.into_iter().map(|j| (j.id, j)).collect();
        let theirs = |r: &&OpenRun| jobs.get(&r.job).is_some_and(|j| j.uid == r.uid);
        *lock(&self.open) = Arc::new(runs.iter().filter(theirs).cloned().collect());
        let now_s = now_s();
        let acts = lock(&self.watch).look(now_s, &runs, &jobs);
        let silent: Vec<&str> =
            acts.iter().filter_map(|a| if let Act::Verify { node } = a { Some(node.as_str()) } else { None }).collect();
        if !silent.is_empty()
            && let Err(e) = self.verify(&silent)
        {
            tracing::error!(?silent, error = format!("{e:#}"), "silent nodes could not be looked at");
        }
        for act in &acts {
            tracing::debug!(?act, "acting");
            if let Err(e) = self.act(act) {
                tracing::error!(?act, error = format!("{e:#}"), "failed; it will be tried again");
            }
        }
        if now_s - *resumed_s >= RESUME_S {
            *resumed_s = now_s;
            self.resume_forgotten(now_s)?;
            if let Err(e) = self.energy_tres.tell(&self.slurm) {
                tracing::warn!(%e, "Slurm's accounting was not told the energy of jobs; it will be tried again");
            }
        }
        if now_s - *booked_s >= BOOK_S {
            let seconds = now_s - *booked_s;
            let nodes: Vec<(String, f64)> =
                lock(&self.watch).watched(now_s).into_iter().map(|n| (n, seconds)).collect();
            lock(&self.store).watched(&nodes)?;
            *booked_s = now_s;
            self.forget(now_s)?;
        }
        Ok(())
    }

    /// Forgets runs that ended longer ago than the site keeps them, a few at a time.
    fn forget(&self, now_s: f64) -> Result<()> {
        let keep_s = self.site.controller.retention_days * 86_400.0;
        if keep_s > 0.0 {
            while lock(&self.store).forget(now_s - keep_s, FORGET_TOGETHER)? == FORGET_TOGETHER as usize {}
        }
        Ok(())
    }

    fn act(&self, act: &Act) -> Result<()> {
        match act {
            Act::Verify { .. } => Ok(()), // all of them together, before
            Act::Resume { node } => self.resume(node),
            Act::StartNow { run } if self.site.controller.start_requeued_at_once => {
                self.look_again(run)?;
                tracing::info!(job = run.job, "a requeued job starts at once");
                Ok(self.slurm.start_now(run.job)?)
            }
            Act::StartNow { .. } => Ok(()),
            Act::Requeue { run, reason, wrapper_killed } => self.requeue(run, reason, *wrapper_killed),
            Act::Close { run, state } => {
                let state = if *state == "unknown" { self.accounted(run).unwrap_or(state) } else { state };
                tracing::warn!(job = run.job, state, "a run ended without its wrapper's word");
                self.orders.close(now_s(), &run.key);
                lock(&self.store).close(run, now_s(), state)?;
                // Slurm takes no AdminComment of a job that is over.
                self.account_end(&account::account(lock(&self.reader).connection(), &run.key)?);
                Ok(())
            }
        }
    }

    /// Asks Slurm for the one job before anything is done to it: a listing can be forged by a job's texts.
    fn look_again(&self, run: &OpenRun) -> Result<Job> {
        let job = self.slurm.job(run.job)?.with_context(|| format!("Slurm no longer knows job {}", run.job))?;
        if job.uid != run.uid {
            bail!("job {} belongs to user {}, not to the run's user {}", run.job, job.uid, run.uid);
        }
        Ok(job)
    }

    /// How a job ended that slurmctld has forgotten, as accounting knows it.
    fn accounted(&self, run: &OpenRun) -> Option<&'static str> {
        let last = self.slurm.accounted(run.job).ok()?.pop()?;
        Some(match last.state {
            JobState::Completed => "completed",
            JobState::Cancelled => "cancelled",
            JobState::Timeout | JobState::Deadline => "timeout",
            state if state.is_over() => "failed",
            _ => return None,
        })
    }

    /// Looks whether the slurmd of silent nodes answer; sets those down that do not.
    fn verify(&self, names: &[&str]) -> Result<()> {
        let nodes = self.slurm.nodes()?;
        let port = || self.slurm.config_value("SlurmdPort").ok().flatten().and_then(|p| p.parse().ok()).unwrap_or(6818);
        let usual_port = if nodes.iter().any(|n| n.port.is_none()) { port() } else { 0 };
        let answering: Vec<(&str, Option<bool>)> = std::thread::scope(|scope| {
            let look = |name: &str| {
                let node = nodes.iter().find(|n| n.name == name)?;
                let (addr, port) = (node.addr.as_str(), node.port.unwrap_or(usual_port));
                Some(scope.spawn(move || answers(addr, port)))
            };
            let looks: Vec<_> = names.iter().map(|name| (*name, look(name))).collect();
            looks.into_iter().map(|(name, look)| (name, look.and_then(|l| l.join().ok()))).collect()
        });
        for (name, answer) in answering {
            match answer {
                None => tracing::warn!(node = name, "a node that Slurm does not know was silent"),
                Some(true) => {
                    lock(&self.watch).answers(name);
                    tracing::warn!(node = name, "no heartbeat, but its slurmd answers: only the node service is gone");
                }
                Some(false) => {
                    if let Err(e) = self.set_down(name) {
                        tracing::error!(node = name, error = format!("{e:#}"), "a dead node could not be set down");
                    }
                }
            }
        }
        Ok(())
    }

    fn set_down(&self, name: &str) -> Result<()> {
        let now_s = now_s();
        let beats = lock(&self.watch).watched(now_s).iter().any(|n| n == name);
        let Some(at_s) = lock(&self.watch).dead(name) else {
            tracing::warn!(node = name, "no slurmd, but nobody was heard of since the start: is this host cut off?");
            return Ok(());
        };
        let seen = if beats { "no slurmd" } else { "no slurmd and no heartbeat" };
        let reason = format!("{OURS} {seen} for {:.1} s", now_s - at_s);
        tracing::warn!(node = name, reason, "a node is dead");
        // The store first, as long as the runs are still open there: Slurm ends them.
        let text = format!("node {name} died: {reason}");
        // Asked before the store is locked: a loan that changes holds the loans, then the store.
        let open = lock(&self.open).clone();
        let spared: Vec<_> = open.iter().filter(|run| self.loans.has_lent(run, name)).map(|run| &run.key).collect();
        let is_hit = |run: &OpenRun| !spared.contains(&&run.key);
        let hit = lock(&self.store).node_died(name, at_s, now_s, &text, is_hit)?;
        lock(&self.watch).hit(now_s, &hit);
        hit.iter().for_each(|run| self.orders.tell(&run.key));
        Ok(self.slurm.node_down(name, &reason)?)
    }

    fn resume(&self, name: &str) -> Result<()> {
        let node = self.slurm.nodes()?.into_iter().find(|n| n.name == name);
        if node.is_some_and(|n| n.state == "DOWN" && n.reason.starts_with(OURS)) {
            tracing::info!(node = name, "a node that was set down is back");
            self.slurm.node_resume(name)?;
        }
        Ok(())
    }

    /// Resumes nodes that an earlier life of this service set down, or that could not be resumed at the first try.
    fn resume_forgotten(&self, now_s: f64) -> Result<()> {
        if lock(&self.watch).beating(now_s) == 0 {
            return Ok(());
        }
        for node in self.slurm.nodes()?.iter().filter(|n| n.state == "DOWN" && n.reason.starts_with(OURS)) {
            if lock(&self.watch).is_well(now_s, &node.name) {
                tracing::info!(node = node.name, "a node that was set down is well");
                self.slurm.node_resume(&node.name)?;
            }
        }
        Ok(())
    }

    fn requeue(&self, run: &OpenRun, reason: &str, wrapper_killed: bool) -> Result<()> {
        self.look_again(run)?;
        let now_s = now_s();
        if wrapper_killed {
            let deaths = lock(&self.store).failures(&run.key, FailureKind::Wrapper)?;
            if deaths >= MOST_WRAPPER_DEATHS {
                tracing::error!(job = run.job, deaths, "its wrapper is killed again and again: the run is given up");
                return lock(&self.store).close(run, now_s, "failed");
            }
            lock(&self.store).failed(&run.key, FailureKind::Wrapper, now_s, reason)?;
        }
        tracing::warn!(job = run.job, reason, "requeueing");
        lock(&self.watch).hit(now_s, std::slice::from_ref(run));
        Ok(self.slurm.requeue(run.job)?)
    }

    /// Counts a run that has ended, and tells Slurm's accounting its energy later, when the job is over there.
    fn account_end(&self, run: &RunAccount) {
        self.ended.add(run);
        if run.end_s.is_some() && self.site.controller.energy_tres {
            self.energy_tres.later(run);
        }
    }

    /// Writes a run's AdminComment beside what the site wrote there: of a run whose job is its user's by Slurm's word, at
    /// its end always, else now and then.
    ///
    /// # Errors
    /// What the store or Slurm says.
    pub(crate) fn comment(&self, key: &RunKey, ends: bool) -> Result<()> {
        let now_s = now_s();
        {
            let mut commented = lock(&self.commented_s);
            commented.retain(|_, at| now_s - *at < COMMENT_S);
            if !ends && commented.contains_key(key) {
                return Ok(());
            }
            commented.insert(key.clone(), now_s);
        }
        let read = if ends { account::account } else { account::brief };
        let run = read(lock(&self.reader).connection(), key)?;
        if ends {
            self.account_end(&run);
        }
        let owner = lock(&self.reader).run(key)?.filter(|row| row.verified && row.job > 0);
        let Some(owner) = owner.filter(|_| run.trouble.is_empty()) else { return Ok(()) };
        self.users.command(now_s, owner.uid)?;
        let Some(job) = self.slurm.job(owner.job)?.filter(|job| job.uid == owner.uid) else { return Ok(()) };
        let ours = serde_json::to_string(&account::summary(&run))?;
        let Some(text) = comment::beside(&self.slurm.text(&job, JobText::AdminComment)?, &ours) else {
            bail!("job {}: the site's own AdminComment leaves no room", run.job);
        };
        let written = self.slurm.admin_comment(job.id, &text);
        Ok(audit::note(By::Owner(owner.uid), audit::Act::AdminComment, (job.id, ""), "what the run cost", written)?)
    }
}

/// What a look at a part showed.
pub(crate) fn part<E: std::fmt::Display>(seen: Result<String, E>) -> Part {
    match seen {
        Ok(text) => Part { ok: true, text },
        Err(e) => Part { ok: false, text: format!("{e:#}") },
    }
}

/// Whether something accepts connections there.
fn answers(host: &str, port: u16) -> bool {
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    addresses.into_iter().any(|a| TcpStream::connect_timeout(&a, SLURMD_LIMIT).is_ok())
}

pub(crate) async fn metrics(State(c): State<Arc<Controller>>) -> Response {
    let nodes = lock(&c.watch).beating(now_s());
    let open = lock(&c.open).len();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    let mut families = metrics::process("controller");
    families.extend([
        Family::gauge("joulepoint_nodes", "", "Nodes whose heartbeats arrive.").sample(&[], nodes as f64),
        Family::gauge("joulepoint_runs_open", "", "Runs that have not ended.").sample(&[], open as f64),
        Family::counter("joulepoint_beats", "", "Heartbeats received.").sample(&[], count(&c.beats)),
        Family::counter("joulepoint_records", "", "Records received.").sample(&[], count(&c.records)),
    ]);
    families.push(c.planning.family("joulepoint_plan_seconds", "Time for a plan, waiting for the store included."));
    families.extend(c.ended.families());
    metrics::exposition(families)
}
