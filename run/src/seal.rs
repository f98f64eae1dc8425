//! Seals the checkpoints of earlier holders: incomplete ones are moved away, so that nobody can complete them.

use crate::checkpoint::{self, Read, State};
use crate::owners::Owners;
use crate::{Error, Patience, Result, storage};
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the checkpoints in a run's.
pub const CHECKPOINTS: &str = "checkpoints";

/// Folder for checkpoints that were incomplete when a later holder took the run up.
pub const SEALED: &str = "sealed";

/// Seals the checkpoints of a run for a new holder; returns the highest number so far.
///
/// # Errors
/// What the file system says: then nobody may go on with the run.
pub(crate) fn seal(run: &Path, owners: &Owners, holder: u64, patience: Patience) -> Result<u64> {
    let mut last = owners.last_first().saturating_sub(1);
    for folder in folders(run, patience)? {
        storage::refresh(&folder);
        let numbers = numbers(&folder, patience)?;
        for number in &numbers {
            last = last.max(*number);
            seal_one(&folder, *number, holder, patience)?;
        }
        try_again(&folder, &numbers, patience);
        last = last.max(unseal(&folder, owners, patience)?.last);
    }
    Ok(last)
}

/// The folders that hold checkpoints: the run's, and each group's.
fn folders(run: &Path, patience: Patience) -> Result<Vec<PathBuf>> {
    let all = run.join(CHECKPOINTS);
    let is_group = |name: &str| name.strip_prefix('g').is_some_and(|n| n.parse::<u64>().is_ok());
    let names = storage::names(&all, patience)?;
    let groups = names.iter().filter(|name| name.to_str().is_some_and(is_group)).map(|name| all.join(name));
    let groups: Vec<PathBuf> = groups.collect();
    Ok([all].into_iter().chain(groups).collect())
}

/// The numbers of the checkpoints in a folder, complete or not, but not of those that are sealed.
pub(crate) fn numbers(folder: &Path, patience: Patience) -> Result<Vec<u64>> {
    let names = storage::names(folder, patience)?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// The sealed checkpoints in a folder: numbers and paths.
pub(crate) fn sealed(folder: &Path, patience: Patience) -> Result<Vec<(u64, PathBuf)>> {
    let sealed = folder.join(SEALED);
    let names = storage::names(&sealed, patience)?;
    let number = |name: &str| name.split('.').next()?.parse().ok();
    Ok(names.iter().filter_map(|name| Some((number(name.to_str()?)?, sealed.join(name)))).collect())
}

/// Lets checkpoints be restored again if none of them could be: another node may do what the one before could not. Where an older
/// one is used, the run has gone on from that, and files are as it has left them.
fn try_again(folder: &Path, numbers: &[u64], patience: Patience) {
    let paths = numbers.iter().map(|number| folder.join(number.to_string()));
    let complete: Vec<PathBuf> =
        paths.filter(|path| matches!(checkpoint::state(path, patience), Ok(State::Complete))).collect();
    if complete.iter().all(|path| matches!(checkpoint::not_restored(path, patience), Ok(Some(_)))) {
        complete.iter().for_each(|path| checkpoint::try_again(path, patience));
    }
}

/// Moves a checkpoint away, unless it is complete: a holder that still writes it no longer finds it.
fn seal_one(folder: &Path, number: u64, holder: u64, patience: Patience) -> Result<()> {
    // A checkpoint that cannot be read now may be complete: it is moved too, and looked at again when nobody can
    // complete it any more.
    match checkpoint::state(&folder.join(number.to_string()), Patience::NONE) {
        Ok(State::Complete | State::SetAside) => Ok(()),
        Ok(State::Incomplete) | Err(_) => move_away(folder, number, holder, patience).map(drop),
    }
}

/// Moves a checkpoint away from a holder that may still write it; returns its new path.
pub(crate) fn move_away(folder: &Path, number: u64, holder: u64, patience: Patience) -> Result<PathBuf> {
    let (path, sealed) = (folder.join(number.to_string()), folder.join(SEALED));
    storage::make_folder(&sealed, patience)?;
    let mut away = sealed.join(format!("{number}.{holder}"));
    for again in 1.. {
        if !storage::is_there(&away, patience)? {
            break;
        }
        away = sealed.join(format!("{number}.{holder}.{again}"));
    }
    patience.with(|| fs::rename(&path, &away)).map_err(Error::at(&path))?;
    Ok(away)
}

/// What remains sealed in a folder.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The highest number of all that were there.
    pub last: u64,
    /// Folders that never were complete.
    pub incomplete: Vec<PathBuf>,
    /// A sentence for each that cannot be read now.
    pub unread: Vec<String>,
}

