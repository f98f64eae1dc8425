//! What has to be done about the jobs of open runs, by Slurm's word on each of them, and when Slurm is to be asked.
//!
//! Slurm is asked about a job of ours only, and only when something may have happened to it: its wrapper left or is not
//! heard, a node of it is silent, it waits in the queue. Otherwise once in a while.

use crate::Nodes;
use std::collections::{BTreeMap, BTreeSet};

/// How long a job may look ended before its run is closed without its wrapper's word, s.
const LAST_WORD_S: f64 = 5.0;

/// How long after a start of the controller a wrapper's last word may still come, s: longer than a spool rests that found no
/// controller.
pub const LATE_WORD_S: f64 = 45.0;

/// How long slurmctld may not know a job before its run is closed, s.
const FORGOTTEN_S: f64 = 60.0;

/// Time between two tries of the same help, s.
const AGAIN_S: f64 = 5.0;

/// So long after a boot of its node a job is still left to Slurm, s.
const BOOTED_S: f64 = 10.0;

/// How long after a node's death a requeued job is taken to be requeued because of it, s.
const BECAUSE_S: f64 = 900.0;

/// Slurm lets a job that it requeues wait for its credentials to expire, two minutes where nothing else is configured. One that is
/// to wait longer than this is meant to, s.
const CREDENTIAL_S: f64 = 185.0;

/// Time between two questions about a job of which nothing is expected, s.
const RARELY_S: f64 = 60.0;

/// The same where its wrapper has just asked after it, and it has no node that it could give back meanwhile, s.
const ATTENDED_S: f64 = 300.0;

/// The same about one that may have ended, or is to start soon, s.
const SOON_S: f64 = 1.0;

/// The same about one that waits in the queue, s.
const QUEUED_S: f64 = 15.0;

/// How long a job that goes back to the queue is asked about often, s.
const REQUEUE_S: f64 = 180.0;

/// How often a job whose launch failed is let go again, and the time between two such tries, s; it grows with each.
const MOST_RELEASES: u32 = 3;
const RELEASE_S: f64 = 30.0;

/// A wrapper that has not asked after its run for so long may be gone, s.
const UNATTENDED_S: f64 = 45.0;

/// An open run, as the controller's store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT of its newest record.
    pub restart_count: u32,
    /// Who owns the run.
    pub uid: u32,
    /// Nodes of its newest record, that of its script first.
    pub nodes: Vec<String>,
    /// Whether its newest record has ended by handing the run back to the queue.
    pub is_requeued: bool,
    /// Whether its newest record has not ended.
    pub is_running: bool,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It has its nodes.
    Running,
    /// Its end is being cleaned up.
    Completing,
    /// It is in the queue, and may start.
    Waiting,
    /// It is in the queue, and Slurm makes it wait until a moment.
    Delayed,
    /// It is in the queue, where Slurm holds it since its launch failed.
    NotLaunched,
    /// It has its nodes, and its processes are stopped.
    Suspended,
    /// Its script ended well.
    Completed,
    /// Somebody cancelled it.
    Cancelled,
    /// It reached its time limit.
    Timeout,
    /// It was ended by SIGKILL, as its wrapper would be.
    Killed,
    /// Its run has not let it in, since it bears the number of a former life.
    CountedAgain,
    /// It ended otherwise.
    Failed,
}

/// Slurm's word on a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its owner.
    pub uid: u32,
    /// What it is doing.
    pub doing: Doing,
    /// Whether it is a batch job.
    pub batch: bool,
    /// The node of its script.
    pub batch_host: Option<String>,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Whether Slurm may requeue it.
    pub requeue: bool,
    /// For how long it has been running, s.
    pub began_ago_s: Option<f64>,
    /// How long it is to wait in the queue yet, whatever is free, s.
    pub delayed_s: f64,
}

/// How a run ended, where its wrapper cannot say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its script ended well.
    Completed,
    /// Somebody cancelled it.
    Cancelled,
    /// Its time was up.
    Timeout,
    /// It failed.
    Failed,
    /// Slurm does not know any more, or the job is somebody else's by now.
    Unknown,
}

