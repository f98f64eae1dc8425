//! A checkpoint of all groups at once: while the ranks of all groups are away from their relays, what these hold is saved
//! beside the dumps. So all groups can go back to it, if it is a line.

use driver::groups::ports::NoLine;
use mpi_relay::{Layout, line};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for the ranks of all groups to be away: those that are wait meanwhile.
const LIMIT: Duration = Duration::from_secs(60);

/// The folder with what the relay of a call held, in that of a group's checkpoint.
pub fn saved(folder: &Path, call: &str) -> PathBuf {
    folder.join(format!("{call}.relay"))
}

/// One such checkpoint.
pub(crate) struct Gathering {
    number: u64,
    folders: Vec<PathBuf>,
    /// The calls whose ranks are away then, with the ranks of all groups.
    calls: BTreeMap<String, String>,
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    away: BTreeSet<usize>,
    saved: BTreeSet<usize>,
    failed: Option<NoLine>,
    is_line: bool,
}

impl Gathering {
    pub(crate) fn new(number: u64, folders: &[PathBuf], calls: BTreeMap<String, String>) -> Gathering {
        let (seen, changed) = Default::default();
        Gathering { number, folders: folders.to_vec(), calls, seen, changed }
    }

    /// The common number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether this is the folder of a group's part.
    pub(crate) fn has(&self, folder: &Path) -> bool {
        self.folders.iter().any(|own| own == folder)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It will be no line: nobody waits any longer.
    pub(crate) fn fail(&self, why: NoLine) {
        self.seen().failed.get_or_insert(why);
        self.changed.notify_all();
    }

    /// The ranks of a group are away: when those of all are, its part is saved by `save`.
    pub(crate) fn meet(&self, group: usize, save: impl FnOnce(&Path) -> Result<(), NoLine>) {
        let until = Instant::now() + LIMIT;
        let mut seen = self.seen();
        seen.away.insert(group);
        self.changed.notify_all();
        while seen.away.len() < self.folders.len() && seen.failed.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                seen.failed = Some(NoLine::Late);
                self.changed.notify_all();
            }
            seen = self.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if seen.failed.is_some() {
            return;
        }
        drop(seen);
        if let Err(why) = save(&self.folders[group]) {
            return self.fail(why);
        }
        let mut seen = self.seen();
        seen.saved.insert(group);
        if seen.saved.len() == self.folders.len() && seen.failed.is_none() {
            match self.look() {
                Ok(()) => seen.is_line = true,
                Err(why) => seen.failed = Some(why),
            }
        }
    }

    /// Whether what was saved is a line of each call.
    fn look(&self) -> Result<(), NoLine> {
        let unread = |e: mpi_relay::Error| NoLine::Storage(e.to_string());
        for (call, ranks) in &self.calls {
            let folders: Vec<PathBuf> = self.folders.iter().map(|folder| saved(folder, call)).collect();
            let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
            let layout = Layout::parse(ranks).map_err(unread)?;
            if !line::is_line(&layout, &folders, self.number).map_err(unread)? {
                return Err(NoLine::NotMet);
            }
        }
        Ok(())
    }

    /// Whether it is a line, when all groups have their part.
    pub(crate) fn outcome(&self) -> Result<(), NoLine> {
        let seen = self.seen();
        match &seen.failed {
            Some(why) => Err(why.clone()),
            None if seen.is_line => Ok(()),
            None => Err(NoLine::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn gathering(folders: usize) -> Arc<Gathering> {
        let folders: Vec<PathBuf> = (0..folders).map(|g| PathBuf::from(format!("/none/g{g}"))).collect();
        Arc::new(Gathering::new(7, &folders, BTreeMap::new()))
    }

    #[test]
    fn nothing_is_saved_before_all_are_away() {
        let one = gathering(2);
        let (all, saves) = (one.clone(), Arc::new(Mutex::new(0)));
        let count = saves.clone();
        let first = thread::spawn(move || {
            all.meet(0, |folder| {
                assert_eq!(folder, Path::new("/none/g0"));
                *count.lock().unwrap() += 1;
                Ok(())
            });
        });
        thread::sleep(Duration::from_millis(50));
        assert_eq!((*saves.lock().unwrap(), one.outcome()), (0, Err(NoLine::Late)));
        one.meet(1, |_| Ok(()));
        first.join().unwrap();
        assert_eq!((*saves.lock().unwrap(), one.outcome()), (1, Ok(())));
        assert!(one.has(Path::new("/none/g1")) && !one.has(Path::new("/none/g2")));
    }

    #[test]
    fn who_waits_for_a_group_that_has_no_part_goes_on_at_once() {
        let one = gathering(2);
        let all = one.clone();
        let first = thread::spawn(move || all.meet(0, |_| panic!("it is no line")));
        thread::sleep(Duration::from_millis(20));
        let why = NoLine::Missing(1, "its program has ended".to_string());
        one.fail(why.clone());
        first.join().unwrap();
        assert_eq!(one.outcome(), Err(why));
        let one = gathering(1);
        one.meet(0, |_| Err(NoLine::Storage("no space".to_string())));
        assert_eq!(one.outcome(), Err(NoLine::Storage("no space".to_string())));
    }
}
