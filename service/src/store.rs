//! The store: SQLite or MariaDB, every record exactly once.

mod database;
mod holders;
mod keeping;
mod lending;
mod mysql;
mod ordering;
mod rows;
mod sqlite;
mod watching;

pub use database::{Connection, FromValue, Row, Statement, ToValue, Value};
pub(crate) use database::{params, row};
pub use holders::Superseded;
pub use ordering::KeptOrder;
pub(crate) use rows::Rows;
pub use watching::NodeWatch;

use crate::apply::{self, Applying};
use anyhow::{Context, Result, bail};
use planner::History;
use planner::restart::takes_up;
use protocol::{Batch, JobReading, NodeFailure, RunKey};
use std::path::Path;

/// What brings the tables from each version to the next; never changed once it was shipped.
const STEPS: [&str; 9] = [
    include_str!("store/schema1.sql"),
    include_str!("store/schema2.sql"),
    include_str!("store/schema3.sql"),
    include_str!("store/schema4.sql"),
    include_str!("store/schema5.sql"),
    include_str!("store/schema6.sql"),
    include_str!("store/schema7.sql"),
    include_str!("store/schema8.sql"),
    include_str!("store/schema9.sql"),
];

const OPEN_RUNS: &str = "SELECT r.cluster, r.run, r.job, r.restart_count, c.nodes, c.state, r.uid FROM runs r
     JOIN records c ON c.cluster = r.cluster AND c.run = r.run AND c.restart_count = r.restart_count
     WHERE r.state = 'running'";

fn open_run(r: &Row) -> Result<OpenRun> {
    let nodes: String = r.get(4)?;
    Ok(OpenRun {
        key: RunKey { cluster: r.get(0)?, run: r.get(1)? },
        job: r.get(2)?,
        restart_count: r.get(3)?,
        nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        record_state: r.get(5)?,
        uid: r.get(6)?,
    })
}

/// Earlier runs whose figures bear on a new one.
const HISTORY_RUNS: u32 = 20;

/// The store of a controller.
pub struct Store {
    connection: Connection,
}

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
}

/// Who owns a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id, as munge vouched for it at the first record.
    pub uid: u32,
}

/// Something to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Records of a run.
    Batch {
        /// The records.
        batch: Batch,
        /// Who sent them, as munge vouches.
        uid: u32,
    },
    /// The counters of a job on a node.
    Counters {
        /// The run.
        key: RunKey,
        /// SLURM_RESTART_COUNT.
        restart_count: u32,
        /// Node name.
        node: String,
        /// When they were read.
        at_s: f64,
        /// The counters.
        reading: JobReading,
    },
}

impl Write {
    fn apply(&self, c: &Connection) -> Result<u64> {
        match self {
            Write::Batch { batch, uid } => append(c, batch, *uid),
            Write::Counters { key, restart_count, node, at_s, reading } => {
                // Counters that arrive after the record's end belong to nobody's account any more.
                if apply::is_open(c, key, *restart_count)? {
                    let mut counters = apply::counters();
                    counters.push(apply::counter(key, *restart_count, node, *at_s, reading));
                    counters.insert(c)?;
                }
                Ok(0)
            }
        }
    }
}

fn append(c: &Connection, batch: &Batch, uid: u32) -> Result<u64> {
    let RunKey { cluster, run } = &batch.key;
    let mut upto: u64 = c
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM events WHERE cluster = ?1 AND run = ?2")?
        .query_row(params![cluster, run], |r| r.get(0))?;
    holders::admit(c, batch, upto)?;
    let mut events = Rows::new("events", 5, "");
    let mut applying = Applying::new(c, &batch.key, uid);
    for record in &batch.records {
        if record.seq <= upto {
            continue;
        }
        if record.seq != upto + 1 {
            break;
        }
        events.push(row![cluster, run, record.seq, record.at_s, serde_json::to_string(record)?]);
        applying.apply(record).with_context(|| format!("record {} of run {run}", record.seq))?;
        upto = record.seq;
    }
    events.insert(c)?;
    applying.end().with_context(|| format!("records up to {upto} of run {run}"))?;
    Ok(upto)
}

impl Store {
    /// Opens or creates the store, brings its tables up to date and looks them through.
    ///
    /// `place` is a file, or the URL of a MariaDB (`mysql://USER:PASSWORD@HOST/DATABASE`).
    ///
    /// # Errors
    /// What the database says; a store that is damaged or of a later version is refused.
    pub fn open(place: &Path) -> Result<Store> {
        Store::up_to_date(place).map_err(|e| if sqlite::is_damage(&e) { e.context(cure(place)) } else { e })
    }

