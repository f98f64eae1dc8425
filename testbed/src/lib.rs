//! Starts a private Slurm on this machine, whose nodes can really die.
//!
//! A [`Cluster`] is slurmctld, slurmdbd on its own MariaDB, its own munged, and one slurmd per node, all of it in a
//! folder the caller names, on free ports, beside any other Slurm. Each node is a PID, mount and UTS namespace of its
//! own: one SIGKILL of its first process ends slurmd, every slurmstepd and every task of that node at once, as a
//! power cut would. The whole cluster is a PID namespace too, held by a pipe from the caller: when the caller ends,
//! by whatever cause, the kernel ends every process of the cluster.
//!
//! It does not know Joulepoint: what is tested is passed in as a plugin, a daemon per node and an environment.
//! It needs root and Debian's packages (`packaging/test-packages.sh`). What was learnt with it stands in README.md.

mod cluster;
mod conf;
mod database;
mod keeper;
mod options;
mod ports;
mod private_database;
mod query;
mod users;

pub use cluster::Cluster;
pub use keeper::Namespace;
pub use options::{Options, Plugin};
pub use ports::own_address;
pub use private_database::PrivateMariadb;
pub use users::{ALICE, BOB};
