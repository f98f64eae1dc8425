//! MariaDB's side of the store: the session, and what differs from SQLite's words.

use crate::error::{At, Error, Result};
use mysql::consts::ColumnType;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params};
use rusqlite::types::{FromSql, Value, ValueRef};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a connection, and for an answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Prepared statements that are kept.
const STATEMENTS: usize = 128;

/// How a session of a leader begins, too: a transaction of which nothing is heard does not keep the next leader waiting. MariaDB
/// alone knows the second variable, and reads the comment; the first has its own default.
const OF_A_LEADER: &str =
    "SET SESSION innodb_lock_wait_timeout = DEFAULT /*M!100300 , SESSION idle_transaction_timeout = 4 */";

/// How each session begins: errors instead of silent cuts, quotes as in SQLite, no locks on gaps.
const BEGINNING: [&str; 2] = [
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ANSI_QUOTES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// The runs that a report is about, in the order of their names.
pub const CHOSEN: &str = "CREATE TEMPORARY TABLE IF NOT EXISTS chosen (
    place BIGINT PRIMARY KEY AUTO_INCREMENT, cluster VARCHAR(64) NOT NULL, run VARCHAR(160) NOT NULL)
    CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";

/// A connection that is made again when it is lost, but never inside a transaction.
pub struct Session {
    options: Opts,
    live: RefCell<Option<Conn>>,
    inside: Cell<bool>,
    /// Set by any error inside: MariaDB may have ended the transaction by itself.
    spoiled: Cell<bool>,
    translated: RefCell<HashMap<String, Arc<Translated>>>,
    /// The token of the leader whose session it is.
    token: Option<i64>,
}

/// A statement in MariaDB's words, and which value stands at each of its `?`.
#[derive(Debug, PartialEq)]
struct Translated {
    sql: String,
    order: Vec<usize>,
}

