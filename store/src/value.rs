//! Values of statements, which both databases are given as SQLite's.

use rusqlite::types::{ToSql, ToSqlOutput, Value};

/// The value of something; of a number that is too large for a column, the largest.
pub(crate) fn value(of: &(impl ToSql + ?Sized)) -> Value {
    match of.to_sql() {
        Ok(ToSqlOutput::Owned(value)) => value,
        Ok(ToSqlOutput::Borrowed(value)) => value.into(),
        _ => Value::Integer(i64::MAX),
    }
}

/// The values of a row.
macro_rules! row {
    ($($value:expr),* $(,)?) => { [$($crate::value::value(&$value)),*] };
}

/// The values of a statement's `?1`, `?2`, ...
macro_rules! params {
    ($($value:expr),* $(,)?) => { &$crate::value::row![$($value),*] };
}
pub(crate) use {params, row};
