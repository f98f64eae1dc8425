//! Files that several groups write. A restore takes the open files of a group back to where its dump had them: what others
//! have written there since would be lost, and they do not write it again.

use ::criu::frozen::{self, Frozen};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A file that another group has open for writing, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// The file.
    pub(super) path: PathBuf,
    /// The other group.
    pub(super) with: usize,
}

/// The files that each group had open for writing at its newest dump.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<BTreeMap<usize, BTreeSet<PathBuf>>>>);

impl Written {
    /// Takes up the dump of a group in this folder, and tells the first file that another group writes as well.
    pub(super) fn take_up(&self, group: usize, dump: &Path) -> Option<Shared> {
        let tasks = fs::read_dir(dump).into_iter().flatten().flatten();
        let own = tasks.filter_map(|task| frozen::read(&task.path()).ok()).flat_map(common).collect();
        self.take(group, own)
    }

    /// A call has ended: who still writes shows it at the next dump.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn take(&self, group: usize, own: BTreeSet<PathBuf>) -> Option<Shared> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |with: usize, files: &BTreeSet<PathBuf>| {
            Some(Shared { path: own.intersection(files).next()?.clone(), with })
        };
        let shared = all.iter().filter(|(with, _)| **with != group).find_map(|(with, files)| of(*with, files));
        all.insert(group, own);
        shared
    }
}

/// The files of a task that other nodes see as well.
fn common(Frozen { written, places, .. }: Frozen) -> impl Iterator<Item = PathBuf> {
    // What a restore leaves as it is loses nothing.
    let paths = written.into_iter().filter(|file| !file.is_left()).map(|file| file.path);
    paths.filter(move |path| !places.iter().any(|place| path.starts_with(&place.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shared_as_long_as_two_groups_have_it_open() {
        let written = Written::default();
        let files = |all: &[&str]| all.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        assert_eq!(written.take(0, files(&["/job/a", "/job/log"])), None);
        assert_eq!(written.take(0, files(&["/job/a", "/job/log"])), None, "its own of before");
        let shared = Shared { path: "/job/log".into(), with: 0 };
        assert_eq!(written.take(1, files(&["/job/b", "/job/log"])), Some(shared));
        assert_eq!(written.take(0, files(&["/job/a"])), None);
        assert_eq!(written.take(1, files(&["/job/b", "/job/log"])), None, "the other has closed it");
        written.forget();
        assert_eq!(written.take(0, files(&["/job/b"])), None, "that was another call");
    }
}
