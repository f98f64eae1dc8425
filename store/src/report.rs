//! Reads what reports need from the store: a fixed number of queries, however many runs are wanted.

use crate::database::{Connection, Row};
use crate::error::Result;
use crate::value::value;
use protocol::{
    Bill, CheckpointAccount, DecisionAccount, FailureAccount, LoanAccount, Phase, PhaseSpan, Plan, RecordAccount,
    RunAccount, Totals,
};
use rusqlite::types::{ToSql, Value};
use std::iter::Peekable;
use std::vec::IntoIter;
use tariff::{KWH_J, Rates, Tariff};

/// Rows of a table, run by run as they are chosen.
pub struct ByRun<T>(Peekable<IntoIter<(i64, T)>>);

impl<T> Default for ByRun<T> {
    fn default() -> Self {
        ByRun(Vec::new().into_iter().peekable())
    }
}

impl<T: Default> ByRun<T> {
    /// What belongs to the run at a place; places are asked for in rising order.
    pub fn of(&mut self, place: i64) -> T {
        while self.0.next_if(|(at, _)| *at < place).is_some() {}
        self.0.next_if(|(at, _)| *at == place).map(|(_, of_run)| of_run).unwrap_or_default()
    }
}

/// Which runs: a condition on the columns of `runs`, and its values.
#[derive(Debug, Default)]
pub struct Selection {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Selection {
    /// Adds a condition with one `?` for each value.
    pub fn and<V: ToSql>(&mut self, condition: &str, values: impl IntoIterator<Item = V>) {
        let mut numbered = String::new();
        let mut values = values.into_iter();
        for part in condition.split_inclusive('?') {
            numbered += part.trim_end_matches('?');
            if part.ends_with('?')
                && let Some(given) = values.next()
            {
                self.values.push(value(&given));
                numbered += &format!("?{}", self.values.len());
            }
        }
        self.conditions.push(numbered);
    }

    /// Adds `column IN (...)`; an empty list does not restrict.
    pub fn one_of<V: ToSql>(&mut self, column: &str, values: Vec<V>) {
        if !values.is_empty() {
            let marks = vec!["?"; values.len()].join(", ");
            self.and(&format!("{column} IN ({marks})"), values);
        }
    }

    fn condition(&self) -> String {
        if self.conditions.is_empty() { "1 = 1".to_string() } else { self.conditions.join(" AND ") }
    }
}

/// Notes which runs are wanted, for all that is read in this transaction.
pub fn choose(c: &Connection, selection: &Selection) -> Result<()> {
    c.execute("DELETE FROM chosen", &[])?;
    let sql = format!(
        "INSERT INTO chosen (cluster, run) SELECT cluster, run FROM runs WHERE {} ORDER BY cluster, run",
        selection.condition()
    );
    c.execute(&sql, &selection.values).map(drop)
}

/// How many runs are wanted, and how many bytes their records have.
pub fn size(c: &Connection, selection: &Selection) -> Result<(u64, u64)> {
    let sql = format!("SELECT count(*), coalesce(sum(bytes), 0) FROM runs WHERE {}", selection.condition());
    c.query_row(&sql, &selection.values, |r| Ok((r.get(0)?, r.get(1)?)))
}

/// A row of `runs` with its place and its plan as text; what is added up is not there yet.
pub fn runs(c: &Connection) -> Result<Vec<(i64, RunAccount, Option<String>)>> {
    let sql =
        "SELECT w.place, t.cluster, t.run, t.job, t.user, t.account, t.job_name, t.state, t.start_s, t.end_s, t.plan,
               t.verified, t.protection, t.\"partition\", coalesce(t.slurm_id, '')
               FROM chosen w CROSS JOIN runs t ON t.cluster = w.cluster AND t.run = w.run ORDER BY w.place";
    c.query_map(sql, &[], |r| {
        let (job, named): (u32, String) = (r.get(3)?, r.get(14)?);
        let run = RunAccount {
            cluster: r.get(1)?,
            run: r.get(2)?,
            job,
            job_id: if named.is_empty() { job.to_string() } else { named },
            partition: r.get(13)?,
            user: r.get(4)?,
            account: r.get(5)?,
            job_name: r.get(6)?,
            state: r.get(7)?,
            waits: false,
            start_s: r.get(8)?,
            end_s: r.get(9)?,
            total: Totals::default(),
            phases: Vec::new(),
            records: Vec::new(),
            failures: Vec::new(),
            checkpoints: Vec::new(),
            spans: Vec::new(),
            decisions: Vec::new(),
            loans: Vec::new(),
            protection: r.get::<Option<String>>(12)?.and_then(|text| serde_json::from_str(&text).ok()),
            plan: None,
            verified: r.get(11)?,
            trouble: String::new(),
        };
        Ok((r.get(0)?, run, r.get(10)?))
    })
}

/// The plan that a column holds; an older one that is no longer understood is none.
pub fn plan(text: Option<&str>) -> Option<Plan> {
    text.and_then(|t| serde_json::from_str(t).ok())
}

/// Sums of one phase of a run's record with one source.
pub struct PhaseSum {
    /// SLURM_RESTART_COUNT of the record.
    pub restart_count: u32,
    /// Which phase.
    pub phase: String,
    /// Energy, J; none if nothing was read.
    pub joules: Option<f64>,
    /// Node-seconds.
    pub node_seconds: f64,
    /// Until when it is known.
    pub until_s: f64,
    /// Where the energy figures come from.
    pub source: String,
    /// What the energy costs by a tariff.
    pub bill: Bill,
}

/// What is known of the cost of no energy.
const NOTHING: Bill = Bill { price: Some(0.0), co2_g: Some(0.0), is_by_hours: true };

/// What energies cost of which `whole_j` was measured: more or less than was told by phase costs as much more or less.
pub fn bill<'a>(sums: impl Iterator<Item = &'a PhaseSum>, whole_j: f64) -> Bill {
    let (mut joules, mut bill) = (0.0, NOTHING);
    for sum in sums {
        let add = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        joules += sum.joules.unwrap_or(0.0);
        let (price, co2_g) = (add(bill.price, sum.bill.price), add(bill.co2_g, sum.bill.co2_g));
        bill = Bill { price, co2_g, is_by_hours: bill.is_by_hours && sum.bill.is_by_hours };
    }
    let of_whole = |part: f64| if joules > 0.0 { part * whole_j / joules } else { part };
    Bill { price: bill.price.map(of_whole), co2_g: bill.co2_g.map(of_whole), ..bill }
}

