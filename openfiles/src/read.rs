//! Files that a program reads, and folders that it is in: what is noted of them while it stands still, and how they are there
//! again when it goes on.
//!
//! A checkpoint names them by their path. Until it is needed the program may have removed, renamed or replaced them, and people
//! may have edited them. So small ones are kept, and none is taken for another of the same size.

use crate::by_size::{self, KnownBy, NotBack};
use crate::held::{ADDED_TO_BYTES, InHand, Writing, is_lost};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most that is kept of all of them together, bytes.
pub const MOST_KEPT_BYTES: u64 = 128 << 20;

/// Largest program or library that is kept, bytes.
const MAPPED_BYTES: u64 = 64 << 20;

/// Folders of the system, which no job changes.
const SYSTEM: [&str; 9] = ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// A file that is read and not written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Read {
    /// Its path.
    pub path: PathBuf,
    /// Its size when the program stood still, bytes.
    pub bytes: u64,
    /// Its last change then: seconds since the epoch, and nanoseconds.
    modified: (i64, i64),
    /// By what it is known again, if it has more at its end now.
    known_by: Option<KnownBy>,
    /// Whether the checkpoint has its content.
    pub is_kept: bool,
}

/// A folder that a process is in, has open, or has files in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Folder {
    path: PathBuf,
    inode: u64,
}

/// The files that stopped processes read, and no process writes; those that the job can lose, since they are its user's.
pub fn read(processes: &[i32], open: &BTreeSet<InHand>) -> Vec<Read> {
    let written: BTreeSet<&Path> = open.iter().filter(|f| f.writing > Writing::No).map(|f| f.path.as_path()).collect();
    let held = open.iter().map(|file| (file.path.clone(), ADDED_TO_BYTES));
    let mapped = processes.iter().flat_map(|pid| mapped(*pid)).map(|path| (path, MAPPED_BYTES));
    let most: BTreeMap<PathBuf, u64> = mapped.chain(held).collect();
    let all = most.into_iter().filter(|(path, _)| !written.contains(path.as_path()) && !is_lost(path));
    let mut all: Vec<(Read, u64)> = all.filter_map(|(path, most)| Some((note(path)?, most))).collect();
    all.sort_by_key(|(read, _)| read.bytes);
    let mut left_bytes = MOST_KEPT_BYTES;
    let kept = |(mut read, most): (Read, u64)| {
        let left =
            left_bytes.checked_sub(read.bytes).filter(|_| read.bytes <= most && by_size::open(&read.path).is_ok());
        read.is_kept = left.is_some();
        left_bytes = left.unwrap_or(left_bytes);
        read
    };
    all.into_iter().map(kept).collect()
}

/// Paths of a process's program and of what it has mapped, with a name that is still theirs.
fn mapped(pid: i32) -> BTreeSet<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let one = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let inode: u64 = words.nth(4)?.parse().ok()?;
        let path = PathBuf::from(words.next()?.trim());
        fs::symlink_metadata(&path).ok().filter(|found| found.is_file() && found.ino() == inode)?;
        Some(path)
    };
    maps.lines().filter_map(one).collect()
}

fn note(path: PathBuf) -> Option<Read> {
    let found = fs::symlink_metadata(&path).ok()?;
    if SYSTEM.iter().any(|folder| path.starts_with(folder)) || found.uid() != nix::unistd::getuid().as_raw() {
        return None;
    }
    let known_by = KnownBy::of(&path, found.len(), false);
    Some(Read { path, bytes: found.len(), modified: modified(&found), known_by, is_kept: false })
}

fn modified(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

/// How a file that is read is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// As it was, or with more at its end.
    There,
    /// Only a comparison with what is kept can tell.
    Unsure,
    /// It is another, or none.
    Gone,
}

impl Read {
    /// Looks for the file under its path.
    ///
    /// # Errors
    /// What the file system says.
    pub fn look(&self) -> Result<Found, NotBack> {
        let at = |source| NotBack::Storage { path: self.path.clone(), source };
        let found = match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Found::Gone),
            found => found.map_err(at)?,
        };
        if !found.is_file() || found.len() < self.bytes {
            return Ok(Found::Gone);
        }
        if found.len() == self.bytes && modified(&found) == self.modified {
            return Ok(Found::There);
        }
        if self.is_kept {
            return Ok(Found::Unsure);
        }
        let is_it = self.known_by.as_ref().is_some_and(|known| known.is_of(&self.path, &found, self.bytes));
        Ok(if is_it { Found::There } else { Found::Gone })
    }

    /// Whether the file begins with what is kept of it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begins_with(&self, mut kept: impl io::Read) -> io::Result<bool> {
        let mut file = io::BufReader::new(by_size::open(&self.path)?.take(self.bytes));
        let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            let count = kept.read(&mut ours)?;
            if count == 0 {
                return Ok(true);
            }
            match file.read_exact(&mut theirs[..count]) {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                read => read?,
            }
            if ours[..count] != theirs[..count] {
                return Ok(false);
            }
        }
    }

    /// Sets aside what has the file's name now; under which name, if anything has.
    ///
    /// # Errors
    /// What the file system says.
    pub fn set_aside(&self) -> io::Result<Option<String>> {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(None) };
        let found = match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let aside = by_size::aside(&name.to_string_lossy(), &found);
        fs::rename(&self.path, folder.join(&aside))?;
        Ok(Some(aside))
    }
}