/// Whether an error is MariaDB's own word on a statement, and not the loss of the connection.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error.cause(), Error::Mysql(mysql::Error::MySqlError(_)))
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// What is wrong with the URL, without the password in it, or what MariaDB says.
    pub fn open(url: &str, token: Option<i64>) -> Result<Session> {
        Session::open_within(url, token, ANSWER_LIMIT)
    }

    /// The same with another limit for each answer.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_within(url: &str, token: Option<i64>, limit: Duration) -> Result<Session> {
        let options = Opts::from_url(url)?;
        let of_a_leader = token.map(|_| OF_A_LEADER);
        let builder = OptsBuilder::from_opts(options)
            .init(BEGINNING.into_iter().chain(of_a_leader).collect())
            .stmt_cache_size(STATEMENTS)
            .tcp_connect_timeout(Some(CONNECT_LIMIT.min(limit)))
            .read_timeout(Some(limit))
            .write_timeout(Some(limit));
        let session = Session {
            options: builder.into(),
            live: RefCell::default(),
            inside: Cell::new(false),
            spoiled: Cell::new(false),
            translated: RefCell::default(),
            token,
        };
        session.with(|c| c.ping())?;
        Ok(session)
    }

    fn connect(&self) -> Result<Conn> {
        let host = self.options.get_ip_or_hostname();
        Conn::new(self.options.clone()).at(|| format!("MariaDB at {host} cannot be reached"))
    }

    /// Does something with the connection; a lost one is made again once, if nothing is open on it.
    fn with<T>(&self, mut act: impl FnMut(&mut Conn) -> mysql::Result<T>) -> Result<T> {
        let kept = self.live.take();
        if self.inside.get() && (self.spoiled.get() || kept.is_none()) {
            self.live.replace(kept);
            return Err(Error::Transaction);
        }
        let again = kept.is_some() && !self.inside.get();
        let mut connection = kept.map_or_else(|| self.connect(), Ok)?;
        let mut answer = act(&mut connection);
        if again && answer.as_ref().is_err_and(is_loss) {
            connection = self.connect()?;
            answer = act(&mut connection);
        }
        if !answer.as_ref().is_err_and(is_loss) {
            self.live.replace(Some(connection));
        }
        self.spoiled.set(self.spoiled.get() || answer.is_err());
        Ok(answer?)
    }

    /// Runs a statement without values; those on transactions are kept count of.
    pub fn plain(&self, sql: &str) -> Result<()> {
        match sql {
            "BEGIN IMMEDIATE" => {
                self.with(|c| c.query_drop("START TRANSACTION"))?;
                self.inside.set(true);
                self.spoiled.set(false);
                self.lead().inspect_err(|_| drop(self.plain("ROLLBACK")))
            }
            "ROLLBACK" => {
                self.inside.set(false);
                self.with(|c| c.query_drop(sql))
            }
            "COMMIT" => {
                self.with(|c| c.query_drop(sql))?;
                self.inside.set(false);
                Ok(())
            }
            _ => self.with(|c| c.query_drop(sql)),
        }
    }

    /// Whether the session's token is the newest, until the end of the transaction: whoever takes a newer one waits for it.
    fn lead(&self) -> Result<()> {
        let Some(token) = self.token else { return Ok(()) };
        let sql = "SELECT token FROM controller_token WHERE place = 1 LOCK IN SHARE MODE";
        let newest: Option<i64> = self.with(|c| c.query_first(sql))?;
        if newest == Some(token) { Ok(()) } else { Err(Error::NotLeading) }
    }

    /// Runs a statement; the number of rows it changed. That of a leader is never outside of a transaction.
    pub fn execute(&self, sql: &str, values: &[Value]) -> Result<u64> {
        if self.token.is_some() && !self.inside.get() {
            self.plain("BEGIN IMMEDIATE")?;
            let done = self.execute(sql, values);
            let ended = self.plain(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
            if ended.is_err() {
                // The connection is lost: the next one is inside of nothing.
                let _ = self.plain("ROLLBACK");
            }
            return ended.and(done);
        }
        let statement = self.translated(sql);
        self.with(|c| {
            c.exec_drop(&statement.sql, statement.values(values))?;
            Ok(c.affected_rows())
        })
    }

    /// Runs a statement and shows each row of its answer.
    pub fn query(&self, sql: &str, values: &[Value], show: &mut dyn FnMut(&mysql::Row)) -> Result<()> {
        let statement = self.translated(sql);
        let rows: Vec<mysql::Row> = self.with(|c| c.exec(&statement.sql, statement.values(values)))?;
        rows.iter().for_each(show);
        Ok(())
    }

    /// The version of the tables; 0 where there are none.
    pub fn version(&self) -> Result<i64> {
        self.with(|c| {
            c.query_drop("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")?;
            Ok(c.query_first("SELECT max(version) FROM schema_version")?.flatten().unwrap_or(0))
        })
    }

    /// Brings the tables to a version; MariaDB cannot undo a step that is cut short, but every step can be repeated.
    pub fn migrate(&self, version: i64, sql: &str) -> Result<()> {
        for statement in sql.split(";\n").map(|s| tables(s.trim())).filter(|s| !s.is_empty()) {
            self.with(|c| c.query_drop(&statement)).at(|| statement.clone())?;
        }
        self.with(|c| c.exec_drop("INSERT INTO schema_version VALUES (?)", (version,)))
    }

    fn translated(&self, sql: &str) -> Arc<Translated> {
        if let Some(known) = self.translated.borrow().get(sql) {
            return known.clone();
        }
        let new = Arc::new(translate(sql));
        self.translated.borrow_mut().insert(sql.to_string(), new.clone());
        new
    }
}

/// Whether the connection is gone.
fn is_loss(error: &mysql::Error) -> bool {
    !matches!(error, mysql::Error::MySqlError(_))
}

impl Translated {
    fn values(&self, values: &[Value]) -> Params {
        if self.order.is_empty() {
            return Params::Empty;
        }
        let value = |at: &usize| match values.get(*at) {
            None | Some(Value::Null | Value::Blob(_)) => mysql::Value::NULL,
            Some(Value::Integer(n)) => mysql::Value::Int(*n),
            Some(Value::Real(x)) => mysql::Value::Double(*x),
            Some(Value::Text(text)) => mysql::Value::Bytes(text.clone().into_bytes()),
        };
        Params::Positional(self.order.iter().map(value).collect())
    }
}

