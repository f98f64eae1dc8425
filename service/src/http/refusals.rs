//! Logs what was refused, to whom and why, at a bounded rate, so that a flood of requests is no flood of lines.

use parking_lot::Mutex;

/// Lines that may come at once.
const BURST: f64 = 100.0;

/// Lines a second in the long run.
const PER_S: f64 = 5.0;

/// The rate so far.
#[derive(Debug)]
struct Allowance {
    left: f64,
    at_s: f64,
    unlogged: u64,
}

/// The log of refusals of one service.
#[derive(Debug)]
pub struct Refusals(Mutex<Allowance>);

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

impl Default for Refusals {
    fn default() -> Self {
        Refusals(Mutex::new(Allowance { left: BURST, at_s: 0.0, unlogged: 0 }))
    }
}

impl Refusals {
    /// Logs one, unless too many were logged lately; the next line says how many were left out.
    pub fn note(&self, now_s: f64, refused: &Refused) {
        let Some(unlogged) = self.0.lock().take(now_s) else { return };
        // Texts of strangers are written with their control characters escaped.
        let Refused { uid, from, what, status, why } = refused;
        tracing::warn!(uid, from, ?what, status, ?why, unlogged, "a request is refused");
    }
}

impl Allowance {
    /// Whether a line may be written now, and how many were not since the last one.
    fn take(&mut self, now_s: f64) -> Option<u64> {
        self.left = (self.left + (now_s - self.at_s).max(0.0) * PER_S).min(BURST);
        self.at_s = now_s;
        if self.left < 1.0 {
            self.unlogged += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_not_written() {
        let mut allowance = Allowance { left: BURST, at_s: 0.0, unlogged: 0 };
        let written = (0..1000).filter(|_| allowance.take(1.0).is_some()).count();
        assert_eq!(written, 100);
        assert_eq!(allowance.take(1.1), None);
        assert_eq!(allowance.take(1.3), Some(901), "the next line tells of those left out");
        assert_eq!(allowance.take(1e9), Some(0));
    }
}
