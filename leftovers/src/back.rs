//! Puts files back that a checkpoint holds.

use crate::{Place, TICK, made};
use archive::make_fifo;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use openfiles::by_size::is_of_job;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tar::EntryType;

/// In the environment of a script, and of the steps that it starts: when it was started, s since 1970.
const BEGAN: &str = "JOULEPOINT_SCRIPT_BEGAN";

/// What a script that is started now has in its environment.
pub fn began_now() -> (&'static str, String) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    (BEGAN, format!("{now_s:.3}"))
}

/// When the script was started to which this process belongs.
fn began() -> Option<SystemTime> {
    let seconds: f64 = std::env::var(BEGAN).ok()?.parse().ok()?;
    Some(UNIX_EPOCH + Duration::try_from_secs_f64(seconds).ok()?)
}

/// Since when files were made by a script that has begun again from its top, and by nothing else of its job: none if another of its
/// steps has come back on this node before, which may have written some. Whoever asks leaves a file `mark`, with the name of
/// the node and of that start behind it.
pub fn made_anew(mark: &Path) -> Option<SystemTime> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let of = format!(".{}.{}", host.to_string_lossy(), std::env::var(BEGAN).unwrap_or_default());
    let mut name = mark.as_os_str().to_owned();
    name.push(of);
    began().filter(|_| fs::File::create_new(name).is_ok())
}

/// What is not as it was.
#[derive(Debug, Default)]
pub struct NotBack {
    /// What could not be put back, and why.
    pub missed: Vec<(PathBuf, io::Error)>,
    /// What is there already, and not as it was.
    pub other: Vec<PathBuf>,
}

/// Puts an archive of files in these places back where nothing has their names. It is unpacked in a folder that only the user can
/// enter, so that nobody can put a link in its way, then moved into place. What is not as it was then.
///
/// A script with steps begins from its top, and its steps go on from where they were: what it has made again since it was started
/// gives way, if its path has the job's number and it was made since `anew`.
pub fn put_back(archive: &Path, places: &[Place], anew: Option<SystemTime>) -> NotBack {
    let mut not = NotBack::default();
    for place in places {
        if let Err(e) = into(&place.path, archive, anew, &mut not) {
            not.missed.push((place.path.clone(), e));
        }
    }
    not
}

fn into(folder: &Path, archive: &Path, since: Option<SystemTime>, not: &mut NotBack) -> io::Result<()> {
    let below = folder.strip_prefix("/").unwrap_or(folder);
    // A random name, since other programs are restored on this node too.
    let stage = |at: &Path| tempfile::Builder::new().prefix(".joulepoint-back-").tempdir_in(at);
    let stage = match stage(folder) {
        Ok(stage) => stage,
        // Where users have folders of their own, in one of these.
        Err(e) => {
            let Some(folders) = folders_in(archive, below)? else { return Ok(()) };
            let us = nix::unistd::getuid().as_raw();
            let is_ours = |own: &&PathBuf| fs::symlink_metadata(own).is_ok_and(|m| m.is_dir() && m.uid() == us);
            folders.iter().filter(is_ours).find_map(|own| stage(own).ok()).ok_or(e)?
        }
    };
    // Of what is not whole nothing takes a place.
    unpack(archive, below, stage.path())?;
    for entry in fs::read_dir(stage.path().join(below)).into_iter().flatten().flatten() {
        place(&entry.path(), &folder.join(entry.file_name()), since, not);
    }
    Ok(())
}

/// The folders that an archive has below one, as paths; none if it has nothing there.
fn folders_in(archive: &Path, below: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let mut found: Option<Vec<PathBuf>> = None;
    for entry in tar::Archive::new(io::BufReader::new(fs::File::open(archive)?)).entries()? {
        let entry = entry?;
        let path = entry.path()?.into_owned();
        if path.starts_with(below) {
            let folders = found.get_or_insert_default();
            if entry.header().entry_type() == EntryType::Directory {
                folders.push(Path::new("/").join(path));
            }
        }
    }
    Ok(found)
}

