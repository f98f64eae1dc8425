//! Says what a node is made of, and sets the frequency of its CPUs for a while.

pub mod cpufreq;
pub mod facts;
