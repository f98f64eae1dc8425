//! What people order of a run, and what came of it.

use crate::RunKey;
use serde::{Deserialize, Serialize};

/// What may be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Make a checkpoint now.
    Checkpoint,
    /// Make a checkpoint now, then put the job back into the queue so that its nodes are free.
    Vacate,
    /// The same, because the job's nodes were lent to it and go back: for the broker of loans alone.
    Preempt,
    /// Go back to the newest checkpoint and start again from there, on the same nodes.
    Restart,
    /// Make checkpoints again.
    Enable,
    /// Make no further checkpoints until enabled.
    Disable,
}

impl Verb {
    /// The name used in commands, files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Checkpoint => "checkpoint",
            Verb::Vacate => "vacate",
            Verb::Preempt => "preempt",
            Verb::Restart => "restart",
            Verb::Enable => "enable",
            Verb::Disable => "disable",
        }
    }
}

/// What a person sends: `POST /v1/orders`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// Made up by the sender; the same id again is the same order. 1 to 64 letters and digits.
    pub id: String,
    /// The job as people write it: `123`, or `123_4` of an array.
    pub job: String,
    /// What is to be done.
    pub verb: Verb,
    /// For `vacate`: not to begin again before, s since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_s: Option<f64>,
}

/// An order on its way to the wrapper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// What is to be done.
    pub verb: Verb,
    /// User name of who ordered it.
    pub by: String,
    /// For `vacate`: the job is not to begin again before, s since 1970; absent for as soon as there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_s: Option<f64>,
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderState {
    /// The run's wrapper has not heard of it yet.
    Waiting,
    /// The wrapper has it.
    Taken,
    /// It is done.
    Done,
    /// It could not be done.
    Failed,
}

/// The checkpoint that an order brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderedCheckpoint {
    /// Its number within the run.
    pub number: u64,
    /// Its folder.
    pub path: String,
    /// How long it took, s.
    pub seconds: f64,
    /// Volume, bytes.
    pub bytes: u64,
    /// Energy, J; absent if nothing could be read.
    pub joules: Option<f64>,
}

/// What the controller knows of an order: `GET /v1/orders/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// The order.
    pub order: Order,
    /// The run.
    pub key: RunKey,
    /// Slurm job id.
    pub job: u32,
    /// When the controller took it.
    pub at_s: f64,
    /// Where it stands.
    pub state: OrderState,
    /// What came of it, in words; empty until then.
    pub text: String,
    /// The checkpoint that was made for it.
    pub checkpoint: Option<OrderedCheckpoint>,
}
