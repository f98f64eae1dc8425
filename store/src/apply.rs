//! What an event of a run changes in the tables.

use crate::calibrations::{self, Measured};
use crate::database::{Connection, Row};
use crate::error::Result;
use crate::report;
use crate::rows::Rows;
use crate::value::{params, row, value};
use planner::restart::takes_up;
use protocol::{Event, FailureKind, JobReading, LoanAccount, Operation, Phase, Plan, Record, RunKey};
use rusqlite::types::Value;
use std::collections::BTreeSet;

/// Two tellings of a node's death within this time are one death, s.
const SAME_DEATH_S: f64 = 120.0;

/// Characters that the column of a name holds.
const LONGEST_NAME: usize = 255;

/// Energy below this is rounding, J.
const ROUNDING_J: f64 = 1e-9;

/// As much of a name as its column holds.
pub fn short(name: &str) -> &str {
    name.char_indices().nth(LONGEST_NAME).map_or(name, |(end, _)| &name[..end])
}

/// The records of a run on their way into the tables, within the transaction that stores them. What only adds rows is
/// inserted together, before anything that looks at them.
pub struct Applying<'a> {
    c: &'a Connection,
    key: &'a RunKey,
    uid: u32,
    verified: bool,
    /// SLURM_RESTART_COUNT of the run's current record, once it was looked up.
    current: Option<u32>,
    /// Records that have got phases or readings after they were closed.
    late: BTreeSet<u32>,
    phases: Rows,
    counters: Rows,
}

