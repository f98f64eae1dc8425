//! Watches over nodes and runs: takes in heartbeats, asks Slurm about our own jobs, and does what the watch says.
//!
//! What to conclude is the room `watch`'s; this room looks, keeps what must outlive the service, and acts. Everything is
//! counted on the monotonic clock; only what is stored is told by the wall.

mod acts;
mod begin;
mod books;
mod flexible;
mod looks;
mod marks;
mod off;
mod power;
mod rounds;
mod state;

pub(crate) use acts::Acts;
pub(crate) use begin::begin;
pub(crate) use books::Books;
pub(crate) use flexible::Flexible;
pub(crate) use looks::Looks;
pub(crate) use off::off;
pub(crate) use rounds::Watcher;
pub(crate) use state::{Attending, Watching};
