//! Finds what the program has in common with the node, so that it cannot be restored: unix sockets whose other end is
//! outside, and semaphores and queues of System V, which CRIU passes over in silence.

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use openfiles::process::{self, Mapping};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Length of a netlink header, and of the message of a unix socket before its attributes, bytes (sock_diag(7)).
const HEADER: usize = 16;
const MESSAGE: usize = 16;

/// Kinds of netlink messages and attributes (linux/netlink.h, linux/unix_diag.h).
const DONE: u16 = 3;
const BY_FAMILY: u16 = 20;
const PEER: u16 = 2;

/// A program has a connection to a process outside.
#[derive(Debug, thiserror::Error)]
pub enum Outside {
    /// The kernel does not say which unix sockets are connected.
    #[error("sock_diag: {0}")]
    Unknown(#[from] io::Error),
    /// This unix socket.
    #[error("unix socket {0} leads out of the job, to a daemon, say: it cannot be restored")]
    Socket(u32),
}

/// Refuses a tree of processes with a connection to a process outside.
///
/// # Errors
/// By which socket.
pub fn refuse_outside(tree: &[i32]) -> Result<(), Outside> {
    let ours: BTreeSet<u32> = tree.iter().flat_map(|pid| sockets(*pid)).collect();
    let pairs = if ours.is_empty() { Vec::new() } else { pairs()? };
    match pairs.iter().find(|(one, peer)| ours.contains(one) && *peer != 0 && !ours.contains(peer)) {
        Some((one, _)) => Err(Outside::Socket(*one)),
        None => Ok(()),
    }
}

/// A program uses what is the node's, and is in no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it uses {0} of System V, which are the node's and cannot be saved; semaphores of POSIX, pipes and sockets can"
)]
pub struct OfTheNode(&'static str);

/// Refuses a tree of processes that has used semaphores or message queues of System V: they are the node's, and restored
/// processes would wait for ever for those of another node.
///
/// # Errors
/// Which it uses.
pub fn refuse_node_ipc(tree: &[i32]) -> Result<(), OfTheNode> {
    // All that the first process of a sandbox sees is in it, those that have ended too.
    let sees_own_only = nix::unistd::getpid().as_raw() == 1;
    let is_ours = |pid: &i32| *pid > 0 && (sees_own_only || tree.contains(pid));
    let kind = if semaphore_users().iter().any(is_ours) {
        "semaphores (semget)"
    } else if queue_users(&fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default()).iter().any(is_ours) {
        "message queues (msgget)"
    } else {
        return Ok(());
    };
    Err(OfTheNode(kind))
}

/// A program has an eventfd that is a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it uses an eventfd as a semaphore (EFD_SEMAPHORE), which CRIU brings back as a counter: a read takes all of it"
)]
pub struct EventSemaphore;

/// Refuses a tree of processes with an eventfd that is a semaphore.
///
/// # Errors
/// That there is one.
pub fn refuse_event_semaphores(root: &Path, tree: &[i32]) -> Result<(), EventSemaphore> {
    let of = |pid: &i32| {
        let folder = process::folder(root, *pid);
        let links = process::links(&folder).unwrap_or_default().into_iter();
        let events = links.filter(|(_, to)| to == Path::new(EVENTFD));
        events.map(|(number, _)| folder.join("fdinfo").join(number)).collect::<Vec<_>>()
    };
    let is_set = |line: &str| line.strip_prefix("eventfd-semaphore:").is_some_and(|value| value.trim() == "1");
    let is_semaphore = |info: PathBuf| process::text(&info).is_ok_and(|text| text.lines().any(is_set));
    if tree.iter().flat_map(of).any(is_semaphore) { Err(EventSemaphore) } else { Ok(()) }
}

/// What the link of an eventfd names.
pub(crate) const EVENTFD: &str = "anon_inode:[eventfd]";

/// How the kernel calls files in memory.
pub(crate) const MEMORY_FILE: &str = "/memfd:";

/// A process could not be looked into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("process {pid} cannot be looked into: {why}")]
pub struct Unseen {
    pid: i32,
    why: String,
}

/// What is read of each process of a tree; one that is gone has nothing.
fn of_each<T>(root: &Path, tree: &[i32], read: impl Fn(&Path) -> io::Result<T>) -> Result<Vec<(i32, T)>, Unseen> {
    let of = |pid: &i32| {
        let found = process::if_there(read(&process::folder(root, *pid)));
        let found = found.map_err(|e| Unseen { pid: *pid, why: e.to_string() }).transpose()?;
        Some(found.map(|found| (*pid, found)))
    };
    tree.iter().filter_map(of).collect()
}

