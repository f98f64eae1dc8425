//! Holds this node's lease: asks its witnesses when the controller does not answer, freezes what is protected when
//! nobody does, and answers for other nodes as their witness.

use crate::limits::limits;
use crate::lives::strays::Strays;
use crate::lives::{self, Lives};
use crate::metering::Metering;
use crate::pmix::Pmix;
use crate::reach::{Places, see};
use anyhow::{Context, Result};
use audit::{Act, By};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use config::Site;
use listener::{Answer, Document, Refusal, blocking, forbidden, version};
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use protocol::{BeatReply, EndReply, EndRequest, Incarnation, LeaseReply, LeaseRequest, Testimony, TestimonyRequest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use watch::lease::{Action, Word};
use watch::{Lease, Limits, Testimonies};
use wire::Peer;

/// Time between two looks at the lease.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two looks for what is protected, and the longest; of the first, before which nothing is known, the longest.
const LOOK_FOR_LIVES: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_FIRST_LOOK: Duration = Duration::from_secs(5);

/// Longest wait for a witness.
const WITNESS_LIMIT: Duration = Duration::from_secs(1);

/// What is kept over restarts of this service, within one boot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    boot_id: String,
    lease: Lease,
    testimonies: Testimonies,
    /// Where each witness answers.
    urls: BTreeMap<String, String>,
    /// Lives of which processes may be stopped by us: noted before they are, until they go on.
    #[serde(default)]
    stopped: BTreeSet<Incarnation>,
}

/// The lease of a node, and what it has said of others.
pub(crate) struct Holder {
    kept: Mutex<Kept>,
    file: PathBuf,
    limits: Limits,
    lives: Mutex<Lives>,
    strays: Strays,
    /// The protected jobs that have processes here, as they were seen last; none before the first look.
    here: Mutex<Option<BTreeSet<Incarnation>>>,
    munge_socket: Option<PathBuf>,
    metering: Arc<Metering>,
    pmix: Arc<Pmix>,
}

/// Seconds of this boot, those in suspension included.
pub(crate) fn now_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    now.as_secs_f64()
}

impl Holder {
    /// The lease that an earlier life of the service held in this boot, or none yet.
    pub(crate) fn open(site: &Site, metering: Arc<Metering>, pmix: Arc<Pmix>) -> Result<Holder> {
        let boot_id = boot_id(&metering.proc_root);
        let file = site.watch.lease_file_of(&metering.name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("watch.lease_file = {}", file.display()))?;
        }
        let before = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        let kept = before
            .filter(|k| !boot_id.is_empty() && k.boot_id == boot_id)
            .unwrap_or(Kept { boot_id, ..Kept::default() });
        let frozen = kept.lease.held().filter(|(_, state)| matches!(state, watch::lease::State::Frozen { .. }));
        let stopped = frozen.map(|(of, _)| of).chain(kept.stopped.iter().copied()).collect();
        let lives = Mutex::new(Lives::new(metering.proc_root.clone(), stopped));
        let holder = Holder {
            kept: Mutex::new(kept),
            file,
            limits: limits(site),
            lives,
            strays: Strays::new(metering.proc_root.clone()),
            here: Mutex::default(),
            munge_socket: site.munge_socket.clone(),
            metering,
            pmix,
        };
        holder.keep(&holder.kept.lock());
        Ok(holder)
    }

    /// The kernel's number of this boot.
    pub(crate) fn boot_id(&self) -> String {
        self.kept.lock().boot_id.clone()
    }

    /// The epoch in which this node asks its witnesses.
    pub(crate) fn epoch(&self) -> u64 {
        self.kept.lock().lease.epoch()
    }

    /// Whether what is protected here is frozen for want of proof.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.kept.lock().lease.is_cut_off(now_s(), &self.limits)
    }

    /// Writes the lease down; in memory, since it ends with the boot. Whether it is written.
    fn keep(&self, kept: &Kept) -> bool {
        let part = self.file.with_extension("part");
        let written = serde_json::to_vec(kept)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&part, text))
            .and_then(|()| std::fs::rename(&part, &self.file));
        if let Err(e) = written {
            tracing::error!(%e, file = %self.file.display(), "the lease cannot be kept over a restart of this service");
            return false;
        }
        true
    }

    /// The controller has answered the heartbeat that was sent at `sent_s`.
    pub(crate) fn answered(&self, sent_s: f64, reply: &BeatReply) -> Vec<Action> {
        let word = Word {
            held: reply.held.clone(),
            ended: reply.ended.clone(),
            epoch: reply.epoch,
            witnesses: reply.witnesses.iter().map(|w| w.node.clone()).collect(),
        };
        let mut kept = self.kept.lock();
        kept.testimonies.controller_answered();
        kept.urls = reply.witnesses.iter().map(|w| (w.node.clone(), w.url.clone())).collect();
        let actions = kept.lease.answered(sent_s, word);
        self.keep(&kept);
        actions
    }
}

