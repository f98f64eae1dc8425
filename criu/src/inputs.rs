//! Puts files back that a program only reads: what was removed or changed since the checkpoint is as it was again.

use archive::restored;
use openfiles::by_size::{self, NotBack};
use openfiles::read::{Found, Read};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;

/// The files that are not there as they were, or may not be.
pub type Missed<'a> = BTreeMap<&'a Path, &'a Read>;

/// Looks for files under their paths; nothing is changed.
///
/// # Errors
/// A sentence naming the file that cannot be had.
pub fn look(files: &[Read]) -> Result<Missed<'_>, String> {
    let mut missed = Missed::new();
    for file in files {
        match file.look().map_err(|e| e.to_string())? {
            Found::There => {}
            Found::Gone if !file.is_kept => return Err(NotBack::Changed(file.path.clone()).to_string()),
            Found::Gone | Found::Unsure => drop(missed.insert(&file.path, file)),
        }
    }
    Ok(missed)
}

/// Has all of these files be there as they were, out of the archive of those that are kept. What has the name of one now is set
/// aside.
///
/// # Errors
/// A sentence naming the archive, or a file.
pub fn put_back(archive: &Path, missed: &Missed<'_>, lock: &Path) -> Result<(), String> {
    if missed.is_empty() {
        return Ok(());
    }
    // Tasks of a step may put the same file back. Not every file system has locks.
    let _one_by_one = by_size::lock(lock).ok();
    from(archive, missed).map_err(|e| format!("{}: {e}", archive.display()))
}

fn from(archive: &Path, missed: &Missed<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let target = Path::new("/").join(entry.path()?);
        let Some(file) = missed.get(&*target) else { continue };
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        let is_there = file.look().is_ok_and(|found| found != Found::Gone);
        if is_there && file.begins_with(content.as_slice())? {
            continue;
        }
        let aside = file.set_aside()?;
        restored(&target, &content, entry.header())?;
        let since = aside.as_ref().map(|name| format!("; what it was since is {name}")).unwrap_or_default();
        protocol::say!(
            "joulepoint: {}, which the program reads, was {} after the checkpoint, and is as it was then{since}",
            target.display(),
            if aside.is_some() { "changed" } else { "removed" }
        );
    }
    Ok(())
}
