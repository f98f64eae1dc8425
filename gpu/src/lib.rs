//! Takes NVIDIA GPUs from a program for a dump, and gives them back.
//!
//! NVIDIA's driver can copy all that a process has on its GPUs into the memory of that process, which then holds no
//! device any more, and back (CUDA driver API, "CUDA Checkpointing"; driver 570 and later). [`suspend`] does the first and
//! [`resume`] the second, for the one process of a tree that uses GPUs. Both ask a process of its own ([`isolated`]): a
//! driver that hangs or crashes must not take the caller with it. [`driver`] declares the library, [`owner`] finds the
//! process, and [`suspension`] knows in which order all is done, and whether a failure has harmed the program.
//!
//! This room knows no checkpoint, no sandbox and no job.

pub mod driver;
pub mod isolated;
mod memory;
pub mod owner;
pub mod suspension;

pub use isolated::{Patience, resume, suspend};
pub use suspension::{Error, Suspended};