    fn up_to_date(place: &Path) -> Result<Store> {
        let name = shown(place);
        let store = Store::connect(place)?;
        let version = store.connection.version()?;
        let steps = usize::try_from(version).ok().and_then(|v| STEPS.get(v..));
        let steps = steps.with_context(|| format!("{name}: version {version} of the store is not known here"))?;
        if let Some(found) = store.connection.damage()? {
            bail!("{}: {found}", cure(place));
        }
        for (step, next) in steps.iter().zip(version + 1..) {
            tracing::info!(store = name, version = next, "the store's tables are brought up to date");
            store.connection.migrate(next, step).with_context(|| format!("{name}: to version {next}"))?;
        }
        Ok(store)
    }

    /// One more connection to a store that has been opened.
    ///
    /// # Errors
    /// What the database says, or that there is no store.
    pub fn open_again(place: &Path) -> Result<Store> {
        if url(place).is_none() && !place.exists() {
            bail!("there is no store at {}", place.display());
        }
        Store::connect(place)
    }

    fn connect(place: &Path) -> Result<Store> {
        Ok(Store { connection: Connection::open(place).with_context(|| shown(place))? })
    }

    /// Stores what of a batch is new and in order; the position up to which all is stored.
    ///
    /// # Errors
    /// As [`Store::write`] says for one.
    pub fn append(&mut self, batch: &Batch, uid: u32) -> Result<u64> {
        let write = Write::Batch { batch: batch.clone(), uid };
        self.write(std::slice::from_ref(&write))?.pop().context("one answer for one write")?
    }

    /// Does many writes in one transaction, with one sync of the disk; the position that each one's run has reached.
    ///
    /// A write that cannot be done is undone alone and does not hold up the others.
    ///
    /// # Errors
    /// What the database says when it cannot commit; nothing is stored then.
    pub fn write(&mut self, writes: &[Write]) -> Result<Vec<Result<u64>>> {
        let together = self.together(writes);
        match together {
            // MariaDB may give up a whole transaction for one bad statement.
            Err(e) if writes.len() > 1 && mysql::is_said(&e) => {
                Ok(writes.iter().map(|w| self.together(std::slice::from_ref(w))?.remove(0)).collect())
            }
            all => all,
        }
    }

    fn together(&self, writes: &[Write]) -> Result<Vec<Result<u64>>> {
        let c = &self.connection;
        c.transaction(|| {
            let mut answers = Vec::with_capacity(writes.len());
            for write in writes {
                let answer = c.savepoint(|| write.apply(c));
                match answer {
                    Err(e) if mysql::is_said(&e) => return Err(e),
                    answer => answers.push(answer),
                }
            }
            Ok(answers)
        })
    }

    /// The owner of a run, if it is known.
    ///
    /// # Errors
    /// What the database says.
    pub fn owner(&self, key: &RunKey) -> Result<Option<Owner>> {
        let mut statement = self.connection.prepare_cached("SELECT uid FROM runs WHERE cluster = ?1 AND run = ?2")?;
        statement.query_optional(params![key.cluster, key.run], |r| Ok(Owner { uid: r.get(0)? }))
    }

    /// All runs that have not ended.
    ///
    /// # Errors
    /// What the database says.
    pub fn open_runs(&self) -> Result<Vec<OpenRun>> {
        self.connection.prepare_cached(OPEN_RUNS)?.query_map(params![], open_run)?.collect()
    }

    /// A run, if it has not ended.
    ///
    /// # Errors
    /// What the database says.
    pub fn open_run(&self, key: &RunKey) -> Result<Option<OpenRun>> {
        let sql = format!("{OPEN_RUNS} AND r.cluster = ?1 AND r.run = ?2");
        self.connection.prepare_cached(&sql)?.query_optional(params![key.cluster, key.run], open_run)
    }

    /// Adds time for which nodes were watched.
    ///
    /// # Errors
    /// What the database says.
    pub fn watched(&mut self, nodes: &[(String, f64)]) -> Result<()> {
        let c = &self.connection;
        c.transaction(|| {
            for (node, seconds) in nodes {
                c.prepare_cached(
                    "INSERT INTO nodes VALUES (?1, ?2) ON CONFLICT (node) DO UPDATE SET watched_s = watched_s + ?2",
                )?
                .execute(params![node, seconds])?;
            }
            Ok(())
        })
    }

