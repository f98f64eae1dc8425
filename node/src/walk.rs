//! Walks the storage that only this node has for files of one user that changed while a step ran.
//!
//! Runs as root among files of users: folders are opened by their names in folders that are open, links are not followed,
//! and of a file only its attributes are read.

use nix::dir::{Dir, Type};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use openfiles::{Mount, Mounts};
use protocol::{Left, StepSpan};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Folders at the root that hold the system, and nothing of a job's.
const SYSTEM: [&str; 11] = ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"];

/// Types of file systems that hold no files of users.
const PSEUDO: [&str; 27] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "systemd-1",
    "tracefs",
    "usbfs",
];

/// Types that do not outlive a boot.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Deeper folders are not looked into.
const DEEPEST: usize = 64;

/// How the names of folders begin that go with their job or step: ours, and those of Slurm's PMIx, of which the next step makes its
/// own within milliseconds.
const GO_BY_THEMSELVES: [&[u8]; 2] = [b"joulepoint-", b"spmix_appdir_"];

/// Times in an inode are a tick old.
const TICK_S: f64 = 0.02;

/// Whether files of users on a mount can outlive a boot.
pub(crate) fn outlives_a_boot(mount: &Mount) -> bool {
    holds_files(mount) && !IN_MEMORY.contains(&mount.fs.as_str())
}

/// Whether users can leave files on a mount.
fn holds_files(mount: &Mount) -> bool {
    let is_read_only = mount.options.split(',').any(|option| option == "ro");
    !is_read_only && !PSEUDO.contains(&mount.fs.as_str())
}

/// What of a file tells whose it is and since when.
#[derive(Clone, Copy, Debug)]
struct Facts {
    uid: u32,
    gid_or_others_enter: bool,
    is_folder: bool,
    changed_s: f64,
    /// Absent where the file system does not keep it.
    born_s: Option<f64>,
    /// Number of the mount it is on.
    mount: u64,
}

/// A walk, and what it has seen.
pub(crate) struct Walk {
    uid: u32,
    steps: Vec<StepSpan>,
    left: Vec<Left>,
    entries_left: u32,
    until: Instant,
    missed: Option<String>,
}

/// Whether all nodes share what is at a path, on a file system of a type.
type IsShared<'a> = &'a dyn Fn(&Path, &str) -> bool;

impl Walk {
    /// A walk for the files of a user.
    pub fn new(uid: u32, steps: Vec<StepSpan>, most_entries: u32, until: Instant) -> Walk {
        let left = vec![Left::default(); steps.len()];
        Walk { uid, steps, left, entries_left: most_entries, until, missed: None }
    }

    /// Whether all was seen.
    pub fn is_whole(&self) -> bool {
        self.missed.is_none()
    }

    /// What the steps have left.
    pub fn into_left(self) -> Vec<Left> {
        self.left
    }

    /// Something was not seen.
    pub fn has_missed(&mut self, what: &str) {
        if self.missed.is_none() {
            tracing::debug!(what, "not all local storage is looked through");
            self.missed = Some(what.to_string());
        }
    }

    /// Walks all mounts that only this node has, as they stand below `root`.
    pub fn all(&mut self, root: &Path, mounts: &Mounts, is_shared: IsShared) {
        if let Err(e) = std::fs::metadata(root) {
            return self.has_missed(&format!("{}: {e}", root.display()));
        }
        for mount in mounts.iter() {
            if holds_files(mount) && !is_shared(&mount.point, &mount.fs) {
                self.mount(root, mount, is_shared);
            }
        }
    }

