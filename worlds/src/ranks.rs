//! One MPI world over the sandboxes of several groups: which launcher and library make it, and how the ranks of one
//! group are started.
//!
//! In each group the program's own `mpirun` starts as many ranks as the group has tasks, in the group's sandbox. The
//! library, loaded before the program's, shows them one world, and has a relay outside carry what goes between groups.
//! A rank's environment is that of a task of one `srun` of the whole.

use criu::files::SHARED_MEMORY;
use criu::world::socket;
use host::linked;
use host::shell::quoted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the relay's program.
pub const RELAY: &str = "joulepoint-mpi-relay";

/// World ranks of each group, for the library.
pub const RANKS: &str = "JOULEPOINT_MPI_RANKS";

/// Socket of the relay, for the library.
pub const SOCKET: &str = "JOULEPOINT_MPI_RELAY";

/// Which of the groups of ranks this one is, for the library.
const GROUP: &str = "JOULEPOINT_MPI_GROUP";

/// What is installed beside our own program's folder.
const LIBRARIES: &str = "../lib/joulepoint";

/// One implementation of MPI that programs are linked to.
struct Kind {
    /// The program's library.
    library: &'static str,
    name: &'static str,
    /// Ours.
    ours: &'static str,
    launcher: &'static str,
}

const OPEN_MPI: Kind =
    Kind { library: "libmpi.so.40", name: "Open MPI 4", ours: "libjoulepoint-mpi-openmpi.so", launcher: "mpirun" };

/// Those that can be one world over groups.
const KINDS: [Kind; 1] = [OPEN_MPI];

/// Options of Open MPI's `mpirun`: only this node, in shared memory, and nothing that asks Slurm. Nothing is bound to
/// CPUs beyond what Slurm allows the step: its neighbours on the node would be bound to the same.
const OPTIONS: [&str; 15] = [
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "plm",
    "isolated",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,vader",
    "--mca",
    "btl_base_warn_component_unused",
    "0",
];

/// What makes one world of the groups' ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// The program that starts the ranks of one group.
    pub launcher: PathBuf,
    /// The library that shows them the whole.
    pub library: PathBuf,
    /// The program that carries messages between groups.
    pub relay: PathBuf,
}

/// What makes one world of the ranks of a program whose words these are; none if it is not linked to MPI.
///
/// # Errors
/// A sentence: it is linked to MPI, and its groups cannot be one world here.
pub fn world(program: &[String], folder: &Path) -> Option<Result<World, String>> {
    let libraries = linked::libraries_of(program.get(..1)?, folder);
    let is_mpi = |library: &&String| library.starts_with("libmpi.so");
    let library = libraries.iter().find(is_mpi)?;
    Some(parts(library, &std::env::current_exe().unwrap_or_default(), &paths()))
}

/// Why programs that are linked to these libraries cannot be one MPI world over groups here, if so.
pub fn hindrance(libraries: &BTreeSet<String>) -> Option<String> {
    let library = libraries.iter().find(|library| library.starts_with("libmpi.so"))?;
    parts(library, &std::env::current_exe().unwrap_or_default(), &paths()).err()
}

fn paths() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// The parts for programs that are linked to `library`, beside our program `us` and in the folders of the `PATH`.
fn parts(library: &str, us: &Path, path: &[PathBuf]) -> Result<World, String> {
    let known = || KINDS.iter().map(|k| format!("{} ({})", k.name, k.library)).collect::<Vec<_>>().join(", ");
    let kind = KINDS.iter().find(|k| k.library == library);
    let kind = kind.ok_or_else(|| format!("it is linked to {library}, and groups can be one world of {}", known()))?;
    let beside = us.parent().unwrap_or(Path::new("/"));
    let ours = |folders: &[PathBuf], name: &str| {
        let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        found.ok_or_else(|| format!("{name}, which makes one MPI world of several groups, is not installed"))
    };
    let launcher = path.iter().map(|folder| folder.join(kind.launcher)).find(|file| file.is_file());
    Ok(World {
        library: ours(&[beside.join(LIBRARIES), beside.to_path_buf()], kind.ours)?,
        relay: ours(&[beside.to_path_buf()], RELAY)?,
        launcher: launcher.ok_or_else(|| format!("the PATH has no {} of {}", kind.launcher, kind.name))?,
    })
}

