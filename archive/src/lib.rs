//! Packs files under their own absolute names, with their holes, links and FIFOs, and brings them back where they were.

use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::AccessFlags;
use openfiles::by_size;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// So much of a file is copied at once, or left out if all of it is zero, bytes.
const BLOCK_BYTES: usize = 1 << 17;

/// An archive that is being written.
pub struct Archive<W: Write> {
    tar: tar::Builder<BufWriter<W>>,
    /// Files that have several names, by device and inode, and the name under which each was packed.
    packed: HashMap<(u64, u64), PathBuf>,
}

/// Writes an archive into a file.
///
/// # Errors
/// What the file system says.
pub fn pack<W: Write>(file: W, fill: impl FnOnce(&mut Archive<W>) -> io::Result<()>) -> io::Result<()> {
    let mut tar = tar::Builder::new(BufWriter::with_capacity(1 << 20, file));
    tar.follow_symlinks(false);
    let mut archive = Archive { tar, packed: HashMap::new() };
    fill(&mut archive)?;
    archive.tar.into_inner()?.flush()
}

impl<W: Write> Archive<W> {
    /// Adds one more name of a file that was packed under another; whether it was.
    fn is_packed(&mut self, metadata: &fs::Metadata, name: &Path) -> io::Result<bool> {
        if metadata.nlink() < 2 {
            return Ok(false);
        }
        let Some(first) = self.packed.get(&(metadata.dev(), metadata.ino())) else {
            self.packed.insert((metadata.dev(), metadata.ino()), name.to_path_buf());
            return Ok(false);
        };
        let mut header = tar::Header::new_gnu();
        header.set_metadata(metadata);
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        self.tar.append_link(&mut header, name, first).map(|()| true)
    }

    /// Adds a folder of the program's own and all below it, without sockets, which CRIU restores. A file that has several names
    /// there comes back as one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append_below(&mut self, folder: &Path) -> io::Result<()> {
        self.append(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                self.append_below(&path)?;
            } else if kind.is_file() && self.is_packed(&entry.metadata()?, path.strip_prefix("/").unwrap_or(&path))? {
                continue;
            } else if kind.is_file() || kind.is_symlink() || kind.is_fifo() {
                self.append(&path)?;
            }
        }
        Ok(())
    }

    /// Adds a file under its own absolute name, with this content.
    ///
    /// # Errors
    /// What the file system says of the archive.
    pub fn append_content(&mut self, path: &Path, of: &fs::Metadata, content: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_metadata(of);
        header.set_size(content.len() as u64);
        self.tar.append_data(&mut header, path.strip_prefix("/").unwrap_or(path), content)
    }

    /// Adds the files below a folder that were changed since a moment; other programs may work there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append_newer(&mut self, folder: &Path, since: Option<SystemTime>) -> io::Result<()> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
            let is_newer = || since.is_none_or(|since| found.modified().is_ok_and(|at| at >= since));
            if found.is_dir() {
                self.append_newer(&path, since)?;
            } else if (found.is_file() || found.is_symlink()) && is_newer() {
                self.append_padded(&path)?;
            }
        }
        Ok(())
    }

    /// Adds one file at its present length. Other programs may work on it: what they cut off meanwhile becomes zeros. A
    /// file that cannot be opened belongs to another job, or is being removed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append_padded(&mut self, path: &Path) -> io::Result<()> {
        let gone = |e: &io::Error| {
            matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
                || e.raw_os_error() == Some(libc::ELOOP)
        };
        let metadata = match fs::symlink_metadata(path) {
            Err(e) if gone(&e) => return Ok(()),
            found => found?,
        };
        if !metadata.is_file() {
            return self.append(path).or_else(|e| if gone(&e) { Ok(()) } else { Err(e) });
        }
        let mut file = match by_size::open(path) {
            Err(e) if gone(&e) => return Ok(()),
            opened => opened?,
        };
        let (metadata, name) = (file.metadata()?, path.strip_prefix("/").unwrap_or(path));
        if first_hole(&file)? < metadata.len() {
            self.tar.append_file(name, &mut file)?;
            return match file.metadata()?.len() == metadata.len() {
                true => Ok(()),
                false => Err(io::Error::other(format!("{} changed while it was saved", path.display()))),
            };
        }
        file.rewind()?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        let bytes = file.chain(io::repeat(0)).take(metadata.len());
        self.tar.append_data(&mut header, name, bytes)
    }

    /// Adds one file under its own absolute name.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append(&mut self, path: &Path) -> io::Result<()> {
        let name = path.strip_prefix("/").unwrap_or(path);
        let metadata = fs::symlink_metadata(path)?;
        if name.as_os_str().is_empty() {
            Ok(())
        } else if metadata.file_type().is_fifo() {
            let mut header = tar::Header::new_gnu();
            header.set_metadata(&metadata);
            header.set_size(0);
            self.tar.append_data(&mut header, name, io::empty())
        } else if metadata.is_file() {
            self.append_file(path, name)
        } else {
            self.tar.append_path_with_name(path, name)
        }
    }

    /// Adds a regular file at its present length: other programs may append to it meanwhile.
    fn append_file(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let mut file = by_size::open(path)?;
        let metadata = file.metadata()?;
        if first_hole(&file)? < metadata.len() {
            return self.tar.append_file(name, &mut file);
        }
        file.rewind()?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        let mut bytes = file.take(metadata.len());
        self.tar.append_data(&mut header, name, &mut bytes)?;
        match bytes.limit() {
            0 => Ok(()),
            less => Err(io::Error::other(format!("it became {less} bytes shorter while it was saved"))),
        }
    }
}

