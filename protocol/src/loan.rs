//! What a run's idle nodes go through while another job has them, and what is said about it.

use crate::RunKey;
use serde::{Deserialize, Serialize};

/// How a site lends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoanMode {
    /// Only jobs whose time limit fits before the return get the nodes.
    #[default]
    Window,
    /// Those, and jobs under Joulepoint that need longer: they checkpoint and go back into the queue at the return.
    Preempt,
    /// Never.
    Off,
}

impl LoanMode {
    /// The name used in files, on the wire and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            LoanMode::Window => "window",
            LoanMode::Preempt => "preempt",
            LoanMode::Off => "off",
        }
    }
}

/// Where a loan stands. Each state is on disk before anything of it is done; docs/loans.md has the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoanState {
    /// Allowed; the reservation of the return is made.
    Asked,
    /// The lender's job gives the nodes up.
    Shrinking,
    /// Other jobs may run on the nodes.
    Lent,
    /// Nobody may begin on the nodes any more; the lender's helper job takes them as they fall free.
    Returning,
    /// The helper job is merged into the lender's.
    Growing,
    /// What was made for the loan is removed.
    Closing,
    /// The nodes do not come back: the lender's job is put back into the queue.
    Failing,
    /// Over: nothing is left of it.
    Closed,
    /// Over without all of its nodes: the run was requeued, or goes on with what it has where Slurm does not do that.
    Failed,
}

impl LoanState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, LoanState::Closed | LoanState::Failed)
    }

    /// The name used in files, on the wire and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            LoanState::Asked => "asked",
            LoanState::Shrinking => "shrinking",
            LoanState::Lent => "lent",
            LoanState::Returning => "returning",
            LoanState::Growing => "growing",
            LoanState::Closing => "closing",
            LoanState::Failing => "failing",
            LoanState::Closed => "closed",
            LoanState::Failed => "failed",
        }
    }
}

/// Where a borrower stands that the broker has chosen. Each state is on disk before anything of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenState {
    /// Free nodes of the loan are reserved for it, and it is put into that reservation.
    Called,
    /// It runs on them, and has no part in a reservation any more.
    Running,
    /// It is told to checkpoint and to go, or was never there: what was made for it is removed.
    Leaving,
    /// Over: it is gone, or runs on because nobody wants the nodes back.
    Over,
}

impl ChosenState {
    /// The name used in files, on the wire and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ChosenState::Called => "called",
            ChosenState::Running => "running",
            ChosenState::Leaving => "leaving",
            ChosenState::Over => "over",
        }
    }
}

/// A job under Joulepoint that was let in although it needs longer than the nodes are lent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// Slurm job id.
    pub job: u32,
    /// User id.
    pub uid: u32,
    /// User name.
    pub user: String,
    /// How often it had been restarted when it was chosen.
    pub restart_count: u32,
    /// Name of the reservation by which it gets its nodes.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// Where it stands.
    pub state: ChosenState,
    /// Since when.
    pub state_s: f64,
    /// Why.
    pub reason: String,
}

/// What a run asks for: `POST /v1/loans`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoanRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// Made up by the sender; the same id again is the same loan. 1 to 64 letters and digits.
    pub id: String,
    /// The lender's job as people write it: `123`, or `123_4` of an array.
    pub job: String,
    /// Nodes to lend, without the batch host; nothing of the run may be running on them.
    pub nodes: Vec<String>,
    /// When the run expects to need them again, s since the epoch.
    pub return_s: f64,
    /// Why lending pays, in the words of policy.
    pub reason: String,
}

/// How the recovery goes on: `POST /v1/loans/{id}/return`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoanProgress {
    /// Protocol version of the sender.
    pub version: u32,
    /// When the nodes are needed again, s since the epoch; what lies in the past means now.
    pub return_s: f64,
}

/// What waits in Slurm's queue for nodes such as a lender has: `GET /v1/queue?partition=P&cpus=N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// The shortest time for which a waiting job would use them, s: its time limit, or the shortest time of a loan where
    /// it can checkpoint and be called back. Absent if none waits.
    pub shortest_s: Option<f64>,
}

/// One job's time on one lent node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stay {
    /// Node name.
    pub node: String,
    /// Slurm job id of the borrower.
    pub job: u32,
    /// Its user.
    pub user: String,
    /// Its account.
    pub account: String,
    /// When it began there.
    pub start_s: f64,
    /// When it was gone; absent while it is there.
    pub end_s: Option<f64>,
    /// Energy it used there, J: not the lender's. Absent if nothing could be read.
    pub joules: Option<f64>,
}

/// A loan, live or past: what the controller keeps on disk, and tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loan {
    /// Its id.
    pub id: String,
    /// Name of its reservation, and of the helper job that brings the nodes back.
    pub name: String,
    /// The lender's run.
    pub key: RunKey,
    /// The lender's job.
    pub job: u32,
    /// SLURM_RESTART_COUNT of the lender's job.
    pub restart_count: u32,
    /// User id of the lender.
    pub uid: u32,
    /// User name of the lender.
    pub user: String,
    /// Account of the lender.
    pub account: String,
    /// How it is lent.
    pub mode: LoanMode,
    /// Where it stands.
    pub state: LoanState,
    /// Since when.
    pub state_s: f64,
    /// Why it was asked for, then why it is where it is.
    pub reason: String,
    /// The lent nodes.
    pub nodes: Vec<String>,
    /// The nodes that the lender keeps.
    pub kept: Vec<String>,
    /// When it was asked for.
    pub asked_s: f64,
    /// When the nodes are expected to be needed again.
    pub return_s: f64,
    /// The latest return that was ever expected: borrowers were let in for so long.
    pub promised_s: f64,
    /// When the lender had given the nodes up.
    pub lent_s: Option<f64>,
    /// When the lender had them again, or was known to get them no more.
    pub back_s: Option<f64>,
    /// The nodes that came back; while they return, those that can and have not yet.
    pub back: Vec<String>,
    /// The lender's time limit before the loan, s; absent for none.
    pub time_limit_s: Option<u64>,
    /// Power that an idle node would have drawn, W: the site's figure, for the counterfactual.
    pub idle_w: f64,
    /// Who was on the nodes.
    pub stays: Vec<Stay>,
    /// Those of them that were chosen, in the order of choice; mode `preempt` only.
    #[serde(default)]
    pub chosen: Vec<Chosen>,
}
