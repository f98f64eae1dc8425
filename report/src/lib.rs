//! Shows what runs cost: as a list, as sums, as the account of one run, and as a page for a browser.
//!
//! Nothing here asks anybody but Slurm's accounting ([`accounted`]): the runs and loans are given.

pub mod accounted;
pub mod accuracy;
pub mod columns;
mod cost;
pub mod describe;
pub mod moment;
pub mod page;
pub mod sheet;
pub mod sums;
pub mod words;
