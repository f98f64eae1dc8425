//! Uncoordinated recovery: groups of nodes that checkpoint and restart alone.
//!
//! `driver::groups` owns the state of all groups; the modules here are the real forms of its ports, and [`launch`] puts them
//! together. An `srun` of the script meets [`steps::groups::shim`], which starts one real `srun` for each group as
//! [`board`], the driver's hand, tells it.

pub mod board;
pub mod criu;
mod dealt;
mod folder;
mod gathered;
mod known;
pub mod launch;
pub mod lines;
pub mod one_line;
pub mod park;
mod shared;
pub mod slow;
