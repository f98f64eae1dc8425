//! Says from evidence who is alive, who may be set down, and when a run may begin again.
//!
//! The model is that of Kubernetes' node leases and of Pacemaker's self-fencing. A node holds a *lease* as long as the
//! rest of the cluster can reach it: the controller answers its heartbeats, or a majority of its *witnesses* (services of
//! other nodes, named by the controller) grant it. A node whose lease is not renewed freezes its protected programs
//! ([`lease`]). The controller takes a silent node for dead only when it reaches it by no way itself, and a majority of
//! the node's witnesses say the same and from then on grant nothing ([`nodes`], [`testimony`]). Any two majorities share a
//! witness, so that after [`Limits::lease_s`] such a node is powered off or frozen, whichever it was: then, and not
//! before, a run may begin again elsewhere ([`Nodes::released`]).
//!
//! All of it is pure: time, messages and looks are arguments, actions are answers. Times are seconds on the monotonic
//! clock of whoever calls; no two clocks are ever compared.

mod deaths;
pub mod lease;
pub mod nodes;
pub mod runs;
pub mod set_down;
pub mod testimony;
mod trouble;
pub mod witnesses;

pub use deaths::{Death, Deaths};
pub use lease::Lease;
pub use nodes::{Nodes, Released};
pub use runs::Runs;
pub use set_down::{JobOn, NotSetDown, SetDowns};
pub use testimony::Testimonies;
pub use trouble::Trouble;

use protocol::{Held, Incarnation};

/// Which life of which job holds a node.
fn life(held: &Held) -> Incarnation {
    Incarnation { job: held.job, restart_count: held.restart_count }
}

/// The limits by which all parts of the watch agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Silence after which a node is looked at, s.
    pub detect_s: f64,
    /// A node without any proof for so long that the cluster can reach it freezes its protected programs, s.
    pub freeze_s: f64,
    /// After so long without proof they are certain to be frozen or gone, s; the difference covers a slow node.
    pub lease_s: f64,
    /// Most nodes that are set down in a minute.
    pub set_down_per_minute: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { detect_s: 3.0, freeze_s: 5.0, lease_s: 8.0, set_down_per_minute: 10 }
    }
}
