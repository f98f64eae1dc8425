//! Shows an unmodified MPI program one `MPI_COMM_WORLD` over several recovery groups, each a native MPI world.
//!
//! The library is preloaded and defines the functions of MPI (`MPI_*` and `PMPI_*`). What stays within a group goes
//! to the program's own MPI library, the *native* one; what goes to another group goes to the group's relay, through
//! a `mpi_relay::transport::Transport`. A communicator's handle is the native communicator of its members in this group, so
//! attributes, names, error handlers and Fortran numbers stay native. Without `JOULEPOINT_MPI_RANKS` every call is
//! native. Not here: how groups are started, what the relay logs, and when a checkpoint is made.
//!
//! Read in this order: `mpi_abi` (the native functions), [`border`] (how a function is exported), [`world`] (who is
//! where), [`communicator`], [`operation`] (one message under way), [`progress`], [`collective`].
// SPDX-License-Identifier: GPL-2.0-or-later

#![allow(non_snake_case, reason = "MPI's names are written as MPI writes them")]

#[cfg(feature = "mpich")]
use mpi_abi::of_mpich as abi;
#[cfg(not(any(feature = "mpich", feature = "standard")))]
use mpi_abi::of_openmpi as abi;
#[cfg(feature = "standard")]
use mpi_abi::of_standard as abi;
#[macro_use]
mod border;
mod collective;
mod communicator;
mod create;
mod datatype;
mod file;
pub mod functions;
mod group;
mod intercommunicator;
mod network;
mod operation;
mod outcome;
mod point_to_point;
mod probe;
mod progress;
mod refused;
mod request;
mod startup;
mod topology;
mod window;
mod world;
