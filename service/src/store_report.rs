//! Reads what reports need from the store: a fixed number of queries, however many runs are wanted.

use crate::store::{Connection, Row, ToValue, Value};
use anyhow::Result;
use protocol::{
    CheckpointAccount, DecisionAccount, FailureAccount, LoanAccount, Phase, PhaseSpan, Plan, RecordAccount, RunAccount,
    RunKey, Totals,
};
use std::collections::HashMap;

/// Rows of a table, by the run that they belong to.
pub type ByRun<T> = HashMap<RunKey, Vec<T>>;

/// Which runs: a condition on the columns of `runs`, and its values.
#[derive(Debug, Default)]
pub struct Selection {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Selection {
    /// Adds a condition with one `?` for each value.
    pub fn and<V: ToValue>(&mut self, condition: &str, values: impl IntoIterator<Item = V>) {
        let mut numbered = String::new();
        let mut values = values.into_iter();
        for part in condition.split_inclusive('?') {
            numbered += part.trim_end_matches('?');
            if part.ends_with('?')
                && let Some(value) = values.next()
            {
                self.values.push(value.to_value());
                numbered += &format!("?{}", self.values.len());
            }
        }
        self.conditions.push(numbered);
    }

    /// Adds `column IN (...)`; an empty list does not restrict.
    pub fn one_of<V: ToValue>(&mut self, column: &str, values: Vec<V>) {
        if !values.is_empty() {
            let marks = vec!["?"; values.len()].join(", ");
            self.and(&format!("{column} IN ({marks})"), values);
        }
    }

