//! The calls of MPI's launchers: what their words mean, and where they would put their ranks.

mod hydra;
mod map;
mod words;

use crate::kinds::Family;
pub use map::{Placed, Unplaced, in_order};
use std::path::Path;
use std::process::Command;
pub use words::{Call, Unread};

/// Reads the words of a call of a launcher in this environment.
///
/// # Errors
/// Why they are not understood.
pub fn read(family: Family, words: &[String]) -> Result<Call, Unread> {
    match family {
        Family::Orte => words::orte(words),
        Family::Prrte => words::prrte(words),
        Family::Hydra | Family::IntelHydra => {
            hydra::words(words, std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
        }
    }
}

/// Where a launcher puts the ranks of a call, which has the environment of `real`: it says it, and starts none.
///
/// # Errors
/// Why it does not.
pub fn asked(family: Family, launcher: &Path, real: &Command, call: &Call) -> Result<Placed, Unplaced> {
    let program = call.program.first().map_or("", String::as_str);
    match family {
        Family::Orte => map::asked(real, call, &["--do-not-launch", "--display-map"]),
        Family::Prrte => map::asked(real, call, &["--rtos", "donotlaunch", "--display", "map"]),
        Family::Hydra => hydra::asked(launcher, real, &call.options, program),
        Family::IntelHydra => hydra::asked_intel(launcher, real, &call.options, program),
    }
}
