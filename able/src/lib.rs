//! Says whether running processes can be dumped from outside, and if not, what stands in the way: read from `/proc`.
//!
//! What CRIU refuses is its documentation's list of limits; what it does not refuse may still fail for a reason that
//! only a dump shows.

pub mod limits;
pub mod peers;
mod sockets;
pub mod unpatched;
pub mod unshared;

use limits::Limit;
use openfiles::process;
use serde::Serialize;
use sockets::Sockets;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// Process id.
    pub pid: i32,
    /// Name of the program.
    pub program: String,
    /// `gpu`, `rdma`, `tcp`, `socket`, `io_uring`, `aio`, `inotify`, `anon_inode`, `device`, `terminal`, `tracer`, `secret`, `sysv_shm`,
    /// `mapping`, `namespace`, `fuse`, `seccomp`, or `unknown` of a process of somebody else.
    pub kind: &'static str,
    /// What was found.
    pub found: String,
    /// What to use in its place.
    pub instead: &'static str,
}

/// A library that says what may come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Linked {
    /// Name without version.
    pub library: &'static str,
    /// What it means.
    pub means: &'static str,
}

/// What is known of a set of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether nothing stands in the way.
    pub able: bool,
    /// The processes that were looked at.
    pub pids: Vec<i32>,
    /// What stands in the way.
    pub obstacles: Vec<Obstacle>,
    /// Libraries of the programs.
    pub linked: Vec<Linked>,
}

/// Libraries that say what a program does about checkpoints, or what it may open later.
const LIBRARIES: [Linked; 6] = [
    Linked { library: "libcuda", means: "it may use a GPU, which NVIDIA's driver saves from version 570 on" },
    Linked { library: "libamdhip64", means: "it may open a GPU, which cannot be dumped" },
    Linked { library: "libibverbs", means: "it may open an RDMA device, which cannot be dumped" },
    Linked {
        library: "libmpi",
        means: "start it by srun --mpi=... or mpirun; Open MPI and MPICH only, else use app or scr",
    },
    Linked { library: "libscr", means: "--ft-energy-engine=scr lets SCR checkpoint it" },
    Linked { library: "libdmtcp", means: "it runs under DMTCP already: --ft-energy-engine=dmtcp" },
];

/// Devices that CRIU knows how to bring back.
const HARMLESS: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/console"];

/// Files without a name that CRIU knows how to bring back.
const KNOWN_INODES: [&str; 5] = ["eventfd", "eventpoll", "signalfd", "timerfd", "pidfd"];

const APP: &str = "checkpoints of its own (--ft-energy-engine=app, scr or hook)";

/// Looks at processes; `root` is `/proc`. `dumps_removed` tells whether CRIU here is known to dump shared mappings of removed
/// files.
///
/// A process that ended meanwhile stands in nobody's way; one that may not be read does.
pub fn look(root: &Path, pids: &[i32], dumps_removed: bool) -> Answer {
    let sockets = Sockets::of(root, pids);
    let mut answer = Answer { pids: pids.to_vec(), ..Answer::default() };
    let mut linked = BTreeSet::new();
    let processes: Vec<Process> = pids.iter().filter_map(|pid| Process::read(root, *pid)).collect();
    let namespaces: BTreeMap<i32, &Path> =
        processes.iter().filter_map(|p| Some((p.pid, p.user_namespace.as_deref()?))).collect();
    let around = Around {
        sockets,
        driver: gpu::driver::version(root),
        on_gpus: processes.iter().filter(|p| p.is_on_gpu()).map(|p| p.pid_namespace.clone()).collect(),
        has_terminals: processes.iter().any(|p| p.open.iter().flatten().any(|path| path.ends_with("/ptmx"))),
        namespaces,
        dumps_removed,
    };
    for process in &processes {
        answer.obstacles.extend(process.obstacles(&around));
        linked.extend(process.linked());
    }
    answer.linked = linked.into_iter().collect();
    answer.able = answer.obstacles.is_empty();
    answer
}