    fn condition(&self) -> String {
        if self.conditions.is_empty() { "1 = 1".to_string() } else { self.conditions.join(" AND ") }
    }
}

/// A row of `runs` with its plan as text; what is added up is not there yet.
///
/// # Errors
/// What the store says.
pub fn runs(c: &Connection, selection: &Selection) -> Result<Vec<(RunAccount, Option<String>)>> {
    let sql = format!(
        "SELECT cluster, run, job, user, account, job_name, state, start_s, end_s, plan FROM runs
         WHERE {} ORDER BY start_s, run",
        selection.condition()
    );
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map(&selection.values, |r| {
        let run = RunAccount {
            cluster: r.get(0)?,
            run: r.get(1)?,
            job: r.get(2)?,
            user: r.get(3)?,
            account: r.get(4)?,
            job_name: r.get(5)?,
            state: r.get(6)?,
            start_s: r.get(7)?,
            end_s: r.get(8)?,
            total: Totals::default(),
            phases: Vec::new(),
            records: Vec::new(),
            failures: Vec::new(),
            checkpoints: Vec::new(),
            spans: Vec::new(),
            decisions: Vec::new(),
            loans: Vec::new(),
            plan: None,
        };
        Ok((run, r.get(9)?))
    })?;
    rows.collect()
}

/// The plan that a column holds; an older one that is no longer understood is none.
pub fn plan(text: Option<&str>) -> Option<Plan> {
    text.and_then(|t| serde_json::from_str(t).ok())
}

/// Sums of one phase of a run with one source.
pub struct PhaseSum {
    /// Which phase.
    pub phase: String,
    /// Energy, J.
    pub joules: f64,
    /// Node-seconds.
    pub node_seconds: f64,
    /// Where the energy figures come from.
    pub source: String,
}

/// Energy and time by phase and source.
///
/// Added up here: a database would sort all rows for it, where they come run by run anyway.
///
/// # Errors
/// What the store says.
pub fn phase_sums(c: &Connection, selection: &Selection) -> Result<ByRun<PhaseSum>> {
    let columns = "t.phase, coalesce(t.joules, 0.0), t.end_s - t.start_s, t.source";
    fold(c, selection, columns, "phases", "", |sums: &mut Vec<PhaseSum>, r| {
        let (phase, source): (String, String) = (r.get(2)?, r.get(5)?);
        let (joules, node_seconds): (f64, f64) = (r.get(3)?, r.get(4)?);
        match sums.iter_mut().find(|s| s.phase == phase && s.source == source) {
            Some(sum) => (sum.joules, sum.node_seconds) = (sum.joules + joules, sum.node_seconds + node_seconds),
            None => sums.push(PhaseSum { phase, joules, node_seconds, source }),
        }
        Ok(())
    })
}

/// What the nodes' counters showed, J; of records that are still open, what has been cut into phases.
///
/// # Errors
/// What the store says.
pub fn measured_j(c: &Connection, selection: &Selection) -> Result<HashMap<RunKey, f64>> {
    let mut sums: HashMap<RunKey, f64> = HashMap::new();
    for (table, open) in [("counters", "<>"), ("phases", "=")] {
        let tail = format!(
            "CROSS JOIN {table} k ON k.cluster = t.cluster AND k.run = t.run AND k.restart_count = t.restart_count
             WHERE t.state {open} 'running' GROUP BY w.cluster, w.run"
        );
        let part: ByRun<f64> = rows(c, selection, "coalesce(sum(k.joules), 0.0)", "records", &tail, |r| r.get(2))?;
        for (key, joules) in part {
            *sums.entry(key).or_default() += joules.iter().sum::<f64>();
        }
    }
    Ok(sums)
}

/// Slurm job records, in order.
///
/// # Errors
/// What the store says.
pub fn records(c: &Connection, selection: &Selection) -> Result<ByRun<RecordAccount>> {
    let columns = "t.job, t.restart_count, t.start_s, t.end_s, t.state, t.nodes";
    rows(c, selection, columns, "records", "ORDER BY t.restart_count", |r| {
        let nodes: String = r.get(7)?;
        Ok(RecordAccount {
            job: r.get(2)?,
            restart_count: r.get(3)?,
            start_s: r.get(4)?,
            end_s: r.get(5)?,
            state: r.get(6)?,
            nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        })
    })
}

/// Failures, in order of time.
///
/// # Errors
/// What the store says.
pub fn failures(c: &Connection, selection: &Selection) -> Result<ByRun<FailureAccount>> {
    let columns = "t.kind, t.node, t.at_s, t.detected_s, t.counts, t.reason";
    rows(c, selection, columns, "failures", "ORDER BY t.at_s, t.id", |r| {
        let (at_s, detected_s): (f64, f64) = (r.get(4)?, r.get(5)?);
        Ok(FailureAccount {
            kind: r.get(2)?,
            node: r.get(3)?,
            at_s,
            detection_s: detected_s - at_s,
            counts: r.get(6)?,
            reason: r.get(7)?,
        })
    })
}

/// How many complete checkpoints each run has.
///
/// # Errors
/// What the store says.
pub fn checkpoint_counts(c: &Connection, selection: &Selection) -> Result<ByRun<u32>> {
    rows(c, selection, "count(*)", "checkpoints", "GROUP BY w.cluster, w.run", |r| r.get(2))
}

/// Complete checkpoints, in order of time.
///
/// # Errors
/// What the store says.
pub fn checkpoints(c: &Connection, selection: &Selection) -> Result<ByRun<CheckpointAccount>> {
    let columns = "t.number, t.begun_s, t.ended_s, t.bytes, t.joules";
    rows(c, selection, columns, "checkpoints", "ORDER BY t.begun_s", |r| {
        let (begun_s, ended_s): (f64, f64) = (r.get(3)?, r.get(4)?);
        let seconds = ended_s - begun_s;
        Ok(CheckpointAccount { number: r.get(2)?, begun_s, seconds, bytes: r.get(5)?, joules: r.get(6)? })
    })
}

/// What each node did, in order of time.
///
/// # Errors
/// What the store says.
pub fn spans(c: &Connection, selection: &Selection) -> Result<ByRun<PhaseSpan>> {
    let columns = "t.node, t.phase, t.start_s, t.end_s, t.joules, t.source";
    rows(c, selection, columns, "phases", "ORDER BY t.start_s, t.node", |r| {
        let phase: String = r.get(3)?;
        Ok(PhaseSpan {
            node: r.get(2)?,
            phase: Phase::ALL.into_iter().find(|p| p.as_str() == phase).unwrap_or(Phase::Idle),
            start_s: r.get(4)?,
            end_s: r.get(5)?,
            joules: r.get(6)?,
            source: r.get(7)?,
        })
    })
}

/// Decisions, in order of time.
///
/// # Errors
/// What the store says.
pub fn decisions(c: &Connection, selection: &Selection) -> Result<ByRun<DecisionAccount>> {
    let columns = "t.at_s, t.action, t.reason, t.interval_s";
    rows(c, selection, columns, "decisions", "ORDER BY t.at_s, t.id", |r| {
        Ok(DecisionAccount { at_s: r.get(2)?, action: r.get(3)?, reason: r.get(4)?, interval_s: r.get(5)? })
    })
}

/// Loans, in order of time.
///
/// # Errors
/// What the store says.
pub fn loans(c: &Connection, selection: &Selection) -> Result<ByRun<LoanAccount>> {
    let columns = "t.node, t.borrower, t.start_s, t.end_s, t.joules";
    rows(c, selection, columns, "loans", "ORDER BY t.start_s, t.node", |r| {
        Ok(LoanAccount {
            node: r.get(2)?,
            borrower: r.get(3)?,
            start_s: r.get(4)?,
            end_s: r.get(5)?,
            joules: r.get(6)?,
        })
    })
}

/// The rows of `table` that belong to the selected runs. `read` finds the run in the first two columns.
fn rows<T>(
    c: &Connection,
    selection: &Selection,
    columns: &str,
    table: &str,
    tail: &str,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<ByRun<T>> {
    fold(c, selection, columns, table, tail, |list, row| {
        list.push(read(row)?);
        Ok(())
    })
}

/// The same, each row added to what its run already has.
///
/// The joins are `CROSS JOIN`, by which SQLite begins with the runs; else it reads the whole of the larger table.
fn fold<T>(
    c: &Connection,
    selection: &Selection,
    columns: &str,
    table: &str,
    tail: &str,
    add: impl Fn(&mut Vec<T>, &Row<'_>) -> Result<()>,
) -> Result<ByRun<T>> {
    let sql = format!(
        "SELECT w.cluster, w.run, {columns} FROM (SELECT cluster, run FROM runs WHERE {}) w
         CROSS JOIN {table} t ON t.cluster = w.cluster AND t.run = w.run {tail}",
        selection.condition()
    );
    let mut by_run: ByRun<T> = HashMap::new();
    let mut last: Option<(RunKey, Vec<T>)> = None;
    let mut statement = c.prepare_cached(&sql)?;
    let found = statement.query_map(&selection.values, |row| {
        let key = RunKey { cluster: row.get(0)?, run: row.get(1)? };
        // Rows of one run mostly come together.
        let (_, list) = match &mut last {
            Some(last) if last.0 == key => last,
            _ => {
                by_run.extend(last.take());
                let list = by_run.remove(&key).unwrap_or_default();
                last.insert((key, list))
            }
        };
        add(list, row)
    })?;
    found.collect::<Result<()>>()?;
    by_run.extend(last);
    Ok(by_run)
}
