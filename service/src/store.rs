//! The store: SQLite or MariaDB, every record exactly once.

mod database;
mod history;
mod holders;
mod keeping;
mod lending;
mod mysql;
mod ordering;
mod rows;
mod runs;
mod sqlite;
mod watching;

pub use database::{Connection, FromValue, Row, Statement, ToValue, Value};
pub(crate) use database::{params, row};
pub use holders::Superseded;
pub use ordering::KeptOrder;
pub(crate) use rows::Rows;
pub use runs::{OpenRun, Owner, RunRow};
pub use watching::NodeWatch;

use crate::apply::{self, Applying};
use anyhow::{Context, Result, bail};
use protocol::{Batch, Event, JobReading, NodeFailure, Phase, RunKey};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What brings the tables from each version to the next; never changed once it was shipped.
const STEPS: [&str; 13] = [
    include_str!("store/schema1.sql"),
    include_str!("store/schema2.sql"),
    include_str!("store/schema3.sql"),
    include_str!("store/schema4.sql"),
    include_str!("store/schema5.sql"),
    include_str!("store/schema6.sql"),
    include_str!("store/schema7.sql"),
    include_str!("store/schema8.sql"),
    include_str!("store/schema9.sql"),
    include_str!("store/schema10.sql"),
    include_str!("store/schema11.sql"),
    include_str!("store/schema12.sql"),
    include_str!("store/schema13.sql"),
];

/// The store of a controller.
pub struct Store {
    connection: Connection,
    /// Counts what changed the runs that are open, for all connections of one service.
    changes: Arc<AtomicU64>,
    open: RefCell<Option<(u64, Arc<Vec<OpenRun>>)>>,
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
        /// Whether Slurm says that the run's job is theirs.
        verified: bool,
    },
    /// What Slurm's commands call the job of a run.
    Named {
        /// The run.
        key: RunKey,
        /// Its job.
        named: slurm::JobName,
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
            Write::Batch { batch, uid, verified } => append(c, batch, (*uid, *verified)),
            Write::Named { key, named } => {
                let sql = "UPDATE runs SET slurm_id = ?3, array_job = ?4 WHERE cluster = ?1 AND run = ?2";
                let array = named.array.map(|(array, _)| array);
                c.prepare_cached(sql)?.execute(params![key.cluster, key.run, named.to_string(), array])?;
                Ok(0)
            }
            Write::Counters { key, restart_count, node, at_s, reading } => {
                // Counters that arrive after the record's end belong to nobody's account any more.
                if apply::is_open(c, key, *restart_count)? {
                    let mut counters = apply::counters();
                    counters.push(apply::counter(key, *restart_count, node, *at_s, reading, Some(reading.joules)));
                    counters.insert(c)?;
                }
                Ok(0)
            }
        }
    }
}

impl Write {
    /// Whether it may change which runs are open, or what is known of them.
    fn changes_runs(&self) -> bool {
        let changes = |r: &protocol::Record| {
            matches!(r.event, Event::Started { .. } | Event::Protection(_) | Event::Ended { .. })
        };
        matches!(self, Write::Batch { batch, .. } if batch.records.iter().any(changes))
    }
}

fn append(c: &Connection, batch: &Batch, (uid, verified): (u32, bool)) -> Result<u64> {
    let RunKey { cluster, run } = &batch.key;
    let mut upto: u64 = c
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM events WHERE cluster = ?1 AND run = ?2")?
        .query_row(params![cluster, run], |r| r.get(0))?;
    holders::admit(c, batch, upto)?;
    let mut events = Rows::new("events", 5, "");
    let mut applying = Applying::new(c, &batch.key, uid, verified);
    let mut bytes = 0;
    for record in &batch.records {
        if record.seq <= upto {
            continue;
        }
        if record.seq != upto + 1 {
            break;
        }
        let json = serde_json::to_string(record)?;
        bytes += json.len() as u64;
        events.push(row![cluster, run, record.seq, record.at_s, json]);
        applying.apply(record).with_context(|| format!("record {} of run {run}", record.seq))?;
        upto = record.seq;
    }
    events.insert(c)?;
    applying.end().with_context(|| format!("records up to {upto} of run {run}"))?;
    c.prepare_cached("UPDATE runs SET bytes = bytes + ?3, heard_s = ?4 WHERE cluster = ?1 AND run = ?2")?
        .execute(params![cluster, run, bytes, crate::now_s()])?;
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
        let connection = Connection::open(place).with_context(|| shown(place))?;
        Ok(Store { connection, changes: Arc::default(), open: RefCell::default() })
    }

    /// One more connection of the same service to its store.
    ///
    /// # Errors
    /// As [`Store::open_again`] says.
    pub fn another(&self, place: &Path) -> Result<Store> {
        Ok(Store { changes: self.changes.clone(), ..Store::open_again(place)? })
    }

    /// Stores what of a verified batch is new and in order; the position up to which all is stored.
    ///
    /// # Errors
    /// As [`Store::write`] says for one.
    pub fn append(&mut self, batch: &Batch, uid: u32) -> Result<u64> {
        let write = Write::Batch { batch: batch.clone(), uid, verified: true };
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
        let answers = match together {
            // MariaDB may give up a whole transaction for one bad statement.
            Err(e) if writes.len() > 1 && mysql::is_said(&e) => {
                Ok(writes.iter().map(|w| self.together(std::slice::from_ref(w))?.remove(0)).collect())
            }
            all => all,
        };
        if writes.iter().any(Write::changes_runs) {
            self.runs_changed();
        }
        answers
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
            // Nobody has said that it did anything else than compute.
            apply::close_record(c, &run.key, run.restart_count, at_s, state, Phase::Compute)?;
            c.prepare_cached("UPDATE runs SET state = ?3, end_s = ?4 WHERE cluster = ?1 AND run = ?2")?
                .execute(params![run.key.cluster, run.key.run, state, at_s])?;
            Ok(())
        })?;
        self.runs_changed();
        Ok(())
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