/// Where the first hole of a file begins, or its end, bytes.
fn first_hole(file: &File) -> io::Result<u64> {
    match nix::unistd::lseek(file, 0, nix::unistd::Whence::SeekHole) {
        // An empty file, or a file system that knows no holes.
        Err(nix::Error::ENXIO | nix::Error::EINVAL | nix::Error::EOPNOTSUPP) => Ok(u64::MAX),
        found => Ok(found?.unsigned_abs()),
    }
}

/// Brings the files of an archive back, but those that stay as they are.
///
/// # Errors
/// What the file system says.
pub fn unpack(path: &Path, stays: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(1 << 20, File::open(path)?));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let target = Path::new("/").join(entry.path()?);
        if stays(&target) || is_others_as_it_was(&target, entry.size(), entry.header().mtime()?) {
            continue;
        }
        if entry.header().entry_type().is_hard_link() {
            let first = entry.link_name()?.map(|name| Path::new("/").join(name));
            first.map_or(Ok(()), |first| link(&first, &target))?;
        } else if !(entry.header().entry_type().is_dir() && target.is_dir()) {
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            if entry.header().entry_type().is_fifo() {
                make_fifo(&target, entry.header().mode()?)?;
            } else if !rewrite(&mut entry, &target)? {
                entry.unpack(&target)?;
            }
        }
    }
    Ok(())
}

/// Has a name lead to a file that has another; where the file system cannot do that, to a copy.
fn link(first: &Path, name: &Path) -> io::Result<()> {
    let number = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    match (number(first)?, number(name)) {
        (first, Ok(name)) if first == name => return Ok(()),
        (_, Ok(_)) => fs::remove_file(name)?,
        _ => {}
    }
    if let Some(folder) = name.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::hard_link(first, name).or_else(|_| fs::copy(first, name).map(drop))
}

/// Makes a file whole or not at all, with a content, and with the rights of an archive's entry and a time of its last change.
///
/// # Errors
/// What the file system says.
pub fn make_file(path: &Path, content: &[u8], of: &tar::Header, modified: SystemTime) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".joulepoint-").tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(of.mode()? & 0o7777))?;
    file.as_file().set_modified(modified)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// Writes over an existing file in place, so that its other hard links, and tasks that restore it too, see the same
/// file. Returns whether it could.
fn rewrite(entry: &mut tar::Entry<impl Read>, target: &Path) -> io::Result<bool> {
    let kind = entry.header().entry_type();
    let was_file = kind.is_file() || kind.is_gnu_sparse();
    if !was_file || !fs::symlink_metadata(target).is_ok_and(|m| m.is_file()) {
        return Ok(false);
    }
    let Ok(mut file) = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(target) else {
        return Ok(false);
    };
    copy_with_holes(entry, &mut file)?;
    // The time of another user's file cannot be set; its content can.
    let _ = file.set_modified(UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?));
    Ok(true)
}

/// Copies into a file, whose content is then what is read and no more. Where that is zero there are holes: a file may be
/// longer than its storage has room.
///
/// # Errors
/// What the file system says.
pub fn copy_with_holes(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let (mut block, zeros) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let before_bytes = to.metadata()?.len();
    // Zeros from here to `at` are still to be made holes.
    let (mut hole, mut at) = (0, 0);
    loop {
        let mut bytes = 0;
        while bytes < BLOCK_BYTES {
            match from.read(&mut block[bytes..]) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let is_zero = bytes > 0 && block[..bytes] == zeros[..bytes];
        if !is_zero {
            clear(to, hole, at.min(before_bytes))?;
        }
        if bytes == 0 {
            return to.set_len(at);
        }
        if !is_zero {
            to.write_all_at(&block[..bytes], at)?;
        }
        at += bytes as u64;
        if !is_zero {
            hole = at;
        }
    }
}

/// Has a part of a file be zeros: a hole where the storage can make one.
fn clear(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from >= to || punch(file, from, to - from) {
        return Ok(());
    }
    let zeros = vec![0; BLOCK_BYTES];
    (from..to).step_by(BLOCK_BYTES).try_for_each(|at| {
        let bytes = (to - at).min(BLOCK_BYTES as u64) as usize;
        file.write_all_at(&zeros[..bytes], at)
    })
}

/// A file's content, of which holes are not looked up in its storage.
pub struct Sparse<'a> {
    file: &'a File,
    at: u64,
    /// The data that comes next.
    data: Range<u64>,
    bytes: u64,
}

