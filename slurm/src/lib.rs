//! Slurm's commands as typed calls: jobs, nodes, steps and accounting, in forms that no user's text can forge.
//!
//! It runs `squeue`, `scontrol` and `sacct`; it never links libslurm, whose `fatal` would end our daemon and whose
//! structs change with every series (docs/decisions/slurm-commands.md). Every parser is a pure function of text; only
//! [`Slurm`] starts processes, and each of them is killed when it takes too long.

mod accounting;
mod acts;
mod budget;
mod command;
mod error;
#[cfg(any(test, feature = "examples"))]
pub mod example;
mod fields;
mod gpus;
mod job;
mod node;
mod nodelist;
mod partition;
mod per_node;
mod queue;
mod reservation;
mod run;
mod step;

pub use accounting::{
    Accounted, Consumed, NodeEvent, NodeHistory, OfJob, parse_accounting, parse_consumed, parse_events,
    parse_named_step, parse_operators,
};
pub use budget::{Urgency, Usage};
pub use command::Slurm;
pub use error::Error;
#[cfg(any(test, feature = "examples"))]
pub use example::parse_job;
pub use gpus::{parse_gpus, parse_gpus_json};
pub use job::{Exit, Job, JobName, JobState, Jobs, parse_jobs};
pub use node::{Node, parse_node, parse_nodes};
pub use nodelist::{compress_nodelist, expand_nodelist};
pub use partition::{Partition, parse_partitions};
pub use queue::{Holder, JobText};
pub use reservation::{Expansion, Reservation, Window, backfill_s, parse_reservations, resizing};
pub use step::{Step, parse_steps};
