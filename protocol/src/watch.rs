//! What nodes, their witnesses, the controller and wrappers say to each other about who is alive.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One life of a Slurm job: a requeue ends it and begins the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
}

/// A node that grants another its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Witness {
    /// Node name as Slurm knows it.
    pub node: String,
    /// Where its service answers.
    pub url: String,
}

/// A node that the controller does not answer asks a witness for its lease: `POST /v1/lease`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// Who asks.
    pub node: String,
    /// Its epoch, by which it shows whether the controller has spoken to it since the witness testified.
    pub epoch: u64,
}

/// What a witness answers to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReply {
    /// Why the lease is not granted; absent if it is.
    pub refused: Option<NotGranted>,
}

/// Why a lease is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotGranted {
    /// The witness has told the controller that it does not reach the node.
    Testified,
    /// The witness does not know what it has said before.
    Unsure,
}

/// What somebody sees of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its node service answers.
    pub service: bool,
    /// Its slurmd accepts connections.
    pub slurmd: bool,
    /// Its host answers in any way.
    pub host: bool,
}

/// The controller asks a witness about a silent node: `POST /v1/testimony`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestimonyRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// The silent node.
    pub node: String,
    /// Where its service answered.
    pub url: String,
    /// Address and port of its slurmd, where Slurm tells them.
    pub slurmd: Option<String>,
    /// The epoch below which the witness grants it nothing from now on, if it does not reach it either.
    pub epoch: u64,
    /// What is to be ended there, if the witness does reach it.
    pub ended: BTreeSet<Incarnation>,
}

/// What a witness answers to a [`TestimonyRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Testimony {
    /// What it sees of the node.
    pub seen: Seen,
    /// How long ago it granted the node its lease last, s; absent if it has not.
    pub granted_age_s: Option<f64>,
    /// Jobs of which the node's service has told it that nothing is left.
    #[serde(default)]
    pub ended: BTreeSet<Incarnation>,
}

/// Somebody wants what is left of a job's earlier life ended on a node: `POST /v1/jobs/{job}/end`, by the job's owner or root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// The last life that has to end.
    pub restart_count: u32,
}

/// What a node service answers to an [`EndRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReply {
    /// Processes that are still there: it is to be asked again until there are none.
    pub left: u32,
}

/// A run's former share of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FormerNode {
    /// Node name as Slurm knows it.
    pub node: String,
    /// Which life of the job was there.
    pub of: Incarnation,
}

/// A wrapper asks whether its run may begin again: `POST /v1/runs/{cluster}/{run}/begin`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// Nodes of earlier lives that could not be asked themselves.
    pub former: Vec<FormerNode>,
}

/// What the controller answers to a [`BeginRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeginReply {
    /// What is not known to have ended; the run may begin when there is nothing.
    pub waits: Vec<WaitsFor>,
}

/// A node for which a run waits before it begins again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// The node, and what was there.
    pub former: FormerNode,
    /// Why.
    pub because: Unsure,
}

/// Why it is not known that a node runs nothing of a run any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Unsure {
    /// The node runs, and is ending what is left there.
    Ending,
    /// The node is dead or cut off, and its lease is not over.
    Lease {
        /// It is over after so long, s.
        for_s: f64,
    },
    /// It is silent, and being looked at.
    Suspected,
    /// It is silent, but somebody else reaches it: it may still run what it ran.
    Reached {
        /// Who: the name of a node, or `controller`.
        by: String,
    },
    /// It is silent, and too few of its witnesses can be asked.
    NoMajority {
        /// How many of its witnesses answered.
        answered: usize,
        /// How many it has.
        of: usize,
    },
    /// About half of all nodes are silent: it is not known who is cut off.
    Crowd,
    /// It is dead, but its service was away before, or is of a version that does not fence it.
    Unfenced,
}
