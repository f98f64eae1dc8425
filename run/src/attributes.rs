//! Attributes of a file: mode, owner, times and extended attributes, read and set as far as its user may.

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};
use protocol::FileAttributes;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The access control list. It is set last, since a change of the mode changes it.
const ACL: &str = "system.posix_acl_access";

/// Reads the attributes of the file at a path; of a symbolic link, those of the link.
///
/// # Errors
/// What the file system says.
pub fn of(path: &Path) -> io::Result<FileAttributes> {
    let m = fs::symlink_metadata(path)?;
    let time = |s: i64, ns: i64| (s, ns as u32);
    Ok(FileAttributes {
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        modified: time(m.mtime(), m.mtime_nsec()),
        accessed: time(m.atime(), m.atime_nsec()),
        extended: extended(path)?,
    })
}

/// The extended attributes that a user may have set, the values in hexadecimal.
fn extended(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let names = match xattr::list(path) {
        Ok(names) => names,
        Err(e) if has_none(&e) => return Ok(all),
        Err(e) => return Err(e),
    };
    let is_users =
        |name: &str| name.starts_with("user.") || name.starts_with("system.posix_acl_") || name == "system.nfs4_acl";
    for name in names.filter_map(|name| name.into_string().ok()).filter(|name| is_users(name)) {
        match xattr::get(path, &name) {
            Ok(Some(value)) => drop(all.insert(name, hexadecimal(&value))),
            Ok(None) => {}
            Err(e) if has_none(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// Whether an error means that the file system has no extended attributes.
fn has_none(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODATA | libc::EPERM))
}

/// Sets a file's attributes as far as its user may; a sentence for each part that could not be set.
pub fn set(path: &Path, to: &FileAttributes) -> Vec<String> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
    let mut remarks = Vec::new();
    let mut tell = |what: &str, result: io::Result<()>| {
        if let Err(e) = result {
            remarks.push(format!("{what}: {e}"));
        }
    };
    tell("owner and group", own(path, to));
    if !is_link {
        let named = |name: &&String| *name != ACL;
        for name in to.extended.keys().filter(named) {
            tell(name, set_extended(path, to, name));
        }
        tell("mode", fs::set_permissions(path, fs::Permissions::from_mode(to.mode)));
        // The folder may have a default list that this file did not have.
        let acl = if to.extended.contains_key(ACL) { set_extended(path, to, ACL) } else { without_acl(path) };
        tell(ACL, acl);
    }
    let time = |(s, ns): (i64, u32)| TimeSpec::new(s, i64::from(ns));
    let (accessed, modified) = (time(to.accessed), time(to.modified));
    let times = utimensat(nix::fcntl::AT_FDCWD, path, &accessed, &modified, UtimensatFlags::NoFollowSymlink);
    tell("times", times.map_err(io::Error::from));
    remarks
}

/// Sets owner and group where they differ: only root may change the owner, only a member of it the group.
fn own(path: &Path, to: &FileAttributes) -> io::Result<()> {
    let m = fs::symlink_metadata(path)?;
    let uid = (m.uid() != to.uid).then_some(Uid::from_raw(to.uid));
    let gid = (m.gid() != to.gid).then_some(Gid::from_raw(to.gid));
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    let flag = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
    let both = fchownat(nix::fcntl::AT_FDCWD, path, uid, gid, flag);
    // Setting one of them is better than none.
    both.or_else(|e| {
        fchownat(nix::fcntl::AT_FDCWD, path, None, gid, flag).and(if uid.is_some() { Err(e) } else { Ok(()) })
    })
    .map_err(io::Error::from)
}

fn set_extended(path: &Path, to: &FileAttributes, name: &str) -> io::Result<()> {
    let Some(value) = to.extended.get(name).and_then(|text| bytes(text)) else {
        return Err(io::Error::other("its value cannot be read"));
    };
    xattr::set(path, OsStr::from_bytes(name.as_bytes()), &value)
}

fn without_acl(path: &Path) -> io::Result<()> {
    match xattr::remove(path, ACL) {
        Err(e) if !has_none(&e) => Err(e),
        _ => Ok(()),
    }
}

fn hexadecimal(value: &[u8]) -> String {
    value.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = |i: usize| u8::from_str_radix(text.get(i..i + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_bytes_survive_the_manifest() {
        let value: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&hexadecimal(&value)), Some(value));
        assert_eq!([bytes("0"), bytes("zz"), bytes("é")], [None, None, None]);
        assert_eq!(bytes(""), Some(vec![]));
    }
}
