//! Keeps each node's processes in a control group of its own, so that all of them freeze or die at once.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the processes of a node may take to freeze; one that is deep in the kernel freezes when it comes out.
const FREEZING: Duration = Duration::from_secs(2);
/// The control groups of one cluster (version 2).
#[derive(Debug)]
pub(crate) struct Groups(PathBuf);

/// The control group of one node: of what runs in its namespaces, not of those outside who wait for it. Its folder goes
/// with this value, when nothing runs in it any more.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Groups {
    /// A place for the groups of the cluster that has the network of this address.
    pub(crate) fn new(name: &str) -> Result<Groups> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let root =
            mounted(&mounts).context("no cgroup2 is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")?;
        let path = root.join(format!("joulepoint-testbed-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Groups(path))
    }

    /// A node's own.
    pub(crate) fn node(&self, node: &str) -> Result<Group> {
        let path = self.0.join(node);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let group = Group(path);
        group.thaw()?; // one that a dead node has left is frozen
        Ok(group)
    }

    /// A line for a shell that takes them away when nothing runs in them any more.
    pub(crate) fn removal(&self) -> String {
        format!("find '{}' -depth -type d -exec rmdir {{}} +", self.0.display())
    }
}

impl Group {
    /// A line for a shell that moves it, and all that it starts from then on, into the group.
    pub(crate) fn entry(&self) -> String {
        format!("echo 0 >'{}/cgroup.procs'", self.0.display())
    }

    /// Stops all processes, as far as none is stuck in the kernel, and without any of them being able to notice.
    pub(crate) fn freeze(&self) -> Result<()> {
        write(&self.0, "cgroup.freeze", "1")?;
        let deadline = Instant::now() + FREEZING;
        while !fs::read_to_string(self.0.join("cgroup.events"))?.contains("frozen 1") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets all processes go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        write(&self.0, "cgroup.freeze", "0")
    }

    /// SIGKILL of all processes at once, the frozen ones, too.
    pub(crate) fn kill(&self) -> Result<()> {
        write(&self.0, "cgroup.kill", "1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not empty yet: goes with the cluster.
        let _ = fs::remove_dir(&self.0);
    }
}

fn write(group: &Path, file: &str, value: &str) -> Result<()> {
    let path = group.join(file);
    fs::write(&path, value).with_context(|| path.display().to_string())
}

/// Where cgroup2 is, by the text of /proc/self/mounts.
fn mounted(mounts: &str) -> Option<&Path> {
    let mut words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.find_map(|line| (line.get(2) == Some(&"cgroup2")).then(|| Path::new(line[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_beside_the_first_version_and_alone() {
        let hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mounted(hybrid), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(mounted("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(mounted("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"), None);
    }
}
