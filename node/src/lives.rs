//! Finds the processes of one life of a job on this node, and stops, continues or ends them.
//!
//! A process is signalled by its pidfd, opened before it was seen to be the job's for the second time: a number that was
//! used again in between is nobody's to kill.

use energy::{Environ, JobCpu, Processes, StepCpu};
use protocol::Incarnation;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Set by the wrapper for all that it starts: `CLUSTER/JOB.BEGUN`. A script hands it on to the jobs that it submits.
const MARK: &[u8] = b"JOULEPOINT_RUN=";

/// Which life a step's processes are of, and whether a wrapper of ours started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    /// SLURM_RESTART_COUNT; none where no environment tells it.
    restart_count: Option<u32>,
    is_protected: bool,
}

impl Life {
    /// Whether a wrapper of ours started it, and it is known to be this life or one before.
    fn is_protected_up_to(self, of: Incarnation) -> bool {
        self.is_protected && self.restart_count.is_some_and(|n| n <= of.restart_count)
    }
}

/// Most jobs whose owner is remembered.
const MOST_OWNERS: usize = 10_000;

/// How long a slurmstepd may take to end after its last task.
const BARE: Duration = Duration::from_secs(1);

/// The lives of the jobs on this node.
#[derive(Debug)]
pub struct Lives {
    proc_root: PathBuf,
    /// By step process and its start: what was found once is found for good.
    known: BTreeMap<(i32, u64), Life>,
    /// The owners of protected jobs that were seen here.
    owners: BTreeMap<u32, u32>,
    /// What was stopped by us, by number and start.
    stopped: BTreeMap<Incarnation, BTreeSet<(i32, u64)>>,
    /// slurmstepds of lives to be ended that have no task any more, and since when.
    bare: BTreeMap<(i32, u64), Instant>,
    /// Lives that an earlier life of this service had stopped: nobody knows which of their processes.
    inherited: BTreeSet<Incarnation>,
}

impl Lives {
    /// The lives on a node whose processes are under `proc_root`, and which of them were stopped before.
    pub fn new(proc_root: PathBuf, stopped: BTreeSet<Incarnation>) -> Lives {
        Lives {
            proc_root,
            known: BTreeMap::new(),
            owners: BTreeMap::new(),
            stopped: BTreeMap::new(),
            bare: BTreeMap::new(),
            inherited: stopped,
        }
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
        let told = |pid: i32| Lives::told(&self.environ(pid).told()?, job);
        for (restart_count, is_protected) in step.pids.iter().filter_map(|pid| told(*pid)) {
            life.restart_count = life.restart_count.or(Some(restart_count));
            life.is_protected |= is_protected;
        }
        if life.is_protected {
            self.known.insert(key, life);
            self.owners.extend(step.pids.iter().find_map(|pid| self.owner(*pid)).map(|uid| (job, uid)));
            if self.owners.len() > MOST_OWNERS {
                self.owners.pop_first();
            }
        }
        life
    }

    fn environ(&self, pid: i32) -> Environ {
        energy::environ(&self.proc_root.join(pid.to_string()))
    }

    /// The restart count in a process's environment, and whether a wrapper of ours started it; none if it is not the job's.
    fn told(environ: &[u8], job: u32) -> Option<(u32, bool)> {
        let wanted = format!("SLURM_JOB_ID={job}");
        let entries = || environ.split(|b| *b == 0);
        entries().find(|entry| *entry == wanted.as_bytes())?;
        let count = entries().find_map(|entry| entry.strip_prefix(b"SLURM_RESTART_COUNT="));
        let count = count.and_then(|c| std::str::from_utf8(c).ok()?.parse().ok()).unwrap_or(0);
        let of_job = format!("{job}.");
        let is_mark = |entry: &[u8]| {
            let run = entry.strip_prefix(MARK).and_then(|run| run.rsplit(|b| *b == b'/').next());
            run.is_some_and(|run| run.starts_with(of_job.as_bytes()))
        };
        Some((count, entries().any(is_mark)))
    }

