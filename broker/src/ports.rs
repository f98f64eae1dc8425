//! What the broker needs of the service that it is a part of.

use protocol::{Loan, Order, OrderState};
use store::OpenRun;

/// Why an order is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotOrdered(pub String);

/// The service around the broker.
pub trait Ports: Send + Sync {
    /// Heartbeats of these nodes are to come from now on.
    fn expect_heartbeats(&self, nodes: &[String]);

    /// Energy that a job has used on a node by the node's last heartbeat, J.
    fn joules(&self, node: &str, job: u32) -> Option<f64>;

    /// Jobs of these runs are about to be requeued.
    fn requeueing(&self, runs: &[OpenRun]);

    /// How far an order has come.
    fn order_state(&self, id: &str) -> Option<OrderState>;

    /// Gives an order to a run's wrapper; the same again is the same order.
    ///
    /// # Errors
    /// Why it is not taken.
    fn order(&self, run: &OpenRun, order: Order) -> Result<(), NotOrdered>;

    /// A loan is over.
    fn over(&self, loan: &Loan);
}
