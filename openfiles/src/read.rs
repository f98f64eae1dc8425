//! Files that a program reads, and folders that it is in: what is noted of them while it stands still, and how they are there
//! again when it goes on.
//!
//! A checkpoint names them by their path. Until it is needed the program may have removed, renamed or replaced them, and people
//! may have edited them. So small ones are kept, and none is taken for another of the same size.

use crate::by_size::{self, KnownBy, NotBack, named, of_path};
use crate::held::{ADDED_TO_BYTES, InHand, Writing, is_lost};
use crate::patiently::patiently;
use crate::process::{self, if_there};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most that is kept of all of them together, bytes.
pub const MOST_KEPT_BYTES: u64 = 128 << 20;

/// Largest file that the job has made, such as a program, that is kept, bytes.
const MADE_BYTES: u64 = 64 << 20;

/// Folders of the system, which no job changes.
const SYSTEM: [&str; 9] = ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// A file that is read and not written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Read {
    /// Its path.
    #[serde(with = "protocol::name")]
    pub path: PathBuf,
    /// Its size when the program stood still, bytes.
    pub bytes: u64,
    /// Its last change then: seconds since the epoch, and nanoseconds.
    modified: (i64, i64),
    /// By what it is known again, if it has changed.
    known_by: Option<KnownBy>,
    /// Whether the checkpoint has its content.
    pub is_kept: bool,
    /// Whether the job has made it: one that was there before is its user's, who may have changed it since.
    is_made: bool,
}

/// A folder that a process is in, has open, or has files in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Folder {
    #[serde(with = "protocol::name")]
    path: PathBuf,
    inode: u64,
    /// When it was made; absent where the file system does not tell.
    made: Option<SystemTime>,
    mode: u32,
}

/// The files that stopped processes read, and no process of them writes; those that the job can lose, since they are its user's.
/// `most_bytes` of content are kept in all, the smallest first. What was changed after `began` the job has made.
///
/// # Errors
/// What the kernel or the storage says of one.
pub fn read(processes: &[i32], open: &BTreeSet<InHand>, most_bytes: u64, began: SystemTime) -> io::Result<Vec<Read>> {
    // Nothing is root's own.
    if nix::unistd::getuid().is_root() {
        return Ok(Vec::new());
    }
    let written: BTreeSet<&Path> = open.iter().filter(|f| f.writing > Writing::No).map(|f| f.path.as_path()).collect();
    let mapped = mapped(processes)?.into_iter().map(|path| (path, false));
    let open = open.iter().map(|file| (file.path.clone(), true));
    let all: BTreeMap<PathBuf, bool> = mapped.chain(open).collect();
    let all = all.into_iter().filter(|(path, _)| !written.contains(path.as_path()) && is_own(path));
    let noted = all.map(|(path, is_open)| -> io::Result<Option<(Read, bool)>> {
        Ok(note(path, began)?.map(|read| (read, is_open)))
    });
    let mut all: Vec<(Read, bool)> = noted.filter_map(Result::transpose).collect::<io::Result<_>>()?;
    all.sort_by_key(|(read, _)| read.bytes);
    let mut left_bytes = most_bytes;
    let kept = |(mut read, is_open): (Read, bool)| {
        // Programs and libraries that were there before the job stay; what other tasks of an array may change is theirs, too.
        let most_bytes = if read.is_made { MADE_BYTES } else { ADDED_TO_BYTES };
        let fits = read.bytes <= most_bytes && (is_open || read.is_made) && !by_size::may_be_shared(&read.path);
        let left = left_bytes.checked_sub(read.bytes).filter(|_| fits);
        read.is_kept = left.is_some();
        left_bytes = left.unwrap_or(left_bytes);
        read
    };
    Ok(all.into_iter().map(kept).collect())
}

/// Whether a path may be that of a file or folder of a user's that lasts.
fn is_own(path: &Path) -> bool {
    let is_system = SYSTEM.iter().any(|folder| path.starts_with(folder));
    path.is_absolute() && !is_system && !is_lost(path) && path.to_str().is_some()
}

