//! Whether checkpoints have a place: writable, shared, with room.

use crate::{Findings, folder};
use nix::sys::statfs::{FsType, statfs};
use nix::unistd::{Uid, User};
use std::path::{Path, PathBuf};

/// File systems that no other node sees: tmpfs, overlay, ext2-4, xfs, btrfs, ramfs.
const LOCAL: [i64; 6] = [0x0102_1994, 0x794c_7630, 0xef53, 0x5846_5342, 0x9123_683e, 0x8584_58f6];

/// Examines the folder of the user who asks.
pub(crate) fn examine(site: &config::Site, findings: &mut Findings) {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    let (home, name) = user.map_or((PathBuf::from("/"), String::new()), |u| (u.dir, u.name));
    let dir = site.runs.dir.replace("{home}", &home.to_string_lossy()).replace("{user}", &name);
    let dir = Path::new(&dir);
    if let Some(why) = folder::unwritable(dir) {
        return findings.fault("runs-folder", why, "choose runs.dir so that every user can write there");
    }
    findings.ok("runs-folder", format!("{} can be written", dir.display()));
    if let Some(little) = folder::little_room(dir) {
        findings.warning("runs-room", little, "checkpoints go there: make room, or choose runs.dir elsewhere");
    }
    let place = folder::existing(dir);
    if statfs(place).is_ok_and(|fs| is_local(fs.filesystem_type())) {
        let what = format!("{} looks like a local file system", place.display());
        let cure = "choose runs.dir on a file system that all nodes share: a dead node's own disk cannot be read";
        findings.warning("runs-shared", what, cure);
    }
}

fn is_local(kind: FsType) -> bool {
    LOCAL.contains(&kind.0)
}
