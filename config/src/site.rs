//! The sections of the file, key by key, with their defaults.

use crate::{Calibration, Lend, Limits, Watch};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tariff::{Aim, Rates};

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Socket of munged; the library's own default if empty.
    pub munge_socket: Option<PathBuf>,
    /// Folder of Slurm's commands; `PATH` if absent.
    pub slurm_bin: Option<PathBuf>,
    /// What slurmctld may be asked.
    pub slurm: Slurm,
    /// Site defaults of the user's options, by option name: `ft-energy-keep = "3"`.
    pub defaults: BTreeMap<String, String>,
    /// The controller service.
    pub controller: Controller,
    /// The node service.
    pub node: Node,
    /// Who is dead, and what may be done about it.
    pub watch: Watch,
    /// Energy sources.
    pub energy: Energy,
    /// Where runs keep their files.
    pub runs: Runs,
    /// What is assumed until it has been measured.
    pub estimates: Estimates,
    /// Commands of the engine `hook`.
    pub hook: Hook,
    /// The engine `criu`.
    pub criu: Criu,
    /// Habits of the wrapper.
    pub wrapper: Wrapper,
    /// Which idle nodes are lent, and to whom.
    pub lend: Lend,
    /// What one user may ask of the services.
    pub limits: Limits,
    /// How the cluster is measured.
    pub calibration: Calibration,
    /// What energy costs.
    pub accounting: Accounting,
}

/// `[slurm]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Calls of slurmctld a minute by one service. What people and recoveries wait for is counted, and never put off.
    pub budget: u32,
}

impl Default for Slurm {
    fn default() -> Self {
        Slurm { budget: 600 }
    }
}

/// Fewest calls a minute: below it a job's end would be noticed too late.
const LEAST_BUDGET: u32 = 60;

impl Slurm {
    /// What is wrong with it: the key, and what it must be.
    pub(crate) fn wrong(&self) -> Option<String> {
        (self.budget < LEAST_BUDGET).then(|| format!("slurm.budget = {} must be at least {LEAST_BUDGET}", self.budget))
    }
}

/// `[accounting]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Accounting {
    /// Price of a kilowatt-hour, in `currency`; absent if reports are to tell no price.
    pub price_per_kwh: Option<f64>,
    /// Currency of the price, as reports are to show it.
    pub currency: String,
    /// Carbon dioxide of a kilowatt-hour, g; absent if reports are to tell none.
    pub co2_g_per_kwh: Option<f64>,
    /// File with prices and carbon by time, which come before the two above.
    pub tariff: Option<PathBuf>,
    /// What jobs wait for that may: hours of less price or of less carbon.
    pub wait_for: Aim,
}

impl Accounting {
    /// What is wrong with it: the key, and what it must be.
    pub(crate) fn wrong(&self) -> Option<String> {
        for (key, value) in [("price_per_kwh", self.price_per_kwh), ("co2_g_per_kwh", self.co2_g_per_kwh)] {
            if let Some(value) = value.filter(|v| !(v.is_finite() && *v >= 0.0)) {
                return Some(format!("accounting.{key} = {value} must be a number from 0"));
            }
        }
        let is_word = |c: char| !c.is_control() && !c.is_ascii_digit() && c != ',';
        if let Some(path) = self.tariff.as_ref().filter(|path| !path.is_absolute()) {
            return Some(format!("accounting.tariff = '{}' must be an absolute path", path.display()));
        }
        if self.has_prices() && (self.currency.is_empty() || !self.currency.chars().all(is_word)) {
            return Some(format!("accounting.currency = '{}' must name the price's, such as \"EUR\"", self.currency));
        }
        None
    }

    /// Whether reports are to tell prices.
    pub fn has_prices(&self) -> bool {
        self.price_per_kwh.is_some() || self.tariff.is_some()
    }

    /// The rates of times that no tariff has.
    pub fn rates(&self) -> Rates {
        Rates { price_per_kwh: self.price_per_kwh, co2_g_per_kwh: self.co2_g_per_kwh }
    }
}

/// `[controller]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Controller {
    /// Where everybody reaches it; with a standby both places, separated by a comma.
    pub url: String,
    /// Address and port on which it listens.
    pub listen: String,
    /// The store: a SQLite file, or the URL of a MariaDB (`mysql://...`).
    pub store: PathBuf,
    /// How long runs are kept after their end, days; 0 for ever.
    pub retention_days: f64,
    /// Silence after which a node is looked at, s.
    pub detect_s: f64,
    /// Users who may see and steer all runs, beside root.
    pub operators: Vec<String>,
    /// Whether a job that Slurm requeued after a node's death starts at once, not two minutes later.
    pub start_requeued_at_once: bool,
    /// Whether jobs without an energy figure of Slurm's own get ours in accounting (Slurm 25.11 and later).
    pub energy_tres: bool,
}