/// Paths of the programs of processes, and of what they have mapped, with a name that is still theirs.
fn mapped(processes: &[i32]) -> io::Result<BTreeSet<PathBuf>> {
    let mut inodes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for pid in processes {
        let mappings = if_there(process::mappings(&process::folder(Path::new("/proc"), *pid)))?.unwrap_or_default();
        let own = mappings.into_iter().filter(|mapping| is_own(&mapping.name));
        inodes.extend(own.map(|mapping| (mapping.name, mapping.inode)));
    }
    let mut all = BTreeSet::new();
    for (path, inode) in inodes {
        if named(&path, || fs::symlink_metadata(&path))?.is_some_and(|found| found.is_file() && found.ino() == inode) {
            all.insert(path);
        }
    }
    Ok(all)
}

fn note(path: PathBuf, began: SystemTime) -> io::Result<Option<Read>> {
    let own = nix::unistd::getuid().as_raw();
    let found = named(&path, || fs::symlink_metadata(&path))?;
    let Some(found) = found.filter(|found| found.uid() == own) else { return Ok(None) };
    let known_by = KnownBy::of(&path, found.len(), false)?;
    let is_made = found.modified().is_ok_and(|at| at >= began);
    Ok(Some(Read { path, bytes: found.len(), modified: modified(&found), known_by, is_kept: false, is_made }))
}