    /// Processes of a job's lives up to one; those of steps that do not tell their life only if `unknown` ones count.
    pub fn pids(&mut self, processes: &Processes, of: Incarnation, unknown: bool) -> Vec<i32> {
        let Some(job) = processes.jobs.iter().find(|j| j.job_id == of.job) else { return Vec::new() };
        // Slurm's own step of a job is of no life, and has nothing of the run.
        let is_its = |life: Life, step: &StepCpu| {
            life.restart_count.map_or(unknown && !step.is_extern(), |count| count <= of.restart_count)
        };
        let steps: Vec<&StepCpu> = job.steps.iter().filter(|s| is_its(self.life(of.job, s), s)).collect();
        let mut pids: Vec<i32> = steps.into_iter().flat_map(|s| &s.pids).copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Protected processes of a job's lives up to one that have left the trees of its steps, because what was above them
    /// was killed. Whoever lies in an environment can only have processes of their own stopped: `whose` says who may be meant.
    pub fn strays(&self, processes: &Processes, of: Incarnation, whose: impl Fn(u32) -> bool) -> Vec<i32> {
        let is_its = |(restart_count, is_protected)| is_protected && restart_count <= of.restart_count;
        let tells = |pid: &i32| Lives::told(&self.environ(*pid).told()?, of.job);
        let outside = self.outside(processes, whose);
        outside.into_iter().filter(|pid| tells(pid).is_some_and(is_its)).collect()
    }

    /// How many processes of a job's owner outside of all steps do not tell whose they are, as long as a storage on which they
    /// wait hangs: meanwhile it cannot be said that nothing of the job is left.
    pub fn silent(&self, processes: &Processes, job: u32, whose: impl Fn(u32) -> bool) -> usize {
        let owner = self.owners.get(&job);
        let outside = self.outside(processes, |uid| whose(uid) && owner.is_none_or(|owner| *owner == uid));
        outside.into_iter().filter(|pid| self.environ(*pid) == Environ::Silent).count()
    }

    /// The processes outside of all steps.
    fn outside(&self, processes: &Processes, whose: impl Fn(u32) -> bool) -> Vec<i32> {
        let in_steps: BTreeSet<i32> = processes
            .jobs
            .iter()
            .flat_map(|job| job.steps.iter().flat_map(|s| s.pids.iter().copied().chain([s.stepd_pid])))
            .collect();
        let all = std::fs::read_dir(&self.proc_root).into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| !in_steps.contains(pid) && self.owner(*pid).is_some_and(&whose)).collect()
    }

    fn owner(&self, pid: i32) -> Option<u32> {
        std::fs::metadata(self.proc_root.join(pid.to_string())).ok().map(|m| m.uid())
    }