impl Controller {
    /// What is wrong with its store: the key, and what it must be.
    pub(crate) fn wrong(&self) -> Option<String> {
        let is_url = self.store.to_str().is_some_and(|store| store.starts_with("mysql://"));
        (!is_url && !self.store.is_absolute()).then(|| {
            let store = self.store.display().to_string();
            // A password in it is nobody's to read.
            let shown = match (store.split_once("://"), store.rsplit_once('@')) {
                (Some((scheme, _)), Some((_, host))) => format!("{scheme}://...@{host}"),
                _ => store,
            };
            format!(
                "controller.store = '{shown}' must be the absolute path of a SQLite file, or mysql://USER@HOST/DATABASE for \
                 a MariaDB"
            )
        })
    }

    /// Its places.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(|url| url.trim().trim_end_matches('/'))
    }
}

impl Default for Controller {
    fn default() -> Self {
        Controller {
            url: "http://127.0.0.1:6820".to_string(),
            listen: "0.0.0.0:6820".to_string(),
            store: PathBuf::from("/var/lib/joulepoint/joulepoint.sqlite"),
            retention_days: 400.0,
            detect_s: 3.0,
            operators: Vec::new(),
            start_requeued_at_once: true,
            energy_tres: true,
        }
    }
}

/// `[node]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Address and port on which it listens.
    pub listen: String,
    /// Socket for wrappers on the node itself, `{node}` standing for its name; none if empty.
    pub socket: String,
    /// Time between heartbeats, s.
    pub beat_s: f64,
    /// The same of a node on which nothing protected is, s.
    pub idle_beat_s: f64,
    /// Folder in which records wait for a controller that is away.
    pub spool: PathBuf,
    /// Most bytes that may wait there.
    pub spool_bytes: u64,
    /// Whether a job that has the node for itself may have its CPU frequency set while it checkpoints or waits.
    pub cpufreq: bool,
    /// Folder of the kernel's CPUs, `{node}` standing for the node's name.
    pub cpufreq_root: String,
    /// File that keeps the node's own frequency meanwhile, `{node}` standing for its name.
    pub cpufreq_state: String,
    /// File in which `sbatch` finds which checkpoint engines the nodes have; none if empty.
    pub capabilities: PathBuf,
}

impl Node {
    /// The socket of one node's service.
    pub fn socket_of(&self, node: &str) -> Option<PathBuf> {
        (!self.socket.is_empty()).then(|| PathBuf::from(self.socket.replace("{node}", node)))
    }

    /// The folder of one node's CPUs, and the file that keeps their own frequency.
    pub fn cpufreq_of(&self, node: &str) -> [PathBuf; 2] {
        [&self.cpufreq_root, &self.cpufreq_state].map(|path| PathBuf::from(path.replace("{node}", node)))
    }
}

impl Default for Node {
    fn default() -> Self {
        Node {
            listen: "0.0.0.0:6821".to_string(),
            socket: "/run/joulepoint/{node}.socket".to_string(),
            beat_s: 1.0,
            idle_beat_s: 10.0,
            spool: PathBuf::from("/var/lib/joulepoint/spool"),
            spool_bytes: 64 << 20,
            cpufreq: false,
            cpufreq_root: "/sys/devices/system/cpu".to_string(),
            cpufreq_state: "/run/joulepoint/{node}.cpufreq".to_string(),
            capabilities: PathBuf::from("/run/joulepoint/capabilities.json"),
        }
    }
}

/// `[energy]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Energy {
    /// Sources in order of preference; the first usable one is taken, and `nvml` added where it is without GPUs.
    pub sources: Vec<String>,
    /// Folder of the powercap tree.
    pub rapl_root: PathBuf,
    /// Folder of Cray's counters.
    pub pm_counters_root: PathBuf,
    /// Folder of hwmon devices.
    pub hwmon_root: PathBuf,
    /// Channels that together are the node, as `ina226/power1_input`; empty: those known to be.
    pub hwmon_channels: Vec<String>,
    /// Command that prints a DCMI power reading.
    pub ipmi_command: Vec<String>,
    /// Time between two DCMI readings, s.
    pub ipmi_period_s: f64,
    /// More than this is never believed of one node, W.
    pub max_node_w: f64,
    /// Power of an idle node for the source `model` and for plans, W.
    pub idle_w: f64,
    /// Power of a node with all CPUs busy, W.
    pub busy_w: f64,
}

impl Default for Energy {
    fn default() -> Self {
        let words = |w: &[&str]| w.iter().map(|s| s.to_string()).collect();
        Energy {
            sources: words(&["pm_counters", "rapl", "ipmi", "hwmon", "nvml", "slurm", "model"]),
            rapl_root: PathBuf::from("/sys/class/powercap"),
            pm_counters_root: PathBuf::from("/sys/cray/pm_counters"),
            hwmon_root: PathBuf::from("/sys/class/hwmon"),
            hwmon_channels: Vec::new(),
            ipmi_command: words(&["ipmitool", "dcmi", "power", "reading"]),
            ipmi_period_s: 5.0,
            max_node_w: 30_000.0,
            idle_w: 100.0,
            busy_w: 300.0,
        }
    }
}

