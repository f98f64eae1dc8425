//! Tells what runs cost: reads a run's rows and adds them up.

use crate::store::{Connection, ToValue, Value, params};
use anyhow::Result;
use protocol::{
    AdminSummary, CheckpointAccount, FailureAccount, Phase, PhaseAccount, RecordAccount, RunAccount, RunKey, Totals,
};
use std::collections::{BTreeMap, BTreeSet};

/// Which runs are wanted; absent parts do not restrict.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Slurm job id.
    pub job: Option<u32>,
    /// User name.
    pub user: Option<String>,
    /// Slurm account.
    pub account: Option<String>,
    /// State of the run.
    pub state: Option<String>,
    /// Runs that had not ended by then.
    pub start: Option<f64>,
    /// Runs that had begun by then.
    pub end: Option<f64>,
}

/// The accounts of the runs that are wanted, oldest first; only those of `uid` if given.
///
/// # Errors
/// What the database says.
pub fn accounts(c: &Connection, wanted: &Wanted, uid: Option<u32>) -> Result<Vec<RunAccount>> {
    let mut conditions = vec!["1".to_string()];
    let mut values: Vec<Value> = Vec::new();
    let mut add = |condition: &str, value: &dyn ToValue| {
        values.push(value.to_value());
        conditions.push(condition.replace('?', &format!("?{}", values.len())));
    };
    if let Some(job) = wanted.job {
        add("job = ?", &job);
    }
    if let Some(user) = &wanted.user {
        add("user = ?", user);
    }
    if let Some(account) = &wanted.account {
        add("account = ?", account);
    }
    if let Some(state) = &wanted.state {
        add("state = ?", state);
    }
    if let Some(start) = wanted.start {
        add("(end_s IS NULL OR end_s >= ?)", &start);
    }
    if let Some(end) = wanted.end {
        add("start_s <= ?", &end);
    }
    if let Some(uid) = uid {
        add("uid = ?", &uid);
    }
    let sql = format!("SELECT cluster, run FROM runs WHERE {} ORDER BY start_s", conditions.join(" AND "));
    let mut statement = c.prepare_cached(&sql)?;
    let keys = statement.query_map(&values, |r| Ok(RunKey { cluster: r.get(0)?, run: r.get(1)? }))?;
    keys.map(|key| account(c, &key?)).collect()
}

/// The account of one run.
///
/// # Errors
/// What the database says.
pub fn account(c: &Connection, key: &RunKey) -> Result<RunAccount> {
    let of = params![key.cluster, key.run];
    let phases = phases(c, key)?;
    let records = records(c, key)?;
    let failures = failures(c, key)?;
    let checkpoints = checkpoints(c, key)?;
    let measured_j = measured_j(c, key)?;
    let mut statement = c.prepare_cached(
        "SELECT job, user, account, job_name, state, start_s, end_s, plan FROM runs WHERE cluster = ?1 AND run = ?2",
    )?;
    let mut run = statement.query_row(of, |r| {
        let plan: Option<String> = r.get(7)?;
        Ok(RunAccount {
            cluster: key.cluster.clone(),
            run: key.run.clone(),
            job: r.get(0)?,
            user: r.get(1)?,
            account: r.get(2)?,
            job_name: r.get(3)?,
            state: r.get(4)?,
            start_s: r.get(5)?,
            end_s: r.get(6)?,
            plan: plan.and_then(|p| serde_json::from_str(&p).ok()),
            total: Totals::default(),
            phases,
            records,
            failures,
            checkpoints,
        })
    })?;
    run.total = totals(&run, measured_j);
    Ok(run)
}

fn totals(run: &RunAccount, measured_j: f64) -> Totals {
    let of = |phase: Phase| run.phases.iter().find(|p| p.phase == phase);
    let joules = |phase| of(phase).map_or(0.0, |p| p.joules);
    let seconds = |phase| of(phase).map_or(0.0, |p| p.node_seconds);
    let all_s: f64 = run.phases.iter().map(|p| p.node_seconds).sum();
    let resilience_j = Phase::ALL.into_iter().filter(|p| *p != Phase::Compute).map(joules).sum();
    let over = |whole: f64, part: f64| (part > 0.0).then(|| (whole - part) / part);
    let last_s = run.end_s.or_else(|| run.records.last().map(|r| r.end_s.unwrap_or(r.start_s))).unwrap_or(run.start_s);
    Totals {
        joules: measured_j,
        resilience_j,
        recomputed_j: joules(Phase::LostWork),
        recomputed_node_s: seconds(Phase::LostWork),
        elapsed_s: last_s - run.start_s,
        held_s: run.records.iter().map(|r| r.end_s.unwrap_or(last_s) - r.start_s).sum::<f64>().max(0.0),
        failures: run.failures.iter().filter(|f| f.counts).count() as u32,
        checkpoints: run.checkpoints.len() as u32,
        energy_overhead: over(measured_j, joules(Phase::Compute)),
        time_overhead: over(all_s, seconds(Phase::Compute)),
    }
}

