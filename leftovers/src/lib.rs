//! Files that a program has made in `/tmp` and on other storage that only its node has. They are lost with the node, so a
//! checkpoint must hold their content.
//!
//! Files that another job of the user made meanwhile are included too; a restore replaces none that it did not find made anew.

mod back;
mod noted;
mod scratch;

pub use back::{NotBack, began_now, made_anew, put_back};
pub use noted::{note, noted};
pub use scratch::scratch;

use openfiles::held::{COMMON, SHARED_MEMORY};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Upper bounds: above them there is no checkpoint.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FILES: usize = 20_000;
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// Users keep more there, and the program stands still meanwhile.
const LONGEST_LOOK_AT_SCRATCH: Duration = Duration::from_millis(500);

/// What [`made_since`] finds is more than a checkpoint takes.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "what its user has made in {} since the program began is more than a checkpoint takes ({} MiB or {MOST_FILES} files), \
     whichever job made it: let them use $TMPDIR or the job's folder",
    .0.display(), MOST_BYTES >> 20
)]
pub struct TooMuch(PathBuf);

/// What of a place is not in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The place.
    pub place: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why something is not in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There is more than a checkpoint takes; nothing of it is.
    TooMuch,
    /// There is too much to look at; some of it may be missing.
    TooMany,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display();
        match self.why {
            Why::TooMuch => write!(
                f,
                "what its user has made in {place} since it began is more than a checkpoint takes ({} MiB or {MOST_FILES} files)",
                MOST_BYTES >> 20
            ),
            Why::TooMany => {
                write!(f, "there is too much in {place} to look at: not all that was made there may be saved")
            }
        }
    }
}

/// A folder of a node in which programs of several jobs make files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its path.
    pub path: PathBuf,
    /// How deep it is looked for folders of the user's in those of others.
    pub depth: u32,
}

/// The folders that all programs of a node share: those for temporary files, and that of POSIX shared memory if it is the
/// node's.
pub fn common(memory_is_shared: bool) -> Vec<Place> {
    let memory = memory_is_shared.then_some(SHARED_MEMORY);
    let all = [COMMON[0], COMMON[1]].into_iter().chain(memory);
    all.map(|path| Place { path: path.into(), depth: 0 }).collect()
}

/// Unit of the room that a file takes, bytes.
const BLOCK_BYTES: u64 = 512;

/// The kernel's clock for file times may lag this much.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Prefixes of names that belong to a login session, a display, or to us.
const OTHERS: [&str; 20] = [
    // What the libraries of MPI programs have there is nothing to any other.
    "spmix_appdir",
    "vader_segment",
    "sm_segment",
    "ucx_shm",
    "psm2_shm",
    "psm3_shm",
    "Intel_MPI",
    "nccl-",
    "joulepoint-",
    ".joulepoint-",
    "krb5cc",
    "ssh-",
    "tmux-",
    "screen",
    ".X",
    ".ICE",
    "dbus-",
    "systemd-",
    "vscode",
    "pulse-",
];

/// The files found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Top-level entries: files and folders made in a folder that was there before.
    pub entries: Vec<PathBuf>,
    /// The entries with all below them, preceded by the folders above them.
    pub all: Vec<PathBuf>,
    /// What of it a checkpoint does not hold.
    pub left_out: Vec<LeftOut>,
    bytes: u64,
    has_missed: bool,
}

/// What its user has made since then, or before that and named in `before`, if it still exists; without what contains
/// one of `others`. Of memory any amount is taken, since the program's own is as well; of scratch storage none, if it is too much.
///
/// # Errors
/// In folders for temporary files it is too much.
pub fn made_since(
    places: &[Place],
    since: SystemTime,
    before: &BTreeSet<PathBuf>,
    others: &[&Path],
) -> Result<Found, TooMuch> {
    let mut all = Found::default();
    for Place { path, depth } in places {
        // `/var/tmp` may be a link to `/tmp`.
        let Some(metadata) = fs::symlink_metadata(path).ok().filter(Metadata::is_dir) else { continue };
        let (is_scratch, is_memory) = (*depth > 0, path == Path::new(SHARED_MEMORY));
        let until = Instant::now() + if is_scratch { LONGEST_LOOK_AT_SCRATCH } else { LONGEST_LOOK };
        let most_bytes = if is_memory { u64::MAX } else { MOST_BYTES };
        let look = Look { since: since - TICK, before, others, device: metadata.dev(), until, most_bytes };
        let mut found = Found::default();
        let why = match look.at(path, Some(*depth), &mut found) {
            None if !is_scratch => return Err(TooMuch(path.clone())),
            None => {
                found = Found::default();
                Some(Why::TooMuch)
            }
            Some(()) => found.has_missed.then_some(Why::TooMany),
        };
        all.left_out.extend(why.map(|why| LeftOut { place: path.clone(), why }));
        all.entries.append(&mut found.entries);
        all.all.append(&mut found.all);
    }
    Ok(all)
}

struct Look<'a> {
    since: SystemTime,
    before: &'a BTreeSet<PathBuf>,
    others: &'a [&'a Path],
    device: u64,
    until: Instant,
    most_bytes: u64,
}

