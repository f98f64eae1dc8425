//! One MPI world over the sandboxes of several groups: which launcher and library make it, and how the ranks of one
//! group are started.
//!
//! In each group the program's own `mpirun` starts as many ranks as the group has tasks, in the group's sandbox. The
//! library, loaded before the program's, shows them one world, and has a relay outside carry what goes between groups.
//! A rank's environment is that of a task of one `srun` of the whole.

use crate::kinds::{self, Family, Hindrance, Launcher, World};
use criu::world::socket;
use host::linked;
use host::shell::quoted;
use nix::sys::signal::{SigSet, Signal};
use openfiles::held::SHARED_MEMORY;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// World ranks of each group, for the library.
pub const RANKS: &str = "JOULEPOINT_MPI_RANKS";

/// Socket of the relay, for the library.
pub const SOCKET: &str = "JOULEPOINT_MPI_RELAY";

/// Where several groups write to the same files: Open MPI neither reads and writes back what lies between a rank's own bytes, nor
/// uses its way to write together that does, whatever the user or the site has chosen.
const FILES: [(&str, &str); 2] = [("OMPI_MCA_fbtl_posix_write_datasieving", "0"), ("OMPI_MCA_fcoll", "^two_phase")];

/// Which of the groups of ranks this one is, for the library.
const GROUP: &str = "JOULEPOINT_MPI_GROUP";

/// What makes one world of the ranks of a program whose words these are; none if it is not linked to MPI.
///
/// # Errors
/// It is linked to MPI, and its groups cannot be one world here.
pub fn world(program: &[String], folder: &Path, launcher: &Launcher) -> Option<Result<World, Hindrance>> {
    let program = linked::program(program.first()?, folder)?;
    let (names, libraries) = (linked::libraries(&program), linked::all_libraries(&program));
    let library = kinds::library(&names, &libraries)?;
    Some(parts(&program, library, &libraries, launcher))
}

/// Whether a program names MPI by itself: one whose libraries do may never call it.
pub fn names_mpi(program: &[String], folder: &Path) -> bool {
    let program = program.first().and_then(|word| linked::program(word, folder));
    program.is_some_and(|program| linked::libraries(&program).iter().any(|library| kinds::is_mpi(library)))
}

/// The parts of a world; where the program itself finds its library, the launcher is beside that.
fn parts(program: &Path, library: &str, libraries: &BTreeSet<String>, launcher: &Launcher) -> Result<World, Hindrance> {
    // `lib` beside `bin`, or a folder of `lib`.
    let beside = linked::folder_of(program, library).map(|folder| ["../bin", "../../bin"].map(|bin| folder.join(bin)));
    match (launcher, beside) {
        (Launcher::Path(path), Some(beside)) => {
            kinds::parts(library, libraries, &us(), &Launcher::Path([&beside, &path[..]].concat()))
        }
        _ => kinds::parts(library, libraries, &us(), launcher),
    }
}

/// Why none of the programs among these words that are linked to MPI can be one world here, which is over `several` nodes,
/// if so.
pub fn hindrance(words: &[String], folder: &Path, launcher: &Launcher, several: bool) -> Option<Hindrance> {
    let mut found = None;
    let programs: BTreeSet<PathBuf> = words.iter().filter_map(|word| linked::program(word, folder)).collect();
    for program in programs {
        let (names, libraries) = (linked::libraries(&program), linked::all_libraries(&program));
        let Some(library) = kinds::library(&names, &libraries) else { continue };
        let world = parts(&program, library, &libraries, launcher);
        match world.and_then(|world| if several { kinds::check_calls(&program, &world.library) } else { Ok(()) }) {
            Ok(()) => return None,
            Err(why) => found = found.or(Some(why)),
        }
    }
    found
}

pub(crate) fn us() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
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
    /// Only the first of all reads what the call reads.
    pub first_reads: bool,
    /// Variables that the call sets for them: `NAME=VALUE`.
    pub set: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The words of our program that start the ranks of a group of a call, before those of the program itself; `whole` is the
/// socket of the group's relay and the world ranks of each group, if this group has not all.
pub fn words(world: &World, whole: Option<(&Path, &str)>, count: usize, cpus_per_task: Option<usize>) -> Vec<String> {
    let mut pairs = vec![("--count", count.to_string())];
    if let Some((relay, ranks)) = whole {
        pairs.extend([("--relay", relay.to_string_lossy().into_owned()), ("--world", ranks.to_string())]);
    }
    pairs.extend(cpus_per_task.map(|cpus| ("--cpus-per-task", cpus.to_string())));
    all_words(world, pairs, &[])
}

