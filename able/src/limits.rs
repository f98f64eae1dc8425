//! What CRIU cannot dump: how its log and the processes show it, and what to use instead.

use std::fs;
use std::path::Path;

/// One thing that cannot be dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name in answers, such as `gpu`.
    pub kind: &'static str,
    /// Words of CRIU's log that show it.
    signs: &'static [&'static str],
    /// What it is, and what the user or the site should do instead.
    pub cure: &'static str,
}

const fn limit(kind: &'static str, signs: &'static [&'static str], cure: &'static str) -> Limit {
    Limit { kind, signs, cure }
}

/// A GPU, by other means than NVIDIA's library for programs.
pub const GPU: Limit = limit(
    "gpu",
    &["nvidia", "/dev/kfd"],
    "only programs on NVIDIA's GPUs that use CUDA can be dumped, and what watches GPUs, such as nvidia-smi, cannot; use \
     --ft-energy-engine=app",
);
/// A GPU whose driver does not let it go.
pub const GPU_OLD: Limit = limit(
    "gpu",
    &[],
    "NVIDIA's driver saves what programs have on GPUs from version 570 on; use --ft-energy-engine=app",
);
/// A GPU in the hands of a process that does not use it.
pub const GPU_FORKED: Limit = limit("gpu", &[], gpu::owner::FORKED);
/// A GPU of one of several processes.
pub const GPU_SEVERAL: Limit = limit("gpu", &[], gpu::owner::SEVERAL);
/// A device that reads and writes the memory of other nodes.
pub const RDMA: Limit = limit(
    "rdma",
    &["infiniband"],
    "RDMA devices cannot be dumped; use MPI over TCP or shared memory, or --ft-energy-engine=app",
);
/// `io_uring`: input and output by a queue of the kernel.
pub const IO_URING: Limit = limit(
    "io_uring",
    &["send_fds failed", "io_uring"],
    "a descriptor cannot be dumped, such as one of io_uring; switch that off in the program (--innodb-use-native-aio=0 for \
     MariaDB, asyncio for uvloop, Node 20 for Node 22)",
);
/// Input and output by the kernel's AIO (`io_setup`), whose ring is mapped; CRIU names the mapping in brackets, `[/[aio] (deleted)]`.
pub const AIO: Limit = limit(
    "aio",
    &["[/[aio]"],
    "input and output by the kernel's AIO (libaio) cannot be dumped; switch that off in the program \
     (--innodb-use-native-aio=0 for MariaDB)",
);
/// A watch on files.
pub const INOTIFY: Limit = limit(
    "inotify",
    &["fsnotify"],
    "a watch on files (inotify) cannot be dumped; 'tail -f ---disable-inotify' looks now and then",
);
/// Shared memory by System V's calls.
pub const SYSV_SHM: Limit =
    limit("sysv_shm", &["SysVIPC"], "System V shared memory cannot be dumped; POSIX shared memory (shm_open) can");
/// A TCP connection within the job, in the node's network.
pub const TCP_WITHIN: Limit = limit(
    "tcp",
    &["inet:"],
    "network connections cannot be dumped; srun and other clients of a server are such; for those within the job use \
     --ft-energy-network=own, if it needs no other host and no srun",
);
/// What is said in its place of a task of a step, whose sandbox never has a network of its own.
const TCP_OF_STEP: &str = "connections of what srun starts are in no checkpoint, and --ft-energy-network=own changes nothing of that; use MPI \
     (Open MPI or MPICH), or checkpoints that the program writes itself (--ft-energy-done=FILES); what needs one node only may \
     start without srun, and with that option";
/// A TCP connection to another host.
pub const TCP_OUTSIDE: Limit = limit(
    "socket",
    &[],
    "connections to other processes cannot be dumped; srun and other clients of a server are such: close them when they are \
     not needed",
);
/// A unix socket whose other end is outside of the sandbox.
pub const UNIX_OUTSIDE: Limit =
    limit("socket", &["unix:"], "a socket leads out of the job; a running srun and clients of a daemon are such");
/// A container, or other namespaces within the sandbox.
pub const NESTED: Limit = limit(
    "namespace",
    &["nested user namespace", "nested pid namespace", "Nested"],
    "a container brings namespaces of its own, and cannot be dumped while it runs; a program in it can write checkpoints itself \
     (--ft-energy-done=FILES)",
);
/// A shared mapping of a file that is removed.
pub const REMOVED_SHARED: Limit = limit(
    "mapping",
    &["Can't open mapped", "map_files"],
    "a file was removed that is mapped, as locks of Python's pools are; a CRIU with our patch dumps those that are shared \
     (packaging/criu.sh), and none those of a program or library that was replaced while it ran",
);
/// A private mapping of a file in memory.
pub const MEMORY_PRIVATE: Limit = limit(
    "mapping",
    &[],
    "which comes back as zeros: load programs and libraries from a file that stays, not from memory (memfd)",
);
/// A port or a name that another program of the node holds.
pub const TAKEN: Limit = limit(
    "socket",
    &["Address already in use"],
    "a port or a socket's name that the program holds is another program's on this node for now; --ft-energy-network=own gives the \
     job ports of its own",
);
/// A private mapping of a file that is removed.
pub const REMOVED_PRIVATE: Limit = limit(
    "mapping",
    &[],
    "a program or library that was replaced while it runs cannot be dumped; start it again, or keep the old file",
);
/// A terminal that a process outside of the sandbox holds.
pub const TERMINAL: Limit =
    limit("terminal", &["tty:"], "a terminal of somebody outside cannot be dumped; read and write files or pipes");

/// A process that another one traces.
pub const TRACED: Limit = limit(
    "tracer",
    &[],
    "a debugger or tracer (gdb, strace) holds a process of it, and nothing can be dumped meanwhile; run it without",
);
/// A process whose memory nobody but root may read.
pub const SECRET: Limit = limit(
    "secret",
    &[UNSEIZABLE, "map_files on procfs"],
    "a process of it lets nobody look into it: its program may only be executed (let it be read: chmod +r), or it is an agent of keys \
     (ssh-agent, gpg-agent: end it when it has served)",
);

/// What CRIU says of a process that it may not trace, and what comes before its number.
const UNSEIZABLE: &str = "Unseizable non-zombie";

/// All limits, in the order in which CRIU's log is searched for them.
const ALL: [Limit; 24] = [
    TAKEN,
    limit(
        "mount",
        &["Can't lookup mount"],
        "a file was opened outside the sandbox, or is a POSIX message queue; open files in the job, and use pipes or sockets",
    ),
    SECRET,
    limit(
        "stopped",
        &["si_code="],
        "a process of it was stopped or ended from outside during the dump; the next one is tried as before",
    ),
    GPU,
    RDMA,
    limit(
        "counter",
        &["anon_inode:[perf_event]"],
        "performance counters (perf) cannot be dumped; run the program without them",
    ),
    limit(
        "userfaultfd",
        &["anon_inode:[userfaultfd]"],
        "a program that serves the page faults of its memory (userfaultfd) cannot be dumped",
    ),
    limit(
        "seccomp",
        &["suspending seccomp"],
        "a process of it filters its system calls (seccomp), as browsers do, and cannot be dumped; switch its sandbox off, if it has \
         an option for that",
    ),
    limit(
        "pipe",
        &["packetized mode"],
        "a pipe that keeps writes apart (O_DIRECT) cannot be dumped; use a socket of datagrams (SOCK_SEQPACKET)",
    ),
    limit(
        "connecting",
        &["in-flight socket"],
        "a connection was just being made within the job; the next checkpoint tries again; if it fails for this again, too, the program \
         that listens does not accept it: let it accept, or close, what waits",
    ),
    limit(
        "queue",
        &["Control messages in queue"],
        "a descriptor that was sent over a unix socket (SCM_RIGHTS) waits there for who receives it; the next checkpoint tries again; if \
         it fails for this again, too, nobody receives it: let the program receive it, or write checkpoints itself \
         (--ft-energy-done=FILES)",
    ),
    IO_URING,
    AIO,
    INOTIFY,
    limit(
        "link",
        &["link remap"],
        "a file that the program holds open was removed and has another name; close it, or keep its name",
    ),
    SYSV_SHM,
    TCP_WITHIN,
    UNIX_OUTSIDE,
    limit("size", &["bad size"], "a file that the program holds open has changed since the checkpoint"),
    NESTED,
    REMOVED_SHARED,
    TERMINAL,
    TCP_OUTSIDE,
];

/// The limit behind errors of CRIU, if it is known.
pub fn of_log(errors: &[&str]) -> Option<Limit> {
    of_log_at(Path::new("/proc"), errors)
}

/// The same; `root` is `/proc`, which says whether a process that CRIU may not trace is traced by another one.
fn of_log_at(root: &Path, errors: &[&str]) -> Option<Limit> {
    let named = |line: &&str| line.split_once(UNSEIZABLE)?.1.split_whitespace().next()?.parse::<u32>().ok();
    let is_traced = |pid: u32| {
        let status = fs::read_to_string(root.join(pid.to_string()).join("status")).unwrap_or_default();
        status.lines().filter_map(|line| line.strip_prefix("TracerPid:")).any(|tracer| tracer.trim() != "0")
    };
    if errors.iter().filter_map(named).any(is_traced) {
        return Some(TRACED);
    }
    let shows = |sign: &str| errors.iter().any(|line| line.to_lowercase().contains(&sign.to_lowercase()));
    ALL.into_iter().find(|limit| limit.signs.iter().any(|sign| shows(sign)))
}

/// Why a task of a step could not be dumped, with what helps there in place of what helps a script.
pub fn of_step(reason: &str) -> String {
    reason.replace(TCP_WITHIN.cure, TCP_OF_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_traced_is_told_from_one_that_nobody_may_look_into() {
        let dir = tempfile::tempdir().unwrap();
        let line = "Error (compel/src/lib/infect.c:1): Unseizable non-zombie 5 found, state S, err -1/10";
        assert_eq!(of_log_at(dir.path(), &[line]), Some(SECRET), "it has ended meanwhile");
        fs::create_dir(dir.path().join("5")).unwrap();
        for (tracer, expected) in [("0", SECRET), ("77", TRACED)] {
            fs::write(dir.path().join("5/status"), format!("Name:\tprog\nTracerPid:\t{tracer}\n")).unwrap();
            assert_eq!(of_log_at(dir.path(), &[line]), Some(expected), "{tracer}");
        }
    }

    #[test]
    fn a_task_of_a_step_hears_of_no_option_that_it_does_not_have() {
        let said = format!("criu: inet: Connected TCP socket: {}", TCP_WITHIN.cure);
        let said = of_step(&said);
        assert!(said.starts_with("criu: inet: Connected") && said.contains("changes nothing"), "{said}");
        assert_eq!(of_step("the disk is full"), "the disk is full");
    }

    #[test]
    fn errors_of_criu_are_known_by_their_words() {
        for (line, expected) in [
            (
                "Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using --tcp-established option.",
                TCP_WITHIN,
            ),
            ("Error (criu/namespaces.c:1): Can't dump nested user namespace for 5", NESTED),
            ("Error (criu/proc_parse.c:3): Can't open mapped [/dev/shm/sem.x (deleted)]: No such file", REMOVED_SHARED),
            ("Error (criu/sk-unix.c:1): unix: External socket is used.", UNIX_OUTSIDE),
            ("Error (criu/fsnotify.c:1): fsnotify: Handle cannot be opened", INOTIFY),
        ] {
            assert_eq!(of_log(&[line]), Some(expected), "{line}");
        }
        let kind = |line| of_log(&[line]).map(|limit| limit.kind);
        assert_eq!(kind("Error (criu/mem.c:1): Can't open 5/map_files on procfs: Permission denied"), Some("secret"));
        assert_eq!(kind("Error (compel/src/lib/infect.c:1): si_code=4 si_pid=5 si_status=19"), Some("stopped"));
        assert_eq!(kind("Error (criu/sk-queue.c:1): skqueue: Control messages in queue, not supported"), Some("queue"));
        assert_eq!(of_log(&["Error (x): y"]), None);
    }
}
