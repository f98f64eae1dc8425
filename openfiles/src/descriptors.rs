//! What a process has open for writing.

use crate::process;
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A descriptor as `/proc/PID/fdinfo/N` tells it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Info {
    flags: i32,
    /// Number of the mount.
    pub mount: u64,
    /// Inode; absent from kernels before 5.14.
    inode: Option<u64>,
}

/// A file that a process may write to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Inode number.
    pub inode: u64,
    /// Number of the mount.
    pub mount: u64,
}

impl Info {
    pub fn read(path: &Path) -> io::Result<Info> {
        Info::parse(&process::text(path)?).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<Info> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        Some(Info {
            flags: i32::from_str_radix(field("flags")?, 8).ok()?,
            mount: field("mnt_id")?.parse().ok()?,
            inode: field("ino").and_then(|text| text.parse().ok()),
        })
    }

    /// Whether it may be written through.
    fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY && self.flags & libc::O_PATH == 0
    }
}

/// What a descriptor of a process may write to, if that has one of these inodes.
///
/// # Errors
/// What the kernel says.
pub(crate) fn written(process: &Path, number: &OsStr, inodes: &HashSet<u64>) -> io::Result<Option<Open>> {
    let info = Info::read(&process.join("fdinfo").join(number))?;
    if !info.writes() {
        return Ok(None);
    }
    let link = process.join("fd").join(number);
    let inode = match info.inode {
        Some(inode) => inode,
        None => inode_behind(&link)?,
    };
    if !inodes.contains(&inode) {
        return Ok(None);
    }
    // Pipes and sockets have inodes, too.
    let is_file = fs::read_link(&link)?.as_os_str().as_bytes().starts_with(b"/");
    Ok(is_file.then_some(Open { inode, mount: info.mount }))
}

/// The inode of what is open, as the node remembers it: its server is not asked, which may hang.
fn inode_behind(link: &Path) -> io::Result<u64> {
    let path = CString::new(link.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path ends in a zero, and the kernel writes no more than the struct, which all zeros make valid.
    let (result, found) = unsafe {
        let result = libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_INO, found.as_mut_ptr());
        (result, found.assume_init())
    };
    if result == 0 { Ok(found.stx_ino) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_may_be_written_through_is_told_by_the_flags() {
        for (flags, writes) in [("0100000", false), ("0100001", true), ("0102002", true), ("012000002", false)] {
            let info = Info::parse(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\nino:\t77\n")).unwrap();
            assert_eq!((info.writes(), info.mount, info.inode), (writes, 29, Some(77)), "{flags}");
        }
        assert!(Info::parse("pos:\t0\n").is_none());
        assert_eq!(Info::parse("flags:\t01\nmnt_id:\t29\n").unwrap().inode, None);
    }

    #[test]
    fn an_older_kernel_is_asked_for_the_inode_itself() {
        let file = tempfile::tempfile().unwrap();
        let link = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        assert_eq!(inode_behind(&link).unwrap(), file.metadata().unwrap().ino());
        assert!(inode_behind(Path::new("/proc/self/fd/99999")).is_err());
    }
}
