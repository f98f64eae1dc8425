//! Where the files of a user may go: in a folder in which anybody can make files, never into what another user has made there.

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Uid, User, geteuid};
use openfiles::held::{COMMON, SHARED_MEMORY};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// By these rights others than its owner make files in a folder.
const OTHERS: u32 = 0o022;

/// The number of all users whom a sandbox does not know.
const UNKNOWN: u32 = 65534;

/// Folders of a node in which anybody may have made something: what is there now need not be what was there at a checkpoint.
#[derive(Clone, Debug)]
pub struct Commons(Vec<PathBuf>);

impl Default for Commons {
    /// Those of every node.
    fn default() -> Commons {
        Commons(COMMON.into_iter().chain([SHARED_MEMORY]).map(PathBuf::from).collect())
    }
}

impl Commons {
    /// These, and more.
    #[must_use]
    pub fn and(mut self, more: impl IntoIterator<Item = PathBuf>) -> Commons {
        self.0.extend(more);
        self
    }

    /// Looks whether the user can have something at a path, as far as others are concerned.
    ///
    /// # Errors
    /// What is [in the way](in_the_way), or what the file system says.
    pub fn look(&self, path: &Path) -> io::Result<()> {
        match self.above(path) {
            Some(_) => self.look_for(path, geteuid().as_raw().into()),
            None => Ok(()),
        }
    }

    /// The same for what belonged to this user.
    pub(crate) fn look_for(&self, path: &Path, owner: u64) -> io::Result<()> {
        self.walk(path, false)?.map_or(Ok(()), |spot| spot.found(owner).map(drop))
    }