/// What is the same on all nodes of a call, of which each has a task that starts its ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfNodes {
    /// CPUs of each rank, if the call says it.
    pub cpus_per_task: Option<usize>,
    /// Only the first of all ranks reads what the call reads.
    pub first_reads: bool,
    /// Variables that the call sets for its ranks.
    pub set: Vec<(String, String)>,
}

/// The words of our program that start the ranks of a node of a call, before those of the program itself; `spread` says how
/// many each node has, and `sockets` how the sockets of their relays begin, if there are several.
pub fn words_of_node(world: &World, spread: &str, sockets: Option<&Path>, of: &OfNodes) -> Vec<String> {
    let mut pairs = vec![("--spread", spread.to_string())];
    pairs.extend(sockets.map(|sockets| ("--sockets", sockets.to_string_lossy().into_owned())));
    pairs.extend(of.cpus_per_task.map(|cpus| ("--cpus-per-task", cpus.to_string())));
    pairs.extend(of.set.iter().map(|(name, value)| ("--set", format!("{name}={value}"))));
    let flags: &[&str] = if of.first_reads { &["--first-reads"] } else { &[] };
    all_words(world, pairs, flags)
}

fn all_words(world: &World, pairs: Vec<(&str, String)>, flags: &[&str]) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = vec!["ranks".to_string()];
    words.extend(
        [("--launcher", path(&world.launcher)), ("--library", path(&world.library))]
            .into_iter()
            .chain(pairs)
            .flat_map(|(name, value)| [name.to_string(), value]),
    );
    words.extend(flags.iter().map(|flag| (*flag).to_string()));
    words.push("--".to_string());
    words
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

/// Keeps signals that are for the ranks from the launcher that this process becomes: it would kill them a second after
/// SIGTERM, though they may write a checkpoint first, and end with 1. Open MPI's unblocks all for its ranks, and what stands
/// before each of Hydra's ([`crate::rank`]) does.
fn undisturbed() -> io::Result<()> {
    let mut signals = SigSet::all();
    // Its own: what it hears of its children and its pipes, and what is wrong with itself.
    let own = [
        Signal::SIGCHLD,
        Signal::SIGPIPE,
        Signal::SIGABRT,
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGSYS,
    ];
    own.into_iter().for_each(|signal| signals.remove(signal));
    Ok(signals.thread_block()?)
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
            // The sandbox's first process gives the signals to the ranks.
            Some(Some(ranks)) => match undisturbed() {
                Ok(()) => ranks.launch(&environment),
                Err(e) => e,
            },
            Some(None) => io::Error::other("SLURM_PROCID names none of the nodes"),
        }
    }

    fn launch(&self, environment: &[(String, String)]) -> io::Error {
        let Some(family) = kinds::family(&self.launcher) else {
            return io::Error::other(format!("{} is not known as a launcher", self.launcher.display()));
        };
        let mut command = Command::new(&self.launcher);
        for (name, _) in std::env::vars().filter(|(name, _)| is_of_slurm(name)) {
            command.env_remove(name);
        }
        let input = input();
        if input.is_some() {
            command.stdin(Stdio::null());
        }
        let from = input.map_or_else(String::new, |file| format!(" <{}", quoted(&file.to_string_lossy())));
        // Of the others no launcher gives any rank something to read.
        let others = if self.first_reads { "[ \"$SLURM_PROCID\" = 0 ] || exec \"$@\" </dev/null; " } else { "" };
        let shown = match self.world {
            Some(_) => self.with_library_in(Path::new(SHARED_MEMORY)).line(environment, family),
            None => self.line(environment, family),
        };
        let line = format!("{shown}; {others}exec \"$@\"{from}");
        family.prepare(&mut command, self.count);
        command.args(["sh", "-c", &line, "sh"]).args(&self.command).exec()
    }

    /// The same with a copy of the library in this folder, the sandbox's own memory: it goes with the checkpoints, so that a
    /// library that is installed later keeps none of them from being restored. Where memory is full, it is the installed one.
    fn with_library_in(&self, memory: &Path) -> Ranks {
        let copy = self.library.file_name().map(|name| memory.join(name));
        let copy = copy.filter(|copy| std::fs::copy(&self.library, copy).is_ok());
        Ranks { library: copy.unwrap_or_else(|| self.library.clone()), ..self.clone() }
    }

    /// A line of the shell that gives a rank what `srun` would have given it: what Slurm gave the launcher, but for what
    /// counts the ranks.
    fn line(&self, environment: &[(String, String)], family: Family) -> String {
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
        let (rank, local) = family.ranks();
        let of_rank = [
            ("SLURM_GTIDS", ids.join(",")),
            ("SLURM_PROCID", format!("$(({first}+{rank}))")),
            ("SLURM_LOCALID", format!("${local}")),
            ("SLURM_TASK_PID", "$$".to_string()),
        ];
        all.extend(of_rank.map(|(name, value)| (name.to_string(), value)));
        let tasks = environment.iter().find(|(name, _)| name == "SLURM_NTASKS").map(|(_, count)| count.as_str());
        if let Some(tasks) = tasks.filter(|_| self.world.is_some() && family.is_open_mpi()) {
            // What Open MPI tells programs, and does not read itself; MPICH reads what Hydra tells. The last is `maxprocs` of
            // MPI_INFO_ENV.
            let of_whole = [
                (rank, format!("$(({first}+{rank}))")),
                ("OMPI_COMM_WORLD_SIZE", quoted(tasks)),
                ("OMPI_MCA_orte_ess_num_procs", quoted(tasks)),
            ];
            all.extend(of_whole.map(|(name, value)| (name.to_string(), value)));
        }
        // `command` and `argv` of MPI_INFO_ENV, which the launcher says of this line. Open MPI itself finds the second.
        let of_line = if family.is_open_mpi() { "unset OMPI_ARGV; export OMPI_COMMAND=\"$1\"; " } else { "" };
        if let Some((world, relay)) = self.world.as_ref().zip(self.relay.as_ref()) {
            let library = quoted(&self.library.to_string_lossy());
            all.extend([
                (RANKS.to_string(), quoted(world)),
                (SOCKET.to_string(), quoted(&relay.to_string_lossy())),
                // Behind the user's: a tool calls MPI's functions by their profiling names, and those are ours.
                ("LD_PRELOAD".to_string(), format!("${{LD_PRELOAD:+$LD_PRELOAD:}}{library}")),
            ]);
            if family.is_open_mpi() {
                all.extend(FILES.map(|(name, value)| (name.to_string(), quoted(value))));
            }
        }
        all.extend(self.group.map(|group| (GROUP.to_string(), group.to_string())));
        let words: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Ours come behind those of the call: they may name the same library path or preloads.
        let set = self.set.iter().filter_map(|pair| pair.split_once('=')).filter(|(name, _)| is_name(name));
        let set: String = set.map(|(name, value)| format!("export {name}={}; ", quoted(value))).collect();
        format!("{}{of_line}{set}export {}", paths(environment), words.join(" "))
    }
}

