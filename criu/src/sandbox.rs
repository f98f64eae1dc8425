//! Makes the namespaces of a task tree without privilege, and mounts what the tree expects to see.

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// The first process id of a program is above those of CRIU's own helpers.
const LEAST_PID: i32 = 10_000;

/// The highest process id of a node, where it does not say it.
const LEAST_PID_MAX: i32 = 32_768;

/// The first process id of a program. It differs between programs, as outside: scripts name files by it
/// (`/tmp/work.$$`), also in folders that several jobs share.
pub fn first_pid(run: &Path, rank: u32) -> i32 {
    let told = fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    first_pid_below(told.unwrap_or(LEAST_PID_MAX), run, rank)
}

/// The same where `pid_max` is the highest; a quarter of the numbers stays for what the program starts.
fn first_pid_below(pid_max: i32, run: &Path, rank: u32) -> i32 {
    let name = [run.as_os_str().as_encoded_bytes(), &rank.to_le_bytes()].concat();
    let places = (i64::from(pid_max) / 4 * 3 - i64::from(LEAST_PID)).max(1);
    LEAST_PID + i32::try_from(xxh3_64(&name) % places.unsigned_abs()).unwrap_or(0)
}

/// File with the process id that the namespace gave out last; writable.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// File with the offsets of the namespace's clocks to the node's; writable (time_namespaces(7)).
const CLOCK_OFFSETS: &str = "/proc/self/timens_offsets";

/// The kernel's settings.
const SETTINGS: &str = "/proc/sys";

/// User and group ids within a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The user's own ids, the same within and outside.
    Own,
    /// Both 0, as in dumps of an earlier version.
    Root,
}

/// Longest wait for a thread to be gone that has done its work.
const GONE_LIMIT: Duration = Duration::from_secs(1);

/// Waits until this process has one thread: nobody else gets a user namespace, and a thread is gone a moment after it was joined.
fn be_alone() {
    let until = Instant::now() + GONE_LIMIT;
    while fs::read_dir("/proc/self/task").is_ok_and(|all| all.count() > 1) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Moves this process to new user and mount namespaces; its next child is the first process of a new pid namespace.
///
/// This process has all capabilities in the new user namespace, and passes them on to what it executes, except to
/// [confined](confine) programs. With a network of its own, CRIU can dump connections too.
///
/// # Errors
/// A sentence with the cure.
pub fn leave(own_network: bool, numbers: Numbers) -> Result<(), String> {
    let (uid, gid) = (Uid::current(), Gid::current());
    let network = if own_network { CloneFlags::CLONE_NEWNET } else { CloneFlags::empty() };
    be_alone();
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | network)
        .map_err(|e| forbidden(e, Path::new(SETTINGS)))?;
    write("/proc/self/setgroups", "deny")?;
    let within = |own: u32| if numbers == Numbers::Own { own } else { 0 };
    write("/proc/self/uid_map", &format!("{} {uid} 1", within(uid.as_raw())))?;
    write("/proc/self/gid_map", &format!("{} {gid} 1", within(gid.as_raw())))?;
    pass_capabilities_on().map_err(|e| format!("the capabilities of a namespace: {e}"))
}

/// Lets executed programs keep the capabilities; without this only user id 0 would (capabilities(7), ambient).
fn pass_capabilities_on() -> Result<(), CapsError> {
    let all = caps::read(None, CapSet::Permitted)?;
    caps::set(None, CapSet::Inheritable, &all)?;
    caps::set(None, CapSet::Ambient, &all)
}

/// Keeps a restoring CRIU from changing to user id 0, which does not exist in the sandbox: it would try if it could.
///
/// # Errors
/// What the kernel says.
pub fn keep_number() -> io::Result<()> {
    caps::drop(None, CapSet::Ambient, Capability::CAP_SETUID).map_err(io::Error::other)?;
    caps::drop(None, CapSet::Inheritable, Capability::CAP_SETUID).map_err(io::Error::other)
}

/// Clocks that count from the node's start, as a program sees them, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`.
    monotonic_ns: i64,
    /// `CLOCK_BOOTTIME`.
    boottime_ns: i64,
}

