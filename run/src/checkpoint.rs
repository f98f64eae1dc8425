//! One checkpoint in its folder: whether it is complete, and whether it is unchanged.

use crate::copy::checksum;
use crate::{Error, Patience, Result, storage};
use protocol::{Manifest, ManifestFile, NOT_RESTORED};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The file that makes a checkpoint complete.
pub const MANIFEST: &str = "manifest.json";

/// Names of the manifest of a checkpoint that is not to be used: it is damaged, or the run went back behind it.
pub const DAMAGED: &str = "manifest.damaged";
pub(crate) const FORGOTTEN: &str = "manifest.forgotten";

/// The state of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a manifest.
    Complete,
    /// It had a manifest, and was set aside.
    SetAside,
    /// It never had one.
    Incomplete,
}

/// The state of the checkpoint in a folder.
///
/// # Errors
/// What the file system says: then nobody knows.
pub fn state(folder: &Path, patience: Patience) -> Result<State> {
    for (name, state) in [(MANIFEST, State::Complete), (DAMAGED, State::SetAside), (FORGOTTEN, State::SetAside)] {
        if storage::is_there(&folder.join(name), patience)? {
            return Ok(state);
        }
    }
    Ok(State::Incomplete)
}

/// The outcome of reading a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read {
    /// The manifest.
    Manifest(Box<Manifest>),
    /// It was written by another version, in a form that this one does not understand.
    Foreign(String),
    /// It cannot be parsed.
    Damaged(String),
}

/// Reads the manifest of a checkpoint that has one.
///
/// # Errors
/// What the file system says: then nobody knows.
pub(crate) fn manifest(folder: &Path, patience: Patience) -> Result<Read> {
    let path = folder.join(MANIFEST);
    let mut damage = String::new();
    for _ in 0..2 {
        let content = storage::read_if_there(&path, patience)?.ok_or_else(|| Error::at(&path)(gone()))?;
        match serde_json::from_slice::<Manifest>(&content) {
            Ok(manifest) if [protocol::VERSION, Manifest::WITH_BLOCKS].contains(&manifest.version) => {
                return Ok(Read::Manifest(Box::new(manifest)));
            }
            Ok(manifest) => return Ok(Read::Foreign(format!("its manifest has version {}", manifest.version))),
            Err(e) if e.is_data() => return Ok(Read::Foreign(format!("its manifest is of another version: {e}"))),
            Err(e) => damage = format!("manifest: {e}"),
        }
        storage::refresh(folder);
    }
    Ok(Read::Damaged(damage))
}

fn gone() -> io::Error {
    io::Error::from(ErrorKind::NotFound)
}

/// Why a checkpoint could not be restored, if a mark says so. Its files may be as they were.
///
/// # Errors
/// What the file system says: then nobody knows.
pub(crate) fn not_restored(folder: &Path, patience: Patience) -> Result<Option<String>> {
    let reason = storage::read_if_there(&folder.join(NOT_RESTORED), patience)?;
    Ok(reason.map(|reason| String::from_utf8_lossy(&reason).into_owned()))
}

/// Lets a checkpoint be restored again.
pub(crate) fn try_again(folder: &Path, patience: Patience) {
    let lifted = patience.with(|| storage::gone(fs::remove_file(folder.join(NOT_RESTORED))));
    if let Err(e) = lifted {
        tracing::warn!(%e, "a checkpoint that could not be restored is not tried again");
    }
}

/// The outcome of a verification.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every file is there, unchanged.
    Good,
    /// A file has changed.
    Damaged(String),
    /// The storage gives no answer.
    Unread(String),
}

/// Compares all files of a checkpoint with its manifest, read from the storage and not from this node's cache.
pub fn verify(folder: &Path, manifest: &Manifest, patience: Patience) -> Verdict {
    for file in manifest.files.iter().filter(|file| file.link.is_none()) {
        match is_unchanged(folder, file, patience) {
            Ok(None) => {}
            Ok(Some(damage)) => return Verdict::Damaged(damage),
            Err(e) => return Verdict::Unread(e.to_string()),
        }
    }
    Verdict::Good
}

/// What is wrong with a copy, if anything. It counts as changed only if two readings say so.
fn is_unchanged(folder: &Path, file: &ManifestFile, patience: Patience) -> Result<Option<String>> {
    let path = folder.join(&file.copy);
    let mut damage = None;
    for _ in 0..2 {
        match patience.with(|| checksum(&path)) {
            Ok(found) if found == (file.bytes, file.xxh3.clone()) => return Ok(None),
            Ok(_) => damage = Some(format!("{} has changed", file.copy)),
            Err(e) if e.kind() == ErrorKind::NotFound => damage = Some(format!("{} is gone", file.copy)),
            Err(e) => return Err(Error::at(&path)(e)),
        }
        path.parent().into_iter().for_each(storage::refresh);
    }
    Ok(damage)
}