/// Gives a rank the paths that its call had: Open MPI's launcher puts its own folders before them.
fn paths(environment: &[(String, String)]) -> String {
    let of = |name: &str| match environment.iter().find(|(n, _)| n == name) {
        Some((_, value)) => format!("export {name}={}; ", quoted(value)),
        None => format!("unset {name}; "),
    };
    ["PATH", "LD_LIBRARY_PATH"].map(of).concat()
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
            let line =
                format!("{}; echo \"{shown} $LD_PRELOAD ${RANKS} ${SOCKET}\"", ranks.line(&environment, Family::Orte));
            let output = Command::new("sh")
                .args(["-c", &line])
                .env_clear()
                .envs([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim_end().to_string()
        };
        assert_eq!(seen(&ranks), "3/4 1 2,3 3 bob's run /lib/o'urs.so 0-1/2-3 /tmp/s.g1");
        let line = ranks.line(&environment, Family::Orte);
        let shown = "echo \"$OMPI_COMMAND ${OMPI_ARGV-none} $OMPI_MCA_orte_ess_num_procs $OMPI_COMM_WORLD_SIZE\"";
        let output = Command::new("/bin/sh")
            .args(["-c", &format!("{line}; {shown}"), "sh", "./my program", "-in"])
            .env_clear()
            .envs([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMMAND", "sh"), ("OMPI_ARGV", "-c export")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "./my program none 4 4\n", "what MPI_INFO_ENV has");
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
        let line = ranks.line(&environment, Family::Orte);
        for part in [
            "SLURM_NTASKS='5'",
            "SLURM_GTIDS=2,3",
            "SLURM_PROCID=$((2+",
            "TASKS_PER_NODE='2,2,1'",
            "GROUP=1",
            "fcoll='^two_phase'",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("SLURM_NTASKS_PER_NODE"), "{line}");
        let alone = Spread { counts: vec![4], sockets: None };
        let mut environment = vec![("SLURM_PROCID".to_string(), "0".to_string())];
        let ranks = alone.of_task(&all, &mut environment).unwrap();
        assert_eq!((ranks.count, ranks.relay.clone(), ranks.world.clone()), (4, None, None));
        assert!(
            !ranks.line(&environment, Family::Orte).contains("LD_PRELOAD"),
            "without a world nothing of ours is loaded"
        );
        environment[0].1 = "1".to_string();
        assert!(alone.of_task(&all, &mut environment).is_none());
    }
}
