//! A wrapper's own folder on its node, of which a run leaves none behind there: the next wrapper removes that of a killed
//! one.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder; it goes when it is dropped.
pub(super) struct Folder {
    path: PathBuf,
    /// Where the run's folder says which it is.
    told: PathBuf,
}

impl Folder {
    /// Makes one for the wrapper of the run whose folder this is.
    pub(super) fn make(run: &Path) -> io::Result<Folder> {
        let told = run.join("node-folder");
        if let Ok(path) = fs::read_link(&told) {
            drop(Folder { path, told: told.clone() });
        }
        let path = nix::unistd::mkdtemp(&std::env::temp_dir().join("joulepoint-XXXXXX"))?;
        symlink(&path, &told)?;
        Ok(Folder { path, told })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for removed in [fs::remove_dir_all(&self.path), fs::remove_file(&self.told)] {
            // That of a wrapper on another node is there.
            if let Err(e) = removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }) {
                tracing::warn!(%e, folder = %self.path.display(), "a folder could not be removed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_wrapper_goes_when_the_next_one_begins() {
        let run = tempfile::tempdir().unwrap();
        let killed = std::mem::ManuallyDrop::new(Folder::make(run.path()).unwrap());
        fs::write(killed.path().join("srun"), "").unwrap();
        let next = Folder::make(run.path()).unwrap();
        assert!(!killed.path().exists() && next.path().exists());
        let last = next.path().to_path_buf();
        drop(next);
        assert!(!last.exists());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }
}
