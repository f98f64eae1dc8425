//! Finds the processes of one life of a job on this node, and stops, continues or ends them.
//!
//! A process is signalled by its pidfd, opened before it was seen to be the job's for the second time: a number that was
//! used again in between is nobody's to kill.

use energy::{JobCpu, Processes, StepCpu};
use protocol::Incarnation;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// An environment longer than this is searched only so far, bytes.
const ENVIRON_LIMIT: u64 = 2 << 20;

/// Set by the wrapper for all that it starts.
const MARK: &[u8] = b"JOULEPOINT_RUN=";

/// Which life a step's processes are of, and whether a wrapper of ours started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    /// SLURM_RESTART_COUNT; none where no environment tells it.
    restart_count: Option<u32>,
    is_protected: bool,
}

/// Slurm's names of steps that are scripts.
const SCRIPTS: [&str; 2] = ["batch", "interactive"];

/// The lives of the jobs on this node.
#[derive(Debug)]
pub struct Lives {
    proc_root: PathBuf,
    /// By step process and its start: what was found once is found for good.
    known: BTreeMap<(i32, u64), Life>,
    /// What was stopped by us, by number and start.
    stopped: BTreeMap<Incarnation, BTreeSet<(i32, u64)>>,
    /// The slurmstepds of scripts that were stopped by us, likewise.
    stepds: BTreeMap<Incarnation, BTreeSet<(i32, u64)>>,
    /// Whose processes are in no protected job: root's.
    never: u32,
}

impl Lives {
    /// The lives on a node whose processes are under `proc_root`.
    pub fn new(proc_root: PathBuf) -> Lives {
        Lives { proc_root, known: BTreeMap::new(), stopped: BTreeMap::new(), stepds: BTreeMap::new(), never: 0 }
    }

    /// Protected jobs that have processes here.
    pub fn protected(&mut self, processes: &Processes) -> BTreeSet<Incarnation> {
        let all = |job: &JobCpu| job.steps.iter().map(|s| (s.stepd_pid, s.stepd_start_ticks)).collect::<Vec<_>>();
        let here: BTreeSet<(i32, u64)> = processes.jobs.iter().flat_map(all).collect();
        self.known.retain(|step, _| here.contains(step));
        let mut found = BTreeSet::new();
        for job in &processes.jobs {
            for step in &job.steps {
                let life = self.life(job.job_id, step);
                if let (true, Some(restart_count)) = (life.is_protected, life.restart_count) {
                    found.insert(Incarnation { job: job.job_id, restart_count });
                }
            }
        }
        found
    }

    /// Which life a step is of, as the first of its processes tells that has the job's variables.
    fn life(&mut self, job: u32, step: &StepCpu) -> Life {
        let key = (step.stepd_pid, step.stepd_start_ticks);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let mut life = Life { restart_count: None, is_protected: false };
        let wanted = format!("SLURM_JOB_ID={job}");
        for pid in &step.pids {
            let environ = self.environ(*pid);
            let has = |entry: &[u8]| environ.split(|b| *b == 0).any(|e| e == entry);
            if !has(wanted.as_bytes()) {
                continue;
            }
            let count = environ.split(|b| *b == 0).find_map(|e| e.strip_prefix(b"SLURM_RESTART_COUNT="));
            let count = count.and_then(|c| std::str::from_utf8(c).ok()?.parse().ok());
            life.restart_count = life.restart_count.or(Some(count.unwrap_or(0)));
            life.is_protected |= environ.split(|b| *b == 0).any(|e| e.starts_with(MARK));
        }
        if life.is_protected {
            self.known.insert(key, life);
        }
        life
    }

    fn environ(&self, pid: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let path = self.proc_root.join(pid.to_string()).join("environ");
        let read = std::fs::File::open(path).and_then(|f| f.take(ENVIRON_LIMIT).read_to_end(&mut bytes));
        if read.is_ok() { bytes } else { Vec::new() }
    }

