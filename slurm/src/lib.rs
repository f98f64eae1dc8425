//! Slurm's commands as typed calls: jobs, nodes, steps and accounting, read from the commands' text forms.
//!
//! It runs `scontrol`, `squeue`'s siblings and `sacct`; it never links libslurm, whose `fatal` would end our
//! daemon and whose structs change with every series (docs/decisions/slurm-commands.md). Every parser is a pure
//! function of text; only [`Slurm`] starts processes, and each of them is killed when it takes too long.

mod accounting;
mod command;
mod error;
mod fields;
mod gpus;
mod job;
mod node;
mod nodelist;
mod partition;
mod reservation;
mod step;

pub use accounting::{
    Accounted, NodeEvent, NodeHistory, parse_accounting, parse_events, parse_named_step, parse_operators,
};
pub use command::{JobOn, Slurm};
pub use error::Error;
pub use job::{Exit, Job, JobState, parse_gpus, parse_job, parse_jobs};
pub use node::{Node, parse_node, parse_nodes};
pub use nodelist::{compress_nodelist, expand_nodelist};
pub use partition::{Partition, parse_partitions};
pub use reservation::{Expansion, Reservation, WRITTEN_S, Window, backfill_s, parse_reservations, resizing};
pub use step::{Step, parse_steps};
