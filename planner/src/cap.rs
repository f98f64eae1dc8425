//! How long an interval may be, whatever is expected of the nodes: nodes that hardly ever fail are no reason to lose a
//! day's work when one does.

use options::Settings;
use policy::interval::Bounds;

/// A job of this walltime or less has no cap, s.
const SHORT_S: f64 = 600.0;

/// Part of the walltime after which there is a checkpoint at the latest.
const PART: f64 = 0.25;

/// What the site lets a run have that names nothing, s; `longest_s` is its key, 0 for any.
pub fn of_walltime(walltime_s: Option<f64>, longest_s: f64) -> Option<f64> {
    match walltime_s {
        _ if longest_s <= 0.0 => None,
        Some(walltime_s) if walltime_s <= SHORT_S => None,
        Some(walltime_s) => Some(longest_s.min(PART * walltime_s)),
        None => Some(longest_s),
    }
}

/// The bounds on the interval of a run that the site lets have `longest_s` at most.
pub fn bounds(settings: &Settings, longest_s: Option<f64>) -> Bounds {
    Bounds {
        runtime: settings.bounds.runtime,
        io: settings.bounds.io,
        energy: settings.bounds.energy,
        loss_s: settings.max_loss.map(|loss| loss.as_secs_f64()),
        longest_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_has_a_checkpoint_every_hour_or_four_in_its_walltime() {
        for (walltime_s, longest_s, cap_s) in [
            (Some(600.0), 3600.0, None),
            (Some(1200.0), 3600.0, Some(300.0)),
            (Some(86400.0), 3600.0, Some(3600.0)),
            (None, 3600.0, Some(3600.0)),
            (Some(86400.0), 0.0, None),
        ] {
            assert_eq!(of_walltime(walltime_s, longest_s), cap_s, "{walltime_s:?} {longest_s}");
        }
    }
}