    /// Processes of a job's lives up to one; those of steps that do not tell their life only if `unknown` ones count.
    pub fn pids(&mut self, processes: &Processes, of: Incarnation, unknown: bool) -> Vec<i32> {
        let Some(job) = processes.jobs.iter().find(|j| j.job_id == of.job) else { return Vec::new() };
        // Slurm's own step of a job is of no life, and has nothing of the run.
        let is_its = |life: Life, step: &StepCpu| {
            life.restart_count.map_or(unknown && step.name != "extern", |count| count <= of.restart_count)
        };
        let steps: Vec<&StepCpu> = job.steps.iter().filter(|s| is_its(self.life(of.job, s), s)).collect();
        let mut pids: Vec<i32> = steps.into_iter().flat_map(|s| &s.pids).copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Protected processes of a job's lives up to one that have left the trees of its steps, because what was above them
    /// was killed. Whoever lies in an environment can only have processes of their own stopped; none of root's is.
    pub fn strays(&self, processes: &Processes, of: Incarnation) -> Vec<i32> {
        let in_steps: BTreeSet<i32> = processes
            .jobs
            .iter()
            .flat_map(|job| job.steps.iter().flat_map(|s| s.pids.iter().copied().chain([s.stepd_pid])))
            .collect();
        let all = std::fs::read_dir(&self.proc_root).into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_stray = |pid: &i32| !in_steps.contains(pid) && self.is_not_roots(*pid) && self.is_marked(*pid, of);
        pids.filter(is_stray).collect()
    }

    fn is_not_roots(&self, pid: i32) -> bool {
        use std::os::unix::fs::MetadataExt;
        let owner = std::fs::metadata(self.proc_root.join(pid.to_string())).map(|m| m.uid());
        owner.is_ok_and(|uid| uid != self.never)
    }

    fn is_marked(&self, pid: i32, of: Incarnation) -> bool {
        let environ = self.environ(pid);
        let job = format!("SLURM_JOB_ID={}", of.job);
        let entries = || environ.split(|b| *b == 0);
        let count = entries().find_map(|e| e.strip_prefix(b"SLURM_RESTART_COUNT="));
        let count = count.and_then(|c| std::str::from_utf8(c).ok()?.parse::<u32>().ok()).unwrap_or(0);
        entries().any(|e| e == job.as_bytes()) && entries().any(|e| e.starts_with(MARK)) && count <= of.restart_count
    }

    /// Stops processes of a life and remembers them; how many were running.
    pub fn stop(&mut self, of: Incarnation, pids: &[i32], again: impl FnOnce() -> Vec<i32>) -> usize {
        let running: Vec<i32> = pids.iter().copied().filter(|pid| self.runs(*pid)).collect();
        let mut stopped = 0;
        for (pid, fd) in sure(&running, again) {
            if let Some(start) = start_ticks(&self.proc_root, pid)
                && pidfd_send_signal(&fd, Signal::STOP).is_ok()
            {
                stopped += 1;
                self.stopped.entry(of).or_default().insert((pid, start));
            }
        }
        stopped
    }

    /// Stops the slurmstepds of a life's scripts. slurmd may hear before this service that the job has gone elsewhere: it
    /// would end the script with SIGTERM and SIGCONT, and an `srun` that is asked to end in this way ends its step by a number
    /// that the job's new life has, too.
    pub fn stop_stepds(&mut self, processes: &Processes, of: Incarnation) {
        for (pid, start) in self.stepds_of(processes, of) {
            if self.send(pid, start, Signal::STOP) {
                self.stepds.entry(of).or_default().insert((pid, start));
            }
        }
    }

    fn stepds_of(&mut self, processes: &Processes, of: Incarnation) -> Vec<(i32, u64)> {
        let Some(job) = processes.jobs.iter().find(|j| j.job_id == of.job) else { return Vec::new() };
        let scripts = job.steps.iter().filter(|s| SCRIPTS.contains(&s.name.as_str()));
        let is_its =
            |life: Life| life.is_protected && life.restart_count.is_some_and(|count| count <= of.restart_count);
        scripts.filter(|s| is_its(self.life(of.job, s))).map(|s| (s.stepd_pid, s.stepd_start_ticks)).collect()
    }

    /// Lets those go on that were stopped by us: by an earlier life of this service, if this one knows of none.
    pub fn go_on(&mut self, processes: &Processes, of: Incarnation) -> usize {
        let stopped = match self.stopped.remove(&of) {
            Some(stopped) => stopped,
            None => {
                let all = self.pids(processes, of, false);
                all.into_iter().filter_map(|pid| Some((pid, start_ticks(&self.proc_root, pid)?))).collect()
            }
        };
        self.let_stepds_go_on(processes, of);
        stopped.into_iter().filter(|(pid, start)| !self.runs(*pid) && self.send(*pid, *start, Signal::CONT)).count()
    }

    /// Lets the slurmstepds of a job's lives up to one go on, whichever life of this service has stopped them.
    pub fn let_stepds_go_on(&mut self, processes: &Processes, of: Incarnation) {
        let here = self.stepds_of(processes, of);
        let is_other = |life: &Incarnation| life.job != of.job || life.restart_count > of.restart_count;
        let held: Vec<(i32, u64)> =
            self.stepds.iter().filter(|(life, _)| !is_other(life)).flat_map(|(_, s)| s).copied().collect();
        self.stepds.retain(|life, _| is_other(life));
        for (pid, start) in held.into_iter().chain(here) {
            self.send(pid, start, Signal::CONT);
        }
    }

    /// Signals a process if it is still the one that began then.
    fn send(&self, pid: i32, start: u64, signal: Signal) -> bool {
        let Some(fd) = open(pid) else { return false };
        start_ticks(&self.proc_root, pid) == Some(start) && pidfd_send_signal(&fd, signal).is_ok()
    }

    /// Ends processes; how many there were.
    pub fn end(&mut self, of: Incarnation, pids: &[i32], again: impl FnOnce() -> Vec<i32>) -> usize {
        let all = sure(pids, again);
        for (_, fd) in &all {
            // One that has ended meanwhile is no error.
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
        self.stopped.retain(|stopped, _| stopped.job != of.job || stopped.restart_count > of.restart_count);
        all.len()
    }

    fn runs(&self, pid: i32) -> bool {
        state(&self.proc_root, pid).is_some_and(|s| !matches!(s, b'T' | b't' | b'Z' | b'X'))
    }
}

/// Those of `pids` that are found once more after their pidfds were opened.
fn sure(pids: &[i32], again: impl FnOnce() -> Vec<i32>) -> Vec<(i32, OwnedFd)> {
    let opened: Vec<(i32, OwnedFd)> = pids.iter().filter_map(|pid| Some((*pid, open(*pid)?))).collect();
    if opened.is_empty() {
        return opened;
    }
    let again = again();
    opened.into_iter().filter(|(pid, _)| again.contains(pid)).collect()
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// The fields of a process behind its name.
fn stat(proc_root: &Path, pid: i32) -> Option<String> {
    let text = std::fs::read(proc_root.join(pid.to_string()).join("stat")).ok()?;
    let close = text.iter().rposition(|b| *b == b')')?;
    String::from_utf8(text[close + 1..].to_vec()).ok()
}

fn state(proc_root: &Path, pid: i32) -> Option<u8> {
    stat(proc_root, pid)?.split_ascii_whitespace().next()?.bytes().next()
}

fn start_ticks(proc_root: &Path, pid: i32) -> Option<u64> {
    stat(proc_root, pid)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process with these variables, which sleeps.
    fn sleeper(variables: &[(&str, &str)]) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").env_clear().envs(variables.iter().copied()).stdin(Stdio::null());
        command.spawn().expect("sleep runs")
    }

    /// Job 7 with one step of these processes for each life.
    fn processes(steps: &[&[&Child]]) -> Processes {
        let step = |(n, pids): (usize, &&[&Child])| StepCpu {
            name: n.to_string(),
            stepd_pid: 1_000_000 + n as i32,
            stepd_start_ticks: n as u64,
            cpu_s: 0.0,
            pids: pids.iter().map(|c| c.id() as i32).collect(),
        };
        let steps: Vec<StepCpu> = steps.iter().enumerate().map(step).collect();
        let pids = steps.iter().flat_map(|s| s.pids.clone()).collect();
        Processes { jobs: vec![JobCpu { job_id: 7, cpu_s: 0.0, steps, pids }], ..Processes::default() }
    }

    fn of(restart_count: u32) -> Incarnation {
        Incarnation { job: 7, restart_count }
    }

    fn state_of(child: &Child) -> Option<u8> {
        state(Path::new("/proc"), child.id() as i32)
    }

    /// Waits until a process is in a state; signals arrive a moment later.
    fn wait_for(child: &Child, wanted: u8) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while state_of(child) != Some(wanted) {
            assert!(std::time::Instant::now() < end, "{:?} for ever", state_of(child));
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_slurmstepd_of_a_script_stands_still_with_it_and_that_of_another_step_does_not() {
        let own = [("SLURM_JOB_ID", "7"), ("JOULEPOINT_RUN", "c/7.1")];
        let (script, task, mut stepds) = (sleeper(&own), sleeper(&own), [sleeper(&[]), sleeper(&[])]);
        let mut all = processes(&[&[&script], &[&task]]);
        for ((step, name), stepd) in all.jobs[0].steps.iter_mut().zip(["batch", "0"]).zip(&stepds) {
            step.name = name.to_string();
            step.stepd_pid = stepd.id() as i32;
            step.stepd_start_ticks = start_ticks(Path::new("/proc"), step.stepd_pid).unwrap();
        }
        let is_stopped = |child: &Child| {
            let pid = child.id() as i32;
            (0..100).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                state(Path::new("/proc"), pid) == Some(b'T')
            })
        };
        let mut lives = Lives { never: u32::MAX, ..Lives::new("/proc".into()) };
        lives.stop_stepds(&all, of(0));
        assert!(is_stopped(&stepds[0]) && !is_stopped(&stepds[1]));
        // Another life of the service knows them as well.
        let mut lives = Lives { never: u32::MAX, ..Lives::new("/proc".into()) };
        lives.let_stepds_go_on(&all, of(0));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_stopped(&stepds[0]));
        for child in stepds.iter_mut().chain(&mut [script, task]) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_has_left_its_step_is_still_its_lifes_and_nobody_elses() {
        let (job, mark) = (("SLURM_JOB_ID", "7"), ("JOULEPOINT_RUN", "c/7.1"));
        let mut all = [
            sleeper(&[job, mark]),
            sleeper(&[job, mark, ("SLURM_RESTART_COUNT", "1")]),
            sleeper(&[job]),
            sleeper(&[("SLURM_JOB_ID", "77"), mark]),
            sleeper(&[job, mark]),
        ];
        // The last is in a step. Tests run as anybody.
        let processes = processes(&[&[&all[4]]]);
        let lives = Lives { never: u32::MAX, ..Lives::new("/proc".into()) };
        let mine: BTreeSet<i32> = all.iter().map(|c| c.id() as i32).collect();
        let strays = |n| lives.strays(&processes, of(n)).into_iter().filter(|p| mine.contains(p)).collect::<Vec<_>>();
        let pid = |n: usize| all[n].id() as i32;
        // A process has its environment only when it has become what it is to be.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while strays(1).len() < 2 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        let mut both = vec![pid(0), pid(1)];
        both.sort_unstable();
        let found = |n| {
            let mut found = strays(n);
            found.sort_unstable();
            found
        };
        assert_eq!((found(0), found(1)), (vec![pid(0)], both));
        let root = Lives { never: owner_of_tests(), ..Lives::new("/proc".into()) };
        assert!(root.strays(&processes, of(1)).iter().all(|p| !mine.contains(p)), "of a user who is never meant");
        for child in &mut all {
            child.kill().expect("killed");
            child.wait().expect("reaped");
        }
    }

    fn owner_of_tests() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").expect("procfs").uid()
    }