/// The FIFOs that stopped processes have open, by names that are still theirs.
pub fn fifos(processes: &[i32]) -> BTreeSet<PathBuf> {
    let open = |pid: &i32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = processes.iter().flat_map(open).map(|entry| entry.path());
    let one = |link: PathBuf| {
        let (of, path) = (fs::metadata(&link).ok()?, fs::read_link(&link).ok()?);
        let named = fs::symlink_metadata(&path).ok()?;
        (named.file_type().is_fifo() && (named.dev(), named.ino()) == (of.dev(), of.ino())).then_some(path)
    };
    links.filter_map(one).filter(|path| !is_lost(path)).collect()
}

/// The folders that stopped processes are in or have open, and those of the files that they hold; the outer ones first.
pub fn folders(processes: &[i32], open: &BTreeSet<InHand>) -> Vec<Folder> {
    let links = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        open.chain([PathBuf::from(format!("/proc/{pid}/cwd"))]).collect::<Vec<_>>()
    };
    let within = processes.iter().flat_map(links).filter(|link| fs::metadata(link).is_ok_and(|m| m.is_dir()));
    let within = within.filter_map(|link| fs::read_link(link).ok());
    let of_files = open.iter().filter_map(|file| file.path.parent().map(Path::to_path_buf));
    let is_common = |path: &Path| is_lost(path) || SYSTEM.iter().any(|folder| path.starts_with(folder));
    let all: BTreeSet<PathBuf> = within.chain(of_files).filter(|path| path.is_absolute() && !is_common(path)).collect();
    let own = nix::unistd::getuid().as_raw();
    let note = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).ok().filter(|found| found.is_dir() && found.uid() == own)?;
        Some(Folder { path, inode: found.ino() })
    };
    all.into_iter().filter_map(note).collect()
}

impl Folder {
    /// Where it was.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the folder be there: under its name again, if it has another in the same place, or as a new one. None if it is.
    ///
    /// # Errors
    /// What the file system says.
    pub fn be_there(&self) -> Result<Option<IsThere>, NotBack> {
        let path = &self.path;
        let at = |source| NotBack::Storage { path: path.clone(), source };
        let Some(outer) = path.parent() else { return Ok(None) };
        if fs::symlink_metadata(path).is_ok() {
            return Ok(None);
        }
        let entries = fs::read_dir(outer).into_iter().flatten().flatten();
        let renamed = entries.filter(|entry| entry.ino() == self.inode).find(|entry| entry.path().is_dir());
        let from = renamed.map(|entry| entry.path());
        match &from {
            Some(other) => fs::rename(other, path),
            None => fs::create_dir_all(path),
        }
        .map_err(at)?;
        Ok(Some(IsThere { path: path.clone(), from }))
    }
}

/// A folder that was not there.
#[derive(Debug, PartialEq, Eq)]
pub struct IsThere {
    path: PathBuf,
    /// The name that it had.
    from: Option<PathBuf>,
}

impl IsThere {
    /// Undoes it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn undo(&self) -> io::Result<()> {
        match &self.from {
            Some(other) => fs::rename(&self.path, other),
            None => fs::remove_dir(&self.path),
        }
    }
}

impl std::fmt::Display for IsThere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match &self.from {
            Some(other) => write!(f, "{} is {path} again, as at the checkpoint", other.display()),
            None => write!(f, "the folder {path}, which was removed after the checkpoint, is there again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &Path, is_kept: bool) -> Read {
        Read { is_kept, ..note(path.to_path_buf()).expect("a file of ours") }
    }

    #[test]
    fn a_file_that_is_read_is_not_taken_for_another_of_its_size() {
        let dir = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("input");
        // Not below a folder of the system: `note` would leave it out.
        let note = |is_kept| {
            let found = fs::symlink_metadata(&path).unwrap();
            let known_by = KnownBy::of(&path, found.len(), false);
            Read { path: path.clone(), bytes: found.len(), modified: modified(&found), known_by, is_kept }
        };
        fs::write(&path, "first").unwrap();
        let (kept, known) = (note(true), note(false));
        assert_eq!((kept.look().unwrap(), known.look().unwrap()), (Found::There, Found::There));
        fs::write(&path, "first and more").unwrap();
        assert_eq!((kept.look().unwrap(), known.look().unwrap()), (Found::Unsure, Found::There));
        assert!(kept.begins_with(&b"first"[..]).unwrap());
        fs::write(&path, "other").unwrap();
        assert_eq!((kept.look().unwrap(), known.look().unwrap()), (Found::Unsure, Found::Gone));
        assert!(!kept.begins_with(&b"first"[..]).unwrap());
        let aside = kept.set_aside().unwrap().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(aside)).unwrap(), "other");
        assert_eq!((kept.look().unwrap(), kept.set_aside().unwrap()), (Found::Gone, None));
    }

    #[test]
    fn folders_of_the_system_are_nobodys_to_lose() {
        assert_eq!(note("/usr/bin/env".into()), None);
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("script");
        fs::write(&path, "1").unwrap();
        assert!(of(&path, true).is_kept);
        let own = mapped(std::process::id() as i32);
        assert!(own.contains(&std::env::current_exe().unwrap()), "{own:?}");
    }

    #[test]
    fn a_folder_gets_its_name_back_or_is_made_anew() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("run.tmp");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("log"), "1").unwrap();
        let noted = Folder { path: path.clone(), inode: fs::metadata(&path).unwrap().ino() };
        assert_eq!(noted.be_there().unwrap(), None);
        fs::rename(&path, dir.path().join("run.done")).unwrap();
        let undone = noted.be_there().unwrap().unwrap();
        assert!(undone.to_string().contains("run.done is "), "{undone}");
        undone.undo().unwrap();
        assert!(!path.exists() && noted.be_there().unwrap().is_some());
        assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "1");
        fs::remove_dir_all(&path).unwrap();
        assert!(noted.be_there().unwrap().unwrap().to_string().contains("was removed"));
        assert!(path.is_dir());
    }
}