fn modified(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

/// How a file that is read is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// As it was, or with more at its end, as far as can be told.
    There,
    /// What is kept has to be compared, and put back if it is another.
    Unsure,
    /// There is none: what is kept is put back.
    Missing,
    /// It is another, or there is none and no copy.
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
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(if self.is_kept { Found::Missing } else { Found::Gone });
            }
            found => found.map_err(at)?,
        };
        if found.is_file() && found.len() == self.bytes && modified(&found) == self.modified {
            return Ok(Found::There);
        }
        if self.is_kept && self.is_made {
            return Ok(Found::Unsure);
        }
        // What others write into it the program would have seen, too.
        let is_it =
            found.is_file() && self.known_by.as_ref().is_none_or(|known| known.is_of(&self.path, &found, self.bytes));
        Ok(if is_it { Found::There } else { Found::Gone })
    }

    /// Its last change, when the program stood still.
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.modified;
        let since = Duration::new(seconds.unsigned_abs(), u32::try_from(nanoseconds).unwrap_or_default());
        if seconds < 0 { UNIX_EPOCH } else { UNIX_EPOCH + since }
    }

    /// Its content as it is now, if that is still of its size.
    pub fn content(&self) -> Option<(Metadata, Vec<u8>)> {
        let mut file = by_size::open(&self.path).ok()?;
        let mut content = Vec::new();
        (&mut file).take(self.bytes).read_to_end(&mut content).ok()?;
        let found = file.metadata().ok().filter(|_| content.len() as u64 == self.bytes)?;
        Some((found, content))
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

/// The folders that stopped processes are in or have open, and those of the files that they hold; the outer ones first.
///
/// # Errors
/// What the kernel or the storage says of one.
pub fn folders(processes: &[i32], open: &BTreeSet<InHand>) -> io::Result<Vec<Folder>> {
    let mut all: BTreeSet<PathBuf> = open.iter().filter_map(|file| file.path.parent().map(Path::to_path_buf)).collect();
    for pid in processes {
        let process = process::folder(Path::new("/proc"), *pid);
        let links = if_there(process::links(&process))?.unwrap_or_default().into_iter();
        let links = links.map(|(number, to)| (process.join("fd").join(number), to));
        let cwd = process.join("cwd");
        let within = if_there(fs::read_link(&cwd))?.map(|to| (cwd, to));
        for (link, to) in links.chain(within).filter(|(_, to)| is_own(to)) {
            let found = if_there(patiently(|| fs::metadata(&link))).map_err(|e| of_path(&to, &e))?;
            all.extend(found.filter(Metadata::is_dir).map(|_| to));
        }
    }
    let own = nix::unistd::getuid().as_raw();
    let note = |path: PathBuf| -> io::Result<Option<Folder>> {
        let found = named(&path, || fs::symlink_metadata(&path))?;
        let Some(found) = found.filter(|found| found.is_dir() && found.uid() == own) else { return Ok(None) };
        Ok(Some(Folder { path, inode: found.ino(), made: found.created().ok(), mode: found.mode() & 0o7777 }))
    };
    all.into_iter().filter(|path| is_own(path)).map(note).filter_map(Result::transpose).collect()
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
        // The number of a removed folder may be another's by now, made later.
        let is_it = |entry: &fs::DirEntry| {
            let made = entry.metadata().ok().filter(Metadata::is_dir).and_then(|found| found.created().ok());
            entry.ino() == self.inode && made.is_some() && made == self.made
        };
        let from = fs::read_dir(outer).into_iter().flatten().flatten().find(is_it).map(|entry| entry.path());
        let new =
            || fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(self.mode)));
        from.as_ref().map_or_else(new, |other| fs::rename(other, path)).map_err(at)?;
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

    /// A folder that is no system's and lasts.
    fn place() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn a_file_that_is_read_is_not_taken_for_another_of_its_size() {
        let dir = place();
        let path = dir.path().join("input");
        fs::write(&path, "first").unwrap();
        let noted = |is_kept, began| Read { is_kept, ..note(path.clone(), began).unwrap().unwrap() };
        let (made, known, given) = (noted(true, UNIX_EPOCH), noted(false, UNIX_EPOCH), noted(true, SystemTime::now()));
        let looks = || [&made, &known, &given].map(|read| read.look().unwrap());
        assert_eq!(looks(), [Found::There; 3]);
        assert_eq!(made.content().unwrap().1, b"first");
        fs::write(&path, "first and more").unwrap();
        assert_eq!(looks(), [Found::Unsure, Found::There, Found::There], "it has only grown");
        fs::write(&path, "first").unwrap();
        assert_eq!(looks(), [Found::Unsure, Found::There, Found::There], "touched, or copied");
        fs::write(&path, "other").unwrap();
        assert_eq!(looks(), [Found::Unsure, Found::There, Found::There], "it is that file");
        fs::write(dir.path().join("new"), "third").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(looks(), [Found::Unsure, Found::Gone, Found::Gone], "its user's own is not taken back");
        let aside = made.set_aside().unwrap().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(aside)).unwrap(), "third");
        assert_eq!(looks(), [Found::Missing, Found::Gone, Found::Missing]);
        assert_eq!(made.set_aside().unwrap(), None);
    }

    #[test]
    fn folders_of_the_system_are_nobodys_to_lose() {
        assert!(!is_own(Path::new("/usr/bin/env")) && !is_own(Path::new("/tmp/a")) && is_own(Path::new("/home/a")));
        let (own, us) = (mapped(&[std::process::id() as i32]).unwrap(), std::env::current_exe().unwrap());
        assert_eq!(own.contains(&us), is_own(&us), "{us:?}: {own:?}");
    }

    #[test]
    fn a_folder_gets_its_name_back_or_is_made_anew_and_another_is_never_taken_for_it() {
        let dir = place();
        let path = dir.path().join("run.tmp");
        let noted = |made: &dyn Fn(&Metadata) -> Option<SystemTime>| {
            let found = fs::metadata(&path).unwrap();
            Folder { path: path.clone(), inode: found.ino(), made: made(&found), mode: 0o700 }
        };
        fs::create_dir(&path).unwrap();
        fs::write(path.join("log"), "1").unwrap();
        let (folder, other) = (noted(&|found| found.created().ok()), noted(&|_| Some(UNIX_EPOCH)));
        assert_eq!(folder.be_there().unwrap(), None);
        fs::rename(&path, dir.path().join("run.done")).unwrap();
        let back = folder.be_there().unwrap().unwrap();
        assert!(back.to_string().contains("run.done is "), "{back}");
        back.undo().unwrap();
        assert!(other.be_there().unwrap().unwrap().to_string().contains("was removed"), "made at another time");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_to_string(dir.path().join("run.done/log")).unwrap(), "1");
    }
}
