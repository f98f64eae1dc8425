//! The files that a step with PMIx leaves: found, set aside, and removed.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How the names in slurmd's folder begin; `JOB.STEP` follows.
const SOCKET: &str = "stepd.slurm.pmix.";
const FOLDER: &str = "pmix.";

/// Likewise in the folder for temporary files; `UID_JOB.STEP` follows.
const OF_PROGRAMS: &str = "spmix_appdir_";

/// Likewise of what is set aside.
const ASIDE: &str = "joulepoint-left.";

/// Longest look at the names of a folder, and most entries of one user among them that count: anybody can fill the one for
/// temporary files, and hides nothing of others there.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
const MOST_OF_USER: usize = 10_000;

/// Most that is removed at once, and how deep: a step has some ten files two folders deep.
const MOST_REMOVED: u32 = 10_000;
const DEEPEST: u32 = 8;
const LONGEST: Duration = Duration::from_secs(5);

/// A step, by the numbers in the names of its files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub job: u32,
    pub name: String,
}

impl Step {
    fn parse(numbers: &str) -> Option<Step> {
        let (job, name) = numbers.split_once('.')?;
        Some(Step { job: job.parse().ok()?, name: name.to_string() })
    }
}

/// A folder that is held open.
#[derive(Debug)]
pub(crate) struct Place(File);

impl Place {
    /// Opens a folder as a process sees it whose root is `root`.
    pub fn open(root: &Path, folder: &Path) -> io::Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = File::from(openat(CWD, root, flags, Mode::empty())?);
        Ok(Place(open_in(&root, folder, flags, ResolveFlags::IN_ROOT)?))
    }

    /// Something in it, by a path that is short enough for a socket's, which may have 107 bytes.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }

    fn names(&self) -> io::Result<impl Iterator<Item = String>> {
        let until = Instant::now() + LONGEST_LOOK;
        let all = fs::read_dir(self.path("."))?.take_while(move |_| Instant::now() < until);
        Ok(all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
    }
}

/// A file or folder of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// In which of the places.
    place: usize,
    name: String,
    is_socket: bool,
}

/// What is there of steps: the first of the places is slurmd's, the others are for temporary files.
pub(crate) fn find(places: &[Place]) -> io::Result<BTreeMap<Step, Vec<Entry>>> {
    let mut found: BTreeMap<Step, Vec<Entry>> = BTreeMap::new();
    for (number, place) in places.iter().enumerate() {
        let mut of_user: BTreeMap<u32, usize> = BTreeMap::new();
        let prefixes: &[&str] = if number == 0 { &[SOCKET, FOLDER] } else { &[OF_PROGRAMS] };
        for name in place.names()?.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))) {
            let Ok(metadata) = fs::symlink_metadata(place.path(&name)) else { continue };
            let is_socket = metadata.file_type().is_socket();
            let step = match number {
                0 if is_socket => name.strip_prefix(SOCKET).and_then(Step::parse),
                0 if metadata.is_dir() => name.strip_prefix(FOLDER).and_then(Step::parse),
                1.. if metadata.is_dir() => of_program(metadata.uid(), &name),
                _ => None,
            };
            let Some(step) = step else { continue };
            let seen = of_user.entry(metadata.uid()).or_default();
            *seen += 1;
            if *seen <= MOST_OF_USER {
                found.entry(step).or_default().push(Entry { place: number, name, is_socket });
            }
        }
    }
    Ok(found)
}

/// The step of a program's folder, if it is the user's that its name tells, and has the name that Slurm would give it.
fn of_program(owner: u32, name: &str) -> Option<Step> {
    let step = Step::parse(name.strip_prefix(&format!("{OF_PROGRAMS}{owner}_"))?)?;
    let number: u32 = step.name.parse().ok()?;
    (name == format!("{OF_PROGRAMS}{owner}_{}.{number}", step.job)).then_some(step)
}

/// Whether a step's slurmstepd listens, or may.
pub(crate) fn listens(places: &[Place], of: &[Entry]) -> bool {
    of.iter().filter(|entry| entry.is_socket).any(|entry| !is_refused(&places[entry.place].path(&entry.name)))
}

fn is_refused(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let tried = socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .and_then(|socket| connect(socket.as_raw_fd(), &UnixAddr::new(path)?));
    tried == Err(Errno::ECONNREFUSED)
}

