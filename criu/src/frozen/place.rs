//! Whether this node has the folders in which a program worked. That one of its file systems is not mounted here, or that it cannot be
//! entered for now, is no fault of a checkpoint, which stays as good as it was.

use super::Frozen;
use openfiles::Mounts;
use openfiles::held::is_lost;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What this node lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// A file system is not mounted.
    #[error("{} is not mounted on this node", .0.display())]
    Mount(PathBuf),
    /// A folder or file cannot be reached.
    #[error("{}: {reason}", path.display())]
    Reach {
        /// Which.
        path: PathBuf,
        /// What the file system says.
        reason: String,
    },
}

/// Where file systems are mounted below `/`, as this process sees it.
fn mounts() -> BTreeSet<PathBuf> {
    let all = Mounts::of(Path::new("/proc/self")).unwrap_or_default();
    all.iter().map(|mount| mount.point.clone()).filter(|point| point != Path::new("/")).collect()
}

/// The mounts below which these are, but for those of folders that each node has for itself, such as `/tmp`.
pub(crate) fn mounts_of<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
    let mounts = mounts();
    let nearest = |path: &PathBuf| path.ancestors().find(|above| mounts.contains(*above)).map(Path::to_path_buf);
    paths.filter(|path| !is_lost(path)).filter_map(nearest).filter(|mount| !is_lost(mount)).collect()
}

/// Looks whether all that a program worked with can be reached.
///
/// # Errors
/// What is lacking.
pub(crate) fn look(frozen: &Frozen) -> Result<(), Lacking> {
    let files = frozen.written.iter().map(|f| &f.path).chain(frozen.read.iter().map(|f| &f.path)).cloned();
    let places = frozen.folders.iter().map(|folder| folder.join(".")).chain(files);
    let mut removed = Vec::new();
    for path in places.filter(|path| !is_lost(path)) {
        match fs::metadata(&path) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => removed.push(path),
            Err(e) => return Err(Lacking::Reach { path, reason: e.to_string() }),
        }
    }
    // What was removed may be put back, where its file system is mounted.
    let now = if removed.is_empty() { BTreeSet::new() } else { mounts() };
    let is_below = |mount: &&PathBuf| removed.iter().any(|path| path.starts_with(mount));
    match frozen.mounts.iter().filter(is_below).find(|mount| !now.contains(*mount)) {
        Some(missing) => Err(Lacking::Mount(missing.clone())),
        None => Ok(()),
    }
}

/// The same for the checkpoint in a folder. One that cannot be read is not judged here.
///
/// # Errors
/// What is lacking.
pub fn look_for(checkpoint: &Path) -> Result<(), Lacking> {
    super::read(checkpoint).map_or(Ok(()), |frozen| look(&frozen))
}
