//! The folder of a run's checkpoints: copied with checksums, complete with a manifest, verified before use.

use protocol::{Manifest, ManifestFile};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use xxhash_rust::xxh3::Xxh3;

/// Size of one read and write while copying, bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Blocks on their way from the reader to the writer.
const BLOCKS: usize = 4;

/// How often a copy is tried again when the program writes to the file meanwhile.
const COPY_TRIES: u32 = 5;

const MANIFEST: &str = "manifest.json";

/// The checkpoints of one run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// Takes the folder `checkpoints/` of a run.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: PathBuf, keep: u32) -> io::Result<Checkpoints> {
        fs::create_dir_all(&folder)?;
        Ok(Checkpoints { folder, keep: keep.max(1) as usize })
    }

    /// A fresh folder for the next checkpoint; what earlier, broken tries left is removed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn room(&self) -> io::Result<(u64, PathBuf)> {
        self.room_after(self.last()?)
    }

    /// The highest number of a checkpoint, complete or not; 0 if there is none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn last(&self) -> io::Result<u64> {
        Ok(self.numbers()?.into_iter().max().unwrap_or(0))
    }

    /// Like [`Checkpoints::room`], with the number that follows `last`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn room_after(&self, last: u64) -> io::Result<(u64, PathBuf)> {
        let number = last + 1;
        for left in self.numbers()?.into_iter().filter(|n| !self.manifest_path(*n).exists()) {
            if !self.path(left).join("manifest.damaged").exists() {
                fs::remove_dir_all(self.path(left))?;
            }
        }
        let folder = self.path(number);
        fs::create_dir(&folder)?;
        Ok((number, folder))
    }

    /// Makes a checkpoint complete, then removes the oldest beyond the number to keep.
    ///
    /// # Errors
    /// What the file system says; the checkpoint is not complete then.
    pub fn commit(&self, manifest: &Manifest) -> io::Result<()> {
        let folder = self.path(manifest.number);
        sync_folder(&folder)?;
        write_durably(&folder.join(MANIFEST), &serde_json::to_vec_pretty(manifest)?)?;
        sync_folder(&self.folder)?;
        let mut complete: Vec<u64> = self.numbers()?.into_iter().filter(|n| self.manifest_path(*n).exists()).collect();
        complete.sort_unstable();
        let surplus = complete.len().saturating_sub(self.keep);
        for old in &complete[..surplus] {
            // The manifest goes first: a half-removed checkpoint must not look complete.
            fs::remove_file(self.manifest_path(*old))?;
            fs::remove_dir_all(self.path(*old))?;
        }
        Ok(())
    }

    /// The newest checkpoint that is complete and unchanged; damaged ones are set aside and named.
    pub fn newest(&self) -> (Option<Manifest>, Vec<String>) {
        let mut numbers = self.numbers().unwrap_or_default();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let mut damaged = Vec::new();
        for number in numbers {
            if !self.manifest_path(number).exists() {
                continue;
            }
            match self.verified(number) {
                Ok(manifest) => return (Some(manifest), damaged),
                Err(reason) => {
                    damaged.push(format!("checkpoint {number} is damaged and not used: {reason}"));
                    let aside = self.path(number).join("manifest.damaged");
                    if let Err(e) = fs::rename(self.manifest_path(number), aside) {
                        damaged.push(format!("checkpoint {number} could not be set aside: {e}"));
                    }
                }
            }
        }
        (None, damaged)
    }

    /// Makes checkpoints from a number on incomplete, so that they are never used; their room is given back by the next.
    ///
    /// # Errors
    /// What the file system says.
    pub fn forget_from(&self, number: u64) -> io::Result<()> {
        for late in self.numbers()?.into_iter().filter(|n| *n >= number && self.manifest_path(*n).exists()) {
            fs::remove_file(self.manifest_path(late))?;
            sync_folder(&self.path(late))?;
        }
        Ok(())
    }

    /// Folder of a checkpoint.
    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn manifest_path(&self, number: u64) -> PathBuf {
        self.path(number).join(MANIFEST)
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            if let Some(n) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
                numbers.push(n);
            }
        }
        Ok(numbers)
    }

    fn verified(&self, number: u64) -> Result<Manifest, String> {
        let text = fs::read(self.manifest_path(number)).map_err(|e| e.to_string())?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| format!("manifest: {e}"))?;
        if manifest.version != protocol::VERSION {
            return Err(format!("manifest has version {}", manifest.version));
        }
        if let Ok(reason) = fs::read_to_string(self.path(number).join(::criu::NOT_RESTORED)) {
            return Err(format!("it could not be restored: {reason}"));
        }
        for file in &manifest.files {
            let path = self.path(number).join(&file.copy);
            let found = checksum(&path).map_err(|e| format!("{}: {e}", file.copy))?;
            if found != (file.bytes, file.xxh3.clone()) {
                return Err(format!("{} has changed", file.copy));
            }
        }
        Ok(manifest)
    }
}