/// The ranks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The program that starts them.
    pub launcher: PathBuf,
    /// The library that shows them the whole.
    pub library: PathBuf,
    /// Socket of the group's relay.
    pub relay: Option<PathBuf>,
    /// World ranks of each group; none if one group has all.
    pub world: Option<String>,
    /// Which of the groups this one is, if the environment does not say it.
    pub group: Option<u32>,
    /// How many there are in this group.
    pub count: u32,
    /// Those of all nodes, if this node's are to be found among them.
    pub spread: Option<Spread>,
    /// CPUs of each, if the call says it.
    pub cpus_per_task: Option<u32>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The words of our program that start the ranks of a group of a call, before those of the program itself; `whole` is the
/// socket of the group's relay and the world ranks of each group, if this group has not all.
pub fn words(world: &World, whole: Option<(&Path, &str)>, count: usize, cpus_per_task: Option<usize>) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let pairs = [("--launcher", path(&world.launcher)), ("--library", path(&world.library))];
    let pairs = pairs.into_iter().chain([("--count", count.to_string())]);
    let pairs = pairs
        .chain(whole.into_iter().flat_map(|(relay, ranks)| [("--relay", path(relay)), ("--world", ranks.to_string())]));
    let pairs = pairs.chain(cpus_per_task.map(|cpus| ("--cpus-per-task", cpus.to_string())));
    let words = pairs.flat_map(|(name, value)| [name.to_string(), value]);
    ["ranks".to_string()].into_iter().chain(words).chain(["--".to_string()]).collect()
}

/// The words of our program that start the ranks of a node of a call, before those of the program itself; `spread` says how
/// many each node has, and `sockets` how the sockets of their relays begin, if there are several.
pub fn words_of_node(world: &World, spread: &str, sockets: Option<&Path>, cpus_per_task: Option<usize>) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let pairs = [("--launcher", path(&world.launcher)), ("--library", path(&world.library))];
    let pairs = pairs.into_iter().chain([("--spread", spread.to_string())]);
    let pairs = pairs.chain(sockets.map(|sockets| ("--sockets", path(sockets))));
    let pairs = pairs.chain(cpus_per_task.map(|cpus| ("--cpus-per-task", cpus.to_string())));
    let words = pairs.flat_map(|(name, value)| [name.to_string(), value]);
    ["ranks".to_string()].into_iter().chain(words).chain(["--".to_string()]).collect()
}

/// The world ranks of groups, or nodes, of which each has so many, as the library for MPI reads it.
pub fn world_of(counts: &[usize]) -> String {
    let mut first = 0;
    let mut of_group = |count: &usize| {
        let ranks = first..first + count;
        first = ranks.end;
        match count {
            0 => String::new(),
            1 => ranks.start.to_string(),
            _ => format!("{}-{}", ranks.start, ranks.end - 1),
        }
    };
    counts.iter().map(&mut of_group).collect::<Vec<_>>().join("/")
}

/// The ranks of all nodes of a call, of which each has a task that starts its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many ranks each node has.
    pub counts: Vec<u32>,
    /// How the sockets of the nodes' relays begin, if there are several nodes.
    pub sockets: Option<PathBuf>,
}

impl Spread {
    /// What a node's task, whose environment this is, starts of `all`, and what its ranks see of the whole.
    fn of_task(&self, all: &Ranks, environment: &mut Vec<(String, String)>) -> Option<Ranks> {
        let of_slurm = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        let place: u32 = of_slurm("SLURM_PROCID")?.parse().ok()?;
        let count = *self.counts.get(place as usize)?;
        let first: u32 = self.counts[..place as usize].iter().sum();
        let total: u32 = self.counts.iter().sum();
        let each = self.counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let seen = [
            ("SLURM_PROCID", first.to_string()),
            ("SLURM_NTASKS", total.to_string()),
            ("SLURM_NPROCS", total.to_string()),
            ("SLURM_STEP_NUM_TASKS", total.to_string()),
            ("SLURM_TASKS_PER_NODE", each.clone()),
            ("SLURM_STEP_TASKS_PER_NODE", each),
            // The one task of a node is no wish of the user's.
            ("SLURM_NTASKS_PER_NODE", String::new()),
        ];
        environment.retain(|(name, _)| seen.iter().all(|(n, _)| n != name));
        let seen = seen.into_iter().filter(|(_, value)| !value.is_empty());
        environment.extend(seen.map(|(name, value)| (name.to_string(), value)));
        let relay = self.sockets.as_ref().map(|sockets| socket(sockets, place));
        let counts: Vec<usize> = self.counts.iter().map(|count| *count as usize).collect();
        let world = relay.as_ref().map(|_| world_of(&counts));
        Some(Ranks { count, relay, world, group: Some(place), spread: None, ..all.clone() })
    }
}

