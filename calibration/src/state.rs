//! The work folder of a calibration: what is to be measured, and every finished measurement, appended at once.
//!
//! Each node appends to a file of its own, so that no two write to one. A line that a crash cut short is passed
//! over, and its measurement done again.

use crate::orders::Order;
use anyhow::{Context, Result};
use protocol::Storage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is to be measured, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The points.
    pub orders: Vec<Order>,
    /// Nodes that measure.
    pub nodes: Vec<String>,
    /// When a point is known well enough.
    pub rules: Rules,
    /// Why there is no MPI program; absent if there is one.
    pub no_mpi: Option<String>,
    /// Few points, in a hurry.
    #[serde(default)]
    pub fast: bool,
}

impl Assignment {
    /// Storage targets that are measured.
    pub fn storage(&self) -> BTreeSet<Storage> {
        self.orders.iter().filter_map(|o| o.storage).collect()
    }
}

/// When a point is known well enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The confidence interval's half width that is aimed at, as a fraction of the mean.
    pub within: f64,
    /// Fewest repetitions.
    pub least: usize,
    /// Most repetitions.
    pub most: usize,
    /// Shortest time over which a power is read, s.
    pub window_s: f64,
    /// Pause before each checkpoint, s. One that follows another at once finds memory and caches as the last one left
    /// them, and is faster than those of a run.
    pub apart_s: f64,
}

impl Rules {
    /// The method's: 5 % or 30 times.
    pub const FULL: Rules = Rules { within: 0.05, least: 5, most: 30, window_s: 1.0, apart_s: 3.0 };
    /// A whole cluster in three minutes.
    pub const FAST: Rules = Rules { within: 0.1, least: 3, most: 4, window_s: 0.15, apart_s: 0.0 };
}

/// A measurement of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was measured.
    pub order: Order,
    /// Where.
    pub node: String,
    /// Durations, s.
    pub times_s: Vec<f64>,
    /// Mean powers of the node over windows, idle power included, W.
    pub powers_w: Vec<f64>,
    /// Source of the energy figures.
    pub source: String,
    /// Why it could not be measured.
    pub error: Option<String>,
}

impl Outcome {
    /// Why it could not be measured, and where; empty if it could.
    pub fn failure(&self) -> String {
        self.error.as_ref().map_or(String::new(), |why| format!("{}: {why}", self.node))
    }
}

/// A work folder.
#[derive(Clone, Debug)]
pub struct State {
    /// Its path, on a file system that all nodes share.
    pub folder: PathBuf,
}

impl State {
    /// Makes the folder; without `resume` whatever an earlier calibration left is removed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: &Path, resume: bool) -> Result<State> {
        let state = State { folder: folder.to_path_buf() };
        if !resume && state.outcomes_folder().exists() {
            fs::remove_dir_all(state.outcomes_folder()).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(state.outcomes_folder()).with_context(|| folder.display().to_string())?;
        Ok(state)
    }

    fn outcomes_folder(&self) -> PathBuf {
        self.folder.join("outcomes")
    }

    /// Writes what is to be measured.
    ///
    /// # Errors
    /// What the file system says.
    pub fn assign(&self, assignment: &Assignment) -> Result<()> {
        let path = self.folder.join("assignment.json");
        run::write_durably(&path, &serde_json::to_vec_pretty(assignment)?).with_context(|| path.display().to_string())
    }

    /// Reads what is to be measured.
    ///
    /// # Errors
    /// What the file system says.
    pub fn assignment(&self) -> Result<Assignment> {
        let path = self.folder.join("assignment.json");
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// Notes the jobs that measure.
    ///
    /// # Errors
    /// What the file system says.
    pub fn note_jobs(&self, jobs: &[u32]) -> Result<()> {
        let path = self.folder.join("jobs.json");
        run::write_durably(&path, &serde_json::to_vec(jobs)?).with_context(|| path.display().to_string())
    }

    /// The jobs that were noted last; none where none were.
    pub fn jobs(&self) -> Vec<u32> {
        let text = fs::read(self.folder.join("jobs.json"));
        text.ok().and_then(|t| serde_json::from_slice(&t).ok()).unwrap_or_default()
    }

    /// Appends a finished measurement, durably.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append(&self, outcome: &Outcome) -> Result<()> {
        let path = self.outcomes_folder().join(format!("{}.jsonl", outcome.node));
        let torn = fs::read(&path).is_ok_and(|t| t.last().is_some_and(|b| *b != b'\n'));
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let begin = if torn { "\n" } else { "" };
        file.write_all(format!("{begin}{}\n", serde_json::to_string(outcome)?).as_bytes())?;
        Ok(file.sync_data()?)
    }

