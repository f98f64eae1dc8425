//! Removes what a killed slurmstepd, or one that died with its node, leaves behind that keeps another from beginning.
//!
//! For a step with PMIx a slurmstepd makes a socket and two folders whose names are the job's number and the step's, and
//! removes them only at an orderly end (Slurm's src/plugins/mpi/pmix). Steps of a job that begins again have the same numbers:
//! the next slurmstepd finds what it is to make, launches no task, and `srun` says 0 of it.

use crate::left::{self, Place, Step};
use crate::metering::Metering;
use crate::mounts::onlooker;
use slurm::Slurm;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time between two looks at those of all jobs: a node that lost its power comes back with them.
const LOOK: Duration = Duration::from_secs(600);

/// Time between two questions where they are, while Slurm does not say.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How long it is waited for a job's names to be free.
const FREED: Duration = Duration::from_millis(500);

/// How long a slurmstepd that was killed may take to be gone.
const DYING: Duration = Duration::from_secs(1);

/// So many jobs that have ended here are remembered until their files are looked at.
const MOST_ENDED: usize = 1024;

/// The folders of slurmd on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    /// `SlurmdSpoolDir`.
    pub spool: PathBuf,
    /// `TmpFS`, and PMIx's own if mpi.conf names one.
    temporary: BTreeSet<PathBuf>,
}

/// A job whose steps' names are to be freed.
pub(crate) struct Ended {
    job: u32,
    /// Hears when they are; none if slurmstepds of it have just been killed.
    freed: Option<SyncSender<()>>,
}

/// What frees the names of steps with PMIx.
pub(crate) struct Pmix {
    metering: Arc<Metering>,
    slurm: Slurm,
    folders: OnceLock<Folders>,
    /// Hears of jobs that have ended here, whose steps may have left something.
    ended: SyncSender<Ended>,
}

impl Pmix {
    /// With the place where it hears of jobs that have ended, for [`Pmix::clear_up`].
    pub(crate) fn new(metering: Arc<Metering>, slurm: Slurm) -> (Pmix, Receiver<Ended>) {
        let (ended, jobs) = sync_channel(MOST_ENDED);
        (Pmix { metering, slurm, folders: OnceLock::new(), ended }, jobs)
    }

    /// slurmstepds of a job have just been killed.
    pub(crate) fn killed(&self, job: u32) {
        // One that finds no room is found by a look at all.
        let _ = self.ended.try_send(Ended { job, freed: None });
    }

    /// The folders of slurmd; none while slurmctld does not say.
    pub(crate) fn slurmd_folders(&self) -> Option<Folders> {
        if let Some(known) = self.folders.get() {
            return Some(known.clone());
        }
        let host = nix::unistd::gethostname().ok()?.to_string_lossy().into_owned();
        let folder = |key: &str| {
            let value = self.slurm.config_value(key).ok()??;
            Some(PathBuf::from(value.replace("%n", &self.metering.name).replace("%h", &host)))
        };
        let temporary = [Some(folder("TmpFS")?), folder("PMIxCliTmpDirBase").filter(|path| path.is_absolute())];
        let folders =
            Folders { spool: folder("SlurmdSpoolDir")?, temporary: temporary.into_iter().flatten().collect() };
        Some(self.folders.get_or_init(|| folders).clone())
    }

    /// Has the names of a job's steps freed; waits for that a moment and no longer.
    pub(crate) fn wait_for_names(&self, job: u32) {
        let (freed, is_freed) = sync_channel(1);
        if self.ended.try_send(Ended { job, freed: Some(freed) }).is_ok() {
            let _ = is_freed.recv_timeout(FREED);
        }
    }

    /// Frees the names of steps with PMIx whose slurmstepds are gone, of one job or of all. What has them is removed later.
    /// Whether there was anything of such a step.
    fn free_names(&self, job: Option<u32>) -> bool {
        let Some(folders) = self.slurmd_folders() else { return false };
        let freed = self.try_to_free_names(&folders, job);
        freed.unwrap_or_else(|error| {
            tracing::warn!(%error, "nobody knows what steps with PMIx have left");
            false
        })
    }

    fn try_to_free_names(&self, folders: &Folders, job: Option<u32>) -> io::Result<bool> {
        let places = self.places(folders)?;
        let mut found = left::find(&places)?;
        found.retain(|step, _| job.is_none_or(|job| job == step.job));
        if found.is_empty() {
            return Ok(false);
        }
        // A slurmstepd is there before anything of it.
        self.metering.look();
        for (step, entries) in
            found.iter().filter(|(s, entries)| !self.has_stepd(s) && !left::listens(&places, entries))
        {
            match left::set_aside(&places, entries) {
                Ok(()) => tracing::info!(job = step.job, step = step.name, "a slurmstepd that is gone had left files"),
                Err(error) => {
                    tracing::warn!(job = step.job, step = step.name, %error, "files of a step stay in the way")
                }
            }
        }
        Ok(true)
    }

    /// Opens the folders as slurmd sees them: this service's unit shows them as read-only, or its own.
    fn places(&self, folders: &Folders) -> io::Result<Vec<Place>> {
        let root = onlooker(&self.metering.proc_root).join("root");
        let all = std::iter::once(&folders.spool).chain(&folders.temporary);
        all.map(|folder| Place::open(&root, folder)).collect()
    }

    fn has_stepd(&self, step: &Step) -> bool {
        let meters = self.metering.lock();
        let of_job = meters.processes.jobs.iter().find(|j| j.job_id == step.job);
        of_job.is_some_and(|job| job.steps.iter().any(|s| s.name == step.name))
    }

    /// Does so for jobs of which it hears, and for all again and again; and removes what had the names. One thread alone does
    /// it: two might take what is new for what is old, and a storage may hang.
    pub(crate) fn clear_up(&self, jobs: &Receiver<Ended>) {
        let mut all_again = Instant::now();
        // What is killed dies a moment later.
        let mut dying: VecDeque<(Instant, u32)> = VecDeque::new();
        let mut is_aside = false;
        loop {
            let now = Instant::now();
            if now >= all_again {
                self.free_names(None);
                // Also what an earlier life of this service has set aside.
                is_aside = true;
                let is_known = self.folders.get().is_some();
                all_again = now + if is_known { LOOK } else { ASK_AGAIN };
            }
            while let Some((_, job)) = dying.pop_front_if(|(dead, _)| now >= *dead) {
                is_aside |= self.free_names(Some(job));
            }
            if std::mem::take(&mut is_aside)
                && let Some(Ok(places)) = self.folders.get().map(|folders| self.places(folders))
            {
                left::remove_aside(&places);
            }
            let next = dying.front().map_or(all_again, |(dead, _)| all_again.min(*dead));
            match jobs.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Ended { job, freed: None }) => dying.push_back((Instant::now() + DYING, job)),
                Ok(Ended { job, freed: Some(freed) }) => {
                    is_aside |= self.free_names(Some(job));
                    let _ = freed.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
