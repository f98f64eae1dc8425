//! Files that go back by their size: what is noted of one while its program stands still, and how it is taken back.
//!
//! Programs rename their logs, and others add to them. So a file is known by its inode and its last bytes, what is cut off is
//! kept, and a log of several tasks is left alone.

use crate::held::{InHand, Writing, is_lost};
use crate::patiently::{is_of_passing_kind, patiently_while};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many bytes before its end a file is known by.
const END_BYTES: u64 = 64;

/// Most that is kept of what is cut off one file, bytes.
pub const MOST_KEPT_BYTES: u64 = 64 << 20;

/// A file that the program writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Written {
    /// Its path.
    #[serde(with = "protocol::name")]
    pub path: PathBuf,
    /// Its size when the program stood still, bytes.
    pub bytes: u64,
    /// Whether what is written over within it since stays: it is neither kept whole nor only added to.
    #[serde(default)]
    pub stays: bool,
    /// Whether nobody can do anything but add to it: CRIU restores no other descriptor on a file of another size.
    #[serde(default)]
    pub only_adds: bool,
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
    /// It is read, and was removed or changed.
    #[error("{} was removed or changed after the checkpoint, which has no copy of it", .0.display())]
    Changed(PathBuf),
    /// Nothing of that name, or in its folder, is it.
    #[error("{} is another file than at the checkpoint, or none, and no other in its folder is that one", .0.display())]
    Gone(PathBuf),
}

/// What has become of a file that is back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Back {
    /// What its user is to know.
    pub remark: Option<String>,
    /// Where what was cut off is kept.
    pub kept: Option<PathBuf>,
}

/// The files that a stopped program writes. Of those that are `whole` the content is kept; of those that `stay` what is written over
/// stays.
///
/// # Errors
/// What the storage says of one.
pub fn written(
    open: &BTreeSet<InHand>,
    whole: &dyn Fn(&InHand) -> bool,
    stay: &dyn Fn(&InHand) -> bool,
) -> io::Result<Vec<Written>> {
    let does_more = |file: &&InHand| file.writing != Writing::Adds || file.reads;
    let more: BTreeSet<&Path> = open.iter().filter(does_more).map(|file| file.path.as_path()).collect();
    let of = |file: &InHand| -> io::Result<Written> {
        let (is_whole, stays) = (whole(file), stay(file));
        let known_by = if is_whole { None } else { KnownBy::of(&file.path, file.bytes, stays)? };
        let only_adds = !more.contains(file.path.as_path());
        Ok(Written { path: file.path.clone(), bytes: file.bytes, stays, only_adds, known_by })
    };
    let all: io::Result<BTreeSet<Written>> = open.iter().filter(|file| file.writing > Writing::No).map(of).collect();
    Ok(all?.into_iter().collect())
}

impl KnownBy {
    /// None for a file that others have taken away.
    pub(crate) fn of(path: &Path, bytes: u64, may_be_written_over: bool) -> io::Result<Option<KnownBy>> {
        let Some(found) = named(path, || fs::symlink_metadata(path))? else { return Ok(None) };
        let inode = found.ino();
        if may_be_written_over {
            return Ok(Some(KnownBy { inode, end: Vec::new() }));
        }
        // It may be one that is only written to, and others may cut it or take it away.
        let is_of_file = |e: &io::Error| {
            matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::UnexpectedEof)
        };
        let may_pass = |e: &io::Error| !is_of_file(e) && is_of_passing_kind(e);
        match patiently_while(may_pass, || end(path, bytes)) {
            Err(e) if !is_of_file(&e) => Err(of_path(path, &e)),
            end => Ok(Some(KnownBy { inode, end: end.unwrap_or_default() })),
        }
    }

    /// Whether a file that was found is it, or one that is alike as far as it went.
    pub(crate) fn is_of(&self, path: &Path, found: &Metadata, bytes: u64) -> bool {
        let is_it = || found.ino() == self.inode || end(path, bytes).is_ok_and(|end| end == self.end);
        found.len() >= bytes && is_it()
    }
}

impl Written {
    /// Whether it is left as it is, with what others have added, since other tasks of an array may add to it.
    pub fn is_left(&self) -> bool {
        self.only_adds && may_be_shared(&self.path) && self.path.exists()
    }

