//! Brings the files of a checkpoint back to where they were taken from, as they were.

use crate::copy::{LONGEST_NAME_BYTES, Looks, checksum, open};
use crate::stream::transfer;
use crate::{Error, Patience, Result, attributes, storage};
use protocol::{FileLink, Manifest, ManifestFile};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Suffix of a file's name until it is complete.
const BESIDE: &str = ".joulepoint";

/// Brings the files of a checkpoint back; those that are there unchanged stay. Files without an original are left to the
/// command that knows them. Sentences on what of them could not be set.
///
/// # Errors
/// What the file system says, for as long as it is tried.
pub fn bring_back(manifest: &Manifest, folder: &Path, patience: Patience) -> Result<Vec<String>> {
    let (mut remarks, mut folders) = (Vec::new(), BTreeSet::new());
    for file in manifest.files.iter().filter(|f| !f.original.as_os_str().is_empty()) {
        let original = file.original.as_path();
        patience.with(|| bring_one_back(file, folder)).map_err(Error::at(original))?;
        if let Some(attributes) =
            file.attributes.as_ref().filter(|to| attributes::of(original).ok().as_ref() != Some(to))
        {
            let all = attributes::set(original, attributes);
            remarks.extend(all.into_iter().map(|remark| format!("{}: {remark}", original.display())));
        }
        folders.extend(original.parent().map(Path::to_path_buf));
    }
    for folder in folders {
        patience.with(|| storage::sync_folder(&folder)).map_err(Error::at(&folder))?;
    }
    Ok(remarks)
}

/// Files that their program has written after a checkpoint, with another content than that has.
pub fn newer(manifest: &Manifest) -> Vec<PathBuf> {
    let is_newer = |file: &&ManifestFile| {
        let Ok(now) = fs::symlink_metadata(&file.original) else { return false };
        let taken =
            file.attributes.as_ref().map_or((i64::MIN, 0), |then| (then.modified.0, i64::from(then.modified.1)));
        let is_later = now.is_file() && file.link.is_none() && (now.mtime(), now.mtime_nsec()) > taken;
        is_later && !checksum(&file.original).is_ok_and(|here| here == (file.bytes, file.xxh3.clone()))
    };
    manifest.files.iter().filter(is_newer).map(|file| file.original.clone()).collect()
}

fn bring_one_back(file: &ManifestFile, folder: &Path) -> io::Result<()> {
    let original = file.original.as_path();
    let name = original.file_name().unwrap_or_default().as_bytes();
    let mut beside = OsStr::from_bytes(&name[..name.len().min(LONGEST_NAME_BYTES)]).to_owned();
    beside.push(BESIDE);
    let beside = original.with_file_name(beside);
    if let Some(parent) = original.parent() {
        fs::create_dir_all(parent)?;
    }
    match &file.link {
        Some(FileLink::Symbolic(target)) => {
            if fs::read_link(original).is_ok_and(|here| here == *target) {
                return Ok(());
            }
            removed(&beside)?;
            symlink(target, &beside)?;
        }
        Some(FileLink::Hard(other)) => {
            let key = |path: &Path| Looks::of(path).map(|looks| looks.file).ok();
            if key(original).is_some() && key(original) == key(other) {
                return Ok(());
            }
            removed(&beside)?;
            fs::hard_link(other, &beside)?;
        }
        None => {
            if checksum(original).is_ok_and(|here| here == (file.bytes, file.xxh3.clone())) {
                return Ok(());
            }
            copy_back(&folder.join(&file.copy), &beside, file)?;
        }
    }
    fs::rename(&beside, original)
}

fn copy_back(copy: &Path, beside: &Path, file: &ManifestFile) -> io::Result<()> {
    removed(beside)?;
    // A private file must not be readable by others while it is written.
    let mode = if file.attributes.is_some() { 0o600 } else { 0o666 };
    let mut from = open(copy)?;
    let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(beside)?;
    let found = transfer(&mut from, &mut to)?;
    if found != (file.bytes, file.xxh3.clone()) {
        return Err(io::Error::other("what was read of the checkpoint is not what it holds"));
    }
    to.sync_all()
}

