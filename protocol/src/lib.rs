//! The words the parts exchange and keep on disk, with a version on each.
//!
//! But for [`say!`] this room holds data only: no parsing, no checking, no arithmetic. Times are seconds since the Unix
//! epoch (`_s`, `f64`) unless a name says otherwise; energies are joules (`_j`), powers watts (`_w`), volumes bytes.

mod account;
mod calibration;
mod health;
mod journal;
mod loan;
pub mod name;
mod node;
mod order;
mod plan;
mod protection;
mod request;
mod say;
mod watch;

pub use account::{
    AdminSummary, Bill, CheckpointAccount, DecisionAccount, FailureAccount, LoanAccount, PhaseAccount, PhaseSpan,
    RecordAccount, RunAccount, Told, Totals,
};
pub use calibration::{
    Axis, BasePower, CALIBRATION_VERSION, Calibration, Correction, Fingerprint, Measured, Noise, Operation, Point,
    Quantity, Skipped, Storage, StoredCalibration, StoredFit,
};
pub use health::{Health, Part};
pub use journal::{
    Batch, Counted, Delivered, Event, FailureKind, FileAttributes, FileLink, FileLooks, Manifest, ManifestFile,
    Messages, NOT_RESTORED, Record, RunKey,
};
pub use loan::{Chosen, ChosenState, Loan, LoanMode, LoanProgress, LoanRequest, LoanState, Queue, Stay};
pub use node::{
    Beat, BeatReply, Capabilities, FileWriter, FrequencyRequest, FrequencyState, Held, JobReading, Leavings,
    LeavingsRequest, Left, NodeFailure, NodeHealth, NodeReading, OffReply, OffRequest, RunHealth, SharedFile,
    SignalReply, SignalRequest, StepSpan, WakeReply, WakeRequest, Writers, WritersRequest,
};
pub use order::{Order, OrderRequest, OrderState, OrderStatus, OrderedCheckpoint, Verb};
pub use plan::{Alternative, Figure, Past, Plan, PlanRequest, ProtocolChoice, ProtocolFigures, ProtocolRow, Range};
pub use protection::{Protection, ProtectionState};
pub use request::{Request, Setting, Source};
#[doc(hidden)]
pub use say::{Instead, say_instead, say_line};
pub use watch::{
    BeginReply, BeginRequest, EndReply, EndRequest, FormerNode, Incarnation, LeaseReply, LeaseRequest, NotGranted,
    Seen, Testimony, TestimonyRequest, Unsure, WaitsFor, Witness,
};

/// The version written into every document and path of the wire (`/v1/...`).
pub const VERSION: u32 = 1;

/// Exit code of a sandbox's supervisor that could not restore, or reach the driver: as if the program had been killed, so
/// that it is tried again.
pub const EXIT_KILLED: i32 = 137;

/// How long after the begin of a life of a job, when all of its nodes answer, a signal may still come that Slurm meant for the life
/// before: the minute after which it tries again, and the time that a message has.
pub const LATEST_SIGNAL: std::time::Duration = std::time::Duration::from_secs(75);

/// What a run's nodes are doing; energy and time are accounted by it.
///
/// Every phase but [`Phase::Compute`] is resilience energy (DESIGN, words).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Work of the program that counted.
    Compute,
    /// From asking the engine for a checkpoint until its manifest is committed.
    Checkpoint,
    /// Logging messages between groups, beside the work.
    Logging,
    /// From the failure until the program computes again.
    Restart,
    /// Work that was done after the recovery line from which the run had to resume.
    LostWork,
    /// Nodes held by the run while nothing of it ran on them.
    Idle,
}

impl Phase {
    /// All phases, in the order in which reports show them.
    pub const ALL: [Phase; 6] =
        [Phase::Compute, Phase::Checkpoint, Phase::Logging, Phase::Restart, Phase::LostWork, Phase::Idle];

    /// The name used in files, on the wire and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Compute => "compute",
            Phase::Checkpoint => "checkpoint",
            Phase::Logging => "logging",
            Phase::Restart => "restart",
            Phase::LostWork => "lost_work",
            Phase::Idle => "idle",
        }
    }
}
