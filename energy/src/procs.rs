//! Finds the jobs on this node and their CPU time in one pass over the process tree.
//!
//! A step is a `slurmstepd` whose title names it (`slurmstepd: [123.batch]`), that runs as the owner of the
//! process tree (so a user cannot pretend to be another job's step), and that no other step started. All that
//! descends from it is the step's. Where Slurm keeps the step in a cgroup, that knows its CPU time better.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::cgroups::Cgroups;
use crate::process::{Process, Title, real_uid, title};
use crate::scanner::Scanner;

/// What one pass over the process tree found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processes {
    /// The jobs, by rising number.
    pub jobs: Vec<JobCpu>,
    /// CPU seconds used by everybody; it may dip when a process ends unseen.
    pub node_cpu_s: f64,
    /// Whether a slurmd runs here: this node's, or another's on a shared host.
    pub slurmd_up: bool,
    /// Processes read, without the kernel's threads.
    pub count: usize,
    /// Titles of step processes that no job number could be read from.
    pub unrecognised: Vec<String>,
}

/// One job on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCpu {
    /// Slurm's number of the job.
    pub job_id: u32,
    /// CPU seconds of all steps that are here now, children that have ended included.
    pub cpu_s: f64,
    /// The steps.
    pub steps: Vec<StepCpu>,
    /// Every process below the job's step processes, those not included.
    pub pids: Vec<i32>,
}

/// One step on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCpu {
    /// As in the title: `batch`, `extern`, `interactive`, `0`, `0+1`, ...
    pub name: String,
    /// The step process.
    pub stepd_pid: i32,
    /// When the step process began, in clock ticks after boot: with the pid, its identity.
    pub stepd_start_ticks: u64,
    /// CPU seconds, children that have ended included.
    pub cpu_s: f64,
    /// Every process below the step process, that not included.
    pub pids: Vec<i32>,
}

impl StepCpu {
    /// Whether it is a script, or a shell in its place.
    pub fn is_script(&self) -> bool {
        ["batch", "interactive"].contains(&self.name.as_str())
    }

    /// Whether it is Slurm's own step of a job, in which nothing of its user runs.
    pub fn is_extern(&self) -> bool {
        self.name == "extern"
    }
}

impl Processes {
    /// The jobs, by rising number.
    pub fn jobs(&self) -> &[JobCpu] {
        &self.jobs
    }

    /// Every process of a job, to fence it; empty if the job is not here.
    pub fn pids_of(&self, job_id: u32) -> &[i32] {
        self.jobs.iter().find(|j| j.job_id == job_id).map_or(&[], |j| &j.pids)
    }
}

/// Clock ticks per second of this kernel's process files.
pub fn tick_hz() -> u32 {
    let hz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    hz.ok().flatten().and_then(|hz| u32::try_from(hz).ok()).filter(|hz| *hz > 0).unwrap_or(100)
}

/// Reads the process tree once.
///
/// # Errors
/// As [`Scanner::scan`].
pub fn scan(proc_root: &Path, tick_hz: u32) -> Result<Processes, Error> {
    Scanner::new(proc_root, tick_hz).scan(0.0)
}

/// The file name of slurmd.
const SLURMD: &str = "slurmd";

/// Most of a process's file that is looked at, bytes: what is looked for stands at its beginning.
const LOOKED_AT: usize = 4096;

/// One read: the kernel makes such a file whole for the first, and would be asked once more for its end.
pub(crate) fn read_into(path: &Path, buffer: &mut Vec<u8>) -> Option<()> {
    buffer.resize(LOOKED_AT, 0);
    let length = std::fs::File::open(path).ok()?.read(buffer).ok()?;
    buffer.truncate(length);
    Some(())
}