impl Clocks {
    /// Their present values.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn now() -> io::Result<Clocks> {
        let read = |clock: ClockId| -> io::Result<i64> {
            let time = clock_gettime(clock)?;
            Ok(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
        };
        Ok(Clocks { monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?, boottime_ns: read(ClockId::CLOCK_BOOTTIME)? })
    }

    /// Sets the clocks for the next child and all below it, in the user namespace that this process has made.
    /// Otherwise a program that sleeps until a time on its old node's clock could sleep for days on another node.
    ///
    /// # Errors
    /// What the kernel says; Linux before 5.6 has no time namespaces.
    pub fn go_on(&self) -> io::Result<()> {
        unshare(CloneFlags::from_bits_retain(libc::CLONE_NEWTIME))?;
        let now = Clocks::now()?;
        let before = fs::read_to_string(CLOCK_OFFSETS)?;
        let line = |name: &str, wanted_ns: i64, now_ns: i64| {
            let offset_ns = offset_ns(&before, name) + wanted_ns - now_ns;
            format!("{name} {} {}\n", offset_ns.div_euclid(1_000_000_000), offset_ns.rem_euclid(1_000_000_000))
        };
        let monotonic = line("monotonic", self.monotonic_ns, now.monotonic_ns);
        let boottime = line("boottime", self.boottime_ns, now.boottime_ns);
        fs::write(CLOCK_OFFSETS, monotonic + &boottime)
    }
}

/// The offset of a clock to the node's, in the text of `CLOCK_OFFSETS`, ns.
fn offset_ns(text: &str, clock: &str) -> i64 {
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(clock)).then_some(())?;
        let mut number = || words.next()?.parse::<i64>().ok();
        Some(number()? * 1_000_000_000 + number()?)
    };
    text.lines().find_map(words).unwrap_or(0)
}

/// Why an ordinary user gets no namespaces here, and what the administrator of the node can do; `settings` is
/// `/proc/sys`.
fn forbidden(error: nix::Error, settings: &Path) -> String {
    let is = |name: &str, value: &str| fs::read_to_string(settings.join(name)).is_ok_and(|text| text.trim() == value);
    let cure = if is("user/max_user_namespaces", "0") || error == nix::Error::ENOSPC {
        "set user.max_user_namespaces higher (sysctl)"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "set kernel.unprivileged_userns_clone to 1 (sysctl)"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "give joulepoint and criu an AppArmor profile with 'userns,'"
    } else {
        "use a kernel with CONFIG_USER_NS, and no chroot"
    };
    format!("this node gives ordinary users no namespaces ({error}); its administrator can {cure}")
}

/// Mounts what the program is to see: its own `/proc` and terminals, and `/dev/shm` unless that is to be the node's.
///
/// # Errors
/// A sentence naming the mount.
pub fn furnish(memory_is_shared: bool) -> Result<(), String> {
    let none: Option<&str> = None;
    let told = |what: &'static str| move |e: nix::Error| format!("{what} cannot be mounted: {e}");
    // AppArmor may allow the namespace, but no right in it.
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    private.map_err(|e| forbidden(e, Path::new(SETTINGS)))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("proc"), "/proc", Some("proc"), safe | MsFlags::MS_NOEXEC, none).map_err(told("/proc"))?;
    if !memory_is_shared {
        mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), safe, Some("mode=1777")).map_err(told("/dev/shm"))?;
    }
    // Only launchers such as mpirun need terminals.
    let terminals = Some("newinstance,ptmxmode=0666,mode=620");
    let noexec = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    if mount(Some("devpts"), "/dev/pts", Some("devpts"), noexec, terminals).is_ok() {
        let _ = mount(Some("/dev/pts/ptmx"), "/dev/ptmx", none, MsFlags::MS_BIND, none);
    }
    Ok(())
}

/// The process id that this namespace gave out last.
///
/// # Errors
/// What the kernel says.
pub fn last_pid() -> io::Result<i32> {
    fs::read_to_string(LAST_PID)?.trim().parse().map_err(io::Error::other)
}

