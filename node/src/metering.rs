//! Meters the jobs on this node, and says whose they are and which processes are theirs.

use energy::{Accounts, JobEnergy, Meter, Processes};
use listener::now_s;
use parking_lot::{Mutex, MutexGuard};
use protocol::{Held, JobReading};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is metered on a node.
pub(crate) struct Metering {
    /// The node's name.
    pub name: String,
    /// Root of the process tree.
    pub proc_root: PathBuf,
    meters: Mutex<Meters>,
    /// The jobs that hold this node, as the controller said last.
    pub held: Mutex<Vec<Held>>,
}

/// The meter, the accounts, and the last look at the processes.
pub(crate) struct Meters {
    pub meter: Meter,
    pub accounts: Accounts,
    pub processes: Processes,
    /// Whose jobs they are, as the owners of their processes tell.
    pub owners: BTreeMap<u32, u32>,
    scanner: energy::Scanner,
}

impl Meters {
    /// The processes of a job at the last look.
    pub fn pids_of(&self, job: u32) -> Vec<i32> {
        self.processes.pids_of(job).to_vec()
    }

    /// What a job has used here, as it is told to its owner and root, who may say which restart of it is here.
    pub fn told_to(&mut self, uid: u32, job: u32, restart: Option<u32>) -> Option<JobEnergy> {
        if uid != 0 && self.owners.get(&job) != Some(&uid) {
            return None;
        }
        if let Some(restart) = restart {
            self.accounts.belongs(job, restart);
        }
        self.accounts.job(job)
    }

    pub fn look(&mut self, proc_root: &Path) {
        match self.scanner.scan(now_s()) {
            Ok(processes) => self.processes = processes,
            Err(e) => tracing::warn!(%e, "the processes cannot be read"),
        }
        for job in &self.processes.jobs {
            let mut owners = job.pids.iter().filter_map(|pid| owner(proc_root, *pid)).filter(|uid| *uid != 0);
            if let Some(uid) = owners.next() {
                // The first is the script's or the task's own: what they start may have other numbers.
                self.owners.entry(job.job_id).or_insert(uid);
            }
        }
        let sample = self.accounts.sample(now_s(), &mut self.meter, &self.processes);
        self.owners.retain(|job, _| self.accounts.job(*job).is_some());
        for mark in sample.marks {
            tracing::warn!(source = mark.source.as_str(), kind = mark.kind.as_str(), text = mark.text, "energy source");
        }
    }
}

impl Metering {
    /// Meters of a node with these sources of energy, which has so many CPUs.
    pub fn new(name: String, proc_root: PathBuf, sources: &energy::Config, cpus: u32, idle_w: f64) -> Metering {
        let meters = Meters {
            meter: energy::open(sources),
            accounts: Accounts::new(cpus, idle_w),
            processes: Processes::default(),
            owners: BTreeMap::new(),
            scanner: energy::Scanner::new(proc_root.clone(), energy::tick_hz()),
        };
        Metering { name, proc_root, meters: Mutex::new(meters), held: Mutex::default() }
    }

    /// The meters, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock()
    }

    /// The processes of this node as they were seen last: whoever asks the kernel more about them must hold up no heartbeat.
    pub fn processes(&self) -> Processes {
        self.lock().processes.clone()
    }

    /// Looks at the processes of this node anew.
    pub fn look(&self) {
        self.lock().look(&self.proc_root);
    }

    /// Whether a job that has processes here is this user's; none if it has none.
    pub fn is_owner(&self, uid: u32, job: u32) -> Option<bool> {
        let mut meters = self.lock();
        meters.look(&self.proc_root);
        let is_here = meters.processes.jobs.iter().any(|j| j.job_id == job);
        is_here.then(|| uid == 0 || meters.owners.get(&job) == Some(&uid))
    }

    /// Whose a job is, as the owners of its processes here told; none if it had none, or they are long gone.
    pub fn owner_of(&self, job: u32) -> Option<u32> {
        self.lock().owners.get(&job).copied()
    }

    /// The processes of a job here, for its owner and root; none if it is somebody else's.
    pub fn processes_of(&self, uid: u32, job: u32) -> Option<Vec<i32>> {
        let pids = {
            let mut meters = self.lock();
            meters.look(&self.proc_root);
            let (owner, pids) = (meters.owners.get(&job), meters.pids_of(job));
            let is_theirs = uid == 0 || owner.map_or(pids.is_empty(), |owner| *owner == uid);
            is_theirs.then_some(pids)?
        };
        Some([self.strays(job, &pids), pids].concat())
    }

    /// The owner of a job and the processes of its steps here, scripts and Slurm's own step apart; none if it is somebody
    /// else's.
    pub fn tasks_of(&self, uid: u32, job: u32) -> Option<(u32, Vec<i32>)> {
        let mut meters = self.lock();
        meters.look(&self.proc_root);
        let owner = meters.owners.get(&job).copied();
        let of_job = meters.processes.jobs.iter().find(|j| j.job_id == job);
        if of_job.is_some() && uid != 0 && owner != Some(uid) {
            return None;
        }
        let is_task = |step: &&energy::StepCpu| !step.is_script() && !step.is_extern();
        let steps = of_job.into_iter().flat_map(|j| &j.steps).filter(is_task);
        Some((owner.unwrap_or(uid), steps.flat_map(|step| &step.pids).copied().collect()))
    }

    /// Processes of the job that left its steps' trees, found by their owner and their environment.
    pub fn strays(&self, job: u32, pids: &[i32]) -> Vec<i32> {
        let processes = self.processes();
        let owners: BTreeSet<u32> =
            pids.iter().filter_map(|pid| owner(&self.proc_root, *pid)).filter(|uid| *uid != 0).collect();
        let of = |uid: u32| energy::orphans(&self.proc_root, &processes, job, uid).unwrap_or_default();
        owners.into_iter().flat_map(of).collect()
    }
}

/// Who owns a process.
fn owner(proc_root: &Path, pid: i32) -> Option<u32> {
    std::fs::metadata(proc_root.join(pid.to_string())).ok().map(|m| m.uid())
}

/// What a heartbeat tells of a job.
pub(crate) fn reading(job: &JobEnergy) -> JobReading {
    JobReading {
        job: job.job_id,
        joules: job.joules,
        cpu_s: job.cpu_s,
        source: job.source.as_str().to_string(),
        since_s: job.since_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_told_to_a_jobs_owner_and_root_alone_and_nobody_else_begins_it_anew() {
        let sources = energy::Config { precedence: vec![energy::SourceKind::Model], ..energy::Config::default() };
        let metering = Metering::new("n1".into(), "/proc".into(), &sources, 1, 0.0);
        let mut meters = metering.lock();
        meters.accounts.hold(1.0, &[(7, 0)]);
        let since_s = |told: Option<JobEnergy>| told.map(|job| job.since_s);
        assert_eq!(since_s(meters.told_to(1000, 7, Some(5))), None, "nobody knows whose it is");
        assert_eq!(since_s(meters.told_to(0, 7, None)), Some(1.0), "and nothing has begun anew");
        meters.owners.insert(7, 1000);
        assert_eq!(since_s(meters.told_to(1001, 7, Some(5))), None);
        assert_eq!(since_s(meters.told_to(1000, 7, Some(0))), Some(1.0));
        assert!(since_s(meters.told_to(1000, 7, Some(1))) > Some(1.0), "its owner may");
    }
}
