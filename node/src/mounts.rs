//! Says by which process the mounts of the host are seen, and whether they are shown as they are.

use openfiles::Mounts;
use std::path::{Path, PathBuf};

/// The first process, which sees all mounts of the host.
pub(crate) const INIT: &str = "1";

/// The process, by its folder in `/proc`, whose mounts are looked at: the first one. This service's unit hides `/home` and
/// `/tmp` from it, and shows the rest as read-only. Where the first process is beyond reach, as in some containers, this one.
pub(crate) fn onlooker(proc_root: &Path) -> PathBuf {
    let host = proc_root.join(INIT);
    match std::fs::metadata(host.join("root")) {
        Ok(_) => host,
        Err(e) => {
            tracing::debug!(%e, "the mounts of the first process cannot be seen");
            proc_root.join("self")
        }
    }
}

/// Whether the root is shown as read-only, as a unit's `ProtectSystem=strict` does.
pub(crate) fn is_read_only(mounts: &Mounts) -> bool {
    mounts.iter().rfind(|m| m.point == Path::new("/")).is_some_and(|m| m.options.split(',').any(|o| o == "ro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_is_looked_at_where_it_can_be_and_hidden_storage_is_no_empty_storage() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("1")).unwrap();
        assert_eq!(onlooker(proc.path()), proc.path().join("self"));
        std::fs::create_dir(proc.path().join("1/root")).unwrap();
        assert_eq!(onlooker(proc.path()), proc.path().join("1"));
        let root = |options: &str| Mounts::parse(format!("22 1 254:0 / / {options} shared:1 - ext4 /dev/vda rw"));
        assert!(is_read_only(&root("ro,relatime")) && !is_read_only(&root("rw,relatime")));
    }
}
