//! Runs inside the job: what the driver of a run needs of the world, in its real form.
//!
//! The room `driver` owns the run's state and knows the world only through its ports; the modules here are the real forms
//! of those ports, and [`launch`] puts them together.

pub mod able;
pub mod app;
pub mod asking;
pub mod calls;
mod cancelled;
pub mod clean;
pub mod criu;
pub mod criu_steps;
pub mod deliver;
pub mod dmtcp;
mod drive;
pub mod engines;
pub mod equip;
mod former;
pub mod frequency;
pub mod groups;
pub mod hook;
pub mod identity;
mod inputs;
pub mod job;
pub mod late;
pub mod launch;
pub mod leavings;
pub mod lend;
pub mod linked;
pub mod looks;
pub mod mail;
pub mod mpi;
pub mod nodes;
mod parallel;
mod passing;
mod planned;
pub mod processes;
pub mod ranks;
pub mod redirects;
pub mod release;
pub mod repeated;
pub mod resized;
pub mod run_folder;
pub mod sandboxes;
pub mod scr;
pub mod script;
mod shell;
mod slurmd;
pub mod srun;
pub mod streams;
pub mod supervise;
pub mod tool;
pub mod unsuited;

pub mod wardens;
pub mod writers;