/// Sets the process id after which the namespace goes on.
///
/// # Errors
/// A sentence.
pub fn set_last_pid(pid: i32) -> Result<(), String> {
    write(LAST_PID, &pid.to_string())
}

/// Confines a command: a session of its own, no open descriptors but the standard ones, and no right that its user
/// lacks outside.
pub fn confine(command: &mut Command) {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            unblock_signals()?;
            // Orphans stay below the program, since CRIU dumps only that tree.
            nix::sys::prctl::set_child_subreaper(true)?;
            // With these bits, user id 0 gains no capability by exec; other ids keep what they inherit.
            let bits = libc::SECBIT_NOROOT | libc::SECBIT_NOROOT_LOCKED;
            if Uid::current().is_root() && libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            for set in [CapSet::Ambient, CapSet::Inheritable] {
                caps::clear(None, set).map_err(io::Error::other)?;
            }
            leave_descriptors();
            close_others()
        });
    }
}

/// Numbers of descriptors above those of a program, which CRIU needs for its own when it brings that back.
const SPARE_DESCRIPTORS: u64 = 256;

/// Where a process may have so few, the program has all of them.
const FEW_DESCRIPTORS: u64 = 4096;

/// Keeps the highest numbers of descriptors from a program, some of which take the highest (valgrind does).
fn leave_descriptors() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if hard >= FEW_DESCRIPTORS {
        let most = hard - SPARE_DESCRIPTORS;
        // Without it a few programs cannot be brought back.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(most), most);
    }
}

/// Lets a process have as many descriptors as it may: CRIU cannot raise the limit by itself, and a program may have.
///
/// # Errors
/// What the kernel says.
pub fn all_descriptors() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Unblocks all signals: a child inherits its parent's blocked signals, and the sandbox's first process blocks all,
/// to wait for them.
///
/// # Errors
/// What the kernel says.
pub fn unblock_signals() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Marks every descriptor but the standard ones to be closed by exec.
fn close_others() -> io::Result<()> {
    // SAFETY: close_range takes three numbers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_two_runs_or_ranks_begin_with_process_ids_of_their_own() {
        let runs: Vec<String> = (0..100).map(|n| format!("/runs/{n}")).collect();
        for (pid_max, alike) in [(LEAST_PID_MAX, 10), (4_194_304, 0)] {
            let first = |run: &String, rank| first_pid_below(pid_max, Path::new(run), rank);
            let of = |rank| runs.iter().map(|run| first(run, rank)).collect::<Vec<_>>();
            let all: std::collections::BTreeSet<i32> = [of(0), of(1)].concat().into_iter().collect();
            assert!(all.len() >= 200 - alike, "{}", all.len());
            assert!(all.iter().all(|pid| (LEAST_PID..pid_max / 4 * 3).contains(pid)));
            assert_eq!(of(0), of(0));
        }
    }

    #[test]
    fn the_offset_of_a_clock_is_read_as_the_kernel_writes_it() {
        let text = "monotonic          -7         500000000\nboottime            3         0\n";
        assert_eq!(offset_ns(text, "monotonic"), -6_500_000_000);
        assert_eq!((offset_ns(text, "boottime"), offset_ns("", "boottime")), (3_000_000_000, 0));
    }

    #[test]
    fn who_forbids_namespaces_is_named_with_the_cure() {
        use nix::errno::Errno::{EACCES, EINVAL, ENOSPC, EPERM};
        let cases = [
            ("user/max_user_namespaces", "0", ENOSPC, "user.max_user_namespaces"),
            ("user/max_user_namespaces", "100", ENOSPC, "user.max_user_namespaces"),
            ("kernel/unprivileged_userns_clone", "0", EPERM, "kernel.unprivileged_userns_clone to 1"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1", EACCES, "AppArmor profile"),
            ("kernel/unprivileged_userns_clone", "1", EINVAL, "CONFIG_USER_NS"),
        ];
        for (name, value, error, cure) in cases {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
            let said = forbidden(error, dir.path());
            assert!(said.contains(cure), "{name}={value}: {said}");
        }
    }
}
