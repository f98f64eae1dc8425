//! What earlier wrappers of a run have left, as its journal tells it.

use crate::planned::made_by;
use driver::groups::place::{Before, before};
use driver::ledger::Earlier;
use driver::setup::{COMPLETED, FAILED};
use job::cluster::persistently;
use job::identity::Identity;
use job::release;
use options::Engine;
use protocol::{Event, FailureKind, FormerNode, Record, RunAccount};
use run::{History, Patience, storage};
use slurm::{Accounted, JobState, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the journal says of earlier wrappers.
pub(crate) struct Former {
    /// Whether there were some.
    pub(crate) resumes: bool,
    pub(crate) accounted: Earlier,
    /// Whether the last life of the job before this one ended without a word, or lost a node.
    pub(crate) was_lost: bool,
    /// Orders that they have answered.
    pub(crate) answered: Vec<Event>,
    pub(crate) groups: Before,
    /// When the last one began, and when it wrote last.
    pub(crate) worked: Option<(f64, f64)>,
    /// The engine of their checkpoints.
    pub(crate) made_by: Option<Engine>,
    /// What their last plan has set.
    pub(crate) options: BTreeMap<String, String>,
    /// Nodes on which something of them may go on.
    pub(crate) nodes: BTreeSet<FormerNode>,
}

impl Former {
    /// Reads it from the run's journal; this wrapper `began_s`.
    pub(crate) fn read(records: &[Record], resumes: bool, me: &Identity, began_s: f64) -> Former {
        let events = || records.iter().map(|r| &r.event);
        Former {
            resumes,
            accounted: Earlier::of(records, me.job.unwrap_or(0), me.restart_count, began_s),
            was_lost: was_lost(records, me),
            answered: events().filter(|e| matches!(e, Event::Ordered { .. })).cloned().collect(),
            groups: before(events()),
            worked: worked(records),
            made_by: made_by(records),
            options: events().rev().find_map(planned).unwrap_or_default(),
            nodes: if me.job.is_some() { release::former(records, me) } else { BTreeSet::new() },
        }
    }
}

/// Which run a wrapper takes up.
pub(crate) struct Named {
    pub(crate) run: String,
    /// Whether it is there, and goes on.
    pub(crate) found: bool,
    /// The one before it, if that has completed.
    pub(crate) over: Option<History>,
}

/// Why it is not known which run a wrapper takes up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unnamed {
    #[error(transparent)]
    Storage(#[from] run::Error),
    #[error(
        "the controller knows run {run} of this job, and {} does not hold it: is its storage there on this node, or was \
         runs.dir changed? (To begin anew, submit the job again)",
        runs.display()
    )]
    Missing { run: String, runs: PathBuf },
    #[error(
        "nothing of an earlier start of this job is in {}, and the controller cannot say whether there was one: {why} (to begin \
         anew, submit the job again)",
        runs.display()
    )]
    Unknown { why: wire::Error, runs: PathBuf },
}

/// Says which run a wrapper takes up, and why if it begins one although the job was started before.
///
/// # Errors
/// What the file system says, or that there has to be a run, or may be one.
pub(crate) fn name(
    me: &Identity,
    runs: &Path,
    attempt: u32,
    slurm: &Slurm,
    controller: &wire::Client,
) -> Result<Named, Unnamed> {
    let submitted_s = || me.job.and_then(|id| slurm.job(id).ok().flatten())?.submit_s;
    let forgotten = if attempt == 0 { me.forgotten_run(runs, submitted_s)? } else { None };
    if let Some(run) = &forgotten {
        protocol::say!(
            "joulepoint: Slurm has forgotten that this job had started (slurmctld was killed?): run {run} goes on"
        );
    }
    let is_forgotten = forgotten.is_some();
    let (run, found) = forgotten.map_or_else(|| me.run_name(runs, attempt > 0), |run| Ok((run, true)))?;
    let over = match me.job {
        Some(_) if found => over(&runs.join(&me.cluster).join(&run), me, slurm, is_forgotten)?,
        _ => None,
    };
    if let Some((history, code)) = over {
        let why = match code {
            0 => "had completed".to_string(),
            code => format!("had ended with exit code {code}, for which this cluster starts a job again (RequeueExit)"),
        };
        protocol::say!("joulepoint: this job {why} (run {run}) and was requeued: it begins anew, as Slurm has it");
        return Ok(Named { run: me.new_run_name(), found: false, over: Some(history) });
    }
    if (me.restart_count > 0 || attempt > 0) && !found {
        if let Some(job) = me.job {
            missing(me, job, runs, controller)?;
        }
        let runs = runs.display();
        protocol::say!("joulepoint: nothing of an earlier start of this job is in {runs}; it begins anew");
    }
    Ok(Named { run, found, over: None })
}

