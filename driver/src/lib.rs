//! Owns the state of a run: when to make a checkpoint, what a failure means, and how the run goes on.
//!
//! [`coordinated`] follows a job script that goes back as a whole, [`groups`] one whose groups go back alone. Each is one
//! thread that knows the world only through its ports ([`ports`], [`groups::ports`]), so that the seeded simulations in
//! `tests/` drive the very same code through thousands of failure histories.

pub mod adapt;
pub mod coordinated;
pub mod groups;
pub mod ledger;
pub mod orders;
pub mod ports;
mod repeated;
pub mod setup;

pub use repeated::Repeated;
