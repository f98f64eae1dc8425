//! What keeps a program from being saved as it stands; beside it what CRIU takes for common to a process and is not, and what opening a
//! file does to it.

use crate::peers;
use openfiles::process;
use std::fs;
use std::path::Path;

/// Why a program that stands still is not to be saved.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Refused {
    /// Opening its files would end it.
    Lease(#[from] Lease),
    /// A thread is not as its process.
    Thread(#[from] OfThread),
    /// It leads out of the job.
    Outside(#[from] peers::Outside),
    /// It is the node's.
    Node(#[from] peers::OfTheNode),
    /// It would be a counter.
    Semaphore(#[from] peers::EventSemaphore),
    /// Nobody knows what it has.
    Unseen(#[from] peers::Unseen),
    /// It would be zeros.
    Private(#[from] peers::PrivateMemoryFile),
}

/// Refuses a tree of processes that would not come back as it is, before any of its files is opened.
///
/// # Errors
/// Why.
pub fn refuse(tree: &[i32]) -> Result<(), Refused> {
    let proc = Path::new("/proc");
    refuse_leases(tree)?;
    refuse_threads(tree)?;
    peers::refuse_outside(tree)?;
    peers::refuse_node_ipc(tree)?;
    peers::refuse_event_semaphores(proc, tree)?;
    Ok(peers::refuse_private_memory_files(&peers::mapped(proc, tree)?)?)
}

/// Which of these two threads have in common (kcmp(2)).
const KCMP_FILES: libc::c_long = 2;
const KCMP_FS: libc::c_long = 3;

/// A thread has something for itself that comes back as its process's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "thread {thread} of process {process} has {what} of its own (unshare), which would be the process's after a restore"
)]
pub struct OfThread {
    process: i32,
    thread: i32,
    what: &'static str,
}

/// Refuses a tree of processes of which a thread has descriptors or a working folder of its own: CRIU saves those of the process alone.
///
/// # Errors
/// Which thread, and what.
pub fn refuse_threads(tree: &[i32]) -> Result<(), OfThread> {
    for process in tree {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        for thread in threads.filter(|thread| thread != process) {
            for (kind, what) in [(KCMP_FILES, "descriptors"), (KCMP_FS, "a working folder or umask")] {
                if differ(*process, thread, kind) {
                    return Err(OfThread { process: *process, thread, what });
                }
            }
        }
    }
    Ok(())
}

/// Whether two threads have different ones; not if the kernel does not say.
fn differ(one: i32, other: i32, kind: libc::c_long) -> bool {
    // SAFETY: a system call that compares, and takes numbers alone.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, 0, 0) };
    order > 0
}

/// A process holds a lease on a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {0} holds a lease on a file (F_SETLEASE): whoever opens the file to save it breaks the lease, and a signal ends the process"
)]
pub struct Lease(i32);

/// Refuses a tree of processes of which one holds a lease, before anybody opens its files.
///
/// # Errors
/// Which process.
pub fn refuse_leases(tree: &[i32]) -> Result<(), Lease> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let held = locks.lines().filter_map(|line| peers::lock(line, "LEASE")).find(|(pid, _)| tree.contains(pid));
    held.map_or(Ok(()), |(pid, _)| Err(Lease(pid)))
}

/// An orphan is in a session of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {0} is a daemon (setsid, and its parent has ended): after a restore by a CRIU without our patch the next checkpoint would not \
     have it (packaging/criu.sh)"
)]
pub struct Daemon(i32);

/// Refuses a tree of processes, of which the first is above all, with an orphan of another session than that one's: CRIU without our
/// patch restores it outside of the tree. `root` is that of `/proc`.
///
/// # Errors
/// Which it is.
pub fn refuse_daemons(root: &Path, tree: &[i32]) -> Result<(), Daemon> {
    let Some((first, others)) = tree.split_first() else { return Ok(()) };
    // Parent and session.
    let of = |pid: &i32| {
        let stat = process::text(&process::folder(root, *pid).join("stat")).ok()?;
        let fields: Vec<i32> = stat
            .rsplit(')')
            .next()?
            .split_whitespace()
            .skip(1)
            .take(3)
            .filter_map(|field| field.parse().ok())
            .collect();
        let [parent, _, session] = fields[..] else { return None };
        Some((parent, session))
    };
    let Some((_, own)) = of(first) else { return Ok(()) };
    let is_daemon =
        |pid: &&i32| of(pid).is_some_and(|(parent, session)| parent == *first && session != own && session != **pid);
    others.iter().find(is_daemon).map_or(Ok(()), |pid| Err(Daemon(*pid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_with_a_working_folder_of_its_own_is_known() {
        let us = [std::process::id() as i32];
        let (go, gone) = channel::<()>();
        let (ready, is_ready) = channel();
        let other = std::thread::spawn(move || {
            let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS);
            ready.send(unshared.is_ok()).unwrap();
            let _ = gone.recv();
        });
        assert!(is_ready.recv().unwrap());
        let said = refuse_threads(&us).unwrap_err();
        assert_eq!((said.process, said.what), (us[0], "a working folder or umask"));
        drop(go);
        other.join().unwrap();
    }

    #[test]
    fn a_lease_is_known_before_a_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("leased")).unwrap();
        let us = [std::process::id() as i32];
        assert_eq!(refuse_leases(&us), Ok(()));
        // SAFETY: an open descriptor.
        let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        assert_eq!((leased, refuse_leases(&us)), (0, Err(Lease(us[0]))));
        drop(file);
        assert_eq!(refuse_leases(&us), Ok(()));
    }

    #[test]
    fn an_orphan_of_another_session_is_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, parent, session) in [(10, 1, 10), (11, 10, 10), (12, 10, 12), (13, 12, 12), (14, 10, 9)] {
            fs::create_dir(dir.path().join(pid.to_string())).unwrap();
            let rest = format!(" b) S {parent} {pid} {session} 0 -1 0\n");
            let stat = [pid.to_string().as_bytes(), b" (caf\xe9)", rest.as_bytes()].concat();
            fs::write(dir.path().join(format!("{pid}/stat")), stat).unwrap();
        }
        assert_eq!(refuse_daemons(dir.path(), &[10, 11, 12, 13]), Ok(()));
        assert_eq!(refuse_daemons(dir.path(), &[10, 11, 12, 13, 14]), Err(Daemon(14)));
        assert_eq!(refuse_daemons(dir.path(), &[]), Ok(()));
    }
}
