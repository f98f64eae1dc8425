//! What a program did to files since its checkpoint that a restore does not undo: it will do that again.

use ::criu::frozen;
use driver::Repeated;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A look ends after so many files, and so long: what is found by then is told.
const MOST_LOOKED_AT: usize = 50_000;
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Most names that are told.
const MOST_TOLD: usize = 5;

/// Where a run goes on from, and what in it is no work that is done again.
#[derive(Clone, Debug, Default)]
pub struct From {
    /// When the checkpoint was begun, s since the epoch.
    pub since_s: f64,
    /// Folders of its programs: that of a whole script, or one for each task of steps. What they put back does not count.
    pub frozen: Vec<PathBuf>,
    /// The folder of the run.
    pub run: PathBuf,
    /// Files that are ours to put back.
    pub outputs: Vec<PathBuf>,
}

/// [`since`], on a thread of its own: a file system that hangs must not keep a run from going on.
pub fn within_limit(folder: &Path, from: From) -> Repeated {
    let (sender, receiver) = mpsc::channel();
    let folder = folder.to_path_buf();
    thread::spawn(move || drop(sender.send(since(&folder, &from))));
    receiver.recv_timeout(2 * LONGEST_LOOK).unwrap_or_default()
}

/// What is in the job's `folder` and was changed after a checkpoint, but for what that puts back, the job's own output and
/// the folder of the run.
pub fn since(folder: &Path, from: &From) -> Repeated {
    let From { since_s, frozen, run, outputs } = from;
    let mut own: BTreeSet<PathBuf> =
        [1, 2].iter().filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect();
    own.extend(outputs.iter().cloned());
    for program in frozen {
        let written = frozen::read(program).map(|frozen| frozen.written).unwrap_or_default();
        own.extend(written.into_iter().map(|file| file.path));
    }
    let (until, mut looked_at) = (Instant::now() + LONGEST_LOOK, 0);
    let (mut folders, mut found) = (vec![folder.to_path_buf()], Repeated::default());
    let Ok(device) = fs::metadata(folder).map(|m| m.dev()) else { return found };
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            looked_at += 1;
            if looked_at > MOST_LOOKED_AT || Instant::now() > until {
                return found;
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if own.contains(&path) || run.starts_with(&path) || metadata.dev() != device {
                continue;
            }
            // A folder changes with what is made, renamed and removed in it, a file also with its content.
            let (changed_s, changed_ns) = match metadata.is_dir() {
                true => (metadata.mtime(), metadata.mtime_nsec()),
                false => (metadata.ctime(), metadata.ctime_nsec()),
            };
            if changed_s as f64 + changed_ns as f64 / 1e9 > *since_s {
                found.count += 1;
                if found.names.len() < MOST_TOLD {
                    let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                    found.names.push(if metadata.is_dir() { name + "/" } else { name });
                }
            }
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_since_is_named_and_what_the_checkpoint_puts_back_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("job/queue")).unwrap();
        fs::create_dir_all(path("job/.joulepoint/run")).unwrap();
        fs::write(path("job/log"), "a line").unwrap();
        let (job, run) = (path("job"), path("job/.joulepoint/run"));
        let now_s = host::mail::now_s();
        let from = |since_s| From { since_s, run: run.clone(), ..From::default() };
        assert_eq!(since(&job, &from(now_s)), Repeated::default());
        let found = since(&job, &from(now_s - 10.0));
        assert_eq!((found.names.len(), found.count), (2, 2), "{found:?}");
        assert!(found.line().is_some_and(|line| line.contains("queue/") && line.contains("log")), "{found:?}");
        for n in 0..9 {
            fs::write(path(&format!("job/queue/{n}")), "").unwrap();
        }
        let line = since(&job, &from(now_s - 10.0)).line().unwrap();
        assert!(line.contains("and 6 more"), "{line}");
        let outputs = vec![path("job/log")];
        assert_eq!(since(&job, &From { outputs, ..from(now_s - 10.0) }).count, 10, "the output of a step is put back");
    }
}
