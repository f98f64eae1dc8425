//! Simulates a machine whose nodes fail, its queue, and the protocols that protect its jobs (Bouteiller13, Mills).
//!
//! [`Scenario::run`] simulates one seed, [`expected`] gives the closed form that belongs to it. Node-seconds are never lost: the phases of [`Ledger`] add up to all nodes times the simulated time.

mod backfill;
mod checkpointed;
mod engine;
mod events;
mod expected;
mod failures;
mod job;
mod machine;
mod outcome;
mod phase;
mod protocol;
mod recovery;
mod running;
mod sacct;
mod shadowed;
mod spares;
mod swf;

pub use engine::Scenario;
pub use expected::{Expected, expected};
pub use job::{Job, QueueFile, Task, Workload, parse_queue};
pub use machine::{Costs, Failures, Machine};
pub use outcome::Outcome;
pub use phase::{Ledger, Phase, Watts};
pub use protocol::{Period, Plan, Protocol, ShadowSpeed, Shadowing, plan};
pub use shadowed::Tasks;