/// The kernel's number of this boot; empty where it tells none.
fn boot_id(proc_root: &Path) -> String {
    let path = proc_root.join("sys/kernel/random/boot_id");
    let read = std::fs::read_to_string(&path).inspect_err(|e| {
        tracing::error!(%e, path = %path.display(), "boots of this node cannot be told apart");
    });
    read.map(|text| text.trim().to_string()).unwrap_or_default()
}

impl Holder {
    /// Looks after the lease for ever.
    pub(crate) fn hold_for_ever(self: &Arc<Self>) {
        self.finish();
        loop {
            let now_s = now_s();
            let (actions, changed) = {
                let mut kept = self.kept.lock();
                let before: Vec<_> = kept.lease.held().collect();
                let actions = kept.lease.look(now_s, &self.limits);
                let changed = before != kept.lease.held().collect::<Vec<_>>();
                if changed {
                    self.keep(&kept);
                }
                (actions, changed)
            };
            if changed {
                tracing::warn!(?actions, "this node's lease has changed");
            }
            self.act(actions);
            std::thread::sleep(LOOK);
        }
    }

    /// Lets those go on that an earlier life of this service had stopped, and was to let go on when it was killed.
    fn finish(&self) {
        let stopped = self.kept.lock().stopped.clone();
        for of in stopped {
            let gone_on = self.go_on(of);
            if gone_on > 0 {
                tracing::warn!(job = of.job, processes = gone_on, "a job goes on that was still stopped");
                audit::done(By::Service, Act::Thaw, (of.job, &self.metering.name), "this service was killed before");
            }
        }
    }

