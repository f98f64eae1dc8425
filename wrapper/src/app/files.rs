//! The files that make up a program's checkpoint: by patterns, or as it announces them itself.

use run::Looks;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Which files make up a checkpoint.
#[derive(Clone, Debug)]
pub struct Files {
    /// Folder of relative patterns.
    pub folder: PathBuf,
    /// Patterns with `*` and `?`.
    pub patterns: Vec<String>,
}

/// Files that the program announced on the inherited descriptor, and how often it did.
#[derive(Clone, Debug, Default)]
pub struct Announced(Arc<Mutex<(u64, Vec<PathBuf>)>>);

/// What files look like.
pub(super) type States = BTreeMap<PathBuf, Looks>;

/// What a node remembers of files, whose server is not asked.
pub(super) type Glances = BTreeMap<PathBuf, (u64, u64, i64, i64)>;

impl Files {
    /// The names that match, files or links to files.
    fn names<'a>(&'a self, patterns: &'a [String]) -> impl Iterator<Item = PathBuf> + 'a {
        patterns.iter().flat_map(|pattern| {
            let full = self.folder.join(pattern);
            glob::glob(&full.to_string_lossy()).into_iter().flatten().flatten()
        })
    }

    /// The files that are there now and what they look like, each opened for that.
    ///
    /// # Errors
    /// What the file system says of one: then nobody knows.
    pub(super) fn now(&self) -> std::io::Result<States> {
        self.of(&self.patterns)
    }

    /// Like [`Files::now`], of one pattern.
    pub(super) fn of(&self, patterns: &[String]) -> std::io::Result<States> {
        let mut states = States::new();
        for path in self.names(patterns) {
            // What a link leads to is what the program writes.
            let target = match fs::canonicalize(&path) {
                Ok(target) => target,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            match Looks::of(&target) {
                Ok(looks) => drop(states.insert(path, looks)),
                // It is gone, or no file.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(states)
    }

    /// A cheap look, to be followed by a good one when it shows news.
    pub(super) fn glance(&self) -> Glances {
        let glance = |path: PathBuf| {
            let m = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            Some((path, (m.ino(), m.len(), m.mtime(), m.mtime_nsec())))
        };
        self.names(&self.patterns).filter_map(glance).collect()
    }
}

impl Announced {
    /// Takes up one line of the inherited descriptor: the paths of a finished checkpoint, separated by blanks.
    pub fn line(&self, folder: &Path, line: &str) {
        let files = line.split_whitespace().map(|p| folder.join(p)).collect();
        if let Ok(mut state) = self.0.lock() {
            *state = (state.0 + 1, files);
        }
    }

    pub(super) fn get(&self) -> (u64, Vec<PathBuf>) {
        self.0.lock().map(|s| s.clone()).unwrap_or_default()
    }
}
