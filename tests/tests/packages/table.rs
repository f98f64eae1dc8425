//! The table of the matrix: one column for each series, one row for each step.

use std::fs;
use std::path::PathBuf;
use suite::repository;

/// What came of the steps with one series.
pub struct Column {
    series: String,
    rows: Vec<(String, String)>,
}

fn folder() -> PathBuf {
    repository().join("target/matrix")
}

impl Column {
    /// An empty one.
    pub fn new(series: &str, debian: &str) -> Column {
        Column { series: series.to_string(), rows: vec![("Debian".into(), debian.into())] }
    }

    /// What came of one step.
    pub fn add(&mut self, step: &str, cell: &str) {
        self.rows.push((step.to_string(), cell.to_string()));
    }

    /// Keeps the column for `make matrix`.
    pub fn write(&self) {
        let rows: Vec<String> = self.rows.iter().map(|(step, cell)| format!("{step}\t{cell}\n")).collect();
        fs::create_dir_all(folder()).expect("a folder");
        fs::write(folder().join(format!("{}.tsv", self.series)), rows.concat()).expect("a column");
    }
}