/// What a tree of processes has mapped.
pub type Mapped = Vec<(i32, Vec<Mapping>)>;

/// What a tree of processes has mapped; `root` is `/proc`.
///
/// # Errors
/// Which process does not tell it.
pub fn mapped(root: &Path, tree: &[i32]) -> Result<Mapped, Unseen> {
    of_each(root, tree, process::mappings)
}

/// How much memory each mapping of a tree of processes takes, as the kernel tells it; `root` is `/proc`.
///
/// # Errors
/// Which process does not tell it.
pub fn memory(root: &Path, tree: &[i32]) -> Result<Vec<(i32, String)>, Unseen> {
    of_each(root, tree, |process| process::text(&process.join("smaps")))
}

/// A program has a file that would come back as two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a file in memory (memfd) is mapped and open; a CRIU with our patch keeps it one file (packaging/criu.sh)")]
pub struct TwoFiles;

/// Refuses a tree of processes that has a file in memory (`memfd`) both mapped and open: CRIU without our patch brings it
/// back as two files.
///
/// # Errors
/// What it has.
pub fn refuse_memory_files(mapped: &Mapped) -> Result<(), TwoFiles> {
    let is_file = |mapping: &&Mapping| mapping.is_shared() && mapping.is_named(MEMORY_FILE);
    let all = mapped.iter().flat_map(|(_, all)| all).filter(is_file);
    let inodes: BTreeSet<u64> = all.map(|mapping| mapping.inode).collect();
    let opens_one = |pid: i32| {
        let folder = process::folder(Path::new("/proc"), pid);
        let is_it = |(number, to): (OsString, PathBuf)| {
            let is_named_so = to.as_os_str().as_encoded_bytes().starts_with(MEMORY_FILE.as_bytes());
            let found = || fs::metadata(folder.join("fd").join(number));
            is_named_so && found().is_ok_and(|file| inodes.contains(&file.ino()))
        };
        process::links(&folder).unwrap_or_default().into_iter().any(is_it)
    };
    match !inodes.is_empty() && mapped.iter().any(|(pid, _)| opens_one(*pid)) {
        true => Err(TwoFiles),
        false => Ok(()),
    }
}

/// A program has a lock that would not come back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {0} holds a lock (fcntl) on a file that it has mapped, as SQLite and LMDB do: a CRIU without our patch loses it in a \
     restore (packaging/criu.sh)"
)]
pub struct MappedLock(i32);

/// Refuses a tree of processes of which one has locked a file for itself (`fcntl`, `lockf`) that it has mapped as well: CRIU without
/// our patch takes the lock before it closes the descriptor by which it has mapped the file, and with that the lock is gone.
///
/// # Errors
/// Which process.
pub fn refuse_mapped_locks(mapped: &Mapped) -> Result<(), MappedLock> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let has_mapped = |pid: i32, inode: &str| {
        let inode = inode.parse().ok();
        let mut all = mapped.iter().filter(|(of, _)| *of == pid).flat_map(|(_, all)| all);
        all.any(|mapping| Some(mapping.inode) == inode)
    };
    let lost = locks.lines().filter_map(|line| lock(line, "POSIX")).find(|(pid, inode)| has_mapped(*pid, inode));
    lost.map_or(Ok(()), |(pid, _)| Err(MappedLock(pid)))
}

/// Shared memory of which so much is not there may come to be there, bytes.
const FILLED_BYTES: u64 = 64 << 20;

/// Shared memory that a checkpoint would fill, or bring back wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedMemory {
    /// Most of it is not there.
    #[error(
        "process {0} has {1} MiB of shared memory that it has not used: a CRIU without our patch brings all of it into being \
         (packaging/criu.sh)"
    )]
    Unused(i32, u64),
    /// Its beginning is not mapped.
    #[error(
        "process {0} has mapped a part of its shared memory, not its beginning: a CRIU without our patch brings back something \
         else (packaging/criu.sh)"
    )]
    Part(i32),
}