impl<'a> Applying<'a> {
    /// Nothing yet, of a run whose records `uid` sends; `verified` says whether Slurm knows the run's job as theirs.
    pub fn new(c: &'a Connection, key: &'a RunKey, uid: u32, verified: bool) -> Applying<'a> {
        Applying { c, key, uid, verified, current: None, late: BTreeSet::new(), phases: phases(), counters: counters() }
    }

    /// Applies one event.
    pub fn apply(&mut self, record: &Record) -> Result<()> {
        self.change(record.at_s, &record.event)
    }

    /// Inserts what is still on its way.
    pub fn end(mut self) -> Result<()> {
        self.insert()
    }

    fn insert(&mut self) -> Result<()> {
        self.phases.insert(self.c)?;
        self.counters.insert(self.c)?;
        // What comes for a record that was closed without it was counted there as the rest.
        let late = std::mem::take(&mut self.late);
        late.into_iter().try_for_each(|restart_count| give_rest(self.c, self.key, restart_count, None))
    }

    fn current(&mut self) -> Result<u32> {
        let current = self.current.map_or_else(|| current(self.c, self.key), Ok)?;
        self.current = Some(current);
        Ok(current)
    }

    /// The current record, which gets a phase or a reading.
    fn adding(&mut self) -> Result<u32> {
        let is_known = self.current.is_some();
        let current = self.current()?;
        if !is_known && !is_open(self.c, self.key, current)? {
            self.late.insert(current);
        }
        Ok(current)
    }

    fn change(&mut self, at_s: f64, event: &Event) -> Result<()> {
        let Applying { c, key, uid, verified, .. } = *self;
        let RunKey { cluster, run } = key;
        if !matches!(event, Event::Phase { .. } | Event::Reading { .. }) {
            self.insert()?;
            self.current = None;
        }
        match event {
            Event::Started { job, restart_count, user, account, partition, job_name, nodes, resumed_from, .. } => {
                close_earlier(c, key, *restart_count, at_s)?;
                say_unaccounted(c, key, *restart_count, at_s)?;
                c.execute("INSERT INTO runs (cluster, run, job, uid, user, account, \"partition\", job_name, state, start_s,
                 restart_count, verified) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'running', ?9, ?10, ?11)
                 ON CONFLICT (cluster, run) DO UPDATE SET state = 'running', end_s = NULL, restart_count = ?10, job = ?3,
                 verified = CASE WHEN ?11 = 1 THEN 1 ELSE verified END", params![
                cluster,
                run,
                job,
                uid,
                short(user),
                short(account),
                short(partition),
                short(job_name),
                at_s,
                restart_count,
                verified
            ])?;
                c.execute(
                    "INSERT INTO records VALUES (?1, ?2, ?3, ?4, ?5, NULL, 'running', ?6)
                 ON CONFLICT (cluster, run, restart_count) DO UPDATE SET state = 'running', end_s = NULL",
                    params![cluster, run, restart_count, job, at_s, serde_json::to_string(nodes)?],
                )?;
                if let Some(number) = resumed_from {
                    c.execute(
                        "INSERT OR IGNORE INTO resumed VALUES (?1, ?2, ?3, ?4)",
                        params![cluster, run, restart_count, number],
                    )?;
                }
            }
            Event::Planned(plan) => {
                c.execute(
                    "UPDATE runs SET plan = ?3 WHERE cluster = ?1 AND run = ?2",
                    params![cluster, run, serde_json::to_string(plan)?],
                )?;
            }
            Event::Protection(protection) => {
                let sql = "UPDATE runs SET protection_state = ?3, protection = ?4 WHERE cluster = ?1 AND run = ?2";
                let text = serde_json::to_string(protection)?;
                c.execute(sql, params![cluster, run, protection.state.as_str(), text])?;
            }
            Event::Messages(messages) => {
                let sql = "UPDATE runs SET messages = ?3 WHERE cluster = ?1 AND run = ?2";
                c.execute(sql, params![cluster, run, serde_json::to_string(messages)?])?;
            }
            Event::Phase { phase, node, start_s, end_s, joules, source } => {
                let (current, span) = (self.adding()?, (*start_s, *end_s));
                if *phase == Phase::Restart {
                    self.restarted(at_s, node, span)?;
                }
                self.phases.push(phase_row(key, current, node, phase.as_str(), span, (*joules, source), false));
            }
            Event::Reading { node, reading } => {
                let current = self.adding()?;
                self.counters.push(counter(key, current, node, at_s, reading, None));
            }
            Event::Committed { number, begun_s, ended_s, bytes, written_bytes, joules, still_s } => {
                c.execute(
                    "INSERT OR IGNORE INTO checkpoints VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    params![cluster, run, number, begun_s, ended_s, bytes, joules, still_s, written_bytes],
                )?;
            }
            Event::CheckpointFailed { reason } => decision(c, key, at_s, "checkpoint failed", reason, 0.0)?,
            Event::Failure { kind, node, failed_s, detected_s, reason } => {
                failure(c, key, *kind, node.as_deref(), *failed_s, *detected_s, reason)?;
            }
            Event::RolledBack { kept_until_s, .. } => roll_back(c, key, *kept_until_s, &[])?,
            Event::InGroup { nodes, of, .. } => match &**of {
                Event::RolledBack { kept_until_s, .. } => {
                    nodes.chunks(TOGETHER).try_for_each(|nodes| roll_back(c, key, *kept_until_s, nodes))?;
                }
                // What holds groups is no group.
                Event::InGroup { .. } => {}
                of => self.change(at_s, of)?,
            },
            Event::Lent { node, borrower, start_s, end_s, joules } => {
                let (node, end_s) = (node.clone(), Some(*end_s));
                lent(c, key, &LoanAccount { node, borrower: *borrower, start_s: *start_s, end_s, joules: *joules })?;
            }
            Event::Decided { action, reason, interval_s } => decision(c, key, at_s, action, reason, *interval_s)?,
            Event::Ordered { verb, by, text, .. } => {
                decision(c, key, at_s, verb.as_str(), &format!("ordered by {by}: {text}"), 0.0)?;
            }
            Event::Ended { state, .. } => {
                // A job that is ended from outside takes that time without us, too.
                let rest = if matches!(state.as_str(), "cancelled" | "timeout") { Phase::Compute } else { Phase::Idle };
                close_record(c, key, current(c, key)?, at_s, state, rest)?;
                // A run that was requeued or interrupted goes on, or is closed by the watch.
                if !matches!(state.as_str(), "requeued" | "interrupted") {
                    c.execute(
                        "UPDATE runs SET state = ?3, end_s = ?4 WHERE cluster = ?1 AND run = ?2",
                        params![cluster, run, state, at_s],
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Applying<'_> {
    /// The wrapper's own node brings the checkpoint back.
    fn restarted(&mut self, at_s: f64, node: &str, span: (f64, f64)) -> Result<()> {
        let is_restart = |(record_s, nodes): &(f64, Vec<String>)| {
            takes_up(*record_s, span) && nodes.first().is_some_and(|n| n == node)
        };
        let current = self.current()?;
        if record(self.c, self.key, current)?.filter(is_restart).is_some()
            && let Some(bytes) = resumed_bytes(self.c, self.key)?
        {
            let (operation, time_s) = (Operation::CheckpointRead, span.1 - span.0);
            teach(self.c, self.key, current, at_s, &Measured { operation, bytes, time_s, joules: None });
        }
        Ok(())
    }
}

/// Corrects the calibration by what a record measured, of a run whose job is its user's by Slurm's word. Whatever becomes
/// of this, the record counts.
fn teach(c: &Connection, key: &RunKey, restart_count: u32, at_s: f64, measured: &Measured) {
    let learn = || match (verified_owner(c, key)?, plan(c, key)?, record(c, key, restart_count)?) {
        (Some(uid), Some(plan), Some((_, nodes))) => calibrations::learn(c, (at_s, uid), &plan, &nodes, measured),
        _ => Ok(()),
    };
    if let Err(e) = learn() {
        tracing::warn!(error = format!("{e:#}"), "a calibration was not corrected");
    }
}

/// User id of a run's owner, if Slurm says that its job is theirs.
fn verified_owner(c: &Connection, key: &RunKey) -> Result<Option<u32>> {
    c.query_optional(
        "SELECT uid FROM runs WHERE cluster = ?1 AND run = ?2 AND verified = 1",
        params![key.cluster, key.run],
        |r| r.get(0),
    )
}

/// SLURM_RESTART_COUNT of the run's current record.
fn current(c: &Connection, key: &RunKey) -> Result<u32> {
    c.query_row("SELECT restart_count FROM runs WHERE cluster = ?1 AND run = ?2", params![key.cluster, key.run], |r| {
        r.get(0)
    })
}

/// A record of a run: when it began, and its nodes, the wrapper's own first.
fn record(c: &Connection, key: &RunKey, restart_count: u32) -> Result<Option<(f64, Vec<String>)>> {
    let read = |r: &Row| Ok((r.get(0)?, r.get(1)?));
    let row: Option<(f64, String)> = c.query_optional(
        "SELECT start_s, nodes FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3",
        params![key.cluster, key.run, restart_count],
        read,
    )?;
    Ok(row.map(|(start_s, nodes)| (start_s, serde_json::from_str(&nodes).unwrap_or_default())))
}

/// What was planned for a run; nothing where its plan is not understood.
fn plan(c: &Connection, key: &RunKey) -> Result<Option<Plan>> {
    let read = |r: &Row| r.get::<Option<String>>(0);
    let text = c
        .query_optional("SELECT plan FROM runs WHERE cluster = ?1 AND run = ?2", params![key.cluster, key.run], read)?
        .flatten();
    Ok(report::plan(text.as_deref()))
}

/// The mean checkpoint of a record that is over: all of them together are one observation, since they share volume, place
/// and hour.
fn mean_checkpoint(c: &Connection, key: &RunKey, restart_count: u32) -> Result<Option<Measured>> {
    let operation = Operation::CheckpointWrite;
    let read = |r: &Row| Ok(Measured { operation, bytes: r.get(0)?, time_s: r.get(1)?, joules: r.get(2)? });
    c.query_optional("SELECT avg(k.bytes * 1e0), avg(k.ended_s - k.begun_s), avg(k.joules) FROM checkpoints k
         JOIN records r ON r.cluster = k.cluster AND r.run = k.run AND r.start_s <= k.begun_s
         WHERE r.cluster = ?1 AND r.run = ?2 AND r.restart_count = ?3 AND NOT EXISTS
         (SELECT 1 FROM records n WHERE n.cluster = ?1 AND n.run = ?2 AND n.restart_count > ?3 AND n.start_s <= k.begun_s)
         HAVING count(*) > 0", params![key.cluster, key.run, restart_count], read)
}

/// Volume of the checkpoint from which a run's current record went on.
fn resumed_bytes(c: &Connection, key: &RunKey) -> Result<Option<f64>> {
    c.query_optional(
        "SELECT k.bytes * 1e0 FROM resumed r
         JOIN checkpoints k ON k.cluster = r.cluster AND k.run = r.run AND k.number = r.number
         WHERE r.cluster = ?1 AND r.run = ?2 AND r.restart_count =
         (SELECT max(o.restart_count) FROM records o WHERE o.cluster = ?1 AND o.run = ?2)",
        params![key.cluster, key.run],
        |r| r.get(0),
    )
}

fn phases() -> Rows {
    Rows::new("phases (cluster, run, restart_count, node, phase, start_s, end_s, joules, source, is_rest)", 10, "")
}

fn phase_row(
    RunKey { cluster, run }: &RunKey,
    restart_count: u32,
    node: &str,
    phase: &str,
    (start_s, end_s): (f64, f64),
    (joules, source): (Option<f64>, &str),
    is_rest: bool,
) -> [Value; 10] {
    row![cluster, run, restart_count, node, phase, start_s, end_s, joules, source, is_rest]
}

fn decision(c: &Connection, key: &RunKey, at_s: f64, action: &str, reason: &str, interval_s: f64) -> Result<()> {
    c.execute(
        "INSERT INTO decisions (cluster, run, at_s, action, reason, interval_s) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![key.cluster, key.run, at_s, action, reason, interval_s],
    )?;
    Ok(())
}

/// Readings of counters, of which the highest values are kept: those that anybody told, and those of the node services.
pub fn counters() -> Rows {
    Rows::new(
        "counters (cluster, run, restart_count, node, since_s, at_s, joules, source, metered_j)",
        9,
        "ON CONFLICT (cluster, run, restart_count, node, since_s) DO UPDATE SET
         joules = CASE WHEN excluded.joules > joules THEN excluded.joules ELSE joules END,
         at_s = CASE WHEN excluded.at_s > at_s THEN excluded.at_s ELSE at_s END,
         metered_j = CASE WHEN excluded.metered_j IS NULL OR excluded.metered_j < metered_j THEN metered_j
                          ELSE excluded.metered_j END",
    )
}

/// What a counter that began at `since_s` showed in earlier lives of the same job, J: a node may not know yet that a later one has
/// begun there.
pub fn counted_before(c: &Connection, key: &RunKey, restart_count: u32, node: &str, since_s: f64) -> Result<f64> {
    if restart_count == 0 {
        return Ok(0.0);
    }
    c.query_row(
        "SELECT coalesce(max(k.joules), 0.0) FROM runs r JOIN counters k ON k.cluster = r.cluster AND k.run = r.run
         WHERE r.job = (SELECT job FROM runs WHERE cluster = ?1 AND run = ?2) AND r.cluster = ?1 AND k.node = ?4
         AND k.since_s = ?5 AND (k.run <> ?2 OR k.restart_count < ?3)",
        params![key.cluster, key.run, restart_count, node, since_s],
        |r| r.get(0),
    )
}

/// A reading for [`counters`]; `metered_j` if a node service itself told it.
pub fn counter(
    key: &RunKey,
    restart_count: u32,
    node: &str,
    at_s: f64,
    r: &JobReading,
    metered_j: Option<f64>,
) -> [Value; 9] {
    let RunKey { cluster, run } = key;
    row![cluster, run, restart_count, node, r.since_s, at_s, r.joules, r.source, metered_j]
}

/// Notes a failure; what the controller and the wrapper both tell of one dead node is one failure.
pub fn failure(
    c: &Connection,
    key: &RunKey,
    kind: FailureKind,
    node: Option<&str>,
    at_s: f64,
    detected_s: f64,
    reason: &str,
) -> Result<()> {
    if kind.is_true_failure() {
        let is_known: bool = c.query_row(
            "SELECT EXISTS (SELECT 1 FROM failures WHERE cluster = ?1 AND run = ?2 AND counts = 1
                 AND abs(at_s - ?3) < ?4 AND (node IS NULL OR ?5 IS NULL OR node = ?5))",
            params![key.cluster, key.run, at_s, SAME_DEATH_S, node],
            |r| r.get(0),
        )?;
        if is_known {
            return Ok(());
        }
    }
    c.execute(
        "INSERT INTO failures (cluster, run, kind, node, at_s, detected_s, counts, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![key.cluster, key.run, kind.as_str(), node, at_s, detected_s, kind.is_true_failure(), reason],
    )?;
    Ok(())
}

/// Notes a loan, or what has become of it: it is known by its run, node, beginning and borrower, who is 0 for nobody.
pub(crate) fn lent(c: &Connection, key: &RunKey, loan: &LoanAccount) -> Result<()> {
    c.execute(
        "INSERT INTO loans (cluster, run, node, borrower, start_s, end_s, joules)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (cluster, run, node, start_s, borrower) DO UPDATE SET
         end_s = excluded.end_s, joules = excluded.joules",
        params![key.cluster, key.run, loan.node, loan.borrower.unwrap_or(0), loan.start_s, loan.end_s, loan.joules],
    )?;
    Ok(())
}

/// Most nodes of a group that one statement names: each walks through all phases of the run.
const TOGETHER: usize = 256;

/// Computing after the line to which the run went back was lost, on these nodes, or on all if none is named; an interval that
/// spans the line is cut in proportion.
fn roll_back(c: &Connection, key: &RunKey, kept_until_s: f64, nodes: &[String]) -> Result<()> {
    let compute = Phase::Compute.as_str();
    let mut values = row![key.cluster, key.run, compute, kept_until_s].to_vec();
    let named: Vec<String> = (1..=nodes.len()).map(|n| format!("?{}", values.len() + n)).collect();
    let on_them = if nodes.is_empty() { String::new() } else { format!("AND node IN ({})", named.join(", ")) };
    values.extend(nodes.iter().map(value));
    type Row = (i64, u32, String, f64, f64, Option<f64>, String, bool);
    let spanning: Vec<Row> = c.query_map(
        &format!(
            "SELECT id, restart_count, node, start_s, end_s, joules, source, is_rest FROM phases
             WHERE cluster = ?1 AND run = ?2 AND phase = ?3 AND start_s < ?4 AND end_s > ?4 {on_them}"
        ),
        &values,
        |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?, r.get(6)?, r.get(7)?)),
    )?;
    let mut cut = phases();
    for (id, restart_count, node, start_s, end_s, joules, source, is_rest) in spanning {
        let kept = (kept_until_s - start_s) / (end_s - start_s);
        let kept_j = joules.map(|j| j * kept);
        let lost_j = joules.zip(kept_j).map(|(j, k)| j - k);
        c.execute("UPDATE phases SET end_s = ?2, joules = ?3 WHERE id = ?1", params![id, kept_until_s, kept_j])?;
        cut.push(phase_row(key, restart_count, &node, compute, (kept_until_s, end_s), (lost_j, &source), is_rest));
    }
    cut.insert(c)?;
    values.push(value(Phase::LostWork.as_str()));
    let update = format!(
        "UPDATE phases SET phase = ?{} WHERE cluster = ?1 AND run = ?2 AND phase = ?3 AND start_s >= ?4 {on_them}",
        values.len()
    );
    c.execute(&update, &values).map(drop)
}

