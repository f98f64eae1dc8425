//! The beginning of what comes by standard input, without taking it away from whoever reads it.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::fs::File;
use std::io::{PipeReader, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::thread;
use std::time::{Duration, Instant};

/// How long a pipe is waited for that says nothing, or not enough.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The first bytes, at most `limit`, and whether they are all; of a pipe or socket as soon as they are `enough`. Nothing of a
/// terminal, and of what says nothing for a while.
pub fn beginning(limit: u64, enough: fn(&[u8]) -> bool) -> Option<(Vec<u8>, bool)> {
    // SAFETY: the descriptor is not closed here.
    let input = ManuallyDrop::new(unsafe { File::from_raw_fd(0) });
    let metadata = input.metadata().ok()?;
    let limit = usize::try_from(limit).ok()?;
    if metadata.is_file() {
        // SAFETY: a number goes in and a number comes out.
        let at = unsafe { libc::lseek(0, 0, libc::SEEK_CUR) };
        let at = u64::try_from(at).ok()?;
        let left = metadata.len().saturating_sub(at);
        let mut text = vec![0; limit.min(usize::try_from(left).ok()?)];
        let length = input.read_at(&mut text, at).ok()?;
        text.truncate(length);
        return Some((text, length as u64 == left));
    }
    let look = if metadata.file_type().is_fifo() { of_pipe } else { of_socket };
    let until = Instant::now() + PATIENCE;
    while metadata.file_type().is_fifo() || metadata.file_type().is_socket() {
        let (text, has_ended) = look(&input, limit)?;
        let is_whole = has_ended && text.len() < limit;
        if is_whole || enough(&text) || Instant::now() > until {
            return Some((text, is_whole));
        }
        thread::sleep(LOOK);
    }
    None
}

/// What is in a pipe, duplicated (`tee(2)`), and whether nobody writes to it any more.
fn of_pipe(pipe: &File, limit: usize) -> Option<(Vec<u8>, bool)> {
    // Before the look: what is written in between is seen.
    let has_ended = has_ended(pipe)?;
    let (mut copy, into): (PipeReader, _) = std::io::pipe().ok()?;
    // SAFETY: two pipes of this process; what a copy cannot hold is left out.
    let length = unsafe { libc::tee(pipe.as_raw_fd(), into.as_raw_fd(), limit, libc::SPLICE_F_NONBLOCK) };
    drop(into);
    let mut text = Vec::new();
    if length > 0 {
        copy.read_to_end(&mut text).ok()?;
    }
    let mut all: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    let is_told = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut all) } == 0;
    let is_all = is_told && usize::try_from(all).is_ok_and(|all| all == text.len());
    Some((text, has_ended && is_all))
}

/// What a socket has, left there, and whether the other side says no more.
fn of_socket(socket: &File, limit: usize) -> Option<(Vec<u8>, bool)> {
    let has_ended = has_ended(socket)?;
    let mut text = vec![0; limit];
    // SAFETY: the kernel writes into the room that it is given.
    let length = unsafe {
        libc::recv(socket.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), libc::MSG_PEEK | libc::MSG_DONTWAIT)
    };
    text.truncate(usize::try_from(length).unwrap_or(0));
    Some((text, has_ended))
}

fn has_ended(input: &File) -> Option<bool> {
    let mut ready = libc::pollfd { fd: input.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: one descriptor is looked at.
    let looked = unsafe { libc::poll(&raw mut ready, 1, 0) };
    (looked >= 0).then_some(ready.revents & (libc::POLLHUP | libc::POLLRDHUP) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    const SCRIPT: &[u8] = b"#!/bin/sh\ntrue\n";

    /// What is there once the other side has ended: the child of a test beside this one holds it open until its `execve`.
    fn at_its_end(look: impl Fn() -> Option<(Vec<u8>, bool)>) -> Option<(Vec<u8>, bool)> {
        let until = Instant::now() + Duration::from_secs(60);
        std::iter::repeat_with(look)
            .inspect(|_| thread::sleep(LOOK))
            .find(|seen| seen.as_ref().is_none_or(|(_, has_ended)| *has_ended) || Instant::now() > until)?
    }

    #[test]
    fn a_pipe_keeps_what_is_looked_at() {
        let (mut reads, mut writes) = std::io::pipe().unwrap();
        let pipe = File::from(OwnedFd::from(reads.try_clone().unwrap()));
        assert_eq!(of_pipe(&pipe, 1 << 20), Some((Vec::new(), false)));
        writes.write_all(SCRIPT).unwrap();
        assert_eq!(of_pipe(&pipe, 1 << 20), Some((SCRIPT.to_vec(), false)), "more may come");
        drop(writes);
        assert_eq!(at_its_end(|| of_pipe(&pipe, 1 << 20)), Some((SCRIPT.to_vec(), true)));
        assert!(of_pipe(&pipe, 4).is_some_and(|(_, is_whole)| !is_whole));
        let mut text = Vec::new();
        reads.read_to_end(&mut text).unwrap();
        assert_eq!(text, SCRIPT);
    }

    #[test]
    fn a_socket_keeps_what_is_looked_at() {
        let (mut reads, mut writes) = UnixStream::pair().unwrap();
        let socket = File::from(OwnedFd::from(reads.try_clone().unwrap()));
        writes.write_all(SCRIPT).unwrap();
        assert_eq!(of_socket(&socket, 1 << 20), Some((SCRIPT.to_vec(), false)));
        drop(writes);
        assert_eq!(at_its_end(|| of_socket(&socket, 1 << 20)), Some((SCRIPT.to_vec(), true)));
        let mut text = Vec::new();
        reads.read_to_end(&mut text).unwrap();
        assert_eq!(text, SCRIPT);
    }
}
