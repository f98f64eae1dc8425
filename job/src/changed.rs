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

/// The names of the outputs of this job's other tasks, and of jobs whose output is named alike: that of its own, in which
/// its number stands, with other numbers.
struct Siblings(Vec<(PathBuf, String)>);

impl Siblings {
    fn of(outputs: &[PathBuf], ids: &[String]) -> Siblings {
        let named = outputs.iter().filter_map(|path| Some((path.parent()?, path.file_name()?.to_str()?)));
        let is_numbered = |name: &str| ids.iter().any(|id| !id.is_empty() && name.contains(id.as_str()));
        // `17` or `17.dat` may be a result's.
        let numbered = named.filter(|(_, name)| is_numbered(name) && name.starts_with(|c: char| c.is_alphabetic()));
        Siblings(numbered.map(|(folder, name)| (folder.to_path_buf(), without_numbers(name))).collect())
    }

    fn have(&self, path: &Path) -> bool {
        let is_named = |of: &str| path.file_name().is_some_and(|name| without_numbers(&name.to_string_lossy()) == of);
        self.0.iter().any(|(folder, of)| path.parent() == Some(folder) && is_named(of))
    }
}

fn without_numbers(name: &str) -> String {
    name.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
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
        let outputs: Vec<PathBuf> =
            [1, 2].iter().filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect();
        let ids = ["SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"].map(|name| std::env::var(name).unwrap_or_default());
        let siblings = Siblings::of(&outputs, &ids);
        self.own.extend(outputs);
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
                if is_ours || is_runs || self.own.contains(&path) || siblings.have(&path) || metadata.dev() != device {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_other_tasks_and_jobs_are_known_by_the_name_of_the_own_one() {
        let ids = ["120".to_string(), "118".to_string()];
        let have = |own: &str, other: &str| Siblings::of(&[PathBuf::from(own)], &ids).have(Path::new(other));
        assert!(have("/a/slurm-120.out", "/a/slurm-72.out"));
        assert!(have("/a/arr-118_3.out", "/a/arr-118_14.out"));
        assert!(!have("/a/slurm-120.out", "/a/b/slurm-72.out"));
        assert!(!have("/a/slurm-120.out", "/a/result-72.out"));
        assert!(!have("/a/120.dat", "/a/1.dat"));
        assert!(!have("/a/out1", "/a/out2"), "a name without the job's number may be a result's");
    }
}
