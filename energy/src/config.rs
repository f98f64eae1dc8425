//! Says which sources to try, in which order, and where each of them is.

use std::path::PathBuf;

use crate::SourceKind;

/// What the site says about metering; [`Config::default`] suits an ordinary Linux node.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Sources to try; the first usable one wins. `nvml`, at any place, is added to one that is without GPUs.
    pub precedence: Vec<SourceKind>,
    /// The powercap tree.
    pub rapl_root: PathBuf,
    /// The folder of Cray's board counters.
    pub pm_counters_root: PathBuf,
    /// The hardware monitoring tree.
    pub hwmon_root: PathBuf,
    /// Channels that together are the node (`chip/file`, as in `ina226/power1_input`); empty: the known ones.
    pub hwmon_channels: Vec<String>,
    /// NVIDIA's library: a path, or a name that the loader finds.
    pub nvml_library: PathBuf,
    /// The command that prints DCMI's power reading; empty: none.
    pub ipmi_command: Vec<String>,
    /// Time between two runs of the IPMI command.
    pub ipmi_period_s: f64,
    /// The command that prints Slurm's figure (see [`crate::slurm_energy`]); empty: none.
    pub slurm_command: Vec<String>,
    /// Time between two runs of the Slurm command.
    pub slurm_period_s: f64,
    /// Longest life of either command.
    pub command_timeout_s: f64,
    /// The node's power without any counter.
    pub model: Model,
    /// The process tree.
    pub proc_root: PathBuf,
    /// More than this is never believed of one node.
    pub max_node_w: f64,
    /// A counter that does not move for so long is given up.
    pub stale_s: f64,
    /// A source given up or refused is tried again after so long, then after twice as long, and so on.
    pub retry_s: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            precedence: vec![
                SourceKind::PmCounters,
                SourceKind::Rapl,
                SourceKind::Ipmi,
                SourceKind::Hwmon,
                SourceKind::Nvml,
                SourceKind::Slurm,
                SourceKind::Model,
            ],
            rapl_root: "/sys/class/powercap".into(),
            pm_counters_root: "/sys/cray/pm_counters".into(),
            hwmon_root: "/sys/class/hwmon".into(),
            hwmon_channels: Vec::new(),
            nvml_library: "libnvidia-ml.so.1".into(),
            ipmi_command: ["ipmitool", "dcmi", "power", "reading"].map(String::from).to_vec(),
            ipmi_period_s: 5.0,
            slurm_command: Vec::new(),
            slurm_period_s: 5.0,
            command_timeout_s: 10.0,
            model: Model::default(),
            proc_root: "/proc".into(),
            max_node_w: 30_000.0,
            stale_s: 120.0,
            retry_s: 60.0,
        }
    }
}

/// The power of a node, without GPUs that `nvml` measures, as a straight line from idle to all CPUs busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Watts when no CPU works.
    pub idle_w: f64,
    /// Watts when all CPUs work.
    pub busy_w: f64,
}

impl Default for Model {
    fn default() -> Model {
        Model { idle_w: 100.0, busy_w: 300.0 }
    }
}

impl Model {
    /// Whether the figures describe a real machine.
    pub fn is_sane(&self) -> bool {
        self.idle_w.is_finite()
            && self.busy_w.is_finite()
            && self.idle_w >= 0.0
            && self.busy_w > 0.0
            && self.busy_w >= self.idle_w
    }
}
