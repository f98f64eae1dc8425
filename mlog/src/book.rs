//! The address book of a run: one file for each relay, in a folder that all groups see.

use crate::{Error, system};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where the relay of a group is; read again at each attempt to reach it, since it may have moved to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Version of this form.
    pub version: u32,
    /// The group.
    pub group: usize,
    /// Groups of the run.
    pub groups: usize,
    /// Host and port for other relays.
    pub address: String,
    /// The unix socket for the group's program, on that host.
    pub socket: PathBuf,
    /// Process id on that host.
    pub pid: u32,
}

/// The folder `relays/` of a run.
#[derive(Clone, Debug)]
pub struct Book {
    folder: PathBuf,
}

impl Book {
    /// The book of a run's folder; made if it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(run: &Path) -> Result<Book, Error> {
        let folder = run.join("relays");
        fs::create_dir_all(&folder).map_err(system(folder.display()))?;
        Ok(Book { folder })
    }

    /// A name in the book's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The address of a group's relay.
    ///
    /// # Errors
    /// It is not there yet, or is no address.
    pub fn read(&self, group: usize) -> Result<Address, Error> {
        let path = self.path(&format!("{group}.json"));
        let text = fs::read(&path).map_err(system(path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Writes the address of a group's relay.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, address: &Address) -> Result<(), Error> {
        replace(&self.path(&format!("{}.json", address.group)), &serde_json::to_vec_pretty(address)?)
    }
}

/// Replaces a file in one go: a temporary name, synced, renamed, its folder synced.
///
/// # Errors
/// What the file system says.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(system(path.display()))
}