/// A new record shows that earlier ones are over, whatever their wrappers could still tell.
fn close_earlier(c: &Connection, key: &RunKey, restart_count: u32, at_s: f64) -> Result<()> {
    let sql = "SELECT restart_count, coalesce(end_s, (SELECT max(at_s) FROM counters k WHERE k.cluster = r.cluster
         AND k.run = r.run AND k.restart_count = r.restart_count), start_s)
         FROM records r WHERE cluster = ?1 AND run = ?2 AND restart_count <> ?3 AND state = 'running'";
    let read = |r: &Row| Ok((r.get(0)?, r.get(1)?));
    let open: Vec<(u32, f64)> = c.query_map(sql, params![key.cluster, key.run, restart_count], read)?;
    for (earlier, last_s) in open {
        close_record(c, key, earlier, last_s.min(at_s), "interrupted", Phase::LostWork)?;
    }
    Ok(())
}

/// Says which lives of a job, between the last record of its run and a new one, have not taken the run up: nobody has told
/// what they used.
fn say_unaccounted(c: &Connection, key: &RunKey, restart_count: u32, at_s: f64) -> Result<()> {
    let sql = "SELECT max(restart_count) FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count <= ?3";
    let values = params![key.cluster, key.run, restart_count];
    let last: Option<u32> = c.query_row(sql, values, |r| r.get(0))?;
    let Some(first) = last.map(|last| last.saturating_add(1)).filter(|first| *first < restart_count) else {
        return Ok(());
    };
    let lives = match restart_count - 1 {
        last if last == first => format!("restart {first}"),
        last => format!("restarts {first} to {last}"),
    };
    let reason = format!("{lives} did not take the run up: what that cost in time and energy is unknown");
    decision(c, key, at_s, "life not accounted for", &reason, 0.0)
}

