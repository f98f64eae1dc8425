//! Files that go back by their size: what is noted of one while its program stands still, and how it is taken back.
//!
//! Programs rename their logs, and others add to them. So a file is known by its inode and its last bytes, and what is cut off is
//! kept.

use crate::held::{InHand, is_lost};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many bytes before its end a file is known by.
const END_BYTES: u64 = 64;

/// A file that the program writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Written {
    /// Its path.
    pub path: PathBuf,
    /// Its size when the program stood still, bytes.
    pub bytes: u64,
    /// Whether what is written over within it since stays: it is neither kept whole nor only added to.
    #[serde(default)]
    pub stays: bool,
    /// By what it is known again; absent if its content is kept, or in a checkpoint of an earlier version.
    #[serde(default)]
    pub known_by: Option<KnownBy>,
}

/// What is the same of a file whatever its name is, and however much was added to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnownBy {
    inode: u64,
    /// Its last bytes; empty if they could not be read, or may be written over.
    end: Vec<u8>,
}

/// Why a file does not go back.
#[derive(Debug, thiserror::Error)]
pub enum NotBack {
    /// What the file system says of it.
    #[error("{}: {source}", path.display())]
    Storage {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It has become shorter.
    #[error("{} had {then} bytes at the checkpoint and has {now} now", path.display())]
    Shorter {
        /// The file.
        path: PathBuf,
        /// Bytes at the checkpoint.
        then: u64,
        /// Bytes now.
        now: u64,
    },
    /// Nothing of that name, or in its folder, is it.
    #[error("{} is another file than at the checkpoint, or none, and no other in its folder is that one", .0.display())]
    Gone(PathBuf),
}

impl Written {
    /// What is to be noted of a file that a stopped program has in hand; its content is kept if it `is_whole`.
    pub fn of(file: &InHand, is_whole: bool, stays: bool) -> Written {
        let known_by = || {
            let inode = fs::symlink_metadata(&file.path).ok()?.ino();
            let end = if stays { None } else { end(&file.path, file.bytes).ok() };
            Some(KnownBy { inode, end: end.unwrap_or_default() })
        };
        let known_by = if is_whole { None } else { known_by() };
        Written { path: file.path.clone(), bytes: file.bytes, stays, known_by }
    }

    /// Takes the file back to its name and size. What is cut off is kept in a folder. A file to which other jobs may add is
    /// not cut. Returns what the user is to know of it.
    ///
    /// # Errors
    /// Why it does not go back: nothing is cut then.
    pub fn go_back(&self, cut_off: &Path) -> Result<Option<String>, NotBack> {
        let path = &self.path;
        let at = |source| NotBack::Storage { path: path.clone(), source };
        let mut remark = self.name_back()?;
        let now = fs::symlink_metadata(path).map_err(at)?.len();
        if now < self.bytes {
            return Err(NotBack::Shorter { path: path.clone(), then: self.bytes, now });
        }
        if now > self.bytes {
            if !self.stays && may_be_shared(path) {
                return Ok(Some(shared(path)));
            }
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)
                .or_else(|_| OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path));
            let file = file.as_mut().map_err(|e| at(io::Error::from(e.kind())))?;
            if !is_lost(path) && keep_tail(file, path, self.bytes, cut_off).is_err() {
                remark = Some(format!("what was added to {} since the checkpoint is lost", path.display()));
            }
            file.set_len(self.bytes).map_err(at)?;
        }
        Ok(remark)
    }

    /// Gives the file its name again, if it has another now; one that has its name is set aside.
    fn name_back(&self) -> Result<Option<String>, NotBack> {
        let (path, Some(known_by)) = (&self.path, &self.known_by) else { return Ok(None) };
        let is_it = |path: &Path| {
            fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.ino() == known_by.inode && m.len() >= self.bytes)
                && (known_by.end.is_empty() || end(path, self.bytes).is_ok_and(|end| end == known_by.end))
        };
        if is_it(path) {
            return Ok(None);
        }
        let at = |source| NotBack::Storage { path: path.clone(), source };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let mut others = fs::read_dir(folder).map_err(at)?.flatten().map(|entry| entry.path());
        let Some(now) = others.find(|other| is_it(other)) else {
            // A file that is written over may have become shorter, and its user hears of that.
            let is_named_so = self.stays && fs::symlink_metadata(path).is_ok_and(|m| m.ino() == known_by.inode);
            return if is_named_so { Ok(None) } else { Err(NotBack::Gone(path.clone())) };
        };
        // Another task of the step has given it back meanwhile.
        if now == *path {
            return Ok(None);
        }
        let mut set_aside = String::new();
        if let Ok(found) = fs::symlink_metadata(path) {
            let aside = format!(".{}.joulepoint-aside-{}.{:09}", name.display(), found.mtime(), found.mtime_nsec());
            fs::rename(path, folder.join(&aside)).map_err(at)?;
            set_aside = format!("; what had that name since is {aside}");
        }
        fs::rename(&now, path).map_err(at)?;
        Ok(Some(format!("{} is {} again, as at the checkpoint{set_aside}", now.display(), path.display())))
    }
}

