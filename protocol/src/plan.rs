//! What will be done for a run, what is expected of it, and what was refused and why.

use crate::Request;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A figure with the place it comes from: `measured`, `history`, `calibration`, `site`, `default`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The value, in the unit that the field's name says.
    pub value: f64,
    /// Where it comes from.
    pub from: String,
}

/// An alternative that was looked at and not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What it is, such as `objective=time`.
    pub what: String,
    /// Its checkpoint interval, s.
    pub interval_s: Option<f64>,
    /// Expected time beyond a failure-free run, as a fraction.
    pub time_overhead: Option<f64>,
    /// Expected energy beyond a failure-free run, as a fraction.
    pub energy_overhead: Option<f64>,
    /// Why it was not taken.
    pub refused: String,
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The figure.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What is expected of the whole run under one protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolFigures {
    /// Its own best interval; absent where it takes no checkpoints, s.
    pub interval_s: Option<f64>,
    /// Complete checkpoints.
    pub checkpoints: f64,
    /// Failures.
    pub failures: f64,
    /// Duration, s.
    pub time_s: Range,
    /// Energy of all nodes, J.
    pub energy_j: Range,
    /// Where the time goes, as the mean over the nodes, by name, s; the sum is `time_s`.
    pub time_parts_s: BTreeMap<String, f64>,
    /// Where the energy goes, by name, J; the sum is `energy_j`.
    pub energy_parts_j: BTreeMap<String, f64>,
    /// Number of checkpoints from which on it takes less energy than coordination, without failures.
    pub break_even_energy: Option<f64>,
    /// The same for time.
    pub break_even_time: Option<f64>,
}

/// One protocol in the table of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolRow {
    /// `coordinated`, `uncoordinated-disk`, `uncoordinated-memory`, ...
    pub protocol: String,
    /// Whether the engine can carry it out.
    pub enacted: bool,
    /// What is expected; absent where it cannot be estimated.
    pub figures: Option<ProtocolFigures>,
    /// Why it is not taken; absent for the one that is.
    pub refused: Option<String>,
}

/// The choice of the protocol, as it was made before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolChoice {
    /// What would be taken if the engine could carry out all that is estimated.
    pub unhindered: String,
    /// Duration without failures, checkpoints and logging, s.
    pub work_s: Figure,
    /// Groups of the uncoordinated alternatives.
    pub groups: u32,
    /// Processes on each node that were counted on; 0 in older plans.
    #[serde(default)]
    pub processes: u32,
    /// The node type whose calibration was used; absent if none was.
    pub node_type: Option<String>,
    /// All protocols, the safest first.
    pub rows: Vec<ProtocolRow>,
}

/// What a wrapper asks the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// What the user asked for.
    pub request: Request,
    /// Nodes of the allocation; 1 if not known yet.
    pub nodes: u32,
    /// CPUs of the allocation on each node.
    pub cpus_per_node: u32,
    /// Tasks of the job; one on each CPU if not known.
    #[serde(default)]
    pub tasks: Option<u32>,
    /// User name, for the history of earlier runs.
    pub user: String,
    /// Job name, for the history of earlier runs.
    pub job_name: String,
    /// Names of the nodes, by which their calibration is found; empty if not known yet.
    #[serde(default)]
    pub node_names: Vec<String>,
    /// Node type whose calibration is wanted.
    #[serde(default)]
    pub node_type: Option<String>,
    /// Duration without failures and checkpoints, if it is known, s.
    #[serde(default)]
    pub work_s: Option<f64>,
    /// Recovery groups of the uncoordinated alternatives; one for each node if absent.
    #[serde(default)]
    pub groups: Option<u32>,
    /// Time that Slurm gives the job, s; absent if it has no limit, or it is not known.
    #[serde(default)]
    pub walltime_s: Option<f64>,
    /// When it begins, on the clock on the wall, as seconds since its 1970; absent if it is not known.
    #[serde(default)]
    pub local_s: Option<f64>,
    /// The fingerprint of its script, by which earlier runs of the same are told from others; absent if it is not known.
    #[serde(default)]
    pub script: Option<String>,
    /// Why its nodes cannot go back one by one where nobody has asked for that, such as for a run that goes on; absent if
    /// nothing is known against it.
    #[serde(default)]
    pub together: Option<String>,
}

