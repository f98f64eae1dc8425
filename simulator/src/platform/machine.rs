//! Describes a machine: its nodes, its failures, and what fault tolerance costs on it.

use policy::Invalid;
use policy::waste::{Bouteiller, Storage};

use super::phase::Watts;
use crate::trace::Distribution;

/// Where failures come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Failures {
    /// Each node fails by itself, with gaps of this distribution.
    Drawn(Distribution),
    /// Gaps between the machine's failures, in seconds, from a log; they strike any node and start anew at their end.
    Logged(Vec<f64>),
}

/// What fault tolerance costs, in Bouteiller13's terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Duration of a checkpoint at the start, C0.
    pub checkpoint_s: f64,
    /// Restart, R.
    pub restart_s: f64,
    /// Time until a replacement for a failed node is there, D.
    pub down_s: f64,
    /// Work speed during a checkpoint, alpha.
    pub alpha: f64,
    /// Work speed under message logging, lambda; coordinated checkpoints need none.
    pub lambda: f64,
    /// Speed-up of re-execution from logs, rho.
    pub rho: f64,
    /// Growth of a checkpoint with logged messages, beta, per second.
    pub beta: f64,
    /// Loading a borrower, L.
    pub load_s: f64,
    /// Saving a borrower, S.
    pub save_s: f64,
    /// What the scheduler needs to lend nodes.
    pub scheduler_s: f64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Nodes in service.
    pub nodes: u32,
    /// Nodes besides them that wait for failures.
    pub spares: u32,
    /// Groups of an application that uses all nodes in service, G.
    pub groups: u32,
    /// Mean time between failures of the nodes in service together, mu.
    pub mtbf_s: f64,
    /// Where failures come from.
    pub failures: Failures,
    /// How long a failed node is away.
    pub repair_s: f64,
    /// Whether failures may strike a job that has not recovered yet; if not, they are put off until it works again.
    pub overlap: bool,
    /// What fault tolerance costs.
    pub costs: Costs,
    /// Power by phase.
    pub watts: Watts,
}

impl Machine {
    /// Refuses a machine that cannot be simulated.
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |parameter, value, range| Err(Invalid { parameter, value, range });
        if self.nodes == 0 {
            return refuse("nodes", 0.0, "1 or more");
        }
        if self.groups == 0 || self.groups > self.nodes {
            return refuse("groups", f64::from(self.groups), "1 to the number of nodes");
        }
        for (parameter, value) in [("repair", self.repair_s), ("scheduler", self.costs.scheduler_s)] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(parameter, value, "finite, >= 0");
            }
        }
        self.bouteiller(self.nodes).check()
    }

    /// Mean time between failures of a job on `nodes` nodes.
    pub fn mtbf_of_s(&self, nodes: u32) -> f64 {
        self.mtbf_s * f64::from(self.nodes) / f64::from(nodes)
    }

    /// Groups of a job on `nodes` nodes.
    pub fn groups_of(&self, nodes: u32) -> u32 {
        self.groups.min(nodes)
    }

    /// Bouteiller13's parameters for a job on `nodes` nodes; no period is longer than ten times its MTBF.
    pub fn bouteiller(&self, nodes: u32) -> Bouteiller {
        let c = &self.costs;
        let mtbf_s = self.mtbf_of_s(nodes);
        Bouteiller {
            mtbf_s,
            groups: f64::from(self.groups_of(nodes)),
            checkpoint_s: c.checkpoint_s,
            down_s: c.down_s,
            restart_s: c.restart_s,
            alpha: c.alpha,
            lambda: c.lambda,
            rho: c.rho,
            beta: c.beta,
            load_s: c.load_s,
            save_s: c.save_s,
            cap_s: 10.0 * mtbf_s,
            storage: Storage::Remote,
        }
    }
}
