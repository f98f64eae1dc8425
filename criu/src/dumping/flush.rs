//! Writes the files of a dump from memory to disk while the program runs: compressed, and without what an earlier
//! checkpoint has, if that is wanted.

use super::staging::Stage;
use crate::task::Task;
use increments::{Increments, LEVEL, Stop};
use openfiles::by_size::NotBack;
use openfiles::patiently::{is_of_passing_kind, patiently, patiently_while};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Extension of a compressed file.
const ZSTD: &str = "zst";

/// Where files are unpacked that memory is too small for, below the run's folder.
const UNPACKED: &str = "unpacked";

const BLOCK_BYTES: usize = 1 << 20;

/// Moves all files below `from` to `to`, which may be the same folder; then nothing of an earlier dump is shared.
///
/// # Errors
/// A sentence naming the file.
pub fn flush(
    from: &Path,
    to: &Path,
    compress: bool,
    increments: Option<&Increments>,
    stop: &Stop,
) -> Result<(), String> {
    if from == to && !compress {
        return Ok(());
    }
    if let Some(increments) = increments.filter(|_| from != to) {
        increments::store(from, to, increments, compress, stop).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    each(from, to, &|file, target| {
        if compress {
            let mut encoder = zstd::Encoder::new(stop.create(&add_ending(target))?, LEVEL)?;
            carry(&mut File::open(file)?, &mut encoder)?;
            encoder.finish()?;
        } else {
            carry(&mut File::open(file)?, &mut stop.create(target)?)?;
        }
        // Memory is given back as soon as it can be.
        fs::remove_file(file)
    })
    .map_err(|e| e.to_string())
}

/// The files of a dump as CRIU wrote them. What had to be made for that goes when this is dropped.
#[derive(Debug)]
pub struct Unpacked {
    path: PathBuf,
    /// Whether [`Unpacked::path`] is a folder that was made for it.
    is_made: bool,
    _stage: Option<Stage>,
}

impl Unpacked {
    /// Unpacks what is compressed or in blocks: into memory, where there is more than twice as much as the tasks on this node
    /// take, or else below the run's folder.
    ///
    /// # Errors
    /// What the file system says, or what is wrong with the checkpoint.
    pub fn of(folder: &Path, task: &Task) -> Result<Unpacked, Failed> {
        let named = Failed::at(folder);
        let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
        let has_endings = patiently(list).map_err(Failed::at(folder))?.iter().any(|path| has_ending(path));
        let bytes = increments::rebuilt_bytes(folder).map_err(named)?;
        if !has_endings && bytes == 0 {
            return Ok(Unpacked { path: folder.to_path_buf(), is_made: false, _stage: None });
        }
        let stage = (bytes > 0).then(|| Stage::for_restore(task, bytes)).flatten();
        if let Some(stage) = stage
            && unpack(folder, stage.path()).is_ok()
        {
            return Ok(Unpacked { path: stage.path().to_path_buf(), is_made: false, _stage: Some(stage) });
        }
        let path = task.own_place(UNPACKED);
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).map_err(Failed::at(&path))?;
        let made = Unpacked { path, is_made: true, _stage: None };
        unpack(folder, &made.path).map(|()| made)
    }

    /// Their folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if self.is_made {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Why a file of a dump could not be unpacked or put back.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// What its storage says, or what is wrong with its content.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
    /// A file of the program is not what the checkpoint needs.
    #[error(transparent)]
    Lost(NotBack),
}

impl From<NotBack> for Failed {
    fn from(e: NotBack) -> Failed {
        match e {
            NotBack::Storage { path, source } => Failed::File(path, source),
            lost => Failed::Lost(lost),
        }
    }
}

impl Failed {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Failed {
        let path = path.to_path_buf();
        |error| Failed::File(path, error)
    }

    /// Whether the checkpoint is to blame, rather than a storage that is full or fails. Who packs and copies wraps what the storage
    /// says, and leaves its kind; what is wrong with a content has a kind of its own.
    pub fn is_of_checkpoint(&self) -> bool {
        use ErrorKind::{InvalidData, NotFound, Other, UnexpectedEof};
        match self {
            Failed::File(_, error) => matches!(error.kind(), InvalidData | NotFound | Other | UnexpectedEof),
            Failed::Lost(_) => true,
        }
    }

    fn may_pass(&self) -> bool {
        matches!(self, Failed::File(_, error) if is_of_passing_kind(error))
    }
}

/// Calls `act` again and again as [`patiently`] does, also where what the storage says is wrapped.
pub(crate) fn waiting<T, E: Into<Failed>>(mut act: impl FnMut() -> Result<T, E>) -> Result<T, Failed> {
    patiently_while(Failed::may_pass, || act().map_err(Into::into))
}

