//! What CRIU cannot dump: how its log and the processes show it, and what to use instead.

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
     --ft-energy-network=own, if it needs no other host",
);
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
    &["Unseizable non-zombie"],
    "a debugger or tracer (gdb, strace) holds a process of it, and nothing can be dumped meanwhile; run it without",
);

/// All limits, in the order in which CRIU's log is searched for them.
const ALL: [Limit; 24] = [
    TAKEN,
    limit(
        "mount",
        &["Can't lookup mount"],
        "a file was opened outside the sandbox, or is a POSIX message queue; open files in the job, and use pipes or sockets",
    ),
    TRACED,
    limit(
        "secret",
        &["map_files on procfs"],
        "a process of it lets nobody look into it, as agents of keys do (ssh-agent, gpg-agent: end it when it has served), or its program may only be executed (let it be read)",
    ),
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
        "a connection was just being made within the job; the next checkpoint tries again",
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
    let shows = |sign: &str| errors.iter().any(|line| line.to_lowercase().contains(&sign.to_lowercase()));
    ALL.into_iter().find(|limit| limit.signs.iter().any(|sign| shows(sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("Error (compel/src/lib/infect.c:1): Unseizable non-zombie 5 found, state S, err -1/10", TRACED),
            ("Error (criu/fsnotify.c:1): fsnotify: Handle cannot be opened", INOTIFY),
        ] {
            assert_eq!(of_log(&[line]), Some(expected), "{line}");
        }
        let kind = |line| of_log(&[line]).map(|limit| limit.kind);
        assert_eq!(kind("Error (criu/mem.c:1): Can't open 5/map_files on procfs: Permission denied"), Some("secret"));
        assert_eq!(kind("Error (compel/src/lib/infect.c:1): si_code=4 si_pid=5 si_status=19"), Some("stopped"));
        assert_eq!(of_log(&["Error (x): y"]), None);
    }
}
