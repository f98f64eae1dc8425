//! Logs what was refused, to whom and why, and what else users can cause, at a bounded rate: a flood of requests is no flood
//! of lines.

use crate::bucket::{Bucket, Rate};
use parking_lot::Mutex;

/// Lines in the long run, and at once.
const RATE: Rate = Rate { per_s: 5.0, burst: 100.0 };

/// What is left of it, and what was not logged for want of it.
#[derive(Debug)]
struct Allowance {
    lines: Bucket,
    unlogged: u64,
}

/// Lines of a log that users can cause, at a bounded rate.
#[derive(Debug)]
pub struct Lines(Mutex<Allowance>);

impl Default for Lines {
    fn default() -> Self {
        Lines::new()
    }
}

impl Lines {
    /// None was written yet.
    pub const fn new() -> Lines {
        Lines(parking_lot::const_mutex(Allowance::full()))
    }

    /// Whether a line may be written now, and how many were not since the last one.
    pub fn take(&self, now_s: f64) -> Option<u64> {
        self.0.lock().take(now_s)
    }
}

/// The log of refusals of one service.
#[derive(Debug, Default)]
pub struct Refusals(Lines);

/// What is known of a refused request.
#[derive(Debug)]
pub struct Refused<'a> {
    /// Who, if that is known.
    pub uid: Option<u32>,
    /// Address or `socket`.
    pub from: &'a str,
    /// Method and path, or what stood in their place.
    pub what: &'a str,
    /// HTTP status.
    pub status: u16,
    /// The reason.
    pub why: &'a str,
}

impl Refusals {
    /// Logs one, unless too many were logged lately; the next line says how many were left out.
    pub fn note(&self, now_s: f64, refused: &Refused) {
        let Some(unlogged) = self.0.take(now_s) else { return };
        // Texts of unauthenticated peers are written with their control characters escaped.
        let Refused { uid, from, what, status, why } = refused;
        tracing::warn!(uid, from, ?what, status, ?why, unlogged, "a request is refused");
    }
}

impl Allowance {
    const fn full() -> Allowance {
        Allowance { lines: Bucket::full(RATE), unlogged: 0 }
    }

    /// Whether a line may be written now, and how many were not since the last one.
    fn take(&mut self, now_s: f64) -> Option<u64> {
        if self.lines.take(now_s, RATE, 1.0) {
            return Some(std::mem::take(&mut self.unlogged));
        }
        self.unlogged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_not_written() {
        let lines = Lines::new();
        let written = (0..1000).filter(|_| lines.take(1.0).is_some()).count();
        assert_eq!(written, 100);
        assert_eq!(lines.take(1.1), None);
        assert_eq!(lines.take(1.3), Some(901), "the next line tells of those left out");
        assert_eq!(lines.take(1e9), Some(0));
    }
}
