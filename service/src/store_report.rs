//! Reads what reports need from the store: a fixed number of queries, however many runs are wanted.

use crate::store::{Connection, Row, ToValue, Value, params};
use anyhow::Result;
use protocol::{
    CheckpointAccount, DecisionAccount, FailureAccount, LoanAccount, Phase, PhaseSpan, Plan, RecordAccount, RunAccount,
    Totals,
};
use std::collections::HashMap;

/// One value for each of the chosen runs, in their order.
pub type OfRuns<T> = Vec<T>;

/// A table is read from end to end where at least one run in so many is wanted, and else run by run.
const FEW: u64 = 4;

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

/// The runs of a selection, and where each stands among them.
pub struct Chosen<'a> {
    connection: &'a Connection,
    selection: &'a Selection,
    /// By cluster and name.
    places: HashMap<String, HashMap<String, usize>>,
    count: usize,
    /// Whether looking each of them up takes longer than reading a table from end to end.
    many: bool,
}

/// A run with its plan as text; what is added up is not there yet.
type Planned = (RunAccount, Option<String>);

/// The selected runs, oldest first.
///
/// # Errors
/// What the store says.
pub fn runs<'a>(connection: &'a Connection, selection: &'a Selection) -> Result<(Vec<Planned>, Chosen<'a>)> {
    let sql = format!(
        "SELECT cluster, run, job, user, account, job_name, state, start_s, end_s, plan FROM runs
         WHERE {} ORDER BY start_s, run",
        selection.condition()
    );
    let mut statement = connection.prepare_cached(&sql)?;
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
    let runs: Vec<Planned> = rows.collect::<Result<_>>()?;
    let mut places: HashMap<String, HashMap<String, usize>> = HashMap::new();
    for (place, (run, _)) in runs.iter().enumerate() {
        places.entry(run.cluster.clone()).or_default().insert(run.run.clone(), place);
    }
    let more = params![FEW * runs.len() as u64];
    let others = connection.prepare_cached("SELECT 1 FROM runs LIMIT 1 OFFSET ?1")?.query_optional(more, |_| Ok(()))?;
    let chosen = Chosen { connection, selection, places, count: runs.len(), many: others.is_none() };
    Ok((runs, chosen))
}

/// The plan that a column holds; an older one that is no longer understood is none.
pub fn plan(text: Option<&str>) -> Option<Plan> {
    text.and_then(|t| serde_json::from_str(t).ok())
}

/// Sums of one phase of a run's open or ended records with one source.
pub struct PhaseSum {
    /// Whether the record still runs.
    pub is_open: bool,
    /// Which phase.
    pub phase: String,
    /// Energy, J.
    pub joules: f64,
    /// Node-seconds.
    pub node_seconds: f64,
    /// Where the energy figures come from.
    pub source: String,
}

