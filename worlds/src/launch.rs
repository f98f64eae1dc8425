//! How each family of launchers starts the ranks of one node in a sandbox: its words and its environment.

use crate::kinds::Family;
use criu::files::SHARED_MEMORY;
use criu::task::FIRST_FAILED;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Options of Open MPI's `mpirun`: only this node, in shared memory, and nothing that asks Slurm. Nothing is bound to
/// CPUs beyond what Slurm allows the step: its neighbours on the node would be bound to the same.
const OPEN_MPI: [&str; 18] = [
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
    // The only network of a sandbox, whatever the site or the user has named.
    "--mca",
    "oob_tcp_if_include",
    "lo",
];

/// The same of Hydra.
const HYDRA: [&str; 8] = ["-launcher", "fork", "-rmk", "user", "-hosts", "localhost", "-iface", "lo"];

/// By which its user or site tells Hydra what it is to do otherwise.
const OF_HYDRA: [&str; 2] = ["HYDRA_", "MPIEXEC_"];

/// What has MPICH's ranks of one node hold nothing that a dump does not: POSIX shared memory, and no watch on files, System V
/// memory or device. With UCX's TCP, ranks may wait for ever in `MPI_Finalize`.
const OF_MPICH: [(&str, &str); 3] = [
    ("UCX_TLS", "posix,self"),
    ("UCX_VFS_ENABLE", "n"),
    // Of the user's and the site's none is read.
    ("HYDRA_CONFIG_FILE", "/dev/null"),
];

/// A line of the shell that stands before each rank of Hydra, which gives a mixture of the codes of all ranks, and of the
/// signals by which it ended the others: the first that fails leaves its own in a file (`$0`). Hydra sends its signals to the
/// rank, too.
const GUARD: &str = "trap : INT QUIT TERM USR1; \"$@\"; code=$?; \
                     [ $code = 0 ] || { set -C; echo $code >\"$0\"; } 2>/dev/null; exit $code";

/// Signals of which Hydra would die, though it is the ranks that they are for. Ranks that handle them get them; others
/// ignore them.
const DEADLY: [Signal; 2] = [Signal::SIGHUP, Signal::SIGUSR2];

impl Family {
    /// Has a launcher start so many ranks on this node: the words that follow are those of a rank.
    pub(crate) fn prepare(self, command: &mut Command, count: u32) {
        match self {
            Family::OpenMpi => open_mpi(command, count),
            Family::Hydra => hydra(command, count),
        }
    }

    /// The variables with the number of a rank among those of its node's world, and among those of its node.
    pub(crate) fn ranks(self) -> (&'static str, &'static str) {
        match self {
            Family::OpenMpi => ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
            Family::Hydra => ("PMI_RANK", "MPI_LOCALRANKID"),
        }
    }
}

fn open_mpi(command: &mut Command, count: u32) {
    if nix::unistd::getuid().is_root() {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    // The one cannot stand beside what is included; the other names nodes of outside.
    command.env_remove("OMPI_MCA_oob_tcp_if_exclude").env_remove("OMPI_MCA_orte_default_hostfile");
    // The sandbox's own, which its checkpoints hold: what all ranks map is here.
    command.env("OMPI_MCA_orte_tmpdir_base", SHARED_MEMORY).args(["-n", &count.to_string()]).args(OPEN_MPI);
}

fn hydra(command: &mut Command, count: u32) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| OF_HYDRA.iter().any(|begin| name.starts_with(begin))) {
        command.env_remove(name);
    }
    command.envs(OF_MPICH).args(HYDRA).args(["-n", &count.to_string(), "sh", "-c", GUARD, FIRST_FAILED]);
    // SAFETY: only system calls, and before exec.
    unsafe {
        command.pre_exec(|| {
            for deadly in DEADLY {
                signal(deadly, SigHandler::SigIgn).map_err(io::Error::from)?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::Output;

    fn guarded(line: &str, file: &Path) -> Output {
        Command::new("sh").args(["-c", GUARD]).arg(file).args(["sh", "-c", line]).output().unwrap()
    }

    #[test]
    fn a_rank_of_hydra_that_was_killed_is_told_from_one_that_ended_with_a_code() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for (line, code, said) in [("exit 0", 0, None), ("exit 9", 9, Some("9\n")), ("kill -9 $$", 137, Some("137\n"))]
        {
            let file = file(line);
            assert_eq!(guarded(line, &file).status.code(), Some(code), "{line}");
            if let Some(said) = said {
                assert_eq!(fs::read_to_string(&file).unwrap(), said, "{line}");
                guarded("exit 77", &file);
                assert_eq!(fs::read_to_string(&file).unwrap(), said, "only the first counts");
            }
        }
        assert!(!file("exit 0").exists());
        // The guard outlives what its rank handles.
        let asked = guarded("trap 'echo got; exit 3' TERM; kill -TERM $PPID; sleep 0.2; kill -TERM $$", &file("asked"));
        assert_eq!((asked.status.code(), &asked.stdout[..]), (Some(3), &b"got\n"[..]));
    }
}
