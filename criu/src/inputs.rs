//! Puts files back that a program only reads: what was removed since the checkpoint, and what the job has made and changed since.

use archive::{Commons, make_file};
use openfiles::by_size::NotBack;
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
/// Which file cannot be had, or looked for.
pub fn look(files: &[Read]) -> Result<Missed<'_>, NotBack> {
    let mut missed = Missed::new();
    for file in files {
        match file.look()? {
            Found::There => {}
            Found::Gone => return Err(NotBack::Changed(file.path.clone())),
            Found::Unsure | Found::Missing => drop(missed.insert(&file.path, file)),
        }
    }
    Ok(missed)
}

/// Has these files be there as they were, out of the archive of those that are kept. What has the name of one now is set aside.
///
/// # Errors
/// What the file system says.
pub fn put_back(archive: &Path, missed: &Missed<'_>, commons: &Commons) -> io::Result<()> {
    if missed.is_empty() {
        return Ok(());
    }
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let target = Path::new("/").join(entry.path()?);
        let Some(file) = missed.get(&*target) else { continue };
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        // It begins with what is kept: only its time has changed, or it has grown, or another task of the step has put it back.
        if file.content().is_some_and(|(_, now)| now == content) {
            continue;
        }
        let aside = file.set_aside()?;
        make_file(&target, &content, entry.header(), file.modified(), commons)?;
        let since = aside.as_ref().map(|name| format!("; what it was since is {name}")).unwrap_or_default();
        protocol::say!(
            "joulepoint: {}, which the program reads, was {} after the checkpoint, and is as it was then{since}",
            target.display(),
            if aside.is_some() { "changed" } else { "removed" }
        );
    }
    Ok(())
}