/// A TCP connection of these processes that stands in the way, and why; `root` is `/proc`.
pub fn connection(root: &Path, pids: &[i32]) -> Option<(String, Limit)> {
    let sockets = Sockets::of(root, pids);
    let mut all = pids.iter().filter_map(|pid| Process::read(root, *pid)).flat_map(|process| process.open).flatten();
    all.find_map(|path| sockets.connection(&path)).map(|(limit, found)| (found, limit))
}

/// What is around one process.
struct Around<'a> {
    sockets: Sockets,
    /// First number of the version of NVIDIA's driver, if there is one.
    driver: Option<u32>,
    /// The pid namespaces of the processes that use NVIDIA's GPUs: those of one sandbox have the same.
    on_gpus: Vec<Option<PathBuf>>,
    /// Whether one of the processes holds the other ends of terminals.
    has_terminals: bool,
    /// The user namespaces of the processes.
    namespaces: BTreeMap<i32, &'a Path>,
    dumps_removed: bool,
}

/// The processes of a Slurm job here, but for Slurm's and ours. What may not be looked into shows no variables: it is the job's if it
/// is in the job's control group, or in a session with a process that shows them.
pub fn of_job(root: &Path, job: u32) -> Vec<i32> {
    let file = |pid: i32, name: &str| root.join(pid.to_string()).join(name);
    let text = |pid: i32, name: &str| process::text(&file(pid, name)).unwrap_or_default();
    let wanted = format!("SLURM_JOB_ID={job}");
    let is_marked = |variables: Vec<u8>| variables.split(|b| *b == 0).any(|v| v == wanted.as_bytes());
    let is_foreign = |pid: i32| ["srun", "joulepoint", "slurmstepd"].contains(&text(pid, "comm").trim());
    let group = format!("job_{job}");
    let is_in_group = |pid: i32| text(pid, "cgroup").split(['/', '\n']).any(|part| part == group);
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let all: Vec<i32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let shown: BTreeMap<i32, Option<bool>> =
        all.into_iter().map(|pid| (pid, fs::read(file(pid, "environ")).ok().map(is_marked))).collect();
    let marked = || shown.iter().filter(|(_, is_marked)| **is_marked == Some(true)).map(|(pid, _)| *pid);
    let sessions: BTreeSet<String> = marked().filter_map(|pid| session(&text(pid, "stat"))).collect();
    let is_in_session = |pid: i32| session(&text(pid, "stat")).is_some_and(|session| sessions.contains(&session));
    let silent = shown.iter().filter(|(_, is_marked)| is_marked.is_none()).map(|(pid, _)| *pid);
    let silent = silent.filter(|pid| is_in_group(*pid) || is_in_session(*pid));
    let pids: BTreeSet<i32> = marked().chain(silent).collect();
    pids.into_iter().filter(|pid| *pid != std::process::id() as i32 && !is_foreign(*pid)).collect()
}

/// The session of a process, by its `stat`, where the name of its program may have spaces and brackets; none if it is out of sight.
fn session(stat: &str) -> Option<String> {
    stat.rsplit_once(") ")?.1.split(' ').nth(3).filter(|session| *session != "0").map(str::to_string)
}

/// One process as `/proc` shows it.
struct Process {
    pid: i32,
    program: String,
    status: String,
    /// Targets of the open descriptors; absent if they may not be read.
    open: Option<Vec<String>>,
    /// Paths of mapped files.
    mapped: BTreeSet<String>,
    /// Those of them whose file is removed, and whether the mapping is shared.
    removed: BTreeSet<(String, bool)>,
    user_namespace: Option<PathBuf>,
    pid_namespace: Option<PathBuf>,
    /// Mount points with a file system in user space.
    fuse: Vec<String>,
    /// Whether it has an eventfd that is a semaphore.
    has_event_semaphore: bool,
}

