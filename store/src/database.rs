//! One face for both databases: statements in SQLite's words, values, rows and transactions.

pub mod leadership;
pub(crate) mod mysql;
pub(crate) mod sqlite;

use crate::error::{Error, Result};
use policy::calibration::Fits;
use rusqlite::types::{FromSql, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A row of an answer.
pub enum Row<'a> {
    /// SQLite's.
    Sqlite(&'a rusqlite::Row<'a>),
    /// MariaDB's.
    Mysql(&'a ::mysql::Row),
}

impl Row<'_> {
    /// The value of a column, from 0.
    ///
    /// # Errors
    /// When there is no such column, or its value is of another kind.
    pub fn get<T: FromSql>(&self, column: usize) -> Result<T> {
        match self {
            Row::Sqlite(row) => Ok(row.get(column)?),
            Row::Mysql(row) => mysql::get(row, column),
        }
    }

    /// Whether a column, from 0, holds this text.
    ///
    /// # Errors
    /// When there is no such column.
    pub fn holds(&self, column: usize, text: &str) -> Result<bool> {
        Ok(match self {
            Row::Sqlite(row) => {
                matches!(row.get_ref(column)?, rusqlite::types::ValueRef::Text(t) if t == text.as_bytes())
            }
            Row::Mysql(row) => matches!(row.as_ref(column), Some(::mysql::Value::Bytes(t)) if t == text.as_bytes()),
        })
    }
}

/// Calibrations that were read once, by their ids: they are long, and never change.
pub(crate) type Kept = RefCell<BTreeMap<u64, Arc<protocol::Calibration>>>;

/// A connection to the store's database, how many answers it has read, the calibrations among them, and their fits.
pub struct Connection(Backend, Cell<u64>, Kept, Fits);

enum Backend {
    Sqlite(rusqlite::Connection, sqlite::Place),
    Mysql(mysql::Session),
}

impl Connection {
    /// Connects to a file, or to what a URL (`mysql://...`) names.
    pub fn open(place: &Path) -> Result<Connection> {
        Connection::open_led(place, None)
    }

    /// The same for a controller that leads with this token: it writes nothing once another controller has a newer one.
    pub(crate) fn open_led(place: &Path, token: Option<i64>) -> Result<Connection> {
        let backend = match url(place) {
            Some(url) => Backend::Mysql(mysql::Session::open(url, token)?),
            None if scheme(place).is_some() => return Err(Error::Scheme(shown(place))),
            None => {
                let file = sqlite::open(place)?;
                Backend::Sqlite(file, sqlite::Place::of(place)?)
            }
        };
        Ok(Connection(backend, Cell::new(0), Kept::default(), Fits::default()))
    }

    /// Connects to a MariaDB, each of whose answers is waited for so long.
    pub(crate) fn open_within(url: &str, limit: Duration) -> Result<Connection> {
        let backend = Backend::Mysql(mysql::Session::open_within(url, None, limit)?);
        Ok(Connection(backend, Cell::new(0), Kept::default(), Fits::default()))
    }

    /// The version of the tables; 0 where there are none.
    pub(crate) fn version(&self) -> Result<i64> {
        match &self.0 {
            Backend::Sqlite(c, _) => sqlite::version(c),
            Backend::Mysql(session) => session.version(),
        }
    }

    /// Brings the tables to a version, by statements.
    pub(crate) fn migrate(&self, version: i64, sql: &str) -> Result<()> {
        match &self.0 {
            Backend::Sqlite(c, _) => sqlite::migrate(c, version, sql),
            Backend::Mysql(session) => session.migrate(version, sql),
        }
    }

    /// Looks the tables through for damage; what is wrong, in the database's words.
    ///
    /// # Errors
    /// When it cannot even be looked at.
    pub fn damage(&self) -> Result<Option<String>> {
        match &self.0 {
            Backend::Sqlite(c, _) => sqlite::damage(c),
            Backend::Mysql(_) => Ok(None), // InnoDB checks its pages as it reads them
        }
    }

    /// Writes a copy of a file store while it is in use.
    ///
    /// # Errors
    /// What the database or the file system says; MariaDB has tools of its own.
    pub fn copy_to(&self, copy: &Path) -> Result<()> {
        match &self.0 {
            Backend::Sqlite(c, _) => sqlite::copy_to(c, copy),
            Backend::Mysql(_) => Err(Error::CopyOfMariadb),
        }
    }

    /// Calibrations that were read so far.
    pub(crate) fn calibrations(&self) -> &Kept {
        &self.2
    }

    /// What was fitted to them so far.
    pub(crate) fn fits(&self) -> &Fits {
        &self.3
    }

