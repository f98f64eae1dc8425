//! Finds the cgroups of a job's steps, whether they are named by job number or by SLUID, under v1 and v2.
//!
//! Slurm names a job's folder `slurm/uid_1000/job_42` (v1), `slurmstepd.scope/job_42` (v2) or, from 26.05,
//! `slurmstepd.scope/s5K1KKYAYG5D00`, which holds no job number. So the way leads from the step process, whose
//! title names the job, to the cgroup that it is in. With several slurmds on a host the node's name is added:
//! `slurm_n1`, `n1_slurmstepd.scope`.

use std::path::{Path, PathBuf};

use crate::procs::{JobCpu, StepCpu};
use crate::sysfs::{entries, leaf, text};

/// A step's cgroups are not deeper; users may add levels of their own.
const DEPTH_LIMIT: usize = 8;

/// A mounted hierarchy of cgroups.
#[derive(Debug, PartialEq)]
struct Mount {
    /// What it shows of the hierarchy, and where.
    root: String,
    at: PathBuf,
    /// The controllers of a v1 hierarchy; none for v2.
    controllers: Option<String>,
}

/// The hierarchies mounted on this machine.
pub(crate) struct Cgroups(Vec<Mount>);

impl Cgroups {
    /// Those that the mount table of `proc_root` names; without a table, none.
    pub(crate) fn of(proc_root: &Path) -> Cgroups {
        let table = std::fs::read_to_string(proc_root.join("self/mountinfo")).unwrap_or_default();
        Cgroups(table.lines().filter_map(mount).collect())
    }

    /// CPU seconds of a step as the kernel has summed them: of all that ever ran in its cgroup.
    pub(crate) fn step_cpu_s(&self, proc_root: &Path, step: &StepCpu) -> Option<f64> {
        self.folders(proc_root, step).into_iter().find_map(|(mount, folder)| match &mount.controllers {
            // Where tasks have a folder of their own, the step process itself is beside it.
            None => usage_s(&folder.join("user")).or_else(|| usage_s(&folder)),
            Some(_) => Some(text(&folder.join("cpuacct.usage")).ok()?.parse::<u64>().ok()? as f64 / 1e9),
        })
    }

    /// Every process in the cgroups of a job's steps, the step processes not included.
    pub(crate) fn members(&self, proc_root: &Path, job: &JobCpu) -> Vec<i32> {
        let mut pids = Vec::new();
        for step in &job.steps {
            for (_, folder) in self.folders(proc_root, step) {
                collect(&folder, DEPTH_LIMIT, &mut pids);
            }
        }
        pids.retain(|pid| *pid > 0 && job.steps.iter().all(|s| s.stepd_pid != *pid));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The folder of the step in every hierarchy that has one.
    fn folders(&self, proc_root: &Path, step: &StepCpu) -> Vec<(&Mount, PathBuf)> {
        let table = proc_root.join(step.stepd_pid.to_string()).join("cgroup");
        let table = std::fs::read_to_string(table).unwrap_or_default();
        // Each line is `number:controllers:path`; v1 gives the job the same path in every hierarchy.
        let Some(job) = table.lines().find_map(|line| job_path(line.splitn(3, ':').nth(2)?)) else { return Vec::new() };
        let folder = |mount: &Mount| {
            let below = job.strip_prefix(&mount.root).unwrap_or(job).trim_start_matches('/');
            mount.at.join(below).join(format!("step_{}", step.name))
        };
        self.0.iter().map(|m| (m, folder(m))).filter(|(_, folder)| folder.is_dir()).collect()
    }
}

/// A line of the mount table, if it is a hierarchy of cgroups.
fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, at) = (place.next()?.trim_end_matches('/').to_string(), place.next()?.into());
    let kind: Vec<&str> = kind.split(' ').collect();
    match kind[..] {
        ["cgroup2", ..] => Some(Mount { root, at, controllers: None }),
        ["cgroup", _, controllers] => Some(Mount { root, at, controllers: Some(controllers.to_string()) }),
        _ => None,
    }
}