/// The last bytes of the first so many of a file.
fn end(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let mut end = vec![0; END_BYTES.min(bytes) as usize];
    file.read_exact_at(&mut end, bytes.saturating_sub(END_BYTES))?;
    Ok(end)
}

/// What is said of a file that is not cut.
pub fn shared(path: &Path) -> String {
    format!(
        "other tasks of the array may add to {}: what was added since the checkpoint stays, and this one adds its own again; a \
         file for each task (its name with $SLURM_ARRAY_TASK_ID) has each line once",
        path.display()
    )
}

/// Whether other tasks of the job's array may add to a file: nothing in its path is this one's number.
pub fn may_be_shared(path: &Path) -> bool {
    let of = |name| std::env::var(name).ok();
    let numbers: Vec<String> = ["SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"].into_iter().filter_map(of).collect();
    of("SLURM_ARRAY_TASK_ID").is_some() && !names_one(path, &numbers)
}

/// Whether a folder is this job's alone, as sites make them: its path has the job's number. Outside of jobs there are no others.
pub fn is_of_job(path: &Path) -> bool {
    std::env::var("SLURM_JOB_ID").map_or(true, |job| names_one(path, &[job]))
}

fn names_one(path: &Path, numbers: &[String]) -> bool {
    let text = path.to_string_lossy();
    let mut words = text.split(|c: char| !c.is_ascii_digit()).map(|word| word.trim_start_matches('0'));
    words.any(|word| !word.is_empty() && numbers.iter().any(|number| number.trim_start_matches('0') == word))
}

/// Copies what comes after so many bytes of a file into a folder of its user's alone.
///
/// # Errors
/// What the file system says.
pub fn keep_tail(file: &mut File, path: &Path, after: u64, folder: &Path) -> io::Result<()> {
    let found = file.metadata()?;
    let name = path.file_name().unwrap_or_default().display();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let copy = folder.join(format!("{name}-{}.{:09}", found.mtime(), found.mtime_nsec()));
    file.seek(SeekFrom::Start(after))?;
    // Another task of the step may have kept it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => io::copy(file, &mut made?).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Writing;

    fn noted(path: &Path, stays: bool) -> Written {
        let bytes = fs::metadata(path).unwrap().len();
        Written::of(&InHand { path: path.to_path_buf(), bytes, writing: Writing::Adds }, false, stays)
    }

    #[test]
    fn a_file_goes_back_to_its_size_but_never_grows_and_what_is_cut_off_is_kept() {
        let dir = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let (path, cut_off) = (dir.path().join("log"), dir.path().join("cut-off"));
        fs::write(&path, "kept").unwrap();
        let written = noted(&path, false);
        fs::write(&path, "kept and cut").unwrap();
        assert_eq!(written.go_back(&cut_off).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let kept = fs::read_dir(&cut_off).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::read_to_string(kept).unwrap(), " and cut");
        let longer = Written { bytes: 9, known_by: None, ..written.clone() };
        assert!(longer.go_back(&cut_off).unwrap_err().to_string().contains("has 4 now"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Written { path: link, bytes: 1, ..written }.go_back(&cut_off).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn a_log_that_was_renamed_gets_its_name_back_and_another_is_never_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cut_off) = (dir.path().join("log"), dir.path().join("cut-off"));
        for follows in [true, false] {
            fs::write(&path, "first").unwrap();
            let written = noted(&path, false);
            fs::rename(&path, dir.path().join("log.1")).unwrap();
            if follows {
                fs::write(&path, "second, and longer").unwrap();
            }
            let said = written.go_back(&cut_off).unwrap().unwrap();
            assert!(said.contains("log.1 is ") && said.contains("aside") == follows, "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "first");
            assert!(!dir.path().join("log.1").exists());
        }
        let written = noted(&path, false);
        fs::remove_file(&path).unwrap();
        assert!(matches!(written.go_back(&cut_off), Err(NotBack::Gone(_))));
        // Its number may be given to the next.
        fs::write(&path, "other, and longer").unwrap();
        assert!(matches!(written.go_back(&cut_off), Err(NotBack::Gone(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "other, and longer");
    }

    #[test]
    fn a_path_with_the_number_of_a_task_is_that_tasks_own() {
        let numbers = ["7".to_string(), "4711".to_string()];
        for (path, is_own) in
            [("/w/out.7", true), ("/w/4711/log", true), ("/w/t007.csv", true), ("/w/common17.log", false)]
        {
            assert_eq!(names_one(Path::new(path), &numbers), is_own, "{path}");
        }
    }
}