impl Process {
    fn read(root: &Path, pid: i32) -> Option<Process> {
        let folder = root.join(pid.to_string());
        let text = |name: &str| process::text(&folder.join(name)).unwrap_or_default();
        let told = |path: PathBuf| path.to_string_lossy().into_owned();
        let status = process::text(&folder.join("status")).ok()?;
        let maps = process::if_there(process::mappings(&folder)).map(Option::unwrap_or_default).ok();
        let open = maps.as_ref().and_then(|_| process::links(&folder).ok());
        let open: Option<Vec<String>> = open.map(|links| {
            let cwd = fs::read_link(folder.join("cwd")).ok();
            links.into_iter().map(|(_, to)| to).chain(cwd).map(told).collect()
        });
        let has_eventfd = open.iter().flatten().any(|path| path == peers::EVENTFD);
        let has_event_semaphore = has_eventfd && peers::refuse_event_semaphores(root, &[pid]).is_err();
        let maps: Vec<(bool, String)> =
            maps.unwrap_or_default().into_iter().map(|m| (m.is_shared(), told(m.name))).collect();
        let removed = maps.iter().filter_map(|(is_shared, path)| Some((removed(path, *is_shared)?, *is_shared)));
        let removed = removed.collect();
        Some(Process {
            pid,
            program: text("comm").trim().to_string(),
            status,
            open,
            mapped: maps.into_iter().map(|(_, path)| path).collect(),
            removed,
            user_namespace: fs::read_link(folder.join("ns/user")).ok(),
            pid_namespace: fs::read_link(folder.join("ns/pid")).ok(),
            fuse: fuse(&text("mountinfo")),
            has_event_semaphore,
        })
    }

    fn obstacles(&self, around: &Around<'_>) -> Vec<Obstacle> {
        let Some(open) = &self.open else {
            let found = "it may not be looked into".to_string();
            // By its effective user, the second of the four.
            let user: Option<u32> = self.field("Uid").split_whitespace().nth(1).and_then(|user| user.parse().ok());
            let is_own = user == Some(nix::unistd::geteuid().as_raw());
            return vec![match is_own {
                true => self.obstacle(limits::SECRET.kind, found, limits::SECRET.cure),
                false => self.obstacle("unknown", found, "ask as the user of the job, or as root"),
            }];
        };
        let mut found: BTreeSet<(&'static str, String, &'static str)> = BTreeSet::new();
        for path in open.iter().chain(&self.mapped) {
            let socket = || around.sockets.foreign(path).map(|(limit, found)| (limit.kind, found, limit.cure));
            found.extend(device(path).or_else(|| nameless(path)).or_else(socket));
            if path.starts_with("/dev/pts/") && !path.ends_with("/ptmx") && !around.has_terminals {
                let Limit { kind, cure, .. } = limits::TERMINAL;
                found.insert((kind, path.clone(), cure));
            }
            if let Some(mount) = self.fuse.iter().find(|m| Path::new(path).starts_with(m)) {
                found.insert((
                    "fuse",
                    format!("{path} on a file system in user space, {mount}"),
                    "files on another file system",
                ));
            }
        }
        found.extend(self.removed.iter().filter_map(|(path, is_shared)| {
            if path == AIO_RING {
                return Some((limits::AIO.kind, "a ring of the kernel's AIO".to_string(), limits::AIO.cure));
            }
            if path.starts_with(peers::MEMORY_FILE) {
                let found = format!("{path}, mapped for itself (MAP_PRIVATE)");
                return Some((limits::MEMORY_PRIVATE.kind, found, limits::MEMORY_PRIVATE.cure));
            }
            let limit = if *is_shared { limits::REMOVED_SHARED } else { limits::REMOVED_PRIVATE };
            (!is_shared || !around.dumps_removed)
                .then(|| (limit.kind, format!("{path}, removed and mapped"), limit.cure))
        }));
        found.extend(self.gpu(open, around));
        if self.mapped.iter().any(|p| p.starts_with("/SYSV")) {
            let Limit { kind, cure, .. } = limits::SYSV_SHM;
            found.insert((kind, "System V shared memory".to_string(), cure));
        }
        let parent = self.field("PPid").parse().ok().and_then(|parent: i32| around.namespaces.get(&parent));
        if let (Some(own), Some(parents)) = (&self.user_namespace, parent)
            && own != *parents
        {
            let Limit { kind, cure, .. } = limits::NESTED;
            found.insert((kind, "a user namespace within the job".to_string(), cure));
        }
        if self.has_event_semaphore {
            found.insert(("eventfd", peers::EventSemaphore.to_string(), "pipes, or semaphores of POSIX"));
        }
        let tracer = self.field("TracerPid");
        if tracer != "0" {
            let Limit { kind, cure, .. } = limits::TRACED;
            found.insert((kind, format!("process {tracer} traces it"), cure));
        }
        if self.field("Seccomp") == "2" {
            found.insert((
                "seccomp",
                "a seccomp filter".to_string(),
                "no container runtime's filter, or a privileged dump",
            ));
        }
        found.into_iter().map(|(kind, found, instead)| self.obstacle(kind, found, instead)).collect()
    }

