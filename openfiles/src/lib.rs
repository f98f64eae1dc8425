//! Says which processes of this node may still write to a file: they have it open for that, or map it; and which files a process
//! holds ([`held`]), as `/proc` says it ([`process`]); takes files back to a size ([`by_size`]), finds those again that are read
//! ([`read`]), and waits for a storage that does not answer ([`patiently`]).
//!
//! All of it is read from `/proc`; no path of a user is opened, and no server of a network file system is asked. A file is
//! known by its inode and the type of its file system, which all nodes that share it see alike.

pub mod by_size;
mod descriptors;
pub mod held;
mod mounts;
pub mod patiently;
pub mod process;
pub mod read;

pub use mounts::{Mount, Mounts};

use process::{Mapping, has_ended};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file, as every node that shares it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Inode number.
    pub inode: u64,
    /// Type of its file system, such as `nfs4`; empty if it is not known.
    pub fs: String,
}

/// A process that may still write to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Process id.
    pub pid: i32,
    /// Name of the program.
    pub process: String,
    /// Which of the files that were asked for.
    pub file: usize,
    /// Whether it maps the file, and has not just opened it.
    pub is_mapped: bool,
}

/// What a look at the processes has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Who may still write.
    pub writers: Vec<Writer>,
    /// Processes that could not be looked into.
    pub unseen: Vec<i32>,
}

/// How a file is known to all.
///
/// # Errors
/// What the kernel says of it.
pub fn id_of(file: &File) -> io::Result<FileId> {
    let inode = file.metadata()?.ino();
    let own = Path::new("/proc/self");
    let info = descriptors::Info::read(&own.join("fdinfo").join(file.as_raw_fd().to_string()))?;
    let fs = Mounts::of(own)?.fs_by_id(info.mount).unwrap_or_default().to_string();
    Ok(FileId { inode, fs })
}

/// The processes of a user.
///
/// # Errors
/// What the kernel says.
pub fn processes_of(proc_root: &Path, uid: u32) -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir(proc_root)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile writes nothing.
        if entry.metadata().is_ok_and(|m| m.uid() == uid) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Which of these processes may still write to which of these files. Those that are not reached before `until` count as
/// unseen.
pub fn writers(proc_root: &Path, pids: &[i32], files: &[FileId], until: Instant) -> Look {
    let inodes: HashSet<u64> = files.iter().map(|file| file.inode).collect();
    let mut look = Look::default();
    for &pid in pids {
        let process = Process { pid, folder: proc_root.join(pid.to_string()), files, inodes: &inodes };
        match process.writes(until) {
            Ok(mut writers) => look.writers.append(&mut writers),
            Err(e) if has_ended(&e) => {}
            Err(_) => look.unseen.push(pid),
        }
    }
    look
}

/// One process, and what is looked for in it.
struct Process<'a> {
    pid: i32,
    folder: PathBuf,
    files: &'a [FileId],
    inodes: &'a HashSet<u64>,
}

impl Process<'_> {
    fn writes(&self, until: Instant) -> io::Result<Vec<Writer>> {
        let mut writers = Vec::new();
        let mounts = || Mounts::of(&self.folder);
        let mut found = |file: Option<usize>, is_mapped: bool| {
            writers.extend(file.map(|file| Writer { pid: self.pid, process: self.name(), file, is_mapped }));
        };
        for number in process::numbers(&self.folder)? {
            if Instant::now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
            match descriptors::written(&self.folder, &number, self.inodes) {
                Ok(Some(open)) => found(self.position(open.inode, mounts()?.fs_by_id(open.mount)), false),
                Ok(None) => {}
                // It was closed meanwhile.
                Err(e) if has_ended(&e) => {}
                Err(e) => return Err(e),
            }
        }
        let written = |mapping: &Mapping| mapping.is_written() && mapping.is_named("/");
        let mapped = process::mappings(&self.folder)?.into_iter().filter(written);
        for mapping in mapped.filter(|mapping| self.inodes.contains(&mapping.inode)) {
            found(self.position(mapping.inode, mounts()?.fs_by_device(&mapping.device)), true);
        }
        Ok(writers)
    }

    /// Which file has this inode; where a type is not known, the inode says it.
    fn position(&self, inode: u64, fs: Option<&str>) -> Option<usize> {
        let same = |file: &&FileId| file.inode == inode && fs.is_none_or(|fs| file.fs.is_empty() || file.fs == fs);
        self.files.iter().position(|file| same(&file))
    }

    fn name(&self) -> String {
        process::text(&self.folder.join("comm")).unwrap_or_default().trim_end().to_string()
    }
}

#[cfg(test)]
mod tests;
