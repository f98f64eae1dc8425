//! Passes on what is spooled in a file to where it goes, while it is still written.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two looks at what is to be passed on.
const LOOK: Duration = Duration::from_millis(50);

/// What is passed on at once, bytes.
const BLOCK_BYTES: usize = 1 << 16;

/// What is spooled on its way to where it goes.
#[derive(Debug)]
pub struct Passing {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Passing {
    /// Begins, and calls `unread` if nobody reads it any more while more is written; none without a thread.
    pub fn begin(from: File, mut to: File, unread: fn()) -> Option<Passing> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let stop = |e: io::Error| protocol::say!("joulepoint: the output of a step is not passed on any more: {e}");
        let pass = move || {
            let (mut at, mut block) = (0, vec![0; BLOCK_BYTES]);
            loop {
                // What is written before it is over is seen after.
                let is_last = over.load(Ordering::SeqCst);
                match from.read_at(&mut block, at) {
                    Ok(0) if is_last => return,
                    Ok(0) => thread::sleep(LOOK),
                    Ok(length) => match write(&mut to, &block[..length]) {
                        Ok(()) => at += length as u64,
                        Err(e) if e.kind() == ErrorKind::BrokenPipe && is_last => return,
                        Err(e) if e.kind() == ErrorKind::BrokenPipe => return unread(),
                        Err(e) => return stop(e),
                    },
                    Err(e) => return stop(e),
                }
            }
        };
        let thread = thread::Builder::new().spawn(pass).ok()?;
        Some(Passing { is_over, thread })
    }

    /// Nothing more is written: waits until all has been passed on.
    pub fn finish(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.join();
    }
}

/// Writes all, also to who takes it later (a pipe that does not block).
fn write(to: &mut File, mut what: &[u8]) -> io::Result<()> {
    while !what.is_empty() {
        match to.write(what) {
            Ok(length) => what = &what[length..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
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
        let passing = Passing::begin(spool.reopen().unwrap(), file_of(write), || ()).unwrap();
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
        let spool = tempfile::NamedTempFile::new().unwrap();
        let (read, write) = io::pipe().unwrap();
        drop(read);
        let passing = Passing::begin(spool.reopen().unwrap(), file_of(write), || TOLD.store(true, Ordering::SeqCst));
        assert!(!TOLD.load(Ordering::SeqCst), "nothing was written");
        fs::write(&spool, "unread").unwrap();
        passing.unwrap().thread.join().unwrap();
        assert!(TOLD.load(Ordering::SeqCst));
    }

    #[test]
    fn what_is_spooled_is_passed_on_whole_also_what_comes_late() {
        let spool = tempfile::NamedTempFile::new().unwrap();
        let (mut read, write) = io::pipe().unwrap();
        let mut writer = spool.reopen().unwrap();
        writer.write_all(b"early ").unwrap();
        let passing = Passing::begin(spool.reopen().unwrap(), file_of(write), || ()).unwrap();
        let mut early = [0; 6];
        read.read_exact(&mut early).unwrap();
        writer.write_all(b"late").unwrap();
        passing.finish();
        let mut late = String::new();
        read.read_to_string(&mut late).unwrap();
        assert_eq!((&early, late.as_str()), (b"early ", "late"));
    }
}
