//! Copies files with their holes: what is zero takes no room.

use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// So much of a file is copied at once, or left out if all of it is zero, bytes.
const BLOCK_BYTES: usize = 1 << 17;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

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
