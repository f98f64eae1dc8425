//! What both drivers are given, how they leave a run, and what they say and write alike.

use crate::ledger::{Earlier, Killed};
use crate::ports::{Cluster, LATEST_SIGNAL, Standing};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, Manifest, Phase, Plan};

/// Longest time between two cuts of the energy account, s: what a dying batch host can leave unassigned.
pub(crate) const LONGEST_CUT_S: f64 = 60.0;

/// Longest wait for a verdict on nodes that are suspected when the script ends, s.
pub(crate) const VERDICT_LIMIT_S: f64 = 30.0;

/// Longest wait for the script after it was asked to end, s; Slurm's KillWait is shorter.
pub(crate) const LEAVE_LIMIT_S: f64 = 300.0;

/// Longest wait for the delivery of the last records, s.
pub const FLUSH_LIMIT_S: f64 = 10.0;

/// Pause after a checkpoint that failed, s, at least.
pub(crate) const RETRY_PAUSE_S: f64 = 10.0;

/// Exit code of a run whose checkpoint could not be brought back.
pub const EXIT_NOT_RESTORED: i32 = 125;

/// What a driver is given.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The record of this wrapper, ready for the journal but for `resumed_from`.
    pub started: Started,
    /// What is to be done.
    pub plan: Plan,
    /// What the user and the site want.
    pub settings: Settings,
    /// What can be expected of its protection.
    pub prospect: Prospect,
    /// End of the walltime.
    pub end_s: Option<f64>,
    /// Time kept free before it.
    pub margin_s: f64,
    /// Whether to requeue after the last checkpoint before it.
    pub requeue_at_end: bool,
    /// How often a crashed step is tried again without a new checkpoint in between.
    pub step_retries: u32,
    /// Longest time that the engine may take.
    pub checkpoint_limit_s: f64,
    /// Whether earlier wrappers have worked on this run.
    pub resumes: bool,
    /// What earlier wrappers of the same job record have accounted for.
    pub accounted: Earlier,
    /// Whether the life of the job before this one ended without a word of its wrapper, or lost a node.
    pub was_lost: bool,
    /// Orders that earlier wrappers of the run have answered.
    pub answered: Vec<Event>,
}

impl Setup {
    /// In which phase its nodes are when a driver begins: what one that was killed had not told was its work.
    pub(crate) fn first_phase(&self) -> Phase {
        if self.resumes && self.accounted.killed.is_none() { Phase::Restart } else { Phase::Compute }
    }
}

/// Who and where this record of the run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Started {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
    /// User name.
    pub user: String,
    /// Slurm account.
    pub account: String,
    /// Slurm partition.
    pub partition: String,
    /// Job name.
    pub job_name: String,
    /// Nodes of the allocation.
    pub nodes: Vec<String>,
    /// Folder of the run.
    pub dir: String,
}

/// A change of the end of a job below this is none, s.
const SAME_END_S: f64 = 2.0;

/// Time between two questions about it, s: no more than one for each checkpoint either.
const ASKED_S: f64 = 30.0;

/// When a job's time is up, as Slurm said last, and when it was asked, s since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub end_s: Option<f64>,
    asked_s: f64,
}

impl Limit {
    pub fn new(now_s: f64, end_s: Option<f64>) -> Limit {
        Limit { end_s, asked_s: now_s }
    }

    /// Whether the job should have ended, by what is known.
    pub fn is_over(&self, now_s: f64) -> bool {
        self.end_s.is_some_and(|end_s| now_s >= end_s)
    }

    /// Whether it has been changed, by Slurm's word: `ask` is called now and then, and always if something is to be done because
    /// the end is near.
    pub fn has_moved(&mut self, now_s: f64, is_near: bool, ask: impl FnOnce() -> Option<f64>) -> bool {
        if !is_near && now_s - self.asked_s < ASKED_S {
            return false;
        }
        self.asked_s = now_s;
        let told_s = ask();
        let is_new = told_s.is_some_and(|now| self.end_s.is_none_or(|before| (now - before).abs() > SAME_END_S));
        if is_new {
            tracing::info!(before_s = self.end_s, told_s, "the time limit of the job has changed");
            self.end_s = told_s;
        }
        is_new
    }
}

/// How a driver leaves its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The script ended, or was ended, with this exit code.
    Ended(i32),
    /// The run is back in the queue.
    Requeued,
    /// Another wrapper has the run.
    Superseded,
}

/// How a run has ended whose script was done.
pub const COMPLETED: &str = "completed";

/// How a run has ended whose script ended with an error, or that cannot go on.
pub const FAILED: &str = "failed";

/// What the job's output is told then.
pub const SUPERSEDED: &str = "another wrapper has taken this run up since; this one ends its program and itself, and leaves the rest to that one";

/// What it is told of a run whose checkpoints cannot be read.
pub const HELD: &str = "the job goes back into the queue and is held; when that is mended: scontrol release";

/// Exit code of a wrapper whose run another one has taken up.
pub const EXIT_SUPERSEDED: i32 = 123;

/// What the report calls work that is done twice.
pub const REPEATED_WORK: &str = "repeated work";

/// Why a checkpoint cannot be gone on from by an engine: another has made it.
pub(crate) fn not_by(line: &Manifest, engine: &str) -> Option<String> {
    let of_another = !line.engine.is_empty() && line.engine != engine;
    of_another
        .then(|| format!("checkpoint {} was made by engine {}, which cannot be had here", line.number, line.engine))
}