/// The value of a column.
pub fn get<T: FromSql>(row: &mysql::Row, column: usize) -> Result<T> {
    let other = |found: String| Error::Column { column, found, wanted: std::any::type_name::<T>() };
    let kind = row.columns_ref().get(column).map(mysql::Column::column_type);
    let value = match row.as_ref(column).ok_or_else(|| other("nothing".to_string()))? {
        mysql::Value::NULL => ValueRef::Null,
        // What MariaDB adds up of whole numbers is decimal, and comes as text.
        mysql::Value::Bytes(digits) if kind == Some(ColumnType::MYSQL_TYPE_NEWDECIMAL) => {
            decimal(digits).ok_or_else(|| other(String::from_utf8_lossy(digits).into_owned()))?
        }
        mysql::Value::Int(n) => ValueRef::Integer(*n),
        mysql::Value::UInt(n) => ValueRef::Integer(i64::try_from(*n).map_err(|_| other(n.to_string()))?),
        mysql::Value::Float(x) => ValueRef::Real(f64::from(*x)),
        mysql::Value::Double(x) => ValueRef::Real(*x),
        mysql::Value::Bytes(bytes) => ValueRef::Text(bytes),
        value => return Err(other(format!("{value:?}"))),
    };
    T::column_result(value).map_err(|e| other(e.to_string()))
}

/// A decimal number: a whole one, if it is one.
fn decimal(digits: &[u8]) -> Option<ValueRef<'static>> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.parse().map(ValueRef::Integer).or_else(|_| digits.parse().map(ValueRef::Real)).ok()
}

/// A statement on tables, whose texts are compared byte by byte, as SQLite does.
fn tables(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().filter(|l| !l.starts_with("--")).collect();
    let sql = lines.join("\n").replace("INTEGER PRIMARY KEY", "BIGINT PRIMARY KEY AUTO_INCREMENT");
    let bytewise =
        if sql.starts_with("CREATE TABLE") { " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin" } else { "" };
    format!("{}{bytewise}", sql.trim_end_matches(" WITHOUT ROWID"))
}

/// A statement on rows: `?3` becomes `?`, and SQLite's way of saying "or else change it" MariaDB's.
fn translate(sql: &str) -> Translated {
    let mut new = sql.replace("INSERT OR IGNORE", "INSERT IGNORE");
    if let Some(at) = new.find("ON CONFLICT (")
        && let Some(length) = new[at..].find("DO UPDATE SET")
    {
        new.replace_range(at..at + length + "DO UPDATE SET".len(), "ON DUPLICATE KEY UPDATE");
    }
    let mut parts = new.split("excluded.");
    let mut new = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        new.push_str(&format!("VALUES({}){}", &part[..end], &part[end..]));
    }
    let (mut sql, mut order) = (String::new(), Vec::new());
    let mut parts = new.split('?');
    sql.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        order.push(part[..digits].parse::<usize>().map_or(order.len(), |n| n - 1));
        sql.push('?');
        sql.push_str(&part[digits..]);
    }
    Translated { sql, order }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_translated() {
        for (ours, theirs, order) in [
            ("SELECT 1", "SELECT 1", vec![]),
            ("WHERE a = ?2 AND b = ?1 OR a > ?2", "WHERE a = ? AND b = ? OR a > ?", vec![1, 0, 1]),
            ("INSERT OR IGNORE INTO t VALUES (?1)", "INSERT IGNORE INTO t VALUES (?)", vec![0]),
            (
                "INSERT INTO t VALUES (?1, ?2) ON CONFLICT (a, b) DO UPDATE SET c = excluded.c, d = ?2",
                "INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE c = VALUES(c), d = ?",
                vec![0, 1, 1],
            ),
        ] {
            assert_eq!(translate(ours), Translated { sql: theirs.into(), order }, "{ours}");
        }
    }
}
