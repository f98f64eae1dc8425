//! What a caller may ask of a test cluster, with defaults that suit most tests.

use std::path::PathBuf;

/// What to start; `Options::default()` is eight nodes of stock Slurm with accounting.
#[derive(Clone, Debug)]
pub struct Options {
    /// ClusterName; a unique one is made when this is `None`.
    pub name: Option<String>,
    /// Number of nodes, called n1, n2, ...
    pub nodes: u32,
    /// CPUs that each node claims to have; they share this machine's cores.
    pub cpus_per_node: u32,
    /// Memory that each node claims to have, in MiB.
    pub memory_mib_per_node: u32,
    /// A SPANK plugin in plugstack.conf; `None` is stock Slurm.
    pub plugin: Option<Plugin>,
    /// slurmdbd on a private MariaDB, with accounts `physics` (jpalice) and `chemistry` (jpbob).
    pub accounting: bool,
    /// Slurm's SlurmdTimeout: how long a silent node stays up, in seconds.
    pub slurmd_timeout_s: u32,
    /// Slurm's AuthInfo=cred_expire (120 in stock Slurm); a requeued job waits so long before it starts again.
    pub cred_expire_s: u32,
    /// Lines for slurm.conf; a key given here replaces the same key of ours.
    pub extra_conf: String,
    /// Folders that all nodes see where they are, as the cluster's own: for what is below `/tmp`, `/var/tmp`,
    /// `/dev/shm` or `/run`, which each node has for itself.
    pub shared: Vec<PathBuf>,
    /// Whether the daemons of each node see a clock that can be set ([`crate::Cluster::set_clock`]), by libfaketime.
    pub own_clocks: bool,
    /// A daemon that runs inside each node's namespaces beside slurmd and dies with it; `%n` becomes the node's name.
    pub node_command: Option<Vec<String>>,
    /// Environment of all daemons and of all commands made by [`crate::Cluster::command`] and `command_as`.
    pub env: Vec<(String, String)>,
}

/// A line of plugstack.conf.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The shared object.
    pub so: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            name: None,
            nodes: 8,
            cpus_per_node: 2,
            memory_mib_per_node: 2000,
            plugin: None,
            accounting: true,
            slurmd_timeout_s: 10,
            cred_expire_s: 120,
            extra_conf: String::new(),
            shared: Vec::new(),
            own_clocks: false,
            node_command: None,
            env: Vec::new(),
        }
    }
}