/// Variables that Slurm sets for the one task that starts the ranks, and that tell no rank anything.
fn is_of_slurm(name: &str) -> bool {
    ["SLURM_", "SRUN_", "PMI_"].iter().any(|begin| name.starts_with(begin))
}

impl Ranks {
    /// Becomes the launcher, which ends as the ranks do; only returns why it cannot.
    pub fn run(&self) -> io::Error {
        let mut environment: Vec<(String, String)> = std::env::vars().collect();
        match self.spread.as_ref().map(|spread| spread.of_task(self, &mut environment)) {
            None => self.launch(&environment),
            Some(Some(ranks)) => ranks.launch(&environment),
            Some(None) => io::Error::other("SLURM_PROCID names none of the nodes"),
        }
    }

    fn launch(&self, environment: &[(String, String)]) -> io::Error {
        let mut command = Command::new(&self.launcher);
        for (name, _) in std::env::vars().filter(|(name, _)| is_of_slurm(name)) {
            command.env_remove(name);
        }
        let input = input();
        if input.is_some() {
            command.stdin(Stdio::null());
        }
        let input = input.map_or_else(String::new, |file| format!(" <{}", quoted(&file.to_string_lossy())));
        if nix::unistd::getuid().is_root() {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command
            // The sandbox's own, which its checkpoints hold: what all ranks map is here.
            .env("OMPI_MCA_orte_tmpdir_base", SHARED_MEMORY)
            .args(["-n", &self.count.to_string()])
            .args(OPTIONS)
            .args(["sh", "-c", &format!("{}; exec \"$@\"{input}", self.line(environment)), "sh"])
            .args(&self.command)
            .exec()
    }

    /// A line of the shell that gives a rank what `srun` would have given it: what Slurm gave the launcher, but for what
    /// counts the ranks.
    fn line(&self, environment: &[(String, String)]) -> String {
        let first: u32 = environment
            .iter()
            .find(|(name, _)| name == "SLURM_PROCID")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(0);
        let ids: Vec<String> = (first..first + self.count).map(|rank| rank.to_string()).collect();
        let mut all: Vec<(String, String)> = Vec::new();
        let own: BTreeSet<&str> =
            ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_CPUS_PER_TASK"].into();
        let kept = |name: &str| name.starts_with("SLURM_") && !own.contains(name) && is_name(name);
        all.extend(environment.iter().filter(|(name, _)| kept(name)).map(|(n, v)| (n.clone(), quoted(v))));
        all.extend(self.cpus_per_task.map(|cpus| ("SLURM_CPUS_PER_TASK".to_string(), cpus.to_string())));
        let of_rank = [
            ("SLURM_GTIDS", ids.join(",")),
            ("SLURM_PROCID", format!("$(({first}+OMPI_COMM_WORLD_RANK))")),
            ("SLURM_LOCALID", "$OMPI_COMM_WORLD_LOCAL_RANK".to_string()),
            ("SLURM_TASK_PID", "$$".to_string()),
        ];
        all.extend(of_rank.map(|(name, value)| (name.to_string(), value)));
        if let Some((world, relay)) = self.world.as_ref().zip(self.relay.as_ref()) {
            let library = quoted(&self.library.to_string_lossy());
            all.extend([
                (RANKS.to_string(), quoted(world)),
                (SOCKET.to_string(), quoted(&relay.to_string_lossy())),
                ("LD_PRELOAD".to_string(), format!("{library}${{LD_PRELOAD:+:$LD_PRELOAD}}")),
            ]);
        }
        all.extend(self.group.map(|group| (GROUP.to_string(), group.to_string())));
        let words: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("export {}", words.join(" "))
    }
}

/// The file that all ranks read, as those of one `srun` do: each from its beginning.
fn input() -> Option<PathBuf> {
    let is_whole = nix::unistd::lseek(io::stdin(), 0, nix::unistd::Whence::SeekCur) == Ok(0);
    let is_file = std::fs::metadata("/proc/self/fd/0").is_ok_and(|m| m.is_file());
    std::fs::read_link("/proc/self/fd/0").ok().filter(|_| is_whole && is_file)
}

/// A name that the shell can export.
fn is_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_rank_sees_what_srun_would_have_shown_it() {
        let environment = [
            ("SLURM_PROCID", "2"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_CPUS_PER_TASK", "6"),
            ("SLURM_JOB_NAME", "bob's run"),
            ("HOME", "/home/bob"),
        ];
        let environment = environment.map(|(name, value)| (name.to_string(), value.to_string()));
        let ranks = Ranks {
            library: "/lib/o'urs.so".into(),
            relay: Some("/tmp/s.g1".into()),
            world: Some("0-1/2-3".to_string()),
            count: 2,
            cpus_per_task: Some(3),
            ..Ranks::default()
        };
        let seen = |ranks: &Ranks| {
            let shown = "$SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_GTIDS $SLURM_CPUS_PER_TASK $SLURM_JOB_NAME";
            let line = format!("{}; echo \"{shown} $LD_PRELOAD ${RANKS} ${SOCKET}\"", ranks.line(&environment));
            let output = Command::new("sh")
                .args(["-c", &line])
                .env_clear()
                .envs([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim_end().to_string()
        };
        assert_eq!(seen(&ranks), "3/4 1 2,3 3 bob's run /lib/o'urs.so 0-1/2-3 /tmp/s.g1");
        let alone = Ranks { world: None, relay: None, cpus_per_task: None, ..ranks };
        assert_eq!(seen(&alone).trim_end(), "3/4 1 2,3  bob's run", "without a world nothing of ours is loaded");
    }

    #[test]
    fn the_ranks_of_a_node_are_those_after_the_nodes_before_it() {
        let all = Ranks { library: "/l.so".into(), ..Ranks::default() };
        let spread = Spread { counts: vec![2, 2, 1], sockets: Some("/tmp/j/a.1".into()) };
        let mut environment = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "3"), ("SLURM_NTASKS_PER_NODE", "1")]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .to_vec();
        let ranks = spread.of_task(&all, &mut environment).unwrap();
        assert_eq!((ranks.count, ranks.group, ranks.world.as_deref()), (2, Some(1), Some("0-1/2-3/4")));
        assert_eq!(ranks.relay, Some("/tmp/j/a.1.g1.socket".into()));
        let line = ranks.line(&environment);
        for part in ["SLURM_NTASKS='5'", "SLURM_GTIDS=2,3", "SLURM_PROCID=$((2+", "TASKS_PER_NODE='2,2,1'", "GROUP=1"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("SLURM_NTASKS_PER_NODE"), "{line}");
        let alone = Spread { counts: vec![4], sockets: None };
        let mut environment = vec![("SLURM_PROCID".to_string(), "0".to_string())];
        let ranks = alone.of_task(&all, &mut environment).unwrap();
        assert_eq!((ranks.count, ranks.relay.clone(), ranks.world.clone()), (4, None, None));
        assert!(!ranks.line(&environment).contains("LD_PRELOAD"), "without a world nothing of ours is loaded");
        environment[0].1 = "1".to_string();
        assert!(alone.of_task(&all, &mut environment).is_none());
    }

    #[test]
    fn what_is_missing_for_one_world_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (bin, library, path) = (folder("bin"), folder("lib/joulepoint"), [folder("path")]);
        let found = |of: &str| parts(of, &bin.join("joulepoint"), &path);
        for (file, missing) in [
            (library.join(OPEN_MPI.ours), OPEN_MPI.ours),
            (bin.join(RELAY), RELAY),
            (path[0].join("mpirun"), "no mpirun"),
        ] {
            let said = found("libmpi.so.40").unwrap_err();
            assert!(said.contains(missing), "{said}");
            fs::write(file, "").unwrap();
        }
        let all = found("libmpi.so.40").unwrap();
        assert_eq!((all.relay, all.launcher), (bin.join(RELAY), path[0].join("mpirun")));
        assert!(found("libmpi.so.12").unwrap_err().contains("libmpi.so.40"));
    }
}