/// Why a job is requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node of its script died, and Slurm leaves the job running without it.
    ScriptLost,
    /// Its wrapper was killed while its node lived.
    WrapperKilled,
    /// slurmctld has counted its lives anew, and the run has let no life in that bears a former number.
    CountedAgain,
}

/// What is to be done about a run's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let a requeued job start now.
    StartNow,
    /// Let a job go whose launch failed, and whom Slurm therefore holds for ever.
    Release,
    /// Put it back into the queue, which nobody else would.
    Requeue(Cause),
    /// Close its run.
    Close(Ended),
}

/// What is remembered of one run's job.
#[derive(Clone, Debug, Default)]
struct Memory {
    odd_since_s: Option<f64>,
    helped_s: Option<f64>,
    /// How often it was let go after a launch that failed, and when last, s.
    released: (u32, f64),
    hit_s: Option<f64>,
    asked_s: Option<f64>,
    /// The newest life of which Slurm has told, as SLURM_RESTART_COUNT.
    life: u32,
    /// When the wrapper asked after its run last, s.
    attended_s: Option<f64>,
    /// When the wrapper went away while it was waiting for news, s.
    gone_s: Option<f64>,
    doing: Option<Doing>,
    doing_since_s: f64,
    /// Whether it might have started since it is in the queue: what delays it then is somebody's wish.
    has_waited: bool,
    /// Whether nothing was expected of it when it was due last.
    is_quiet: bool,
}

/// The open runs.
#[derive(Clone, Debug)]
pub struct Runs {
    started_s: f64,
    memory: BTreeMap<u32, Memory>,
}

impl Runs {
    /// No runs; a wrapper gets time to deliver what it kept while nobody listened.
    pub fn new(now_s: f64) -> Runs {
        Runs { started_s: now_s, memory: BTreeMap::new() }
    }

    /// Runs that were hit by a death, or helped by us.
    pub fn hit(&mut self, now_s: f64, jobs: impl IntoIterator<Item = u32>) {
        for job in jobs {
            let memory = self.memory.entry(job).or_default();
            (memory.hit_s, memory.asked_s) = (Some(now_s), None);
        }
    }

    /// A run's wrapper asks after it.
    pub fn attended(&mut self, now_s: f64, job: u32) {
        if let Some(memory) = self.memory.get_mut(&job) {
            (memory.attended_s, memory.gone_s) = (Some(now_s), None);
        }
    }

    /// A run's wrapper has gone away while it waited for news: its connection is closed.
    pub fn left(&mut self, now_s: f64, job: u32) {
        if let Some(memory) = self.memory.get_mut(&job) {
            (memory.gone_s, memory.asked_s) = (Some(now_s), None);
        }
    }

    /// The jobs that Slurm is to be asked about now, each once. Where there are more than may be asked about, users take
    /// turns, so that the many jobs of one do not make the job of another wait; each user's most overdue ones come first.
    pub fn due(&mut self, now_s: f64, runs: &[Run], nodes: &Nodes) -> Vec<u32> {
        let open: BTreeSet<u32> = runs.iter().map(|r| r.job).collect();
        self.memory.retain(|job, _| open.contains(job));
        let mut due: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
        for run in runs {
            let memory = self.memory.entry(run.job).or_default();
            let pause_s = pause_s(now_s, run, memory, nodes);
            memory.is_quiet = pause_s >= QUEUED_S;
            let overdue = memory.asked_s.map_or(f64::INFINITY, |at_s| (now_s - at_s) / pause_s);
            if overdue >= 1.0 {
                due.entry(run.job).or_insert((overdue, run.uid));
            }
        }
        let mut due: Vec<(f64, u32, u32)> = due.into_iter().map(|(job, (overdue, uid))| (overdue, uid, job)).collect();
        due.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut turns: Vec<(usize, u32)> = Vec::new();
        for (_, uid, job) in due {
            let turn = of.entry(uid).or_default();
            turns.push((*turn, job));
            *turn += 1;
        }
        // The sort is stable: within a round the most overdue stays first.
        turns.sort_by_key(|(turn, _)| *turn);
        turns.into_iter().map(|(_, job)| job).collect()
    }

