//! Carries a program's output from a pipe to where the warden's own output goes.
//!
//! CRIU cannot restore a file that was opened outside the namespaces, and after a restore the output goes elsewhere:
//! so the program writes into a pipe, and each new warden carries it on.

use nix::fcntl::OFlag;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Capacity asked for each pipe, bytes.
const CAPACITY_BYTES: i32 = 1 << 20;

/// One pipe and its target.
#[derive(Debug)]
pub struct Relay {
    read: File,
    write: OwnedFd,
    to: File,
    inode: u64,
    carried_bytes: u64,
}

impl Relay {
    /// A new pipe that leads to descriptor `to` of this process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(to: BorrowedFd) -> io::Result<Relay> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // SAFETY: a plain system call on a descriptor that we own; a smaller pipe serves too.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY_BYTES) };
        let inode = File::from(write.try_clone()?).metadata()?.ino();
        Ok(Relay { read: File::from(read), write, to: File::from(to.try_clone_to_owned()?), inode, carried_bytes: 0 })
    }

    /// Number by which `/proc` and CRIU name the pipe.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The end for the program.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// The end to be waited for.
    pub fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// Carries on everything that is in the pipe now, and not what a busy writer adds meanwhile.
    ///
    /// # Errors
    /// What the target's file system says.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut block = vec![0; CAPACITY_BYTES as usize];
        let mut carried = 0;
        while carried < block.len() {
            match self.read.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    self.to.write_all(&block[..length])?;
                    carried += length;
                    self.carried_bytes += length as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// How much it has carried on, bytes.
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes
    }

    /// Size of the target, bytes, if it is a file that keeps what is written.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.to.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len())
    }

    /// Forgets what was written to the target after it had `bytes`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn go_back(&mut self, bytes: u64) -> io::Result<()> {
        if self.kept_bytes().is_some_and(|now| now > bytes) {
            self.to.set_len(bytes)?;
            io::Seek::seek(&mut self.to, io::SeekFrom::End(0))?;
        }
        Ok(())
    }
}

/// The pipes of standard output and error: one if both go to the same place, so that their order is kept.
///
/// # Errors
/// What the kernel says.
pub fn standard() -> io::Result<Vec<Relay>> {
    // SAFETY: descriptors 1 and 2 are open for as long as this process lives.
    let (out, err) = unsafe { (BorrowedFd::borrow_raw(1), BorrowedFd::borrow_raw(2)) };
    let same = match (place(out)?, place(err)?) {
        (a, b) if a == b => vec![out],
        _ => vec![out, err],
    };
    same.into_iter().map(Relay::new).collect()
}

fn place(of: BorrowedFd) -> io::Result<(u64, u64)> {
    let m = File::from(of.try_clone_to_owned()?).metadata()?;
    Ok((m.dev(), m.ino()))
}

/// A copy of a descriptor that a child may keep.
///
/// # Errors
/// What the kernel says.
pub fn inheritable(of: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: dup gives a new descriptor, which nobody else owns.
    let copy = unsafe { libc::dup(of.as_raw_fd()) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
