//! Brings the files of an archive back where they were, for nobody's eyes but the user's until each is whole.

use crate::holes::copy_with_holes;
use crate::way::{Commons, Spot};
use nix::unistd::{AccessFlags, geteuid};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Looks whether what another user has made is in the way of an archive's files, but of those that stay as they are.
///
/// # Errors
/// What is [in the way](crate::in_the_way), or what the file system says.
pub fn look(path: &Path, commons: &Commons, stays: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::new(File::open(path)?));
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        if let Some(target) = target(&entry, stays)? {
            commons.look_for(&target, entry.header().uid()?).map_err(|e| named(&target, e))?;
        }
    }
    Ok(())
}

/// Brings the files of an archive back, but those that stay as they are. A folder and a file of another user in one of the common
/// folders are left alone.
///
/// # Errors
/// What is [in the way](crate::in_the_way), or what the file system says.
pub fn unpack(path: &Path, commons: &Commons, stays: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(1 << 20, File::open(path)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if let Some(target) = target(&entry, stays)? {
            put(&mut entry, &target, commons).map_err(|e| named(&target, e))?;
        }
    }
    Ok(())
}

/// What the file system says, with the name of the file.
fn named(path: &Path, e: io::Error) -> io::Error {
    match e.kind() {
        ErrorKind::AlreadyExists if e.raw_os_error().is_none() => e,
        kind => io::Error::new(kind, format!("{}: {e}", path.display())),
    }
}

/// Where an entry belongs, unless what is there stays.
fn target<R: Read>(entry: &tar::Entry<R>, stays: &dyn Fn(&Path) -> bool) -> io::Result<Option<PathBuf>> {
    let target = Path::new("/").join(entry.path()?);
    let is_left = stays(&target) || is_others_as_it_was(&target, entry.header(), entry.size())?;
    Ok(Some(target).filter(|_| !is_left))
}

