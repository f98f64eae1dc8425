//! What one task of a step has put back on a node for all of them: another one may keep it when that one has ended.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Adds to what is noted in a file.
///
/// # Errors
/// What the file system says.
pub fn note(file: &Path, all: &[PathBuf]) -> io::Result<()> {
    let known = noted(file)?;
    let new = all.iter().filter(|path| !known.contains(*path));
    let text: Vec<u8> = new.flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)?.write_all(&text)
}

/// What is noted; nothing if there is no such file.
///
/// # Errors
/// What the file system says.
pub fn noted(file: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let text = match fs::read(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let all = text.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(all.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_kinds_are_noted_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("noted");
        assert!(noted(&file).unwrap().is_empty());
        let (one, two) = (PathBuf::from(OsStr::from_bytes(b"/tmp/\xe9")), PathBuf::from("/tmp/a\nb"));
        note(&file, std::slice::from_ref(&one)).unwrap();
        note(&file, &[one.clone(), two.clone()]).unwrap();
        assert_eq!(noted(&file).unwrap(), BTreeSet::from([one, two]));
        assert!(noted(dir.path()).is_err(), "an error is no absence");
    }
}