/// Refuses a tree of processes with shared memory that has no name: CRIU without our patch reads it as a whole through a
/// process, from where that process has mapped it, and each page that is read is there from then on. `memory` is what [`memory`]
/// says.
///
/// # Errors
/// Which it is.
pub fn refuse_shared_memory(memory: &[(i32, String)]) -> Result<(), SharedMemory> {
    for (pid, smaps) in memory {
        let (mut is_it, mut size_kib) = (false, 0);
        for line in smaps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [_, rights, offset, _, _, ref name @ ..] if !words[0].ends_with(':') => {
                    let is_memory_file = name.first().is_some_and(|name| name.starts_with(MEMORY_FILE));
                    is_it = rights.ends_with('s') && name.last() == Some(&"(deleted)") && !is_memory_file;
                    if is_it && offset.bytes().any(|digit| digit != b'0') {
                        return Err(SharedMemory::Part(*pid));
                    }
                }
                ["Size:", kib, ..] => size_kib = kib.parse().unwrap_or(0),
                ["Rss:", kib, ..] if is_it => {
                    let unused_kib: u64 = u64::saturating_sub(size_kib, kib.parse().unwrap_or(0));
                    if unused_kib << 10 > FILLED_BYTES {
                        return Err(SharedMemory::Unused(*pid, unused_kib >> 10));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The process and the inode of a line of `/proc/locks` about this kind of lock: `1: POSIX  ADVISORY  WRITE 708 fd:01:130 0 EOF`.
pub(crate) fn lock<'a>(line: &'a str, kind: &str) -> Option<(i32, &'a str)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, of, _, _, pid, file, ..] = words[..] else { return None };
    Some((pid.parse().ok().filter(|_| of == kind)?, file.rsplit(':').next()?))
}

/// A program has a part of a file in memory for itself: a program or library that was loaded from one, or its data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("process {0} has a file in memory (memfd) mapped for itself (MAP_PRIVATE), {cure}", cure = crate::limits::MEMORY_PRIVATE.cure)]
pub struct PrivateMemoryFile(i32);

/// Refuses a tree of processes of which one has a file in memory (`memfd`) mapped for itself: CRIU brings back only what it has
/// changed there, and the rest as zeros.
///
/// # Errors
/// Which it is.
pub fn refuse_private_memory_files(mapped: &Mapped) -> Result<(), PrivateMemoryFile> {
    let is_it = |mapping: &Mapping| !mapping.is_shared() && mapping.is_named(MEMORY_FILE);
    match mapped.iter().find(|(_, all)| all.iter().any(is_it)) {
        Some((pid, _)) => Err(PrivateMemoryFile(*pid)),
        None => Ok(()),
    }
}

/// The processes that used each semaphore of this user last.
fn semaphore_users() -> Vec<i32> {
    let table = fs::read_to_string("/proc/sysvipc/sem").unwrap_or_default();
    let of_set = |line: &str| {
        let mut numbers = line.split_whitespace().skip(1).map(|word| word.parse::<i32>().ok());
        let (id, _rights, count) = (numbers.next()??, numbers.next()?, numbers.next()??);
        // SAFETY: a plain system call that takes no pointer; it fails for sets of others.
        Some((0..count).map(move |semaphore| unsafe { libc::semctl(id, semaphore, libc::GETPID) }))
    };
    table.lines().filter_map(of_set).flatten().collect()
}

/// The processes that wrote to and read from each queue last: columns 6 and 7 of the table.
fn queue_users(table: &str) -> Vec<i32> {
    let of_queue = |line: &str| line.split_whitespace().skip(5).take(2).filter_map(|w| w.parse().ok()).collect();
    table.lines().flat_map(|line| -> Vec<i32> { of_queue(line) }).collect()
}

/// Files under which sockets of a tree of processes are known, as they gave them.
pub fn bound(tree: &[i32]) -> BTreeSet<PathBuf> {
    let ours: BTreeSet<u32> = tree.iter().flat_map(|pid| sockets(*pid)).collect();
    let table = process::text(Path::new("/proc/net/unix")).unwrap_or_default();
    let path = |line: &str| {
        // Number, references, protocol, flags, type, state, inode, and the name, which may have blanks.
        let (mut word, mut rest) = ("", line);
        for _ in 0..7 {
            (word, rest) = rest.trim_start().split_once(' ')?;
        }
        let is_ours = word.parse().is_ok_and(|inode| ours.contains(&inode));
        (is_ours && rest.starts_with('/')).then(|| PathBuf::from(rest))
    };
    table.lines().filter_map(path).collect()
}

/// Numbers of a process's open sockets.
fn sockets(pid: i32) -> Vec<u32> {
    let links = process::links(&process::folder(Path::new("/proc"), pid)).unwrap_or_default().into_iter();
    let targets = links.filter_map(|(_, to)| to.into_os_string().into_string().ok());
    targets.filter_map(|t| t.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// All connected unix sockets of this network namespace, each with its peer; `/proc` does not tell.
///
/// # Errors
/// What the kernel says.
pub fn pairs() -> io::Result<Vec<(u32, u32)>> {
    let protocol = SockProtocol::NetlinkSockDiag;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let mut socket = File::from(socket);
    // Header: length, kind, REQUEST | DUMP, number, sender; then family 1, all states, no number, peers wanted, cookie.
    let mut request = Vec::new();
    request.extend(40_u32.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(0x301_u16.to_ne_bytes());
    request.extend([0; 8]);
    for word in [u32::from_ne_bytes([1, 0, 0, 0]), u32::MAX, 0, 4, 0, 0] {
        request.extend(word.to_ne_bytes());
    }
    socket.write_all(&request)?;
    let mut found = Vec::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let length = socket.read(&mut block)?;
        let mut rest = &block[..length];
        while let Some((message, kind)) = next(rest) {
            match kind {
                DONE => return Ok(found),
                BY_FAMILY => found.extend(pair(message)),
                _ => return Err(io::Error::other("refused by the kernel")),
            }
            rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or(&[]);
        }
        if length == 0 {
            return Ok(found);
        }
    }
}

fn next(bytes: &[u8]) -> Option<(&[u8], u16)> {
    let length = word(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    (length >= HEADER).then(|| bytes.get(..length)).flatten().map(|message| (message, kind))
}

/// A socket and its peer.
fn pair(message: &[u8]) -> Option<(u32, u32)> {
    let one = word(message, HEADER + 4)?;
    let mut attributes = message.get(HEADER + MESSAGE..)?;
    while let Some(head) = word(attributes, 0) {
        let bytes = head.to_ne_bytes();
        let (length, kind) = (u16::from_ne_bytes([bytes[0], bytes[1]]), u16::from_ne_bytes([bytes[2], bytes[3]]));
        if kind == PEER {
            return Some((one, word(attributes, 4)?));
        }
        attributes = attributes.get(usize::from(length.max(4)).next_multiple_of(4)..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::net::UnixStream;

    /// Does something while a file of a page is mapped.
    fn while_mapped(file: &File, act: impl FnOnce()) {
        // SAFETY: a new mapping of a file that is long enough.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        act();
        // SAFETY: the mapping just made.
        unsafe { libc::munmap(at, 4096) };
    }

    #[test]
    fn a_file_in_memory_is_refused_while_it_is_mapped() {
        let us = [std::process::id() as i32];
        // SAFETY: the name ends; what is returned is a descriptor of our own, or an error that set_len tells.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"x".as_ptr(), 0)) };
        file.set_len(4096).unwrap();
        let refuse = || refuse_memory_files(&mapped(Path::new("/proc"), &us).unwrap());
        assert_eq!(refuse(), Ok(()));
        while_mapped(&file, || assert!(refuse().is_err()));
        assert_eq!(refuse(), Ok(()));
    }

    #[test]
    fn a_lock_of_a_file_is_refused_while_the_file_is_mapped() {
        let us = [std::process::id() as i32];
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: zero is a value of each field.
        let whole = libc::flock { l_type: libc::F_WRLCK as i16, ..unsafe { std::mem::zeroed() } };
        nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETLK(&whole)).unwrap();
        let refuse = || refuse_mapped_locks(&mapped(Path::new("/proc"), &us).unwrap());
        assert_eq!(refuse(), Ok(()));
        while_mapped(&file, || assert!(refuse().is_err()));
        assert_eq!(refuse(), Ok(()));
    }

    #[test]
    fn shared_memory_that_would_be_filled_or_shifted_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let head = |offset, name| format!("7f0000000000-7f0100000000 rw-s {offset} 00:01 1025   {name} (deleted)\n");
        let sized = |size, rss| format!("Size:    {size} kB\nKernelPageSize: 4 kB\nRss:     {rss} kB\n");
        let all = [
            (7, head("00000000", "/dev/zero") + &sized(4_194_304, 4_190_000)),
            (8, head("00000000", "/dev/shm/x") + &sized(4_194_304, 16)),
            (9, head("00001000", "/dev/zero") + &sized(4, 4)),
            (10, head("00000000", "/memfd:x") + &sized(4_194_304, 16)),
        ];
        for (pid, text) in &all {
            fs::create_dir(dir.path().join(pid.to_string())).unwrap();
            fs::write(dir.path().join(format!("{pid}/smaps")), text).unwrap();
        }
        let refuse = |tree: &[i32]| refuse_shared_memory(&memory(dir.path(), tree).unwrap());
        assert_eq!(refuse(&[7, 10, 11]), Ok(()));
        assert_eq!(refuse(&[7, 8]), Err(SharedMemory::Unused(8, 4095)));
        assert_eq!(refuse(&[9]), Err(SharedMemory::Part(9)));
    }

    #[test]
    fn a_part_of_a_file_in_memory_that_a_program_has_for_itself_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let line = |rights| format!("7f0000000000-7f0000100000 {rights} 00000000 00:01 1025 /memfd:lib (deleted)\n");
        // Another file has a name that is not UTF-8.
        let other = b"7f0000100000-7f0000200000 rw-s 00000000 fe:01 12 /home/a/caf\xe9.dat\n";
        for (pid, rights) in [(7, "rw-s"), (8, "r-xp")] {
            fs::create_dir(dir.path().join(pid.to_string())).unwrap();
            let maps = [&other[..], line(rights).as_bytes()].concat();
            fs::write(dir.path().join(format!("{pid}/maps")), maps).unwrap();
        }
        let refuse = |tree: &[i32]| refuse_private_memory_files(&mapped(dir.path(), tree).unwrap());
        assert_eq!(refuse(&[7, 9]), Ok(()));
        assert_eq!(refuse(&[7, 8]), Err(PrivateMemoryFile(8)));
        fs::create_dir_all(dir.path().join("9/maps")).unwrap();
        assert!(mapped(dir.path(), &[7, 9]).unwrap_err().to_string().contains("process 9 cannot be looked into"));
    }

    #[test]
    fn the_files_of_sockets_are_found_with_blanks_in_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a socket");
        let _open = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let us = [std::process::id() as i32];
        assert!(bound(&us).contains(&path), "{:?}", bound(&us));
        assert_eq!(bound(&[]), BTreeSet::new());
    }

    #[test]
    fn a_socket_is_found_with_its_peer_and_one_that_leads_outside_is_refused() {
        let (a, b) = UnixStream::pair().unwrap();
        let number = |fd: i32| {
            let link = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().into_os_string().into_string().unwrap();
            link.trim_start_matches("socket:[").trim_end_matches(']').parse::<u32>().unwrap()
        };
        let (one, other) = (number(a.as_raw_fd()), number(b.as_raw_fd()));
        assert!(pairs().unwrap().contains(&(one, other)));
        let mut child =
            std::process::Command::new("sleep").arg("60").stdin(std::os::fd::OwnedFd::from(a)).spawn().unwrap();
        let refused = refuse_outside(&[child.id() as i32]);
        let together = refuse_outside(&[child.id() as i32, std::process::id() as i32]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(refused, Err(Outside::Socket(found)) if found == one));
        assert!(!matches!(together, Err(Outside::Socket(found)) if found == one));
    }

    #[test]
    fn an_eventfd_that_is_a_semaphore_is_refused_and_a_counter_is_not() {
        for (value, is_refused) in [("1", true), ("0", false)] {
            let proc = tempfile::tempdir().unwrap();
            let of = |name: &str| proc.path().join("7").join(name);
            ["fd", "fdinfo"].iter().for_each(|name| fs::create_dir_all(of(name)).unwrap());
            std::os::unix::fs::symlink(EVENTFD, of("fd/4")).unwrap();
            std::os::unix::fs::symlink("/dev/null", of("fd/5")).unwrap();
            fs::write(
                of("fdinfo/4"),
                format!("pos:\t0\neventfd-count:                6\neventfd-semaphore: {value}\n"),
            )
            .unwrap();
            assert_eq!(refuse_event_semaphores(proc.path(), &[7, 8]).is_err(), is_refused);
        }
    }

    #[test]
    fn who_has_used_semaphores_or_queues_of_system_v_is_refused_and_its_neighbour_is_not() {
        let us = std::process::id() as i32;
        let said = |refused: Result<(), OfTheNode>| refused.err().map_or_else(String::new, |e| e.to_string());
        // SAFETY: plain system calls; the message lives as long as the call.
        unsafe {
            let set = libc::semget(libc::IPC_PRIVATE, 2, 0o600 | libc::IPC_CREAT);
            assert!(set >= 0 && libc::semctl(set, 1, libc::SETVAL, 1) == 0);
            let (ours, others) = (refuse_node_ipc(&[us]), refuse_node_ipc(&[us + 1]));
            libc::semctl(set, 0, libc::IPC_RMID);
            assert!(said(ours).contains("semget"));
            assert_eq!(others, Ok(()));
            assert_eq!(refuse_node_ipc(&[us]), Ok(()), "they are gone");
            let queue = libc::msgget(libc::IPC_PRIVATE, 0o600 | libc::IPC_CREAT);
            let message: [libc::c_long; 2] = [1, 7];
            assert!(queue >= 0 && libc::msgsnd(queue, message.as_ptr().cast(), 8, 0) == 0);
            let ours = refuse_node_ipc(&[us]);
            libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut());
            assert!(said(ours).contains("msgget"));
        }
    }
}
