//! Rows that are inserted together: a statement for many of them costs hardly more than for one.

use crate::database::Connection;
use crate::error::Result;
use rusqlite::types::Value;

/// How many rows go into one statement; few sizes, so that each is prepared once.
const TOGETHER: [usize; 3] = [64, 8, 1];

/// Rows on their way into one table.
pub(crate) struct Rows {
    into: &'static str,
    otherwise: &'static str,
    columns: usize,
    values: Vec<Value>,
}

impl Rows {
    /// Rows of so many columns for `INSERT INTO into ... otherwise`.
    pub fn new(into: &'static str, columns: usize, otherwise: &'static str) -> Rows {
        Rows { into, otherwise, columns, values: Vec::new() }
    }

    /// Adds a row.
    pub fn push<const N: usize>(&mut self, row: [Value; N]) {
        debug_assert_eq!(N, self.columns, "{}", self.into);
        self.values.extend(row);
    }

    /// Inserts all rows so far, in their order.
    pub fn insert(&mut self, c: &Connection) -> Result<()> {
        let mut rest = &self.values[..];
        for rows in TOGETHER {
            if rest.len() < rows * self.columns {
                continue;
            }
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            let sql = format!("INSERT INTO {} VALUES {} {}", self.into, vec![row; rows].join(", "), self.otherwise);
            while let Some((now, later)) = rest.split_at_checked(rows * self.columns) {
                c.execute(&sql, now)?;
                rest = later;
            }
        }
        self.values.clear();
        Ok(())
    }
}
