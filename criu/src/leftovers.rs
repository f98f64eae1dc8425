//! Files that a program has made in `/tmp` and `/var/tmp`. They are lost with the node, so a checkpoint must hold
//! their content.
//!
//! Files that another job of the user made meanwhile are included too; a restore never replaces an existing file.

use archive::make_fifo;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use openfiles::held::COMMON;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tar::EntryType;

/// The shared folders.
const FOLDERS: [&str; 2] = [COMMON[0], COMMON[1]];

/// Upper bounds: above them there is no checkpoint.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FILES: usize = 20_000;
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// What [`made_since`] finds is more than a checkpoint takes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "what its user has made in /tmp and /var/tmp since the program began is more than a checkpoint takes ({} MiB or {MOST_FILES} files), \
     whichever job made it: let them use $TMPDIR or the job's folder",
    MOST_BYTES >> 20
)]
pub struct TooMuch;

/// Unit of the room that a file takes, bytes.
const BLOCK_BYTES: u64 = 512;

/// The kernel's clock for file times may lag this much.
const TICK: Duration = Duration::from_millis(20);

/// Prefixes of names that belong to a login session, a display, or to us.
const OTHERS: [&str; 12] = [
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
    bytes: u64,
}

/// What its user has made since then, or before that and named in `before`, if it still exists; without what contains
/// one of `others`.
///
/// # Errors
/// It is too much.
pub fn made_since(since: SystemTime, before: &[PathBuf], others: &[&Path]) -> Result<Found, TooMuch> {
    let mut found = Found::default();
    for folder in FOLDERS.map(Path::new) {
        // `/var/tmp` may be a link to `/tmp`.
        let Some(metadata) = fs::symlink_metadata(folder).ok().filter(Metadata::is_dir) else { continue };
        let until = Instant::now() + LONGEST_LOOK;
        let look = Look { since: since - TICK, before, others, device: metadata.dev(), until };
        look.at(folder, true, &mut found).ok_or(TooMuch)?;
    }
    Ok(found)
}

struct Look<'a> {
    since: SystemTime,
    before: &'a [PathBuf],
    others: &'a [&'a Path],
    device: u64,
    until: Instant,
}

impl Look<'_> {
    /// Searches a folder that was there before.
    fn at(&self, folder: &Path, is_common: bool, found: &mut Found) -> Option<()> {
        let us = nix::unistd::getuid().as_raw();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if Instant::now() >= self.until {
                tracing::warn!(folder = %folder.display(), "there is too much to look at: what was made there may be missing");
                break;
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let begins = |other: &&str| entry.file_name().as_encoded_bytes().starts_with(other.as_bytes());
            let is_others = is_common && OTHERS.iter().any(begins);
            let holds_others = self.others.iter().any(|other| other.starts_with(&path));
            if metadata.uid() != us || metadata.dev() != self.device || is_others || holds_others {
                continue;
            }
            if made(&metadata) >= self.since || self.before.contains(&path) {
                self.below(&path, &metadata, found)?;
                found.entries.push(path);
            } else if metadata.is_dir() {
                // A folder above is recorded for its mode, in case it is missing at the restore.
                let above = found.all.len();
                found.all.push(path.clone());
                self.at(&path, false, found)?;
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
        let is_little = found.bytes <= MOST_BYTES && found.all.len() <= MOST_FILES;
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
pub fn folders_of(files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let us = nix::unistd::getuid().as_raw();
    let is_ours = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == us);
    let below = |path: &&Path| FOLDERS.iter().any(|folder| path.starts_with(folder) && *path != Path::new(folder));
    let all = files.iter().flat_map(|file| file.ancestors().skip(1));
    all.filter(below).filter(is_ours).map(Path::to_path_buf).collect()
}

/// Birth time of a file, or its last change where the file system knows no birth time.
fn made(metadata: &Metadata) -> SystemTime {
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    let changed = || UNIX_EPOCH + Duration::new(metadata.ctime().unsigned_abs(), nanoseconds);
    metadata.created().unwrap_or_else(|_| changed())
}

/// Puts an archive of such files back, where nothing has their names. It is unpacked in a folder that only the user
/// can enter, so that nobody can put a link in its way, then moved into place.
///
/// # Errors
/// Which entry is not back; the others are.
pub fn put_back(archive: &Path) -> Result<(), String> {
    let outcome: Vec<String> = FOLDERS.iter().filter_map(|folder| into(Path::new(folder), archive).err()).collect();
    if outcome.is_empty() { Ok(()) } else { Err(outcome.join("; ")) }
}

fn into(folder: &Path, archive: &Path) -> Result<(), String> {
    let told = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| format!("{path}: {e}")
    };
    let below = folder.strip_prefix("/").unwrap_or(folder);
    // A random name, since other programs are restored on this node too.
    let stage = tempfile::Builder::new().prefix(".joulepoint-back-").tempdir_in(folder).map_err(told(folder))?;
    let unpacked = unpack(archive, below, stage.path()).map_err(told(folder));
    let mut missed: Vec<String> = unpacked.err().into_iter().collect();
    for entry in fs::read_dir(stage.path().join(below)).into_iter().flatten().flatten() {
        place(&entry.path(), &folder.join(entry.file_name()), &mut missed);
    }
    if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) }
}

