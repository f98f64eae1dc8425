//! The store: SQLite or MariaDB, every record exactly once.

use crate::apply::{self, Applying};
use crate::calibrations;
use crate::database::leadership::Leadership;
use crate::database::{Connection, mysql, shown, sqlite, url};
use crate::error::{At, Error, Result};
use crate::holders;
use crate::rows::Rows;
use crate::runs::OpenRun;
use crate::value::{params, row};
use protocol::{Batch, Calibration, Event, JobReading, RunKey, StoredCalibration};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// What brings the tables from each version to the next; never changed once it was shipped.
const STEPS: [&str; 17] = [
    include_str!("schema1.sql"),
    include_str!("schema2.sql"),
    include_str!("schema3.sql"),
    include_str!("schema4.sql"),
    include_str!("schema5.sql"),
    include_str!("schema6.sql"),
    include_str!("schema7.sql"),
    include_str!("schema8.sql"),
    include_str!("schema9.sql"),
    include_str!("schema10.sql"),
    include_str!("schema11.sql"),
    include_str!("schema12.sql"),
    include_str!("schema13.sql"),
    // The newest deaths of nodes, for each plan.
    "CREATE INDEX IF NOT EXISTS node_failures_by_time ON node_failures (at_s);",
    // Phases that hold what a record's counters showed beyond those that were told. MariaDB reads the comment.
    "ALTER TABLE phases ADD COLUMN /*! IF NOT EXISTS */ is_rest BIGINT NOT NULL DEFAULT 0;",
    // What a run's nodes have told each other, as JSON, for later runs of its name. MariaDB reads the comment.
    "ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ messages MEDIUMTEXT;",
    // What is written to see whether anything can be.
    "CREATE TABLE IF NOT EXISTS probes (place BIGINT PRIMARY KEY, written BIGINT NOT NULL);",
];