impl Energy {
    /// The same, for the room that reads the sources; without any known name only the model is left.
    pub fn sources(&self) -> energy::Config {
        let known: Vec<_> = self.sources.iter().filter_map(|s| s.parse().ok()).collect();
        energy::Config {
            precedence: if known.is_empty() { vec![energy::SourceKind::Model] } else { known },
            rapl_root: self.rapl_root.clone(),
            pm_counters_root: self.pm_counters_root.clone(),
            hwmon_root: self.hwmon_root.clone(),
            hwmon_channels: self.hwmon_channels.clone(),
            ipmi_command: self.ipmi_command.clone(),
            ipmi_period_s: self.ipmi_period_s,
            max_node_w: self.max_node_w,
            model: energy::Model { idle_w: self.idle_w, busy_w: self.busy_w },
            ..energy::Config::default()
        }
    }
}

/// `[runs]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runs {
    /// Folder on a file system that all nodes share; `{home}` and `{user}` stand for the user's.
    pub dir: String,
    /// Folders that all nodes share though the type of their file system does not say so.
    pub shared: Vec<PathBuf>,
    /// How long checkpoints of a run that has ended well are kept, days; 0: for ever.
    pub keep_completed_days: f64,
    /// How long checkpoints of any other run are kept that is known to Slurm no more, days; 0: for ever.
    pub keep_failed_days: f64,
    /// How long plan and journal of a run are kept, days; 0: for ever.
    pub keep_records_days: f64,
}

impl Runs {
    /// Whether all nodes have the same file at this path, on a file system of this type.
    pub fn is_shared(&self, path: &Path, fs: &str) -> bool {
        SHARED.contains(&fs) || fs.starts_with("fuse.") || self.shared.iter().any(|folder| path.starts_with(folder))
    }
}

/// Types of file systems that are shared between nodes; those that begin with `fuse.` are, too.
const SHARED: [&str; 19] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "dvs", "fhgfs", "fuse", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "smb3", "virtiofs", "wekafs",
];

impl Default for Runs {
    fn default() -> Self {
        Runs {
            dir: "{home}/.joulepoint".to_string(),
            shared: Vec::new(),
            keep_completed_days: 1.0,
            keep_failed_days: 14.0,
            keep_records_days: 90.0,
        }
    }
}

/// `[estimates]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Estimates {
    /// MTBF of one node, s.
    pub node_mtbf_s: f64,
    /// Time of a checkpoint of unknown volume, s.
    pub checkpoint_s: f64,
    /// Rate at which checkpoints are written, bytes/s.
    pub write_bytes_per_s: f64,
    /// Time of a restart, s.
    pub restart_s: f64,
    /// Share of the power above idle that a node draws while it writes a checkpoint.
    pub checkpoint_power_share: f64,
}

impl Default for Estimates {
    fn default() -> Self {
        Estimates {
            node_mtbf_s: 3.0 * 365.25 * 86400.0,
            checkpoint_s: 30.0,
            write_bytes_per_s: 500e6,
            restart_s: 60.0,
            checkpoint_power_share: 0.4,
        }
    }
}

/// `[hook]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hook {
    /// Run by `/bin/sh -c` to make a checkpoint in `$FT_ENERGY_CHECKPOINT_DIR`.
    pub checkpoint: Option<String>,
    /// Run by `/bin/sh -c` before a restart from `$FT_ENERGY_RESTART_DIR`.
    pub restart: Option<String>,
    /// Longest time of either, s; 0 for ten minutes.
    pub limit_s: f64,
}

/// `[criu]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criu {
    /// CRIU's command; the first `criu` on `PATH` or in a system folder if absent.
    pub command: Option<PathBuf>,
    /// Share of a job's free memory that may hold a dump until it is on disk; 0 for none.
    pub memory_share: f64,
    /// What is done to the files of a dump.
    pub compress: Compress,
    /// Whether a dump leaves out the memory that an earlier checkpoint has, by a further name of its files.
    pub increments: bool,
}

impl Default for Criu {
    fn default() -> Self {
        Criu { command: None, memory_share: 0.5, compress: Compress::None, increments: true }
    }
}

/// How the files of a dump are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Not at all.
    None,
    /// By zstd, at a level that keeps up with a disk.
    Zstd,
}

/// `[wrapper]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wrapper {
    /// How often a script, step or group that crashed is tried again without a new checkpoint in between; a script only if it
    /// has something to go on from.
    pub step_retries: u32,
    /// Safety before the walltime ends, s.
    pub end_margin_s: f64,
    /// Longest time that an engine may take for a checkpoint, s.
    pub checkpoint_limit_s: f64,
    /// Longest interval between checkpoints of a job that names none, s, or a quarter of its walltime; 0 for any.
    pub longest_interval_s: f64,
    /// Whether a job whose walltime ends is requeued after its last checkpoint.
    pub requeue_at_end: bool,
}

impl Default for Wrapper {
    fn default() -> Self {
        Wrapper {
            step_retries: 1,
            end_margin_s: 20.0,
            checkpoint_limit_s: 3600.0,
            longest_interval_s: 3600.0,
            requeue_at_end: false,
        }
    }
}
