//! Copies the files of a program into a checkpoint: each with its checksum, synced, its holes kept, and only if it did not
//! change meanwhile. What has not changed since an earlier checkpoint need not be copied.

use crate::attributes;
use crate::earlier::Earlier;
use crate::storage::gone;
use crate::stream::{digest, transfer};
use crate::{Error, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use protocol::{FileLink, FileLooks, ManifestFile};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How often a copy is tried again when the program writes to the file meanwhile.
const TRIES: u32 = 5;

/// How far symbolic links are followed.
const MOST_LINKS: usize = 8;

/// How much of a file's name another name has that is made from it, bytes: file systems take 255.
pub(crate) const LONGEST_NAME_BYTES: usize = 200;

/// The attributes by which one state of a file is told from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Looks {
    /// Device and inode.
    pub file: (u64, u64),
    /// Length, bytes.
    pub bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Looks {
    /// The state of a regular file, by a fresh open: only then does a network file system ask its server.
    ///
    /// # Errors
    /// What the file system says, or that it is no regular file.
    pub fn of(path: &Path) -> io::Result<Looks> {
        Looks::opened(&open(path)?)
    }

    /// As a manifest keeps it; none where the file system has whole seconds only: it would not show every change.
    pub(crate) fn recorded(&self) -> Option<FileLooks> {
        let (device, inode) = self.file;
        let looks = FileLooks { device, inode, modified: self.modified, changed: self.changed };
        (self.modified.1 != 0 || self.changed.1 != 0).then_some(looks)
    }

    fn opened(file: &File) -> io::Result<Looks> {
        let m = file.metadata()?;
        if !m.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(Looks {
            file: (m.dev(), m.ino()),
            bytes: m.len(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }
}

/// Opens a file without following a link, and without waiting for the other end of a pipe.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Copies files into a checkpoint's folder. Of a symbolic link, what it leads to is copied, too, if that is a file.
///
/// # Errors
/// What the file system says, or that a file keeps changing; nothing of it counts then.
pub fn take(originals: &[PathBuf], into: &Path) -> Result<Vec<ManifestFile>> {
    let mut files = take_new(originals, into, &Earlier::default())?;
    files.iter_mut().for_each(|file| file.seen = None);
    Ok(files)
}

/// Like [`take`], of files that stand still and that nobody can write to: those that are unchanged since an earlier
/// checkpoint share its copy.
///
/// # Errors
/// As there.
pub fn take_new(originals: &[PathBuf], into: &Path, earlier: &Earlier) -> Result<Vec<ManifestFile>> {
    let mut all: Vec<(PathBuf, usize)> = originals.iter().map(|path| (path.clone(), 0)).collect();
    let (mut files, mut names) = (Vec::new(), BTreeMap::new());
    let mut next = 0;
    while let Some((path, depth)) = all.get(next).cloned() {
        next += 1;
        let of_link = fs::read_link(&path).ok();
        if let Some(target) = of_link {
            let leads_to = path.parent().unwrap_or(Path::new("/")).join(&target);
            let is_new = |all: &[(PathBuf, usize)]| all.iter().all(|(known, _)| *known != leads_to);
            let is_more = fs::symlink_metadata(&leads_to).is_ok_and(|m| m.is_file() || m.is_symlink());
            if depth < MOST_LINKS && is_more && is_new(&all) {
                all.push((leads_to, depth + 1));
            }
            files.push(ManifestFile {
                original: path.clone(),
                attributes: Some(attributes::of(&path).map_err(Error::at(&path))?),
                link: Some(FileLink::Symbolic(target)),
                ..ManifestFile::default()
            });
            continue;
        }
        let key = fs::symlink_metadata(&path).map(|m| (m.dev(), m.ino())).map_err(Error::at(&path))?;
        if let Some(first) = names.get(&key) {
            let link = Some(FileLink::Hard(PathBuf::clone(first)));
            files.push(ManifestFile { original: path, link, ..ManifestFile::default() });
            continue;
        }
        let file = take_one(&path, into, name_of_copy(&path, files.len()), earlier)?;
        names.insert(key, file.original.clone());
        files.push(file);
    }
    Ok(files)
}

/// File name of the n-th copy in a checkpoint.
fn name_of_copy(original: &Path, n: usize) -> String {
    let name = original.file_name().unwrap_or_default().to_string_lossy();
    let shown = &name[..name.floor_char_boundary(LONGEST_NAME_BYTES)];
    format!("{n:04}-{shown}")
}

/// The path of a copy as it stands in a manifest.
fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_string).ok_or_else(|| Error::Name(path.to_path_buf()))
}

fn take_one(original: &Path, into: &Path, copy: String, earlier: &Earlier) -> Result<ManifestFile> {
    let at = into.join(&copy);
    for _ in 0..TRIES {
        let mut from = open(original).map_err(Error::at(original))?;
        let before = Looks::opened(&from).map_err(Error::at(original))?;
        let attributes = attributes::of(original).map_err(Error::at(original))?;
        if let Some(file) = earlier.share(original, &before, &at) {
            return Ok(ManifestFile { copy, attributes: Some(attributes), ..file });
        }
        let (bytes, xxh3) = copy_to(&mut from, &at).map_err(Error::at(&at))?;
        let after = Looks::of(original).map_err(Error::at(original))?;
        if before == after && bytes == after.bytes {
            let (attributes, seen) = (Some(attributes), after.recorded());
            let original = original.to_path_buf();
            return Ok(ManifestFile { copy, original, bytes, xxh3, attributes, seen, ..ManifestFile::default() });
        }
    }
    Err(Error::Changing(original.to_path_buf()))
}

/// Copies one file in the state that was seen, even if the program replaces it meanwhile: a complete file that nobody
/// writes to stays complete.
///
/// # Errors
/// What the file system says, or that the file is not the one that was seen, or has changed since.
pub fn take_seen(original: &Path, seen: &Looks, into: &Path) -> Result<ManifestFile> {
    let mut from = open(original).map_err(Error::at(original))?;
    let attributes = attributes::of(original).map_err(Error::at(original))?;
    let looks = |file: &File| Looks::opened(file).map_err(Error::at(original));
    if looks(&from)? != *seen {
        return Err(Error::Changing(original.to_path_buf()));
    }
    let copy = name_of_copy(original, 0);
    let at = into.join(&copy);
    let (bytes, xxh3) = copy_to(&mut from, &at).map_err(Error::at(&at))?;
    // A removal also changes the file's change time, which therefore is not compared.
    let after = Looks { changed: seen.changed, ..looks(&from)? };
    if after != *seen || bytes != seen.bytes {
        return Err(Error::Changing(original.to_path_buf()));
    }
    let (original, attributes) = (original.to_path_buf(), Some(attributes));
    Ok(ManifestFile { copy, original, bytes, xxh3, attributes, ..ManifestFile::default() })
}

/// Copies an open file into a new one, which is synced; its length and checksum. What stands under the name may be one
/// more name of another checkpoint's copy, by a link whose answer was lost: it goes, and is never written to.
fn copy_to(from: &mut File, at: &Path) -> io::Result<(u64, String)> {
    gone(fs::remove_file(at))?;
    let mut to = OpenOptions::new().write(true).create_new(true).open(at)?;
    let sum = clone(from, &to).map_or_else(|_| transfer(from, &mut to), |()| digest(&mut File::open(at)?))?;
    to.sync_all()?;
    Ok(sum)
}

/// Makes a copy that shares its blocks with the original (reflink), where the file system can.
fn clone(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open for as long as the call takes; the request takes a number and no pointer.
    match unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The files that a command left in a checkpoint's folder, each synced, with its checksum.
///
/// # Errors
/// What the file system says.
pub fn survey(folder: &Path) -> Result<Vec<ManifestFile>> {
    survey_new(folder, &Earlier::default())
}

/// Like [`survey`]. Files of an earlier checkpoint that have one more name here are not read: whoever verifies this one
/// reads all of it.
///
/// # Errors
/// As there.
pub fn survey_new(folder: &Path, earlier: &Earlier) -> Result<Vec<ManifestFile>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let list = || fs::read_dir(&next)?.collect::<io::Result<Vec<_>>>();
        for entry in list().map_err(Error::at(&next))? {
            let path = entry.path();
            let kind = entry.file_type().map_err(Error::at(&path))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let copy = text(path.strip_prefix(folder).unwrap_or(&path))?;
                if let Some(file) = earlier.left(&copy, &path) {
                    files.push(file);
                    continue;
                }
                let sum = || open(&path).and_then(|mut file| file.sync_all().and_then(|()| digest(&mut file)));
                let (bytes, xxh3) = sum().map_err(Error::at(&path))?;
                files.push(ManifestFile { copy, bytes, xxh3, ..ManifestFile::default() });
            }
        }
    }
    files.sort_by(|a, b| a.copy.cmp(&b.copy));
    Ok(files)
}

