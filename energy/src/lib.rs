//! Reads energy counters and CPU time, and says where each figure comes from.
//!
//! [`open`] gives a [`Meter`] that reads the first usable [`Source`], adds the GPUs where that one is without
//! them, and falls to the next when one fails, with a [`Mark`] for every such event. [`scan`] reads the CPU time of the jobs on this node. [`Accounts`]
//! joins the two: each job's part of the node's joules. Every reader takes its root folder and the time as
//! arguments. This crate does not know a clock (except to time out a command), a wire or a policy, and of
//! Slurm only the names of its step processes and, in a child process, its own energy figure.

mod accounts;
mod background;
mod cgroups;
mod config;
mod counter;
mod error;
mod feed;
mod gpus;
mod hwmon;
mod ipmi;
mod ladder;
mod ledger;
mod mark;
mod meter;
mod model;
mod nvml;
mod orphans;
mod pm_counters;
mod process;
mod procs;
mod rapl;
mod scanner;
mod slurm;
pub mod slurm_energy;
mod source;
mod split;
mod sysfs;

pub use accounts::{Accounts, RETENTION_S};
pub use background::Background;
pub use config::{Config, Model};
pub use error::Error;
pub use feed::{Feed, Latest};
pub use gpus::Gpus;
pub use ledger::JobEnergy;
pub use mark::{Mark, MarkKind};
pub use meter::{Meter, Sample, open};
pub use orphans::orphans;
pub use process::environ::{Environ, environ};
pub use procs::{JobCpu, Processes, StepCpu, scan, tick_hz};
pub use scanner::Scanner;
pub use source::{BySource, Coverage, Load, Ready, Source, SourceKind};
