//! Says whether steps of a job have left files on storage that only this node has: such a step is run again elsewhere.

use crate::lease::Holder;
use crate::metering::Metering;
use crate::mounts::{INIT, is_read_only, onlooker};
use crate::pmix::Pmix;
use crate::walk::{self, Walk};
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use config::Runs;
use listener::{Document, Refusal, blocking, now_s};
use openfiles::{Mount, Mounts};
use parking_lot::Mutex;
use protocol::{Leavings, LeavingsRequest, StepSpan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Peer;

/// Most steps of one question.
const MOST_STEPS: usize = 1000;

/// Most files and folders that are looked at, and the longest look: what is beyond them may be there.
const MOST_ENTRIES: u32 = 200_000;
const LIMIT: Duration = Duration::from_secs(2);

/// Longest time that a question is under way, s.
const UNDER_WAY_S: f64 = 1.0;

/// So much longer than a look is the pause after it: looks for one user take no more than a twentieth of one CPU.
const PAUSES: u32 = 19;

/// Longest wait for another user's look; who asks waits two seconds for the answer.
const TURN: Duration = Duration::from_secs(1);

/// When looks were taken here: one at a time, and each user pauses after their own.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Held by who looks.
    looking: Mutex<()>,
    /// When those who pause may look again.
    next: Mutex<BTreeMap<u32, Instant>>,
}

impl Walks {
    /// Takes a look for a user, unless their last one was too short a time ago, or somebody else's goes on.
    fn take<T>(&self, uid: u32, look: impl FnOnce() -> T) -> Option<T> {
        if self.pauses(uid) {
            return None;
        }
        let _turn = self.looking.try_lock_for(TURN)?;
        // Another question of theirs may have been answered meanwhile.
        if self.pauses(uid) {
            return None;
        }
        let begun = Instant::now();
        let seen = look();
        self.next.lock().insert(uid, Instant::now() + begun.elapsed() * PAUSES);
        Some(seen)
    }

    fn pauses(&self, uid: u32) -> bool {
        let (mut next, now) = (self.next.lock(), Instant::now());
        next.retain(|_, next| now < *next);
        next.contains_key(&uid)
    }
}

/// What a look for leavings needs.
pub(crate) struct Looker {
    pub metering: Arc<Metering>,
    pub lease: Arc<Holder>,
    pub pmix: Arc<Pmix>,
    pub runs: Runs,
    pub walks: Walks,
}

/// `POST /v1/jobs/{job}/leavings`: whoever asks hears of files of their own only.
pub(crate) async fn leavings(
    State(of): State<Arc<Looker>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    Document(asked): Document<LeavingsRequest>,
) -> Result<Json<Leavings>, Refusal> {
    let Path(job) = job?;
    listener::version(asked.version)?;
    if asked.steps.len() > MOST_STEPS {
        return Err(Refusal(StatusCode::BAD_REQUEST, format!("more than {MOST_STEPS} steps")));
    }
    let seen = blocking(move || {
        let until = Instant::now() + LIMIT;
        let host = onlooker(&of.metering.proc_root);
        if asked.steps.is_empty() {
            let (node, boot_id) = (of.metering.name.clone(), of.lease.boot_id());
            return Some(Leavings { node, boot_id, is_whole: true, ..Leavings::default() });
        }
        of.walks.take(peer.uid, || {
            let begun = Instant::now();
            // The clocks of two nodes may differ; a little is the time that the question was under way.
            let shift_s = Some(now_s() - asked.now_s).filter(|s| !(0.0..UNDER_WAY_S).contains(s)).unwrap_or(0.0);
            let shifted =
                |step: &StepSpan| StepSpan { begun_s: step.begun_s + shift_s, ended_s: step.ended_s + shift_s };
            let steps = asked.steps.iter().map(shifted).collect();
            let (runs, spool) = (&of.runs, of.pmix.slurmd_folders().map(|f| f.spool));
            // What Slurm itself keeps there of a user's job goes with the job.
            let is_no_place = |path: &FsPath, fs: &str| runs.is_shared(path, fs) || spool.as_deref() == Some(path);
            let mut walk = Walk::new(peer.uid, steps, MOST_ENTRIES, until);
            match Mounts::of(&host) {
                Ok(mounts) => {
                    if !host.ends_with(INIT) && is_read_only(&mounts) {
                        walk.has_missed("the first process cannot be looked into, and from this one much is hidden");
                    }
                    walk.all(&host.join("root"), &mounts, &is_no_place);
                    if of.has_other_storage(job, &mounts, until) {
                        walk.has_missed("the job has, or may have, storage mounted that the host does not see");
                    }
                }
                Err(e) => walk.has_missed(&format!("the mounts: {e}")),
            }
            Leavings {
                node: of.metering.name.clone(),
                boot_id: of.lease.boot_id(),
                is_whole: walk.is_whole(),
                took_s: begun.elapsed().as_secs_f64(),
                steps: walk.into_left(),
            }
        })
    });
    let later = || Refusal(StatusCode::SERVICE_UNAVAILABLE, "the last look was a moment ago; ask later".to_string());
    seen.await?.map(Json).ok_or_else(later)
}

impl Looker {
    /// Whether processes of a job see local storage that the host does not. A `/tmp` of their own may be a folder that
    /// it sees elsewhere, or memory that goes with them. Those that are not looked at in time may see some.
    fn has_other_storage(&self, job: u32, host: &Mounts, until: Instant) -> bool {
        let mut seen = BTreeSet::new();
        let pids = self.metering.lock().pids_of(job);
        pids.iter().any(|pid| {
            if Instant::now() >= until {
                return true;
            }
            let process = self.metering.proc_root.join(pid.to_string());
            let namespace = std::fs::read_link(process.join("ns/mnt")).ok();
            seen.insert(namespace)
                && Mounts::of(&process).is_ok_and(|mounts| {
                    let is_shared = |m: &Mount| self.runs.is_shared(&m.point, &m.fs);
                    let others = mounts.iter().filter(|m| walk::outlives_a_boot(m) && !is_shared(m));
                    others.into_iter().any(|m| host.fs_by_device(&m.device).is_none())
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_come_too_fast_are_refused_and_take_no_more_than_their_share() {
        let (walks, begun) = (Walks::default(), Instant::now());
        let slow = || std::thread::sleep(Duration::from_millis(20));
        assert!(walks.take(1, slow).is_some());
        assert!(walks.take(1, slow).is_none());
        assert!(walks.take(2, || ()).is_some(), "nobody waits for another's pause");
        while walks.take(1, slow).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(begun.elapsed() >= Duration::from_millis(20) * PAUSES);
        assert_eq!(walks.next.lock().len(), 1, "who has paused is forgotten");
    }

    #[test]
    fn a_look_waits_a_moment_for_another_users() {
        let walks = Walks::default();
        let looking = walks.looking.lock();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| walks.take(2, || ()));
            std::thread::sleep(Duration::from_millis(20));
            drop(looking);
            assert!(waits.join().expect("no panic").is_some());
        });
        let _looking = walks.looking.lock();
        assert!(walks.take(2, || ()).is_none());
    }
}
