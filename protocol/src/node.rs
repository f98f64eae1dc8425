//! What a node service says to the controller, and to a wrapper that asks.

use crate::{Fingerprint, Incarnation, Order, Witness};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One job's counters on one node, cumulative since the node service first saw the job there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReading {
    /// Slurm job id.
    pub job: u32,
    /// Energy used by the job on this node, J.
    pub joules: f64,
    /// CPU time used by the job on this node, s.
    pub cpu_s: f64,
    /// Where the energy figure comes from (`rapl`, `model`, ...).
    pub source: String,
    /// When the job was first seen, so that a restarted counter is told from a running one.
    pub since_s: f64,
}

/// The answer of a node service to "what has this job used here?".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReading {
    /// Node name as Slurm knows it.
    pub node: String,
    /// When the counters were read.
    pub at_s: f64,
    /// The job's counters; absent while no process of the job was seen on the node.
    pub job: Option<JobReading>,
}

/// The death of a node, as the controller's store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// Node name as Slurm knows it.
    pub node: String,
    /// When it died, s since the epoch.
    pub at_s: f64,
}

/// A node service's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// Protocol version of the sender.
    pub version: u32,
    /// Node name as Slurm knows it.
    pub node: String,
    /// When it was sent, by the node's clock.
    pub at_s: f64,
    /// Time of start of this service, which tells a restart from silence.
    pub started_s: f64,
    /// Where this service answers, such as `http://n1:6821`.
    pub url: String,
    /// Whether a slurmd answers on this node.
    pub slurmd_up: bool,
    /// Energy of the whole node since the service started, J.
    pub node_joules: f64,
    /// Where the energy figures come from.
    pub source: String,
    /// Counters of every job with processes on the node.
    pub jobs: Vec<JobReading>,
    /// What the node is made of; absent until it has looked.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
    /// The kernel's number of this boot; empty from services that tell none.
    #[serde(default)]
    pub boot_id: String,
    /// The epoch in which this service asks its witnesses; absent from services that freeze nothing when they are cut off.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// Checkpoint engines that are installed on the node; absent until it has looked, and for a controller that has told no
    /// [`BeatReply::capabilities`]: one of a version before takes no heartbeat with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engines: Option<BTreeSet<String>>,
    /// For how long this service is silent once this heartbeat is answered, since nothing protected is here, s; only for a
    /// controller that has told [`BeatReply::may_rest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_s: Option<f64>,
    /// For how long the node has been up, s; only for a controller that has told [`BeatReply::boots`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_s: Option<f64>,
}

/// The controller asks a node that is silent because nothing protected is there for a heartbeat: `POST /v1/wake`, for root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeRequest {
    /// Protocol version of the sender.
    pub version: u32,
}

/// What a node service answers to a [`WakeRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeReply {
    /// Whether it was silent, and beats now.
    pub rested: bool,
}

/// A person says that a silent node has no power: `POST /v1/nodes/{node}/off`, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffRequest {
    /// Protocol version of the sender.
    pub version: u32,
}

/// What the controller answers to an [`OffRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffReply {
    /// Whether that was not known before: runs that waited for the node go on now.
    pub is_new: bool,
}

/// What the nodes of a cluster have for checkpoints, as their services see it: `GET /v1/capabilities`, and the file that
/// `sbatch` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// When it was counted, s since the epoch.
    pub at_s: f64,
    /// Nodes that told.
    pub nodes: usize,
    /// On how many of them an engine is installed, by its name as in `--ft-energy-engine`.
    pub engines: BTreeMap<String, usize>,
    /// Whether the site has said how jobs make checkpoints that do not say it themselves: a command, or other defaults.
    #[serde(default)]
    pub site_wide: bool,
}

impl Capabilities {
    /// For how long they are good, s: nodes are installed anew.
    const GOOD_FOR_S: f64 = 3600.0;

    /// Whether they say something at `now_s`, s since the epoch: some node told, and not long ago.
    pub fn hold_at(&self, now_s: f64) -> bool {
        self.nodes > 0 && (now_s - self.at_s).abs() < Self::GOOD_FOR_S
    }

    /// On how many nodes an engine is installed.
    pub fn having(&self, engine: &str) -> usize {
        self.engines.get(engine).copied().unwrap_or(0)
    }
}

/// A job that holds a node, whether or not it has processes there at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
    /// CPUs that the job has on this node, by which idle power is shared; 0 if that is not known.
    #[serde(default)]
    pub cpus: u32,
}

