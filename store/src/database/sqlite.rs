//! SQLite's side of the store: one file in WAL mode, synced before anything counts.

use crate::error::{At, Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one connection waits for another.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// Prepared statements that are kept.
const STATEMENTS: usize = 128;

/// The runs that a report is about, in the order of their names.
pub const CHOSEN: &str = "CREATE TEMP TABLE IF NOT EXISTS chosen (
    place INTEGER PRIMARY KEY, cluster TEXT NOT NULL, run TEXT NOT NULL)";

/// Opens or creates a file, in a folder that is there: a storage that is not mounted is no place for a new one.
pub fn open(path: &Path) -> Result<Connection> {
    let name = || path.display().to_string();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        return Err(Error::NoFolder(folder.display().to_string()));
    }
    let connection = Connection::open(path).at(name)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    // Without it each `LIMIT ?` makes SQLite prepare its statement anew for each value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "journal_mode", "WAL").at(name)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Where the file of a connection is, and which one it was when it was opened.
pub struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    /// The file that is there now.
    pub fn of(path: &Path) -> Result<Place> {
        Ok(Place { path: path.to_path_buf(), file: id(path)? })
    }

    /// That the file is still there. One that was removed or replaced takes what is written to it along when it is closed.
    ///
    /// # Errors
    /// That it is not.
    pub fn holds(&self) -> Result<()> {
        match id(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e.into()),
            _ => Err(Error::Moved(self.path.display().to_string())),
        }
    }
}

fn id(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::metadata(path).map(|m| (m.dev(), m.ino()))
}

/// The version of the tables; 0 for a new file.
pub fn version(c: &Connection) -> Result<i64> {
    Ok(c.pragma_query_value(None, "user_version", |r| r.get(0))?)
}

/// Brings the tables to a version, wholly or not at all.
pub fn migrate(c: &Connection, version: i64, sql: &str) -> Result<()> {
    Ok(c.execute_batch(&format!("BEGIN IMMEDIATE; {sql} PRAGMA user_version = {version}; COMMIT;"))?)
}

/// The first damage that SQLite finds.
pub fn damage(c: &Connection) -> Result<Option<String>> {
    let found: String = c.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// Whether an error means that the file is damaged.
pub fn is_damage(error: &Error) -> bool {
    let code = if let Error::Sqlite(e) = error.cause() { e.sqlite_error_code() } else { None };
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Writes a consistent copy under a temporary name, and renames it.
pub fn copy_to(c: &Connection, copy: &Path) -> Result<()> {
    let name = || copy.display().to_string();
    let folder = copy.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile_name(copy)?;
    let _ = fs::remove_file(&part); // left by a copy that was killed
    c.execute("VACUUM INTO ?1", [part.to_str().ok_or(Error::CopyName)?]).at(name)?;
    File::open(&part)?.sync_all()?;
    fs::rename(&part, copy).at(name)?;
    Ok(File::open(folder)?.sync_all()?)
}

fn tempfile_name(copy: &Path) -> Result<PathBuf> {
    let mut name = copy.file_name().ok_or(Error::CopyName)?.to_os_string();
    name.push(".part");
    Ok(copy.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn a_statement_with_a_limit_is_prepared_once() {
        let dir = tempfile::tempdir().unwrap();
        let c = open(&dir.path().join("store.sqlite")).unwrap();
        for most in [1, 2, 3] {
            let mut statement = c.prepare_cached("SELECT 7 UNION ALL SELECT 8 LIMIT ?1").unwrap();
            let rows = statement.query_map([most], |r| r.get::<_, i64>(0)).unwrap().count();
            assert_eq!((rows, statement.get_status(StatementStatus::RePrepare)), (most.min(2), 0));
        }
    }
}