    /// All finished measurements; the last of each order and node.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn outcomes(&self) -> Result<Vec<Outcome>> {
        let mut last: BTreeMap<(String, String), Outcome> = BTreeMap::new();
        for entry in fs::read_dir(self.outcomes_folder())?.flatten() {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            for outcome in text.lines().filter_map(|l| serde_json::from_str::<Outcome>(l).ok()) {
                last.insert((serde_json::to_string(&outcome.order)?, outcome.node.clone()), outcome);
            }
        }
        Ok(last.into_values().collect())
    }

    /// Forgets what could not be measured, so that it is tried again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn forget_failed(&self) -> Result<()> {
        let is_kept = |line: &&str| serde_json::from_str::<Outcome>(line).is_ok_and(|o| o.error.is_none());
        let paths: Vec<PathBuf> = fs::read_dir(self.outcomes_folder())?.flatten().map(|e| e.path()).collect();
        for path in paths {
            let text = fs::read(&path)?;
            let kept: String =
                String::from_utf8_lossy(&text).lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            run::write_durably(&path, kept.as_bytes()).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// The orders that are not finished: those that fewer nodes have answered than take part.
    ///
    /// # Errors
    /// As [`State::outcomes`].
    pub fn unfinished(&self, orders: &[Order]) -> Result<Vec<Order>> {
        let done = self.outcomes()?;
        let answers = |order: &Order| done.iter().filter(|o| o.order == *order).count();
        Ok(orders.iter().filter(|o| answers(o) < o.nodes as usize).cloned().collect())
    }

    /// Waits until all `nodes` have come to the same place; false when they did not in time.
    ///
    /// # Errors
    /// What the file system says.
    pub fn meet(&self, place: &str, node: &str, nodes: u32, limit: std::time::Duration) -> Result<bool> {
        let folder = self.folder.join("meetings").join(place);
        fs::create_dir_all(&folder)?;
        File::create(folder.join(node))?;
        let end = std::time::Instant::now() + limit;
        while fs::read_dir(&folder)?.count() < nodes as usize {
            if std::time::Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(processes: u32, nodes: u32) -> Order {
        let operation = Some(protocol::Operation::Compute);
        Order { operation, storage: None, nodes, processes, bytes: 0.0, intensity: 1.0, frequency_hz: None }
    }

    fn outcome(order: Order, node: &str) -> Outcome {
        let (times_s, powers_w) = (vec![1.0], vec![200.0]);
        Outcome { order, node: node.into(), times_s, powers_w, source: "model".into(), error: None }
    }

    #[test]
    fn what_was_finished_before_a_kill_is_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let orders = [order(1, 1), order(2, 2), order(4, 1)];
        let state = State::open(dir.path(), false).unwrap();
        state.append(&outcome(order(1, 1), "n1")).unwrap();
        state.append(&outcome(order(2, 2), "n1")).unwrap();
        // The kill comes in the middle of a line.
        let path = state.outcomes_folder().join("n1.jsonl");
        let whole = fs::read_to_string(&path).unwrap();
        let line = serde_json::to_string(&outcome(order(4, 1), "n1")).unwrap();
        fs::write(&path, format!("{whole}{}", &line[..line.len() / 2])).unwrap();

        let state = State::open(dir.path(), true).unwrap();
        assert_eq!(state.unfinished(&orders).unwrap(), [order(2, 2), order(4, 1)], "one node of two is not enough");
        for (order, node) in [(order(4, 1), "n1"), (order(2, 2), "n2")] {
            state.append(&outcome(order, node)).unwrap();
        }
        assert!(state.unfinished(&orders).unwrap().is_empty());
        assert_eq!(state.outcomes().unwrap().len(), 4);
        assert_eq!(State::open(dir.path(), false).unwrap().unfinished(&orders).unwrap().len(), 3);
    }

    #[test]
    fn what_could_not_be_measured_is_tried_again_once_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path(), false).unwrap();
        let failed = Outcome { error: Some("timed out".into()), ..outcome(order(2, 1), "n1") };
        [outcome(order(1, 1), "n1"), failed].iter().for_each(|o| state.append(o).unwrap());
        let orders = [order(1, 1), order(2, 1)];
        assert!(state.unfinished(&orders).unwrap().is_empty(), "a job does not try for ever");
        state.forget_failed().unwrap();
        assert_eq!(state.unfinished(&orders).unwrap(), [order(2, 1)]);
    }

    #[test]
    fn nodes_meet_or_give_up() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path(), false).unwrap();
        let long = std::time::Duration::from_secs(60);
        let (one, two) = std::thread::scope(|s| {
            let one = s.spawn(|| state.meet("a", "n1", 2, long).unwrap());
            (state.meet("a", "n2", 2, long).unwrap(), one.join().unwrap())
        });
        assert!(one && two);
        assert!(!state.meet("b", "n1", 2, std::time::Duration::from_millis(20)).unwrap());
    }
}