/// The beginning of a path up to the job's folder. The innermost counts: a slurmd may itself run in a job.
fn job_path(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_job = |at: usize| match parts[..=at] {
        [.., scope, job] if scope == "slurmstepd.scope" || scope.ends_with("_slurmstepd.scope") => {
            is_numbered(job) || is_sluid(job)
        }
        [.., slurm, uid, job] => {
            (slurm == "slurm" || slurm.starts_with("slurm_")) && uid.starts_with("uid_") && is_numbered(job)
        }
        _ => false,
    };
    let at = (0..parts.len()).rev().find(|at| is_job(*at))?;
    let length = parts[..=at].iter().map(|p| p.len()).sum::<usize>() + at;
    path.get(..length)
}

fn is_numbered(folder: &str) -> bool {
    folder.strip_prefix("job_").is_some_and(|n| n.parse::<u32>().is_ok())
}

/// `s` and 13 digits of Crockford's base 32, as Slurm prints it.
fn is_sluid(folder: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || b.is_ascii_uppercase() && !b"ILOU".contains(&b);
    folder.strip_prefix('s').is_some_and(|digits| digits.len() == 13 && digits.bytes().all(digit))
}

/// Seconds in the kernel's `cpu.stat`.
fn usage_s(folder: &Path) -> Option<f64> {
    let stat = text(&folder.join("cpu.stat")).ok()?;
    let usage = stat.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
    Some(usage.parse::<u64>().ok()? as f64 / 1e6)
}

