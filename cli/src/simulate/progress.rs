//! Shows how far a long simulation has come.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on the standard error, if that is a terminal and nobody asked for quiet.
pub fn bar(steps: usize, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let form = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {pos} of {len} replays, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
    match form {
        Ok(form) => bar.with_style(form),
        Err(_) => bar,
    }
}
