//! Holds this node's CPU frequency for a job that checkpoints or waits, on a lease, and puts back what was there.

use crate::http::{Document, Hidden, Refusal, blocking};
use crate::node::Node;
use audit::{Act, By};
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hardware::cpufreq::{Cpufreq, Held};
use parking_lot::Mutex;
use protocol::{FrequencyRequest, FrequencyState};
use std::path::PathBuf;
use std::sync::Arc;
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

/// `POST /v1/jobs/{job}/frequency`: for a job of one's own that has this node for itself.
pub(crate) async fn set(
    State(node): State<Arc<Node>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    Document(wanted): Document<FrequencyRequest>,
) -> Result<Response, Refusal> {
    let Path(job) = job?;
    crate::http::version(wanted.version)?;
    if !wanted.hz.is_none_or(|hz| hz >= 0.0) || wanted.lease_s.is_nan() || wanted.lease_s < 0.0 {
        return Err(Refusal(StatusCode::BAD_REQUEST, "neither hz nor lease_s may be below 0".to_string()));
    }
    let answer = blocking(move || {
        if node.is_owner(peer.uid, job) != Some(true) {
            return Err(None);
        }
        let place = (job, node.params.node.as_str());
        let Some(hz) = wanted.hz else {
            if node.frequency.give_back(job) {
                let _: Result<(), String> = audit::note(By::User(peer), Act::Frequency, place, "given back", Ok(()));
            }
            return Ok(FrequencyState { hz: node.frequency.held_hz() });
        };
        node.may_set_frequency(job).map_err(Some)?;
        let lease = Duration::from_secs_f64(wanted.lease_s.min(LONGEST_LEASE.as_secs_f64()));
        let held = node.frequency.hold(job, hz, lease, Instant::now());
        audit::note(By::User(peer), Act::Frequency, place, &format!("{hz} Hz"), held).map_err(Some)?;
        Ok(FrequencyState { hz: node.frequency.held_hz() })
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
