//! Finds processes of a job that have left the trees of its steps, because what was above them was killed.

use crate::lives::told;
use energy::{Environ, Processes};
use protocol::Incarnation;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The processes of a node that are in no step. An environment is its user's to write: who lies there must hold up nobody
/// else, so that only those of a job's owner count; where nobody knows who that is, those of every user but root.
#[derive(Debug)]
pub(crate) struct Strays {
    proc_root: PathBuf,
}

impl Strays {
    /// Those of a node whose processes are under `proc_root`.
    pub fn new(proc_root: PathBuf) -> Strays {
        Strays { proc_root }
    }

    /// Protected processes of a job's lives up to one.
    pub fn of(&self, processes: &Processes, of: Incarnation, owner: Option<u32>) -> Vec<i32> {
        let is_its = |(restart_count, is_protected)| is_protected && restart_count <= of.restart_count;
        let tells = |pid: &i32| told(&self.environ(*pid).told()?, of.job);
        self.outside(processes, owner).into_iter().filter(|pid| tells(pid).is_some_and(is_its)).collect()
    }

    /// How many do not tell whose they are, as long as a storage on which they wait hangs: meanwhile it cannot be said that
    /// nothing of the job is left.
    pub fn silent(&self, processes: &Processes, owner: Option<u32>) -> usize {
        let outside = self.outside(processes, owner);
        outside.into_iter().filter(|pid| self.environ(*pid) == Environ::Silent).count()
    }

    fn outside(&self, processes: &Processes, owner: Option<u32>) -> Vec<i32> {
        let in_steps: BTreeSet<i32> = processes
            .jobs
            .iter()
            .flat_map(|job| job.steps.iter().flat_map(|s| s.pids.iter().copied().chain([s.stepd_pid])))
            .collect();
        let is_meant = |uid: u32| owner.map_or(uid != 0, |owner| uid == owner);
        let all = std::fs::read_dir(&self.proc_root).into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| !in_steps.contains(pid) && self.owner(*pid).is_some_and(is_meant)).collect()
    }

    fn environ(&self, pid: i32) -> Environ {
        energy::environ(&self.proc_root.join(pid.to_string()))
    }

    fn owner(&self, pid: i32) -> Option<u32> {
        std::fs::metadata(self.proc_root.join(pid.to_string())).ok().map(|m| m.uid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use energy::{JobCpu, StepCpu};
    use std::path::Path;

    fn of(restart_count: u32) -> Incarnation {
        Incarnation { job: 7, restart_count }
    }

    /// A process with this environment; who owns it.
    fn add(root: &Path, pid: i32, environ: &str) -> u32 {
        let folder = root.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("environ"), environ).unwrap();
        std::fs::metadata(&folder).unwrap().uid()
    }

    #[test]
    fn what_has_left_its_step_is_still_its_lifes_and_who_lies_holds_up_nobody() {
        let root = tempfile::tempdir().unwrap();
        let all = [
            "SLURM_JOB_ID=7\0JOULEPOINT_RUN=c/7.1\0",
            "SLURM_JOB_ID=7\0SLURM_RESTART_COUNT=1\0JOULEPOINT_RUN=c/7.1\0",
            "SLURM_JOB_ID=7\0",
            "SLURM_JOB_ID=77\0JOULEPOINT_RUN=c/7.1\0",
            "SLURM_JOB_ID=7\0JOULEPOINT_RUN=c/7.1\0",
        ];
        let owners: Vec<u32> = (901..).zip(all).map(|(pid, environ)| add(root.path(), pid, environ)).collect();
        // The last is in a step.
        let step = StepCpu { name: "0".into(), stepd_pid: 900, stepd_start_ticks: 1, cpu_s: 0.0, pids: vec![905] };
        let job = JobCpu { job_id: 7, cpu_s: 0.0, steps: vec![step], pids: vec![905] };
        let processes = Processes { jobs: vec![job], ..Processes::default() };
        let strays = Strays::new(root.path().into());
        let found = |restart_count: u32, owner: u32| {
            let mut found = strays.of(&processes, of(restart_count), Some(owner));
            found.sort_unstable();
            found
        };
        let owner = owners[0];
        assert_eq!((found(0, owner), found(1, owner)), (vec![901], vec![901, 902]));
        assert!(found(1, owner + 1).is_empty(), "another user's job waits for none of them");
        let of_anybody = strays.of(&processes, of(1), None);
        assert_eq!(of_anybody.len(), if owner == 0 { 0 } else { 2 }, "root's own are never meant");
    }

    /// A named pipe keeps its reader waiting, as a storage that hangs does.
    #[test]
    fn nothing_is_left_only_where_all_have_told_whose_they_are() {
        let root = tempfile::tempdir().unwrap();
        let owner = add(root.path(), 900, "");
        let path = root.path().join("900/environ");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let strays = Strays::new(root.path().into());
        let silent = |owner: u32| strays.silent(&Processes::default(), Some(owner));
        assert_eq!((silent(owner), silent(owner + 1)), (1, 0), "it is nobody else's");
        assert!(strays.of(&Processes::default(), of(0), Some(owner)).is_empty());
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&path));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "SLURM_JOB_ID=8\0").unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while silent(owner) > 0 {
            assert!(std::time::Instant::now() < end, "it has told");
            std::thread::yield_now();
        }
    }
}
