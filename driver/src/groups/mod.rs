//! Uncoordinated recovery: groups of nodes that checkpoint and restart alone.

mod account;
mod ends;
mod follow;
mod group;
mod loan;
mod logging;
mod pace;
pub mod place;
pub mod ports;
mod recover;
mod run;
mod sweep;
mod together;
mod under_way;

pub use run::run;
