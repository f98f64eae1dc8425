//! Keeps what a step writes in a file, and passes it on from there to where it goes.
//!
//! The real `srun` writes into a pipe and never into that file: it forgets what a storage does not take at once. A storage
//! that fails for a while holds the step up, as it does any program that writes to it; one that fails for longer is done
//! without, and all that the step writes is passed on nevertheless.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at what is to be passed on.
const LOOK: Duration = Duration::from_millis(50);

/// What is passed on at once, bytes.
const BLOCK_BYTES: usize = 1 << 16;

/// Time between two tries to read or to write, and how long is tried.
const AGAIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

/// The way of a step's output.
#[derive(Debug)]
pub struct Way {
    /// Where the step writes; none for one that has ended before.
    pub pipe: Option<PipeReader>,
    /// What keeps it, opened to append. What it has already comes first.
    pub kept: File,
    /// Where it goes.
    pub to: File,
}

/// A step's output on its way.
#[derive(Debug)]
pub struct Passing {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Passing {
    /// Begins, and calls `unread` if nobody reads it any more while more is written; none without a thread.
    pub fn begin(way: Way, unread: fn()) -> Option<Passing> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::Builder::new().spawn(move || way.pass_on(&over, unread)).ok()?;
        Some(Passing { is_over, thread })
    }

    /// Nothing more is written: waits until all has been passed on. Whether all of it is kept.
    pub fn finish(self) -> bool {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or(false)
    }
}

impl Way {
    /// Whether all that came is kept.
    fn pass_on(self, over: &AtomicBool, unread: fn()) -> bool {
        let Way { pipe, kept, to } = self;
        let (mut block, mut at, mut is_whole) = (vec![0; BLOCK_BYTES], 0, true);
        let mut to = Some(to);
        let mut pass = |what: &[u8], is_last: bool| {
            let Some(file) = &mut to else { return };
            match patiently(what, |rest| write(file, rest)) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                    to = None;
                    if !is_last {
                        unread();
                    }
                }
                Err(e) => {
                    to = None;
                    protocol::say!("joulepoint: the output of a step is not passed on any more: {e}");
                }
            }
        };
        loop {
            let mut length = 0;
            let read = patiently(&[0], |_| {
                length = kept.read_at(&mut block, at)?;
                Ok(1)
            });
            match read {
                Ok(()) if length == 0 => break,
                Ok(()) => pass(&block[..length], over.load(Ordering::SeqCst)),
                Err(e) => {
                    protocol::say!("joulepoint: what a step wrote before cannot be read: {e}");
                    is_whole = false;
                    break;
                }
            }
            at += length as u64;
        }
        let Some(mut pipe) = pipe else { return is_whole };
        let mut kept = Some(kept);
        loop {
            // What is written before it is over is seen after.
            let is_last = over.load(Ordering::SeqCst);
            let look = PollTimeout::try_from(if is_last { Duration::ZERO } else { LOOK }).unwrap_or(PollTimeout::ZERO);
            let length = match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], look) {
                Ok(0) if is_last => return is_whole && kept.is_some(),
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                _ => match pipe.read(&mut block) {
                    Ok(0) => return is_whole && kept.is_some(),
                    Ok(length) => length,
                    Err(e) => {
                        protocol::say!("joulepoint: the output of a step cannot be read: {e}");
                        return false;
                    }
                },
            };
            let what = &block[..length];
            if let Some(file) = &mut kept
                && let Err(e) = patiently(what, |rest| file.write(rest))
            {
                protocol::say!(
                    "joulepoint: the output of a step cannot be kept, so that it has no more checkpoints: {e}"
                );
                kept = None;
            }
            pass(what, is_last);
        }
    }
}

/// Does something with all of a block, again and again while it fails, and not for ever.
fn patiently(mut what: &[u8], mut act: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    let limit = Instant::now() + PATIENCE;
    while !what.is_empty() {
        match act(what) {
            Ok(length) => what = &what[length..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::BrokenPipe || Instant::now() > limit => return Err(e),
            Err(_) => thread::sleep(AGAIN),
        }
    }
    Ok(())
}

/// Writes some of it, also to who takes it later (a pipe that does not block).
fn write(to: &mut File, what: &[u8]) -> io::Result<usize> {
    loop {
        match to.write(what) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            written => return written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::fs;
    use std::io::Read;

    fn file_of(pipe: io::PipeWriter) -> File {
        File::from(std::os::fd::OwnedFd::from(pipe))
    }

    #[test]
    fn who_reads_slowly_from_a_pipe_that_does_not_block_gets_all_of_it() {
        let spool = tempfile::NamedTempFile::new().unwrap();
        let all: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        fs::write(&spool, &all).unwrap();
        let (mut read, write) = io::pipe().unwrap();
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let way = Way { pipe: None, kept: spool.reopen().unwrap(), to: file_of(write) };
        let passing = Passing::begin(way, || ()).unwrap();
        thread::sleep(2 * LOOK);
        let finish = thread::spawn(|| passing.finish());
        let mut got = Vec::new();
        read.read_to_end(&mut got).unwrap();
        finish.join().unwrap();
        assert!(got == all, "{} bytes", got.len());
    }

    #[test]
    fn it_is_told_when_nobody_reads_any_more_while_the_step_runs() {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let kept = tempfile::tempfile().unwrap();
        let (read, write) = io::pipe().unwrap();
        drop(read);
        let (pipe, mut step) = io::pipe().unwrap();
        let way = Way { pipe: Some(pipe), kept, to: file_of(write) };
        let passing = Passing::begin(way, || TOLD.store(true, Ordering::SeqCst)).unwrap();
        assert!(!TOLD.load(Ordering::SeqCst), "nothing was written");
        step.write_all(b"unread").unwrap();
        drop(step);
        passing.thread.join().unwrap();
        assert!(TOLD.load(Ordering::SeqCst));
    }

    #[test]
    fn what_a_step_writes_is_kept_and_passed_on_behind_what_it_wrote_before() {
        let spool = tempfile::NamedTempFile::new().unwrap();
        fs::write(&spool, "before ").unwrap();
        let kept = fs::OpenOptions::new().read(true).append(true).open(&spool).unwrap();
        let ((mut read, write), (pipe, mut step)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let passing = Passing::begin(Way { pipe: Some(pipe), kept, to: file_of(write) }, || ()).unwrap();
        step.write_all(b"early ").unwrap();
        let mut early = [0; 13];
        read.read_exact(&mut early).unwrap();
        step.write_all(b"late").unwrap();
        // Its writing end is still open, as that of a command is that can be spawned again.
        passing.finish();
        let mut late = String::new();
        read.read_to_string(&mut late).unwrap();
        assert_eq!((&early, late.as_str()), (b"before early ", "late"));
        assert_eq!(fs::read_to_string(&spool).unwrap(), "before early late");
    }

    #[test]
    fn what_fails_for_a_while_is_tried_again_without_writing_anything_twice() {
        let (mut taken, mut fails) = (Vec::new(), 3);
        let act = |rest: &[u8]| {
            if fails > 0 && !taken.is_empty() {
                fails -= 1;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            taken.push(rest[0]);
            Ok(1)
        };
        patiently(b"abc", act).unwrap();
        assert_eq!((taken.as_slice(), fails), (b"abc".as_slice(), 0));
        let broken = patiently(b"a", |_| Err(ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    }
}