    /// Whether any time of any node is booked.
    ///
    /// # Errors
    /// What the database says.
    pub fn has_watched(&self) -> Result<bool> {
        self.connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM nodes)")?.query_row(params![], |r| r.get(0))
    }

    /// Stores what is known of the nodes from before, in one transaction.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn take_over(&mut self, before: &crate::history::Before) -> Result<()> {
        let c = &self.connection;
        c.transaction(|| {
            for (node, seconds) in &before.watched {
                c.prepare_cached("INSERT INTO nodes (node, watched_s) VALUES (?1, ?2)")?
                    .execute(params![node, seconds])?;
            }
            for (node, at_s, reason) in &before.failures {
                c.prepare_cached("INSERT INTO node_failures (node, at_s, detected_s, reason) VALUES (?1, ?2, ?2, ?3)")?
                    .execute(params![node, at_s, reason])?;
            }
            Ok(())
        })
    }

    /// Notes the death of a node, and a failure for every open run on it that `is_hit` by it.
    ///
    /// # Errors
    /// What the database says.
    pub fn node_died(
        &mut self,
        node: &str,
        at_s: f64,
        detected_s: f64,
        reason: &str,
        is_hit: impl Fn(&OpenRun) -> bool,
    ) -> Result<Vec<OpenRun>> {
        let open = self.open_runs()?;
        let on_it = |r: &OpenRun| r.record_state == "running" && r.nodes.iter().any(|n| n == node);
        let hit: Vec<OpenRun> = open.into_iter().filter(|r| on_it(r) && is_hit(r)).collect();
        let c = &self.connection;
        c.transaction(|| {
            c.prepare_cached("INSERT OR IGNORE INTO node_failures VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![node, at_s, detected_s, reason])?;
            for run in &hit {
                let kind = if run.nodes.first().is_some_and(|n| n == node) {
                    protocol::FailureKind::BatchHost
                } else {
                    protocol::FailureKind::Node
                };
                apply::failure(c, &run.key, kind, Some(node), at_s, detected_s, reason)?;
            }
            Ok(())
        })?;
        Ok(hit)
    }

    /// Notes a failure of a run that its wrapper could not tell.
    ///
    /// # Errors
    /// What the database says.
    pub fn failed(&mut self, key: &RunKey, kind: protocol::FailureKind, at_s: f64, reason: &str) -> Result<()> {
        apply::failure(&self.connection, key, kind, None, at_s, at_s, reason)
    }

    /// How many failures of a kind a run has had.
    ///
    /// # Errors
    /// What the database says.
    pub fn failures(&self, key: &RunKey, kind: protocol::FailureKind) -> Result<u32> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT count(*) FROM failures WHERE cluster = ?1 AND run = ?2 AND kind = ?3")?;
        statement.query_row(params![key.cluster, key.run, kind.as_str()], |r| r.get(0))
    }

    /// Closes a run whose wrapper did not.
    ///
    /// # Errors
    /// What the database says.
    pub fn close(&mut self, run: &OpenRun, at_s: f64, state: &str) -> Result<()> {
        let c = &self.connection;
        c.transaction(|| {
            apply::close_record(c, &run.key, run.restart_count, at_s, state)?;
            c.prepare_cached("UPDATE runs SET state = ?3, end_s = ?4 WHERE cluster = ?1 AND run = ?2")?
                .execute(params![run.key.cluster, run.key.run, state, at_s])?;
            Ok(())
        })
    }

    /// What bears on a new run of this user and job name.
    ///
    /// # Errors
    /// What the database says.
    pub fn history(&self, user: &str, job_name: &str) -> Result<History> {
        let c = &self.connection;
        let (node_failures, node_seconds) = c
            .prepare_cached(
                "SELECT (SELECT count(*) FROM node_failures), (SELECT coalesce(sum(watched_s), 0.0) FROM nodes)",
            )?
            .query_row(params![], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let recent = "JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2
                            ORDER BY start_s DESC LIMIT ?3) recent USING (cluster, run)";
        let means = |what: [&str; 2], from: &str| -> Result<[Option<f64>; 2]> {
            let sql = format!("SELECT {}, {} FROM {from} {recent}", what[0], what[1]);
            let values = params![user, apply::short(job_name), HISTORY_RUNS];
            c.prepare_cached(&sql)?.query_row(values, |r| Ok([r.get(0)?, r.get(1)?]))
        };
        let power = |phase: &str| {
            let of = |what: &str| format!("sum(CASE WHEN phase = '{phase}' THEN {what} END)");
            format!("{} / {}", of("joules"), of("end_s - start_s"))
        };
        let [busy_w, checkpoint_w] = means(
            [&power("compute"), &power("checkpoint")],
            "(SELECT * FROM phases WHERE joules IS NOT NULL AND end_s > start_s) p",
        )?;
        let [checkpoint_s, checkpoint_bytes] = means(
            [
                "avg(CASE WHEN ended_s > begun_s THEN ended_s - begun_s END)",
                "avg(CASE WHEN bytes > 0 THEN bytes * 1e0 END)",
            ],
            "checkpoints k",
        )?;
        Ok(History {
            node_failures,
            node_seconds,
            checkpoint_s,
            restart_s: self.usual_restart_s(user, job_name)?,
            busy_w,
            checkpoint_w,
            checkpoint_bytes,
            work_s: self.usual_work_s(user, job_name)?,
            engine: self.proven_engine(user, job_name)?,
            ..History::default()
        })
    }

    /// Notes a loan that has begun, or what has become of it.
    ///
    /// # Errors
    /// What the database says.
    pub fn note_loan(&mut self, key: &RunKey, loan: &protocol::LoanAccount) -> Result<()> {
        apply::lent(&self.connection, key, loan)
    }

    /// Every death of a node, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn node_failures(&self) -> Result<Vec<NodeFailure>> {
        let mut statement =
            self.connection.prepare_cached("SELECT node, at_s FROM node_failures ORDER BY at_s, node")?;
        let rows = statement.query_map(params![], |r| Ok(NodeFailure { node: r.get(0)?, at_s: r.get(1)? }))?;
        rows.collect()
    }

    /// Mean duration of restarts.
    fn usual_restart_s(&self, user: &str, job_name: &str) -> Result<Option<f64>> {
        let sql = "SELECT r.start_s, p.start_s, p.end_s FROM phases p JOIN records r USING (cluster, run, restart_count) \
                   JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 \
                   ORDER BY start_s DESC LIMIT ?3) recent USING (cluster, run) WHERE p.phase = 'restart'";
        let read = |r: &Row| Ok((r.get::<f64>(0)?, (r.get(1)?, r.get(2)?)));
        let mut statement = self.connection.prepare_cached(sql)?;
        let spans = statement.query_map(params![user, apply::short(job_name), HISTORY_RUNS], read)?;
        let spans = spans.collect::<Result<Vec<(f64, (f64, f64))>>>()?;
        let restarts = || spans.iter().filter(|(record_s, span)| takes_up(*record_s, *span));
        let count = restarts().count() as f64;
        Ok((count > 0.0).then(|| restarts().map(|(_, span)| span.1 - span.0).sum::<f64>() / count))
    }

    /// The engine of the newest run of a user and job name that made a checkpoint.
    fn proven_engine(&self, user: &str, job_name: &str) -> Result<Option<String>> {
        let sql = "SELECT (SELECT r.plan FROM runs r WHERE r.user = ?1 AND r.job_name = ?2 AND EXISTS \
                   (SELECT 1 FROM checkpoints k WHERE k.cluster = r.cluster AND k.run = r.run) \
                   ORDER BY r.start_s DESC LIMIT 1)";
        let values = params![user, apply::short(job_name)];
        let plan: Option<String> = self.connection.prepare_cached(sql)?.query_row(values, |r| r.get(0))?;
        Ok(plan.and_then(|text| serde_json::from_str::<protocol::Plan>(&text).ok()).map(|plan| plan.engine))
    }

    /// Mean computing time of a node in the newest completed runs of a user and job name, work done again left out.
    fn usual_work_s(&self, user: &str, job_name: &str) -> Result<Option<f64>> {
        let sql = "SELECT avg(s) FROM (SELECT sum(s) AS s FROM (\
                   SELECT p.cluster, p.run, sum(p.end_s - p.start_s) / count(DISTINCT p.node) AS s FROM phases p \
                   JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 AND state = 'completed' \
                   ORDER BY start_s DESC LIMIT ?3) r ON p.cluster = r.cluster AND p.run = r.run \
                   WHERE p.phase = 'compute' GROUP BY p.cluster, p.run, p.restart_count) lives GROUP BY cluster, run) runs";
        let values = params![user, job_name, HISTORY_RUNS];
        self.connection.prepare_cached(sql)?.query_row(values, |r| r.get(0))
    }

    /// The connection, for reports.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// The URL of a MariaDB, if a place is one.
fn url(place: &Path) -> Option<&str> {
    place.to_str().filter(|p| p.starts_with("mysql://"))
}

/// A place as it may stand in a log: without a password.
pub fn shown(place: &Path) -> String {
    match url(place).and_then(|u| u.rsplit_once('@')) {
        Some((_, host)) => format!("mysql://...@{host}"),
        None => place.display().to_string(),
    }
}

/// What to do with a damaged store.
fn cure(place: &Path) -> String {
    format!(
        "{} is damaged: move it and its -wal and -shm files aside, put the last copy that 'joulepointd backup' made in \
         its place, and start again",
        shown(place)
    )
}
