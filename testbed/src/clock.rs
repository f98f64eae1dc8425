//! Gives the daemons of a node a clock that can be set apart from the others', by libfaketime.

use crate::local;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's package libfaketime has the library, below the folder of the machine's architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A node that boots has the right time.
pub(crate) fn make(dir: &Path, node: &str) -> Result<()> {
    set(dir, node, 0)
}

/// Lets the clock of a node be ahead of this machine's, seconds; behind it, if negative.
pub(crate) fn set(dir: &Path, node: &str, ahead_s: i64) -> Result<()> {
    let path = file(dir, node);
    let new = path.with_extension("new");
    fs::write(&new, format!("{ahead_s:+}\n")).with_context(|| new.display().to_string())?;
    Ok(fs::rename(&new, &path)?)
}

/// What daemons need in their environment, to read it.
pub(crate) fn env(dir: &Path, node: &str) -> Result<Vec<(String, String)>> {
    let variable = |name: &str, value: String| (name.to_string(), value);
    Ok(vec![
        variable("LD_PRELOAD", library()?.display().to_string()),
        variable("FAKETIME_TIMESTAMP_FILE", file(dir, node).display().to_string()),
        // The file is read again every second.
        variable("FAKETIME_CACHE_DURATION", "1".into()),
        // What counts from the start of a machine does not jump.
        variable("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ])
}

fn file(dir: &Path, node: &str) -> PathBuf {
    local::folder(dir, node).join("clock")
}

fn library() -> Result<PathBuf> {
    let folders = fs::read_dir(LIBRARIES)?.flatten();
    let mut all = folders.map(|folder| folder.path().join(LIBRARY)).filter(|path| path.exists());
    all.next().context("there is no libfaketime (packaging/test-packages.sh)")
}
