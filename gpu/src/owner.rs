//! Finds the process of a tree that uses GPUs.

use crate::driver::Driver;
use crate::suspension::Trouble;
use openfiles::process;
use std::fs;
use std::path::{Path, PathBuf};

/// Why a process that only holds GPUs stands in the way of all others, and what to do.
pub const FORKED: &str = "a process forked by a program on a GPU holds its devices without using them, and cannot be dumped; start it \
    by spawn or forkserver (PyTorch's DataLoader: multiprocessing_context='forkserver', or num_workers=0)";

/// Why several processes on GPUs stand in each other's way, and what to do.
pub const SEVERAL: &str = "several processes use GPUs, and the driver does not bring back what they share; start each as a task of its \
    own (srun -n)";

/// How the file of NVIDIA's library is called, before its version.
const LIBRARY: &str = "libcuda.so";

/// NVIDIA's library as one of these processes has it mapped that holds a GPU; `root` is `/proc`.
pub fn library(root: &Path, pids: &[i32]) -> Option<PathBuf> {
    pids.iter().filter(|pid| device(root, **pid).is_some()).find_map(|pid| mapped(root, *pid))
}

/// Whether a process is being taken down by the kernel, or is gone.
pub(crate) fn is_ending(root: &Path, pid: i32) -> bool {
    fs::read(root.join(format!("{pid}/maps"))).map_or(true, |maps| maps.is_empty())
}

fn mapped(root: &Path, pid: i32) -> Option<PathBuf> {
    let all = process::mappings(&process::folder(root, pid)).ok()?;
    all.into_iter().map(|mapping| mapping.name).find(|path| is_library(path))
}

/// The process among these that uses GPUs, if one does.
///
/// # Errors
/// Several do, or a process holds a GPU by other means.
pub(crate) fn find(driver: &Driver, root: &Path, pids: &[i32]) -> Result<Option<i32>, Trouble> {
    let mut owner: Option<i32> = None;
    for pid in pids.iter().filter(|pid| device(root, **pid).is_some() && mapped(root, **pid).is_some()) {
        // A forked process has the thread of the one that it came from.
        let own = driver.thread(*pid)?.filter(|thread| root.join(format!("{pid}/task/{thread}")).exists());
        match (own, owner) {
            (Some(_), Some(other)) => return Err(Trouble::Several(other, *pid)),
            (Some(_), None) => owner = Some(*pid),
            (None, _) => {}
        }
    }
    match pids.iter().filter(|pid| Some(**pid) != owner).find_map(|pid| Some((*pid, device(root, *pid)?))) {
        Some((pid, path)) => Err(Trouble::Holds(pid, path)),
        None => Ok(owner),
    }
}

/// A GPU's device file that a process holds open.
fn device(root: &Path, pid: i32) -> Option<PathBuf> {
    let links = process::links(&process::folder(root, pid)).ok()?;
    links.into_iter().map(|(_, to)| to).find(|path| is_device(path) || is_test_device(path))
}

/// Whether a file is a device of NVIDIA's driver.
pub fn is_device(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"/dev/nvidia")
}

/// Whether a file stands for such a device in tests. A user's file of this name changes nothing: NVIDIA's library is asked.
fn is_test_device(path: &Path) -> bool {
    path.ends_with("dev/nvidia0")
}

/// Whether one of the files that a process has mapped is NVIDIA's library.
pub fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(LIBRARY.as_bytes()))
}

/// Whether one of the files that a process has mapped is one that only a process on a GPU has: a forked one does not inherit it.
pub fn is_memory(path: &Path) -> bool {
    path == Path::new("/dev/nvidia-uvm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_as_a_process_has_it() {
        let proc = tempfile::tempdir().unwrap();
        let maps = |pid: i32, text: &[u8]| {
            fs::create_dir_all(proc.path().join(pid.to_string())).unwrap();
            fs::write(proc.path().join(format!("{pid}/maps")), text).unwrap();
        };
        maps(1, b"7f00-7f01 r-xp 00000000 00:1b 5     /usr/lib/libcudart.so.12\n7f02-7f03 rw-p 00000000 00:00 0\n");
        let other = b"7f00-7f01 rw-s 00000000 00:1b 6     /home/a/caf\xe9.dat\n";
        maps(2, &[&other[..], b"7f02-7f03 r-xp 00000000 00:1b 5     /opt/a b/libcuda.so.580.159.04\n"].concat());
        assert_eq!(library(proc.path(), &[1, 2, 7]), None, "it is mapped, and no GPU is held");
        fs::create_dir_all(proc.path().join("2/fd")).unwrap();
        std::os::unix::fs::symlink("/dev/nvidiactl", proc.path().join("2/fd/5")).unwrap();
        assert_eq!(library(proc.path(), &[1, 7]), None);
        assert!(is_ending(proc.path(), 7) && !is_ending(proc.path(), 2));
        assert_eq!(library(proc.path(), &[1, 2]), Some("/opt/a b/libcuda.so.580.159.04".into()));
    }
}