/// Whether a job that has no run there was ever heard of: of one that Slurm could not launch nobody has.
fn missing(me: &Identity, job: u32, runs: &Path, controller: &wire::Client) -> Result<(), Unnamed> {
    let path = format!("/v1/report?task={job}&state=running&brief=true");
    let runs = runs.to_path_buf();
    let known = match persistently(|| controller.get::<Vec<RunAccount>>(&path)) {
        Ok(known) => known,
        Err(why) => return Err(Unnamed::Unknown { why, runs }),
    };
    // One of another job that had this number is there, and was seen to be.
    let uid = nix::unistd::getuid().to_string();
    let is_mine = |run: &RunAccount| run.cluster == me.cluster && (run.user == me.user || run.user == uid);
    for known in known.into_iter().filter(is_mine) {
        if !storage::is_there(&runs.join(&known.cluster).join(&known.run), Patience::LONG)? {
            return Err(Unnamed::Missing { run: known.run, runs });
        }
    }
    Ok(())
}

/// The history of a run whose last life before this one has come to its own end, with its exit code: whoever requeues a job that has
/// completed wants all of it again, and so does a script that asks for that by its exit code. None of one that is to go on: where
/// accounting says that Slurm ended the life, its node died after its last word. A life that Slurm has forgotten has this one's
/// number.
///
/// # Errors
/// What the file system says.
fn over(run: &Path, me: &Identity, slurm: &Slurm, is_forgotten: bool) -> run::Result<Option<(History, i32)>> {
    let history = run::history::read(run, Patience::LONG)?;
    let is_own = |e: &Event| matches!(e, Event::Started { restart_count, .. } if *restart_count == me.restart_count);
    let last = || history.records.iter().rev().map(|r| &r.event);
    let life: Vec<&Event> = last().take_while(|e| !matches!(e, Event::Started { .. })).collect();
    let own_end = |e: &Event| match e {
        Event::Ended { state, exit_code } => (state == COMPLETED || state == FAILED).then_some(*exit_code),
        _ => None,
    };
    // An end of ours is none of the script's.
    let is_ours = life.iter().any(|e| matches!(e, Event::Decided { action, .. } if action == "end"));
    let code = life.into_iter().find_map(own_end).filter(|code| *code == 0 || !is_ours && requeues(slurm, *code));
    let is_this = !is_forgotten && last().find(|e| matches!(e, Event::Started { .. })).is_some_and(is_own);
    let Some(code) = code.filter(|_| !is_this) else { return Ok(None) };
    let lives = slurm.accounted(me.job.unwrap_or(0)).unwrap_or_default();
    let ended = lives.iter().rev().find(|life| life.end_s.is_some());
    // What Slurm itself has put back; one that a person requeues is REQUEUED there.
    let by_slurm = |life: &Accounted| {
        matches!(life.state, JobState::NodeFail | JobState::BootFail | JobState::Preempted | JobState::Timeout)
    };
    Ok((!ended.is_some_and(by_slurm)).then_some((history, code)))
}

/// Whether Slurm puts a job that ends with this exit code back into the queue.
fn requeues(slurm: &Slurm, code: i32) -> bool {
    let config = slurm.config().inspect_err(|e| tracing::warn!(%e, "whether the script has asked for another life"));
    let Ok(config) = config else { return false };
    ["requeueexit", "requeueexithold"].iter().filter_map(|key| config.get(*key)).any(|codes| holds(codes, code))
}

/// Whether a list of Slurm's holds a number: `3,75-80`.
fn holds(list: &str, number: i32) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.parse::<i32>(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&number))
    })
}

/// What a plan has set.
fn planned(event: &Event) -> Option<BTreeMap<String, String>> {
    match event {
        Event::Planned(plan) => Some(plan.options.clone()),
        _ => None,
    }
}

/// When the last wrapper before this one began, and when it wrote last.
fn worked(records: &[Record]) -> Option<(f64, f64)> {
    let is_started = |r: &&Record| matches!(r.event, Event::Started { .. });
    Some((records.iter().rev().find(is_started)?.at_s, records.last()?.at_s))
}

/// Whether the last life of the job before this one ended without a word, or lost a node.
fn was_lost(records: &[Record], me: &Identity) -> bool {
    let is_begin = |r: &&Record| matches!(r.event, Event::Started { .. });
    let is_other =
        |r: &Record| matches!(r.event, Event::Started { restart_count, .. } if restart_count != me.restart_count);
    let Some(begin) = records.iter().rposition(is_other) else { return false };
    let life = || records[begin + 1..].iter().take_while(|r| !is_begin(r));
    let is_loss =
        |r: &Record| matches!(r.event, Event::Failure { kind: FailureKind::Node | FailureKind::BatchHost, .. });
    life().any(is_loss) || !life().any(|r| matches!(r.event, Event::Ended { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_exit_codes_is_read_as_slurm_writes_it() {
        assert!(holds("75", 75) && holds("1-5,75-80,9", 77) && holds("1-5,75-80,9", 9));
        assert!(!holds("1-5,75-80,9", 6) && !holds("NONE", 0) && !holds("", 75) && !holds("(null)", 1));
    }
}