    /// Does what follows from the lease.
    pub(crate) fn act(self: &Arc<Self>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask { witnesses, epoch } => self.ask(&witnesses, epoch),
                Action::Freeze { of, and_stepds } => self.freeze(of, and_stepds),
                Action::Thaw(of) => {
                    let gone_on = self.go_on(of);
                    tracing::warn!(job = of.job, processes = gone_on, "the cluster reaches this node: a job goes on");
                    if gone_on > 0 {
                        audit::done(
                            By::Service,
                            Act::Thaw,
                            (of.job, &self.metering.name),
                            "the cluster reaches this node",
                        );
                    }
                }
                Action::End(of) => {
                    if self.end(By::Service, None, of, false) == 0 {
                        self.end_bare_stepds(of);
                    }
                }
            }
        }
    }

    fn end_bare_stepds(&self, of: Incarnation) {
        let ended = self.lives.lock().end_bare_stepds(&self.metering.processes(), of);
        if ended > 0 {
            audit::done(By::Service, Act::Fence, (of.job, &self.metering.name), "slurmstepds without tasks");
            self.pmix.killed(of.job);
        }
    }

    fn freeze(&self, of: Incarnation, and_stepds: bool) {
        let owner = self.metering.owner_of(of.job);
        let in_steps = |lives: &mut Lives| self.in_steps(lives, of, true);
        let find = |lives: &mut Lives| self.with_strays(self.in_steps(lives, of, true), of, owner, true);
        let mut lives = self.lives.lock();
        {
            let mut kept = self.kept.lock();
            // The controller may have answered since this was decided.
            if !kept.lease.is_frozen(of) {
                return;
            }
            if kept.stopped.insert(of) {
                self.keep(&kept);
            }
        }
        // What has left the trees of its steps is long to find: the rest does not wait for that.
        let pids = in_steps(&mut lives);
        let mut stopped = lives.stop(of, &pids, in_steps);
        let pids = find(&mut lives);
        stopped += lives.stop(of, &pids, find);
        match and_stepds {
            true => lives.stop_stepds(&self.metering.processes(), of),
            false => lives.let_stepds_go_on(&self.metering.processes(), of),
        }
        if stopped > 0 {
            tracing::warn!(job = of.job, processes = stopped, "nobody reaches this node: a protected job is frozen");
            audit::done(By::Service, Act::Freeze, (of.job, &self.metering.name), "nobody reaches this node");
        }
    }

    fn go_on(&self, of: Incarnation) -> usize {
        self.metering.look();
        let owner = self.metering.owner_of(of.job);
        let mut lives = self.lives.lock();
        // The proof may have become too old since.
        if self.kept.lock().lease.is_frozen(of) {
            return 0;
        }
        let processes = self.metering.processes();
        let gone_on = lives.go_on(&processes, of, |pids| self.with_strays(pids.to_vec(), of, owner, true));
        let mut kept = self.kept.lock();
        if kept.stopped.remove(&of) {
            self.keep(&kept);
        }
        gone_on
    }

    /// Ends what is left of a job's lives up to one; how many processes are left. One whose life is not known is ended
    /// only if `unknown` ones are. What has left its steps is known by its owner: who `asks`, or who had processes in them.
    fn end(&self, by: By, asks: Option<u32>, of: Incarnation, unknown: bool) -> u32 {
        let owner = asks.or_else(|| self.metering.owner_of(of.job));
        let left = self.end_those(by, of, owner, || {
            let in_steps = self.in_steps(&mut self.lives.lock(), of, unknown);
            self.with_strays(in_steps, of, owner, unknown)
        });
        if left == 0 {
            let mut kept = self.kept.lock();
            kept.lease.gone(of);
            kept.stopped.retain(|stopped| stopped.job != of.job || stopped.restart_count > of.restart_count);
            self.keep(&kept);
        }
        left
    }

    /// Ends processes of a job's lives up to one; how many there were, and are of its owner that do not tell whose they are.
    fn end_those(&self, by: By, of: Incarnation, owner: Option<u32>, find: impl Fn() -> Vec<i32>) -> u32 {
        // Who has many processes or large environments is long to look at: nobody else waits for that.
        let pids = find();
        let ended = lives::end(&pids, &find);
        let processes = self.metering.processes();
        {
            let mut lives = self.lives.lock();
            lives.ended(of);
            lives.let_stepds_go_on(&processes, of);
        }
        let left = if pids.is_empty() { self.strays.silent(&processes, owner) } else { pids.len() };
        if ended > 0 {
            let Incarnation { job, restart_count } = of;
            tracing::warn!(job, restart_count, processes = ended, "a job that goes on elsewhere is ended here");
            let why = format!("lives up to restart {}: {ended} processes", of.restart_count);
            audit::done(by, Act::Fence, (of.job, &self.metering.name), &why);
        }
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The processes in the steps of a job's lives up to one; those also whose life is not known, if `unknown` ones count.
    fn in_steps(&self, lives: &mut Lives, of: Incarnation, unknown: bool) -> Vec<i32> {
        self.metering.look();
        lives.pids(&self.metering.processes(), of, unknown)
    }

    /// With those that have left their steps: by the mark of their wrapper, or, if `unknown` ones count, by the job's number.
    fn with_strays(&self, mut pids: Vec<i32>, of: Incarnation, owner: Option<u32>, unknown: bool) -> Vec<i32> {
        pids.extend(self.strays.of(&self.metering.processes(), of, owner));
        if unknown {
            pids.extend(self.metering.strays(of.job, &pids));
        }
        pids
    }

    /// Looks for what is protected here for ever, beside the heartbeats: a user may have any number of processes.
    pub(crate) fn look_for_lives_for_ever(&self) {
        self.metering.look();
        let mut limit = LONGEST_FIRST_LOOK;
        loop {
            let processes = self.metering.processes();
            let here = self.lives.lock().protected(&processes, limit);
            *self.here.lock() = Some(here);
            limit = LONGEST_LOOK;
            std::thread::sleep(LOOK_FOR_LIVES);
        }
    }

    /// Whether something protected is here, or may be, or was when the lease was looked at.
    pub(crate) fn is_needed(&self) -> bool {
        let is_here = self.here.lock().as_ref().is_none_or(|here| !here.is_empty());
        is_here || self.kept.lock().lease.held().next().is_some()
    }

    /// The controller knows that this node is silent for so long from its last answer on, s.
    pub(crate) fn rest(&self, pause_s: f64) {
        let mut kept = self.kept.lock();
        kept.lease.rest(pause_s);
        self.keep(&kept);
    }

    /// Tells the lease which protected jobs have processes here.
    pub(crate) fn note_lives(&self) {
        if let Some(here) = self.here.lock().as_ref() {
            self.kept.lock().lease.seen(here);
        }
    }

    /// Asks witnesses for the lease, each by itself.
    fn ask(self: &Arc<Self>, witnesses: &BTreeSet<String>, epoch: u64) {
        for witness in witnesses {
            let Some(url) = self.kept.lock().urls.get(witness).cloned().filter(|u| !u.is_empty()) else {
                continue;
            };
            let (holder, witness) = (self.clone(), witness.clone());
            std::thread::spawn(move || {
                let sent_s = now_s();
                let socket = holder.munge_socket.clone();
                let client = wire::Client::of_node(&url, &witness, socket, WITNESS_LIMIT);
                let request = LeaseRequest { version: protocol::VERSION, node: holder.metering.name.clone(), epoch };
                match client.post::<_, LeaseReply>("/v1/lease", &request) {
                    Ok(LeaseReply { refused: None }) => holder.kept.lock().lease.granted(sent_s, &witness, epoch),
                    Ok(LeaseReply { refused: Some(why) }) => tracing::info!(witness, ?why, "the lease is not granted"),
                    Err(e) => tracing::debug!(witness, %e, "a witness does not answer"),
                }
            });
        }
    }
}