    /// Stops processes of a life and remembers them; how many were running.
    pub fn stop(&mut self, of: Incarnation, pids: &[i32], again: impl FnOnce(&mut Lives) -> Vec<i32>) -> usize {
        let running: Vec<i32> = pids.iter().copied().filter(|pid| self.runs(*pid)).collect();
        let mut stopped = 0;
        for (pid, fd) in self.sure(&running, again) {
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
        for (pid, start) in
            self.stepds_of(processes, of.job, |step, life| step.is_script() && life.is_protected_up_to(of))
        {
            self.send(pid, start, Signal::STOP);
        }
    }

    /// Lets the slurmstepds of a job's lives up to one go on, whichever life of this service has stopped them; those, too,
    /// whose life nobody can tell any more.
    pub fn let_stepds_go_on(&mut self, processes: &Processes, of: Incarnation) {
        let is_its = |life: Life| life.restart_count.is_none_or(|n| n <= of.restart_count);
        for (pid, start) in self.stepds_of(processes, of.job, |step, life| step.is_script() && is_its(life)) {
            self.send(pid, start, Signal::CONT);
        }
    }

    fn stepds_of(
        &mut self,
        processes: &Processes,
        job: u32,
        is_meant: impl Fn(&StepCpu, Life) -> bool,
    ) -> Vec<(i32, u64)> {
        let of = processes.jobs.iter().find(|j| j.job_id == job);
        let steps = of.into_iter().flat_map(|j| &j.steps);
        let meant = steps.filter(|s| is_meant(s, self.life(job, s)));
        meant.map(|s| (s.stepd_pid, s.stepd_start_ticks)).collect()
    }

    /// Lets those go on that were stopped by us; all of a life that was stopped by an earlier life of this service.
    /// What `left` finds has left the trees of its steps.
    pub fn go_on(&mut self, processes: &Processes, of: Incarnation, left: impl FnOnce(&[i32]) -> Vec<i32>) -> usize {
        let mut stopped = self.stopped.remove(&of).unwrap_or_default();
        if self.inherited.remove(&of) {
            let mut all = self.pids(processes, of, true);
            all.extend(self.strays(processes, of, |uid| uid != 0));
            all.extend(left(&all));
            stopped.extend(all.into_iter().filter_map(|pid| Some((pid, start_ticks(&self.proc_root, pid)?))));
        }
        self.let_stepds_go_on(processes, of);
        // Also those that still seem to run: what was sent a moment ago may not have stopped them yet.
        stopped.into_iter().filter(|(pid, start)| self.send(*pid, *start, Signal::CONT)).count()
    }

    /// Signals a process if it is still the one that began then.
    fn send(&self, pid: i32, start: u64, signal: Signal) -> bool {
        let Some(fd) = open(pid) else { return false };
        start_ticks(&self.proc_root, pid) == Some(start) && pidfd_send_signal(&fd, signal).is_ok()
    }

    /// Ends processes; how many there were.
    pub fn end(&mut self, of: Incarnation, pids: &[i32], again: impl FnOnce(&mut Lives) -> Vec<i32>) -> usize {
        let all = self.sure(pids, again);
        for (_, fd) in &all {
            // One that has ended meanwhile is no error.
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
        self.stopped.retain(|stopped, _| stopped.job != of.job || stopped.restart_count > of.restart_count);
        all.len()
    }

    /// Ends the slurmstepds of a life's steps that have had no task for a while: they only tell an `srun` that is gone so. How
    /// many there were.
    pub fn end_bare_stepds(&mut self, processes: &Processes, of: Incarnation) -> usize {
        let is_bare = |step: &StepCpu| step.pids.is_empty() && step.name.bytes().all(|b| b.is_ascii_digit());
        let bare = self.stepds_of(processes, of.job, |step, life| is_bare(step) && life.is_protected_up_to(of));
        let now = Instant::now();
        self.bare.retain(|_, since| now.duration_since(*since) < 10 * BARE);
        let due = bare.into_iter().filter(|stepd| now.duration_since(*self.bare.entry(*stepd).or_insert(now)) >= BARE);
        let due: Vec<(i32, u64)> = due.collect();
        due.into_iter().filter(|(pid, start)| self.send(*pid, *start, Signal::KILL)).count()
    }

    fn runs(&self, pid: i32) -> bool {
        state(&self.proc_root, pid).is_some_and(|s| !matches!(s, b'T' | b't' | b'Z' | b'X'))
    }

    /// Those of `pids` that are found once more after their pidfds were opened.
    fn sure(&mut self, pids: &[i32], again: impl FnOnce(&mut Lives) -> Vec<i32>) -> Vec<(i32, OwnedFd)> {
        let opened: Vec<(i32, OwnedFd)> = pids.iter().filter_map(|pid| Some((*pid, open(*pid)?))).collect();
        if opened.is_empty() {
            return opened;
        }
        let again = again(self);
        opened.into_iter().filter(|(pid, _)| again.contains(pid)).collect()
    }
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

    fn lives() -> Lives {
        Lives::new("/proc".into(), BTreeSet::new())
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
    fn what_was_stopped_a_moment_ago_goes_on() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = busy.id() as i32;
        let start = start_ticks(Path::new("/proc"), pid).unwrap();
        let mut lives = lives();
        for _ in 0..200 {
            lives.stopped.entry(of(0)).or_default().insert((pid, start));
            lives.send(pid, start, Signal::STOP);
            lives.go_on(&processes(&[]), of(0), |_| Vec::new());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        let found = state_of(&busy);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert_ne!(found, Some(b'T'));
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
        let mut lives = lives();
        lives.stop_stepds(&all, of(0));
        assert!(is_stopped(&stepds[0]) && !is_stopped(&stepds[1]));
        // Another life of the service knows them as well.
        self::lives().let_stepds_go_on(&all, of(0));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_stopped(&stepds[0]));
        for child in stepds.iter_mut().chain(&mut [script, task]) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_slurmstepd_without_tasks_is_ended_after_a_moment_if_its_life_was_known() {
        let own = [("SLURM_JOB_ID", "7"), ("JOULEPOINT_RUN", "c/7.1")];
        let (mut tasks, mut stepds) = ([sleeper(&own), sleeper(&own)], [sleeper(&[]), sleeper(&[]), sleeper(&[])]);
        let mut all = processes(&[&[&tasks[0]], &[&tasks[1]], &[]]);
        for ((step, name), stepd) in all.jobs[0].steps.iter_mut().zip(["0", "batch", "1"]).zip(&stepds) {
            step.name = name.to_string();
            step.stepd_pid = stepd.id() as i32;
            step.stepd_start_ticks = start_ticks(Path::new("/proc"), step.stepd_pid).unwrap();
        }
        let mut lives = lives();
        let end = Instant::now() + 30 * BARE;
        while lives.protected(&all).is_empty() && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(lives.end_bare_stepds(&all, of(0)), 0);
        all.jobs[0].steps.iter_mut().for_each(|step| step.pids.clear());
        assert_eq!(lives.end_bare_stepds(&all, of(0)), 0, "it may still tell its srun");
        std::thread::sleep(BARE + Duration::from_millis(100));
        assert_eq!(
            lives.end_bare_stepds(&all, of(0)),
            1,
            "the script's has more to do, and nobody knows whose step 1 was"
        );
        assert!(!stepds[0].wait().unwrap().success());
        for child in tasks.iter_mut().chain(&mut stepds[1..]) {
            child.kill().and_then(|()| child.wait()).unwrap();
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
        let lives = lives();
        let mine: BTreeSet<i32> = all.iter().map(|c| c.id() as i32).collect();
        let strays =
            |n| lives.strays(&processes, of(n), |_| true).into_iter().filter(|p| mine.contains(p)).collect::<Vec<_>>();
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
        let mine_alone = owner_of_tests();
        assert!(
            lives.strays(&processes, of(1), |uid| uid != mine_alone).iter().all(|p| !mine.contains(p)),
            "of a user who is never meant"
        );
        for child in &mut all {
            child.kill().expect("killed");
            child.wait().expect("reaped");
        }
    }

    fn owner_of_tests() -> u32 {
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
        let mut lives = lives();
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
        let mut lives = lives();
        assert_eq!(lives.stop(of(0), &pids, |_| pids.clone()), 1);
        wait_for(&all[0], b'T');
        assert_eq!(lives.stop(of(0), &pids, |_| pids.clone()), 0, "it is stopped");
        assert_eq!(lives.go_on(&Processes::default(), of(0), |_| Vec::new()), 1);
        wait_for(&all[0], b'S');
        assert_eq!(state_of(&all[1]), Some(b'T'));
        assert_eq!(lives.end(of(0), &pids, |_| vec![pids[0]]), 1, "the other is no longer the job's");
        all[0].wait().unwrap();
        assert_eq!(state_of(&all[1]), Some(b'T'));
        all[1].kill().and_then(|()| all[1].wait()).unwrap();
    }

    /// A named pipe keeps its reader waiting, as a storage that hangs does.
    #[test]
    fn nothing_is_left_only_where_all_have_told_whose_they_are() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("900");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("environ");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut lives = Lives::new(root.path().into(), BTreeSet::new());
        let (processes, mine) = (Processes::default(), std::fs::metadata(&folder).unwrap().uid());
        assert_eq!((lives.silent(&processes, 7, |_| true), lives.silent(&processes, 7, |uid| uid != mine)), (1, 0));
        lives.owners.insert(7, mine + 1);
        assert_eq!(lives.silent(&processes, 7, |_| true), 0, "it is somebody else's");
        lives.owners.insert(7, mine);
        assert_eq!(lives.silent(&processes, 7, |_| true), 1);
        assert!(lives.strays(&processes, of(0), |_| true).is_empty());
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&path));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "SLURM_JOB_ID=8\0").unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while lives.silent(&processes, 7, |_| true) > 0 {
            assert!(std::time::Instant::now() < end, "it has told");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_job_that_a_protected_script_has_submitted_is_none_of_ours() {
        let told = |environ: &str| Lives::told(environ.as_bytes(), 8);
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/8.1\0"), Some((0, true)));
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/7.1\0"), Some((0, false)));
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/81.1\0"), Some((0, false)));
        assert_eq!(told("SLURM_JOB_ID=7\0JOULEPOINT_RUN=c/7.1\0"), None);
    }
}
