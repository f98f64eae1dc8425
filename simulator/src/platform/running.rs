//! What the engine asks of a running job, and what running jobs share.

use super::job::Queue;
use super::machine::Machine;
use super::phase::Ledger;
use super::shadowed::Tasks;

/// What running jobs share.
pub(super) struct World<'a> {
    pub(super) machine: &'a Machine,
    pub(super) ledger: Ledger,
    pub(super) queue: Queue,
    /// Whether there is always another job to lend nodes to.
    pub(super) backlog: bool,
    pub(super) lent_node_s: f64,
    pub(super) lent: u64,
    pub(super) kept: u64,
    pub(super) tasks: Tasks,
}

/// A running job under some protocol.
pub(super) trait Running {
    /// Time of the job's next event of its own.
    fn next_s(&self) -> f64;

    /// Does what [`Running::next_s`] announced; true if the work is done.
    fn step(&mut self, now_s: f64, world: &mut World<'_>) -> bool;

    /// Its node `node` fails; the replacement is there at `ready_s`.
    fn strike(&mut self, node: f64, now_s: f64, ready_s: f64, world: &mut World<'_>);

    /// The simulation ends.
    fn close(&mut self, now_s: f64, world: &mut World<'_>);

    /// Progress, in seconds of work at speed 1.
    fn done_s(&self) -> f64;

    /// Until when the job recovers, or has no partner left, if so.
    fn recovers_until_s(&self) -> Option<f64>;
}