/// What the processes come to, of which it notes who stands in a step.
pub(crate) fn gather(proc_root: &Path, owner: u32, tick_hz: f64, processes: &mut [Process]) -> Processes {
    let by_pid: HashMap<i32, usize> = processes.iter().enumerate().map(|(i, p)| (p.pid, i)).collect();
    let slurmd_up = processes.iter().any(|p| p.slurmd && is_slurmd(&proc_root.join(p.pid.to_string()), owner));
    let mut found = Processes { slurmd_up, count: processes.len(), ..Processes::default() };
    let mut steps: HashMap<usize, (u32, String)> = HashMap::new();
    for (index, process) in processes.iter().enumerate().filter(|(_, p)| p.stepd) {
        let file = |name: &str| -> Option<Vec<u8>> {
            let path: PathBuf = proc_root.join(process.pid.to_string()).join(name);
            let mut bytes = Vec::new();
            read_into(&path, &mut bytes).map(|()| bytes)
        };
        if file("status").and_then(|s| real_uid(&s)) != Some(owner) {
            continue;
        }
        match title(&file("cmdline").unwrap_or_default()) {
            Title::Step(job_id, name) => _ = steps.insert(index, (job_id, name)),
            Title::Odd(text) => found.unrecognised.push(text),
            Title::NoStep => {}
        }
    }
    let roots = roots(processes, &by_pid, &steps);
    let mut sums: HashMap<usize, (u64, Vec<i32>)> = HashMap::new();
    for (index, root) in roots.iter().enumerate() {
        let Some(root) = root else { continue };
        processes[index].in_step = true;
        let (ticks, pids) = sums.entry(*root).or_default();
        *ticks += processes[index].reaped_ticks;
        if index != *root {
            *ticks += processes[index].own_ticks;
            pids.push(processes[index].pid);
        }
    }
    for (root, (ticks, pids)) in sums {
        let Some((job_id, name)) = steps.remove(&root) else { continue };
        let cpu_s = ticks as f64 / tick_hz;
        let p = &processes[root];
        let step = StepCpu { name, stepd_pid: p.pid, stepd_start_ticks: p.start_ticks, cpu_s, pids: pids.clone() };
        match found.jobs.iter_mut().find(|j| j.job_id == job_id) {
            Some(job) => {
                job.steps.push(step);
                job.pids.extend(pids);
            }
            None => found.jobs.push(JobCpu { job_id, cpu_s: 0.0, steps: vec![step], pids }),
        }
    }
    let cgroups = (!found.jobs.is_empty()).then(|| Cgroups::of(proc_root));
    for job in &mut found.jobs {
        // The tree misses what left it, the cgroup nothing.
        for step in &mut job.steps {
            let summed_s = cgroups.as_ref().and_then(|c| c.step_cpu_s(proc_root, step));
            step.cpu_s = step.cpu_s.max(summed_s.unwrap_or_default());
        }
        job.steps.sort_by_key(|s| (s.stepd_start_ticks, s.stepd_pid));
        job.pids.sort_unstable();
        job.cpu_s = job.steps.iter().map(|s| s.cpu_s).sum();
    }
    found.jobs.sort_by_key(|j| j.job_id);
    let all: u64 = processes.iter().map(|p| p.own_ticks + p.reaped_ticks).sum();
    found.node_cpu_s = whole_machine_s(proc_root, tick_hz).unwrap_or(all as f64 / tick_hz);
    found
}

