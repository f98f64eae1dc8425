//! Uncoordinated recovery: groups of nodes that checkpoint and restart alone.
//!
//! [`driver`] owns the state of all groups. An `srun` of the script meets the program in [`shim`], which starts one
//! real `srun` for each group as [`board`], the driver's hand, tells it; [`split`] says what these calls are.

mod account;
pub mod board;
pub mod criu;
pub mod dealt;
pub mod driver;
mod files;
mod folder;
mod follow;
pub mod group;
mod known;
pub mod launch;
pub mod lines;
mod loan;
mod logging;
mod pace;
pub mod park;
pub mod place;
pub mod ports;
mod recover;
pub mod relays;
pub mod shim;
mod silence;
pub mod slow;
pub mod split;
pub mod sweep;
mod under_way;
pub mod words;
