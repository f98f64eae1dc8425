//! The storage of the runs' folders and the disk of the controller service: both of the harness's own, so that they can fail.

use super::history::Storage;
use anyhow::{Context, Result};
use faultfs::{Command, FaultFs, Mounted, Settings};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Room of the disk of the controller service.
const DISK: &str = "size=96m,mode=755";

/// How long the storage remembers names and attributes, s: all nodes are one client of it here.
const TTL: Duration = Duration::from_secs(3);

/// Both, mounted; gone when this is dropped.
pub struct Disks {
    place: PathBuf,
    fs: FaultFs,
    _runs: Mounted,
}

impl Disks {
    /// Mounts both below a folder.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn mount(place: &Path, seed: u64) -> Result<Disks> {
        let [runs, books] = ["runs", "books"].map(|name| place.join(name));
        [&runs, &books].into_iter().try_for_each(fs::create_dir_all)?;
        let fs = FaultFs::new(Settings { ttl: TTL, clock_runs: true, seed, mode: 0o1777, ..Settings::default() });
        let mounted = fs.mount(&runs).with_context(|| runs.display().to_string())?;
        mount(Some("tmpfs"), &books, Some("tmpfs"), MsFlags::empty(), Some(DISK))
            .with_context(|| books.display().to_string())?;
        Ok(Disks { place: place.to_path_buf(), fs, _runs: mounted })
    }

    /// Where the runs' folders are.
    pub fn runs(&self) -> PathBuf {
        self.place.join("runs")
    }

    /// Where the store of the controller service is.
    pub fn store(&self) -> PathBuf {
        self.place.join("books/store.sqlite")
    }

    /// Lets the storage fail.
    ///
    /// # Errors
    /// The harness's own.
    pub fn fail(&self, how: Storage) -> Result<()> {
        self.obey(match how {
            Storage::Eio => "fault error=EIO chance=0.3",
            Storage::Estale => "fault error=ESTALE chance=0.3",
            Storage::Eacces => "fault error=EACCES chance=0.3",
            Storage::Enospc => "fault error=ENOSPC op=create,mkdir,write,flush,fsync,allocate",
            Storage::Edquot => "fault error=EDQUOT op=create,mkdir,write,flush,fsync,allocate",
            Storage::Slow => "fault delay=0.25",
            Storage::Hang => "fault hang",
            Storage::Crash => "crash",
        })
    }

    /// Lets the storage work again, and what hangs go on.
    ///
    /// # Errors
    /// The harness's own.
    pub fn mend(&self) -> Result<()> {
        ["clear", "release"].into_iter().try_for_each(|line| self.obey(line))
    }

    fn obey(&self, line: &str) -> Result<()> {
        let command: Command = line.parse()?;
        self.fs.obey(&command).map(drop).with_context(|| line.to_string())
    }

    fn filler(&self) -> PathBuf {
        self.place.join("books/filler")
    }

    /// Fills the disk of the controller service.
    ///
    /// # Errors
    /// It cannot be written to at all.
    pub fn fill_books(&self) -> Result<()> {
        let mut filler = File::create(self.filler())?;
        // The last bytes, too.
        for size in [1 << 20, 4 << 10, 1] {
            let block = vec![0; size];
            while filler.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// What the file system says.
    pub fn empty_books(&self) -> Result<()> {
        match fs::remove_file(self.filler()) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = self.mend();
        let _ = umount2(&self.place.join("books"), MntFlags::MNT_DETACH);
    }
}
