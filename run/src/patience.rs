//! Tries again what an error of storage has stopped, for a bounded time: such an error is no answer.

use crate::pulse;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// For how long it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time after which the error counts.
    pub limit: Duration,
    /// The first pause; it doubles.
    pub pause: Duration,
}

impl Patience {
    /// For what a run can do without for a while.
    pub const SHORT: Patience = Patience { limit: Duration::from_secs(5), pause: Duration::from_millis(100) };
    /// For what decides where a run goes on: as long as attributes of a network file system may be old.
    pub const LONG: Patience = Patience { limit: Duration::from_secs(60), pause: Duration::from_millis(100) };
    /// The first answer counts.
    pub const NONE: Patience = Patience { limit: Duration::ZERO, pause: Duration::ZERO };

    /// Does it until there is an answer, or the limit has passed.
    ///
    /// # Errors
    /// What the file system said last.
    pub fn with<T>(self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let (begun, mut pause) = (Instant::now(), self.pause);
        loop {
            pulse::beat();
            match act() {
                Err(e) if !is_answer(&e) && begun.elapsed() + pause < self.limit => {
                    tracing::debug!(%e, "tried again");
                    thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer,
            }
        }
    }
}

/// Whether an error says how things are, and not that nobody can tell now.
pub fn is_answer(error: &io::Error) -> bool {
    use ErrorKind::{
        AlreadyExists, CrossesDevices, DirectoryNotEmpty, InvalidData, InvalidFilename, InvalidInput, IsADirectory,
        NotADirectory, NotFound, ReadOnlyFilesystem, Unsupported,
    };
    matches!(
        error.kind(),
        AlreadyExists
            | CrossesDevices
            | DirectoryNotEmpty
            | InvalidData
            | InvalidFilename
            | InvalidInput
            | IsADirectory
            | NotADirectory
            | NotFound
            | ReadOnlyFilesystem
            | Unsupported
    ) || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EPERM | libc::ENODATA))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(errno: i32, times: u32) -> (u32, io::Result<u32>) {
        let mut tries = 0;
        let quick = Patience { limit: Duration::from_millis(200), pause: Duration::from_millis(1) };
        let result = quick.with(|| {
            tries += 1;
            if tries <= times { Err(io::Error::from_raw_os_error(errno)) } else { Ok(tries) }
        });
        (tries, result)
    }

    #[test]
    fn what_may_pass_is_tried_again_for_a_bounded_time_and_an_answer_is_taken_at_once() {
        for errno in [libc::EIO, libc::ESTALE, libc::EACCES, libc::ENOSPC, libc::EDQUOT, libc::ETIMEDOUT] {
            assert_eq!(failing(errno, 3).1.unwrap(), 4, "{errno}");
        }
        assert_eq!(failing(libc::EIO, u32::MAX).1.unwrap_err().raw_os_error(), Some(libc::EIO));
        for errno in [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY, libc::ELOOP, libc::EROFS] {
            assert_eq!(failing(errno, u32::MAX).0, 1, "{errno}");
        }
    }
}
