//! Names the sources of energy figures and says what each of them must do.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Where an energy figure comes from. Every figure carries one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SourceKind {
    /// The processor's own counters, by the kernel's powercap tree.
    Rapl,
    /// The board counters of Cray and HPE machines.
    PmCounters,
    /// The management controller's power reading (DCMI), integrated.
    Ipmi,
    /// The kernel's hardware monitoring channels.
    Hwmon,
    /// The energy counters of NVIDIA GPUs.
    Nvml,
    /// Slurm's own figure for the node.
    Slurm,
    /// Configured idle and busy watts, by CPU time.
    Model,
}

/// One value for each kind, in the order of [`SourceKind::ALL`].
pub type BySource<T> = [T; SourceKind::ALL.len()];

/// What of a node a source measures. Figures are added only where they cannot overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// The whole node, its GPUs included: nothing is added to it.
    Node,
    /// The node, or its processors and memory, without its GPUs.
    WithoutGpus,
    /// The GPUs alone: added to a source that is without them, and never a node's figure by itself.
    Gpus,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [SourceKind; 7] = [
        SourceKind::Rapl,
        SourceKind::PmCounters,
        SourceKind::Ipmi,
        SourceKind::Hwmon,
        SourceKind::Nvml,
        SourceKind::Slurm,
        SourceKind::Model,
    ];

    /// The name used in records, on the wire and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceKind::Rapl => "rapl",
            SourceKind::PmCounters => "pm_counters",
            SourceKind::Ipmi => "ipmi",
            SourceKind::Hwmon => "hwmon",
            SourceKind::Nvml => "nvml",
            SourceKind::Slurm => "slurm",
            SourceKind::Model => "model",
        }
    }

    /// The place of this kind in [`SourceKind::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SourceKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        SourceKind::ALL.into_iter().find(|k| k.as_str() == text).ok_or_else(|| Error::malformed("energy source", text))
    }
}

/// What the processors of the node have done so far; only `model` needs it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// CPU seconds used on this node by everybody, cumulative.
    pub cpu_s: f64,
    /// CPUs that the node has.
    pub cpus: u32,
}

/// Whether a source that has been opened can be read already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// It can.
    Yes,
    /// Its first reading is still under way in the background.
    NotYet,
}

/// One place to read the energy of the node from.
pub trait Source: Send {
    /// What it is.
    fn kind(&self) -> SourceKind;

    /// What its last reading covered.
    fn covers(&self) -> Coverage;

    /// Joules since it was opened, cumulative and monotonic; an error names what failed.
    ///
    /// Never blocks on a device or a command. `now_s` never falls between calls.
    fn joules(&mut self, now_s: f64) -> Result<f64, Error>;

    /// What exactly is read, in words for `doctor` and the log.
    fn describe(&self) -> String;

    /// Whether the first reading is there; an error when it will never be.
    fn ready(&mut self) -> Result<Ready, Error> {
        Ok(Ready::Yes)
    }

    /// What the last reading added, J, by GPU in the order of their device files (`/dev/nvidia0`, ...); empty where
    /// that is not known.
    fn gpus_j(&self) -> Vec<f64> {
        Vec::new()
    }

    /// What a reader of the figures should know about the last reading, each said once.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