/// Moves an entry into place if that is free, or held by a file that was made since then. For a folder that exists and is the
/// user's or the system's, moves its entries.
fn place(from: &Path, to: &Path, since: Option<SystemTime>, not: &mut NotBack) {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => {}
        Err(nix::Error::EEXIST) => {
            let (Ok(new), Ok(there)) = (fs::symlink_metadata(from), fs::symlink_metadata(to)) else {
                return not.other.push(to.to_path_buf());
            };
            let us = nix::unistd::getuid().as_raw();
            if there.is_dir() && [us, 0].contains(&there.uid()) {
                for entry in fs::read_dir(from).into_iter().flatten().flatten() {
                    place(&entry.path(), &to.join(entry.file_name()), since, not);
                }
            } else if !is_same(&new, &there) {
                let are_files = new.is_file() && there.is_file() && there.uid() == us;
                let is_anew = since.is_some_and(|since| made(&there) + TICK >= since) && is_of_job(to);
                match (are_files && is_anew).then(|| fs::rename(from, to)) {
                    Some(Ok(())) => {}
                    Some(Err(e)) => not.missed.push((to.to_path_buf(), e)),
                    None => not.other.push(to.to_path_buf()),
                }
            }
        }
        Err(e) => not.missed.push((to.to_path_buf(), e.into())),
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    let is_like = (a.len(), a.mtime()) == (b.len(), b.mtime()) || !a.is_file();
    a.file_type() == b.file_type() && a.uid() == b.uid() && is_like
}

fn unpack(archive: &Path, below: &Path, stage: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::new(fs::File::open(archive)?));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        match entry.header().entry_type() {
            _ if !path.starts_with(below) => {}
            EntryType::Fifo if path.components().all(|c| matches!(c, Component::Normal(_))) => {
                let to = stage.join(path);
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                make_fifo(&to, entry.header().mode()?)?;
            }
            _ => drop(entry.unpack_in(stage)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt;

    #[test]
    fn what_comes_back_takes_no_place_that_is_taken_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("tmp"), dir.path().join("x.tar"));
        let name = |path: &str| folder.join(path).strip_prefix("/").unwrap().to_path_buf();
        let mut builder = tar::Builder::new(fs::File::create(&tar).unwrap());
        for (path, text) in [
            ("free/file", "back"),
            ("taken", "back"),
            ("linked/file", "back"),
            ("there/a", "back"),
            ("there/b", "back"),
            ("anew", "back"),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name(path), text.as_bytes()).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Fifo);
        header.set_size(0);
        header.set_mode(0o640);
        builder.append_data(&mut header, name("free/fifo"), std::io::empty()).unwrap();
        builder.into_inner().unwrap();
        fs::create_dir(&folder).unwrap();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        fs::write(folder.join("taken"), "mine").unwrap();
        fs::create_dir(folder.join("there")).unwrap();
        fs::write(folder.join("there/a"), "mine").unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), folder.join("linked")).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        let since = SystemTime::now() - Duration::from_millis(20);
        fs::write(folder.join("anew"), "by the script").unwrap();
        let mut not = NotBack::default();
        into(&folder, &tar, Some(since), &mut not).unwrap();
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        assert_eq!((read("free/file"), read("anew")), ("back".to_string(), "back".to_string()));
        assert_eq!(fs::metadata(folder.join("free/file")).unwrap().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(folder.join("free/fifo")).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
        assert_eq!((read("taken"), read("there/a")), ("mine".to_string(), "mine".to_string()));
        assert_eq!(read("there/b"), "back", "a folder that is there is filled up");
        not.other.sort();
        assert_eq!(
            not.other,
            ["linked", "taken", "there/a"].map(|path| folder.join(path)),
            "what is another's is told"
        );
        assert!(not.missed.is_empty(), "{not:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 5, "nothing is left of the way");
    }
}
