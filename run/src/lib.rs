//! The folder of a run: plan, journal, checkpoints, and the fencing token of its holder.
//!
//! A run has one holder at a time: the driver that took it up last ([`take_up`]). It writes a journal of its own, and its
//! checkpoints have numbers of their own. Whoever writes shows the token first ([`Holder::show`]). What a holder that was
//! stopped between that look and its write does afterwards is harmless: its records come after the seal of the next one,
//! its half-made checkpoints are gone from their place, and those that it completes are not used, since they name a holder
//! to whom their number does not belong ([`owners`]).

pub mod attributes;
pub mod checkpoint;
pub mod checkpoints;
pub mod clean;
mod cluster;
pub mod copy;
pub mod earlier;
pub mod error;
pub mod history;
pub mod holder;
pub mod journal;
pub mod line;
pub mod owners;
pub mod patience;
pub mod placements;
pub mod pulse;
pub mod restore;
pub mod seal;
pub mod storage;
mod stream;
mod take_up;
pub mod worker;

pub use checkpoints::Checkpoints;
pub use cluster::Cluster;
pub use copy::{Looks, survey, survey_new, take, take_new, take_seen};
pub use earlier::Earlier;
pub use error::{Error, Result};
pub use history::History;
pub use holder::Holder;
pub use patience::Patience;
pub use placements::Placements;
pub use restore::{bring_back, newer};
pub use storage::write_durably;
pub use stream::digest;
pub use take_up::{TakenUp, take_up};
pub use worker::Worker;