/// What is known of failures from before a run: by it `auto` paces the run as if it had lived through them. Moments are
/// seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Whose failures they are: `these nodes`, `node type X` or `the cluster`.
    pub of: String,
    /// How many nodes those are.
    pub nodes: u32,
    /// The run's nodes over those; 1 if it has them all.
    pub share: f64,
    /// What their MTBF was thought to be before any failure, s.
    pub prior_mtbf_s: f64,
    /// Failures until `since_s` whose moments are not kept.
    pub earlier_failures: u32,
    /// For how long they were watched until then, s.
    pub earlier_s: f64,
    /// From when on no failure is left out.
    pub since_s: f64,
    /// When they failed since, rising.
    pub failed_s: Vec<f64>,
    /// Until when they were watched.
    pub until_s: f64,
}

/// What will be done for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Protocol version of the writer.
    pub version: u32,
    /// `energy` or `time`.
    pub objective: String,
    /// Fault-tolerance protocol: `coordinated`, or another of `choice`.
    pub protocol: String,
    /// Checkpoint engine, as in `--ft-energy-engine`; `none` if no checkpoints are made.
    pub engine: String,
    /// Options that the plan sets as its user could have, by name without dashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Estimator of the MTBF: `ema`, `young`, ...
    pub policy: String,
    /// Checkpoint interval to begin with: work between checkpoints, s.
    pub interval_s: f64,
    /// The longest interval that the site lets a run of this walltime have, whatever is expected of its nodes, s; absent
    /// for any.
    #[serde(default)]
    pub longest_interval_s: Option<f64>,
    /// Whether the interval is the user's own and must not be adapted.
    pub interval_fixed: bool,
    /// MTBF of the allocation, s.
    pub mtbf_s: Figure,
    /// What is known of failures from before the run; absent where nothing is, and in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
    /// When the run was to begin as `interval_s` was chosen, on the clock on the wall, as seconds since its 1970; absent
    /// where nobody knew, and in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_s: Option<f64>,
    /// Expected time of a checkpoint, s.
    pub checkpoint_s: Figure,
    /// Expected time of a restart, s.
    pub restart_s: Figure,
    /// Which part of its nodes the job has, where it shares them: the powers are those of this part; absent for whole nodes.
    #[serde(default)]
    pub node_share: Option<f64>,
    /// Power of an idle node, or of the job's part of it, W.
    pub idle_w: Figure,
    /// Power of a computing node, or of that part, W.
    pub busy_w: Figure,
    /// Power of a node while its program stands still for a checkpoint, or of that part, W.
    pub checkpoint_w: Figure,
    /// For which part of a checkpoint's time the program stands still; beside the rest of it, it computes. Absent where
    /// nobody knows: then it is expected to stand still for all of it.
    #[serde(default)]
    pub still_share: Option<f64>,
    /// CPU frequency to set while a checkpoint is made, Hz; absent for the nodes' own.
    #[serde(default)]
    pub checkpoint_hz: Option<f64>,
    /// Expected time beyond a failure-free run, as a fraction.
    pub expected_time_overhead: f64,
    /// Expected energy beyond a failure-free run, as a fraction.
    pub expected_energy_overhead: f64,
    /// Expected share of time spent in checkpoints.
    pub expected_io_share: f64,
    /// For how long the run may wait for cheaper hours in all, s; absent if not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flexible_s: Option<f64>,
    /// What was looked at and not taken.
    pub alternatives: Vec<Alternative>,
    /// The choice of the protocol; absent where it cannot be estimated.
    #[serde(default)]
    pub choice: Option<ProtocolChoice>,
    /// What has changed on the nodes since they were calibrated; the calibration is not used then.
    #[serde(default)]
    pub stale: Vec<String>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// Who made the plan: `controller`, `wrapper`, or `plan` where that command had no controller.
    pub made_by: String,
}
