//! Meters the jobs on a node, beats, and ends what must not go on there.

mod capabilities;
pub mod frequency;
mod gpus;
mod heart;
mod lease;
mod leavings;
mod left;
mod limits;
mod lives;
mod metering;
mod mounts;
mod node;
mod open_files;
mod pmix;
pub mod reach;
mod refused;
mod signal;
pub mod spool;
mod walk;

pub use limits::limits;
pub use node::{Params, paths, serve};
