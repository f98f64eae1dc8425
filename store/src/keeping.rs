//! How long runs are kept, and copies of the whole.

use crate::error::Result;
use crate::store::Store;
use crate::value::params;
use protocol::RunKey;
use std::path::Path;

/// Tables with rows of a run; the run's own last, so that a deletion that is cut short is taken up again.
const TABLES: [&str; 12] = [
    "events",
    "records",
    "resumed",
    "phases",
    "counters",
    "checkpoints",
    "failures",
    "decisions",
    "loans",
    "lending",
    "holders",
    "runs",
];

impl Store {
    /// Deletes the oldest runs that ended before a moment, at most `most` of them; how many they were.
    ///
    /// What nodes were watched, and when they died, stays: the MTBF rests on it.
    ///
    /// # Errors
    /// What the database says; nothing is deleted then.
    pub fn forget(&mut self, ended_before_s: f64, most: u32) -> Result<usize> {
        let c = self.connection();
        c.transaction(|| {
            let old: Vec<RunKey> = c.query_map(
                "SELECT cluster, run FROM runs WHERE end_s < ?1 ORDER BY end_s LIMIT ?2",
                params![ended_before_s, most],
                |r| Ok(RunKey { cluster: r.get(0)?, run: r.get(1)? }),
            )?;
            for key in &old {
                for table in TABLES {
                    c.execute(
                        &format!("DELETE FROM {table} WHERE cluster = ?1 AND run = ?2"),
                        params![key.cluster, key.run],
                    )?;
                }
            }
            Ok(old.len())
        })
    }

    /// Writes a copy of the store at a place while it is in use.
    ///
    /// # Errors
    /// What the database or the file system says, or that there is no store.
    pub fn back_up(place: &Path, copy: &Path) -> Result<()> {
        Store::open_again(place)?.connection().copy_to(copy)
    }
}
