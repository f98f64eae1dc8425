//! Runs a task tree in namespaces of its own, and dumps and restores it with CRIU, all as an ordinary user.
//!
//! [`warden`] is a process between the wrapper and the program. It makes the namespaces, and within them an [`init`]:
//! their first process, which starts the program or has CRIU restore it, carries its output on, and makes a dump when
//! a [`client`] asks on its socket, or the driver of a job on the [`line`] to each task of its step ([`dumping`]; what a killed CRIU leaves is judged by [`harm`]). What
//! belongs to a checkpoint beside CRIU's images ([`files`] that the program writes, ...) is saved by [`frozen`] while it stands still, in memory
//! ([`stage`]) if there is enough, and brought to disk after ([`settle`]); a restore that writes over what others may have written sets it [`aside`]. [`probe`] tells whether all this works on a
//! machine. This room knows no run, no policy
//! and no Slurm.

pub mod aside;
pub mod client;
pub mod dumping;
pub mod files;
pub mod frozen;
pub mod harm;
pub mod init;
pub mod leftovers;
pub mod limits;
pub mod line;
pub mod patiently;
pub mod peers;
pub mod probe;
pub mod relay;
pub mod sandbox;
pub mod settle;
pub mod stage;
pub mod strangers;
pub mod task;
pub mod temporary;
pub mod tool;
pub mod warden;

use std::time::Duration;

pub use protocol::EXIT_KILLED;

pub use protocol::NOT_RESTORED;

/// A limit that a clock can hold.
pub fn seconds(limit_s: f64) -> Duration {
    Duration::from_secs_f64(limit_s.clamp(0.0, 1e6))
}
