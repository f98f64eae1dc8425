//! What will be done for a run, what is expected of it, and what was refused and why.

use crate::Request;
use serde::{Deserialize, Serialize};

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

/// What a wrapper asks the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// What the user asked for.
    pub request: Request,
    /// Nodes of the allocation; 1 if not known yet.
    pub nodes: u32,
    /// CPUs of the allocation on each node.
    pub cpus_per_node: u32,
    /// User name, for the history of earlier runs.
    pub user: String,
    /// Job name, for the history of earlier runs.
    pub job_name: String,
}

/// What will be done for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Protocol version of the writer.
    pub version: u32,
    /// `energy` or `time`.
    pub objective: String,
    /// Fault-tolerance protocol: `coordinated`.
    pub protocol: String,
    /// Checkpoint engine: `app` or `hook`.
    pub engine: String,
    /// Estimator of the MTBF: `ema`, `young`, ...
    pub policy: String,
    /// Checkpoint interval to begin with: work between checkpoints, s.
    pub interval_s: f64,
    /// Whether the interval is the user's own and must not be adapted.
    pub interval_fixed: bool,
    /// MTBF of the allocation, s.
    pub mtbf_s: Figure,
    /// Expected time of a checkpoint, s.
    pub checkpoint_s: Figure,
    /// Expected time of a restart, s.
    pub restart_s: Figure,
    /// Power of an idle node, W.
    pub idle_w: Figure,
    /// Power of a computing node, W.
    pub busy_w: Figure,
    /// Power of a node while it writes a checkpoint, W.
    pub checkpoint_w: Figure,
    /// Expected time beyond a failure-free run, as a fraction.
    pub expected_time_overhead: f64,
    /// Expected energy beyond a failure-free run, as a fraction.
    pub expected_energy_overhead: f64,
    /// Expected share of time spent in checkpoints.
    pub expected_io_share: f64,
    /// What was looked at and not taken.
    pub alternatives: Vec<Alternative>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// Who made the plan: `controller` or `wrapper`.
    pub made_by: String,
}