impl<'a> Sparse<'a> {
    /// From the beginning.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(file: &'a File) -> io::Result<Sparse<'a>> {
        Ok(Sparse { file, at: 0, data: 0..0, bytes: file.metadata()?.len() })
    }

    fn look(&mut self) {
        let seek = |whence, from: u64| {
            let from = i64::try_from(from).ok()?;
            // SAFETY: a plain system call on an open descriptor.
            let found = unsafe { libc::lseek64(self.file.as_raw_fd(), from, whence) };
            u64::try_from(found).ok()
        };
        // A storage that knows no holes says so, or tells one at the end.
        let begin = match seek(libc::SEEK_DATA, self.at) {
            Some(begin) => begin,
            None if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
                // It may have been cut meanwhile.
                self.bytes = self.file.metadata().map_or(self.at, |found| found.len());
                self.bytes
            }
            None => self.at,
        };
        let end = seek(libc::SEEK_HOLE, begin).filter(|end| *end > begin).unwrap_or(self.bytes);
        self.data = begin.min(self.bytes)..end.min(self.bytes);
    }
}

impl Read for Sparse<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.data.end && self.at < self.bytes {
            self.look();
        }
        let (end, is_hole) = if self.at < self.data.start { (self.data.start, true) } else { (self.data.end, false) };
        let room = end.saturating_sub(self.at).min(into.len() as u64) as usize;
        let read = match is_hole {
            true => {
                into[..room].fill(0);
                room
            }
            false => self.file.read_at(&mut into[..room], self.at)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}

/// Takes the storage of a part of a file away; whether it could.
fn punch(file: &File, at: u64, bytes: u64) -> bool {
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let parts = i64::try_from(at).ok().zip(i64::try_from(bytes).ok());
    parts.is_some_and(|(at, bytes)| fallocate(file, how, at, bytes).is_ok())
}

/// Whether another user's file is unchanged since the dump, so that it need not be restored (nor could be). In a
/// sandbox all other users have one id, which may be ours outside.
pub fn is_others_as_it_was(path: &Path, bytes: u64, modified_s: u64) -> bool {
    let is_others = |m: &fs::Metadata| {
        m.uid() != nix::unistd::geteuid().as_raw() || nix::unistd::access(path, AccessFlags::W_OK).is_err()
    };
    let as_it_was =
        |m: &fs::Metadata| m.is_file() && bytes == m.len() && u64::try_from(m.mtime()).ok() == Some(modified_s);
    fs::symlink_metadata(path).is_ok_and(|m| as_it_was(&m) && is_others(&m))
}

