//! Watches the queue beside everything else: which job was in which state on which nodes, and when.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1500);

/// What one look showed of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// Slurm's number.
    pub job: u32,
    /// `RUNNING`, `PENDING`, ...
    pub state: String,
    /// Its nodes; that of its script first.
    pub nodes: Vec<String>,
}

/// The queue over time.
pub struct Queue {
    seen: Arc<Mutex<Vec<Seen>>>,
    is_over: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

impl Queue {
    /// Begins to look.
    pub fn watch(conf: &Path) -> Queue {
        let (seen, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (into, until, conf) = (seen.clone(), is_over.clone(), conf.to_path_buf());
        let looker = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let found = look(&conf);
                lock(&into).extend(found);
                std::thread::sleep(LOOK);
            }
        });
        Queue { seen, is_over, looker: Some(looker) }
    }

    /// Everything that was seen of a job, in order of time.
    pub fn of(&self, job: u32) -> Vec<Seen> {
        lock(&self.seen).iter().filter(|seen| seen.job == job).cloned().collect()
    }

    /// The nodes that a job had when it was last seen to run; that of its script first.
    pub fn nodes(&self, job: u32) -> Vec<String> {
        let seen = lock(&self.seen);
        let last = seen.iter().rev().find(|seen| seen.job == job && !seen.nodes.is_empty());
        last.map(|seen| seen.nodes.clone()).unwrap_or_default()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            looker.thread().unpark();
            let _ = looker.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look(conf: &PathBuf) -> Vec<Seen> {
    let mut command = Command::new("timeout");
    command.args(["-k1", "5", "squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%B|%N"]).env("SLURM_CONF", conf);
    let said = command.output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let at = Instant::now();
    said.lines().filter_map(|line| seen(at, line)).collect()
}

fn seen(at: Instant, line: &str) -> Option<Seen> {
    let words: Vec<&str> = line.split('|').collect();
    let [job, state, script, nodes] = words[..] else { return None };
    let mut nodes = names(nodes);
    nodes.sort_by_key(|node| node != script);
    Some(Seen { at, job: job.parse().ok()?, state: state.to_string(), nodes })
}

/// `n[1-3,7]` as four names.
fn names(list: &str) -> Vec<String> {
    let inside = list.strip_prefix("n[").and_then(|rest| rest.strip_suffix(']'));
    let Some(inside) = inside.or_else(|| list.strip_prefix('n')) else { return Vec::new() };
    let ranges = inside.split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?)
    });
    ranges.flatten().map(|number| format!("n{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_squeue_names_the_node_of_the_script_first() {
        let at = Instant::now();
        let nodes = |line| seen(at, line).map(|s| s.nodes.join(" "));
        assert_eq!(nodes("7|RUNNING|n3|n[1-3,7]").as_deref(), Some("n3 n1 n2 n7"));
        assert_eq!(nodes("8|RUNNING|n5|n5").as_deref(), Some("n5"));
        assert_eq!(nodes("9|PENDING|n/a|").as_deref(), Some(""));
        assert_eq!(nodes("9_[1-4]|PENDING|n/a|"), None);
    }
}
