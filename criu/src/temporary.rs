//! A temporary folder for a script whose user names none: part of the program's checkpoints, and removed after the
//! run.

use crate::files::COMMON;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The folder; removed when this is dropped.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes the folder of a run, empty and for its user only; it has the same name on every node.
    ///
    /// # Errors
    /// A sentence.
    pub fn make(run: &Path) -> Result<Temporary, String> {
        let name = format!("joulepoint-{:016x}", xxh3_64(run.as_os_str().as_encoded_bytes()));
        let folder = Path::new(COMMON[0]).join(name);
        // Leftovers of an earlier, killed life. Another user's folder cannot be removed, and making ours fails then.
        let _ = fs::remove_dir_all(&folder);
        let told = |e: io::Error| format!("{}: {e}; set TMPDIR to a folder of your own", folder.display());
        DirBuilder::new().mode(0o700).create(&folder).map_err(told)?;
        Ok(Temporary(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_folder_of_its_own_that_is_empty_and_gone_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let first = Temporary::make(&run).unwrap();
        let path = first.path().to_path_buf();
        fs::write(path.join("a"), "").unwrap();
        std::mem::forget(first);
        let again = Temporary::make(&run).unwrap();
        let other = Temporary::make(dir.path()).unwrap();
        assert_eq!(again.path(), path);
        assert_ne!(other.path(), path);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        drop(again);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(Temporary::make(&run).unwrap_err().contains("set TMPDIR"));
        fs::remove_file(path).unwrap();
    }
}