fn put(entry: &mut tar::Entry<impl Read>, target: &Path, commons: &Commons) -> io::Result<()> {
    let (header, bytes) = (entry.header().clone(), entry.size());
    let (kind, owner, mode) = (header.entry_type(), header.uid()?, Permissions::from_mode(header.mode()? & 0o7777));
    if kind.is_dir() && target == Path::new("/") {
        return Ok(());
    }
    let spot = commons.reach(target)?;
    let (path, there) = (spot.path(), spot.found(owner)?);
    if kind.is_hard_link() {
        let first = entry.link_name()?.map(|name| Path::new("/").join(name));
        first.map_or(Ok(()), |first| link(&commons.reach(&first)?, &spot, owner))
    } else if kind.is_dir() {
        if there.is_some() && fs::metadata(&path)?.is_dir() {
            return Ok(());
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        fs::set_permissions(&path, mode)
    } else if kind.is_fifo() {
        make_fifo(&path, header.mode()?)
    } else if kind.is_symlink() {
        let to = entry.link_name()?.ok_or(ErrorKind::InvalidData)?;
        there.map_or(Ok(()), |_| remove(&path))?;
        symlink(to, &path)
    } else {
        let mut file = open(&spot, owner)?;
        copy_with_holes(entry, &mut file)?;
        let found = file.metadata()?;
        // More of it may be of a task that is back already.
        if found.len() < bytes {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // The time and the rights of another user's file cannot be set; its content can.
        let _ = file.set_modified(UNIX_EPOCH + Duration::from_secs(header.mtime()?));
        let is_right = found.uid() != geteuid().as_raw() || found.mode() & 0o7777 == mode.mode();
        if is_right { Ok(()) } else { file.set_permissions(mode) }
    }
}

/// Opens a file to be written over, in place, so that its other hard links, and tasks that restore it too, see the same file. One
/// that is not there is made for its user alone.
fn open(spot: &Spot, owner: u64) -> io::Result<File> {
    let path = spot.path();
    loop {
        let Some(found) = spot.found(owner)? else {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                // Another task has made it meanwhile.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                made => return made,
            }
        };
        if found.is_file() {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            match OpenOptions::new().write(true).custom_flags(flags).open(&path) {
                Ok(file) if is_same(&found, &file.metadata()?) => return Ok(file),
                // Somebody has changed what has the name.
                Ok(_) => continue,
                Err(e) if found.uid() != geteuid().as_raw() => return Err(e),
                Err(_) => {}
            }
        }
        remove(&path)?;
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Takes a file away, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Has a name lead to a file that has another; where the file system cannot do that, to a copy.
fn link(first: &Spot, name: &Spot, owner: u64) -> io::Result<()> {
    let of = first.found(owner)?.ok_or(ErrorKind::NotFound)?;
    match name.found(owner)? {
        Some(there) if is_same(&of, &there) => return Ok(()),
        Some(_) => remove(&name.path())?,
        None => {}
    }
    fs::hard_link(first.path(), name.path()).or_else(|_| {
        let mut copy = open(name, owner)?;
        copy_with_holes(&mut File::open(first.path())?, &mut copy)?;
        copy.set_permissions(of.permissions())
    })
}

/// Makes a file whole or not at all, with a content, and with the rights of an archive's entry and a time of its last change.
///
/// # Errors
/// What is [in the way](crate::in_the_way), or what the file system says.
pub fn make_file(
    path: &Path,
    content: &[u8],
    of: &tar::Header,
    modified: SystemTime,
    commons: &Commons,
) -> io::Result<()> {
    let spot = commons.reach(path)?;
    spot.found(of.uid()?)?;
    let path = spot.path();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new().prefix(".joulepoint-").tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(Permissions::from_mode(of.mode()? & 0o7777))?;
    file.as_file().set_modified(modified)?;
    file.as_file().sync_all()?;
    file.persist(&path).map(drop).map_err(|e| e.error)
}

/// Whether a file that an archive has is another user's, as it was then, and unchanged, so that it need not be restored (nor could
/// be). In a sandbox all other users have one id, which may be ours outside.
///
/// # Errors
/// The archive does not say whose it was, or when it was changed.
pub(crate) fn is_others_as_it_was(path: &Path, of: &tar::Header, bytes: u64) -> io::Result<bool> {
    let (owner, modified_s) = (of.uid()?, of.mtime()?);
    let is_others =
        |m: &Metadata| m.uid() != geteuid().as_raw() || nix::unistd::access(path, AccessFlags::W_OK).is_err();
    let as_it_was = |m: &Metadata| {
        let is_unchanged = bytes == m.len() && u64::try_from(m.mtime()).ok() == Some(modified_s);
        m.is_file() && is_unchanged && u64::from(m.uid()) == owner
    };
    Ok(fs::symlink_metadata(path).is_ok_and(|m| as_it_was(&m) && is_others(&m)))
}

/// Makes a FIFO, if it is not there.
///
/// # Errors
/// What the file system says.
pub fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    match nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(mode)) {
        Err(nix::Error::EEXIST) if fs::symlink_metadata(path)?.file_type().is_fifo() => Ok(()),
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack;
    use std::os::unix::fs::chown;

    #[test]
    fn anothers_file_is_left_only_if_it_was_anothers_at_the_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "before").unwrap();
        let of = || {
            let mut header = tar::Header::new_gnu();
            header.set_metadata(&fs::metadata(&path).unwrap());
            header
        };
        let ours = of();
        let is = |header: &tar::Header, bytes: u64| is_others_as_it_was(&path, header, bytes).unwrap();
        assert!(!is(&ours, 6), "what is ours is put back");
        if chown(&path, Some(65534), None).is_ok() {
            assert!(is(&of(), 6) && !is(&of(), 7));
            assert!(!is(&ours, 6), "somebody else has made it since");
        }
    }

    /// An archive with a file of the user's, which is not there any more.
    fn packed(dir: &Path, mode: u32) -> (PathBuf, PathBuf) {
        let (path, tar) = (dir.join("held"), dir.join("x.tar"));
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        pack(File::create(&tar).unwrap(), |tar| tar.append(&path)).unwrap();
        fs::remove_file(&path).unwrap();
        (path, tar)
    }

    #[test]
    fn nothing_is_written_into_a_file_that_another_user_has_made_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let commons = Commons::default().and([dir.path().to_path_buf()]);
        let (path, tar) = packed(dir.path(), 0o600);
        look(&tar, &commons, &|_| false).unwrap();
        fs::write(&path, "theirs").unwrap();
        if let Err(e) = chown(&path, Some(65533), None) {
            assert!(!nix::unistd::geteuid().is_root(), "{e}");
            println!("skipped: only root can give files away");
            return;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        for done in [look(&tar, &commons, &|_| false), unpack(&tar, &commons, &|_| false)] {
            let said = done.unwrap_err();
            assert_eq!(said.kind(), ErrorKind::AlreadyExists);
            assert!(said.to_string().contains("held is in the way"), "{said}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        look(&tar, &commons, &|_| true).unwrap();
    }

    #[test]
    fn a_file_is_its_users_alone_while_it_is_written_and_has_its_rights_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (path, tar) = packed(dir.path(), 0o640);
        let commons = Commons::default();
        let spot = commons.reach(&path).unwrap();
        assert_eq!(open(&spot, 0).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        // What a restore that was cut short has left.
        unpack(&tar, &commons, &|_| false).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, fs::read_to_string(&path).unwrap().as_str()), (0o640, "secret"));
        fs::remove_file(&path).unwrap();
        unpack(&tar, &commons, &|_| false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        symlink("nowhere", dir.path().join("link")).unwrap();
        fs::rename(dir.path().join("link"), &path).unwrap();
        unpack(&tar, &commons, &|_| false).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "a link is not written through");
    }
}
