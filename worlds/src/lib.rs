//! Starts MPI programs that are one world over several groups: the ranks of each group, and the relays between them.

pub mod arguments;
pub mod calls;
mod gathering;
pub mod kinds;
mod launch;
pub mod launchers;
pub mod rank;
pub mod ranks;
pub mod relays;
mod silence;