fn unpack(folder: &Path, to: &Path) -> Result<(), Failed> {
    each(folder, to, &|file, target| {
        let mut from = File::open(file)?;
        match has_ending(file) {
            true => carry(&mut zstd::Decoder::new(from)?, &mut Stop::default().create(&target.with_extension(""))?),
            false => carry(&mut from, &mut Stop::default().create(target)?),
        }
    })?;
    increments::rebuild(folder, to).map_err(Failed::at(&folder.join(increments::FOLDER)))
}

/// The content of a file of a dump, uncompressed.
///
/// # Errors
/// What the file system says.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    match File::open(add_ending(file)) {
        Err(e) if e.kind() == ErrorKind::NotFound => fs::read(file),
        packed => zstd::decode_all(packed?),
    }
}

/// Calls `act` for every file below `from` with its path below `to`, but for blocks.
fn each(from: &Path, to: &Path, act: &dyn Fn(&Path, &Path) -> io::Result<()>) -> Result<(), Failed> {
    let entries = fs::read_dir(from).and_then(|all| all.collect::<io::Result<Vec<_>>>()).map_err(Failed::at(from))?;
    for entry in entries {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == increments::FOLDER {
            continue;
        }
        if entry.file_type().map_err(Failed::at(&path))?.is_dir() {
            DirBuilder::new().mode(0o700).recursive(true).create(&target).map_err(Failed::at(&target))?;
            each(&path, &target, act)?;
        } else {
            act(&path, &target).map_err(Failed::at(&target))?;
        }
    }
    Ok(())
}

fn carry(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match from.read(&mut block)? {
            0 => return Ok(()),
            length => to.write_all(&block[..length])?,
        }
    }
}

fn add_ending(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ZSTD);
    PathBuf::from(name)
}

fn has_ending(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == ZSTD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a dump leaves it, and an empty folder.
    fn dump() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("images")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("sandbox.json"), "{}").unwrap();
        fs::write(from.join("images/pages-1.img"), vec![7; 3 << 20]).unwrap();
        (dir, from, to)
    }

    fn task(run: &Path) -> Task {
        Task { run: run.to_path_buf(), ..Task::default() }
    }

    fn read(folder: &Path) -> (Vec<u8>, Vec<u8>) {
        (fs::read(folder.join("sandbox.json")).unwrap(), fs::read(folder.join("images/pages-1.img")).unwrap())
    }

    #[test]
    fn files_come_back_as_they_were_whichever_way_they_were_flushed() {
        for (compress, in_place) in [(false, false), (true, false), (true, true), (false, true)] {
            let (dir, from, to) = dump();
            let before = read(&from);
            let to = if in_place { &from } else { &to };
            flush(&from, to, compress, None, &Stop::default()).unwrap();
            assert_eq!(to.join("images/pages-1.img.zst").exists(), compress);
            assert_eq!(from.join("images/pages-1.img").exists(), in_place && !compress);
            let found = Unpacked::of(to, &task(dir.path())).unwrap();
            let path = found.path().to_path_buf();
            assert_eq!(&path == to, !compress);
            assert_eq!(read(&path), before);
            assert_eq!(super::read(&to.join("sandbox.json")).unwrap(), before.0);
            drop(found);
            assert_eq!(path.exists(), !compress);
        }
    }

    #[test]
    fn a_damaged_file_is_refused_and_work_that_is_not_wanted_stops() {
        let (dir, from, to) = dump();
        let stop = Stop::default();
        stop.ask();
        assert!(flush(&from, &to, false, None, &stop).unwrap_err().contains("given up"));
        let (_other, from, to) = dump();
        flush(&from, &to, true, None, &Stop::default()).unwrap();
        fs::write(to.join("images/pages-1.img.zst"), "not zstd").unwrap();
        let failed = Unpacked::of(&to, &task(dir.path())).unwrap_err();
        assert!(failed.is_of_checkpoint() && failed.to_string().contains("pages-1.img"), "{failed}");
        let nowhere = Unpacked::of(&to, &task(Path::new("/proc/nowhere"))).unwrap_err();
        assert!(nowhere.to_string().contains("/proc/nowhere"), "{nowhere}");
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        let wrapped = || io::Error::new(full().kind(), "it cannot be unpacked: no room");
        for e in [full(), wrapped()] {
            assert!(!Failed::at(&to)(e).is_of_checkpoint(), "a good checkpoint is not set aside for want of room");
        }
        let mut tries = 0;
        let waited = waiting(|| {
            tries += 1;
            if tries > 2 { Ok(tries) } else { Err(Failed::at(&to)(wrapped())) }
        });
        assert_eq!(waited.unwrap(), 3);
    }
}