    fn mount(&mut self, root: &Path, mount: &Mount, is_shared: IsShared) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Mount points are root's, and one may be beneath another mount, and a file. The root itself is named by its dot: it
        // is a link of the kernel's.
        let place = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point)).join(".");
        let Ok(mut folder) = Dir::open(&place, flags, Mode::empty()) else { return };
        let Some(facts) = facts(folder.as_fd(), c"") else {
            return self.has_missed(&mount.point.display().to_string());
        };
        if facts.mount != 0 && facts.mount != mount.id {
            return;
        }
        let place =
            Place { fs: &mount.fs, mount: facts.mount, in_memory: IN_MEMORY.contains(&mount.fs.as_str()), is_shared };
        self.folder(&mut folder, &mount.point, &place, 0);
    }

    fn folder(&mut self, folder: &mut Dir, path: &Path, place: &Place, depth: usize) {
        if depth > DEEPEST {
            return self.has_missed("very deep folders");
        }
        let mut names = Vec::new();
        for entry in folder.iter() {
            let Ok(entry) = entry else { return self.has_missed(&path.display().to_string()) };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.entries_left == 0 || Instant::now() > self.until {
                return self.has_missed("more files than are looked at");
            }
            self.entries_left -= 1;
            let is_skipped = path == Path::new("/") && SYSTEM.iter().any(|system| system.as_bytes() == name.to_bytes());
            let goes = GO_BY_THEMSELVES.iter().any(|begin| name.to_bytes().starts_with(begin));
            if !is_skipped && !goes {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        for (name, kind) in names {
            // A name that is gone meanwhile is nothing that was left.
            let Some(facts) = facts(folder.as_fd(), &name) else { continue };
            if facts.mount != place.mount {
                continue;
            }
            self.see(&facts, place.in_memory);
            let may_be_folder = kind.is_none_or(|kind| kind == Type::Directory);
            if may_be_folder && facts.is_folder && (facts.gid_or_others_enter || facts.uid == self.uid) {
                let below = path.join(name.to_string_lossy().as_ref());
                if !(place.is_shared)(&below, place.fs) {
                    self.enter(folder, &name, below, place, depth);
                }
            }
        }
    }

    fn enter(&mut self, parent: &Dir, name: &CStr, path: PathBuf, place: &Place, depth: usize) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match Dir::openat(parent, name, flags, Mode::empty()) {
            Ok(mut folder) => self.folder(&mut folder, &path, place, depth + 1),
            // It was removed, or replaced by something else.
            Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ELOOP | nix::errno::Errno::ENOTDIR) => {}
            Err(e) => self.has_missed(&format!("{}: {e}", path.display())),
        }
    }

    /// A file or folder: which steps may have left it.
    fn see(&mut self, facts: &Facts, in_memory: bool) {
        if facts.uid != self.uid {
            return;
        }
        for (step, left) in self.steps.iter().zip(&mut self.left) {
            if was_left_by(facts, step) {
                left.in_memory |= in_memory;
                left.on_disk |= !in_memory;
            }
        }
    }
}

/// What is the same for all of a mount.
struct Place<'a> {
    fs: &'a str,
    mount: u64,
    in_memory: bool,
    is_shared: IsShared<'a>,
}

/// Whether a step may have made or changed a file. A folder changes with what is made and removed in it, and counts only if
/// the step has made it.
fn was_left_by(facts: &Facts, step: &StepSpan) -> bool {
    let since_s = step.begun_s - TICK_S;
    let came_before_the_end = facts.born_s.is_none_or(|born_s| born_s <= step.ended_s + TICK_S);
    match facts.born_s.filter(|_| facts.is_folder) {
        Some(born_s) => born_s >= since_s && came_before_the_end,
        None => facts.changed_s >= since_s && came_before_the_end,
    }
}

