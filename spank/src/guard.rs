//! The one gate through which every call from C enters the plugin.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::{Handle, Level, log, raw};
use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What Slurm is told when an entry fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Success: whatever went wrong in the plugin, the job and the node go on.
    Continue,
    /// Failure (`-1`): the command refuses to submit.
    Refuse,
}

/// Runs one entry: logs its error, stops a panic, and answers C with 0 or -1 and nothing else.
///
/// `OnError::Refuse` refuses for an `Err`, which the entry means; a panic is a fault of ours and never refuses.
pub fn guard(entry: &str, on_error: OnError, body: impl FnOnce() -> Result<(), String>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(reason)) => {
            log_safely(&reason);
            match on_error {
                OnError::Continue => 0,
                OnError::Refuse => -1,
            }
        }
        Err(payload) => {
            let what = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            log_safely(&format!("internal fault in {entry}: {what}"));
            // A payload whose drop panics must not get out either.
            std::mem::forget(payload);
            0
        }
    }
}

fn log_safely(message: &str) {
    let _ = catch_unwind(|| log(Level::Error, message));
}

/// Runs one hook behind [`guard`], with the handle and the arguments of `plugstack.conf`.
///
/// # Safety
/// `spank`, `argc` and `argv` are those that Slurm passed to the hook that is running now.
pub unsafe fn hook(
    entry: &str,
    on_error: OnError,
    spank: raw::spank_t,
    argc: c_int,
    argv: *mut *mut c_char,
    body: impl FnOnce(&Handle<'_>, &[&OsStr]) -> Result<(), String>,
) -> c_int {
    guard(entry, on_error, || {
        // SAFETY: the caller vouches that they belong to the running hook.
        let (handle, arguments) = unsafe { (Handle::new(spank), arguments(argc, argv)) };
        body(&handle, &arguments)
    })
}

/// The words of a C argument vector; none for a NULL vector, and reading ends at a NULL word.
///
/// # Safety
/// `argv` is NULL, or points at `argc` words (or fewer and a NULL) that live as long as `'a`.
pub unsafe fn arguments<'a>(argc: c_int, argv: *mut *mut c_char) -> Vec<&'a OsStr> {
    let count = usize::try_from(argc).unwrap_or(0);
    let mut words = Vec::new();
    if argv.is_null() {
        return words;
    }
    for index in 0..count {
        // SAFETY: index < argc, and no NULL was met before it.
        let word = unsafe { *argv.add(index) };
        // SAFETY: a word of the vector, as the caller vouches.
        match unsafe { argument(word) } {
            Some(word) => words.push(word),
            None => break,
        }
    }
    words
}

/// A C text; `None` for NULL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated text that lives as long as `'a`.
pub unsafe fn argument<'a>(text: *const c_char) -> Option<&'a OsStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_and_minus_one_leave() {
        let fails = || Err("no".to_owned());
        assert_eq!(guard("t", OnError::Refuse, || Ok(())), 0);
        assert_eq!(guard("t", OnError::Refuse, fails), -1);
        assert_eq!(guard("t", OnError::Continue, fails), 0);
        assert_eq!(guard("t", OnError::Refuse, || panic!("a fault")), 0);
        assert_eq!(guard("t", OnError::Continue, || std::panic::panic_any(7)), 0);
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_stopped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(guard("t", OnError::Continue, || std::panic::panic_any(Bomb)), 0);
    }

    #[test]
    fn vectors_of_c_may_be_null_short_or_negative() {
        let mut words = [c"a=b".as_ptr().cast_mut(), std::ptr::null_mut(), c"c".as_ptr().cast_mut()];
        // SAFETY: the vector above.
        unsafe {
            assert_eq!(arguments(3, words.as_mut_ptr()), ["a=b"]);
            assert!(arguments(-1, words.as_mut_ptr()).is_empty());
            assert!(arguments(3, std::ptr::null_mut()).is_empty());
        }
    }

    #[test]
    fn a_null_handle_does_no_harm() {
        // SAFETY: NULL everywhere is what a broken host could pass.
        let rc = unsafe {
            hook("t", OnError::Refuse, std::ptr::null_mut(), 5, std::ptr::null_mut(), |handle, words| {
                assert!(words.is_empty() && handle.job_id().is_err());
                Ok(())
            })
        };
        assert_eq!(rc, 0);
    }
}
