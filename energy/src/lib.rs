//! Reads energy counters and CPU time, and says where each figure comes from.
//!
//! [`open`] gives a [`Meter`] that reads the first usable [`Source`] and falls to the next when one fails,
//! with a [`Mark`] for every such event. [`scan`] reads the CPU time of the jobs on this node. [`Accounts`]
//! joins the two: each job's part of the node's joules. Every reader takes its root folder and the time as
//! arguments. This crate does not know a clock (except to time out a command), a wire or a policy, and of
//! Slurm only the names of its step processes and, in a child process, its own energy figure.

mod accounts;
mod background;
mod config;
mod counter;
mod error;
mod hwmon;
mod ipmi;
mod meter;
mod model;
mod orphans;
mod pm_counters;
mod procs;
mod rapl;
mod slurm;
pub mod slurm_energy;
mod source;
mod sysfs;

pub use accounts::{Accounts, JobEnergy, RETENTION_S};
pub use background::{Background, Feed, Latest};
pub use config::{Config, Model};
pub use error::Error;
pub use meter::{Mark, MarkKind, Meter, Sample, open};
pub use orphans::orphans;
pub use procs::{JobCpu, Processes, StepCpu, scan, tick_hz};
pub use source::{Load, Ready, Source, SourceKind};
