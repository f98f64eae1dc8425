//! Tries again what fails because of the storage: for a minute, before a program begins.

use nix::errno::Errno;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// For how long it is tried.
const LIMIT: Duration = Duration::from_secs(60);

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Errors of a shared file system that may pass.
const PASSING: [Errno; 6] = [Errno::EIO, Errno::ESTALE, Errno::EACCES, Errno::ENOSPC, Errno::EDQUOT, Errno::ETIMEDOUT];

/// Calls `act` until it succeeds, fails for another reason than the storage, or the time is over.
///
/// # Errors
/// The last error.
pub fn patiently<T>(act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    patiently_while(is_passing, act)
}

/// The same for what may fail otherwise, too: `may_pass` says which errors are waited out.
///
/// # Errors
/// The last error.
pub fn patiently_while<T, E>(may_pass: impl Fn(&E) -> bool, act: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for_so_long(LIMIT, PAUSE, may_pass, act)
}

/// Whether an error is of the kind of those that may pass: who wraps what the storage says leaves its kind.
pub fn is_of_passing_kind(error: &io::Error) -> bool {
    PASSING.iter().any(|code| io::Error::from(*code).kind() == error.kind())
}

/// Whether a path exists: what cannot be looked at is not absent.
///
/// # Errors
/// As [`patiently`].
pub fn is_there(path: &Path) -> io::Result<bool> {
    match patiently(|| fs::symlink_metadata(path)) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn for_so_long<T, E>(
    limit: Duration,
    pause: Duration,
    may_pass: impl Fn(&E) -> bool,
    mut act: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match act() {
            Err(e) if may_pass(&e) && begun.elapsed() < limit => std::thread::sleep(pause),
            done => return done,
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| PASSING.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_waited_for_and_nothing_else_is() {
        let tries = |error: Errno, fails: u32, limit_s: u64| {
            let mut tries = 0;
            let done = for_so_long(Duration::from_secs(limit_s), Duration::ZERO, is_passing, || {
                tries += 1;
                if tries > fails { Ok(()) } else { Err(io::Error::from(error)) }
            });
            (done.is_ok(), tries)
        };
        assert_eq!(tries(Errno::EDQUOT, 3, 60), (true, 4));
        assert_eq!(tries(Errno::ENOENT, 3, 60), (false, 1));
        assert_eq!(tries(Errno::EIO, 3, 0), (false, 1), "not for ever");
    }
}