/// The attributes of a name in a folder, or with an empty name of the folder itself; none if it is gone.
fn facts(folder: BorrowedFd, name: &CStr) -> Option<Facts> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC | libc::AT_EMPTY_PATH;
    let wanted = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the name ends in a zero, and the kernel writes no more than the struct, which all
    // zeros make valid.
    let (result, found) = unsafe {
        let result = libc::statx(folder.as_raw_fd(), name.as_ptr(), flags, wanted, found.as_mut_ptr());
        (result, found.assume_init())
    };
    let time = |t: libc::statx_timestamp| t.tv_sec as f64 + f64::from(t.tv_nsec) * 1e-9;
    let mode = u32::from(found.stx_mode);
    (result == 0).then(|| Facts {
        uid: found.stx_uid,
        gid_or_others_enter: mode & 0o011 != 0,
        is_folder: mode & libc::S_IFMT == libc::S_IFDIR,
        changed_s: time(found.stx_ctime),
        born_s: (found.stx_mask & libc::STATX_BTIME != 0).then(|| time(found.stx_btime)),
        mount: found.stx_mnt_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::Duration;

    const SPAN: StepSpan = StepSpan { begun_s: 100.0, ended_s: 110.0 };

    fn facts_of(born_s: Option<f64>, changed_s: f64, is_folder: bool) -> Facts {
        Facts { uid: 7, gid_or_others_enter: true, is_folder, changed_s, born_s, mount: 1 }
    }

    #[test]
    fn a_file_counts_if_it_changed_after_the_step_began_and_was_there_when_it_ended() {
        for (born_s, changed_s, is_folder, expected) in [
            (Some(50.0), 105.0, false, true),
            (Some(105.0), 105.0, false, true),
            (Some(105.0), 300.0, false, true),
            (Some(50.0), 99.0, false, false),
            (Some(120.0), 120.0, false, false),
            (None, 120.0, false, true),
            (None, 99.0, false, false),
            (Some(50.0), 105.0, true, false),
            (Some(101.0), 300.0, true, true),
            (Some(99.99), 99.99, true, true),
        ] {
            let facts = facts_of(born_s, changed_s, is_folder);
            assert_eq!(was_left_by(&facts, &SPAN), expected, "{facts:?}");
        }
    }

    fn now_s() -> f64 {
        listener::now_s()
    }

    fn walked(dir: &Path, uid: u32, steps: &[StepSpan], most: u32, is_shared: IsShared) -> (Vec<Left>, bool) {
        let mut walk = Walk::new(uid, steps.to_vec(), most, Instant::now() + Duration::from_secs(30));
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut folder = Dir::open(dir, flags, Mode::empty()).unwrap();
        let mount = facts(folder.as_fd(), c"").unwrap().mount;
        let place = Place { fs: "ext4", mount, in_memory: false, is_shared };
        walk.folder(&mut folder, dir, &place, 0);
        (walk.left.clone(), walk.is_whole())
    }

    #[test]
    fn only_what_the_user_has_changed_meanwhile_is_found_and_no_link_is_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let uid = fs::metadata(dir.path()).unwrap().uid();
        let elsewhere = other.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, dir.path().join("link")).unwrap();
        fs::create_dir_all(dir.path().join("a/b/shared")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let begun_s = now_s();
        let step = [StepSpan { begun_s, ended_s: begun_s + 60.0 }];
        fs::write(elsewhere.join("beyond a link"), "x").unwrap();
        fs::write(dir.path().join("a/b/shared/file"), "x").unwrap();
        fs::create_dir(dir.path().join("joulepoint-x")).unwrap();
        let is_shared = |path: &Path, _: &str| path.ends_with("shared");
        let nothing = (vec![Left::default()], true);
        assert_eq!(walked(dir.path(), uid, &step, 1000, &is_shared), nothing);
        let found = (vec![Left { on_disk: true, in_memory: false }], true);
        assert_eq!(walked(dir.path(), uid, &step, 1000, &|_, _| false), found);
        assert_eq!(walked(dir.path(), uid + 1, &step, 1000, &|_, _| false), nothing, "somebody else's");
        let later = [StepSpan { begun_s: now_s() + 60.0, ended_s: now_s() + 70.0 }];
        assert_eq!(walked(dir.path(), uid, &later, 1000, &|_, _| false), nothing);
        assert!(!walked(dir.path(), uid, &step, 2, &|_, _| false).1, "there was more");
    }

    #[test]
    fn mounts_that_are_shared_or_hold_no_files_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = Mounts::of(Path::new("/proc/self")).unwrap();
        let step = StepSpan { begun_s: now_s() - 1e9, ended_s: now_s() };
        let uid = fs::metadata(dir.path()).unwrap().uid();
        let soon = Instant::now() + Duration::from_secs(30);
        let mut walk = Walk::new(uid, vec![step], 1_000_000, soon);
        walk.all(Path::new("/"), &mounts, &|_, _| true);
        assert_eq!((walk.is_whole(), walk.entries_left), (true, 1_000_000));
        fs::write(dir.path().join("file"), "x").unwrap();
        let mut walk = Walk::new(uid, vec![step], 1_000_000, soon);
        let folder = dir.path().to_path_buf();
        // All but the way to the folder.
        walk.all(Path::new("/"), &mounts, &|path, _| !folder.starts_with(path) && !path.starts_with(&folder));
        assert!(walk.into_left()[0] != Left::default());
    }

    /// Runs `f` where a folder is covered and all else is read-only, as a unit's `PrivateTmp` and `ProtectSystem` do.
    fn where_it_is_hidden<T: Send>(folder: &Path, f: impl FnOnce() -> T + Send) -> T {
        use nix::mount::{MsFlags, mount};
        std::thread::scope(|scope| {
            let hidden = scope.spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                let none: Option<&str> = None;
                mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
                mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), none).unwrap();
                let bind = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                mount(none, "/", none, bind, none).unwrap();
                f()
            });
            hidden.join().unwrap()
        })
    }

    #[test]
    fn what_this_services_unit_hides_from_it_is_seen_all_the_same() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("skipped: it takes root to mount");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let folder = dir.path().to_path_buf();
        let looked = |process: &str| {
            let step = StepSpan { begun_s: now_s() - 60.0, ended_s: now_s() };
            let uid = nix::unistd::Uid::effective().as_raw();
            let mut walk = Walk::new(uid, vec![step], 1_000_000, Instant::now() + Duration::from_secs(30));
            let process = Path::new("/proc").join(process);
            let mounts = Mounts::of(&process).unwrap();
            let is_elsewhere = |path: &Path, _: &str| !folder.starts_with(path) && !path.starts_with(&folder);
            walk.all(&process.join("root"), &mounts, &is_elsewhere);
            walk.into_left()[0]
        };
        // Not the first process of the machine: a test may run in a container.
        let host = std::process::id().to_string();
        let (seen, hidden) = where_it_is_hidden(&folder, || (looked(&host), looked("thread-self")));
        assert!(seen != Left::default() && hidden == Left::default(), "{seen:?} {hidden:?}");
    }
}