/// Makes a FIFO, if it is not there.
///
/// # Errors
/// What the file system says.
pub fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    match nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(mode)) {
        Err(nix::Error::EEXIST) if fs::symlink_metadata(path)?.file_type().is_fifo() => Ok(()),
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_files_come_back_where_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("data/below"), dir.path().join("x.tar"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "before").unwrap();
        std::os::unix::fs::symlink("a", folder.join("l")).unwrap();
        make_fifo(&folder.join("f"), 0o600).unwrap();
        fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
        pack(File::create(&tar).unwrap(), |t| t.append_below(&dir.path().join("data"))).unwrap();
        fs::remove_dir_all(dir.path().join("data")).unwrap();
        unpack(&tar, &|_| false).unwrap();
        let number = fs::metadata(folder.join("a")).unwrap().ino();
        fs::write(folder.join("a"), "after it, and longer").unwrap();
        unpack(&tar, &|_| false).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "before");
        assert_eq!(fs::metadata(folder.join("a")).unwrap().ino(), number, "other names of it lead to it");
        let own = folder.join("a");
        let modified_s = fs::metadata(&own).unwrap().mtime().unsigned_abs();
        assert!(!is_others_as_it_was(&own, 6, modified_s), "what is ours is put back");
        if std::os::unix::fs::chown(&own, Some(65534), None).is_ok() {
            assert!(is_others_as_it_was(&own, 6, modified_s) && !is_others_as_it_was(&own, 7, modified_s));
        }
        assert_eq!(fs::read_to_string(folder.join("l")).unwrap(), "before");
        assert!(fs::metadata(folder.join("f")).unwrap().file_type().is_fifo());
        assert_eq!(fs::metadata(folder.join("b")).unwrap().ino(), fs::metadata(&own).unwrap().ino(), "one file");
    }

    #[test]
    fn a_file_that_grows_meanwhile_is_packed_as_long_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (log, after, tar) = (dir.path().join("log"), dir.path().join("after"), dir.path().join("x.tar"));
        fs::write(&log, vec![b'1'; 1 << 20]).unwrap();
        fs::write(&after, "after it").unwrap();
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|all| {
            all.spawn(|| {
                let mut file = OpenOptions::new().append(true).open(&log).unwrap();
                while !ends.load(std::sync::atomic::Ordering::SeqCst) {
                    file.write_all(&[b'2'; 4096]).unwrap();
                }
            });
            while fs::metadata(&log).unwrap().len() == 1 << 20 {
                std::thread::yield_now();
            }
            let packed = pack(File::create(&tar).unwrap(), |t| [&log, &after].iter().try_for_each(|p| t.append(p)));
            ends.store(true, std::sync::atomic::Ordering::SeqCst);
            packed.unwrap();
        });
        let grown_bytes = fs::metadata(&log).unwrap().len();
        fs::remove_file(&after).unwrap();
        unpack(&tar, &|_| false).unwrap();
        assert!(fs::metadata(&log).unwrap().len() <= grown_bytes);
        assert_eq!(fs::read_to_string(&after).unwrap(), "after it", "the archive is whole");
    }

    #[test]
    fn a_sparse_file_is_read_and_copied_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.path().join(name)).unwrap()
        };
        let from = file("from");
        from.set_len(3 << 20).unwrap();
        from.write_all_at(b"near", 100).unwrap();
        from.write_all_at(&[b'x'; 100_000], 1 << 20).unwrap();
        let (mut whole, mut read) = (Vec::new(), Vec::new());
        File::open(dir.path().join("from")).unwrap().read_to_end(&mut whole).unwrap();
        Sparse::new(&from).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == whole);
        let mut to = file("to");
        to.write_all(&vec![b'o'; 4 << 20]).unwrap();
        copy_with_holes(&mut Sparse::new(&from).unwrap(), &mut to).unwrap();
        assert!(fs::read(dir.path().join("to")).unwrap() == whole);
        // Of a file of a terabyte only the end is read.
        let huge = file("huge");
        if huge.set_len(1 << 40).is_ok() {
            huge.write_all_at(b"end", (1 << 40) - 3).unwrap();
            let mut of_huge = Sparse::new(&huge).unwrap();
            of_huge.at = (1 << 40) - 5;
            let mut end = Vec::new();
            of_huge.read_to_end(&mut end).unwrap();
            assert_eq!(end, b"\0\0end");
        }
    }

    #[test]
    fn a_file_with_holes_is_written_over_and_not_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, tar) = (dir.path().join("holes"), dir.path().join("x.tar"));
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        pack(File::create(&tar).unwrap(), |t| t.append(&path)).unwrap();
        assert!(fs::metadata(&tar).unwrap().len() < 1 << 20, "holes are not packed");
        let number = fs::metadata(&path).unwrap().ino();
        fs::write(&path, "new").unwrap();
        unpack(&tar, &|_| false).unwrap();
        let back = fs::metadata(&path).unwrap();
        assert_eq!((back.ino(), back.len()), (number, 64 << 20));
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(back.blocks() < 64, "a hole is none in storage: {} blocks", back.blocks());
    }

    #[test]
    fn what_was_in_a_file_goes_where_the_copy_has_nothing_and_the_rest_is_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holes");
        let block = BLOCK_BYTES;
        let wanted = [vec![0; block], vec![7; block], vec![0; 2 * block], vec![8; 10], vec![0; 5]].concat();
        for before in [0, block / 2, 2 * block, 9 * block] {
            fs::write(&path, vec![1; before]).unwrap();
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            copy_with_holes(&mut wanted.as_slice(), &mut file).unwrap();
            assert!(fs::read(&path).unwrap() == wanted, "{before}");
            assert!(file.metadata().unwrap().blocks() * 512 <= 3 * block as u64, "{before}");
        }
        // What is not there takes no room.
        let mut file = File::create(&path).unwrap();
        file.set_len(4 << 30).unwrap();
        copy_with_holes(&mut File::open(&path).unwrap(), &mut file).unwrap();
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().blocks()), (4 << 30, 0));
    }
}
