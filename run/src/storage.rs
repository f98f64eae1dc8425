//! Reads and writes small files: "there", "absent" and "unknown" stay different answers, and what is written is
//! durable.

use crate::patience::Patience;
use crate::{Error, Result};
use nix::unistd::AccessFlags;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reads a file; none if it does not exist.
///
/// # Errors
/// What the file system says for as long as it is tried: then nobody knows whether there is one.
pub fn read_if_there(path: &Path, patience: Patience) -> Result<Option<Vec<u8>>> {
    match patience.with(|| fs::read(path)) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::at(path)(e)),
    }
}

/// Whether a path exists.
///
/// # Errors
/// As [`read_if_there`].
pub fn is_there(path: &Path, patience: Patience) -> Result<bool> {
    match patience.with(|| fs::symlink_metadata(path)) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::at(path)(e)),
    }
}

/// Names in a folder; none if the folder does not exist.
///
/// # Errors
/// As [`read_if_there`].
pub fn names(folder: &Path, patience: Patience) -> Result<Vec<OsString>> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect();
    match patience.with(list) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(Error::at(folder)),
    }
}

/// Makes a folder, and those above it, for their owner only.
///
/// # Errors
/// What the file system says, or that it would be in a folder of another user.
pub fn make_folder(folder: &Path, patience: Patience) -> Result<()> {
    if let Some((closed, owner)) = closed_by_another(folder) {
        let why = format!(
            "this folder is of user {owner} and closed to others: name a folder of your own (--ft-energy-dir), or the site one \
             for each user (runs.dir with {{user}})"
        );
        return Err(Error::at(&closed)(io::Error::new(ErrorKind::PermissionDenied, why)));
    }
    let make = || fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    patience.with(make).map_err(Error::at(folder))
}

/// The folder above a new one that belongs to another user and lets nobody else in: no trouble that passes.
fn closed_by_another(folder: &Path) -> Option<(PathBuf, u32)> {
    let (above, meta) = folder.ancestors().find_map(|above| match fs::metadata(above) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => None,
        // Any other error is a trouble of the storage.
        found => Some((above, found.ok())),
    })?;
    let meta = meta?;
    let me = nix::unistd::geteuid().as_raw();
    // Where a file system is to be mounted, a folder of root's is seen before.
    let is_closed = ![me, 0].contains(&meta.uid())
        && me != 0
        && nix::unistd::eaccess(above, AccessFlags::W_OK | AccessFlags::X_OK) == Err(nix::errno::Errno::EACCES);
    is_closed.then(|| (above.to_path_buf(), meta.uid()))
}

/// Makes this node ask the server for a folder's content: a node that changes a folder drops its cache of it.
pub fn refresh(folder: &Path) {
    let probe = folder.join(format!(".look-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&probe);
    // A user who may not change the folder sees this node's cache.
    if made.is_ok() || made.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
        let _ = fs::remove_file(&probe);
    }
}

/// Writes a file under a temporary name, syncs it, renames it and syncs its folder.
///
/// # Errors
/// What the file system says.
pub fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    write_by(path, &path.with_extension("partial"), content)
}

/// Like [`write_durably`] with a given temporary name: two writers at once need different ones.
///
/// # Errors
/// What the file system says.
pub fn write_by(path: &Path, beside: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// What is not there needs no removal.
///
/// # Errors
/// What the file system says of all else.
pub fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Syncs the names in a folder.
///
/// # Errors
/// What the file system says.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs the names in a folder and in all folders below it.
///
/// # Errors
/// What the file system says.
pub fn sync_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync_folder(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_absent_and_unknown_are_three_things() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert_eq!(read_if_there(&file, Patience::NONE).unwrap(), None);
        assert!(!is_there(&file, Patience::NONE).unwrap());
        assert!(names(&dir.path().join("folder"), Patience::NONE).unwrap().is_empty());
        write_durably(&file, b"content").unwrap();
        assert_eq!(read_if_there(&file, Patience::NONE).unwrap().as_deref(), Some(&b"content"[..]));
        refresh(dir.path());
        assert_eq!(names(dir.path(), Patience::NONE).unwrap(), ["file"], "a look leaves nothing behind");
        // A path below a file is no "absent": ENOTDIR is an error.
        let through = file.join("below");
        assert!(read_if_there(&through, Patience::NONE).is_err() && is_there(&through, Patience::NONE).is_err());
        assert!(names(&file, Patience::NONE).is_err());
    }
}