    /// Takes the file back to its name and size. What is cut off is kept in the folder `cut_off`, up to [`MOST_KEPT_BYTES`].
    ///
    /// # Errors
    /// Why it does not go back.
    pub fn go_back(&self, cut_off: &Path) -> Result<Back, NotBack> {
        let path = &self.path;
        let at = |source| NotBack::Storage { path: path.clone(), source };
        if self.is_left() {
            return Ok(Back { remark: Some(shared(path)), kept: None });
        }
        if self.known_by.is_none() && there(path).map_err(at)?.is_some_and(|found| found.len() == self.bytes) {
            return Ok(Back::default());
        }
        // Tasks of a step may take the same file back.
        // Not every file system has locks.
        let _one_by_one = lock(cut_off).ok();
        let mut back = Back { remark: self.name_back()?, kept: None };
        let now = fs::symlink_metadata(path).map_err(at)?.len();
        if now < self.bytes {
            return Err(NotBack::Shorter { path: path.clone(), then: self.bytes, now });
        }
        if now > self.bytes {
            if !is_lost(path) {
                match keep_tail(path, self.bytes, cut_off) {
                    Ok(kept) => back.kept = Some(kept),
                    Err(e) => back.remark = Some(lost(path, &e)),
                }
            }
            let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(at)?;
            file.set_len(self.bytes).map_err(at)?;
        }
        Ok(back)
    }

    /// Whether the file can be taken back; nothing is changed.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> Result<(), NotBack> {
        if self.is_left() || self.known_by.is_none() {
            return Ok(());
        }
        let at = |source| NotBack::Storage { path: self.path.clone(), source };
        let found = fs::symlink_metadata(self.find()?.as_ref().unwrap_or(&self.path)).map_err(at)?;
        match found.len() < self.bytes {
            true => Err(NotBack::Shorter { path: self.path.clone(), then: self.bytes, now: found.len() }),
            false => Ok(()),
        }
    }

    /// Which other name the file has now, if it has.
    fn find(&self) -> Result<Option<PathBuf>, NotBack> {
        let path = &self.path;
        let at = |source| NotBack::Storage { path: path.clone(), source };
        let (Some(known_by), Some(folder)) = (&self.known_by, path.parent()) else { return Ok(None) };
        let found = there(path).map_err(at)?;
        let is_it = |path: &Path, found: &Metadata| -> io::Result<bool> {
            let is_long_enough = found.is_file() && found.len() >= self.bytes;
            Ok(is_long_enough && (known_by.end.is_empty() || end(path, self.bytes)? == known_by.end))
        };
        if let Some(found) = found.as_ref().filter(|found| found.ino() == known_by.inode)
            && (found.len() < self.bytes || is_it(path, found).map_err(at)?)
        {
            return Ok(None);
        }
        for entry in fs::read_dir(folder).map_err(at)?.flatten().filter(|entry| entry.ino() == known_by.inode) {
            let other = entry.path();
            let Some(is) = there(&other).map_err(at)?.filter(|_| other != *path) else { continue };
            if is_it(&other, &is).map_err(at)? {
                return Ok(Some(other));
            }
        }
        // Not every file system gives a file the same number each time.
        match &found {
            Some(found) if !known_by.end.is_empty() && is_it(path, found).map_err(at)? => Ok(None),
            _ => Err(NotBack::Gone(path.clone())),
        }
    }

    /// Gives the file its name again, if it has another now; one that has its name is set aside.
    fn name_back(&self) -> Result<Option<String>, NotBack> {
        let path = &self.path;
        let at = |source| NotBack::Storage { path: path.clone(), source };
        let Some(other) = self.find()? else { return Ok(None) };
        let mut set_aside = String::new();
        if let Some(found) = there(path).map_err(at)? {
            let aside = aside(&path.file_name().unwrap_or_default().to_string_lossy(), &found);
            fs::rename(path, path.with_file_name(&aside)).map_err(at)?;
            set_aside = format!("; what had that name since is {aside}");
        }
        fs::rename(&other, path).map_err(at)?;
        Ok(Some(format!("{} is {} again, as at the checkpoint{set_aside}", other.display(), path.display())))
    }
}

/// What a look at a path shows, if there is such a file.
pub(crate) fn named(path: &Path, look: impl FnMut() -> io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    // What the kernel adds to the name of a file that is removed may make it too long.
    let is_none = |e: &io::Error| {
        matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            || e.raw_os_error() == Some(libc::ENAMETOOLONG)
    };
    let may_pass = |e: &io::Error| e.kind() != ErrorKind::PermissionDenied && is_of_passing_kind(e);
    match patiently_while(may_pass, look) {
        Err(e) if is_none(&e) => Ok(None),
        found => found.map(Some).map_err(|e| of_path(path, &e)),
    }
}

