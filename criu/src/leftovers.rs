//! Files that a program has made in a folder of its node that all programs share: they are gone with the node, and a
//! checkpoint that holds their names only would be of no use elsewhere.

use crate::files::COMMON;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than this is left on the node, bytes and files: no program that counts on them puts it there.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FILES: usize = 20_000;

/// The kernel's clock for files may be so far behind.
const TICK: Duration = Duration::from_millis(20);

/// The files and folders of its user that are not older than `since`, in the folders that all programs share, but for
/// those below `others`. None if there are too many.
pub fn made_since(since: SystemTime, others: &[&Path]) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let since = since - TICK;
    for folder in [COMMON[0], COMMON[1]] {
        let folder = Path::new(folder);
        let Ok(metadata) = fs::metadata(folder) else { continue };
        walk(folder, metadata.dev(), since, others, &mut found, &mut bytes)?;
    }
    Some(found)
}

fn walk(
    folder: &Path,
    device: u64,
    since: SystemTime,
    others: &[&Path],
    found: &mut Vec<PathBuf>,
    bytes: &mut u64,
) -> Option<()> {
    let us = nix::unistd::getuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let holds_others = others.iter().any(|other| other.starts_with(&path));
        if metadata.uid() != us || metadata.dev() != device || holds_others {
            continue;
        }
        let kind = metadata.file_type();
        let is_new = made(&metadata) >= since;
        if is_new && (kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            *bytes += if kind.is_file() { metadata.len() } else { 0 };
            found.push(path.clone());
            (*bytes <= MOST_BYTES && found.len() <= MOST_FILES).then_some(())?;
        }
        if kind.is_dir() {
            walk(&path, device, since, others, found, bytes)?;
        }
    }
    Some(())
}

/// When a file was made, or changed last where its file system does not say.
fn made(metadata: &Metadata) -> SystemTime {
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    let changed = || UNIX_EPOCH + Duration::new(metadata.ctime().unsigned_abs(), nanoseconds);
    metadata.created().unwrap_or_else(|_| changed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_since_is_found_and_what_was_there_or_is_anothers_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let is_common = COMMON.iter().any(|common| dir.path().starts_with(common));
        if !is_common {
            return println!("skipped: temporary files are not in /tmp here");
        }
        fs::write(dir.path().join("before"), "").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let since = SystemTime::now();
        std::thread::sleep(Duration::from_millis(20));
        let below = dir.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("after"), "123").unwrap();
        let (mut found, mut bytes) = (Vec::new(), 0);
        let device = fs::metadata(dir.path()).unwrap().dev();
        walk(dir.path(), device, since, &[], &mut found, &mut bytes).unwrap();
        assert_eq!((found, bytes), (vec![below.clone(), below.join("after")], 3));
        let mut none = Vec::new();
        walk(dir.path(), device, since, &[&below.join("run")], &mut none, &mut 0).unwrap();
        assert_eq!(none, Vec::<PathBuf>::new(), "what holds the run is not packed into it");
    }
}