/// Copies files into a checkpoint's folder, each with its checksum, each synced.
///
/// # Errors
/// A sentence; nothing of it counts then.
pub fn take(originals: &[PathBuf], into: &Path) -> Result<Vec<ManifestFile>, String> {
    let copy = |(i, original): (usize, &PathBuf)| {
        let name = original.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let copy = format!("{i:04}-{name}");
        take_one(original, &into.join(&copy))
            .map(|(bytes, xxh3)| ManifestFile { copy, original: original.to_string_lossy().into_owned(), bytes, xxh3 })
            .map_err(|e| format!("{}: {e}", original.display()))
    };
    originals.iter().enumerate().map(copy).collect()
}

/// The files that a command left in a checkpoint's folder, each with its checksum, each synced.
///
/// # Errors
/// A sentence.
pub fn survey(folder: &Path) -> Result<Vec<ManifestFile>, String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let entries = fs::read_dir(&next).map_err(|e| format!("{}: {e}", next.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    let (bytes, xxh3) = File::open(&path)
                        .and_then(|mut f| f.sync_all().and_then(|()| pass(&mut f, None)))
                        .map_err(|e| format!("{}: {e}", path.display()))?;
                    let copy = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
                    files.push(ManifestFile { copy, original: String::new(), bytes, xxh3 });
                }
                _ => {}
            }
        }
    }
    files.sort_by(|a, b| a.copy.cmp(&b.copy));
    Ok(files)
}

fn take_one(original: &Path, copy: &Path) -> io::Result<(u64, String)> {
    for _ in 0..COPY_TRIES {
        let mut from = File::open(original)?;
        let before = from.metadata()?;
        let mut to = File::create(copy)?;
        let sum = pass(&mut from, Some(&mut to))?;
        to.sync_all()?;
        let after = fs::metadata(original)?;
        let same = |a: &fs::Metadata, b: &fs::Metadata| {
            (a.ino(), a.len(), a.mtime(), a.mtime_nsec()) == (b.ino(), b.len(), b.mtime(), b.mtime_nsec())
        };
        if same(&before, &after) && sum.0 == after.len() {
            return Ok(sum);
        }
    }
    Err(io::Error::other("the program keeps writing to it"))
}

/// Brings the files of a checkpoint back to where they were taken from; those that are there unchanged stay.
/// Files without an original are left to the command that knows them.
///
/// # Errors
/// A sentence naming the file.
pub fn bring_back(manifest: &Manifest, folder: &Path) -> Result<(), String> {
    for file in manifest.files.iter().filter(|f| !f.original.is_empty()) {
        let original = Path::new(&file.original);
        let here = checksum(original).ok();
        if here.as_ref() == Some(&(file.bytes, file.xxh3.clone())) {
            continue;
        }
        restore_one(&folder.join(&file.copy), original).map_err(|e| format!("{}: {e}", file.original))?;
    }
    Ok(())
}

fn restore_one(copy: &Path, original: &Path) -> io::Result<()> {
    let mut name = original.as_os_str().to_owned();
    name.push(".joulepoint");
    let beside = PathBuf::from(name);
    if let Some(parent) = original.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut from = File::open(copy)?;
    let mut to =
        fs::OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(&beside)?;
    pass(&mut from, Some(&mut to))?;
    to.sync_all()?;
    fs::rename(&beside, original)?;
    original.parent().map_or(Ok(()), sync_folder)
}

/// Length and XXH3-128 of a file.
fn checksum(path: &Path) -> io::Result<(u64, String)> {
    pass(&mut File::open(path)?, None)
}