/// The store of a controller.
pub struct Store {
    connection: Connection,
    /// That of the leader whose connection it is.
    token: Option<i64>,
    /// Counts what changed the runs that are open, for all connections of one service.
    pub(crate) changes: Arc<AtomicU64>,
    pub(crate) open: RefCell<Option<(u64, Arc<Vec<OpenRun>>)>>,
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
                c.execute(sql, params![key.cluster, key.run, named.to_string(), array])?;
                Ok(0)
            }
            Write::Counters { key, restart_count, node, at_s, reading } => {
                // Counters that arrive after the record's end belong to nobody's account any more.
                if !apply::is_going_on(c, key, *restart_count)? {
                    return Ok(0);
                }
                let before_j = apply::counted_before(c, key, *restart_count, node, reading.since_s)?;
                let reading = JobReading { joules: reading.joules - before_j, ..reading.clone() };
                if reading.joules >= 0.0 {
                    let mut counters = apply::counters();
                    counters.push(apply::counter(key, *restart_count, node, *at_s, &reading, Some(reading.joules)));
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
    let mut upto: u64 = c.query_row(
        "SELECT coalesce(max(seq), 0) FROM events WHERE cluster = ?1 AND run = ?2",
        params![cluster, run],
        |r| r.get(0),
    )?;
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
        applying.apply(record).at(|| format!("record {} of run {run}", record.seq))?;
        upto = record.seq;
    }
    let now_s = UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64());
    events.insert(c)?;
    applying.end().at(|| format!("records up to {upto} of run {run}"))?;
    c.execute(
        "UPDATE runs SET bytes = bytes + ?3, heard_s = ?4 WHERE cluster = ?1 AND run = ?2",
        params![cluster, run, bytes, now_s],
    )?;
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
        Store::open_led(place, None)
    }

    /// The same for the controller that leads: neither this connection nor [`Store::another`] changes a row once another one leads.
    ///
    /// # Errors
    /// As [`Store::open`]; [`Error::NotLeading`] then.
    pub fn open_led(place: &Path, by: Option<&Leadership>) -> Result<Store> {
        let damaged = |found: String| Error::Damaged { place: shown(place), found };
        let token = by.map(Leadership::token);
        Store::up_to_date(place, token).map_err(|e| if sqlite::is_damage(&e) { damaged(e.to_string()) } else { e })
    }

    fn up_to_date(place: &Path, token: Option<i64>) -> Result<Store> {
        let name = shown(place);
        let store = Store::connect(place, token)?;
        let version = store.connection.version()?;
        let steps = usize::try_from(version).ok().and_then(|v| STEPS.get(v..));
        let steps = steps.ok_or(Error::Version(version)).at(|| name.clone())?;
        if let Some(found) = store.connection.damage()? {
            return Err(Error::Damaged { place: name, found });
        }
        for (step, next) in steps.iter().zip(version + 1..) {
            tracing::info!(store = name, version = next, "the store's tables are brought up to date");
            store.connection.migrate(next, step).at(|| format!("{name}: to version {next}"))?;
        }
        Ok(store)
    }

    /// One more connection to a store that has been opened.
    ///
    /// # Errors
    /// What the database says, or that there is no store.
    pub fn open_again(place: &Path) -> Result<Store> {
        if url(place).is_none() && !place.exists() {
            return Err(Error::NoStore(place.display().to_string()));
        }
        Store::connect(place, None)
    }

    fn connect(place: &Path, token: Option<i64>) -> Result<Store> {
        let connection = Connection::open_led(place, token).at(|| shown(place))?;
        Ok(Store { connection, token, changes: Arc::default(), open: RefCell::default() })
    }

    /// One more connection of the same service to its store.
    ///
    /// # Errors
    /// What the database says.
    pub fn another(&self, place: &Path) -> Result<Store> {
        Ok(Store { changes: self.changes.clone(), ..Store::connect(place, self.token)? })
    }

    /// Stores what of a verified batch is new and in order; the position up to which all is stored.
    ///
    /// # Errors
    /// As [`Store::write`] says for one.
    pub fn append(&mut self, batch: &Batch, uid: u32) -> Result<u64> {
        let write = Write::Batch { batch: batch.clone(), uid, verified: true };
        self.write(std::slice::from_ref(&write))?.remove(0)
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
            Err(e) if writes.len() > 1 && mysql::is_refusal(&e) => {
                Ok(writes.iter().map(|w| self.together(std::slice::from_ref(w))?.remove(0)).collect())
            }
            all => all,
        };
        if writes.iter().any(Write::changes_runs) {
            self.runs_changed();
        }
        answers
    }

    /// Writes something: a database may take transactions, and no row.
    ///
    /// # Errors
    /// Why nothing can be written.
    pub fn probe(&self) -> Result<()> {
        let sql = "INSERT INTO probes VALUES (1, 1) ON CONFLICT (place) DO UPDATE SET written = written + 1";
        self.connection.transaction(|| self.connection.execute(sql, &[])).map(drop)
    }

    fn together(&self, writes: &[Write]) -> Result<Vec<Result<u64>>> {
        let c = &self.connection;
        c.transaction(|| {
            let mut answers = Vec::with_capacity(writes.len());
            for write in writes {
                let answer = c.savepoint(|| write.apply(c));
                match answer {
                    Err(e) if mysql::is_refusal(&e) => return Err(e),
                    answer => answers.push(answer),
                }
            }
            Ok(answers)
        })
    }

    /// Keeps a calibration beside the earlier ones of its node type; corrections begin anew.
    pub fn keep_calibration(&self, new: &Calibration) -> Result<u64> {
        calibrations::keep(&self.connection, new)
    }

    /// Calibrations, newest first: the newest of every node type, or with `history` all; of one type if named.
    ///
    /// # Errors
    /// What the database says, or a document of another version.
    pub fn calibrations(&self, node_type: Option<&str>, history: bool) -> Result<Vec<StoredCalibration>> {
        calibrations::all(&self.connection, node_type, history)
    }

    /// Tells all connections of this service that the open runs are others now.
    pub(crate) fn runs_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The connection, for reports.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}
