//! Shows an unmodified MPI program one `MPI_COMM_WORLD` over several recovery groups, each a native MPI world.
//!
//! The library is preloaded and defines the functions of MPI (`MPI_*` and `PMPI_*`). What stays within a group goes
//! to the program's own MPI library, the *native* one; what goes to another group goes to the group's relay, through
//! a [`transport::Transport`]. A communicator's handle is the native communicator of its members in this group, so
//! attributes, names, error handlers and Fortran numbers stay native. Without `JOULEPOINT_MPI_RANKS` every call is
//! native. Not here: how groups are started, what the relay logs, and when a checkpoint is made.
//!
//! Read in this order: [`abi`] (the native functions), [`border`] (how a function is exported), [`world`] (who is
//! where), [`communicator`], [`operation`] (one message under way), [`progress`], [`collective`].
// SPDX-License-Identifier: GPL-2.0-or-later

#![allow(non_snake_case, reason = "MPI's names are written as MPI writes them")]

pub mod abi;
#[macro_use]
pub mod border;
pub mod collective;
pub mod communicator;
pub mod create;
pub mod datatype;
pub mod file;
pub mod functions;
pub mod group;
pub mod intercommunicator;
pub mod operation;
pub mod outcome;
pub mod point_to_point;
pub mod probe;
pub mod progress;
pub mod refused;
pub mod request;
pub mod slots;
pub mod startup;
pub mod topology;
pub mod transport;
pub mod world;
