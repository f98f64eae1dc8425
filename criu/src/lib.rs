//! Runs a task tree in namespaces of its own, and dumps and restores it with CRIU, all as an ordinary user.
//!
//! [`supervisor`] is the process between the wrapper and the program. It makes the namespaces, and within them starts
//! [`init`], their first process: it starts the program or has CRIU restore it, passes its output on, and makes a dump
//! ([`dumping`]) when a [`client`] asks on its socket, or the driver of a job on the [`line`] to each task of a step.
//!
//! A checkpoint has more than CRIU's images: [`frozen`] saves the [`files`] that the program writes while it stands still,
//! in memory ([`staging`]) if there is enough, and puts the [`inputs`] back that it reads; [`flush`] brings all of it to disk afterwards. A restore that writes over
//! files of others copies them first; one that fails leaves [`marks`]. [`damage`] tells whether a killed CRIU has hurt the program. [`probe`]
//! tells whether all this works on a machine. What a program has on GPUs, and the relay of MPI ranks, it lets go for a dump
//! ([`release`](dumping::release)). The ranks of an MPI program over several nodes have a relay beside each sandbox
//! ([`world`]).
//!
//! This room knows no run, no policy and no Slurm.

pub mod client;
pub mod dumping;
pub mod fallback;
pub mod frozen;
pub mod init;
mod inputs;
pub mod line;
mod marks;
mod network;
pub mod probe;
pub mod relay;
pub mod sandbox;
pub mod supervisor;
pub mod task;
pub mod temporary;
pub mod tool;
pub mod world;

use std::time::Duration;

pub use protocol::EXIT_KILLED;

pub use protocol::NOT_RESTORED;

/// File in the folder of a checkpoint that could not be restored here and now: its files are as they were.
pub const NOT_NOW: &str = "not-now";

/// A time limit as a `Duration`, cut to what one can hold: 0 to a million seconds.
pub fn seconds(limit_s: f64) -> Duration {
    Duration::from_secs_f64(limit_s.clamp(0.0, 1e6))
}
