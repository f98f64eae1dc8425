//! Copies files that a restore is about to write over, or what was added to them: another program may have written to them
//! since the dump.

use crate::back::is_others_as_it_was;
use crate::holes::{Sparse, copy_with_holes};
use openfiles::by_size::{self, aside, keep_tail, lost};
use openfiles::held::is_lost;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

const BLOCK_BYTES: usize = 1 << 16;

/// What has become of the files.
#[derive(Debug, Default)]
pub struct Kept {
    /// Where what was added to them is kept.
    pub paths: Vec<PathBuf>,
    /// What is said of what could not be.
    pub lost: Vec<String>,
}

/// Copies each file whose content differs from the archive's to `.NAME.joulepoint-aside-TIME` beside it, where TIME
/// is its last change, s since the epoch. Of one that was only added to, what was added is kept in the folder `cut_off`. Files in
/// folders that die with the node are not copied: no other program keeps them. Those that are `left` as they are lose nothing.
///
/// # Errors
/// What the file system says.
pub fn keep_changed(archive: &Path, cut_off: &Path, left: &BTreeSet<&Path>) -> io::Result<Kept> {
    let mut all = Kept::default();
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let target = Path::new("/").join(entry.path()?);
        // Its content is that of a name before.
        if entry.header().entry_type().is_hard_link() {
            continue;
        }
        let bytes = entry.size();
        if is_lost(&target) || left.contains(&*target) || is_others_as_it_was(&target, entry.header(), bytes)? {
            continue;
        }
        let has_grown = unless_added_to(&mut entry, &target, bytes).map_err(|e| {
            let path = target.display();
            io::Error::new(e.kind(), format!("what {path} holds now cannot be copied beside it: {e}"))
        })?;
        if has_grown {
            match keep_tail(&target, bytes, cut_off) {
                Ok(kept) => all.paths.push(kept),
                Err(e) => all.lost.push(lost(&target, &e)),
            }
        }
    }
    Ok(all)
}

/// Copies a file, unless its archived content, of so many `bytes`, is still its beginning; whether more follows then.
fn unless_added_to(kept: &mut impl Read, path: &Path, bytes: u64) -> io::Result<bool> {
    let file = match by_size::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ELOOP) => return Ok(false),
        opened => opened?,
    };
    let found = file.metadata()?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    if !found.is_file() {
        return Ok(false);
    }
    if begins_with(&mut Sparse::new(&file)?, kept)? {
        return Ok(found.len() > bytes);
    }
    let aside = aside(&name.to_string_lossy(), &found);
    let mut copy = tempfile::Builder::new().prefix(&aside).tempfile_in(folder)?;
    copy_with_holes(&mut Sparse::new(&file)?, copy.as_file_mut())?;
    // Another task of the step may restore the same file: the first copy is the one from before any of them began.
    match copy.persist_noclobber(folder.join(aside)) {
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        persisted => Ok(persisted.map(|_| false)?),
    }
}

fn begins_with(file: &mut impl Read, kept: &mut impl Read) -> io::Result<bool> {
    let (mut wanted, mut found) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    loop {
        let bytes = match kept.read(&mut wanted) {
            Ok(0) => return Ok(true),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        match file.read_exact(&mut found[..bytes]) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if wanted[..bytes] != found[..bytes] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_would_be_lost_is_copied_beside_it_and_what_was_added_is_not() {
        let long = "x".repeat(3 * BLOCK_BYTES);
        for (kept, found, is_aside) in [
            ("before", Some("before"), false),
            ("before", Some("before, and more"), false),
            ("before", Some("behind"), true),
            ("before", Some("bef"), true),
            (&long, Some(&long[1..]), true),
            ("before", None, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data");
            if let Some(found) = found {
                fs::write(&path, found).unwrap();
            }
            for _again in 0..2 {
                let grown = unless_added_to(&mut kept.as_bytes(), &path, kept.len() as u64).unwrap();
                assert_eq!(grown, found.is_some_and(|found| found.starts_with(kept) && found.len() > kept.len()));
            }
            let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
            let asides: Vec<_> = names.filter(|p| *p != path).collect();
            assert_eq!(asides.len(), usize::from(is_aside), "{asides:?}");
            for aside in asides {
                assert!(aside.file_name().unwrap().to_string_lossy().starts_with(".data.joulepoint-aside-"));
                assert_eq!(Some(fs::read_to_string(aside).unwrap().as_str()), found);
            }
        }
    }
}
