//! Notes what the library for MPI does not serve, for who has started the ranks: the program is started again without it then.
//!
//! A handler of a signal may be at work: nothing here asks for memory or takes a lock.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names the file in which it is noted; without it nobody would start the program again.
const VARIABLE: &CStr = c"JOULEPOINT_FALLBACK";

/// For so long a note is new, seconds: a program may ask again and again for what it does not get.
const NEW_S: libc::time_t = 10;

/// Notes what is in the way: if the program ends soon, it was for that.
pub fn note(reason: &str) {
    /// What was noted last, and when.
    static LAST: AtomicU64 = AtomicU64::new(0);
    // SAFETY: a NUL-terminated name; who changes the environment answers for that there is no other thread.
    let path = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return;
    }
    let mut hasher = DefaultHasher::new();
    // SAFETY: it is not asked to write the time anywhere.
    let now_s = unsafe { libc::time(std::ptr::null_mut()) };
    (reason, now_s / NEW_S).hash(&mut hasher);
    let this = hasher.finish();
    if LAST.swap(this, Ordering::Relaxed) != this {
        // SAFETY: a string of the environment.
        write(unsafe { CStr::from_ptr(path) }, reason);
    }
}

/// Writes a line at the beginning of a file. The program hears of the reason in any case. Nothing is taken out before: the first
/// rank that ends has the others killed, perhaps between two calls of the system here.
fn write(path: &CStr, reason: &str) {
    let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let line = [part(reason.as_bytes()), part(b"\n")];
    // SAFETY: a NUL-terminated path, and two parts that live as long as the call, which only reads them.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC, 0o666);
        if file >= 0 {
            libc::writev(file, line.as_ptr(), 2);
            libc::close(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn the_newest_reason_is_the_first_line() {
        let file = std::env::temp_dir().join(format!("joulepoint-note-{}", std::process::id()));
        let path = CString::new(file.to_string_lossy().into_owned()).expect("a path");
        for reason in ["it calls MPI_Comm_spawn, which is not served", "another"] {
            write(&path, reason);
            let noted = std::fs::read_to_string(&file).expect("noted");
            assert_eq!(noted.lines().next(), Some(reason));
        }
        std::fs::remove_file(&file).expect("removed");
    }
}
