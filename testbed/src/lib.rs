//! Starts a private Slurm on this machine, whose nodes can really die and whose cables can be cut.
//!
//! A [`Cluster`] is slurmctld, slurmdbd on its own MariaDB, munged, and nodes with a slurmd each, all of it in a folder
//! the caller names, beside any other Slurm. Each node is a set of namespaces: it has its own processes, network,
//! address, `/tmp`, `/dev/shm`, `/run`, uptime and boot id, and loses all of them with its power. All ends meet in a
//! switch, whose rules drop what a cut cable would. The whole cluster is a PID namespace, held by a pipe from the
//! caller, and a network, held by its descriptors: when the caller ends, by whatever cause, the kernel ends all of it.
//!
//! It does not know Joulepoint: what is tested is passed in as a plugin, a daemon per node and an environment.
//! It needs root and Debian's packages (`packaging/test-packages.sh`). What was learnt with it stands in README.md.

mod cables;
mod clock;
mod cluster;
mod conf;
mod control;
mod database;
mod faults;
mod groups;
mod keeper;
mod local;
mod machines;
mod netns;
mod network;
mod options;
mod own_address;
mod parts;
mod private_database;
mod query;
mod users;

pub use cables::{End, UnknownEnd};
pub use cluster::Cluster;
pub use control::{ORDERS, order};
pub use keeper::Namespace;
pub use network::Network;
pub use options::{Options, Plugin};
pub use own_address::own_address;
pub use parts::{Part, UnknownPart};
pub use private_database::PrivateMariadb;
pub use users::{ALICE, BOB};
