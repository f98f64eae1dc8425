//! The store: SQLite, one connection, every record exactly once.

use crate::apply;
use anyhow::{Context, Result, bail};
use planner::History;
use protocol::{Batch, JobReading, RunKey};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;

/// The version of `schema.sql`.
const VERSION: i64 = 1;

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
                    apply::count(c, key, *restart_count, node, *at_s, reading)?;
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
    for record in &batch.records {
        if record.seq <= upto {
            continue;
        }
        if record.seq != upto + 1 {
            break;
        }
        let json = serde_json::to_string(record)?;
        c.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            cluster,
            run,
            record.seq,
            record.at_s,
            json
        ])?;
        apply::apply(c, &batch.key, record, uid).with_context(|| format!("record {} of run {run}", record.seq))?;
        upto = record.seq;
    }
    Ok(upto)
}

impl Store {
    /// Opens or creates the store.
    ///
    /// # Errors
    /// What SQLite says; a store of a later version is refused.
    pub fn open(path: &Path) -> Result<Store> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let connection = Connection::open(path).with_context(|| path.display().to_string())?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
        match version {
            0 => connection.execute_batch(&format!("BEGIN; {} COMMIT;", include_str!("schema.sql")))?,
            VERSION => {}
            later => bail!("{}: version {later} of the store is not known here", path.display()),
        }
        Ok(Store { connection })
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
    /// What SQLite says when it cannot commit; nothing is stored then.
    pub fn write(&mut self, writes: &[Write]) -> Result<Vec<Result<u64>>> {
        let mut tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let savepoint = tx.savepoint()?;
            let answer = write.apply(&savepoint);
            if answer.is_ok() {
                savepoint.commit()?;
            }
            answers.push(answer);
        }
        tx.commit()?;
        Ok(answers)
    }

    /// The owner of a run, if it is known.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn owner(&self, key: &RunKey) -> Result<Option<Owner>> {
        let mut statement = self.connection.prepare_cached("SELECT uid FROM runs WHERE cluster = ?1 AND run = ?2")?;
        Ok(statement.query_row(params![key.cluster, key.run], |r| Ok(Owner { uid: r.get(0)? })).optional()?)
    }

    /// All runs that have not ended.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open_runs(&self) -> Result<Vec<OpenRun>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT r.cluster, r.run, r.job, r.restart_count, c.nodes, c.state, r.uid FROM runs r
             JOIN records c ON c.cluster = r.cluster AND c.run = r.run AND c.restart_count = r.restart_count
             WHERE r.state = 'running'",
        )?;
        let rows = statement.query_map([], |r| {
            let nodes: String = r.get(4)?;
            Ok(OpenRun {
                key: RunKey { cluster: r.get(0)?, run: r.get(1)? },
                job: r.get(2)?,
                restart_count: r.get(3)?,
                nodes: serde_json::from_str(&nodes).unwrap_or_default(),
                record_state: r.get(5)?,
                uid: r.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Adds time for which nodes were watched.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn watched(&mut self, nodes: &[(String, f64)]) -> Result<()> {
        let tx = self.connection.transaction()?;
        for (node, seconds) in nodes {
            tx.prepare_cached(
                "INSERT INTO nodes VALUES (?1, ?2) ON CONFLICT (node) DO UPDATE SET watched_s = watched_s + ?2",
            )?
            .execute(params![node, seconds])?;
        }
        Ok(tx.commit()?)
    }

    /// Notes the death of a node, and a failure for every open run on it.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn node_died(&mut self, node: &str, at_s: f64, detected_s: f64, reason: &str) -> Result<Vec<OpenRun>> {
        let open = self.open_runs()?;
        let hit: Vec<OpenRun> =
            open.into_iter().filter(|r| r.record_state == "running" && r.nodes.iter().any(|n| n == node)).collect();
        let tx = self.connection.transaction()?;
        tx.execute(
            "INSERT OR IGNORE INTO node_failures VALUES (?1, ?2, ?3, ?4)",
            params![node, at_s, detected_s, reason],
        )?;
        for run in &hit {
            let kind = if run.nodes.first().is_some_and(|n| n == node) {
                protocol::FailureKind::BatchHost
            } else {
                protocol::FailureKind::Node
            };
            apply::failure(&tx, &run.key, kind, Some(node), at_s, detected_s, reason)?;
        }
        tx.commit()?;
        Ok(hit)
    }

    /// Notes a failure of a run that its wrapper could not tell.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn failed(&mut self, key: &RunKey, kind: protocol::FailureKind, at_s: f64, reason: &str) -> Result<()> {
        apply::failure(&self.connection, key, kind, None, at_s, at_s, reason)
    }

    /// How many failures of a kind a run has had.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn failures(&self, key: &RunKey, kind: protocol::FailureKind) -> Result<u32> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT count(*) FROM failures WHERE cluster = ?1 AND run = ?2 AND kind = ?3")?;
        Ok(statement.query_row(params![key.cluster, key.run, kind.as_str()], |r| r.get(0))?)
    }

    /// Closes a run whose wrapper did not.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn close(&mut self, run: &OpenRun, at_s: f64, state: &str) -> Result<()> {
        let tx = self.connection.transaction()?;
        apply::close_record(&tx, &run.key, run.restart_count, at_s, state)?;
        tx.execute(
            "UPDATE runs SET state = ?3, end_s = ?4 WHERE cluster = ?1 AND run = ?2",
            params![run.key.cluster, run.key.run, state, at_s],
        )?;
        Ok(tx.commit()?)
    }

    /// What bears on a new run of this user and job name.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn history(&self, user: &str, job_name: &str) -> Result<History> {
        let c = &self.connection;
        let (node_failures, node_seconds) = c.query_row(
            "SELECT (SELECT count(*) FROM node_failures), (SELECT coalesce(sum(watched_s), 0.0) FROM nodes)",
            [],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )?;
        let recent = "(SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 ORDER BY start_s DESC LIMIT ?3)";
        let mean = |what: &str| -> Result<Option<f64>> {
            let sql = format!("SELECT {what} AND (cluster, run) IN {recent}");
            Ok(c.prepare_cached(&sql)?.query_row(params![user, job_name, HISTORY_RUNS], |r| r.get(0))?)
        };
        let power = |phase: &str| {
            mean(&format!(
                "sum(joules) / sum(end_s - start_s) FROM phases WHERE phase = '{phase}' AND joules IS NOT NULL AND end_s > start_s"
            ))
        };
        Ok(History {
            node_failures,
            node_seconds,
            checkpoint_s: mean("avg(ended_s - begun_s) FROM checkpoints WHERE ended_s > begun_s")?,
            restart_s: None,
            busy_w: power("compute")?,
            checkpoint_w: power("checkpoint")?,
            checkpoint_bytes: mean("avg(bytes) FROM checkpoints WHERE bytes > 0")?,
            work_s: self.usual_work_s(user, job_name)?,
            ..History::default()
        })
    }

    /// Mean computing time of a node in the newest completed runs of a user and job name, work done again left out.
    fn usual_work_s(&self, user: &str, job_name: &str) -> Result<Option<f64>> {
        let sql = "SELECT avg(s) FROM (SELECT sum(s) AS s FROM (\
                   SELECT p.cluster, p.run, sum(p.end_s - p.start_s) / count(DISTINCT p.node) AS s FROM phases p \
                   JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 AND state = 'completed' \
                   ORDER BY start_s DESC LIMIT ?3) r ON p.cluster = r.cluster AND p.run = r.run \
                   WHERE p.phase = 'compute' GROUP BY p.cluster, p.run, p.restart_count) GROUP BY cluster, run)";
        let values = params![user, job_name, HISTORY_RUNS];
        Ok(self.connection.prepare_cached(sql)?.query_row(values, |r| r.get(0))?)
    }

    /// The connection, for reports.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}