pub(crate) fn rolled_back(from: Option<&Manifest>, finished_s: f64) -> Event {
    Event::RolledBack { to: from.map(|m| m.number), kept_until_s: from.map_or(0.0, |m| m.begun_s).max(finished_s) }
}

/// What a request to end the job means.
pub(crate) enum AskedToEnd {
    /// Slurm did not mean this life of the job: the run goes on, for this reason.
    ByMistake(&'static str),
    /// Nobody ends the job: it is a signal for the script, whose end counts only from this moment on.
    Signal { counts_from_s: f64 },
    /// Somebody wants its end, by Slurm, which has told all processes.
    Because(FailureKind),
    /// Somebody wants its end, and it is not known whether the script has heard so.
    Unsure(FailureKind),
}

/// How long after its KillWait Slurm may still be about to kill a job, s: it looks each ten seconds.
const LATE_KILL_S: f64 = 15.0;

/// So long before its time limit a job has ended by itself, s.
const BEFORE_LIMIT_S: f64 = 5.0;

/// What the job's output is told while the end of a script does not count yet.
pub(crate) const DOUBTED: &str = "the script has ended after a SIGTERM that Slurm may have meant for the start of the job before this one; the job \
     ends when Slurm's KillWait is over, or goes on from its last checkpoint if Slurm has killed it by then";

/// What SIGTERM means to a job whose life began at `began_s`.
///
/// Where Slurm says that the job runs, it is a signal like any other (`scancel --signal`, `sbatch --signal`); where Slurm does not say
/// why, a person has ended the job. But what slurmctld could not deliver to a node that was dead it delivers when the node is back,
/// and a later life of the job may have begun meanwhile. That is seen only by what follows: Slurm kills all of this life after its
/// KillWait, and the controller requeues it. An end of the script that comes before would hide that, and so does not count yet.
pub(crate) fn asked_to_end(cluster: &mut dyn Cluster, setup: &Setup, began_s: f64, now_s: f64) -> AskedToEnd {
    match cluster.standing() {
        Standing::Runs => {
            let is_young = setup.was_lost && now_s - began_s < LATEST_SIGNAL.as_secs_f64();
            let killed_s = if is_young { now_s + cluster.kill_wait_s() + LATE_KILL_S } else { f64::NEG_INFINITY };
            let limit_s = setup.end_s.map_or(f64::INFINITY, |end_s| end_s - BEFORE_LIMIT_S);
            AskedToEnd::Signal { counts_from_s: killed_s.min(limit_s) }
        }
        Standing::FailedAlone => {
            let reason = "Slurm has ended this start of the job by a message that was meant for the start before; the job is requeued";
            protocol::say!("joulepoint: {reason}");
            AskedToEnd::ByMistake(reason)
        }
        // In the time that a preemption leaves, `sbatch --signal=B:TERM` is for the batch script alone.
        Standing::Ends(kind @ FailureKind::Preempted) => AskedToEnd::Unsure(kind),
        Standing::Ends(kind) => AskedToEnd::Because(kind),
        Standing::Unknown => AskedToEnd::Unsure(FailureKind::Cancelled),
    }
}

/// State of a run that was ended from outside.
pub(crate) fn ended_as(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Cancelled => "cancelled",
        FailureKind::Timeout => "timeout",
        _ => "interrupted",
    }
}

/// That the driver before this one was killed.
pub(crate) fn of_killed(setup: &Setup, killed: &Killed, now_s: f64) -> Event {
    // With its node: the controller counts those that it has to bring back itself.
    let node = setup.started.nodes.first().map(String::as_str);
    failure(FailureKind::Wrapper, node, killed.at_s, now_s, "the wrapper was killed, and was started again")
}

pub(crate) fn failure(kind: FailureKind, node: Option<&str>, at_s: f64, detected_s: f64, reason: &str) -> Event {
    match kind {
        FailureKind::Node | FailureKind::BatchHost | FailureKind::Wrapper | FailureKind::Step => {
            tracing::warn!(kind = kind.as_str(), reason, "failure");
        }
        // Somebody wanted that, or Slurm's own rules.
        FailureKind::Preempted | FailureKind::Timeout | FailureKind::Cancelled | FailureKind::Requeued => {
            tracing::info!(kind = kind.as_str(), reason, "ended from outside");
        }
    }
    Event::Failure { kind, node: node.map(str::to_string), failed_s: at_s, detected_s, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_end_of_the_job_is_news_and_slurm_is_asked_now_and_then() {
        let mut limit = Limit::new(0.0, Some(1000.0));
        for (told_s, is_news, after_s) in [
            (None, false, Some(1000.0)),
            (Some(1001.0), false, Some(1000.0)),
            (Some(5000.0), true, Some(5000.0)),
            (Some(100.0), true, Some(100.0)),
        ] {
            assert_eq!((limit.has_moved(10.0, true, || told_s), limit.end_s), (is_news, after_s), "{told_s:?}");
        }
        assert!(Limit::new(0.0, None).has_moved(1.0, true, || Some(7.0)), "a job without an end has got one");
        let mut asks = |at_s: f64, is_near: bool| {
            let mut asked = false;
            limit.has_moved(at_s, is_near, || {
                asked = true;
                None
            });
            asked
        };
        assert!(!asks(10.0 + ASKED_S - 1.0, false) && asks(10.0 + ASKED_S, false));
        assert!(asks(10.0 + ASKED_S, true));
    }
}
