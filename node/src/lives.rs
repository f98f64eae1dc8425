//! Finds the processes of one life of a job on this node, and stops, continues or ends them.
//!
//! A process is signalled by its pidfd, opened before it was seen to be the job's for the second time: a number that was
//! used again in between is nobody's to kill.

pub(crate) mod strays;

use energy::{JobCpu, Processes, StepCpu};
use protocol::Incarnation;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Set by the wrapper for all that it starts: `CLUSTER/JOB.BEGUN`. A script hands it on to the jobs that it submits.
const MARK: &[u8] = b"JOULEPOINT_RUN=";

/// Which life a step's processes are of, and whether a wrapper of ours started them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Time between two looks at a step of which nothing shows that it is protected: a wrapper may begin its script late.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of a step.
#[derive(Clone, Copy, Debug)]
struct Known {
    life: Life,
    /// When its processes were looked at last, and with which of them the next look begins.
    looked_at: Instant,
    next: usize,
}

/// How much of the environments of processes may still be read: a user has as many and as large ones as they like.
struct Allowance {
    processes: usize,
    bytes: usize,
    until: Instant,
}

impl Allowance {
    /// For one of many jobs.
    fn of_job(until: Instant) -> Allowance {
        Allowance { processes: 32, bytes: 4 << 20, until }
    }

    /// For a job to which something is to be done.
    fn of_request() -> Allowance {
        Allowance { processes: 1024, bytes: 64 << 20, until: Instant::now() + Duration::from_millis(500) }
    }

    fn is_left(&self) -> bool {
        self.processes > 0 && self.bytes > 0 && Instant::now() < self.until
    }

    fn took(&mut self, bytes: usize) {
        self.processes -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// How long a slurmstepd may take to end after its last task.
const BARE: Duration = Duration::from_secs(1);

/// The lives of the jobs on this node.
#[derive(Debug)]
pub struct Lives {
    proc_root: PathBuf,
    /// By step process and its start: one that was found to be protected is so for good.
    known: BTreeMap<(i32, u64), Known>,
    /// The job with which the next look at all begins.
    turn: u32,
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
            turn: 0,
            stopped: BTreeMap::new(),
            bare: BTreeMap::new(),
            inherited: stopped,
        }
    }

    /// Protected jobs that have processes here, after a look at steps that are not known to be protected. It reads little of
    /// each job, and ends after `limit`; the next one goes on from there.
    pub fn protected(&mut self, processes: &Processes, limit: Duration) -> BTreeSet<Incarnation> {
        let here: BTreeSet<(i32, u64)> = processes.jobs.iter().flat_map(|job| job.steps.iter().map(key)).collect();
        self.known.retain(|step, _| here.contains(step));
        let now = Instant::now();
        let (first, rest) = processes.jobs.split_at(processes.jobs.partition_point(|job| job.job_id < self.turn));
        for job in rest.iter().chain(first) {
            if Instant::now() >= now + limit {
                self.turn = job.job_id;
                break;
            }
            self.look_at_job(job, now, now + limit);
        }
        let life = |job: &JobCpu, step: &StepCpu| {
            let Life { restart_count, is_protected } = self.known.get(&key(step))?.life;
            Some(Incarnation { job: job.job_id, restart_count: restart_count.filter(|_| is_protected)? })
        };
        processes.jobs.iter().flat_map(|job| job.steps.iter().filter_map(move |step| life(job, step))).collect()
    }

    /// Looks at the steps of a job whose turn it is, those first that have not been looked at for longest.
    fn look_at_job(&mut self, job: &JobCpu, now: Instant, until: Instant) {
        let known = |step: &StepCpu| self.known.get(&key(step)).copied();
        let is_due = |known: Option<Known>| {
            known.is_none_or(|k| !k.life.is_protected && now.saturating_duration_since(k.looked_at) >= AGAIN)
        };
        let mut due: Vec<&StepCpu> = job.steps.iter().filter(|step| is_due(known(step))).collect();
        due.sort_by_key(|step| known(step).map(|k| k.looked_at));
        let mut left = Allowance::of_job(until);
        for step in due {
            self.look_at_step(job.job_id, step, &mut left);
        }
    }

