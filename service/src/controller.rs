//! The role `controller`: answers wrappers and people, watches nodes and jobs, helps where nobody else does.

use crate::access::Access;
use crate::capabilities::Told;
use crate::comment;
use crate::energy_tres::EnergyTres;
use crate::history;
use crate::latency::Latency;
use crate::loans::Around;
use crate::metrics::Ended;
use crate::orders::Orders;
use crate::routes;
use crate::watching::{LOOK, Watching};
use crate::words::Words;
use anyhow::{Context, Result, bail};
use audit::By;
use axum::extract::State;
use axum::response::Response;
use broker::Broker;
use config::Site;
use listener::Users;
use listener::health::part;
use listener::metrics::{self, Family};
use listener::now_s;
use listener::{Gate, Limits, Listener, Refusal, Turns};
use parking_lot::Mutex;
use protocol::{Health, Part, ProtectionState, RunAccount, RunKey};
use slurm::{JobText, Slurm};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{OpenRun, Readers, Store, Writer, account};
use wire::Peer;

/// Time between two looks for nodes that are well and still down in Slurm by our doing, s.
const RESUME_S: f64 = 1.0;

/// Time between two tellings of the energy of jobs to Slurm's accounting, s.
const TELL_ENERGY_S: f64 = 10.0;

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
    pub(crate) reader: Arc<Mutex<Store>>,
    /// For questions over HTTP.
    pub(crate) readers: Arc<Readers>,
    /// For reports, which may take long, so that plans do not wait for them.
    pub(crate) reporter: Mutex<Store>,
    pub(crate) writer: Writer,
    pub(crate) watching: Arc<Watching>,
    /// Open runs whose job Slurm knows as their owner's, at the last look.
    pub(crate) open: Mutex<Arc<Vec<OpenRun>>>,
    pub(crate) access: Access,
    pub(crate) orders: Arc<Orders>,
    pub(crate) broker: Broker,
    pub(crate) health: Mutex<Health>,
    commented_s: Mutex<BTreeMap<RunKey, f64>>,
    pub(crate) beats: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) planning: Latency,
    /// The newest calibrations, with what plans have fitted to them.
    pub(crate) known: Mutex<Vec<planner::Known>>,
    /// What nodes are made of, as their services told last.
    pub(crate) fingerprints: Mutex<BTreeMap<String, protocol::Fingerprint>>,
    pub(crate) told: Told,
    pub(crate) ended: Arc<Ended>,
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
    let again = || Ok::<_, anyhow::Error>(Mutex::new(store.lock().another(&site.controller.store)?));
    let (reader, reporter) = (Arc::new(again()?), again()?);
    let readers = Arc::new(Readers::open(&site.controller.store)?);
    let orders = Arc::new(Orders::new(now_s()));
    orders.take_up(now_s(), store.lock().kept_orders(now_s())?);
    let watching = Arc::new(Watching::new(&site, store.lock().kept_nodes()?));
    let (ended, slurm) = (Arc::new(Ended::default()), Slurm::new(site.slurm_bin.clone()));
    let broker = Broker::new(broker::Parts {
        site: site.lend.clone(),
        defaults: site.defaults.clone(),
        idle_w: site.energy.idle_w,
        slurm: slurm.clone(),
        store: store.clone(),
        reader: reader.clone(),
        readers: readers.clone(),
        ports: Arc::new(Around {
            watching: watching.clone(),
            orders: orders.clone(),
            store: store.clone(),
            ended: ended.clone(),
        }),
    });
    let controller = Arc::new(Controller {
        munge: wire::Munge::new(site.munge_socket.clone()),
        slurm,
        writer: Writer::start(store.clone()),
        store,
        reader,
        readers,
        reporter,
        open: Mutex::default(),
        watching,
        access: Access::new(&site.controller.operators),
        orders,
        broker,
        health: Mutex::new(Health { ok: false, parts: BTreeMap::new() }),
        commented_s: Mutex::default(),
        beats: AtomicU64::new(0),
        records: AtomicU64::new(0),
        planning: Latency::default(),
        known: Mutex::default(),
        fingerprints: Mutex::default(),
        told: Told::default(),
        ended,
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
    std::thread::spawn(move || lending.broker.lend_for_ever());
    let gate = Arc::new(Gate::new(
        controller.munge.clone(),
        wire::CONTROLLER.to_string(),
        Limits::default(),
        controller.users.clone(),
    ));
    let app = listener::router(routes::controller(), gate.clone(), controller.clone());
    tracing::info!(listen = controller.site.controller.listen, "the controller serves");
    listener::serve(vec![Listener::Tcp(listener)], app, gate.limits, gate.refusals.clone(), listener::stopping()).await;
    Ok(())
}

/// When things that are looked at less often were done last, s.
#[derive(Default)]
struct Due {
    resumed_s: f64,
    told_s: f64,
    booked_s: f64,
}

impl Controller {
    /// For whom somebody sends records: a node service (root) names the user whose records it kept.
    pub(crate) fn behalf(&self, peer: Peer, uid: Option<u32>) -> Result<Peer, Refusal> {
        match uid {
            None => Ok(peer),
            Some(uid) if peer.uid == 0 => Ok(Peer { uid, ..peer }),
            Some(_) => Err(listener::forbidden(peer, "send records of others")),
        }
    }

    fn watch_for_ever(self: &Arc<Self>) {
        if let Err(e) = history::take_over(&self.slurm, &self.store, now_s()) {
            tracing::info!(reason = format!("{e:#}"), "no history is taken over from Slurm");
        }
        let mut due = Due::default();
        let mut told = String::new();
        loop {
            std::thread::sleep(LOOK);
            let looked = self.watch_once().and_then(|()| self.look_now_and_then(&mut due));
            let error = looked.err().map(|e| format!("{e:#}")).unwrap_or_default();
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
                ("store".to_string(), part(self.store.lock().write(&[]).map(|_| "writable".to_string()))),
                ("munge".to_string(), part(self.munge.encode(b"").map(|_| "answers".to_string()))),
                ("slurm".to_string(), part(self.look_at_slurm())),
                ("nodes".to_string(), Part { ok: true, text: self.watching.in_words() }),
            ]);
            *self.health.lock() = Health { ok: parts.values().all(|p| p.ok), parts };
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

    /// What is looked at less often.
    fn look_now_and_then(&self, due: &mut Due) -> Result<()> {
        let now_s = self.watching.now_s();
        if now_s - due.resumed_s >= RESUME_S {
            due.resumed_s = now_s;
            self.resume_well();
        }
        if now_s - due.told_s >= TELL_ENERGY_S {
            due.told_s = now_s;
            if let Err(e) = self.energy_tres.tell(&self.slurm) {
                tracing::warn!(%e, "Slurm's accounting was not told the energy of jobs; it will be tried again");
            }
        }
        if now_s - due.booked_s >= BOOK_S {
            let seconds = now_s - due.booked_s;
            let nodes: Vec<(String, f64)> = self.watching.heard_names().into_iter().map(|n| (n, seconds)).collect();
            self.store.lock().watched(&nodes)?;
            due.booked_s = now_s;
            self.forget(listener::now_s())?;
        }
        Ok(())
    }

    /// Forgets runs that ended longer ago than the site keeps them, a few at a time.
    fn forget(&self, now_s: f64) -> Result<()> {
        let keep_s = self.site.controller.retention_days * 86_400.0;
        if keep_s > 0.0 {
            while self.store.lock().forget(now_s - keep_s, FORGET_TOGETHER)? == FORGET_TOGETHER as usize {}
        }
        Ok(())
    }

    /// Counts a run that has ended, and tells Slurm's accounting its energy later, when the job is over there.
    pub(crate) fn account_end(&self, run: &RunAccount) {
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
            let mut commented = self.commented_s.lock();
            commented.retain(|_, at| now_s - *at < COMMENT_S);
            if !ends && commented.contains_key(key) {
                return Ok(());
            }
            commented.insert(key.clone(), now_s);
        }
        let read = if ends { account::account } else { account::brief };
        let run = read(self.reader.lock().connection(), key)?;
        if ends {
            self.account_end(&run);
        }
        let owner = self.reader.lock().run(key)?.filter(|row| row.verified && row.job > 0);
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

/// The runs that have not ended, by how far they are protected.
fn by_protection(open: &[OpenRun]) -> Family {
    let family =
        Family::gauge("joulepoint_runs_protection", "", "Runs that have not ended, by how far they are protected.");
    let known = ProtectionState::ALL.map(ProtectionState::as_str);
    let of = |state: &str| open.iter().filter(|run| run.protection == state).count();
    let unknown = open.len() - known.iter().map(|state| of(state)).sum::<usize>();
    let family = known.iter().fold(family, |family, state| family.sample(&[("state", state)], of(state) as f64));
    family.sample(&[("state", "unknown")], unknown as f64)
}

pub(crate) async fn metrics(State(c): State<Arc<Controller>>) -> Response {
    let nodes = c.watching.heard();
    let open = c.open.lock().clone();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    let mut families = metrics::process("controller");
    families.extend([
        Family::gauge("joulepoint_nodes", "", "Nodes whose heartbeats arrive.").sample(&[], nodes as f64),
        Family::counter("joulepoint_slurm_questions", "", "Questions about jobs that Slurm was asked.")
            .sample(&[], count(&c.watching.asked)),
        Family::gauge("joulepoint_runs_open", "", "Runs that have not ended.").sample(&[], open.len() as f64),
        by_protection(&open),
        Family::counter("joulepoint_beats", "", "Heartbeats received.").sample(&[], count(&c.beats)),
        Family::counter("joulepoint_records", "", "Records received.").sample(&[], count(&c.records)),
    ]);
    families.push(c.planning.family("joulepoint_plan_seconds", "Time for a plan, waiting for the store included."));
    families.extend(c.ended.families());
    metrics::exposition(families)
}
