//! A file system in memory for a dump, so that the program need not stand still for a disk.

use crate::task::Task;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mount point in a run's folder, of one task: nobody outside of the sandbox sees what is mounted, and who removes the folder
/// takes it away from all.
const NAME: &str = "stage";

/// With less than this left, a failed dump is taken to have failed for want of room, bytes.
const FULL_BYTES: u64 = 1 << 20;

/// What a dump needs beside the program's memory, bytes.
const EXTRA_BYTES: u64 = 32 << 20;

/// Share of the free memory that may hold a dump while the program comes back from it, and needs as much again.
const RESTORE_SHARE: f64 = 0.45;

/// A file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct Stage(PathBuf);

impl Stage {
    /// Memory for a dump of these processes; none if they do not fit into `share` of the free memory.
    pub fn for_dump(task: &Task, tree: &[i32], share: f64) -> Option<Stage> {
        let resident_bytes = tree.iter().map(|pid| resident_bytes(*pid)).sum::<u64>();
        // Its blocks are known by hashes, which take memory of the same job.
        Stage::within(task, resident_bytes + resident_bytes / 32, share)
    }

    /// Memory for a dump of this size that is restored; none if it and those of the tasks beside do not fit.
    pub fn for_restore(task: &Task, dump_bytes: u64) -> Option<Stage> {
        Stage::within(task, dump_bytes, RESTORE_SHARE / f64::from(task.beside()))
    }

    fn within(task: &Task, needed_bytes: u64, share: f64) -> Option<Stage> {
        let bytes = (free_bytes() as f64 * share.clamp(0.0, 1.0)) as u64;
        (needed_bytes + EXTRA_BYTES <= bytes).then(|| Stage::open(task.own_place(NAME), bytes)).and_then(Result::ok)
    }

    fn open(path: PathBuf, bytes: u64) -> io::Result<Stage> {
        match fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let options = format!("mode=0700,size={bytes}");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), &path, Some("tmpfs"), flags, Some(options.as_str()))?;
        Ok(Stage(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        statvfs(&self.0).is_ok_and(|s| s.blocks_available() * s.fragment_size() < FULL_BYTES)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Resident memory of a process that no file backs, bytes; shared memory counts for each process.
fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["RssAnon", "RssShmem", "VmSwap"].iter().filter_map(|name| kib(&status, name)).sum::<u64>() << 10
}

/// Free memory of this node and within the limits of our control groups, bytes.
pub fn free_bytes() -> u64 {
    let node = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib(&text, "MemAvailable")).unwrap_or(0) << 10;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(group).flat_map(|(v2, folder)| left_bytes(v2, folder)).fold(node, u64::min)
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Folder of our control group that limits memory, and whether it is cgroup v2 (cgroups(7)).
fn group(line: &str) -> Option<(bool, PathBuf)> {
    let (head, path) = line.split_once(":/")?;
    let (_, controllers) = head.split_once(':')?;
    match controllers {
        "" => Some((true, Path::new("/sys/fs/cgroup").join(path))),
        _ if controllers.split(',').any(|c| c == "memory") => {
            Some((false, Path::new("/sys/fs/cgroup/memory").join(path)))
        }
        _ => None,
    }
}

/// Memory left below the limits of a group and of its parents, bytes. File cache counts as free, since the kernel
/// gives it up.
fn left_bytes(v2: bool, folder: PathBuf) -> Vec<u64> {
    let (limit, used) =
        if v2 { ("memory.max", "memory.current") } else { ("memory.limit_in_bytes", "memory.usage_in_bytes") };
    let number = |folder: &Path, name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let left = |folder: &Path| {
        let (limit, used) = (number(folder, limit)?, number(folder, used)?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let of = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            matches!(name, "inactive_file" | "active_file").then(|| bytes.parse::<u64>().ok())?
        };
        Some(limit.saturating_sub(used.saturating_sub(stat.lines().filter_map(of).sum())))
    };
    folder.ancestors().filter_map(left).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_the_node_and_by_every_group_above() {
        assert!(free_bytes() > 0 && resident_bytes(std::process::id() as i32) > 0);
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("job/step");
        fs::create_dir_all(&below).unwrap();
        let write = |folder: &Path, limit: &str, used: &str| {
            fs::write(folder.join("memory.max"), limit).unwrap();
            fs::write(folder.join("memory.current"), used).unwrap();
        };
        write(&below, "max\n", "5\n");
        write(&dir.path().join("job"), "1000\n", "700\n");
        fs::write(dir.path().join("job/memory.stat"), "anon 100\ninactive_file 400\nactive_file 100\n").unwrap();
        assert_eq!(left_bytes(true, below), [800]);
        assert_eq!(group("0::/job/step"), Some((true, PathBuf::from("/sys/fs/cgroup/job/step"))));
        assert_eq!(group("4:cpu,memory:/a"), Some((false, PathBuf::from("/sys/fs/cgroup/memory/a"))));
        assert_eq!(group("4:cpu:/a"), None);
    }

    #[test]
    fn what_does_not_fit_is_not_staged() {
        let dir = tempfile::tempdir().unwrap();
        let task = Task { run: dir.path().to_path_buf(), ..Task::default() };
        assert!(Stage::for_dump(&task, &[std::process::id() as i32], 1e-6).is_none());
        assert!(Stage::for_restore(&task, u64::MAX / 2).is_none());
        assert!(!dir.path().join(NAME).exists());
    }
}