    /// Why NVIDIA's GPUs of this process stand in the way, if it has any.
    fn gpu(&self, open: &[String], around: &Around<'_>) -> Option<(&'static str, String, &'static str)> {
        let device = open.iter().chain(&self.mapped).find(|path| gpu::owner::is_device(Path::new(path)))?;
        let limit = match around.driver {
            _ if !self.mapped.iter().any(|path| gpu::owner::is_library(Path::new(path))) => limits::GPU,
            Some(version) if version < gpu::driver::FIRST_DRIVER => limits::GPU_OLD,
            _ if !self.is_on_gpu() => limits::GPU_FORKED,
            _ if around.on_gpus.iter().filter(|of| **of == self.pid_namespace).count() > 1 => limits::GPU_SEVERAL,
            _ => return None,
        };
        Some((limit.kind, device.clone(), limit.cure))
    }

    fn is_on_gpu(&self) -> bool {
        self.mapped.iter().any(|path| gpu::owner::is_memory(Path::new(path)))
    }

    fn obstacle(&self, kind: &'static str, found: String, instead: &'static str) -> Obstacle {
        Obstacle { pid: self.pid, program: self.program.clone(), kind, found, instead }
    }

    fn linked(&self) -> Vec<Linked> {
        let is_mapped = |library: &str| {
            let name = format!("/{library}.so");
            self.mapped.iter().any(|p| p.contains(&name))
        };
        LIBRARIES.into_iter().filter(|l| is_mapped(l.library)).collect()
    }

    /// A line of `status`; `0` where there is none.
    fn field(&self, name: &str) -> &str {
        let line = self.status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("0", str::trim)
    }
}

/// What the kernel calls the mapping of an AIO context.
const AIO_RING: &str = "/[aio]";

/// The name of a file that is removed; what the kernel calls so and has no name is none, but for a file in memory of which a process
/// has a part for itself.
fn removed(path: &str, is_shared: bool) -> Option<String> {
    let name = path.strip_suffix(" (deleted)")?;
    let is_in_memory = is_shared && name.starts_with(peers::MEMORY_FILE);
    let is_nameless =
        name == "/dev/zero" || is_in_memory || ["/SYSV", "/anon_hugepage"].iter().any(|n| name.starts_with(n));
    (!is_nameless).then(|| name.to_string())
}

fn device(path: &str) -> Option<(&'static str, String, &'static str)> {
    let name = path.strip_suffix(" (deleted)").unwrap_or(path);
    let under = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    let of = |limit: Limit| Some((limit.kind, path.to_string(), limit.cure));
    if gpu::owner::is_device(Path::new(name)) {
        return None;
    }
    if under(&["/dev/kfd", "/dev/dri/"]) {
        return of(limits::GPU);
    }
    if under(&["/dev/infiniband/", "/dev/hfi1", "/dev/cxi", "/dev/xpmem", "/dev/knem"]) {
        return of(limits::RDMA);
    }
    let harmless = HARMLESS.contains(&name) || under(&["/dev/pts/", "/dev/shm/"]) || name == "/dev";
    (under(&["/dev/"]) && !harmless).then(|| ("device", path.to_string(), APP))
}