/// The processes in a step's folder and below; v2 keeps the step process in `slurm`.
fn collect(folder: &Path, depth: usize, pids: &mut Vec<i32>) {
    let procs = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    pids.extend(procs.lines().filter_map(|l| l.parse::<i32>().ok()));
    for path in entries(folder).unwrap_or_default() {
        if depth > 0 && leaf(&path) != "slurm" && path.is_dir() {
            collect(&path, depth - 1, pids);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const V1: &str = "\
47 46 0:28 / @ rw,relatime - tmpfs tmpfs rw,mode=755
49 47 0:30 / @/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
51 47 0:32 / @/memory rw,relatime - cgroup cgroup rw,memory
53 47 0:34 / @/freezer rw,relatime - cgroup cgroup rw,freezer
57 47 0:38 / @/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V2: &str = "\
25 23 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
70 69 0:38 / @ rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

    /// A tree of one job with one step in the layouts of Slurm: the mount table, the step process's own line, the
    /// job's folder, and its files with what they hold.
    struct Layout {
        mounts: &'static str,
        line: &'static str,
        files: &'static [(&'static str, &'static str)],
    }

    const LAYOUTS: [Layout; 5] = [
        // As recorded on Slurm 22.05.8 with cgroup/v1, proctrack/cgroup and jobacct_gather/cgroup; 102 had left the
        // tree of processes. Built for several slurmds on a host, as Debian's is.
        Layout {
            mounts: V1,
            line: "9:name=systemd:/\n6:freezer:/slurm_jpcg/uid_0/job_42\n4:memory:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
            files: &[
                ("freezer/slurm_jpcg/uid_0/job_42/cgroup.procs", "100\n200\n"),
                ("freezer/slurm_jpcg/uid_0/job_42/step_batch/cgroup.procs", "101\n102\n"),
                ("freezer/slurm_jpcg/uid_0/job_42/step_0/cgroup.procs", "201\n"),
                ("cpuacct/slurm_jpcg/uid_0/job_42/step_batch/cgroup.procs", ""),
                ("cpuacct/slurm_jpcg/uid_0/job_42/step_batch/cpuacct.usage", "12500000000\n"),
                ("cpuacct/slurm_jpcg/uid_0/job_42/step_batch/task_0/cgroup.procs", "101\n102\n"),
                ("cpuacct/slurm_jpcg/uid_0/job_42/step_0/cpuacct.usage", "3112221\n"),
            ],
        },
        // The same for one slurmd, with the step process in the step's folder.
        Layout {
            mounts: V1,
            line: "7:freezer:/slurm/uid_1000/job_42/step_batch\n",
            files: &[
                ("freezer/slurm/uid_1000/job_42/step_batch/cgroup.procs", "100\n101\n102\n"),
                ("cpuacct/slurm/uid_1000/job_42/step_batch/cpuacct.usage", "12500000000\n"),
            ],
        },
        // As recorded on Slurm 26.05.5 with cgroup/v2, which names the job by SLUID; 102 had left the tree.
        Layout {
            mounts: V2,
            line: "0::/system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/slurm\n",
            files: &[
                ("system.slice/jpcg_slurmstepd.scope/slurmd/cgroup.procs", "31\n"),
                ("system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/cpu.stat", "usage_usec 12503217\n"),
                ("system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/slurm/cgroup.procs", "100\n"),
                (
                    "system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/user/cpu.stat",
                    "usage_usec 12500000\nuser_usec 12000000\nsystem_usec 500000\n",
                ),
                ("system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/user/cgroup.procs", ""),
                (
                    "system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_batch/user/task_special/cgroup.procs",
                    "101\n102\n",
                ),
                ("system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_0/slurm/cgroup.procs", "200\n"),
                ("system.slice/jpcg_slurmstepd.scope/s61HM7YG8EBX00/step_0/user/task_0/cgroup.procs", "201\n"),
            ],
        },
        // The same by job number, as before 26.05 or with CgroupJobIdPaths=yes; 0 is outside our process namespace.
        Layout {
            mounts: V2,
            line: "0::/system.slice/slurmstepd.scope/job_42/step_batch/slurm\n",
            files: &[
                ("system.slice/slurmstepd.scope/job_42/step_batch/slurm/cgroup.procs", "100\n"),
                ("system.slice/slurmstepd.scope/job_42/step_batch/user/cpu.stat", "usage_usec 12500000\n"),
                ("system.slice/slurmstepd.scope/job_42/step_batch/user/task_0/cgroup.procs", "101\n0\n"),
                ("system.slice/slurmstepd.scope/job_42/step_batch/user/task_1/cgroup.procs", "102\n"),
            ],
        },
        // A slurmd inside a job of another, seen from a mount that begins at its scope.
        Layout {
            mounts: "30 25 0:26 /machine @ rw - cgroup2 cgroup2 rw\n",
            line: "0::/machine/slurmstepd.scope/job_7/step_0/user/system.slice/slurmstepd.scope/sEKNKTV3WPV500/x\n",
            files: &[
                (
                    "slurmstepd.scope/job_7/step_0/user/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/cpu.stat",
                    "usage_usec 12500000\n",
                ),
                (
                    "slurmstepd.scope/job_7/step_0/user/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/cgroup.procs",
                    "101\n102\n",
                ),
            ],
        },
    ];

    fn write(file: &Path, content: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn job() -> JobCpu {
        let step = StepCpu { name: "batch".into(), stepd_pid: 100, stepd_start_ticks: 1, cpu_s: 0.0, pids: vec![] };
        JobCpu { job_id: 42, cpu_s: 0.0, steps: vec![step], pids: vec![] }
    }

    #[test]
    fn every_layout_leads_to_the_steps_time_and_processes() {
        for (n, layout) in LAYOUTS.iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let (proc_root, sys) = (dir.path().join("proc"), dir.path().join("cgroup"));
            write(&proc_root.join("self/mountinfo"), &layout.mounts.replace('@', sys.to_str().unwrap()));
            write(&proc_root.join("100/cgroup"), layout.line);
            for (file, content) in layout.files {
                write(&sys.join(file), content);
            }
            let cgroups = Cgroups::of(&proc_root);
            assert_eq!(cgroups.step_cpu_s(&proc_root, &job().steps[0]), Some(12.5), "layout {n}");
            assert_eq!(cgroups.members(&proc_root, &job()), [101, 102], "layout {n}");
        }
    }

    #[test]
    fn only_slurms_own_folders_are_a_jobs() {
        let sluid = "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00";
        for (path, job) in [
            ("/slurm/uid_0/job_7/step_0/task_0", Some("/slurm/uid_0/job_7")),
            ("/system.slice/slurmstepd.scope/job_7", Some("/system.slice/slurmstepd.scope/job_7")),
            ("/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0", Some(sluid)),
            ("/system.slice/slurmstepd.scope/system", None),
            ("/system.slice/slurmstepd.scope/s5K1KKYAYG5D0", None),
            ("/system.slice/slurmstepd.scope/s5K1KKYAYG5DI0", None),
            ("/system.slice/slurmstepd.scope/job_x", None),
            ("/user.slice/job_7", None),
            ("/slurm/job_7", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(job_path(path), job, "{path}");
        }
    }

    #[test]
    fn without_cgroups_there_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::of(dir.path());
        assert_eq!(cgroups.step_cpu_s(dir.path(), &job().steps[0]), None);
        assert_eq!(cgroups.members(dir.path(), &job()), [0; 0]);
        assert!(!Cgroups::of(Path::new("/proc")).0.is_empty(), "this machine has some");
    }
}