    /// Which life a step is of, as the first of its processes tells that has the job's variables, or one that a wrapper of
    /// ours started; as far as they may be read.
    fn look_at_step(&mut self, job: u32, step: &StepCpu, left: &mut Allowance) -> Life {
        let before = self.known.get(&key(step)).copied();
        let (mut life, first) = before.map_or_else(Default::default, |k| (k.life, k.next));
        if !left.is_left() {
            return life;
        }
        let (mut read, mut has_told) = (0, false);
        for pid in step.pids.iter().cycle().skip(first).take(step.pids.len()) {
            if life.is_protected || !left.is_left() {
                break;
            }
            read += 1;
            let environ = energy::environ(&self.proc_root.join(pid.to_string())).told().unwrap_or_default();
            left.took(environ.len());
            if let Some((restart_count, is_protected)) = told(&environ, job)
                && (is_protected || !std::mem::replace(&mut has_told, true))
            {
                life = Life { restart_count: Some(restart_count), is_protected };
            }
        }
        let next = (first + read).checked_rem(step.pids.len()).unwrap_or(0);
        self.known.insert(key(step), Known { life, looked_at: Instant::now(), next });
        life
    }

    /// Which life a step is of; it is looked at if that is not known.
    fn life(&mut self, job: u32, step: &StepCpu, left: &mut Allowance) -> Life {
        match self.known.get(&key(step)) {
            Some(known) if known.life.restart_count.is_some() => known.life,
            _ => self.look_at_step(job, step, left),
        }
    }

