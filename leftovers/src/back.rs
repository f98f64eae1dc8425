//! Puts files back that a checkpoint holds.

use crate::{Place, TICK, made};
use archive::{in_the_way, is_closed, make_fifo};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use openfiles::by_size::is_of_job;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
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
    /// What could not be put back, and why: another user's file or folder of that name may be [in the way](in_the_way).
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

/// Moves an entry into place if that is free, or held by a file that was made since then. For a folder that exists and that nobody
/// else can have made there, moves its entries.
fn place(from: &Path, to: &Path, since: Option<SystemTime>, not: &mut NotBack) {
    match take(from, to) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let (Ok(new), Ok(there)) = (fs::symlink_metadata(from), fs::symlink_metadata(to)) else {
                return not.other.push(to.to_path_buf());
            };
            let us = nix::unistd::getuid().as_raw();
            let is_of_folder = || to.parent().is_some_and(|above| fs::metadata(above).is_ok_and(|m| is_closed(&m)));
            if there.uid() != us && !is_of_folder() && !(there.is_dir() && leads_to(from, to, us)) {
                not.missed.push((to.to_path_buf(), in_the_way(to, &there)));
            } else if there.is_dir() {
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
        Err(e) => not.missed.push((to.to_path_buf(), e)),
    }
}

/// Whether all that is to come into a folder of somebody else lies in folders of the user's there, such as a system makes for each
/// job in one of its own.
fn leads_to(from: &Path, to: &Path, user: u32) -> bool {
    let below = fs::read_dir(from).into_iter().flatten().flatten();
    let mut below = below.map(|entry| (entry.path(), to.join(entry.file_name()))).peekable();
    below.peek().is_some()
        && below.all(|(from, to)| {
            let folder = fs::symlink_metadata(&to).ok().filter(Metadata::is_dir);
            folder.is_some_and(|there| there.uid() == user || leads_to(&from, &to, user))
        })
}

/// Moves an entry into a place that is free.
fn take(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // Not every file system can do that, such as ZFS before 2.2.
        Err(nix::Error::EINVAL | nix::Error::ENOSYS) => take_by_names(from, to),
        renamed => Ok(renamed?),
    }
}

/// The same by one more name of a file, and by a new folder, neither of which takes a place that is taken.
fn take_by_names(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if !found.is_dir() {
        return fs::hard_link(from, to).and_then(|()| fs::remove_file(from));
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        take_by_names(&entry.path(), &to.join(entry.file_name()))?;
    }
    fs::set_permissions(to, found.permissions())
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
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    #[test]
    fn where_no_rename_keeps_off_what_is_taken_names_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("from/below")).unwrap();
        fs::write(path("from/below/file"), "back").unwrap();
        make_fifo(&path("from/fifo"), 0o600).unwrap();
        std::os::unix::fs::symlink("nowhere", path("from/link")).unwrap();
        fs::set_permissions(path("from/below"), fs::Permissions::from_mode(0o750)).unwrap();
        take_by_names(&path("from"), &path("to")).unwrap();
        assert_eq!(fs::read_to_string(path("to/below/file")).unwrap(), "back");
        assert_eq!(fs::metadata(path("to/below")).unwrap().mode() & 0o777, 0o750);
        assert!(fs::symlink_metadata(path("to/fifo")).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_link(path("to/link")).unwrap(), Path::new("nowhere"));
        fs::write(path("mine"), "mine").unwrap();
        for taken in [path("mine"), path("to")] {
            let from = if taken.is_dir() { path("from") } else { path("to/below/file") };
            assert_eq!(take_by_names(&from, &taken).unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(path("mine")).unwrap(), "mine");
    }

    #[test]
    fn what_another_user_has_made_in_a_folder_of_all_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("tmp"), dir.path().join("x.tar"));
        fs::create_dir_all(folder.join("users/below")).unwrap();
        fs::write(folder.join("users/below/file"), "back").unwrap();
        archive::pack(fs::File::create(&tar).unwrap(), |tar| tar.append_below(&folder.join("users/below"))).unwrap();
        fs::remove_dir_all(folder.join("users/below")).unwrap();
        if let Err(e) = std::os::unix::fs::chown(folder.join("users"), Some(65533), None) {
            assert!(!nix::unistd::geteuid().is_root(), "{e}");
            println!("skipped: only root can give files away");
            return;
        }
        let missed = |mode| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let mut not = NotBack::default();
            into(&folder, &tar, None, &mut not).unwrap();
            not.missed
        };
        let of_others = missed(0o1777);
        assert_eq!(of_others[0].0, folder.join("users"));
        assert_eq!(of_others[0].1.kind(), ErrorKind::AlreadyExists);
        assert!(!folder.join("users/below").exists(), "nothing goes into another user's folder");
        fs::create_dir(folder.join("users/below")).unwrap();
        assert!(missed(0o1777).is_empty(), "the user's own folder is there");
        fs::remove_dir_all(folder.join("users/below")).unwrap();
        assert!(missed(0o755).is_empty(), "the system has made that folder for its users");
        assert_eq!(fs::read_to_string(folder.join("users/below/file")).unwrap(), "back");
    }

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
