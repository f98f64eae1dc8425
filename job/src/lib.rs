//! What the driver of a run knows of its job, and its ways to those who know more: Slurm, the controller, the services of its
//! nodes, and the run's folder.

pub mod asking;
pub mod changed;
pub mod cluster;
pub mod deliver;
pub mod frequency;
pub mod identity;
pub mod leavings;
pub mod lend;
pub mod nodes;
pub mod release;
pub mod run_folder;
pub mod writers;
