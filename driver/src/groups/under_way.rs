//! What several groups are at together: a checkpoint of all, or a loan of their nodes.

use protocol::{FailureKind, Order, OrderedCheckpoint};
use std::collections::BTreeSet;

/// A checkpoint of all groups that work.
pub struct Sweep {
    /// Groups that are still to checkpoint.
    pub(super) pending: BTreeSet<usize>,
    /// Orders that wait for it.
    pub(super) orders: Vec<Order>,
    pub(super) then: Then,
    pub(super) failed: Option<String>,
    pub(super) made: Option<OrderedCheckpoint>,
    /// The common number of the groups' checkpoints, if they may become one line.
    pub(super) line: Option<u64>,
}

/// What follows a sweep; what is further down goes before what is above.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// The run goes on.
    Stay,
    /// The run goes back to the queue because somebody wants its nodes, if all groups have checkpointed.
    Vacate {
        /// What the account says of it.
        kind: FailureKind,
        /// Who.
        reason: String,
    },
    /// The walltime ends: the run goes back to the queue.
    BeforeEnd,
    /// A group lacks nodes: the same.
    Short,
}

/// Survivors that are put aside.
pub struct Lent {
    /// Groups.
    pub(super) groups: BTreeSet<usize>,
    /// Those of them whose dump is not there yet.
    pub(super) missing: BTreeSet<usize>,
    /// When they are needed again.
    pub(super) return_s: f64,
    /// Why lending pays.
    pub(super) reason: String,
    /// When the broker was asked, if it was.
    pub(super) asked_s: Option<f64>,
    /// When the nodes were given away, if they were.
    pub(super) went_s: Option<f64>,
}
