//! Whether what must be written can be written, and has room.

use crate::Findings;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, Uid, access};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Less room than this will not last, bytes.
const LITTLE_BYTES: u64 = 1 << 30;

/// The folder itself, or what exists of the way to it.
pub(crate) fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"))
}

/// Why a path cannot be written, if so: by this user, on its file system.
pub(crate) fn unwritable(path: &Path) -> Option<String> {
    let place = existing(path);
    let shown = place.display();
    if !place.is_dir() && place != path {
        return Some(format!("{shown} is no folder"));
    }
    match statvfs(place) {
        Ok(fs) if fs.flags().contains(FsFlags::ST_RDONLY) => return Some(format!("{shown} is mounted read-only")),
        Err(e) => return Some(format!("{shown}: {e}")),
        Ok(_) => {}
    }
    access(place, AccessFlags::W_OK).err().map(|e| format!("{shown} cannot be written: {e}"))
}

/// Whether this user may write a path, or what exists of the way to it, and its folder.
fn is_ours(path: &Path) -> bool {
    let may = |p: &Path| access(existing(p), AccessFlags::W_OK) != Err(nix::Error::EACCES);
    may(path) && path.parent().is_none_or(may)
}

/// Free room for ordinary users, bytes.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    statvfs(existing(path)).ok().map(|fs| fs.blocks_available() * fs.fragment_size())
}

/// Whether there is little room, in words.
pub(crate) fn little_room(path: &Path) -> Option<String> {
    let free = free_bytes(path).filter(|free| *free < LITTLE_BYTES)?;
    Some(format!("{} has {} MiB left", existing(path).display(), free >> 20))
}

/// The controller's store.
pub(crate) fn examine_store(store: &Path, findings: &mut Findings) {
    if store.to_str().is_some_and(|place| place.starts_with("mysql://")) {
        // The service says whether it answers.
        return findings.ok("store", "a MariaDB");
    }
    let shown = store.display();
    // It is the service's alone, which is root: of what others may do there nothing follows.
    if !Uid::effective().is_root() && !is_ours(store) {
        return findings.skipped("store", &shown.to_string());
    }
    if let Some(why) = unwritable(store).or_else(|| store.parent().and_then(unwritable)) {
        return findings.fault("store", why, "the service must be able to write controller.store and its folder");
    }
    if let Some(folder) = store.parent().filter(|folder| !folder.exists()) {
        let cure = "mount it or make it: the service makes no store in a folder that is not there";
        return findings.fault("store", format!("there is no folder {}", folder.display()), cure);
    }
    match sound(store) {
        Ok(true) => findings.ok("store", format!("{shown} is sound")),
        Ok(false) => findings.ok("store", format!("{shown} will be made at the first start")),
        Err(e) => {
            let cure = "stop the service and bring the last backup back; the broken file may still be read by sqlite3";
            return findings.fault("store", format!("{shown}: {e}"), cure);
        }
    }
    if let Some(little) = little_room(store) {
        findings.warning("store-room", little, "make room: a full disk stops all records, which then wait at the runs");
    }
}

/// Whether the file is there; an error if it is damaged.
fn sound(store: &Path) -> Result<bool, String> {
    if !store.exists() {
        return Ok(false);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let verdict: String = Connection::open_with_flags(store, flags)
        .and_then(|db| db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)))
        .map_err(|e| e.to_string())?;
    if verdict == "ok" { Ok(true) } else { Err(verdict) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_store_is_a_mariadb_or_a_file_in_a_folder_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let level = |place: &Path| {
            let mut findings = Findings::default();
            examine_store(place, &mut findings);
            findings.0[0].level
        };
        assert_eq!(level(&dir.path().join("store.sqlite")), Level::Ok);
        assert_eq!(level(&dir.path().join("unmounted/store.sqlite")), Level::Fault);
        assert_eq!(level(Path::new("mysql://joulepoint@db/joulepoint")), Level::Ok);
    }
}
