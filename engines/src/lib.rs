//! What makes checkpoints and brings programs back from them, each behind `driver::ports::Engine`: [`choice`] says which one a
//! run gets, and [`equip`] makes it.

pub mod app;
mod beside;
pub mod choice;
pub mod criu;
pub mod criu_steps;
pub mod dmtcp;
pub mod equip;
pub mod hook;
pub mod looks;
pub mod repeated;
pub mod scr;
pub mod veloc;
pub mod wardens;
