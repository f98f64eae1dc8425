//! One-sided communication as messages: what ranks say to each other of a window, and when a rank may carry it out.
//!
//! A rank that puts, gets or accumulates sends a [`letter`] to the rank whose memory it means, the *target*, which does it in
//! its own memory as it takes messages in. [`target`] says which letters have to wait, [`lock`] who holds the window's lock,
//! and [`run`] which bytes are meant. This room knows no MPI and touches no memory of the program's.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod letter;
pub mod lock;
pub mod origin;
pub mod run;
pub mod target;

pub use letter::{Letter, Word};
pub use origin::Origin;
pub use run::Run;
pub use target::{Stage, Target};