/// Removes the leftover of an earlier try.
fn removed(path: &Path) -> io::Result<()> {
    storage::gone(fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::take;
    use std::os::unix::fs::PermissionsExt;

    struct Place(tempfile::TempDir);

    impl Place {
        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn taken(&self, names: &[&str]) -> Manifest {
            let into = self.path("copies");
            fs::create_dir(&into).unwrap();
            let originals: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
            Manifest { files: take(&originals, &into).unwrap(), ..Manifest::default() }
        }

        fn back(&self, manifest: &Manifest) -> Vec<String> {
            bring_back(manifest, &self.path("copies"), Patience::NONE).unwrap()
        }
    }

    fn place() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    #[test]
    fn a_name_of_any_bytes_and_length_comes_back() {
        let place = place();
        let long = "é".repeat(127);
        let names = [OsStr::from_bytes(b"caf\xe9"), OsStr::from_bytes(&[0xe9; 255]), OsStr::new(&long)];
        let originals: Vec<PathBuf> = names.iter().map(|name| place.0.path().join(name)).collect();
        originals.iter().for_each(|path| fs::write(path, "kept").unwrap());
        symlink(&originals[0], place.path("latest")).unwrap();
        let into = place.path("copies");
        fs::create_dir(&into).unwrap();
        let files = take(&[&originals[..], &[place.path("latest")]].concat(), &into).unwrap();
        let manifest = Manifest { files, ..Manifest::default() };
        let read: Manifest = serde_json::from_slice(&serde_json::to_vec(&manifest).unwrap()).unwrap();
        assert_eq!(read, manifest);
        originals.iter().for_each(|path| fs::write(path, "later").unwrap());
        assert_eq!(place.back(&read), Vec::<String>::new());
        assert!(originals.iter().all(|path| fs::read_to_string(path).unwrap() == "kept"));
    }

    #[test]
    fn files_come_back_with_their_content_mode_times_and_attributes() {
        let place = place();
        let state = place.path("out/state");
        fs::create_dir(place.path("out")).unwrap();
        fs::write(&state, "at the checkpoint").unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o2600)).unwrap();
        let has_extended = xattr::set(&state, "user.run", b"a\0b").is_ok();
        let before = attributes::of(&state).unwrap();
        let manifest = place.taken(&["out/state"]);
        for harm in [
            &mut |path: &Path| fs::write(path, "later").unwrap() as (),
            &mut |path: &Path| fs::remove_dir_all(path.parent().unwrap()).unwrap(),
            &mut |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap(),
        ] as [&mut dyn FnMut(&Path); 3]
        {
            harm(&state);
            assert_eq!(place.back(&manifest), Vec::<String>::new());
            assert_eq!(fs::read_to_string(&state).unwrap(), "at the checkpoint");
            let after = attributes::of(&state).unwrap();
            assert_eq!((after.mode, after.modified), (before.mode, before.modified));
            assert_eq!(after.extended, before.extended);
            assert!(!has_extended || after.extended.contains_key("user.run"));
        }
    }

    #[test]
    fn links_come_back_as_links() {
        let place = place();
        fs::write(place.path("state.1"), "one").unwrap();
        fs::hard_link(place.path("state.1"), place.path("same")).unwrap();
        symlink("state.1", place.path("latest")).unwrap();
        let manifest = place.taken(&["latest", "same", "state.1"]);
        for name in ["state.1", "same", "latest"] {
            fs::remove_file(place.path(name)).unwrap();
        }
        fs::write(place.path("latest"), "a file in its place").unwrap();
        for _ in 0..2 {
            assert_eq!(place.back(&manifest), Vec::<String>::new());
            assert_eq!(fs::read_link(place.path("latest")).unwrap(), Path::new("state.1"));
            let inode = |name: &str| fs::symlink_metadata(place.path(name)).unwrap().ino();
            assert_eq!(inode("same"), inode("state.1"));
        }
    }

    #[test]
    fn a_manifest_of_a_version_before_brings_its_files_back_as_new_ones() {
        let place = place();
        fs::write(place.path("state"), "one").unwrap();
        let mut manifest = place.taken(&["state"]);
        manifest.files[0].attributes = None;
        fs::remove_file(place.path("state")).unwrap();
        place.back(&manifest);
        assert_eq!(fs::read_to_string(place.path("state")).unwrap(), "one");
    }

    #[test]
    fn a_copy_that_is_not_what_the_manifest_says_never_takes_the_place_of_a_file() {
        let place = place();
        fs::write(place.path("state"), "good").unwrap();
        let manifest = place.taken(&["state"]);
        fs::write(place.path("copies").join(&manifest.files[0].copy), "baad").unwrap();
        fs::write(place.path("state"), "later").unwrap();
        assert!(bring_back(&manifest, &place.path("copies"), Patience::NONE).is_err());
        assert_eq!(fs::read_to_string(place.path("state")).unwrap(), "later");
    }

    #[test]
    fn a_link_that_somebody_has_put_in_the_way_is_not_followed() {
        let place = place();
        fs::write(place.path("state"), "good").unwrap();
        let manifest = place.taken(&["state"]);
        fs::remove_file(place.path("state")).unwrap();
        fs::write(place.path("victim"), "untouched").unwrap();
        symlink(place.path("victim"), place.path("state.joulepoint")).unwrap();
        symlink(place.path("victim"), place.path("state")).unwrap();
        place.back(&manifest);
        assert_eq!(fs::read_to_string(place.path("victim")).unwrap(), "untouched");
        assert!(fs::symlink_metadata(place.path("state")).unwrap().is_file());
    }
}
