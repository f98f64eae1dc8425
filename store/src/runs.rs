//! Which runs there are, whose they are, and which have not ended.

use crate::database::Row;
use crate::error::Result;
use crate::report;
use crate::store::Store;
use crate::value::params;
use protocol::{Plan, ProtectionState, RunKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tariff::Waiting;

/// A run that has not ended, as the watch needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRun {
    /// Its name.
    pub key: RunKey,
    /// Who owns it, as munge vouched for it at the first record.
    pub uid: u32,
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT of the current record.
    pub restart_count: u32,
    /// Nodes of the current record, the batch host first.
    pub nodes: Vec<String>,
    /// State of the current record: `running`, or how it ended.
    pub record_state: String,
    /// How far it is protected, as its wrapper says; empty if it has not said.
    pub protection: String,
}

/// A run that may wait for other hours.
#[derive(Clone, Debug, PartialEq)]
pub struct FlexibleRun {
    /// Its current life.
    pub run: OpenRun,
    /// When that began, s since the epoch.
    pub start_s: f64,
    /// How long it has been without nodes since its first life began, s.
    pub waited_s: f64,
    /// Its plan, which says how long it may wait.
    pub plan: Plan,
}

impl FlexibleRun {
    /// Whether its wrapper has said how the run is protected, and makes checkpoints.
    pub fn can_be_asked(&self) -> bool {
        let states = [ProtectionState::Protected, ProtectionState::Unproven];
        states.iter().any(|state| state.as_str() == self.run.protection)
    }

    /// What it needs that has `left_s` of its time limit, s: that, or the work that is expected of it, if that is less.
    pub fn waiting(&self, now_s: f64, left_s: f64) -> Waiting {
        let expected_s = self.plan.choice.as_ref().map_or(f64::INFINITY, |choice| choice.work_s.value);
        Waiting {
            now_s,
            work_s: left_s.min(expected_s).max(0.0),
            slack_s: self.plan.flexible_s.unwrap_or(0.0) - self.waited_s,
            pause_s: (self.plan.checkpoint_s.value + self.plan.restart_s.value).max(0.0),
        }
    }
}

/// Whose a run is, and since when it is there.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// User id of its owner, as munge vouched for it at the first record.
    pub uid: u32,
    /// Slurm job id; 0 outside Slurm.
    pub job: u32,
    /// Whether Slurm said that the job is the owner's.
    pub verified: bool,
    /// When it began, s since the epoch.
    pub start_s: f64,
}

/// What is read of an open run.
const OPEN: &str = "SELECT r.cluster, r.run, r.job, r.restart_count, c.nodes, c.state, r.uid,
    coalesce(r.protection_state, '') FROM runs r
    JOIN records c ON c.cluster = r.cluster AND c.run = r.run AND c.restart_count = r.restart_count
    WHERE r.state = 'running'";

/// Those of which Slurm said that the job is the owner's: nothing is done for others, nor for those outside Slurm, of which it
/// knows nothing.
const WATCHED: &str = "r.verified = 1";

impl Store {
    /// The user id of a run's owner, if it is known.
    pub fn owner(&self, key: &RunKey) -> Result<Option<u32>> {
        Ok(self.run(key)?.map(|run| run.uid))
    }

    /// A run, if it is there.
    pub fn run(&self, key: &RunKey) -> Result<Option<RunRow>> {
        let sql = "SELECT uid, job, verified, start_s FROM runs WHERE cluster = ?1 AND run = ?2";
        let read = |r: &Row<'_>| Ok(RunRow { uid: r.get(0)?, job: r.get(1)?, verified: r.get(2)?, start_s: r.get(3)? });
        self.connection().query_optional(sql, params![key.cluster, key.run], read)
    }

    /// All runs that have not ended and whose job is their owner's by Slurm's word, or outside Slurm.
    pub fn open_runs(&self) -> Result<Vec<OpenRun>> {
        self.connection().query_map(&format!("{OPEN} AND {WATCHED}"), params![], open)
    }

    /// The same as they were read last, if this service has changed nothing of them since.
    pub fn open_runs_kept(&self) -> Result<Arc<Vec<OpenRun>>> {
        let now = self.changes.load(Ordering::Acquire);
        if let Some((_, kept)) = self.open.borrow().as_ref().filter(|(at, _)| *at == now) {
            return Ok(kept.clone());
        }
        let runs = Arc::new(self.open_runs()?);
        self.open.replace(Some((now, runs.clone())));
        Ok(runs)
    }

