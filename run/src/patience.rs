//! Repeats what failed because of the storage, for a bounded time: an error of the storage is no answer.

use crate::pulse;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// For how long an operation is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time after which the error is returned.
    pub limit: Duration,
    /// The first pause; it doubles.
    pub pause: Duration,
}

impl Patience {
    /// For what a run can do without for a while: 5 s.
    pub const SHORT: Patience = Patience { limit: Duration::from_secs(5), pause: Duration::from_millis(100) };
    /// For what decides where a run goes on: 60 s, as long as a network file system may show old attributes.
    pub const LONG: Patience = Patience { limit: Duration::from_secs(60), pause: Duration::from_millis(100) };
    /// No repetition.
    pub const NONE: Patience = Patience { limit: Duration::ZERO, pause: Duration::ZERO };

    /// Calls `act` until there is an answer, or the limit has passed.
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

/// Whether an error is an answer (such as "not found") and not a trouble of the storage.
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
