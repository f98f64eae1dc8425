//! How each family of launchers starts the ranks of one node in a sandbox: its words and its environment.

use crate::kinds::Family;
use crate::rank::handle_deadly;
use crate::ranks::us;
use criu::task::{RANKS_FOLDER, UCX};
use nix::sys::signal::SigHandler;
use openfiles::held::SHARED_MEMORY;
use std::process::Command;

/// Options of Open MPI 4's `mpirun`: only this node, in shared memory, and nothing that asks Slurm. Nothing is bound to
/// CPUs beyond what Slurm allows the step: its neighbours on the node would be bound to the same.
const ORTE: [&str; 27] = [
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "plm",
    "isolated",
    "--mca",
    "btl",
    "self,vader",
    // Windows by RDMA or UCX need a network: without one they end or crash programs.
    "--mca",
    "osc",
    "^rdma,ucx",
    // The only network of a sandbox, whatever the site or the user has named.
    "--mca",
    "oob_tcp_if_include",
    "lo",
    // The same: what lays out ranks over nodes, and what is put before their lines.
    "--mca",
    "rmaps_base_mapping_policy",
    "slot",
    "--mca",
    "orte_tag_output",
    "0",
    "--mca",
    "orte_timestamp_output",
    "0",
    "--mca",
    "orte_tmpdir_base",
    SHARED_MEMORY,
];

/// The same of Open MPI 5's.
const PRRTE: [&str; 20] = [
    "--map-by",
    "slot:OVERSUBSCRIBE",
    "--bind-to",
    "none",
    "--mca",
    "btl",
    "self,sm",
    // Windows by RDMA go through shared memory here, and there are no others for all kinds.
    "--mca",
    "osc",
    "^ucx",
    // Memory that a kernel module of its own shares is in no checkpoint.
    "--mca",
    "smsc",
    "^xpmem,knem",
    "--prtemca",
    "prte_if_include",
    "lo",
    "--prtemca",
    "prte_tmpdir_base",
    SHARED_MEMORY,
    "--host",
];

/// What both are told of how ranks of one node reach each other.
const OPEN_MPI: [&str; 6] = ["--mca", "pml", "ob1", "--mca", "btl_base_warn_component_unused", "0"];

/// How variables begin by which a user tells another `mpirun` the same.
const OF_OPEN_MPI: [&str; 3] = ["OMPI_MCA_rmaps_", "OMPI_MCA_orte_output_", "PRTE_MCA_"];

/// The same of Hydra.
const HYDRA: [&str; 8] = ["-launcher", "fork", "-rmk", "user", "-hosts", "localhost", "-iface", "lo"];

/// By which its user or site tells Hydra what it is to do otherwise.
const OF_HYDRA: [&str; 2] = ["HYDRA_", "MPIEXEC_"];

/// The same of Intel's Hydra and its library, with Slurm's library for ranks that `srun` itself starts.
const OF_INTEL: [&str; 8] = [
    "I_MPI_FABRICS",
    "I_MPI_HYDRA_",
    "I_MPI_JOB_",
    "I_MPI_OFI_",
    "I_MPI_PERHOST",
    "I_MPI_PIN",
    "I_MPI_PMI",
    "I_MPI_SPAWN",
];

/// Only shared memory, and no CPU of its own for a rank.
const INTEL: [(&str, &str); 2] = [("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "0")];

impl Family {
    /// Has a launcher start so many ranks on this node: the words that follow are those of a rank.
    pub(crate) fn prepare(self, command: &mut Command, count: u32) {
        match self {
            Family::Orte => {
                open_mpi(command, count);
                // The one cannot stand beside what is included; the other names nodes of outside.
                command.env_remove("OMPI_MCA_oob_tcp_if_exclude").env_remove("OMPI_MCA_orte_default_hostfile");
                command.args(ORTE);
            }
            Family::Prrte => {
                open_mpi(command, count);
                command.args(PRRTE).arg(format!("localhost:{count}"));
            }
            Family::Hydra => hydra(command, count),
            Family::IntelHydra => {
                remove(command, &OF_INTEL);
                command.envs(INTEL);
                hydra(command, count);
            }
        }
    }

    /// The variables with the number of a rank among those of its node's world, and among those of its node.
    pub(crate) fn ranks(self) -> (&'static str, &'static str) {
        if self.is_open_mpi() {
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
        } else {
            ("PMI_RANK", "MPI_LOCALRANKID")
        }
    }

    /// Whether its programs are those of Open MPI.
    pub(crate) fn is_open_mpi(self) -> bool {
        matches!(self, Family::Orte | Family::Prrte)
    }
}

/// What both of Open MPI's launchers understand.
fn open_mpi(command: &mut Command, count: u32) {
    if nix::unistd::getuid().is_root() {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    remove(command, &OF_OPEN_MPI);
    command.args(["-n", &count.to_string()]).args(OPEN_MPI);
}

/// Keeps variables that begin so from a command.
fn remove(command: &mut Command, begins: &[&str]) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| begins.iter().any(|begin| name.starts_with(begin))) {
        command.env_remove(name);
    }
}

fn hydra(command: &mut Command, count: u32) {
    remove(command, &OF_HYDRA);
    // Signals go to the ranks that are named there; before there are any, to none.
    if let Err(e) = std::fs::create_dir_all(RANKS_FOLDER) {
        tracing::warn!(%e, "ranks may miss signals");
    }
    // Of its user's and the site's configuration none is read.
    command.envs(UCX).env("HYDRA_CONFIG_FILE", "/dev/null").args(HYDRA).args(["-n", &count.to_string()]);
    command.arg(us()).args(["rank", "--"]);
    handle_deadly(command, SigHandler::SigIgn);
}
