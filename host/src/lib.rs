//! What the rooms inside a job have in common: the driver's queue and clock, the processes and programs of
//! this host, and output on its way.

pub mod linked;
pub mod mail;
pub mod parallel;
pub mod passing;
pub mod processes;
pub mod shell;
pub mod supervise;
pub mod tool;
pub mod unsuited;
