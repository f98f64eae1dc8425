//! Work of a thread that may stop to be wanted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a thread that its work is no longer wanted.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the thread to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it was asked to.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// # Errors
    /// It was asked to.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_asked() { Err(io::Error::other("given up")) } else { Ok(()) }
    }

    /// A new file that only its user may read, and whose writes fail after [`Stop::ask`].
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(&self, path: &Path) -> io::Result<Stoppable> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Stoppable { file, stop: self.clone() })
    }
}

/// A file whose writes fail once the work is no longer wanted.
#[derive(Debug)]
pub struct Stoppable {
    file: File,
    stop: Stop,
}

impl Write for Stoppable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stop.check()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
