//! One MPI world over the sandboxes of several groups: which launcher and library make it, and how the ranks of one
//! group are started.
//!
//! In each group the program's own `mpirun` starts as many ranks as the group has tasks, in the group's sandbox. The
//! library, loaded before the program's, shows them one world, and has a relay outside carry what goes between groups.
//! A rank's environment is that of a task of one `srun` of the whole.

use criu::files::SHARED_MEMORY;
use host::linked;
use host::shell::quoted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the relay's program.
pub const RELAY: &str = "joulepoint-mpi-relay";

/// World ranks of each group, for the library.
pub const RANKS: &str = "JOULEPOINT_MPI_RANKS";

/// Socket of the relay, for the library.
pub const SOCKET: &str = "JOULEPOINT_MPI_RELAY";

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
    /// How many there are in this group.
    pub count: u32,
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

/// Variables that Slurm sets for the one task that starts the ranks, and that tell no rank anything.
fn is_of_slurm(name: &str) -> bool {
    ["SLURM_", "SRUN_", "PMI_"].iter().any(|begin| name.starts_with(begin))
}

impl Ranks {
    /// Becomes the launcher, which ends as the ranks do; only returns why it cannot.
    pub fn run(&self) -> io::Error {
        let environment: Vec<(String, String)> = std::env::vars().collect();
        let mut command = Command::new(&self.launcher);
        for (name, _) in environment.iter().filter(|(name, _)| is_of_slurm(name)) {
            command.env_remove(name);
        }
        if nix::unistd::getuid().is_root() {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command
            // The sandbox's own, which its checkpoints hold: what all ranks map is here.
            .env("OMPI_MCA_orte_tmpdir_base", SHARED_MEMORY)
            .args(["-n", &self.count.to_string()])
            .args(OPTIONS)
            .args(["sh", "-c", &format!("{}; exec \"$@\"", self.line(&environment)), "sh"])
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
        let words: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("export {}", words.join(" "))
    }
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