/// Another node asks for its lease.
pub(crate) async fn grant(
    State(holder): State<Arc<Holder>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<LeaseRequest>,
) -> Answer<LeaseReply> {
    if peer.uid != 0 {
        return Err(forbidden(peer, "ask for a node's lease"));
    }
    version(request.version)?;
    let mut kept = holder.kept.lock();
    let granted = kept.testimonies.grant(now_s(), &request.node, request.epoch);
    holder.keep(&kept);
    Ok(Json(LeaseReply { refused: granted.err() }))
}

/// The controller asks what this node sees of another.
pub(crate) async fn testify(
    State(holder): State<Arc<Holder>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<TestimonyRequest>,
) -> Answer<Testimony> {
    if peer.uid != 0 {
        return Err(forbidden(peer, "ask for testimony"));
    }
    version(request.version)?;
    let testimony = blocking(move || -> Result<Testimony, Refusal> {
        let places = Places { url: request.url.clone(), slurmd: request.slurmd.clone() };
        let seen = see(&places);
        let mut testimony = {
            let mut kept = holder.kept.lock();
            let testimony = kept.testimonies.testify(now_s(), &request.node, request.epoch, seen);
            // What binds this witness is written down before it is said.
            if !holder.keep(&kept) {
                let text = "this witness cannot write down what it says".to_string();
                return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text));
            }
            testimony
        };
        if seen.service {
            testimony.ended = holder.pass_on(&request);
        }
        Ok(testimony)
    });
    Ok(Json(testimony.await??))
}

impl Holder {
    /// Passes on to a node that the controller does not reach what is to be ended there; what of it has ended.
    fn pass_on(&self, request: &TestimonyRequest) -> BTreeSet<Incarnation> {
        let socket = self.munge_socket.clone();
        let client = wire::Client::of_node(&request.url, &request.node, socket, WITNESS_LIMIT);
        let has_ended = |of: &&Incarnation| {
            let end = EndRequest { version: protocol::VERSION, restart_count: of.restart_count };
            let asked = client.post::<_, EndReply>(&format!("/v1/jobs/{}/end", of.job), &end);
            asked.is_ok_and(|reply| reply.left == 0)
        };
        request.ended.iter().filter(has_ended).copied().collect()
    }
}

/// Somebody wants what is left of a job's earlier lives ended: its owner, or root.
pub(crate) async fn end(
    State(holder): State<Arc<Holder>>,
    Extension(peer): Extension<Peer>,
    job: Result<axum::extract::Path<u32>, axum::extract::rejection::PathRejection>,
    Document(request): Document<EndRequest>,
) -> Answer<EndReply> {
    let job = job?.0;
    version(request.version)?;
    let of = Incarnation { job, restart_count: request.restart_count };
    let left = blocking(move || -> Result<u32, Refusal> {
        let asks = Some(peer.uid).filter(|uid| *uid != 0);
        let left = match holder.metering.is_owner(peer.uid, job) {
            Some(true) => holder.end(By::User(peer), asks, of, true),
            Some(false) => return Err(forbidden(peer, &format!("end what is left of job {job}"))),
            // No step is left; what has left its step may be, and everybody's own is theirs to end.
            None => {
                let owner = asks.or_else(|| holder.metering.owner_of(job));
                let strays = || holder.strays.of(&holder.metering.processes(), of, owner);
                holder.end_those(By::User(peer), of, owner, strays)
            }
        };
        if left == 0 {
            holder.pmix.wait_for_names(job);
        }
        Ok(left)
    });
    Ok(Json(EndReply { left: left.await?? }))
}