    /// Holds the folder of a path, which is made if it is not there.
    ///
    /// # Errors
    /// What is in the way, or what the file system says.
    pub(crate) fn reach(&self, path: &Path) -> io::Result<Spot> {
        self.walk(path, true)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The outermost of these above a path.
    fn above(&self, path: &Path) -> Option<&Path> {
        let above = self.0.iter().filter(|common| path.parent().is_some_and(|outer| outer.starts_with(common)));
        above.min_by_key(|common| common.as_os_str().len()).map(PathBuf::as_path)
    }

    /// From folder to folder, each by what the one before holds; none if one is missing that is not to be made.
    fn walk(&self, path: &Path, makes: bool) -> io::Result<Option<Spot>> {
        let no_file = || io::Error::new(ErrorKind::InvalidData, format!("{} names no file", path.display()));
        let (outer, name) = path.parent().zip(path.file_name()).ok_or_else(no_file)?;
        let common = self.above(path);
        let mut at = common.unwrap_or(outer).to_path_buf();
        if makes {
            fs::create_dir_all(&at)?;
        }
        let mut folder = match OpenOptions::new().read(true).custom_flags(FOLDER.bits()).open(&at) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut is_users = true;
        for part in outer.strip_prefix(&at).unwrap_or(Path::new("")).components() {
            let Component::Normal(part) = part else { return Err(no_file()) };
            let is_closed = is_users && is_closed(&folder.metadata()?);
            folder = match enter(&folder, part, is_closed, makes && is_users) {
                Ok(inner) => inner,
                Err(_) if !is_users => return Err(in_the_way(&at, &folder.metadata()?)),
                Err(nix::Error::ENOENT) if !makes => return Ok(None),
                Err(nix::Error::ELOOP | nix::Error::ENOTDIR) => {
                    let there = fs::symlink_metadata(within(&folder, part))?;
                    return Err(in_the_way(&at.join(part), &there));
                }
                Err(e) => return Err(e.into()),
            };
            at.push(part);
            is_users = is_closed || is_ours(&folder.metadata()?);
        }
        let found = folder.metadata()?;
        // What is the user's own stays that, whose folder it may be in.
        let is_own = || fs::symlink_metadata(within(&folder, name)).is_ok_and(|there| is_ours(&there));
        if !is_users && !is_own() {
            return Err(in_the_way(&at, &found));
        }
        let of = common.map(|_| is_users && is_closed(&found));
        Ok(Some(Spot { folder, name: name.to_os_string(), whole: path.to_path_buf(), of }))
    }
}

/// How a folder is opened only to be gone through.
const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Opens a folder in another; no link is followed unless nobody else can have made it.
fn enter(folder: &File, name: &OsStr, is_closed: bool, makes: bool) -> nix::Result<File> {
    let flags = if is_closed { FOLDER } else { FOLDER | OFlag::O_NOFOLLOW };
    let open = || openat(folder, name, flags, Mode::empty()).map(File::from);
    match open() {
        Err(nix::Error::ENOENT) if makes => match mkdirat(folder, name, Mode::S_IRWXU) {
            Ok(()) | Err(nix::Error::EEXIST) => open(),
            Err(e) => Err(e),
        },
        opened => opened,
    }
}

/// A path through a folder that is held, whatever has its name.
fn within(folder: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// A name in a folder that is held.
#[derive(Debug)]
pub(crate) struct Spot {
    folder: File,
    name: OsString,
    whole: PathBuf,
    /// In a folder that all share: whether nobody but the owner of its own folder can have made what is there.
    of: Option<bool>,
}

impl Spot {
    /// A path that leads there through the folder.
    pub(crate) fn path(&self) -> PathBuf {
        within(&self.folder, &self.name)
    }

    /// What is there, if anything; `owner` had it at the checkpoint.
    ///
    /// # Errors
    /// What is in the way, or what the file system says.
    pub(crate) fn found(&self, owner: u64) -> io::Result<Option<Metadata>> {
        let found = match fs::symlink_metadata(self.path()) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let is_it = is_ours(&found) || self.of.unwrap_or(u64::from(found.uid()) == owner);
        if is_it { Ok(Some(found)) } else { Err(in_the_way(&self.whole, &found)) }
    }
}

/// Whether nobody but its owner can make something in a folder.
pub fn is_closed(folder: &Metadata) -> bool {
    folder.mode() & OTHERS == 0
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

/// Says what of another user is in the way, and whose it is. Nothing but this node is to blame for that.
pub fn in_the_way(path: &Path, found: &Metadata) -> io::Error {
    let name = || User::from_uid(Uid::from_raw(found.uid())).ok().flatten().map(|user| user.name);
    let whose = match found.uid() {
        UNKNOWN => "another user".to_string(),
        uid => name().map_or_else(|| format!("user {uid}"), |name| format!("user {name}")),
    };
    let words = format!("{} is in the way: it belongs to {whose}", path.display());
    io::Error::new(ErrorKind::AlreadyExists, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// A folder in which anybody may make files, and another in it that the user has made.
    fn common() -> (tempfile::TempDir, Commons) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let commons = Commons::default().and([dir.path().to_path_buf()]);
        (dir, commons)
    }

    #[test]
    fn the_way_leads_through_no_link_in_a_folder_of_all() {
        let (dir, commons) = common();
        let (own, elsewhere) = (dir.path().join("own"), tempfile::tempdir().unwrap());
        let spot = commons.reach(&own.join("below/file")).unwrap();
        fs::write(spot.path(), "").unwrap();
        assert!(own.join("below/file").exists());
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        symlink(elsewhere.path(), own.join("link")).unwrap();
        let said = commons.reach(&dir.path().join("link/file")).unwrap_err();
        assert!(said.kind() == ErrorKind::AlreadyExists && said.to_string().contains("/link is in the way"), "{said}");
        fs::write(commons.reach(&own.join("link/file")).unwrap().path(), "").unwrap();
        assert!(elsewhere.path().join("file").exists(), "nobody else can have made that link");
        commons.look(&dir.path().join("missing/file")).unwrap();
        assert!(!dir.path().join("missing").exists(), "a look makes nothing");
    }

    #[test]
    fn a_folder_or_file_of_another_user_is_in_the_way_whatever_its_rights_are() {
        let (dir, commons) = common();
        let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        for path in [&folder, &file] {
            if let Err(e) = chown(path, Some(UNKNOWN - 1), None) {
                assert!(!nix::unistd::geteuid().is_root(), "{e}");
                println!("skipped: only root can give files away");
                return;
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        for path in [&folder, &folder.join("data"), &folder.join("below/data"), &file, &file.join("data")] {
            let said = commons.look(path).unwrap_err().to_string();
            let first = if path.starts_with(&folder) { &folder } else { &file };
            let expected = format!("{} is in the way: it belongs to user ", first.display());
            assert!(said.starts_with(&expected), "{said}");
            assert!(commons.reach(path).and_then(|spot| spot.found(0)).is_err());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        // The user's own folder is, wherever it lies.
        fs::create_dir(folder.join("own")).unwrap();
        commons.look(&folder.join("own/data")).unwrap();
        fs::write(folder.join("own.dat"), "").unwrap();
        assert!(commons.reach(&folder.join("own.dat")).unwrap().found(0).unwrap().is_some(), "and so is a file");
        // Elsewhere a file belongs to whom it belonged at the checkpoint.
        let spot = Spot { of: None, ..commons.reach(&file).unwrap() };
        assert!(spot.found((UNKNOWN - 1).into()).unwrap().is_some() && spot.found(0).is_err());
    }
}