/// By Slurm's word the life of an open record is over, and the next one began at `until_s` at the latest: what nodes tell of
/// its job counts for this record no more. How it ended its wrapper may say yet.
pub fn is_over(c: &Connection, key: &RunKey, restart_count: u32, until_s: f64) -> Result<()> {
    let sql = "SELECT max(at_s) FROM counters WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3";
    let last_s: Option<f64> = c.query_row(sql, params![key.cluster, key.run, restart_count], |r| r.get(0))?;
    let began_s = began_s(c, key, restart_count)?;
    let over_s = last_s.unwrap_or(began_s).min(until_s).max(began_s);
    let sql = "UPDATE records SET end_s = ?4 WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3
         AND state = 'running' AND end_s IS NULL";
    c.execute(sql, params![key.cluster, key.run, restart_count, over_s]).map(drop)
}

/// When the life of an open record was over by Slurm's word, if it was.
pub fn over_s(c: &Connection, key: &RunKey, restart_count: u32) -> Result<Option<f64>> {
    let sql = "SELECT end_s FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3 AND state = 'running'";
    let read = |r: &Row| r.get::<Option<f64>>(0);
    Ok(c.query_optional(sql, params![key.cluster, key.run, restart_count], read)?.flatten())
}

/// Whether what nodes tell of a job counts for a record.
pub fn is_going_on(c: &Connection, key: &RunKey, restart_count: u32) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3
         AND state = 'running' AND end_s IS NULL)";
    c.query_row(sql, params![key.cluster, key.run, restart_count], |r| r.get(0))
}