    /// Makes the table in which a report notes the runs it is about: this connection's own, outside the store.
    pub(crate) fn make_room_for_choice(&self) -> Result<()> {
        self.plain(match &self.0 {
            Backend::Sqlite(..) => sqlite::CHOSEN,
            Backend::Mysql(_) => mysql::CHOSEN,
        })
    }

    /// How many answers were read so far.
    pub fn reads(&self) -> u64 {
        self.1.get()
    }

    /// Does something wholly or not at all.
    ///
    /// # Errors
    /// What the work or the database says, or that its file is not in its place any more; nothing is done then.
    pub fn transaction<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Backend::Sqlite(_, place) = &self.0 {
            place.holds()?;
        }
        self.plain("BEGIN IMMEDIATE")?;
        let undo = Undo(self, &["ROLLBACK"]);
        let done = work()?;
        self.plain("COMMIT")?;
        std::mem::forget(undo);
        Ok(done)
    }

    /// Reads several times from one moment of the database.
    ///
    /// # Errors
    /// What the work or the database says.
    pub fn snapshot<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.plain("BEGIN")?;
        let _end = Undo(self, &["ROLLBACK"]);
        work()
    }

    /// The same inside a transaction, whose other work stays.
    pub(crate) fn savepoint<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.plain("SAVEPOINT one")?;
        let undo = Undo(self, &["ROLLBACK TO SAVEPOINT one", "RELEASE SAVEPOINT one"]);
        let done = work()?;
        self.plain("RELEASE SAVEPOINT one")?;
        std::mem::forget(undo);
        Ok(done)
    }

    /// Runs a statement, which is kept prepared for the next time; the number of rows it changed.
    pub fn execute(&self, sql: &str, values: &[Value]) -> Result<u64> {
        match &self.0 {
            Backend::Sqlite(c, _) => Ok(c.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values))? as u64),
            Backend::Mysql(session) => session.execute(sql, values),
        }
    }

    /// Looks at all rows of a statement's answer, one after another.
    ///
    /// # Errors
    /// What the database says, or the first error in looking.
    pub fn each(&self, sql: &str, values: &[Value], mut look: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        self.1.set(self.1.get() + 1);
        match &self.0 {
            Backend::Sqlite(c, _) => {
                let mut statement = c.prepare_cached(sql)?;
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                while let Some(row) = rows.next()? {
                    look(&Row::Sqlite(row))?;
                }
                Ok(())
            }
            Backend::Mysql(session) => {
                let mut looked = Ok(());
                session.query(sql, values, &mut |row| {
                    if looked.is_ok() {
                        looked = look(&Row::Mysql(row));
                    }
                })?;
                looked
            }
        }
    }

    /// Reads all rows of a statement's answer.
    pub fn query_map<T>(
        &self,
        sql: &str,
        values: &[Value],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.each(sql, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads the only row of a statement's answer.
    ///
    /// # Errors
    /// What the database says, or that there is none.
    pub fn query_row<T>(&self, sql: &str, values: &[Value], read: impl Fn(&Row<'_>) -> Result<T>) -> Result<T> {
        self.query_optional(sql, values, read)?.ok_or(Error::NoRow)
    }

    /// Reads the first row of a statement's answer, if there is one.
    pub fn query_optional<T>(
        &self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut first = None;
        self.each(sql, values, |row| {
            if first.is_none() {
                first = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Runs a statement without values.
    fn plain(&self, sql: &str) -> Result<()> {
        match &self.0 {
            Backend::Sqlite(c, _) => Ok(c.prepare_cached(sql)?.execute([]).map(drop)?),
            Backend::Mysql(session) => session.plain(sql),
        }
    }
}

/// Takes back what was begun, unless it is forgotten first: by an error or a panic.
struct Undo<'a>(&'a Connection, &'a [&'a str]);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for sql in self.1 {
            // A transaction that the database has ended by itself is not there to be taken back.
            let _ = self.0.plain(sql);
        }
    }
}

/// The URL of a MariaDB, if a place is one.
pub(crate) fn url(place: &Path) -> Option<&str> {
    place.to_str().filter(|p| p.starts_with("mysql://"))
}

/// The scheme of a place that looks like a URL.
fn scheme(place: &Path) -> Option<&str> {
    Some(place.to_str()?.split_once("://")?.0).filter(|scheme| !scheme.contains('/'))
}

/// A place as it may stand in a log: without a password.
pub fn shown(place: &Path) -> String {
    match (scheme(place), place.to_str().and_then(|p| p.rsplit_once('@'))) {
        (Some(scheme), Some((_, host))) => format!("{scheme}://...@{host}"),
        _ => place.display().to_string(),
    }
}