    /// The open runs that run now and may wait for other hours, by their plans.
    pub fn flexible_runs(&self) -> Result<Vec<FlexibleRun>> {
        let c = self.connection();
        let sql = "SELECT cluster, run, plan FROM runs WHERE state = 'running' AND verified = 1 AND plan LIKE ?1 ORDER BY start_s";
        let read = |r: &Row<'_>| Ok((RunKey { cluster: r.get(0)?, run: r.get(1)? }, r.get::<String>(2)?));
        let named = c.query_map(sql, params!["%\"flexible_s\":%"], read)?;
        let mut all = Vec::new();
        for (key, plan) in named {
            let Some(plan) = report::plan(Some(&plan)) else { continue };
            let lives = "SELECT start_s, end_s FROM records WHERE cluster = ?1 AND run = ?2 ORDER BY restart_count";
            let lives: Vec<(f64, Option<f64>)> =
                c.query_map(lives, params![key.cluster, key.run], |r| Ok((r.get(0)?, r.get(1)?)))?;
            let waited_s = lives.windows(2).map(|two| (two[1].0 - two[0].1.unwrap_or(two[1].0)).max(0.0)).sum();
            let run = self.open_run(&key)?.filter(|run| run.record_state == "running");
            let life = run.zip(lives.last().map(|life| life.0));
            all.extend(life.map(|(run, start_s)| FlexibleRun { run, start_s, waited_s, plan }));
        }
        Ok(all)
    }

    /// The open run of a name, verified or not.
    pub fn open_run(&self, key: &RunKey) -> Result<Option<OpenRun>> {
        let sql = format!("{OPEN} AND r.cluster = ?1 AND r.run = ?2");
        self.connection().query_optional(&sql, params![key.cluster, key.run], open)
    }

    /// The nodes of all records of a run.
    pub fn nodes_of(&self, key: &RunKey) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        let sql = "SELECT nodes FROM records WHERE cluster = ?1 AND run = ?2";
        self.connection().each(sql, params![key.cluster, key.run], |r| {
            all.extend(serde_json::from_str::<Vec<String>>(&r.get::<String>(0)?).unwrap_or_default());
            Ok(())
        })?;
        Ok(all)
    }

    /// The open runs of a job that Slurm says are of the job's owner.
    pub fn open_runs_of(&self, job: u32) -> Result<Vec<OpenRun>> {
        let sql = format!("{OPEN} AND {WATCHED} AND r.job = ?1");
        self.connection().query_map(&sql, params![job], open)
    }

    /// How many runs of a user have not ended.
    pub fn count_open(&self, uid: u32) -> Result<u32> {
        let sql = "SELECT count(*) FROM runs WHERE uid = ?1 AND state = 'running'";
        self.connection().query_row(sql, params![uid], |r| r.get(0))
    }

    /// Runs in Slurm that have not ended and of whose owner Slurm has said nothing yet, those that were heard of last
    /// first.
    pub fn unverified(&self, most: u32) -> Result<Vec<OpenRun>> {
        let sql = format!("{OPEN} AND r.verified = 0 AND r.job > 0 ORDER BY r.heard_s DESC LIMIT ?1");
        self.connection().query_map(&sql, params![most], open)
    }

    /// Notes that Slurm says that a run's job is its owner's, and who pays for it in which partition, where it says that.
    pub fn verify(&self, key: &RunKey, account: &str, partition: &str) -> Result<()> {
        let sql = "UPDATE runs SET verified = 1, account = CASE WHEN ?3 = '' THEN account ELSE ?3 END,
            \"partition\" = CASE WHEN ?4 = '' THEN \"partition\" ELSE ?4 END WHERE cluster = ?1 AND run = ?2";
        self.connection().execute(sql, params![key.cluster, key.run, account, partition])?;
        self.runs_changed();
        Ok(())
    }

    /// Ends runs that nobody watches and that were last heard of before a moment; how many.
    pub fn close_unverified(&self, heard_before_s: f64) -> Result<u64> {
        let sql = "UPDATE runs SET state = 'unknown', end_s = CASE WHEN heard_s > start_s THEN heard_s ELSE start_s END
            WHERE state = 'running' AND verified = 0 AND heard_s < ?1";
        let closed = self.connection().execute(sql, params![heard_before_s])?;
        if closed > 0 {
            self.runs_changed();
        }
        Ok(closed)
    }
}

fn open(r: &Row<'_>) -> Result<OpenRun> {
    let nodes: String = r.get(4)?;
    Ok(OpenRun {
        key: RunKey { cluster: r.get(0)?, run: r.get(1)? },
        job: r.get(2)?,
        restart_count: r.get(3)?,
        nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        record_state: r.get(5)?,
        uid: r.get(6)?,
        protection: r.get(7)?,
    })
}
