//! Runs inside the job: takes a run up, plans it, and drives it with the real forms of what its driver needs.
//!
//! The room `driver` owns the run's state and knows the world only through its ports. Their real forms are in `job`, `steps`,
//! `engines` and `groups`; [`launch`] puts them together.

pub mod clean;
mod drive;
mod former;
pub mod launch;
mod nodes;
mod planned;