impl Look<'_> {
    /// Searches a folder that was there before; `foreign` is how deep in folders of others, if it is none of the user's.
    fn at(&self, folder: &Path, foreign: Option<u32>, found: &mut Found) -> Option<()> {
        let us = nix::unistd::getuid().as_raw();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if Instant::now() >= self.until {
                found.has_missed = true;
                break;
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let begins = |other: &&str| entry.file_name().as_encoded_bytes().starts_with(other.as_bytes());
            let is_others = foreign.is_some() && OTHERS.iter().any(begins);
            let holds_others = self.others.iter().any(|other| other.starts_with(&path));
            if metadata.dev() != self.device || is_others || holds_others {
                continue;
            }
            if metadata.uid() != us {
                if let Some(depth) = foreign.filter(|depth| *depth > 0 && metadata.is_dir()) {
                    self.at(&path, Some(depth - 1), found)?;
                }
                continue;
            }
            if made(&metadata) >= self.since || self.before.contains(&path) {
                self.below(&path, &metadata, found)?;
                found.entries.push(path);
            } else if metadata.is_dir() {
                // A folder above is recorded for its mode, in case it is missing at the restore.
                let above = found.all.len();
                found.all.push(path.clone());
                self.at(&path, None, found)?;
                if found.all.len() == above + 1 {
                    found.all.pop();
                }
            }
        }
        Some(())
    }

    fn below(&self, path: &Path, of: &Metadata, found: &mut Found) -> Option<()> {
        let kind = of.file_type();
        if of.dev() != self.device || !(kind.is_dir() || kind.is_file() || kind.is_symlink() || kind.is_fifo()) {
            return Some(());
        }
        found.all.push(path.to_path_buf());
        // Holes take no room.
        found.bytes += if kind.is_file() { of.len().min(of.blocks() * BLOCK_BYTES) } else { 0 };
        let is_little = found.bytes <= self.most_bytes && found.all.len() <= MOST_FILES;
        is_little.then_some(())?;
        if kind.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
                self.below(&entry.path(), &metadata, found)?;
            }
        }
        Some(())
    }
}

/// The user's folders that contain these files, uppermost first: without its folder a socket cannot be restored.
pub fn folders_of(places: &[Place], files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let us = nix::unistd::getuid().as_raw();
    let is_ours = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == us);
    let below = |path: &&Path| places.iter().any(|place| path.starts_with(&place.path) && *path != place.path);
    let all = files.iter().flat_map(|file| file.ancestors().skip(1));
    all.filter(below).filter(is_ours).map(Path::to_path_buf).collect()
}

/// Birth time of a file, or its last change where the file system knows no birth time.
pub fn made(metadata: &Metadata) -> SystemTime {
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    let changed = || UNIX_EPOCH + Duration::new(metadata.ctime().unsigned_abs(), nanoseconds);
    metadata.created().unwrap_or_else(|_| changed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::make_fifo;

    #[test]
    fn what_was_made_since_is_found_with_all_below_it_and_what_was_there_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("before"), "").unwrap();
        fs::write(path("kept"), "").unwrap();
        fs::create_dir(path("old")).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        let since = SystemTime::now();
        fs::create_dir(path("below")).unwrap();
        fs::write(path("below/after"), "123").unwrap();
        fs::write(path("old/new"), "").unwrap();
        make_fifo(&path("fifo"), 0o600).unwrap();
        // Larger than a checkpoint takes, and without content.
        fs::File::create(path("image")).unwrap().set_len(4 * MOST_BYTES).unwrap();
        fs::create_dir(path("run")).unwrap();
        fs::write(path("krb5cc_1000"), "secret").unwrap();
        let look = |before: &[PathBuf]| {
            let before = &before.iter().cloned().collect();
            let others = [&*path("run/1")];
            let until = Instant::now() + LONGEST_LOOK;
            let device = fs::metadata(place.path()).unwrap().dev();
            let look = Look { since: since - TICK, before, others: &others, device, until, most_bytes: MOST_BYTES };
            let mut found = Found::default();
            look.at(place.path(), Some(0), &mut found).unwrap();
            found.entries.sort();
            found.all.sort();
            found
        };
        let found = look(&[]);
        assert_eq!(found.entries, ["below", "fifo", "image", "old/new"].map(path));
        assert_eq!(found.all, ["below", "below/after", "fifo", "image", "old", "old/new"].map(path));
        let more = look(&[path("kept"), path("gone")]).entries;
        assert_eq!(more, ["below", "fifo", "image", "kept", "old/new"].map(path));
    }

    #[test]
    fn the_folders_of_a_socket_are_found_and_the_common_ones_are_not() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let folder = place.path().join("tmux-1");
        fs::create_dir(&folder).unwrap();
        let sockets = BTreeSet::from([folder.join("default"), PathBuf::from("/tmp/s"), PathBuf::from("/run/s")]);
        assert_eq!(folders_of(&common(false), &sockets), BTreeSet::from([place.path().to_path_buf(), folder]));
    }
}
