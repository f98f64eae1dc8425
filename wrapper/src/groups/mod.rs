//! Uncoordinated recovery: groups of nodes that checkpoint and restart alone.
//!
//! `driver::groups` owns the state of all groups. An `srun` of the script meets the program in [`shim`], which starts one
//! real `srun` for each group as [`board`], the driver's hand, tells it; [`split`] says what these calls are.

pub mod board;
pub mod criu;
pub mod dealt;
mod files;
mod folder;
mod gathered;
mod known;
pub mod launch;
pub mod lines;
pub mod park;
pub mod relays;
pub mod shim;
mod silence;
pub mod slow;
pub mod split;
pub mod words;
pub mod worlds;