/// What the nodes' counters showed; of a record that is still open, what has been cut into phases.
fn measured_j(c: &Connection, key: &RunKey) -> Result<f64> {
    let mut statement = c.prepare_cached(
        "SELECT coalesce((SELECT sum(k.joules) FROM counters k JOIN records r USING (cluster, run, restart_count)
                          WHERE k.cluster = ?1 AND k.run = ?2 AND r.state <> 'running'), 0.0)
              + coalesce((SELECT sum(p.joules) FROM phases p JOIN records r USING (cluster, run, restart_count)
                          WHERE p.cluster = ?1 AND p.run = ?2 AND r.state = 'running'), 0.0)",
    )?;
    statement.query_row(params![key.cluster, key.run], |r| r.get(0))
}

fn phases(c: &Connection, key: &RunKey) -> Result<Vec<PhaseAccount>> {
    let mut statement = c.prepare_cached(
        "SELECT phase, sum(joules), sum(end_s - start_s), source FROM phases
         WHERE cluster = ?1 AND run = ?2 GROUP BY phase, source",
    )?;
    let mut sums: BTreeMap<String, (f64, f64, BTreeSet<String>)> = BTreeMap::new();
    let rows = statement.query_map(params![key.cluster, key.run], |r| {
        Ok((r.get::<String>(0)?, r.get::<Option<f64>>(1)?, r.get::<f64>(2)?, r.get::<String>(3)?))
    })?;
    for row in rows {
        let (phase, joules, seconds, source) = row?;
        let sum = sums.entry(phase).or_default();
        sum.0 += joules.unwrap_or(0.0);
        sum.1 += seconds;
        if !source.is_empty() {
            sum.2.insert(source);
        }
    }
    let all = Phase::ALL.into_iter().map(|phase| {
        let (joules, node_seconds, sources) = sums.remove(phase.as_str()).unwrap_or_default();
        let source = sources.into_iter().collect::<Vec<_>>().join(",");
        PhaseAccount { phase, joules, node_seconds, source }
    });
    Ok(all.collect())
}

fn records(c: &Connection, key: &RunKey) -> Result<Vec<RecordAccount>> {
    let mut statement = c.prepare_cached(
        "SELECT job, restart_count, start_s, end_s, state, nodes FROM records
         WHERE cluster = ?1 AND run = ?2 ORDER BY restart_count",
    )?;
    let rows = statement.query_map(params![key.cluster, key.run], |r| {
        let nodes: String = r.get(5)?;
        Ok(RecordAccount {
            job: r.get(0)?,
            restart_count: r.get(1)?,
            start_s: r.get(2)?,
            end_s: r.get(3)?,
            state: r.get(4)?,
            nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        })
    })?;
    rows.collect()
}

fn failures(c: &Connection, key: &RunKey) -> Result<Vec<FailureAccount>> {
    let mut statement = c.prepare_cached(
        "SELECT kind, node, at_s, detected_s, counts, reason FROM failures
         WHERE cluster = ?1 AND run = ?2 ORDER BY at_s, id",
    )?;
    let rows = statement.query_map(params![key.cluster, key.run], |r| {
        let (at_s, detected_s): (f64, f64) = (r.get(2)?, r.get(3)?);
        Ok(FailureAccount {
            kind: r.get(0)?,
            node: r.get(1)?,
            at_s,
            detection_s: detected_s - at_s,
            counts: r.get(4)?,
            reason: r.get(5)?,
        })
    })?;
    rows.collect()
}

fn checkpoints(c: &Connection, key: &RunKey) -> Result<Vec<CheckpointAccount>> {
    let mut statement = c.prepare_cached(
        "SELECT number, begun_s, ended_s, bytes, joules FROM checkpoints
         WHERE cluster = ?1 AND run = ?2 ORDER BY begun_s",
    )?;
    let rows = statement.query_map(params![key.cluster, key.run], |r| {
        let (begun_s, ended_s): (f64, f64) = (r.get(1)?, r.get(2)?);
        Ok(CheckpointAccount {
            number: r.get(0)?,
            begun_s,
            seconds: ended_s - begun_s,
            bytes: r.get(3)?,
            joules: r.get(4)?,
        })
    })?;
    rows.collect()
}

/// The short form of an account.
pub fn summary(run: &RunAccount) -> AdminSummary {
    let sources: BTreeSet<&str> =
        run.phases.iter().flat_map(|p| p.source.split(',')).filter(|s| !s.is_empty()).collect();
    AdminSummary {
        joulepoint: protocol::VERSION,
        run: run.run.clone(),
        joules: tenths(run.total.joules),
        resilience_j: tenths(run.total.resilience_j),
        lost_work_j: tenths(run.total.recomputed_j),
        checkpoints: run.total.checkpoints,
        failures: run.total.failures,
        source: sources.into_iter().collect::<Vec<_>>().join(","),
    }
}

fn tenths(joules: f64) -> f64 {
    (joules * 10.0).round() / 10.0
}
