//! Storage for scratch files that only this node has.

use crate::Place;
use openfiles::Mounts;
use std::path::Path;

/// Types of file systems that no other node has.
const LOCAL: [&str; 9] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs"];

/// Below these nobody keeps files of a job, or they are looked at as folders that all programs share.
const NEVER: [&str; 10] = ["/tmp", "/var", "/run", "/dev", "/proc", "/sys", "/boot", "/etc", "/usr", "/opt"];

/// How deep the folders of users lie there in those of the system: `/scratch/users/alice`.
const DEPTH: u32 = 2;

/// The local storage that is mounted here, but the system's own, and but what holds one of `shared`: files of the job that all
/// its nodes have lie there.
pub fn scratch(mounts: &Mounts, shared: &[&Path]) -> Vec<Place> {
    let is_scratch = |point: &Path| {
        point != Path::new("/")
            && !NEVER.iter().any(|never| point.starts_with(never))
            && !shared.iter().any(|path| path.starts_with(point))
    };
    let local = mounts.iter().filter(|mount| LOCAL.contains(&&*mount.fs));
    let writable = local.filter(|mount| !mount.options.split(',').any(|option| option == "ro"));
    let mut places: Vec<Place> = Vec::new();
    for mount in writable.filter(|mount| is_scratch(&mount.point) && mount.point.is_dir()) {
        let place = Place { path: mount.point.clone(), depth: DEPTH };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_storage_is_scratch_unless_it_is_the_systems_or_holds_what_the_job_shares() {
        let dir = tempfile::tempdir_in("/srv").unwrap();
        let point = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let line =
            |path: &Path, options: &str, fs: &str| format!("9 1 0:9 / {} {options} - {fs} x rw\n", path.display());
        let text = [
            line(&point("scratch"), "rw,relatime", "xfs"),
            line(&point("home"), "rw", "ext4"),
            line(&point("lustre"), "rw", "lustre"),
            line(&point("image"), "ro", "ext4"),
            line(Path::new("/tmp"), "rw", "ext4"),
            line(Path::new("/"), "rw", "ext4"),
            line(&point("scratch"), "rw", "xfs"),
        ];
        let found = scratch(&Mounts::parse(text.concat()), &[&dir.path().join("home/alice/job")]);
        assert_eq!(found, [Place { path: point("scratch"), depth: DEPTH }]);
    }
}