/// Whether a record has not ended.
pub fn is_open(c: &Connection, key: &RunKey, restart_count: u32) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3
         AND state = 'running')";
    c.query_row(sql, params![key.cluster, key.run, restart_count], |r| r.get(0))
}

/// Ends a record, gives what its counters show beyond its phases to the phase `rest_is`, and learns from its checkpoints.
/// One that has ended stays as it is.
pub fn close_record(
    c: &Connection,
    key: &RunKey,
    restart_count: u32,
    at_s: f64,
    state: &str,
    rest_is: Phase,
) -> Result<()> {
    if !is_open(c, key, restart_count)? {
        return Ok(());
    }
    let rest_is = if state == "interrupted" { Phase::LostWork } else { rest_is };
    give_rest(c, key, restart_count, Some(rest_is))?;
    c.execute(
        "UPDATE records SET state = ?4, end_s = ?5 WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3",
        params![key.cluster, key.run, restart_count, state, at_s],
    )?;
    if let Some(measured) = mean_checkpoint(c, key, restart_count)? {
        teach(c, key, restart_count, at_s, &measured);
    }
    Ok(())
}

/// When a record began, s since the epoch.
pub fn began_s(c: &Connection, key: &RunKey, restart_count: u32) -> Result<f64> {
    c.query_row(
        "SELECT start_s FROM records WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3",
        params![key.cluster, key.run, restart_count],
        |r| r.get(0),
    )
}

