//! What a program has changed in its job's folder since a moment.

use driver::Repeated;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A look ends after so many files, and so long: what is found by then is told.
const MOST_LOOKED_AT: usize = 50_000;
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Most names that are told.
const MOST_TOLD: usize = 5;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The job's folder.
    pub folder: PathBuf,
    /// Other folders in which its programs worked.
    pub others: BTreeSet<PathBuf>,
    /// From when on, s since the epoch.
    pub since_s: f64,
    /// The folder of the run, which does not count.
    pub run: PathBuf,
    /// Files that do not count, as the job's own output does not.
    pub own: BTreeSet<PathBuf>,
}

/// What a link leads to, and where that is, if it is the user's.
fn of_user(link: &Path) -> Option<(fs::Metadata, PathBuf)> {
    let found = fs::metadata(link).ok().filter(|found| found.uid() == nix::unistd::getuid().as_raw())?;
    Some((found, fs::canonicalize(link).ok()?))
}

impl Look {
    /// The look, on a thread of its own: a file system that hangs must not keep a run from going on.
    pub fn within_limit(self) -> Repeated {
        let (sender, receiver) = mpsc::channel();
        threads::start(move || drop(sender.send(self.now())));
        let unseen = Repeated { is_partial: true, ..Repeated::default() };
        receiver.recv_timeout(2 * LONGEST_LOOK).unwrap_or(unseen)
    }

    /// What is found.
    pub fn now(mut self) -> Repeated {
        self.own.extend([1, 2].iter().filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()));
        let (until, mut looked_at) = (Instant::now() + LONGEST_LOOK, 0);
        let device = |path: &PathBuf| fs::metadata(path).ok().map(|m| m.dev());
        // Of folders within each other the outer one is enough; what is around the job's own is too much.
        let is_of_run = |path: &Path| !self.run.as_os_str().is_empty() && path.starts_with(&self.run);
        let is_place = |path: &&PathBuf| !self.folder.starts_with(path) && !is_of_run(path);
        let others: Vec<&PathBuf> = self.others.iter().filter(is_place).collect();
        let is_within = |path: &PathBuf, of: &PathBuf| path != of && path.starts_with(of);
        let is_outer =
            |path: &&&PathBuf| !path.starts_with(&self.folder) && !others.iter().any(|of| is_within(path, of));
        let places = [&self.folder].into_iter().chain(others.iter().filter(is_outer).copied());
        let mut folders: Vec<(PathBuf, u64)> = places.filter_map(|path| Some((path.clone(), device(path)?))).collect();
        let mut found = Repeated::default();
        // The job's own first.
        folders.reverse();
        let mut known: BTreeSet<(u64, u64)> = BTreeSet::new();
        while let Some((next, device)) = folders.pop() {
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                let path = entry.path();
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT || Instant::now() > until {
                    found.is_partial = true;
                    return found;
                }
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                let is_ours = entry.file_name().to_string_lossy().contains(".joulepoint-aside-");
                let is_runs = self.run.starts_with(&path) || is_of_run(&path);
                if is_ours || is_runs || self.own.contains(&path) || metadata.dev() != device {
                    continue;
                }
                // A folder changes with what is made, renamed and removed in it, a file also with its content.
                let (changed_s, changed_ns) = match metadata.is_dir() {
                    true => (metadata.mtime(), metadata.mtime_nsec()),
                    false => (metadata.ctime(), metadata.ctime_nsec()),
                };
                if changed_s as f64 + changed_ns as f64 / 1e9 > self.since_s {
                    found.count += 1;
                    if found.names.len() < MOST_TOLD {
                        let name = path.strip_prefix(&self.folder).unwrap_or(&path).display().to_string();
                        found.names.push(if metadata.is_dir() { name + "/" } else { name });
                    }
                }
                // A folder of the user's that a link leads to, too, such as one on scratch storage.
                let (below, leads_to) = match metadata.is_symlink().then(|| of_user(&path)) {
                    Some(to) => to.unzip(),
                    None => (Some(metadata), None),
                };
                if let Some(below) = below.filter(|m| m.is_dir() && known.insert((m.dev(), m.ino()))) {
                    match leads_to {
                        // Last: the job's own folders may be all that there is time for.
                        Some(to) => folders.insert(0, (to, below.dev())),
                        None => folders.push((path, below.dev())),
                    }
                }
            }
        }
        found
    }
}