/// Adds what some more energy costs.
fn add_to(bill: &mut Bill, joules: f64, (rates, is_by_hours): &(Rates, bool)) {
    let add = |sum: Option<f64>, per_kwh: Option<f64>| Some(sum? + joules / KWH_J * per_kwh?);
    let (price, co2_g) = (add(bill.price, rates.price_per_kwh), add(bill.co2_g, rates.co2_g_per_kwh));
    *bill = Bill { price, co2_g, is_by_hours: bill.is_by_hours && *is_by_hours };
}

/// Energy and time by record, phase and source.
///
/// Added up here: a database would sort all rows for it, where they come run by run anyway.
pub fn phase_sums(c: &Connection, tariff: Option<&Tariff>) -> Result<ByRun<Vec<PhaseSum>>> {
    let columns = "t.restart_count, t.phase, t.source, t.joules, t.end_s - t.start_s, t.end_s";
    fold(c, columns, "phases", "", |sums: &mut Vec<PhaseSum>, r| {
        let (restart_count, joules): (u32, Option<f64>) = (r.get(1)?, r.get(4)?);
        let (node_seconds, until_s): (f64, f64) = (r.get(5)?, r.get(6)?);
        let cost = |bill: &mut Bill| {
            if let (Some(tariff), Some(joules)) = (tariff, joules) {
                add_to(bill, joules, &tariff.mean(until_s - node_seconds, until_s));
            }
        };
        let mut same = None;
        for (at, sum) in sums.iter().enumerate() {
            if sum.restart_count == restart_count && r.holds(2, &sum.phase)? && r.holds(3, &sum.source)? {
                same = Some(at);
            }
        }
        match same.and_then(|at| sums.get_mut(at)) {
            Some(sum) => {
                sum.joules = [sum.joules, joules].into_iter().flatten().reduce(|sum, joules| sum + joules);
                sum.node_seconds += node_seconds;
                sum.until_s = sum.until_s.max(until_s);
                cost(&mut sum.bill);
            }
            None => {
                let (phase, source) = (r.get(2)?, r.get(3)?);
                let mut bill = NOTHING;
                cost(&mut bill);
                sums.push(PhaseSum { restart_count, phase, joules, node_seconds, until_s, source, bill });
            }
        }
        Ok(())
    })
}

/// What a node's counter showed.
pub struct Counted {
    /// SLURM_RESTART_COUNT of the record.
    pub restart_count: u32,
    /// By whoever told the most, J.
    pub joules: f64,
    /// By the node service itself, J.
    pub metered_j: Option<f64>,
}

/// What the nodes' counters showed.
pub fn counters(c: &Connection) -> Result<ByRun<Vec<Counted>>> {
    rows(c, "t.restart_count, t.joules, t.metered_j", "counters", "", |r| {
        Ok(Counted { restart_count: r.get(1)?, joules: r.get(2)?, metered_j: r.get(3)? })
    })
}

/// Slurm job records, in order; if brief, without their nodes.
pub fn records(c: &Connection, brief: bool) -> Result<ByRun<Vec<RecordAccount>>> {
    let nodes = if brief { "'[]'" } else { "t.nodes" };
    let columns = &format!("t.job, t.restart_count, t.start_s, t.end_s, t.state, {nodes}");
    rows(c, columns, "records", ", t.restart_count", |r| {
        let nodes: String = r.get(6)?;
        Ok(RecordAccount {
            job: r.get(1)?,
            restart_count: r.get(2)?,
            start_s: r.get(3)?,
            end_s: r.get(4)?,
            state: r.get(5)?,
            nodes: serde_json::from_str(&nodes).unwrap_or_default(),
            metered_j: None,
        })
    })
}

