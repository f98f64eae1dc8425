//! Starts MPI programs that are one world over several groups: the ranks of each group, and the relays between them.

pub mod calls;
mod gathering;
pub mod kinds;
pub mod ranks;
pub mod relays;
mod silence;
