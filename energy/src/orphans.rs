//! Finds the processes of a job that have left the tree of its steps, by its cgroup or by their environment.
//!
//! A process whose parents have ended belongs to init, and neither Slurm's process tracking by parents nor our
//! scan sees it as the job's. A cgroup holds it; where Slurm makes none, the job's number in the environment
//! tells. It is asked for only when a job is to be fenced.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use crate::cgroups::Cgroups;
use crate::process::{parse_stat, real_uid};
use crate::{Error, Processes, environ, sysfs};

/// Processes outside of every step in `procs` that are in the job's cgroups, or are user `uid`'s and carry
/// `SLURM_JOB_ID=job_id`.
///
/// A user cannot leave a cgroup. The number is the user's to change, so only that user's processes are looked at: whoever lies can only have
/// processes of their own fenced. One that does not show its environment is not found. The caller and those above it are never among them.
pub fn orphans(proc_root: &Path, procs: &Processes, job_id: u32, uid: u32) -> Result<Vec<i32>, Error> {
    let known: HashSet<i32> =
        procs.jobs.iter().flat_map(|j| j.pids.iter().chain(j.steps.iter().map(|s| &s.stepd_pid))).copied().collect();
    let mut parents = HashMap::new();
    let job = procs.jobs.iter().find(|j| j.job_id == job_id);
    let mut found = job.map(|job| Cgroups::of(proc_root).members(proc_root, job)).unwrap_or_default();
    found.retain(|pid| !known.contains(pid));
    for path in sysfs::entries(proc_root)? {
        let Ok(pid) = sysfs::leaf(&path).parse::<i32>() else { continue };
        let Some(process) = read(&path.join("stat"), 64 * 1024).and_then(|s| parse_stat(pid, &s)) else { continue };
        parents.insert(pid, process.ppid);
        if process.stepd || known.contains(&pid) || found.contains(&pid) {
            continue;
        }
        let owned = read(&path.join("status"), 64 * 1024).and_then(|s| real_uid(&s)) == Some(uid);
        if owned && environ(&path).told().is_some_and(|e| names_job(&e, job_id)) {
            found.push(pid);
        }
    }
    let mut above = i32::try_from(std::process::id()).ok();
    for _ in 0..=parents.len() {
        let Some(pid) = above else { break };
        found.retain(|p| *p != pid);
        above = parents.get(&pid).copied();
    }
    found.sort_unstable();
    Ok(found)
}

fn read(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok().map(|_| bytes)
}

fn names_job(environ: &[u8], job_id: u32) -> bool {
    let wanted = format!("SLURM_JOB_ID={job_id}");
    environ.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{JobCpu, StepCpu};

    fn add(root: &Path, pid: i32, comm: &str, uid: u32, environ: &str) {
        let dir = root.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stat"), format!("{pid} ({comm}) S 1 1 1 0 -1 4 1 2 3 4 1 1 0 0 20 0 1 0 10 5 6\n"))
            .unwrap();
        fs::write(dir.join("status"), format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")).unwrap();
        fs::write(dir.join("environ"), environ).unwrap();
    }

    #[test]
    fn only_the_users_own_strays_with_exactly_this_number() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        add(root, 101, "sleep", 1000, "A=1\0SLURM_JOB_ID=7\0B=2\0");
        add(root, 102, "sleep", 1001, "SLURM_JOB_ID=7\0");
        add(root, 103, "sleep", 1000, "SLURM_JOB_ID=77\0");
        add(root, 104, "sleep", 1000, "XSLURM_JOB_ID=7\0");
        add(root, 105, "bash", 1000, "SLURM_JOB_ID=7\0");
        add(root, 106, "slurmstepd", 1000, "SLURM_JOB_ID=7\0");
        add(root, i32::try_from(std::process::id()).unwrap(), "me", 1000, "SLURM_JOB_ID=7\0");
        let job = JobCpu { job_id: 7, cpu_s: 0.0, steps: vec![], pids: vec![105] };
        let procs = Processes { jobs: vec![job], ..Processes::default() };
        assert_eq!(orphans(root, &procs, 7, 1000).unwrap(), [101]);
        assert_eq!(orphans(root, &procs, 8, 1000).unwrap(), [0; 0]);
    }

    #[test]
    fn a_stray_in_the_jobs_cgroup_is_found_whatever_its_environment_says() {
        let dir = tempfile::tempdir().unwrap();
        let (root, sys) = (dir.path().join("proc"), dir.path().join("cgroup"));
        let step = sys.join("system.slice/slurmstepd.scope/s61HM7YG8EBX00/step_0");
        for (file, content) in [("slurm/cgroup.procs", "100\n"), ("user/task_0/cgroup.procs", "101\n102\n")] {
            fs::create_dir_all(step.join(file).parent().unwrap()).unwrap();
            fs::write(step.join(file), content).unwrap();
        }
        add(&root, 100, "slurmstepd", 0, "");
        add(&root, 101, "bash", 1000, "");
        add(&root, 102, "daemon", 1000, "SLURM_JOB_ID=8\0");
        fs::write(root.join("100/cgroup"), "0::/system.slice/slurmstepd.scope/s61HM7YG8EBX00/step_0/slurm\n").unwrap();
        fs::create_dir_all(root.join("self")).unwrap();
        let mount = format!("70 69 0:38 / {} rw - cgroup2 cgroup2 rw\n", sys.display());
        fs::write(root.join("self/mountinfo"), mount).unwrap();
        let step = StepCpu { name: "0".into(), stepd_pid: 100, stepd_start_ticks: 1, cpu_s: 0.0, pids: vec![] };
        let job = JobCpu { job_id: 7, cpu_s: 0.0, steps: vec![step], pids: vec![101] };
        let procs = Processes { jobs: vec![job], ..Processes::default() };
        assert_eq!(orphans(&root, &procs, 7, 1000).unwrap(), [102]);
    }
}
