//! Measures what operations cost on this cluster, and fits it.
//!
//! [`campaign`] finds the node types by an [`inquiry`] and submits jobs; inside a job [`conduct`] starts steps, in each of which
//! [`worker`] (or the site's MPI, [`mpi`]) measures [`orders`] and appends what it finds to [`state`];
//! [`document`] makes a [`protocol::Calibration`] of it. Estimates are not made here, but in `planner`.

mod asked;
pub mod campaign;
pub mod conduct;
pub mod differences;
pub mod document;
mod duration;
pub mod inquiry;
mod meter;
mod mpi;
mod node_types;
pub mod operations;
pub mod orders;
pub mod plot;
pub mod state;
mod stop;
mod together;
pub mod wish;
mod worker;