/// Moves an entry into place if that is free. For a folder of the user's that exists, moves its entries.
fn place(from: &Path, to: &Path, missed: &mut Vec<String>) {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => {}
        Err(nix::Error::EEXIST) => {
            let us = nix::unistd::getuid().as_raw();
            let is_ours = fs::symlink_metadata(to).is_ok_and(|m| m.is_dir() && m.uid() == us);
            for entry in fs::read_dir(from).into_iter().flatten().flatten().filter(|_| is_ours) {
                place(&entry.path(), &to.join(entry.file_name()), missed);
            }
        }
        Err(e) => missed.push(format!("{}: {e}", to.display())),
    }
}

fn unpack(archive: &Path, below: &Path, stage: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::new(fs::File::open(archive)?));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        match entry.header().entry_type() {
            _ if !path.starts_with(below) => {}
            EntryType::Fifo if path.components().all(|c| matches!(c, Component::Normal(_))) => {
                let to = stage.join(path);
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                make_fifo(&to, entry.header().mode()?)?;
            }
            _ => drop(entry.unpack_in(stage)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let others = [&*path("run/1")];
            let until = Instant::now() + LONGEST_LOOK;
            let device = fs::metadata(place.path()).unwrap().dev();
            let look = Look { since: since - TICK, before, others: &others, device, until };
            let mut found = Found::default();
            look.at(place.path(), true, &mut found).unwrap();
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
        assert_eq!(folders_of(&sockets), BTreeSet::from([place.path().to_path_buf(), folder]));
    }

    #[test]
    fn what_comes_back_takes_no_place_that_is_taken_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("tmp"), dir.path().join("x.tar"));
        let name = |path: &str| folder.join(path).strip_prefix("/").unwrap().to_path_buf();
        let mut builder = tar::Builder::new(fs::File::create(&tar).unwrap());
        for (path, text) in [
            ("free/file", "back"),
            ("taken", "back"),
            ("linked/file", "back"),
            ("there/a", "back"),
            ("there/b", "back"),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name(path), text.as_bytes()).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Fifo);
        header.set_size(0);
        header.set_mode(0o640);
        builder.append_data(&mut header, name("free/fifo"), std::io::empty()).unwrap();
        builder.into_inner().unwrap();
        fs::create_dir(&folder).unwrap();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        fs::write(folder.join("taken"), "mine").unwrap();
        fs::create_dir(folder.join("there")).unwrap();
        fs::write(folder.join("there/a"), "mine").unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), folder.join("linked")).unwrap();
        into(&folder, &tar).unwrap();
        assert_eq!(fs::read_to_string(folder.join("free/file")).unwrap(), "back");
        assert_eq!(fs::metadata(folder.join("free/file")).unwrap().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(folder.join("free/fifo")).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_to_string(folder.join("taken")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
        let there = ["a", "b"].map(|name| fs::read_to_string(folder.join("there").join(name)).unwrap());
        assert_eq!(there, ["mine", "back"], "a folder that is there is filled up");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "nothing is left of the way");
    }
}