fn nameless(path: &str) -> Option<(&'static str, String, &'static str)> {
    let name = path.strip_prefix("anon_inode:")?.trim_matches(['[', ']']);
    match name {
        "io_uring" => Some((limits::IO_URING.kind, path.to_string(), limits::IO_URING.cure)),
        "inotify" | "fanotify" => {
            Some((limits::INOTIFY.kind, format!("{path}, a watch on files"), limits::INOTIFY.cure))
        }
        _ if KNOWN_INODES.contains(&name) => None,
        _ => Some(("anon_inode", path.to_string(), APP)),
    }
}

/// Mount points of file systems in user space.
fn fuse(mountinfo: &str) -> Vec<String> {
    let is_fuse = |line: &&str| line.split(" - ").nth(1).is_some_and(|rest| rest.starts_with("fuse"));
    let point = |line: &str| line.split(' ').nth(4).map(|p| p.replace("\\040", " "));
    mountinfo.lines().filter(is_fuse).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A `/proc` with one process that has these descriptors and mappings.
    fn proc(open: &[&str], mapped: &[&str], status: &str, mounts: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("7");
        fs::create_dir_all(folder.join("fd")).unwrap();
        for (number, target) in open.iter().enumerate() {
            symlink(target, folder.join("fd").join(number.to_string())).unwrap();
        }
        let rights = |path: &str| if path.contains("sem.") { "rw-s" } else { "r-xp" };
        let maps = mapped.iter().map(|p| format!("7f00-7f10 {} 00000000 fe:01 12                 {p}\n", rights(p)));
        fs::write(folder.join("maps"), maps.collect::<String>()).unwrap();
        for (name, text) in [("status", status), ("mountinfo", mounts), ("comm", "prog\n")] {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(folder.join("environ"), "A=1\0SLURM_JOB_ID=4711\0B=2\0").unwrap();
        dir
    }

    /// Descriptors, mappings, status, and the obstacles that follow.
    type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a str, &'a [&'a str]);

    fn kinds(answer: &Answer) -> Vec<&str> {
        answer.obstacles.iter().map(|o| o.kind).collect()
    }

    #[test]
    fn each_obstacle_is_named_with_what_to_use_instead() {
        let fuse = "36 35 0:50 / /mnt/s3 rw - fuse.s3fs s3 rw\n25 1 8:1 / / rw - ext4 /dev/sda rw\n";
        let cases: [Case; 22] = [
            (&[], &["/[aio] (deleted)"], "", &["aio"]),
            (&[], &["/dev/zero (deleted)", "/dev/shm/x"], "", &[]),
            (&[], &["/memfd:x (deleted)"], "", &["mapping"]),
            (&["/dev/zero (deleted)"], &[], "", &[]),
            (&[], &["/dev/shm/sem.x (deleted)"], "", &["mapping"]),
            (&[], &["/opt/lib/libx.so (deleted)"], "", &["mapping"]),
            (&["/dev/pts/3"], &[], "", &["terminal"]),
            (&["/dev/pts/0", "/dev/pts/ptmx"], &[], "", &[]),
            (
                &["/dev/null", "/dev/ptmx", "/dev/pts/3", "/home/x", "anon_inode:[eventpoll]", "pipe:[3]"],
                &["[stack]"],
                "",
                &[],
            ),
            (&["/dev/nvidia0", "/dev/nvidiactl"], &[], "", &["gpu"]),
            (&["/dev/nvidia0"], &["/usr/lib/libcuda.so.580.159.04", "/dev/nvidia-uvm"], "", &[]),
            (&["/dev/nvidia0"], &["/usr/lib/libcuda.so.580.159.04", "/dev/nvidiactl"], "", &["gpu"]),
            (&["/dev/kfd"], &["/dev/dri/renderD128"], "", &["gpu", "gpu"]),
            (&["/dev/infiniband/uverbs0"], &[], "", &["rdma"]),
            (&["anon_inode:[io_uring]"], &["anon_inode:[io_uring]"], "", &["io_uring"]),
            (&["anon_inode:[perf_event]", "anon_inode:inotify"], &[], "", &["anon_inode", "inotify"]),
            (&["/dev/kvm"], &[], "", &["device"]),
            (&[], &["/SYSV00000000 (deleted)"], "", &["sysv_shm"]),
            (&["/mnt/s3/data"], &[], "", &["fuse"]),
            (&["/mnt/s3-other/data"], &[], "", &[]),
            (&[], &[], "Name:\tprog\nTracerPid:\t55\n", &["tracer"]),
            (&[], &[], "Seccomp:\t2\nTracerPid:\t0\n", &["seccomp"]),
        ];
        for (open, mapped, status, expected) in cases {
            let dir = proc(open, mapped, status, fuse);
            let answer = look(dir.path(), &[7], false);
            assert_eq!(kinds(&answer), expected, "{open:?} {mapped:?} {status}: {answer:?}");
            assert_eq!(answer.able, expected.is_empty());
            assert!(answer.obstacles.iter().all(|o| !o.instead.is_empty() && o.program == "prog" && o.pid == 7));
        }
    }

    #[test]
    fn names_that_are_not_utf_8_hide_nothing() {
        let dir = proc(&[], &[], "", "");
        let write = |name: &str, text: &[u8]| fs::write(dir.path().join("7").join(name), text).unwrap();
        let head = &b"7f00-7f10 rw-s 00000000 fe:01 12                 "[..];
        write("maps", &[head, b"/home/a/caf\xe9.dat\n", head, b"/SYSV00000000 (deleted)\n"].concat());
        write("status", b"Name:\tcaf\xe9\nTracerPid:\t55\n");
        write(
            "mountinfo",
            b"25 1 0:51 / /mnt/s3 rw - fuse.s3fs s3 rw\n26 1 0:52 / /mnt/caf\xe9 rw - xfs /dev/sda rw\n",
        );
        symlink("/mnt/s3/data", dir.path().join("7/fd/3")).unwrap();
        assert_eq!(kinds(&look(dir.path(), &[7], false)), ["fuse", "sysv_shm", "tracer"]);
    }

    #[test]
    fn libraries_say_what_may_come_and_stand_in_nobodys_way() {
        let dir = proc(&[], &["/usr/lib/libmpi.so.40.30", "/opt/libscr.so.3", "/usr/lib/libmpich.so"], "", "");
        let answer = look(dir.path(), &[7], false);
        assert_eq!(answer.linked.iter().map(|l| l.library).collect::<Vec<_>>(), ["libmpi", "libscr"]);
        assert!(answer.able);
    }

    #[test]
    fn the_processes_of_a_job_are_found_by_their_environment() {
        let dir = proc(&[], &[], "", "");
        assert_eq!(of_job(dir.path(), 4711), [7]);
        assert_eq!(of_job(dir.path(), 471), Vec::<i32>::new());
        fs::write(dir.path().join("7/comm"), "srun\n").unwrap();
        assert_eq!(of_job(dir.path(), 4711), Vec::<i32>::new());
    }

    #[test]
    fn a_process_of_a_job_that_shows_no_variables_is_found_by_its_session_or_its_control_group() {
        let dir = proc(&[], &[], "", "");
        let write = |pid: i32, name: &str, text: &str| {
            fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
            fs::write(dir.path().join(pid.to_string()).join(name), text).unwrap();
        };
        write(7, "stat", "7 (prog) S 1 7 7 0 -1");
        for (pid, stat, group) in [
            (8, "8 (a) (b) S 7 7 7 0 -1", "0::/user.slice"),
            (9, "9 (prog) S 1 9 9 0 -1", "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n"),
            (10, "10 (prog) S 1 10 10 0 -1", "0::/system.slice/slurmstepd.scope/job_47110/step_batch/user/task_0\n"),
        ] {
            write(pid, "stat", stat);
            write(pid, "cgroup", group);
        }
        assert_eq!(of_job(dir.path(), 4711), [7, 8, 9]);
        write(8, "environ", "SLURM_JOB_ID=1\0");
        assert_eq!(of_job(dir.path(), 4711), [7, 9], "another job's");
    }

    #[test]
    fn what_may_not_be_read_is_not_called_able() {
        let dir = proc(&[], &[], "", "");
        fs::remove_dir_all(dir.path().join("7/fd")).unwrap();
        assert_eq!(kinds(&look(dir.path(), &[7], false)), ["unknown"]);
        let user = nix::unistd::geteuid();
        fs::write(dir.path().join("7/status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")).unwrap();
        assert_eq!(kinds(&look(dir.path(), &[7], false)), ["secret"]);
        assert!(look(dir.path(), &[8], false).able, "a process that has ended");
    }

    #[test]
    fn what_criu_can_dump_here_stands_in_nobodys_way() {
        let dir = proc(&[], &["/dev/shm/sem.x (deleted)", "/opt/lib/libx.so (deleted)"], "", "");
        let answer = look(dir.path(), &[7], true);
        let found: Vec<_> = answer.obstacles.iter().map(|o| o.found.as_str()).collect();
        assert_eq!(found, ["/opt/lib/libx.so, removed and mapped"], "the semaphore is no obstacle");
    }

    #[test]
    fn of_a_gpu_the_driver_and_who_else_has_one_decide() {
        let dir = proc(&["/dev/nvidia0"], &["/usr/lib/libcuda.so.1", "/dev/nvidia-uvm"], "", "");
        let cures = |pids: &[i32]| look(dir.path(), pids, true).obstacles.iter().map(|o| o.instead).collect::<Vec<_>>();
        assert_eq!(cures(&[7]), Vec::<&str>::new());
        fs::create_dir_all(dir.path().join("8/fd")).unwrap();
        for name in ["maps", "status"] {
            fs::copy(dir.path().join("7").join(name), dir.path().join("8").join(name)).unwrap();
        }
        symlink("/dev/nvidia1", dir.path().join("8/fd/3")).unwrap();
        assert_eq!(cures(&[7, 8]), [limits::GPU_SEVERAL.cure; 2]);
        fs::create_dir_all(dir.path().join("8/ns")).unwrap();
        symlink("pid:[2]", dir.path().join("8/ns/pid")).unwrap();
        assert_eq!(cures(&[7, 8]), Vec::<&str>::new(), "each in a sandbox of its own");
        fs::create_dir_all(dir.path().join("driver/nvidia")).unwrap();
        fs::write(dir.path().join("driver/nvidia/version"), "NVRM version: NVIDIA Kernel Module  550.127.05\n")
            .unwrap();
        assert_eq!(cures(&[7]), [limits::GPU_OLD.cure]);
    }

    #[test]
    fn a_container_within_the_job_is_named_and_the_jobs_own_sandbox_is_not() {
        let dir = proc(&[], &[], "PPid:\t1\n", "");
        for (pid, parent, namespace) in [(7, 1, "user:[2]"), (8, 7, "user:[2]"), (9, 8, "user:[3]")] {
            let folder = dir.path().join(pid.to_string());
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::create_dir_all(folder.join("ns")).unwrap();
            fs::write(folder.join("status"), format!("PPid:\t{parent}\n")).unwrap();
            symlink(namespace, folder.join("ns/user")).unwrap();
        }
        let answer = look(dir.path(), &[7, 8, 9], true);
        assert_eq!(answer.obstacles.iter().map(|o| (o.pid, o.kind)).collect::<Vec<_>>(), [(9, "namespace")]);
    }
}
