//! What the suites share: private clusters with Joulepoint, and what is done to them.

pub mod chaos;
pub mod chroot;
pub mod hosts;
pub mod lending;
pub mod partitions;
pub mod programs;
pub mod real;
pub mod transparent;

pub use site::{Fetched, Site, Wanted, built, fetch, page, repository};