/// Makes the names of a step free: folders get others, and then the socket goes, before which no other slurmstepd gets on.
///
/// # Errors
/// The first; the others are freed all the same.
pub(crate) fn set_aside(places: &[Place], of: &[Entry]) -> io::Result<()> {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let free = |Entry { place, name, is_socket }: &Entry| {
        let path = places[*place].path(name);
        let freed = match is_socket {
            false => fs::rename(&path, places[*place].path(&format!("{ASIDE}{now_ns}.{name}"))),
            true if is_refused(&path) => fs::remove_file(&path),
            true => Ok(()),
        };
        freed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
    };
    let (sockets, folders): (Vec<&Entry>, Vec<&Entry>) = of.iter().partition(|entry| entry.is_socket);
    let freed: Vec<io::Result<()>> = folders.into_iter().chain(sockets).map(free).collect();
    freed.into_iter().collect()
}

/// Removes what was set aside, as far as it is its owner's, and no more than a step leaves. In slurmd's own folder, where nobody
/// else makes such names, files of root's go with it: slurmstepd has made them.
pub(crate) fn remove_aside(places: &[Place]) {
    for (number, place) in places.iter().enumerate() {
        let Ok(names) = place.names() else { continue };
        let mut bounds = Bounds { entries: MOST_REMOVED, until: Instant::now() + LONGEST, may_be_roots: number == 0 };
        for name in names.filter(|name| name.starts_with(ASIDE)) {
            if let Err(error) = remove(&place.path(&name), &mut bounds) {
                tracing::warn!(name, %error, "what a step has left stays");
            }
        }
    }
}

struct Bounds {
    entries: u32,
    until: Instant,
    may_be_roots: bool,
}

/// How a folder is opened that may have become something else meanwhile.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens something within a folder. Kernels before 5.6 know no bounds on the way to it.
fn open_in(folder: &File, path: &Path, flags: OFlags, bounds: ResolveFlags) -> io::Result<File> {
    let opened = match openat2(folder, path, flags, Mode::empty(), bounds) {
        Err(rustix::io::Errno::NOSYS) => openat(folder, path.strip_prefix("/").unwrap_or(path), flags, Mode::empty()),
        opened => opened,
    };
    Ok(File::from(opened?))
}

fn remove(folder: &Path, bounds: &mut Bounds) -> io::Result<()> {
    let opened = File::from(openat(CWD, folder, OPEN, Mode::empty())?);
    let owner = opened.metadata()?.uid();
    empty(&opened, owner, DEEPEST, bounds)?;
    fs::remove_dir(folder)
}