    /// Whether nobody waits for Slurm's word on a job: when it was due last, nothing was expected of it.
    pub fn is_quiet(&self, job: u32) -> bool {
        self.memory.get(&job).is_some_and(|m| m.is_quiet)
    }

    /// For how long a job has been seen to wait in the queue, s.
    pub fn waits_for_s(&self, now_s: f64, job: u32) -> Option<f64> {
        let waits = |m: &&Memory| matches!(m.doing, Some(Doing::Waiting | Doing::Delayed | Doing::NotLaunched));
        self.memory.get(&job).filter(waits).map(|m| now_s - m.doing_since_s)
    }

    /// Slurm was asked about a job, and gave no answer: others come before it is asked about again.
    pub fn unanswered(&mut self, now_s: f64, job: u32) {
        self.memory.entry(job).or_default().asked_s = Some(now_s);
    }

    /// Slurm's answer about a run's job, none if it does not know it; what is to be done.
    pub fn answered(&mut self, now_s: f64, run: &Run, job: Option<&Job>, nodes: &Nodes) -> Option<Action> {
        let memory = self.memory.entry(run.job).or_default();
        memory.has_waited &= run.restart_count <= memory.life;
        (memory.asked_s, memory.life) = (Some(now_s), memory.life.max(run.restart_count));
        let doing = job.map(|j| j.doing);
        if memory.doing != doing {
            (memory.doing, memory.doing_since_s) = (doing, now_s);
            memory.has_waited = match doing {
                Some(Doing::Waiting) => true,
                Some(Doing::Delayed | Doing::NotLaunched) => memory.has_waited,
                _ => false,
            };
        }
        // Whoever has it wait for longer than Slurm does means it, also when the moment is near.
        memory.has_waited |= job.is_some_and(|j| j.doing == Doing::Delayed && j.delayed_s > CREDENTIAL_S);
        let Some(job) = job else {
            return self.lasting(now_s, run.job, FORGOTTEN_S).then_some(Action::Close(Ended::Unknown));
        };
        if job.uid != run.uid {
            // The job id was reused: nothing is done to that job.
            return self.lasting(now_s, run.job, LAST_WORD_S).then_some(Action::Close(Ended::Unknown));
        }
        match job.doing {
            Doing::Running | Doing::Completing | Doing::Suspended => {
                self.odd(run.job, None);
                let attended_s = self.memory.get(&run.job).and_then(|m| m.attended_s);
                let lost = job.doing == Doing::Running && has_lost_its_script(now_s, run, job, nodes, attended_s);
                // Slurm would refuse to requeue a job that does not let itself be.
                (lost && job.requeue && self.may_help(now_s, run.job)).then_some(Action::Requeue(Cause::ScriptLost))
            }
            Doing::Waiting | Doing::Delayed => {
                self.odd(run.job, None);
                let hit_s = self.memory.get(&run.job).and_then(|m| m.hit_s);
                let ours = run.is_requeued || hit_s.is_some_and(|at_s| now_s - at_s < BECAUSE_S);
                let has_waited = self.memory.get(&run.job).is_some_and(|m| m.has_waited);
                let is_slurms = job.doing == Doing::Delayed && job.delayed_s <= CREDENTIAL_S && !has_waited;
                (ours && is_slurms && self.may_help(now_s, run.job)).then_some(Action::StartNow)
            }
            Doing::NotLaunched => {
                self.odd(run.job, None);
                let may_release = self.may_help(now_s, run.job) && self.may_release(now_s, run.job);
                may_release.then_some(Action::Release)
            }
            ended => {
                if !self.lasting(now_s, run.job, LAST_WORD_S) {
                    return None;
                }
                Some(Action::Close(match ended {
                    Doing::Completed => Ended::Completed,
                    Doing::Cancelled => Ended::Cancelled,
                    Doing::Timeout => Ended::Timeout,
                    Doing::Killed | Doing::CountedAgain if job.requeue => {
                        let is_killed = job.doing == Doing::Killed;
                        // Its wrapper may have said that the program was killed, which is an end of its own.
                        if is_killed && now_s - self.started_s < LATE_WORD_S {
                            return None;
                        }
                        let cause = if is_killed { Cause::WrapperKilled } else { Cause::CountedAgain };
                        return self.may_help(now_s, run.job).then_some(Action::Requeue(cause));
                    }
                    _ => Ended::Failed,
                }))
            }
        }
    }