/// An error with the name of its file.
pub(crate) fn of_path(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

/// A file, if there is one of that name.
fn there(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Opens a file for reading, but follows no link and waits for no writer of a FIFO.
///
/// # Errors
/// What the file system says.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// The last bytes of the first so many of a file.
fn end(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut end = vec![0; END_BYTES.min(bytes) as usize];
    file.read_exact_at(&mut end, bytes.saturating_sub(END_BYTES))?;
    Ok(end)
}

/// The longest name that a file can have, bytes.
const NAME_BYTES: usize = 255;

/// The beginning of a name, as far as so many bytes go.
fn cut(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

/// The name under which a file is set aside in its folder, by its last change.
pub fn aside(name: &str, found: &Metadata) -> String {
    format!(".{}", dated(name, found))
}

/// The name under which a file is kept elsewhere, by its last change.
pub fn dated(name: &str, found: &Metadata) -> String {
    let end = format!(".joulepoint-aside-{}.{:09}", found.mtime(), found.mtime_nsec());
    // A hidden or temporary file's name has some letters more.
    format!("{}{end}", cut(name, NAME_BYTES - end.len() - 1 - 8))
}

/// What is said of a file that is left as it is.
pub fn shared(path: &Path) -> String {
    format!(
        "other tasks of the array may add to {}: it is left as it is, so this task's lines since the checkpoint stand twice; \
         give each task a file of its own, with $SLURM_ARRAY_TASK_ID in its name",
        path.display()
    )
}

/// What is said of a tail that could not be kept.
pub fn lost(path: &Path, e: &io::Error) -> String {
    format!("what was added to {} since the checkpoint could not be kept: {e}", path.display())
}

/// Whether other tasks of the job's array may add to a file: nothing in its path is this one's number, outside of what
/// it has in common with the folder from which the job was submitted.
pub fn may_be_shared(path: &Path) -> bool {
    let of = |name| std::env::var(name).ok();
    let number = |name| of(name)?.parse::<u64>().ok();
    let Some(task) = number("SLURM_ARRAY_TASK_ID") else { return false };
    let job = number("SLURM_JOB_ID").filter(|job| number("SLURM_ARRAY_JOB_ID") != Some(*job));
    let submitted = of("SLURM_SUBMIT_DIR").map(PathBuf::from).unwrap_or_default();
    let numbers = [Some(task), job].into_iter().flatten().collect::<Vec<_>>();
    !has_one(&below(path, &submitted), &numbers)
}

/// Whether a folder is this job's alone, as sites make them: its path has the job's number, or those of the array and the
/// task. Outside of jobs there are no others.
pub fn is_of_job(path: &Path) -> bool {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let Some(job) = number("SLURM_JOB_ID") else { return true };
    let of_task = || {
        let both = number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID"));
        both.is_some_and(|(array, task)| has_one(path, &[array]) && has_one(path, &[task]))
    };
    has_one(path, &[job]) || of_task()
}

/// A path without the folders that it has in common with another.
fn below(path: &Path, other: &Path) -> PathBuf {
    let common = path.components().zip(other.components()).take_while(|(one, other)| one == other).count();
    path.components().skip(common).collect()
}

fn has_one(path: &Path, numbers: &[u64]) -> bool {
    let text = path.to_string_lossy();
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse::<u64>().ok()).any(|number| numbers.contains(&number))
}

/// Keeps others from taking files back until it is dropped.
///
/// # Errors
/// What the file system says.
pub fn lock(folder: &Path) -> io::Result<File> {
    make_private(folder)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(".lock"))?;
    file.lock()?;
    Ok(file)
}

fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Copies what comes after so many bytes of a file into a folder of its user's alone, up to [`MOST_KEPT_BYTES`]; where it is.
///
/// # Errors
/// What the file system says.
pub fn keep_tail(path: &Path, after: u64, folder: &Path) -> io::Result<PathBuf> {
    make_private(folder)?;
    let mut file = open(path)?;
    let found = file.metadata()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let end = format!("-{}-{}.{:09}", found.ino(), found.mtime(), found.mtime_nsec());
    let kept = folder.join(format!("{}{end}", cut(&name, NAME_BYTES - end.len())));
    let mut copy = tempfile::Builder::new().prefix(".").tempfile_in(folder)?;
    file.seek(SeekFrom::Start(after))?;
    io::copy(&mut file.take(MOST_KEPT_BYTES), copy.as_file_mut())?;
    match copy.persist_noclobber(&kept) {
        // Another task of the step has kept it.
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(kept),
        persisted => persisted.map(|_| kept).map_err(|e| e.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_can_be_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["x".repeat(255), "\u{e4}".repeat(127), "short".to_string()] {
            let file = dir.path().join(&name);
            fs::write(&file, "1").unwrap();
            let aside = aside(&name, &fs::metadata(&file).unwrap());
            assert!(aside.len() <= 247 && aside.contains(".joulepoint-aside-"), "{aside}");
            fs::rename(&file, dir.path().join(&aside)).unwrap();
        }
    }

    fn noted(path: &Path, stays: bool) -> Written {
        let bytes = fs::metadata(path).unwrap().len();
        let file =
            InHand { path: path.to_path_buf(), bytes, stored_bytes: bytes, writing: Writing::Adds, reads: false };
        written(&[file].into(), &|_| false, &|_| stays).unwrap().remove(0)
    }

    #[test]
    fn what_a_file_is_known_by_may_be_missing_and_is_never_missed() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes| KnownBy::of(&dir.path().join(name), bytes, false);
        fs::write(dir.path().join("log"), "12345").unwrap();
        assert_eq!(of("log", 5).unwrap().unwrap().end, b"12345");
        assert_eq!(of("log", 9).unwrap().unwrap().end, b"", "others have cut it");
        assert_eq!(of("none", 5).unwrap(), None);
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        let unread = of("loop/log", 5).unwrap_err();
        assert!(unread.to_string().contains("loop/log: "), "{unread}");
    }

    #[test]
    fn a_file_goes_back_to_its_size_but_never_grows_and_what_is_cut_off_is_kept() {
        let dir = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
        let (path, cut_off) = (dir.path().join("log"), dir.path().join("cut-off"));
        fs::write(&path, "kept").unwrap();
        let written = noted(&path, false);
        assert!(written.only_adds);
        fs::write(&path, "kept and cut").unwrap();
        let back = written.go_back(&cut_off).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), back.remark), ("kept", None));
        assert_eq!(fs::read_to_string(back.kept.unwrap()).unwrap(), " and cut");
        assert_eq!(written.go_back(&cut_off).unwrap(), Back::default());
        fs::write(&path, "k").unwrap();
        assert!(written.go_back(&cut_off).unwrap_err().to_string().contains("has 1 now"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Written { path: link, bytes: 0, known_by: None, ..written }.go_back(&cut_off).is_err());
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
            let said = written.go_back(&cut_off).unwrap().remark.unwrap();
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
    fn tasks_of_a_step_take_one_file_back_together() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cut_off) = (dir.path().join("log"), dir.path().join("cut-off"));
        for _ in 0..20 {
            fs::write(&path, "first").unwrap();
            let written = noted(&path, false);
            fs::rename(&path, dir.path().join("log.1")).unwrap();
            fs::write(&path, "second").unwrap();
            std::thread::scope(|all| {
                let back = || written.go_back(&cut_off);
                let tasks: Vec<_> = (0..4).map(|_| all.spawn(back)).collect();
                tasks.into_iter().for_each(|task| drop(task.join().unwrap().unwrap()));
            });
            assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        }
    }

    #[test]
    fn a_path_with_the_number_of_a_task_is_that_tasks_own() {
        let own = |path: &str, numbers: &[u64]| has_one(&below(Path::new(path), Path::new("/lustre1/me")), numbers);
        for (path, is_own) in [
            ("/lustre1/me/out.7", true),
            ("/lustre1/me/4711/log", true),
            ("/lustre1/me/t007.csv", true),
            ("/lustre1/me/common17.log", false),
            ("/scratch/4711/log", true),
        ] {
            assert_eq!(own(path, &[7, 4711]), is_own, "{path}");
        }
        assert!(!own("/lustre1/me/common.log", &[1]), "the number of a file system is nobody's");
        assert!(own("/lustre1/me/out.0", &[0]));
    }

    #[test]
    fn who_only_adds_is_told_from_who_also_reads() {
        let file = |writing, reads| InHand { path: "/w/log".into(), bytes: 0, stored_bytes: 0, writing, reads };
        let only_adds = |open: &[InHand]| {
            written(&open.iter().cloned().collect(), &|_| true, &|_| false)
                .unwrap()
                .iter()
                .map(|w| w.only_adds)
                .collect::<Vec<_>>()
        };
        assert_eq!(only_adds(&[file(Writing::Adds, false)]), [true]);
        assert_eq!(only_adds(&[file(Writing::Adds, true)]), [false]);
        assert_eq!(only_adds(&[file(Writing::Adds, false), file(Writing::No, true)]), [false]);
    }
}