    /// Processes of a job's lives up to one; those of steps that do not tell their life only if `unknown` ones count.
    pub fn pids(&mut self, processes: &Processes, of: Incarnation, unknown: bool) -> Vec<i32> {
        let Some(job) = processes.jobs.iter().find(|j| j.job_id == of.job) else { return Vec::new() };
        // Slurm's own step of a job is of no life, and has nothing of the run.
        let is_its = |life: Life, step: &StepCpu| {
            life.restart_count.map_or(unknown && !step.is_extern(), |count| count <= of.restart_count)
        };
        let mut left = Allowance::of_request();
        let steps: Vec<&StepCpu> = job.steps.iter().filter(|s| is_its(self.life(of.job, s, &mut left), s)).collect();
        let mut pids: Vec<i32> = steps.into_iter().flat_map(|s| &s.pids).copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Stops processes of a life and remembers them; how many were running.
    pub fn stop(&mut self, of: Incarnation, pids: &[i32], again: impl FnOnce(&mut Lives) -> Vec<i32>) -> usize {
        let running: Vec<i32> = pids.iter().copied().filter(|pid| self.runs(*pid)).collect();
        let mut stopped = 0;
        for (pid, fd) in sure(&running, || again(self)) {
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
        let mut left = Allowance::of_request();
        let meant = steps.filter(|s| is_meant(s, self.life(job, s, &mut left)));
        meant.map(|s| (s.stepd_pid, s.stepd_start_ticks)).collect()
    }

    /// Lets those go on that were stopped by us; all of a life that was stopped by an earlier life of this service.
    /// What `left` finds has left the trees of its steps.
    pub fn go_on(&mut self, processes: &Processes, of: Incarnation, left: impl FnOnce(&[i32]) -> Vec<i32>) -> usize {
        let mut stopped = self.stopped.remove(&of).unwrap_or_default();
        if self.inherited.remove(&of) {
            let mut all = self.pids(processes, of, true);
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

    /// Forgets what was stopped of a job's lives up to one: it has been ended.
    pub fn ended(&mut self, of: Incarnation) {
        self.stopped.retain(|stopped, _| stopped.job != of.job || stopped.restart_count > of.restart_count);
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
}

/// Ends those of the processes that are found `again`; how many there were.
pub(crate) fn end(pids: &[i32], again: impl FnOnce() -> Vec<i32>) -> usize {
    let all = sure(pids, again);
    for (_, fd) in &all {
        // One that has ended meanwhile is no error.
        let _ = pidfd_send_signal(fd, Signal::KILL);
    }
    all.len()
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

/// The restart count in a process's environment, and whether a wrapper of ours started it; none if it is not the job's.
pub(crate) fn told(environ: &[u8], job: u32) -> Option<(u32, bool)> {
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

/// What tells a step from all others.
fn key(step: &StepCpu) -> (i32, u64) {
    (step.stepd_pid, step.stepd_start_ticks)
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

    /// Longer than any look takes.
    const LIMIT: Duration = Duration::from_secs(60);

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
        while lives.protected(&all, LIMIT).is_empty() && Instant::now() < end {
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
        assert_eq!(lives.protected(&found, LIMIT), BTreeSet::from([of(0), of(1)]));
        assert_eq!(lives.pids(&found, of(0), false), [pid(0)]);
        assert_eq!(lives.pids(&found, of(0), true), BTreeSet::from([pid(0), pid(2)]).into_iter().collect::<Vec<_>>());
        assert_eq!(lives.pids(&found, of(1), false).len(), 2, "and all before");
        assert!(lives.pids(&Processes::default(), of(1), true).is_empty());
        for child in &mut all {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
    }

    #[test]
    fn of_many_processes_a_look_reads_a_few_and_the_next_goes_on_from_there() {
        let root = tempfile::tempdir().unwrap();
        let write = |pid: i32, environ: &str| {
            let folder = root.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("environ"), environ).unwrap();
        };
        let many: Vec<i32> = (1000..1040).collect();
        many.iter().for_each(|pid| write(*pid, "SLURM_JOB_ID=7\0"));
        write(1039, "SLURM_JOB_ID=7\0JOULEPOINT_RUN=c/7.1\0");
        write(2000, "SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/8.1\0");
        let job = |job_id: u32, pids: &[i32]| {
            let step = StepCpu {
                name: "0".into(),
                stepd_pid: job_id as i32,
                stepd_start_ticks: 1,
                cpu_s: 0.0,
                pids: pids.to_vec(),
            };
            JobCpu { job_id, cpu_s: 0.0, steps: vec![step], pids: pids.to_vec() }
        };
        let all = Processes { jobs: vec![job(7, &many), job(8, &[2000])], ..Processes::default() };
        let mut lives = Lives::new(root.path().into(), BTreeSet::new());
        let other = Incarnation { job: 8, restart_count: 0 };
        assert_eq!(lives.protected(&all, LIMIT), BTreeSet::from([other]), "nobody waits behind a job of many");
        assert_eq!(lives.known[&(7, 1)].next, 32);
        lives.known.values_mut().for_each(|known| known.looked_at -= AGAIN);
        assert_eq!(lives.protected(&all, LIMIT), BTreeSet::from([of(0), other]));
        // What is not known to be protected is left alone for a while.
        let mut lives = Lives::new(root.path().into(), BTreeSet::new());
        write(2000, "SLURM_JOB_ID=8\0");
        assert!(lives.protected(&all, LIMIT).is_empty());
        write(2000, "SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/8.1\0");
        lives.known.values_mut().for_each(|known| known.looked_at = Instant::now() + LIMIT);
        assert!(lives.protected(&all, LIMIT).is_empty());
        // A look that is over before it has begun leaves its turn to the next.
        lives.known.clear();
        assert!(lives.protected(&all, Duration::ZERO).is_empty() && lives.turn == 7);
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
        assert_eq!(end(&pids, || vec![pids[0]]), 1, "the other is no longer the job's");
        all[0].wait().unwrap();
        assert_eq!(state_of(&all[1]), Some(b'T'));
        all[1].kill().and_then(|()| all[1].wait()).unwrap();
    }

    #[test]
    fn a_job_that_a_protected_script_has_submitted_is_none_of_ours() {
        let told = |environ: &str| told(environ.as_bytes(), 8);
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/8.1\0"), Some((0, true)));
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/7.1\0"), Some((0, false)));
        assert_eq!(told("SLURM_JOB_ID=8\0JOULEPOINT_RUN=c/81.1\0"), Some((0, false)));
        assert_eq!(told("SLURM_JOB_ID=7\0JOULEPOINT_RUN=c/7.1\0"), None);
    }
}
