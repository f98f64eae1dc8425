//! Lends a run's idle nodes to queued jobs and takes them back, one durable state after the other.
//!
//! `machine` and `chosen` say what comes next, `rules` what the site allows, `choice` who may borrow: pure. `broker` looks
//! at Slurm and writes states down, `looks` says since when, `hands` carries acts out, `leftovers` removes what a crash
//! left. Reservations and helper jobs bear a loan's name, and only those of loans that the store knows are ever touched.

mod asking;
mod broker;
mod choice;
mod chosen;
mod error;
mod hands;
mod leftovers;
mod listing;
mod looks;
mod machine;
mod ports;
mod rules;
mod seen;
#[cfg(test)]
mod simulation;
mod suitable;

pub use broker::{Broker, Parts};
pub use error::Error;
pub use ports::{NotOrdered, Ports};
pub use rules::DAY_S;
