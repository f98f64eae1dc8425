//! Folders of a run in its node's `/tmp`: one for a script whose user names none, which is part of the program's
//! checkpoints; and one for the sockets of relays. The last who holds a folder removes it.

use archive::in_the_way;
use openfiles::held::COMMON;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What helps where a script can have no folder.
const CURE: &str = "set TMPDIR to a folder of your own";

/// A folder of this user's alone, which stays as long as somebody holds it. By the lock the service of the node knows
/// those that were left by who was killed.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    /// The folder itself, with a lock that many can have.
    lock: File,
}

impl Held {
    /// Holds a folder, which is made if it is not there, and which nobody else can enter.
    ///
    /// # Errors
    /// What the file system says; or what is there is another user's, or no folder.
    pub fn hold(path: &Path) -> io::Result<Held> {
        loop {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let lock = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    let there = fs::symlink_metadata(path).ok().filter(|there| !there.is_dir() || !is_ours(there));
                    return Err(there.map_or(e, |there| in_the_way(path, &there)));
                }
                Ok(opened) => opened,
            };
            let own = lock.metadata()?;
            if !is_ours(&own) {
                return Err(in_the_way(path, &own));
            }
            lock.set_permissions(Permissions::from_mode(0o700))?;
            flock(&lock, FlockOperation::LockShared)?;
            // Whoever held it last may have removed it before the lock was had.
            if fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino())) {
                return Ok(Held { path: path.to_path_buf(), lock });
            }
        }
    }
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == nix::unistd::getuid().as_raw()
}

impl Drop for Held {
    fn drop(&mut self) {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A script's folder; removed when this is dropped.
#[derive(Debug)]
pub struct Temporary(Held);

impl Temporary {
    /// Makes the folder of a run, empty and for its user only; it has the same name on every node.
    ///
    /// # Errors
    /// A sentence.
    pub fn make(run: &Path) -> Result<Temporary, String> {
        let name = format!("joulepoint-{:016x}", xxh3_64(run.as_os_str().as_encoded_bytes()));
        let folder = Path::new(COMMON[0]).join(name);
        // Leftovers of an earlier, killed life.
        if fs::symlink_metadata(&folder).is_ok_and(|there| is_ours(&there)) {
            let _ = fs::remove_dir_all(&folder);
        }
        let told = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => format!("{e}; {CURE}"),
            _ => format!("{}: {e}; {CURE}", folder.display()),
        };
        Held::hold(&folder).map(Temporary).map_err(told)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}