impl Chosen<'_> {
    /// Energy and time by phase and source.
    ///
    /// # Errors
    /// What the store says.
    pub fn phase_sums(&self, records: &OfRuns<Vec<RecordAccount>>) -> Result<OfRuns<Vec<PhaseSum>>> {
        let columns = "t.restart_count, t.phase, coalesce(t.joules, 0.0), t.end_s - t.start_s, t.source";
        self.fold("phases", columns, |place, sums: &mut Vec<PhaseSum>, r| {
            let is_open = record(&records[place], r.get(2)?).is_some_and(is_open);
            let (phase, source) = (r.text(3)?, r.text(6)?);
            let (joules, node_seconds): (f64, f64) = (r.get(4)?, r.get(5)?);
            let same = |s: &&mut PhaseSum| s.is_open == is_open && s.phase == phase && s.source == source;
            match sums.iter_mut().find(same) {
                Some(sum) => (sum.joules, sum.node_seconds) = (sum.joules + joules, sum.node_seconds + node_seconds),
                None => sums.push(PhaseSum {
                    is_open,
                    phase: phase.to_owned(),
                    joules,
                    node_seconds,
                    source: source.to_owned(),
                }),
            }
            Ok(())
        })
    }

    /// What the nodes' counters showed of records that have ended, J.
    ///
    /// # Errors
    /// What the store says.
    pub fn counted_j(&self, records: &OfRuns<Vec<RecordAccount>>) -> Result<OfRuns<f64>> {
        self.fold("counters", "t.restart_count, t.joules", |place, sum, r| {
            if record(&records[place], r.get(2)?).is_some_and(|record| !is_open(record)) {
                *sum += r.get::<f64>(3)?;
            }
            Ok(())
        })
    }

    /// Slurm job records, in order.
    ///
    /// # Errors
    /// What the store says.
    pub fn records(&self) -> Result<OfRuns<Vec<RecordAccount>>> {
        let columns = "t.job, t.restart_count, t.start_s, t.end_s, t.state, t.nodes";
        let mut all = self.lists("records", columns, |r| {
            Ok(RecordAccount {
                job: r.get(2)?,
                restart_count: r.get(3)?,
                start_s: r.get(4)?,
                end_s: r.get(5)?,
                state: r.get(6)?,
                nodes: serde_json::from_str(r.text(7)?).unwrap_or_default(),
            })
        })?;
        all.iter_mut().for_each(|records| records.sort_by_key(|r| r.restart_count));
        Ok(all)
    }

    /// Failures, in order of time.
    ///
    /// # Errors
    /// What the store says.
    pub fn failures(&self) -> Result<OfRuns<Vec<FailureAccount>>> {
        let columns = "t.kind, t.node, t.at_s, t.detected_s, t.counts, t.reason";
        let mut all = self.lists("failures", columns, |r| {
            let (at_s, detected_s): (f64, f64) = (r.get(4)?, r.get(5)?);
            Ok(FailureAccount {
                kind: r.get(2)?,
                node: r.get(3)?,
                at_s,
                detection_s: detected_s - at_s,
                counts: r.get(6)?,
                reason: r.get(7)?,
            })
        })?;
        by_time(&mut all, |failure| failure.at_s);
        Ok(all)
    }

    /// How many complete checkpoints each run has.
    ///
    /// # Errors
    /// What the store says.
    pub fn checkpoint_counts(&self) -> Result<OfRuns<u32>> {
        self.fold("checkpoints", "t.number", |_, count, _| {
            *count += 1;
            Ok(())
        })
    }

    /// Complete checkpoints, in order of time.
    ///
    /// # Errors
    /// What the store says.
    pub fn checkpoints(&self) -> Result<OfRuns<Vec<CheckpointAccount>>> {
        let columns = "t.number, t.begun_s, t.ended_s, t.bytes, t.joules";
        let mut all = self.lists("checkpoints", columns, |r| {
            let (begun_s, ended_s): (f64, f64) = (r.get(3)?, r.get(4)?);
            let seconds = ended_s - begun_s;
            Ok(CheckpointAccount { number: r.get(2)?, begun_s, seconds, bytes: r.get(5)?, joules: r.get(6)? })
        })?;
        by_time(&mut all, |checkpoint| checkpoint.begun_s);
        Ok(all)
    }

    /// What each node did, in order of time.
    ///
    /// # Errors
    /// What the store says.
    pub fn spans(&self) -> Result<OfRuns<Vec<PhaseSpan>>> {
        let columns = "t.node, t.phase, t.start_s, t.end_s, t.joules, t.source";
        let mut all = self.lists("phases", columns, |r| {
            let phase = r.text(3)?;
            Ok(PhaseSpan {
                node: r.get(2)?,
                phase: Phase::ALL.into_iter().find(|p| p.as_str() == phase).unwrap_or(Phase::Idle),
                start_s: r.get(4)?,
                end_s: r.get(5)?,
                joules: r.get(6)?,
                source: r.get(7)?,
            })
        })?;
        all.iter_mut().for_each(|spans| spans.sort_by(|a, b| a.node.cmp(&b.node)));
        by_time(&mut all, |span| span.start_s);
        Ok(all)
    }

    /// Decisions, in order of time.
    ///
    /// # Errors
    /// What the store says.
    pub fn decisions(&self) -> Result<OfRuns<Vec<DecisionAccount>>> {
        let mut all = self.lists("decisions", "t.at_s, t.action, t.reason, t.interval_s", |r| {
            Ok(DecisionAccount { at_s: r.get(2)?, action: r.get(3)?, reason: r.get(4)?, interval_s: r.get(5)? })
        })?;
        by_time(&mut all, |decision| decision.at_s);
        Ok(all)
    }

    /// Loans, in order of time.
    ///
    /// # Errors
    /// What the store says.
    pub fn loans(&self) -> Result<OfRuns<Vec<LoanAccount>>> {
        let mut all = self.lists("loans", "t.node, t.borrower, t.start_s, t.end_s, t.joules", |r| {
            Ok(LoanAccount {
                node: r.get(2)?,
                borrower: r.get(3)?,
                start_s: r.get(4)?,
                end_s: r.get(5)?,
                joules: r.get(6)?,
            })
        })?;
        all.iter_mut().for_each(|loans| loans.sort_by(|a, b| a.node.cmp(&b.node)));
        by_time(&mut all, |loan| loan.start_s);
        Ok(all)
    }

    /// The rows of a table, listed by run.
    fn lists<T>(&self, table: &str, columns: &str, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<OfRuns<Vec<T>>> {
        self.fold(table, columns, |_, list: &mut Vec<T>, row| {
            list.push(read(row)?);
            Ok(())
        })
    }

    /// The rows of a table, each added to what its run already has; `add` is told the run's place, and finds the
    /// wanted columns from 2 on.
    ///
    /// Run by run the join is a `CROSS JOIN`, by which SQLite begins with the runs.
    fn fold<T: Default>(
        &self,
        table: &str,
        columns: &str,
        add: impl Fn(usize, &mut T, &Row<'_>) -> Result<()>,
    ) -> Result<OfRuns<T>> {
        let (from, values) = if self.many {
            (format!("{table} t"), &[][..])
        } else {
            let runs = format!("(SELECT cluster, run FROM runs WHERE {}) w", self.selection.condition());
            let on = "ON t.cluster = w.cluster AND t.run = w.run";
            (format!("{runs} CROSS JOIN {table} t {on}"), &self.selection.values[..])
        };
        let sql = format!("SELECT t.cluster, t.run, {columns} FROM {from}");
        let mut all: OfRuns<T> = std::iter::repeat_with(T::default).take(self.count).collect();
        // Rows of one run mostly come together.
        let mut last = (String::new(), String::new(), None);
        let rows = self.connection.prepare_cached(&sql)?.query_map(values, |row| {
            let (cluster, run) = (row.text(0)?, row.text(1)?);
            if (last.0.as_str(), last.1.as_str()) != (cluster, run) {
                let place = self.places.get(cluster).and_then(|runs| runs.get(run)).copied();
                last = (cluster.to_owned(), run.to_owned(), place);
            }
            last.2.map_or(Ok(()), |place| add(place, &mut all[place], row))
        })?;
        rows.collect::<Result<()>>()?;
        Ok(all)
    }
}

/// One of the records of a run.
fn record(records: &[RecordAccount], restart_count: u32) -> Option<&RecordAccount> {
    records.iter().find(|record| record.restart_count == restart_count)
}

fn is_open(record: &RecordAccount) -> bool {
    record.state == "running"
}

/// Puts what each run has in order of time; what happened at once stays as it is.
fn by_time<T>(all: &mut OfRuns<Vec<T>>, at_s: impl Fn(&T) -> f64) {
    all.iter_mut().for_each(|list| list.sort_by(|a, b| at_s(a).total_cmp(&at_s(b))));
}
