//! A tiny program in memory that becomes the wrapper, for Slurm versions that cannot put words before a script.
//!
//! Before 23.11 a plugin can exchange the first word of the task's arguments, but it cannot add one. So the
//! first word becomes a shell script, held in memory, that executes the wrapper with all its words and the
//! original program behind them. Calling `execve` from the hook instead would be simpler and wrong: Slurm runs
//! TaskProlog, the later plugins and the propagated resource limits after this hook, and all would be lost.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Makes the launcher for `words`, to be followed by the arguments that it gets itself.
///
/// The descriptor stays open on purpose, since the kernel and the shell open the path through it; the process
/// is about to become that program.
///
/// # Errors
/// What the system said; a system that forbids executable memory files says so here, not when it is too late.
pub fn launcher(words: &[&OsStr]) -> io::Result<CString> {
    let descriptor = memory_file()?;
    let number = descriptor.as_raw_fd();
    let path = CString::new(format!("/proc/self/fd/{number}"))?;
    let mut file = File::from(descriptor);
    file.write_all(&script(words, number))?;
    // SAFETY: a NUL-terminated path.
    if unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::X_OK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = file.into_raw_fd();
    Ok(path)
}

fn memory_file() -> io::Result<OwnedFd> {
    // Kernels from 6.3 want to be told that the file will be executed; older ones refuse the flag.
    for flags in [libc::MFD_EXEC, 0] {
        // SAFETY: a NUL-terminated name; the call returns a new descriptor or -1.
        let number = unsafe { libc::memfd_create(c"joulepoint".as_ptr(), flags) };
        if number >= 0 {
            // SAFETY: a new descriptor that nobody else owns.
            return Ok(unsafe { OwnedFd::from_raw_fd(number) });
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
            break;
        }
    }
    Err(io::Error::last_os_error())
}

/// The script: one `exec` line, every word quoted. Shells know descriptors of one digit only, so a higher one
/// is inherited by the wrapper, which it does not harm.
fn script(words: &[&OsStr], descriptor: i32) -> Vec<u8> {
    let mut text = b"#!/bin/sh\nexec".to_vec();
    for word in words {
        text.extend_from_slice(b" '");
        for byte in word.as_bytes() {
            match byte {
                b'\'' => text.extend_from_slice(b"'\\''"),
                other => text.push(*other),
            }
        }
        text.push(b'\'');
    }
    text.extend_from_slice(b" \"$@\"");
    if descriptor < 10 {
        text.extend_from_slice(format!(" {descriptor}<&-").as_bytes());
    }
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn words_arrive_as_they_were_whatever_they_contain() {
        let hostile = OsStr::from_bytes(b"it's $HOME `id` \"x\" \\ \n \xff");
        let path = launcher(&[OsStr::new("printf"), OsStr::new("%s|"), hostile, OsStr::new("")]).unwrap();
        let out = Command::new(OsStr::from_bytes(path.as_bytes())).args(["last one", "*"]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut expected = hostile.as_bytes().to_vec();
        expected.extend_from_slice(b"||last one|*|");
        assert_eq!(out.stdout, expected);
    }
}
