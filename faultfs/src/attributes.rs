//! What a file looks like: the attributes that a server tells of it.

use crate::Ino;
use nix::sys::stat::SFlag;
use std::time::SystemTime;

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Grows with each change of its content, or of what is in a folder.
    pub change: u64,
    /// Length, bytes.
    pub size: u64,
    /// What it takes on the server, bytes.
    pub allocated: u64,
    /// Type and mode, as in `st_mode`.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device, of a special file.
    pub rdev: u32,
    /// Last read.
    pub atime: SystemTime,
    /// Last change of the content.
    pub mtime: SystemTime,
    /// Last change of anything.
    pub ctime: SystemTime,
}

impl Attributes {
    /// Its type.
    pub fn kind(&self) -> SFlag {
        kind(self.mode)
    }
}

/// The type in a mode.
pub fn kind(mode: u32) -> SFlag {
    SFlag::from_bits_truncate(mode & libc::S_IFMT)
}

/// What is to be changed of a file's attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Mode, without the type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length, bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SystemTime>,
    /// Last change of the content.
    pub mtime: Option<SystemTime>,
}