    fn odd(&mut self, job: u32, since_s: Option<f64>) {
        if let Some(memory) = self.memory.get_mut(&job) {
            memory.odd_since_s = since_s;
        }
    }

    /// Whether something odd about a job has lasted.
    fn lasting(&mut self, now_s: f64, job: u32, limit_s: f64) -> bool {
        let memory = self.memory.entry(job).or_default();
        let since_s = *memory.odd_since_s.get_or_insert(now_s);
        now_s - since_s >= limit_s && now_s - self.started_s >= limit_s
    }

    fn may_release(&mut self, now_s: f64, job: u32) -> bool {
        let memory = self.memory.entry(job).or_default();
        let (count, at_s) = memory.released;
        if count >= MOST_RELEASES || now_s - at_s < RELEASE_S * f64::from(count) {
            return false;
        }
        memory.released = (count + 1, now_s);
        true
    }

    fn may_help(&mut self, now_s: f64, job: u32) -> bool {
        let memory = self.memory.entry(job).or_default();
        if memory.helped_s.is_some_and(|at_s| now_s - at_s < AGAIN_S) {
            return false;
        }
        memory.helped_s = Some(now_s);
        true
    }
}

/// Time until Slurm is asked about a job again, s.
fn pause_s(now_s: f64, run: &Run, memory: &Memory, nodes: &Nodes) -> f64 {
    let since_s = now_s - memory.doing_since_s;
    match memory.doing {
        None => SOON_S,
        Some(Doing::Waiting | Doing::Delayed | Doing::NotLaunched | Doing::Completing) => {
            if since_s < REQUEUE_S {
                SOON_S
            } else {
                QUEUED_S
            }
        }
        Some(Doing::Running | Doing::Suspended) => {
            let is_hit = memory.hit_s.is_some_and(|at_s| now_s - at_s < REQUEUE_S);
            let is_left = memory.gone_s.is_some_and(|at_s| now_s - at_s < REQUEUE_S);
            let is_dead = run.nodes.iter().any(|n| nodes.is_dead(n));
            if is_hit || is_left || is_dead || !run.is_running || run.restart_count > memory.life {
                SOON_S
            } else {
                match memory.attended_s.map(|at_s| now_s - at_s > UNATTENDED_S) {
                    Some(true) => QUEUED_S,
                    Some(false) if run.nodes.len() == 1 => ATTENDED_S,
                    _ => RARELY_S,
                }
            }
        }
        // It is over: its last words are waited for.
        Some(_) => SOON_S,
    }
}

/// Whether Slurm lets a job run on without its script: the node of the script is dead, or Slurm has taken it out.
fn has_lost_its_script(now_s: f64, run: &Run, job: &Job, nodes: &Nodes, attended_s: Option<f64>) -> bool {
    let Some(host) = job.batch_host.as_ref() else { return false };
    // A job that began after the death is on a node that is just coming back.
    let died = nodes.dead_for_s(now_s, host).is_some_and(|dead_s| job.began_ago_s.is_none_or(|ago_s| ago_s > dead_s));
    // Slurm puts back what a booted node does not know, but for a job that had just begun: it believes that it is on its way.
    let booted = nodes.booted_for_s(now_s, host).is_some_and(|(before_s, since_s)| {
        let began_before = job.began_ago_s.is_some_and(|ago_s| ago_s > before_s);
        // A wrapper that asked after its run since then lives.
        let is_attended = attended_s.is_some_and(|at_s| now_s - at_s < since_s);
        since_s > BOOTED_S && began_before && !is_attended
    });
    let taken_out = job.batch && run.nodes.contains(host) && !job.nodes.contains(host);
    died || job.batch && booted || taken_out
}

#[cfg(test)]
mod tests;
