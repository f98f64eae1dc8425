//! Who is where: ranks in recovery groups, in groups of processes, in grids and graphs.
//!
//! A world rank is a `u32`, a rank of a communicator what MPI has for it, an `i32`. This room calls nothing of MPI.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod graph;
pub mod grid;
pub mod place;
pub mod sets;
pub mod slots;
pub mod topology;

pub use place::Place;
pub use slots::Slots;
pub use topology::{Neighbours, Topology};