/// One pass over a file: copies it if asked, and tells length and checksum.
///
/// Reading and hashing go on while another thread writes: one of them alone would halve the speed of the disk.
fn pass(from: &mut File, to: Option<&mut File>) -> io::Result<(u64, String)> {
    let Some(to) = to else { return digest(from, vec![0; BLOCK_BYTES], |block, _| Ok(block)) };
    thread::scope(|scope| {
        let (full, to_write) = mpsc::sync_channel::<(Vec<u8>, usize)>(BLOCKS);
        let (empty, written) = mpsc::channel::<Vec<u8>>();
        for _ in 0..BLOCKS {
            // The receiver lives in this function.
            let _ = empty.send(vec![0; BLOCK_BYTES]);
        }
        let writer = scope.spawn(move || {
            for (block, length) in to_write {
                to.write_all(&block[..length])?;
                if empty.send(block).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // A writer that failed has gone, and says why when it is joined.
        let gone = || io::Error::other("the writer is gone");
        let read = digest(from, vec![0; BLOCK_BYTES], |block, length| {
            full.send((block, length)).map_err(|_| gone())?;
            written.recv().map_err(|_| gone())
        });
        drop(full);
        let wrote: io::Result<()> = writer.join().unwrap_or_else(|_| Err(gone()));
        wrote.and(read)
    })
}

/// Length and XXH3-128 of a file; each block goes to `take`, which gives one back to fill.
fn digest(
    from: &mut File,
    mut block: Vec<u8>,
    mut take: impl FnMut(Vec<u8>, usize) -> io::Result<Vec<u8>>,
) -> io::Result<(u64, String)> {
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    loop {
        let n = from.read(&mut block)?;
        if n == 0 {
            return Ok((bytes, format!("{:032x}", hash.digest128())));
        }
        hash.update(&block[..n]);
        bytes += n as u64;
        block = take(block, n)?;
    }
}

/// Writes a file under a temporary name, syncs it, renames it and syncs its folder.
///
/// # Errors
/// What the file system says.
pub fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("partial");
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (tempfile::TempDir, Checkpoints, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        let original = dir.path().join("state.cpt");
        (dir, checkpoints, original)
    }

    fn checkpoint(checkpoints: &Checkpoints, original: &Path, content: &str) -> Manifest {
        fs::write(original, content).unwrap();
        let (number, folder) = checkpoints.room().unwrap();
        let files = take(&[original.to_path_buf()], &folder).unwrap();
        let manifest = Manifest {
            version: protocol::VERSION,
            number,
            begun_s: 1.0,
            ended_s: 2.0,
            joules: Some(3.0),
            bytes: files[0].bytes,
            step: String::new(),
            engine: "app".into(),
            files,
        };
        checkpoints.commit(&manifest).unwrap();
        manifest
    }

    #[test]
    fn the_last_n_are_kept_and_the_newest_is_found() {
        let (_dir, checkpoints, original) = run();
        for content in ["one", "two", "three"] {
            checkpoint(&checkpoints, &original, content);
        }
        assert!(!checkpoints.path(1).exists());
        let (newest, damaged) = checkpoints.newest();
        assert_eq!((newest.map(|m| m.number), damaged.len()), (Some(3), 0));
    }

    #[test]
    fn a_damaged_one_is_never_used() {
        let (_dir, checkpoints, original) = run();
        checkpoint(&checkpoints, &original, "good");
        let bad = checkpoint(&checkpoints, &original, "will rot");
        let copy = checkpoints.path(bad.number).join(&bad.files[0].copy);
        fs::write(&copy, "w1ll rot").unwrap();
        let (newest, damaged) = checkpoints.newest();
        assert_eq!(newest.map(|m| m.number), Some(1));
        assert!(damaged[0].contains("has changed"), "{damaged:?}");
        let next = checkpoint(&checkpoints, &original, "new");
        assert_eq!(next.number, 3);
    }

    #[test]
    fn a_half_written_one_is_not_complete_and_its_place_is_cleared() {
        let (_dir, checkpoints, original) = run();
        checkpoint(&checkpoints, &original, "good");
        let (number, folder) = checkpoints.room().unwrap();
        fs::write(folder.join("0000-state.cpt"), "half").unwrap();
        assert_eq!(checkpoints.newest().0.map(|m| m.number), Some(1));
        let next = checkpoint(&checkpoints, &original, "next");
        assert_eq!(next.number, number + 1);
        assert!(!folder.exists());
    }

    #[test]
    fn files_come_back_as_they_were() {
        let (dir, checkpoints, original) = run();
        let manifest = checkpoint(&checkpoints, &original, "state at the line");
        fs::write(&original, "later, unverified").unwrap();
        bring_back(&manifest, &checkpoints.path(manifest.number)).unwrap();
        assert_eq!(fs::read_to_string(&original).unwrap(), "state at the line");
        fs::remove_file(&original).unwrap();
        bring_back(&manifest, &checkpoints.path(manifest.number)).unwrap();
        assert_eq!(fs::read_to_string(&original).unwrap(), "state at the line");
        drop(dir);
    }
}
