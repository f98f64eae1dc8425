//! Files that a program has made in the folders of its node that all programs share: they are gone with the node, so that
//! a checkpoint that held their names only would be of no use elsewhere.
//!
//! Only what stands in such a folder itself is looked at, with all below it. What another job of the user has made
//! meanwhile goes along; it never takes a place that is taken.

use crate::files::COMMON;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The folders.
const FOLDERS: [&str; 2] = [COMMON[0], COMMON[1]];

/// More than this is left on the node: no program that counts on it puts it there, and a look takes its time.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FILES: usize = 20_000;
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The kernel's clock for files may be so far behind.
const TICK: Duration = Duration::from_millis(20);

/// Beginnings of names that are a login's, a display's, or ours.
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

/// What is found: the entries of the folders, and all that is to be packed, folders before what is in them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Entries of `/tmp` and `/var/tmp`.
    pub entries: Vec<PathBuf>,
    /// These and what is below them.
    pub all: Vec<PathBuf>,
}

/// What its user has made since then, or `before` and it is still there, but for what holds one of `others`. None if it is
/// too much.
pub fn made_since(since: SystemTime, before: &[PathBuf], others: &[&Path]) -> Option<Found> {
    let look = Look { since: since - TICK, before, others, until: Instant::now() + LONGEST_LOOK };
    let mut found = Found::default();
    FOLDERS.iter().try_for_each(|folder| look.at(Path::new(folder), &mut found)).map(|()| found)
}

struct Look<'a> {
    since: SystemTime,
    before: &'a [PathBuf],
    others: &'a [&'a Path],
    until: Instant,
}

impl Look<'_> {
    fn at(&self, folder: &Path, found: &mut Found) -> Option<()> {
        let Ok(device) = fs::metadata(folder).map(|m| m.dev()) else { return Some(()) };
        let us = nix::unistd::getuid().as_raw();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let name = entry.file_name();
            let is_others = OTHERS.iter().any(|other| name.as_encoded_bytes().starts_with(other.as_bytes()));
            let holds_others = self.others.iter().any(|other| other.starts_with(&path));
            let is_ours = metadata.uid() == us && metadata.dev() == device && !is_others && !holds_others;
            if is_ours && (made(&metadata) >= self.since || self.before.contains(&path)) {
                let mut bytes = 0;
                self.below(&path, &metadata, device, found, &mut bytes)?;
                found.entries.push(path);
            }
        }
        Some(())
    }

    fn below(&self, path: &Path, of: &Metadata, device: u64, found: &mut Found, bytes: &mut u64) -> Option<()> {
        let kind = of.file_type();
        if of.dev() != device || !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            return Some(());
        }
        found.all.push(path.to_path_buf());
        *bytes += if kind.is_file() { of.len() } else { 0 };
        (*bytes <= MOST_BYTES && found.all.len() <= MOST_FILES && Instant::now() < self.until).then_some(())?;
        if kind.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
                self.below(&entry.path(), &metadata, device, found, bytes)?;
            }
        }
        Some(())
    }
}

/// When a file was made, or changed last where its file system does not say.
fn made(metadata: &Metadata) -> SystemTime {
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    let changed = || UNIX_EPOCH + Duration::new(metadata.ctime().unsigned_abs(), nanoseconds);
    metadata.created().unwrap_or_else(|_| changed())
}

/// Puts back what an archive of such files holds, where nothing has their names. It is unpacked where only its user can
/// reach it, so that nobody can put a link in its way, and moved into its place whole.
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
    let stage = folder.join(format!(".joulepoint-back-{}-{}", nix::unistd::getuid(), std::process::id()));
    let _ = fs::remove_dir_all(&stage);
    DirBuilder::new().mode(0o700).create(&stage).map_err(told(&stage))?;
    let unpacked = unpack(archive, below, &stage).map_err(told(&stage));
    let moved = unpacked.and_then(|()| {
        let mut missed = Vec::new();
        for entry in fs::read_dir(stage.join(below)).into_iter().flatten().flatten() {
            let target = folder.join(entry.file_name());
            match renameat2(AT_FDCWD, &entry.path(), AT_FDCWD, &target, RenameFlags::RENAME_NOREPLACE) {
                Ok(()) | Err(nix::Error::EEXIST) => {}
                Err(e) => missed.push(told(&target)(e.into())),
            }
        }
        if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) }
    });
    let _ = fs::remove_dir_all(&stage);
    moved
}

fn unpack(archive: &Path, below: &Path, stage: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::new(fs::File::open(archive)?));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.starts_with(below) {
            entry.unpack_in(stage)?;
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
        std::thread::sleep(Duration::from_millis(60));
        let since = SystemTime::now();
        fs::create_dir(path("below")).unwrap();
        fs::write(path("below/after"), "123").unwrap();
        fs::create_dir(path("run")).unwrap();
        fs::write(path("krb5cc_1000"), "secret").unwrap();
        let look = |before: &[PathBuf]| {
            let others = [&*path("run/1")];
            let until = Instant::now() + LONGEST_LOOK;
            let look = Look { since: since - TICK, before, others: &others, until };
            let mut found = Found::default();
            look.at(place.path(), &mut found).unwrap();
            found.entries.sort();
            found
        };
        assert_eq!(look(&[]), Found { entries: vec![path("below")], all: vec![path("below"), path("below/after")] });
        assert_eq!(look(&[path("kept"), path("gone")]).entries, [path("below"), path("kept")]);
    }

    #[test]
    fn what_comes_back_takes_no_place_that_is_taken_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("tmp"), dir.path().join("x.tar"));
        let name = |path: &str| folder.join(path).strip_prefix("/").unwrap().to_path_buf();
        let mut builder = tar::Builder::new(fs::File::create(&tar).unwrap());
        for (path, text) in [("free/file", "back"), ("taken", "back"), ("linked/file", "back")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name(path), text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap();
        fs::create_dir(&folder).unwrap();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        fs::write(folder.join("taken"), "mine").unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), folder.join("linked")).unwrap();
        into(&folder, &tar).unwrap();
        assert_eq!(fs::read_to_string(folder.join("free/file")).unwrap(), "back");
        assert_eq!(fs::metadata(folder.join("free/file")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(folder.join("taken")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "nothing is left of the way");
    }
}
