//! Simulates a machine whose nodes fail, its queue, and the protocols that protect its jobs (Bouteiller13, Mills).
//!
//! Node-seconds are never lost: the phases of [`Ledger`] add up to all nodes times the simulated time.

mod backfill;
mod checkpointed;
mod engine;
mod expected;
mod failures;
mod job;
mod machine;
mod phase;
mod protocol;
mod recovery;
mod sacct;
mod shadowed;
mod spares;
mod swf;

pub use engine::{Outcome, simulate, simulate_runs};
pub use expected::{Expected, expected};
pub use job::{Job, QueueFile, Workload, parse_queue};
pub use machine::{Costs, Failures, Machine};
pub use phase::{Ledger, Phase, Watts};
pub use protocol::{Period, Plan, Protocol, ShadowSpeed, Shadowing, plan};
pub use shadowed::Tasks;