/// Whether a process that bears slurmd's name is one: it belongs to the owner of the tree, and runs a program of that
/// name. Anybody can call a program so.
fn is_slurmd(process: &Path, owner: u32) -> bool {
    let mut status = Vec::new();
    if read_into(&process.join("status"), &mut status).and_then(|()| real_uid(&status)) != Some(owner) {
        return false;
    }
    match std::fs::read_link(process.join("exe")) {
        // A package that was upgraded since has taken the file away.
        Ok(program) => {
            let name = program.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let name = name.strip_suffix(" (deleted)").unwrap_or(name);
            // Debian's is `slurmd-wlm`, behind a link.
            name.strip_prefix(SLURMD).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        }
        // Without the right to look, the owner has to do.
        Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// For each process the uppermost step process above it (or itself), if there is one.
fn roots(
    processes: &[Process],
    by_pid: &HashMap<i32, usize>,
    steps: &HashMap<usize, (u32, String)>,
) -> Vec<Option<usize>> {
    let mut known: Vec<Option<Option<usize>>> = vec![None; processes.len()];
    let mut way = Vec::new();
    for start in 0..processes.len() {
        let mut at = start;
        let above = loop {
            if let Some(result) = known[at] {
                break result;
            }
            // A tree that changes while it is read may look like a ring.
            if way.len() > processes.len() {
                break None;
            }
            way.push(at);
            match by_pid.get(&processes[at].ppid) {
                Some(&parent) if parent != at => at = parent,
                _ => break None,
            }
        };
        let mut root = above;
        while let Some(index) = way.pop() {
            root = root.or_else(|| steps.contains_key(&index).then_some(index));
            known[index] = Some(root);
        }
    }
    known.into_iter().map(Option::flatten).collect()
}

/// Whether this tree shows the whole machine, and not one process namespace of it.
pub(crate) fn is_whole(proc_root: &Path) -> bool {
    /// The first process namespace has this number in every kernel.
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link(proc_root.join("self/ns/pid")).is_ok_and(|link| link.as_os_str() == FIRST)
}

/// The kernel's own sum, if there is one for this tree.
fn whole_machine_s(proc_root: &Path, tick_hz: f64) -> Option<f64> {
    if !is_whole(proc_root) {
        return None;
    }
    let text = std::fs::read_to_string(proc_root.join("stat")).ok()?;
    let numbers: Vec<u64> =
        text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    // user nice system (idle iowait) irq softirq
    let busy: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|i| numbers.get(i)).sum();
    Some(busy as f64 / tick_hz)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A process tree in a folder, in the kernel's format.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            Tree(tempfile::tempdir().unwrap())
        }

        fn add(&self, pid: i32, ppid: i32, comm: &str, times: [u64; 4]) {
            let dir = self.0.path().join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let [u, s, cu, cs] = times;
            let stat = format!(
                "{pid} ({comm}) S {ppid} 1 1 0 -1 4194560 1 2 3 4 {u} {s} {cu} {cs} 20 0 1 0 {} 5 6 7\n",
                pid * 10
            );
            fs::write(dir.join("stat"), stat).unwrap();
        }

        fn stepd(&self, pid: i32, ppid: i32, title: &str, times: [u64; 4]) {
            self.add(pid, ppid, "slurmstepd", times);
            let dir = self.0.path().join(pid.to_string());
            fs::write(dir.join("cmdline"), format!("slurmstepd: {title}\0\0\0")).unwrap();
            self.uid(pid, nix::unistd::geteuid().as_raw());
        }

        fn uid(&self, pid: i32, uid: u32) {
            let file = self.0.path().join(pid.to_string()).join("status");
            fs::write(file, format!("Name:\tslurmstepd\nUid:\t{uid}\t0\t0\t0\n")).unwrap();
        }

        fn scan(&self) -> Processes {
            scan(self.0.path(), 100).unwrap()
        }
    }

    #[test]
    fn only_the_owners_process_that_runs_slurmd_is_one() {
        let own = nix::unistd::geteuid().as_raw();
        for (uid, program, is_one) in [
            (own, Some("/usr/sbin/slurmd"), true),
            (own, Some("/usr/sbin/slurmd (deleted)"), true),
            (own, Some("/usr/sbin/slurmd-wlm"), true),
            (own, Some("/usr/sbin/slurmdbd"), false),
            (own + 1, Some("/usr/sbin/slurmd"), false),
            (own, Some("/usr/bin/sleep"), false),
            (own, None, false),
        ] {
            let t = Tree::new();
            t.add(30, 1, "slurmd", [0, 0, 0, 0]);
            t.uid(30, uid);
            if let Some(program) = program {
                std::os::unix::fs::symlink(program, t.0.path().join("30/exe")).unwrap();
            }
            assert_eq!(t.scan().slurmd_up, is_one, "{program:?} of user {uid}");
        }
    }

    #[test]
    fn a_job_is_the_sum_of_its_steps() {
        let t = Tree::new();
        t.add(1, 0, "init", [100, 0, 900, 0]);
        t.stepd(10, 1, "[7.extern]", [50, 50, 1, 0]);
        t.add(11, 10, "sleep", [2, 0, 0, 0]);
        t.stepd(20, 1, "[7.batch]", [50, 50, 300, 100]);
        t.add(21, 20, "bash", [10, 5, 200, 0]);
        t.add(22, 21, "python3", [1000, 0, 0, 0]);
        t.stepd(30, 1, "[8.4+1]", [0, 0, 0, 0]);
        t.add(31, 30, "a.out", [100, 100, 0, 0]);
        let p = t.scan();
        assert_eq!(p.jobs().iter().map(|j| (j.job_id, j.cpu_s)).collect::<Vec<_>>(), [(7, 16.18), (8, 2.0)]);
        assert_eq!(p.pids_of(7), [11, 21, 22]);
        assert_eq!(p.pids_of(9), [0; 0]);
        assert_eq!(p.jobs[0].steps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["extern", "batch"]);
        assert_eq!(p.jobs[1].steps[0].name, "4+1");
        assert_eq!((p.jobs[1].steps[0].stepd_pid, p.jobs[1].steps[0].stepd_start_ticks), (30, 300));
        assert!((p.node_cpu_s - 30.18).abs() < 1e-9, "{}", p.node_cpu_s);
    }

    #[test]
    fn hostile_names_do_not_break_the_fields() {
        let t = Tree::new();
        t.stepd(10, 1, "[7.0]", [0, 0, 0, 0]);
        for (pid, comm) in [(11, "a) S 1 1 1"), (12, "x (y) z"), (13, "two\nlines"), (14, ""), (15, "((((")] {
            t.add(pid, 10, comm, [100, 0, 0, 0]);
        }
        let p = t.scan();
        assert_eq!((p.jobs[0].cpu_s, p.pids_of(7).len()), (5.0, 5));
    }

    #[test]
    fn vanished_and_half_read_processes_are_left_out() {
        let t = Tree::new();
        t.stepd(10, 1, "[7.0]", [0, 0, 0, 0]);
        for pid in 11..15 {
            t.add(pid, 10, "a", [100, 0, 0, 0]);
        }
        fs::remove_file(t.0.path().join("11/stat")).unwrap();
        fs::write(t.0.path().join("12/stat"), "").unwrap();
        fs::write(t.0.path().join("13/stat"), "13 (a) S 10 1 1").unwrap();
        fs::write(t.0.path().join("14/stat"), [b'(', 0xff, b')', 0xff]).unwrap();
        fs::write(t.0.path().join("uptime"), "1 2").unwrap();
        assert_eq!(t.scan().count, 1);
        assert_eq!(t.scan().pids_of(7), [0; 0]);
    }

    #[test]
    fn a_user_cannot_pretend_to_be_a_step() {
        let t = Tree::new();
        // Not started by a step, and not root.
        t.stepd(10, 1, "[7.0]", [0, 0, 500, 0]);
        t.uid(10, 4242);
        // Inside a job: it stays that job's.
        t.stepd(20, 1, "[8.0]", [0, 0, 0, 0]);
        t.stepd(21, 20, "[9.0]", [100, 0, 0, 0]);
        t.add(22, 21, "a", [100, 0, 0, 0]);
        // The right title on another program.
        t.add(30, 1, "bash", [100, 0, 0, 0]);
        fs::write(t.0.path().join("30/cmdline"), "slurmstepd: [6.0]").unwrap();
        let p = t.scan();
        assert_eq!(p.jobs.iter().map(|j| (j.job_id, j.cpu_s)).collect::<Vec<_>>(), [(8, 2.0)]);
        assert_eq!(p.pids_of(8), [21, 22]);
    }

    #[test]
    fn a_ring_of_parents_ends() {
        let t = Tree::new();
        t.add(10, 11, "a", [1, 0, 0, 0]);
        t.add(11, 10, "b", [1, 0, 0, 0]);
        t.add(12, 12, "c", [1, 0, 0, 0]);
        assert_eq!(t.scan().count, 3);
    }

    #[test]
    fn the_real_tree_can_be_read() {
        let p = scan(Path::new("/proc"), tick_hz()).unwrap();
        assert!(p.count > 0 && p.node_cpu_s > 0.0);
        assert!(matches!(scan(Path::new("/nonexistent"), 100), Err(Error::Absent { .. })));
    }

    #[test]
    fn a_cgroup_knows_the_time_of_what_left_the_tree() {
        let t = Tree::new();
        t.stepd(10, 1, "[7.0]", [0, 0, 0, 0]);
        t.add(11, 10, "bash", [100, 0, 0, 0]);
        t.add(12, 1, "daemon", [400, 0, 0, 0]);
        assert_eq!(t.scan().jobs[0].cpu_s, 1.0);
        let user = t.0.path().join("cgroup/system.slice/slurmstepd.scope/s61HM7YG8EBX00/step_0/user");
        fs::create_dir_all(&user).unwrap();
        fs::write(user.join("cpu.stat"), "usage_usec 5500000\n").unwrap();
        fs::write(t.0.path().join("10/cgroup"), "0::/system.slice/slurmstepd.scope/s61HM7YG8EBX00/step_0/slurm\n")
            .unwrap();
        fs::create_dir_all(t.0.path().join("self")).unwrap();
        let mount = format!("70 69 0:38 / {} rw - cgroup2 cgroup2 rw\n", t.0.path().join("cgroup").display());
        fs::write(t.0.path().join("self/mountinfo"), mount).unwrap();
        let p = t.scan();
        assert_eq!((p.jobs[0].cpu_s, p.jobs[0].steps[0].cpu_s, p.pids_of(7)), (5.5, 5.5, &[11][..]));
    }
}