/// Length and XXH3-128 of a file, read from the storage: this node's cache of it is dropped first.
///
/// # Errors
/// What the file system says.
pub fn checksum(path: &Path) -> io::Result<(u64, String)> {
    let mut file = open(path)?;
    // A failure is harmless: a file system without a cache has nothing to drop.
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    digest(&mut file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        (dir, into)
    }

    #[test]
    fn a_copy_has_the_content_the_checksum_and_the_holes() {
        let (dir, into) = folder();
        let original = dir.path().join("sparse");
        let mut file = File::create(&original).unwrap();
        for at in [0_u64, 3 << 20, 9 << 20] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&vec![7; 100_000]).unwrap();
        }
        file.set_len(20 << 20).unwrap();
        file.sync_all().unwrap();
        let files = take(std::slice::from_ref(&original), &into).unwrap();
        let copy = into.join(&files[0].copy);
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&original).unwrap());
        assert_eq!(checksum(&copy).unwrap(), (20 << 20, files[0].xxh3.clone()));
        assert_eq!(files[0].bytes, 20 << 20);
        let (had, has) = (fs::metadata(&original).unwrap().blocks(), fs::metadata(&copy).unwrap().blocks());
        assert!(has <= had + 64, "{has} blocks of {had}");
    }

    #[test]
    fn the_one_file_that_was_seen_is_copied_or_nothing() {
        let (dir, into) = folder();
        let (original, next) = (dir.path().join("state"), dir.path().join("state.new"));
        fs::write(&original, "first").unwrap();
        let seen = Looks::of(&original).unwrap();
        assert_eq!(take_seen(&original, &seen, &into).unwrap().bytes, 5);
        assert_eq!(fs::read_to_string(into.join("0000-state")).unwrap(), "first");
        fs::write(&next, "other").unwrap();
        fs::rename(&next, &original).unwrap();
        assert!(matches!(take_seen(&original, &seen, &into), Err(Error::Changing(_))), "it was replaced before");
        // The file is replaced while it is open.
        let seen = Looks::of(&original).unwrap();
        let mut from = open(&original).unwrap();
        fs::write(&next, "third").unwrap();
        fs::rename(&next, &original).unwrap();
        copy_to(&mut from, &into.join("copy")).unwrap();
        assert_eq!(fs::read_to_string(into.join("copy")).unwrap(), "other");
        assert_ne!(Looks::opened(&from).unwrap(), seen, "it was removed");
        assert_eq!(Looks { changed: seen.changed, ..Looks::opened(&from).unwrap() }, seen);
    }

    #[test]
    fn an_empty_file_and_one_that_ends_in_a_hole_are_whole() {
        let (dir, into) = folder();
        for (name, bytes) in [("empty", 0), ("hole", 5_000_001)] {
            let original = dir.path().join(name);
            File::create(&original).unwrap().set_len(bytes).unwrap();
            let files = take(std::slice::from_ref(&original), &into).unwrap();
            assert_eq!(fs::metadata(into.join(&files[0].copy)).unwrap().len(), bytes);
            fs::remove_file(into.join(&files[0].copy)).unwrap();
        }
    }

    #[test]
    fn links_are_taken_as_links_with_what_they_lead_to() {
        let (dir, into) = folder();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("state.1"), "one").unwrap();
        fs::set_permissions(path("state.1"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(path("state.1"), path("same")).unwrap();
        symlink("state.1", path("latest")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        let files = take(&[path("latest"), path("dangling"), path("same")], &into).unwrap();
        let link = |i: usize| files[i].link.clone();
        let name = |i: usize| files[i].original.file_name().unwrap().to_str().unwrap();
        assert_eq!((name(0), link(0)), ("latest", Some(FileLink::Symbolic("state.1".into()))));
        assert_eq!((name(1), link(1)), ("dangling", Some(FileLink::Symbolic("nowhere".into()))));
        assert_eq!((name(2), link(2), files[2].bytes), ("same", None, 3));
        assert_eq!((name(3), link(3)), ("state.1", Some(FileLink::Hard(files[2].original.clone()))));
        assert_eq!(files[2].attributes.as_ref().unwrap().mode, 0o640);
        assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_taken() {
        let (dir, into) = folder();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(take(&[pipe], &into), Err(Error::Storage { .. })));
        assert!(matches!(take(&[dir.path().join("absent")], &into), Err(Error::Storage { .. })));
    }
}
