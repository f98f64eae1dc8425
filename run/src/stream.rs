//! Streams the content of a file once: its length, its XXH3-128, and a copy of it, with its holes left out.

use crate::pulse;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use xxhash_rust::xxh3::Xxh3;

/// Size of one read and write, bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Blocks on their way from the reader to the writer.
const BLOCKS: usize = 4;

/// Portion that is handed to the disk while more is read, bytes.
const WRITE_OUT_BYTES: u64 = 8 << 20;

/// The content of a hole.
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Length and XXH3-128 of a file.
///
/// # Errors
/// What the file system says.
pub fn digest(from: &mut File) -> io::Result<(u64, String)> {
    read(from, vec![0; BLOCK_BYTES], |block, _, _| Ok(block))
}

/// Copies a file; length and XXH3-128.
///
/// Reading and hashing go on while another thread writes: one of them alone would halve the speed of the disk.
///
/// # Errors
/// What the file system says.
pub fn transfer(from: &mut File, to: &mut File) -> io::Result<(u64, String)> {
    let to = &*to;
    let sum = thread::scope(|scope| {
        let (full, to_write) = mpsc::sync_channel::<(Vec<u8>, usize, u64)>(BLOCKS);
        let (empty, written) = mpsc::channel::<Vec<u8>>();
        for _ in 0..BLOCKS {
            // Cannot fail: the receiver lives in this function.
            let _ = empty.send(vec![0; BLOCK_BYTES]);
        }
        let writer = threads::start_in(scope, move || {
            let (mut from, mut until) = (0, 0);
            for (block, length, at) in to_write {
                to.write_all_at(&block[..length], at)?;
                if at != until || until - from >= WRITE_OUT_BYTES {
                    write_out(to, from, until);
                    from = at;
                }
                until = at + length as u64;
                if empty.send(block).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // A writer that failed has ended; joining it tells why.
        let gone = || io::Error::other("the writer is gone");
        let read = read(from, vec![0; BLOCK_BYTES], |block, length, at| {
            full.send((block, length, at)).map_err(|_| gone())?;
            written.recv().map_err(|_| gone())
        });
        drop(full);
        let wrote: io::Result<()> = writer.join().unwrap_or_else(|_| Err(gone()));
        wrote.and(read)
    })?;
    // A hole at the end.
    if to.metadata()?.len() < sum.0 {
        to.set_len(sum.0)?;
    }
    Ok(sum)
}

/// Makes the kernel begin to write this part; otherwise the final sync would find all of it still to do.
fn write_out(file: &File, from: u64, until: u64) {
    // SAFETY: the descriptor is open for as long as the call takes, which takes no pointer.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), from as i64, (until - from) as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// One pass over a file: data goes block by block to `take`, which returns an empty block.
fn read(
    from: &mut File,
    mut block: Vec<u8>,
    mut take: impl FnMut(Vec<u8>, usize, u64) -> io::Result<Vec<u8>>,
) -> io::Result<(u64, String)> {
    let mut hash = Xxh3::new();
    let length = from.metadata()?.len();
    let (mut at, mut data_until) = (0, 0);
    loop {
        pulse::beat();
        if at >= data_until {
            let (begin, end) = data_after(from, at, length);
            let mut left = begin.saturating_sub(at);
            while left > 0 {
                let some = left.min(BLOCK_BYTES as u64);
                hash.update(&ZEROS[..some as usize]);
                left -= some;
            }
            (at, data_until) = (at.max(begin), end);
        }
        let most = (data_until - at).min(BLOCK_BYTES as u64) as usize;
        let n = from.read_at(&mut block[..most], at)?;
        if n == 0 {
            return Ok((at, format!("{:032x}", hash.digest128())));
        }
        hash.update(&block[..n]);
        block = take(block, n, at)?;
        at += n as u64;
    }
}

/// Begin and end of the next data after an offset; on a file system without holes all is data.
fn data_after(file: &File, at: u64, length: u64) -> (u64, u64) {
    let all = (at, u64::MAX);
    if at >= length {
        return all;
    }
    let Ok(offset) = i64::try_from(at) else { return all };
    match lseek(file, offset, Whence::SeekData) {
        Ok(begin) => match lseek(file, begin, Whence::SeekHole) {
            Ok(end) => (begin as u64, end as u64),
            Err(_) => all,
        },
        // A hole until the end.
        Err(nix::errno::Errno::ENXIO) => (length, u64::MAX),
        Err(_) => all,
    }
}