/// Removes what is in a folder, if all of it is one user's and nothing is mounted there.
fn empty(folder: &File, owner: u32, depth: u32, bounds: &mut Bounds) -> io::Result<()> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    for entry in fs::read_dir(&path)? {
        let name = entry?.file_name();
        let path = path.join(&name);
        let metadata = fs::symlink_metadata(&path)?;
        bounds.entries = bounds.entries.checked_sub(1).ok_or_else(|| io::Error::other("there is too much of it"))?;
        if Instant::now() > bounds.until {
            return Err(io::Error::other("it takes too long"));
        }
        if metadata.uid() != owner && !(bounds.may_be_roots && metadata.uid() == 0) {
            return Err(io::Error::other("something in it is of another user"));
        }
        if !metadata.is_dir() {
            fs::remove_file(&path)?;
            continue;
        }
        let depth = depth.checked_sub(1).ok_or_else(|| io::Error::other("it is too deep"))?;
        let inner = open_in(folder, Path::new(&name), OPEN, ResolveFlags::NO_XDEV | ResolveFlags::BENEATH)?;
        empty(&inner, owner, depth, bounds)?;
        fs::remove_dir(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Slurmd's folder and one for temporary files.
    fn places() -> ([tempfile::TempDir; 2], [Place; 2]) {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let places = [0, 1].map(|n| Place::open(Path::new("/"), dirs[n].path()).expect("opened"));
        (dirs, places)
    }

    fn count(dir: &tempfile::TempDir) -> usize {
        fs::read_dir(dir.path()).expect("a list").count()
    }

    #[test]
    fn what_a_step_has_left_is_known_by_its_names_and_goes_once_nobody_listens() {
        let ([spool, temporary], places) = places();
        let path = |name: &str| spool.path().join(name);
        let listener = UnixListener::bind(path("stepd.slurm.pmix.7.0")).expect("bound");
        fs::create_dir_all(path("pmix.7.0/pmix_dstor")).expect("made");
        fs::write(path("pmix.7.0/pmix_dstor/lock"), "").expect("written");
        let uid = fs::metadata(path("pmix.7.0")).expect("there").uid();
        for name in [format!("spmix_appdir_{uid}_7.0"), format!("spmix_appdir_{}_7.0", uid + 1)] {
            fs::create_dir(temporary.path().join(name)).expect("made");
        }
        for other in ["stepd.slurm.pmix.7", "stepd.slurm.pmix.x.0", "n1_7.0", "cred_state", "pmix.8.0"] {
            fs::write(path(other), "").expect("written");
        }
        let found = find(&places).expect("a list");
        let step = Step { job: 7, name: "0".into() };
        assert_eq!(found.keys().collect::<Vec<_>>(), [&step]);
        assert_eq!(found[&step].len(), 3);
        assert!(listens(&places, &found[&step]));
        drop(listener);
        assert!(!listens(&places, &found[&step]));
        set_aside(&places, &found[&step]).expect("set aside");
        assert!(find(&places).expect("a list").is_empty());
        remove_aside(&places);
        assert_eq!((count(&spool), count(&temporary)), (5, 1), "what is not of such a step stays");
    }

    #[test]
    fn what_others_put_in_the_way_keeps_nothing_from_being_freed() {
        let ([spool, temporary], places) = places();
        drop(UnixListener::bind(spool.path().join("stepd.slurm.pmix.7.0")).expect("bound"));
        let uid = fs::metadata(temporary.path()).expect("there").uid();
        let _listens = UnixListener::bind(temporary.path().join(format!("spmix_appdir_{uid}_7.0"))).expect("bound");
        fs::create_dir(temporary.path().join(format!("spmix_appdir_{uid}_{}7.0", "0".repeat(200)))).expect("made");
        let found = find(&places).expect("a list");
        let entries = &found[&Step { job: 7, name: "0".into() }];
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert!(!listens(&places, entries));
        set_aside(&places, entries).expect("set aside");
        assert_eq!((count(&spool), count(&temporary)), (0, 2));
    }

    #[test]
    fn a_folder_full_of_other_names_hides_nothing() {
        let ([_spool, temporary], places) = places();
        let uid = fs::metadata(temporary.path()).expect("there").uid();
        for n in 0..110_000 {
            File::create(temporary.path().join(format!("x{n}"))).expect("made");
        }
        for n in 0..100 {
            fs::create_dir(temporary.path().join(format!("spmix_appdir_{uid}_{n}.0"))).expect("made");
        }
        assert_eq!(find(&places).expect("a list").len(), 100);
    }

    #[test]
    fn no_more_is_removed_than_a_step_leaves() {
        let ([spool, _temporary], places) = places();
        let aside = spool.path().join("joulepoint-left.1.pmix.7.0");
        fs::create_dir(&aside).expect("made");
        for n in 0..=MOST_REMOVED {
            File::create(aside.join(n.to_string())).expect("made");
        }
        remove_aside(&places);
        assert_eq!(fs::read_dir(&aside).expect("it stays").count(), 1);
    }

    #[test]
    fn neither_a_link_nor_a_depth_without_end_is_followed() {
        let ([spool, temporary], places) = places();
        fs::write(temporary.path().join("precious"), "").expect("written");
        let left = spool.path().join("pmix.7.0");
        fs::create_dir(&left).expect("made");
        std::os::unix::fs::symlink(temporary.path(), left.join("link")).expect("linked");
        let deep = spool.path().join("pmix.7.1");
        fs::create_dir_all((0..200).fold(deep, |path, _| path.join("d"))).expect("made");
        std::os::unix::fs::symlink(temporary.path(), spool.path().join("pmix.7.2")).expect("linked");
        for entries in find(&places).expect("a list").values() {
            set_aside(&places, entries).expect("set aside");
        }
        remove_aside(&places);
        assert_eq!(count(&temporary), 1);
        assert_eq!(count(&spool), 2, "the deep one is only set aside, and a link is no folder");
    }

    #[test]
    fn an_absolute_link_is_followed_below_the_root_that_is_meant() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("local/spool/pmix.7.0")).expect("made");
        std::os::unix::fs::symlink("/local/spool", root.path().join("spool")).expect("linked");
        let place = Place::open(root.path(), Path::new("/spool")).expect("opened");
        assert_eq!(find(&[place]).expect("a list").len(), 1);
    }
}