/// What the controller answers to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeatReply {
    /// Protected jobs that hold this node: its idle power is theirs also between their steps.
    #[serde(default)]
    pub held: Vec<Held>,
    /// For services that know no [`BeatReply::ended`]: jobs that must not go on here.
    #[serde(default)]
    pub fence: Vec<u32>,
    /// Lives of jobs that have begun again elsewhere: what is left of them here must end.
    #[serde(default)]
    pub ended: Vec<Incarnation>,
    /// The node's epoch.
    #[serde(default)]
    pub epoch: u64,
    /// Who grants this node its lease while the controller does not answer.
    #[serde(default)]
    pub witnesses: Vec<Witness>,
    /// What all nodes have; absent where the controller does not tell.
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
    /// Whether the controller understands a [`Beat::pause_s`].
    #[serde(default)]
    pub may_rest: bool,
    /// Whether the controller understands [`Beat::up_s`].
    #[serde(default)]
    pub boots: bool,
}

/// What the controller knows of one node's health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// Node name.
    pub node: String,
    /// Where its service answers; empty if it never sent a heartbeat.
    pub url: String,
    /// Seconds since its last heartbeat; absent if it never sent one.
    pub silent_s: Option<f64>,
    /// Whether its slurmd answered at the last heartbeat.
    pub slurmd_up: bool,
    /// Whether it is dead: Slurm has it down, and nothing of the run goes on there.
    pub dead: bool,
    /// Whether the controller has found it dead, though it may not be known yet that nothing goes on there.
    #[serde(default)]
    pub doomed: bool,
    /// How long ago it was found dead last, s; absent if it is not, or the controller is of a version that does not tell.
    #[serde(default)]
    pub found_dead_s: Option<f64>,
    /// How long ago it was heard last in the boot before this one, s; absent if it was not seen to boot, or the controller is
    /// of a version that does not tell.
    #[serde(default)]
    pub booted_s: Option<f64>,
    /// The last counters of the job that was asked about.
    pub job: Option<JobReading>,
}

/// What a run's wrapper hears when it asks after its nodes: `GET /v1/runs/{cluster}/{run}/health`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunHealth {
    /// Grows with every piece of news; `?since=` it and `wait_s=` to hear of the next one when it comes.
    pub news: u64,
    /// The run's nodes.
    pub nodes: Vec<NodeHealth>,
    /// Orders that have not been answered.
    pub orders: Vec<Order>,
}

/// What a run's wrapper asks of a node that checkpoints or waits: `POST /v1/jobs/{job}/frequency`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrequencyRequest {
    /// Protocol version of the writer.
    pub version: u32,
    /// CPU frequency to hold, Hz: 0 for the lowest that can be set, absent to give the node its own again.
    pub hz: Option<f64>,
    /// After which the node has its own again unless it is asked anew, s.
    pub lease_s: f64,
}

/// The CPU frequency that is held on a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrequencyState {
    /// Hz; absent where the node has its own.
    pub hz: Option<f64>,
}

/// What a run's wrapper asks of a node before it takes a file for finished: `POST /v1/jobs/{job}/writers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WritersRequest {
    /// Protocol version of the writer.
    pub version: u32,
    /// The files.
    pub files: Vec<SharedFile>,
}

/// What a run's wrapper asks of a node to have its program write a checkpoint: `POST /v1/jobs/{job}/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Protocol version of the writer.
    pub version: u32,
    /// Number of the signal.
    pub signal: i32,
}

/// Who has got it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReply {
    /// Node name.
    pub node: String,
    /// How many processes of the job's steps have a handler for the signal, and got it.
    pub asked: u32,
}

/// A file, as every node that shares it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedFile {
    /// Inode number.
    pub inode: u64,
    /// Type of its file system, such as `nfs4`; empty if it is not known.
    pub fs: String,
}

/// Which of the job's processes on a node may still write to which files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writers {
    /// Node name.
    pub node: String,
    /// Those that were found.
    pub writers: Vec<FileWriter>,
    /// How many processes could not be looked into: they may, too.
    pub unseen: u32,
}

/// A process that has a file open for writing, or maps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWriter {
    /// Position of the file in the request, from 0.
    pub file: u32,
    /// Process id on the node.
    pub pid: i32,
    /// Name of the program.
    pub process: String,
    /// Whether it maps the file.
    pub is_mapped: bool,
}

/// What a run's wrapper asks of a node after steps have ended: `POST /v1/jobs/{job}/leavings`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeavingsRequest {
    /// Protocol version of the writer.
    pub version: u32,
    /// What the clock of the node that asks says.
    pub now_s: f64,
    /// The steps.
    pub steps: Vec<StepSpan>,
}

/// When a step ran, by the clock of the node that asks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpan {
    /// When it began.
    pub begun_s: f64,
    /// When it ended.
    pub ended_s: f64,
}

/// What steps may have left on storage that only one node has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leavings {
    /// Node name.
    pub node: String,
    /// The boot of the node, which what lies in memory does not outlive.
    pub boot_id: String,
    /// Whether all local storage was looked through: else each step may have left something.
    pub is_whole: bool,
    /// For how long it was looked, s.
    pub took_s: f64,
    /// One for each step that was asked about.
    pub steps: Vec<Left>,
}

/// What one step has left on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Files that outlive a boot.
    pub on_disk: bool,
    /// Files that do not.
    pub in_memory: bool,
}
