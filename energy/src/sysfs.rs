//! Reads small kernel files and turns them into numbers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Error;

/// No file of the kernel that we read is longer.
const LIMIT: u64 = 4096;

/// The text of a small file, without the line end.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(64);
    File::open(path).and_then(|f| f.take(LIMIT).read_to_end(&mut bytes)).map_err(|e| Error::io(path, e))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_string())
}

/// A whole number that fills a file.
pub(crate) fn number(path: &Path) -> Result<u64, Error> {
    let text = text(path)?;
    text.parse().map_err(|_| Error::malformed(path.display().to_string(), &text))
}

/// The entries of a folder, sorted by name.
pub(crate) fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = std::fs::read_dir(path).map_err(|e| Error::io(path, e))?;
    let mut found: Vec<PathBuf> = list.flatten().map(|e| e.path()).collect();
    found.sort();
    Ok(found)
}

/// The last part of a path as text.
pub(crate) fn leaf(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}