/// Gives what the counters of a record show beyond the phases that were told to the phase `rest_is`, in place of what was
/// given so before; to the phase that had it, or to computing, if that is not said.
fn give_rest(c: &Connection, key: &RunKey, restart_count: u32, rest_is: Option<Phase>) -> Result<()> {
    let counters: Vec<(String, f64, f64, String)> = c.query_map(
        "SELECT node, sum(joules), max(at_s), max(source) FROM counters
         WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3 GROUP BY node",
        params![key.cluster, key.run, restart_count],
        |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)),
    )?;
    let mut rests = phases();
    for (node, total_j, last_s, source) in counters {
        let record = params![key.cluster, key.run, restart_count, node];
        let (cut_j, cut_s, before): (f64, f64, Option<String>) = c.query_row(
            "SELECT coalesce(sum(CASE WHEN is_rest = 0 THEN joules END), 0.0),
                 coalesce(max(CASE WHEN is_rest = 0 THEN end_s END), 0.0), max(CASE WHEN is_rest = 1 THEN phase END)
                 FROM phases WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3 AND node = ?4",
            record,
            |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)),
        )?;
        if before.is_some() {
            let sql = "DELETE FROM phases WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3 AND node = ?4
                 AND is_rest = 1";
            c.execute(sql, record)?;
        }
        let rest_j = total_j - cut_j;
        if rest_j > ROUNDING_J {
            // Counters that could not be read when a phase ended show now what it has used.
            let find_unread = || {
                c.query_optional(
                    "SELECT phase FROM phases WHERE cluster = ?1 AND run = ?2 AND restart_count = ?3 AND node = ?4
                     AND is_rest = 0 AND joules IS NULL ORDER BY end_s - start_s DESC LIMIT 1",
                    record,
                    |r| r.get(0),
                )
            };
            let unread: Option<String> = if rest_is == Some(Phase::Idle) { find_unread()? } else { None };
            let phase = unread.or_else(|| rest_is.map(|phase| phase.as_str().to_string())).or(before);
            let phase = phase.unwrap_or_else(|| Phase::Compute.as_str().to_string());
            let start_s = if cut_s > 0.0 { cut_s } else { began_s(c, key, restart_count)?.min(last_s) };
            let span = (start_s, last_s.max(start_s));
            rests.push(phase_row(key, restart_count, &node, &phase, span, (Some(rest_j), &source), true));
        }
    }
    rests.insert(c)
}
