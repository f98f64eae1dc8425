//! Packs files under their own absolute names, with their holes, links and FIFOs, and brings them back where they were.

mod back;
mod backup;
mod holes;
mod way;

pub use back::{look, make_fifo, make_file, unpack};
pub use backup::{Kept, keep_changed};
pub use holes::{Sparse, copy_with_holes};
pub use way::{Commons, in_the_way, is_closed};

use openfiles::by_size;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

    /// Adds what was put or changed below a folder since a moment, whatever time of its last change a file has brought along;
    /// of folders those that were made. Other programs may work there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append_newer(&mut self, folder: &Path, since: Option<SystemTime>) -> io::Result<()> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
            let kind = found.file_type();
            let made = found.created().ok().filter(|_| kind.is_dir()).unwrap_or_else(|| changed(&found));
            let is_packed = kind.is_dir() || kind.is_file() || kind.is_symlink() || kind.is_fifo();
            if is_packed && since.is_none_or(|since| made >= since) {
                self.append_padded(&path)?;
            }
            if kind.is_dir() {
                self.append_newer(&path, since)?;
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

/// When a file was changed last, or its name or rights were: no program can set that.
fn changed(of: &fs::Metadata) -> SystemTime {
    let nanoseconds = u32::try_from(of.ctime_nsec()).unwrap_or(0);
    UNIX_EPOCH + Duration::new(of.ctime().unsigned_abs(), nanoseconds)
}

/// Where the first hole of a file begins, or its end, bytes.
fn first_hole(file: &File) -> io::Result<u64> {
    match nix::unistd::lseek(file, 0, nix::unistd::Whence::SeekHole) {
        // An empty file, or a file system that knows no holes.
        Err(nix::Error::ENXIO | nix::Error::EINVAL | nix::Error::EOPNOTSUPP) => Ok(u64::MAX),
        found => Ok(found?.unsigned_abs()),
    }
}

/// The first entry of an archive, which is its folder where it has one with all below; empty if it has none.
///
/// # Errors
/// What the file system says.
pub fn first(path: &Path) -> io::Result<PathBuf> {
    let mut archive = tar::Archive::new(io::BufReader::new(File::open(path)?));
    let mut entries = archive.entries()?;
    let Some(entry) = entries.next() else { return Ok(PathBuf::new()) };
    let entry = entry?;
    let first = entry.path()?.into_owned();
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

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
        unpack(&tar, &Commons::default(), &|_| false).unwrap();
        let number = fs::metadata(folder.join("a")).unwrap().ino();
        fs::write(folder.join("a"), "after it, and longer").unwrap();
        unpack(&tar, &Commons::default(), &|_| false).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "before");
        assert_eq!(fs::metadata(folder.join("a")).unwrap().ino(), number, "other names of it lead to it");
        let own = folder.join("a");
        assert_eq!(fs::read_to_string(folder.join("l")).unwrap(), "before");
        assert!(fs::metadata(folder.join("f")).unwrap().file_type().is_fifo());
        assert_eq!(fs::metadata(folder.join("b")).unwrap().ino(), fs::metadata(&own).unwrap().ino(), "one file");
    }

    #[test]
    fn what_was_put_into_a_folder_since_is_packed_although_it_is_older() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("tmp"), dir.path().join("x.tar"));
        fs::create_dir_all(folder.join("old")).unwrap();
        fs::write(folder.join("before"), "another's").unwrap();
        std::thread::sleep(Duration::from_millis(60));
        let since = SystemTime::now() - Duration::from_millis(20);
        fs::write(folder.join("old/index"), "unpacked").unwrap();
        let index = File::options().write(true).open(folder.join("old/index")).unwrap();
        index.set_modified(UNIX_EPOCH + Duration::from_secs(9)).unwrap();
        fs::create_dir(folder.join("empty")).unwrap();
        make_fifo(&folder.join("fifo"), 0o600).unwrap();
        pack(File::create(&tar).unwrap(), |t| t.append_newer(&folder, Some(since))).unwrap();
        let names = || {
            let mut archive = tar::Archive::new(File::open(&tar).unwrap());
            let paths = archive.entries().unwrap().map(|entry| Path::new("/").join(entry.unwrap().path().unwrap()));
            let mut names: Vec<PathBuf> = paths.map(|p| p.strip_prefix(&folder).unwrap().to_path_buf()).collect();
            names.sort();
            names
        };
        let expected = ["empty", "fifo", "old/index"].map(PathBuf::from);
        assert_eq!(names(), expected);
        // What comes back has its old time, and is in the next archive as well.
        let later = SystemTime::now();
        std::thread::sleep(Duration::from_millis(60));
        fs::remove_dir_all(&folder).unwrap();
        unpack(&tar, &Commons::default(), &|_| false).unwrap();
        assert_eq!(fs::metadata(folder.join("old/index")).unwrap().mtime(), 9);
        pack(File::create(&tar).unwrap(), |t| t.append_newer(&folder, Some(later))).unwrap();
        assert!(names().ends_with(&[PathBuf::from("old/index")]), "{:?}", names());
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
        unpack(&tar, &Commons::default(), &|_| false).unwrap();
        assert!(fs::metadata(&log).unwrap().len() <= grown_bytes);
        assert_eq!(fs::read_to_string(&after).unwrap(), "after it", "the archive is whole");
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
        unpack(&tar, &Commons::default(), &|_| false).unwrap();
        let back = fs::metadata(&path).unwrap();
        assert_eq!((back.ino(), back.len()), (number, 64 << 20));
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(back.blocks() < 64, "a hole is none in storage: {} blocks", back.blocks());
    }
}