    #[test]
    fn lives_are_told_apart_by_what_their_processes_were_given() {
        let job = ("SLURM_JOB_ID", "7");
        let mut all = [
            sleeper(&[job, ("JOULEPOINT_RUN", "c/7.1")]),
            sleeper(&[job, ("SLURM_RESTART_COUNT", "1"), ("JOULEPOINT_RUN", "c/7.1")]),
            sleeper(&[]),
        ];
        let found = processes(&[&[&all[0]], &[&all[1]], &[&all[2]]]);
        let pid = |n: usize| all[n].id() as i32;
        let mut lives = Lives::new("/proc".into());
        assert_eq!(lives.protected(&found), BTreeSet::from([of(0), of(1)]));
        assert_eq!(lives.pids(&found, of(0), false), [pid(0)]);
        assert_eq!(lives.pids(&found, of(0), true), BTreeSet::from([pid(0), pid(2)]).into_iter().collect::<Vec<_>>());
        assert_eq!(lives.pids(&found, of(1), false).len(), 2, "and all before");
        assert!(lives.pids(&Processes::default(), of(1), true).is_empty());
        for child in &mut all {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
    }

    #[test]
    fn what_is_stopped_goes_on_and_what_its_user_had_stopped_stays_so() {
        let mut all = [sleeper(&[]), sleeper(&[])];
        let pids: Vec<i32> = all.iter().map(|c| c.id() as i32).collect();
        let by_user = open(pids[1]).unwrap();
        pidfd_send_signal(&by_user, Signal::STOP).unwrap();
        wait_for(&all[1], b'T');
        let mut lives = Lives::new("/proc".into());
        assert_eq!(lives.stop(of(0), &pids, || pids.clone()), 1);
        wait_for(&all[0], b'T');
        assert_eq!(lives.stop(of(0), &pids, || pids.clone()), 0, "it is stopped");
        assert_eq!(lives.go_on(&Processes::default(), of(0)), 1);
        wait_for(&all[0], b'S');
        assert_eq!(state_of(&all[1]), Some(b'T'));
        assert_eq!(lives.end(of(0), &pids, || vec![pids[0]]), 1, "the other is no longer the job's");
        all[0].wait().unwrap();
        assert_eq!(state_of(&all[1]), Some(b'T'));
        all[1].kill().and_then(|()| all[1].wait()).unwrap();
    }
}
