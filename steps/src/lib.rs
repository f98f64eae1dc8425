//! Runs a script and its steps: the stand-in for `srun`, the record of its calls, their output and their sandboxes.

pub mod calls;
pub mod cancelled;
mod doubts;
mod fallback;
pub mod gathered;
pub mod groups;
mod inputs;
pub mod late;
pub mod mpi;
pub mod mpirun;
pub mod redirects;
pub mod resized;
pub mod sandboxes;
pub mod script;
pub mod slurmd;
pub mod srun;
pub mod streams;
pub mod wishes;
