//! Holds this node's CPU frequency for a job that checkpoints or waits, on a lease, and puts back what was there.

use crate::metering::Metering;
use audit::{Act, By};
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hardware::cpufreq::{Cpufreq, Held};
use listener::{Document, Hidden, Refusal, blocking};
use parking_lot::Mutex;
use protocol::{FrequencyRequest, FrequencyState};
use slurm::Slurm;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::Peer;

/// Longest time for which a frequency is held without being asked for again.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The CPU frequency of a node.
pub struct Frequency {
    root: PathBuf,
    /// Keeps what the node had, for a service that is killed.
    file: PathBuf,
    held: Mutex<Option<Lease>>,
}

struct Lease {
    job: u32,
    hz: f64,
    until: Instant,
    _guard: Held,
}

impl Frequency {
    /// Takes the CPUs below `root`, and puts back what a killed service left in `file`.
    pub fn open(root: PathBuf, file: PathBuf) -> Frequency {
        let frequency = Frequency { root, file, held: Mutex::default() };
        frequency.put_back_leftover();
        frequency
    }

    /// Holds a frequency for a job from `now` on, or goes on holding it; 0 is the lowest that can be set.
    ///
    /// # Errors
    /// Why not, in a sentence; the node has what it had before then.
    pub fn hold(&self, job: u32, hz: f64, lease: Duration, now: Instant) -> Result<(), String> {
        let cpus = Cpufreq::open(&self.root);
        let settable = cpus.settable_hz();
        let hz = settable.first().copied().filter(|_| hz == 0.0).unwrap_or(hz);
        let mut held = self.held.lock();
        let until = now + lease.min(LONGEST_LEASE);
        match held.as_mut() {
            Some(other) if other.job != job => return Err(format!("job {} holds the frequency here", other.job)),
            Some(same) if same.hz == hz => {
                same.until = until;
                return Ok(());
            }
            _ => *held = None,
        }
        // A written frequency has lost its last digits.
        if !settable.iter().any(|s| (s - hz).abs() < 1e3) {
            let ghz: Vec<String> = settable.iter().map(|s| format!("{:.2}", s * 1e-9)).collect();
            return Err(format!("{:.2} GHz cannot be set here, only: {}", hz * 1e-9, ghz.join(", ")));
        }
        let guard = cpus.hold(hz, &self.file).map_err(|e| format!("{e:#}"))?;
        tracing::info!(job, hz, "the CPU frequency is held");
        *held = Some(Lease { job, hz, until, _guard: guard });
        Ok(())
    }

    /// Puts back what was there before this job; whether it held anything.
    pub fn give_back(&self, job: u32) -> bool {
        let lease = self.held.lock().take_if(|lease| lease.job == job);
        lease.is_some()
    }

    /// Puts back what nobody asks for any more: the lease has ended, or the job is no longer `here`.
    pub fn expire(&self, now: Instant, here: impl Fn(u32) -> bool) {
        let ended = self.held.lock().take_if(|lease| now >= lease.until || !here(lease.job));
        if let Some(lease) = ended {
            tracing::warn!(job = lease.job, "the CPU frequency was not given back; its lease has ended");
        }
        self.put_back_leftover();
    }

    /// What is held.
    pub fn held_hz(&self) -> Option<f64> {
        self.held.lock().as_ref().map(|lease| lease.hz)
    }

    /// Puts back what no guard could, and tries again at the next call where that fails.
    fn put_back_leftover(&self) {
        let held = self.held.lock();
        if held.is_some() {
            return;
        }
        match Cpufreq::restore(&self.file) {
            Ok(true) => tracing::warn!("a CPU frequency that was left over is put back"),
            Ok(false) => {}
            Err(e) => tracing::error!(error = format!("{e:#}"), "a CPU frequency cannot be put back"),
        }
    }
}

impl Drop for Frequency {
    fn drop(&mut self) {
        self.held.lock().take();
    }
}

/// The frequency of this node, and who may set it.
pub(crate) struct Setting {
    pub frequency: Frequency,
    /// Whether the site allows it.
    pub is_allowed: bool,
    pub metering: Arc<Metering>,
    pub slurm: Slurm,
    /// CPUs of this node that Slurm gives out.
    pub cpus: OnceLock<u32>,
}

impl Setting {
    /// Whether the CPU frequency is a job's to set: the site allows it, and all CPUs that Slurm gives out are the job's.
    ///
    /// # Errors
    /// Why not.
    fn may_set(&self, job: u32) -> Result<(), String> {
        if !self.is_allowed {
            return Err("node.cpufreq is off on this site".to_string());
        }
        let own = self.metering.held.lock().iter().find(|h| h.job == job).map_or(0, |h| h.cpus);
        let others = self.metering.lock().processes.jobs.iter().any(|j| j.job_id != job);
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
        let here = self.slurm.node(&self.metering.name).map_err(|e| e.to_string())?;
        let cpus = here.ok_or_else(|| format!("Slurm does not know node {}", self.metering.name))?.cpus;
        Ok(*self.cpus.get_or_init(|| cpus))
    }
}

/// `POST /v1/jobs/{job}/frequency`: for a job of one's own that has this node for itself.
pub(crate) async fn set(
    State(of): State<Arc<Setting>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    Document(wanted): Document<FrequencyRequest>,
) -> Result<Response, Refusal> {
    let Path(job) = job?;
    listener::version(wanted.version)?;
    if !wanted.hz.is_none_or(|hz| hz >= 0.0) || wanted.lease_s.is_nan() || wanted.lease_s < 0.0 {
        return Err(Refusal(StatusCode::BAD_REQUEST, "neither hz nor lease_s may be below 0".to_string()));
    }
    let answer = blocking(move || {
        if of.metering.is_owner(peer.uid, job) != Some(true) {
            return Err(None);
        }
        let place = (job, of.metering.name.as_str());
        let Some(hz) = wanted.hz else {
            if of.frequency.give_back(job) {
                let _: Result<(), String> = audit::note(By::User(peer), Act::Frequency, place, "given back", Ok(()));
            }
            return Ok(FrequencyState { hz: of.frequency.held_hz() });
        };
        of.may_set(job).map_err(Some)?;
        let lease = Duration::from_secs_f64(wanted.lease_s.min(LONGEST_LEASE.as_secs_f64()));
        let held = of.frequency.hold(job, hz, lease, Instant::now());
        audit::note(By::User(peer), Act::Frequency, place, &format!("{hz} Hz"), held).map_err(Some)?;
        Ok(FrequencyState { hz: of.frequency.held_hz() })
    });
    match answer.await? {
        Ok(state) => Ok(Json(state).into_response()),
        Err(Some(why)) => Err(Refusal(StatusCode::CONFLICT, why)),
        Err(None) => {
            let mut answer = Refusal(StatusCode::NOT_FOUND, format!("job {job} has no process here")).into_response();
            answer.extensions_mut().insert(Hidden("the job is somebody else's, or not here"));
            Ok(answer)
        }
    }
}
