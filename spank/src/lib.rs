//! Lends Slurm's plugin handle safely, and lets nothing escape a hook.
//!
//! A plugin built on this room links to nothing of Slurm. Every function of `spank.h` is looked up in the
//! process that loaded the plugin (`srun`, `sbatch`, `slurmd`, `slurmstepd`); one that is missing there is an
//! [`Error`], never an undefined symbol. So one binary serves all series whose surface `slurm-sys` compares,
//! and the code can be tested outside Slurm.
//!
//! Not here: any option, policy or word of Joulepoint.
// SPDX-License-Identifier: GPL-2.0-or-later

mod error;
mod guard;
mod handle;
mod host;
mod log;
mod option;
mod version;

pub use error::{Error, Result};
pub use guard::{OnError, argument, arguments, guard, hook};
pub use handle::{Context, Handle, Step};
pub use log::{Level, log};
pub use option::{Callback, OptionSpec, Value, register};
pub use version::plugin_version;

/// C's view of a plugin, for the entries that a plugin exports.
pub mod raw {
    pub use slurm_sys::v22_05::spank_t;
    /// What `slurm_spank_init_failure_mode` should say (Slurm 25.05 on): a failing plugin costs the job, not the node.
    pub const JOB_FAILURE: std::os::raw::c_int = slurm_sys::v26_05::ESPANK_JOB_FAILURE as std::os::raw::c_int;
}
