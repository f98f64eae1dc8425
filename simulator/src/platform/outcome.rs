//! Says what a simulation found.

use super::phase::Ledger;
use super::shadowed::Tasks;

/// What a simulation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Simulated time.
    pub elapsed_s: f64,
    /// Nodes in service and spare.
    pub nodes: u32,
    /// Node-seconds by phase.
    pub ledger: Ledger,
    /// Energy.
    pub energy_j: f64,
    /// Work done by jobs on their own nodes, at full speed.
    pub own_node_s: f64,
    /// Work done by borrowers.
    pub lent_node_s: f64,
    /// Node-seconds that jobs held, lent ones included, shadows included.
    pub held_node_s: f64,
    /// Failures that struck a node in service.
    pub failures: u64,
    /// Recoveries in which nodes were lent.
    pub lent: u64,
    /// Recoveries in which lending did not pay, or nobody borrowed.
    pub kept: u64,
    /// Jobs that ended.
    pub finished: usize,
    /// Jobs that did not.
    pub unfinished: usize,
    /// Mean time in the queue of those that ended.
    pub wait_s: f64,
    /// Mean bounded slowdown of those that ended: response time over run time, of 10 s at least.
    pub slowdown: f64,
    /// Tasks under shadow replication.
    pub tasks: Tasks,
    /// Events that were simulated.
    pub events: u64,
}

impl Outcome {
    /// The share of what jobs held that was not their work (Bouteiller13's application waste).
    pub fn application_waste(&self) -> f64 {
        1.0 - self.own_node_s / self.held_node_s
    }

    /// The share of all nodes' time that was nobody's work (Bouteiller13's platform waste).
    pub fn platform_waste(&self) -> f64 {
        1.0 - self.useful_node_s() / self.ledger.total_node_s()
    }

    /// Work done, at full speed.
    pub fn useful_node_s(&self) -> f64 {
        self.own_node_s + self.lent_node_s
    }

    /// Energy per second of work of a node.
    pub fn energy_per_useful_node_s(&self) -> f64 {
        self.energy_j / self.useful_node_s()
    }
}
