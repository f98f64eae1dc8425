//! The wall clock.

use std::time::UNIX_EPOCH;

/// Seconds since the Unix epoch.
pub fn now_s() -> f64 {
    UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64())
}