/// Moves checkpoints back that turn out to be complete.
pub(crate) fn unseal(folder: &Path, owners: &Owners, patience: Patience) -> Result<Left> {
    let mut left = Left::default();
    for (number, path) in sealed(folder, patience)? {
        left.last = left.last.max(number);
        storage::refresh(&path);
        let back = folder.join(number.to_string());
        let unread = |why: String| format!("checkpoint {number} cannot be read: {why}");
        let manifest = match checkpoint::state(&path, patience) {
            Ok(State::Complete) => checkpoint::manifest(&path, patience),
            Ok(State::Incomplete) => {
                left.incomplete.push(path);
                continue;
            }
            Ok(State::SetAside) => continue,
            Err(e) => Err(e),
        };
        match manifest {
            Ok(Read::Manifest(m)) if owners.is_rightful(&m) && !storage::is_there(&back, patience)? => {
                patience.with(|| fs::rename(&path, &back)).map_err(Error::at(&path))?;
            }
            Ok(Read::Manifest(_) | Read::Damaged(_)) => {}
            Ok(Read::Foreign(why)) => left.unread.push(unread(why)),
            Err(e) => left.unread.push(unread(e.to_string())),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(run: &Path, names: &[&str]) -> PathBuf {
        let folder = run.join(CHECKPOINTS);
        for name in names {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, r#"{"version":1,"number":1,"begun_s":0,"ended_s":0,"joules":null,"bytes":0,"step":"","engine":"app","files":[]}"#).unwrap();
        }
        folder
    }

    #[test]
    fn half_made_checkpoints_go_out_of_the_way_and_complete_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder_with(dir.path(), &["1/manifest.json", "2/0000-state", "3/manifest.damaged", "g1/9/half"]);
        assert_eq!(seal(dir.path(), &Owners::default(), 5, Patience::NONE).unwrap(), 9);
        assert_eq!(numbers(&folder, Patience::NONE).unwrap().len(), 2);
        assert!(folder.join("sealed/2.5/0000-state").exists() && folder.join("g1/sealed/9.5/half").exists());
        assert!(fs::write(folder.join("2/manifest.partial"), "late").is_err(), "nobody completes it any more");
        // The numbers of what was sealed are not used again.
        assert_eq!(seal(dir.path(), &Owners::default(), 6, Patience::NONE).unwrap(), 9);
        let mut owners = Owners::default();
        owners.add(6, 20);
        assert_eq!(seal(dir.path(), &owners, 7, Patience::NONE).unwrap(), 19);
    }

    #[test]
    fn one_that_could_not_be_read_when_it_was_sealed_comes_back_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder_with(dir.path(), &["sealed/1.5/manifest.json", "sealed/2.5/half"]);
        let left = unseal(&folder, &Owners::default(), Patience::NONE).unwrap();
        assert!(folder.join("1/manifest.json").exists());
        assert_eq!((left.last, left.incomplete.len(), left.unread.len()), (2, 1, 0));
        // One that names a holder to whom its number does not belong stays.
        fs::rename(folder.join("1"), folder.join("sealed/1.6")).unwrap();
        let mut owners = Owners::default();
        owners.add(1, 1);
        unseal(&folder, &owners, Patience::NONE).unwrap();
        assert!(folder.join("sealed/1.6/manifest.json").exists());
    }

    #[test]
    fn one_that_is_complete_and_whose_manifest_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(CHECKPOINTS);
        // A folder in its place: it is there, and reading it is an error.
        fs::create_dir_all(folder.join("sealed/1.5/manifest.json")).unwrap();
        let left = unseal(&folder, &Owners::default(), Patience::NONE).unwrap();
        assert!(left.incomplete.is_empty() && left.unread[0].contains("checkpoint 1 cannot be read"), "{left:?}");
        fs::remove_dir(folder.join("sealed/1.5/manifest.json")).unwrap();
        folder_with(dir.path(), &["sealed/1.5/manifest.json"]);
        assert!(unseal(&folder, &Owners::default(), Patience::NONE).unwrap().unread.is_empty());
        assert!(folder.join("1/manifest.json").exists());
    }
}