/// Failures, in order of time.
pub fn failures(c: &Connection) -> Result<ByRun<Vec<FailureAccount>>> {
    let columns = "t.kind, t.node, t.at_s, t.detected_s, t.counts, t.reason";
    rows(c, columns, "failures", ", t.at_s, t.id", |r| {
        let (at_s, detected_s): (f64, f64) = (r.get(3)?, r.get(4)?);
        Ok(FailureAccount {
            kind: r.get(1)?,
            node: r.get(2)?,
            at_s,
            detection_s: detected_s - at_s,
            counts: r.get(5)?,
            reason: r.get(6)?,
        })
    })
}

/// How many complete checkpoints each run has.
pub fn checkpoint_counts(c: &Connection) -> Result<ByRun<u32>> {
    fold(c, "1", "checkpoints", "", |count, _| {
        *count += 1;
        Ok(())
    })
}

/// Complete checkpoints, in order of time.
pub fn checkpoints(c: &Connection) -> Result<ByRun<Vec<CheckpointAccount>>> {
    let columns = "t.number, t.begun_s, t.ended_s, t.bytes, t.joules, t.still_s, t.written_bytes";
    rows(c, columns, "checkpoints", ", t.begun_s", |r| {
        let (begun_s, ended_s): (f64, f64) = (r.get(2)?, r.get(3)?);
        Ok(CheckpointAccount {
            number: r.get(1)?,
            begun_s,
            seconds: ended_s - begun_s,
            bytes: r.get(4)?,
            joules: r.get(5)?,
            still_s: r.get(6)?,
            written_bytes: r.get(7)?,
        })
    })
}

/// What each node did, in order of time.
pub fn spans(c: &Connection) -> Result<ByRun<Vec<PhaseSpan>>> {
    let columns = "t.node, t.phase, t.start_s, t.end_s, t.joules, t.source";
    rows(c, columns, "phases", ", t.start_s, t.node", |r| {
        let phase: String = r.get(2)?;
        Ok(PhaseSpan {
            node: r.get(1)?,
            phase: Phase::ALL.into_iter().find(|p| p.as_str() == phase).unwrap_or(Phase::Idle),
            start_s: r.get(3)?,
            end_s: r.get(4)?,
            joules: r.get(5)?,
            source: r.get(6)?,
        })
    })
}

/// Decisions, in order of time.
pub fn decisions(c: &Connection) -> Result<ByRun<Vec<DecisionAccount>>> {
    let columns = "t.at_s, t.action, t.reason, t.interval_s";
    rows(c, columns, "decisions", ", t.at_s, t.id", |r| {
        Ok(DecisionAccount { at_s: r.get(1)?, action: r.get(2)?, reason: r.get(3)?, interval_s: r.get(4)? })
    })
}

/// Loans, in order of time.
pub fn loans(c: &Connection) -> Result<ByRun<Vec<LoanAccount>>> {
    let columns = "t.node, t.borrower, t.start_s, t.end_s, t.joules";
    rows(c, columns, "loans", ", t.start_s, t.node, t.borrower", |r| {
        Ok(LoanAccount {
            node: r.get(1)?,
            borrower: r.get::<Option<u32>>(2)?.filter(|job| *job > 0),
            start_s: r.get(3)?,
            end_s: r.get(4)?,
            joules: r.get(5)?,
        })
    })
}

/// The rows of `table` that belong to the chosen runs, each run's in an order; columns count from 1.
fn rows<T>(
    c: &Connection,
    columns: &str,
    table: &str,
    order: &str,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<ByRun<Vec<T>>> {
    fold(c, columns, table, order, |list: &mut Vec<T>, row| {
        list.push(read(row)?);
        Ok(())
    })
}

/// The same, each row added to what its run already has.
///
/// The joins are `CROSS JOIN`, by which SQLite begins with the runs; else it reads the whole of the larger table.
fn fold<T: Default>(
    c: &Connection,
    columns: &str,
    table: &str,
    order: &str,
    add: impl Fn(&mut T, &Row<'_>) -> Result<()>,
) -> Result<ByRun<T>> {
    let sql = format!(
        "SELECT w.place, {columns} FROM chosen w CROSS JOIN {table} t ON t.cluster = w.cluster AND t.run = w.run
         ORDER BY w.place{order}"
    );
    let mut by_run: Vec<(i64, T)> = Vec::new();
    c.each(&sql, &[], |row| {
        let place = row.get(0)?;
        match by_run.last_mut().filter(|(at, _)| *at == place) {
            Some((_, of_run)) => add(of_run, row),
            None => {
                let mut of_run = T::default();
                add(&mut of_run, row)?;
                by_run.push((place, of_run));
                Ok(())
            }
        }
    })?;
    Ok(ByRun(by_run.into_iter().peekable()))
}
