//! Sends heartbeats, does what is answered, and looks at what the node is made of and at what this service needs.

pub(crate) mod rest;

use self::rest::Rest;
use crate::capabilities::{self, Published};
use crate::frequency::Setting;
use crate::lease::{self, Holder};
use crate::metering::{Metering, Meters, reading};
use config::Site;
use listener::health::{SelfLook, part};
use listener::now_s;
use parking_lot::Mutex;
use protocol::{Beat, BeatReply, Fingerprint, Health, Part, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::Munge;
use wire::session::SessionClient;

/// Time between two looks at which checkpoint engines are installed.
const LOOK_AT_ENGINES: Duration = Duration::from_secs(20);

/// For how long the controller's word on who holds this node counts when it answers no more.
const HELD_LIMIT: Duration = Duration::from_secs(30);

/// At one of so many of them it is also looked at what the node is made of.
const LOOKS_FOR_HARDWARE: u32 = 30;

/// What heartbeats are made of.
pub(crate) struct Heart {
    pub site: Site,
    pub munge: Munge,
    pub metering: Arc<Metering>,
    pub lease: Arc<Holder>,
    pub setting: Arc<Setting>,
    pub published: Published,
    pub looks: Arc<SelfLook>,
    pub started_s: f64,
    pub fingerprint: Mutex<Option<Fingerprint>>,
    /// Checkpoint engines that are installed here; none before the first look.
    pub engines: Mutex<Option<BTreeSet<String>>>,
    /// Whether the controller knows what to do with them.
    pub is_asked_for_engines: AtomicBool,
    pub rest: Arc<Rest>,
    /// Whether the controller knows that nodes rest.
    pub may_rest: AtomicBool,
    /// Whether the controller understands for how long the node has been up.
    pub counts_boots: AtomicBool,
}

impl Heart {
    /// Beats for ever; others reach this node at `url`.
    pub(crate) fn beat_for_ever(&self, client: &SessionClient, url: &str) {
        let period = Duration::from_secs_f64(self.site.node.beat_s);
        let mut heard_at = Instant::now();
        loop {
            let begun = Instant::now();
            // Of a job that has ended meanwhile only the controller could tell: then those count that have processes here.
            let is_told = begun.duration_since(heard_at) < HELD_LIMIT.max(2 * period);
            let held = if is_told { self.metering.held.lock().clone() } else { Vec::new() };
            let mut beat = {
                let mut meters = self.metering.lock();
                meters.accounts.hold(now_s(), &held.iter().map(|h| (h.job, h.restart_count)).collect::<Vec<_>>());
                for job in held.iter().filter(|h| h.cpus > 0) {
                    meters.accounts.set_share(job.job, job.cpus);
                }
                meters.look(&self.metering.proc_root);
                self.beat(&meters, url)
            };
            let here: Vec<u32> = beat.jobs.iter().map(|job| job.job).collect();
            self.setting.frequency.expire(Instant::now(), |job| here.contains(&job));
            let is_needed = self.lease.is_needed();
            if !is_needed && self.rest.lasts(begun) {
                self.rest.sleep(period);
                continue;
            }
            // The proof of a node that has rested is old: it is renewed before what has begun there depends on it.
            let has_rested = self.rest.end();
            if !has_rested {
                self.lease.note_lives();
            }
            self.rest.heard();
            let idle_s = self.site.node.idle_beat_s;
            let may_rest = self.may_rest.load(Ordering::Relaxed) && !is_needed && idle_s > self.site.node.beat_s;
            beat.pause_s = may_rest.then_some(idle_s);
            // What is answered proves that this node was reached when it asked, not when it heard.
            let sent_s = lease::now_s();
            let heard = client.post::<Beat, BeatReply>("/v1/beats", &beat);
            self.look_at_self(&heard);
            match heard {
                Ok(mut reply) => {
                    heard_at = Instant::now();
                    let counted = reply.capabilities.take();
                    self.may_rest.store(reply.may_rest, Ordering::Relaxed);
                    self.counts_boots.store(reply.boots, Ordering::Relaxed);
                    let is_free = reply.held.is_empty() && reply.ended.is_empty();
                    self.is_asked_for_engines.store(counted.is_some(), Ordering::Relaxed);
                    counted.into_iter().for_each(|counted| self.published.publish(counted));
                    let actions = self.lease.answered(sent_s, &reply);
                    *self.metering.held.lock() = reply.held;
                    self.lease.act(actions);
                    if let Some(pause_s) = beat.pause_s.filter(|_| is_free) {
                        self.lease.rest(pause_s);
                        self.rest.begin(begun + Duration::from_secs_f64(pause_s));
                    }
                }
                Err(e) => {
                    tracing::debug!(%e, "the controller did not hear");
                    // One of a version before may have taken its place, which refuses what it does not know.
                    [&self.may_rest, &self.counts_boots, &self.is_asked_for_engines]
                        .into_iter()
                        .for_each(|flag| flag.store(false, Ordering::Relaxed));
                }
            }
            if has_rested {
                self.lease.note_lives();
            }
            self.rest.sleep(period);
        }
    }

    /// What calibrations and engines depend on changes with a boot, a mount, a package.
    pub(crate) fn look_at_hardware_for_ever(&self) {
        let of = &self.site.calibration;
        let storage = [(Storage::Memory, of.memory_dir.clone()), (Storage::Local, of.local_dir.clone())].into();
        let criu = self.site.criu.command.as_deref();
        let path = std::env::var_os("PATH").unwrap_or_default();
        for n in (0..LOOKS_FOR_HARDWARE).cycle() {
            *self.engines.lock() = Some(capabilities::installed(criu, &path, &self.metering.proc_root));
            match (n == 0).then(|| hardware::facts::look(&self.metering.name, &storage, &of.mpicc)) {
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
        let source = self.metering.lock().meter.source().as_str().to_string();
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
        self.looks.keep(Health { ok: parts.values().all(|p| p.ok), parts });
    }

    fn beat(&self, meters: &Meters, url: &str) -> Beat {
        Beat {
            version: protocol::VERSION,
            node: self.metering.name.clone(),
            at_s: now_s(),
            started_s: self.started_s,
            url: url.to_string(),
            slurmd_up: meters.processes.slurmd_up,
            node_joules: meters.accounts.node_joules(),
            source: meters.meter.source().as_str().to_string(),
            jobs: meters.accounts.jobs().iter().filter(|j| j.ended_s.is_none()).map(reading).collect(),
            fingerprint: self.fingerprint.lock().clone(),
            boot_id: self.lease.boot_id(),
            epoch: Some(self.lease.epoch()),
            engines: self.engines.lock().clone().filter(|_| self.is_asked_for_engines.load(Ordering::Relaxed)),
            pause_s: None,
            up_s: self.counts_boots.load(Ordering::Relaxed).then(|| up_s(&self.metering.proc_root)).flatten(),
        }
    }
}

/// For how long this node has been up, s; none where the kernel does not tell.
fn up_s(proc_root: &Path) -> Option<f64> {
    std::fs::read_to_string(proc_root.join("uptime")).ok()?.split_whitespace().next()?.parse().ok()
}
