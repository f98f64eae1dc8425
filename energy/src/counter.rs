//! Turns what hardware gives, counters that wrap and watts that vary, into joules that only rise.

use crate::Error;

/// A counter in microjoules that may wrap at a known or unknown range.
#[derive(Debug)]
pub(crate) struct Counter {
    what: String,
    range_uj: Option<u64>,
    last_uj: u64,
    last_s: Option<f64>,
    rate_w: Option<f64>,
    guessed_last: bool,
    bridges: bool,
    limit_w: f64,
}

/// What one reading of a counter added.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    /// The joules added.
    pub joules: f64,
    /// What is to be said about them.
    pub note: Option<String>,
}

impl Counter {
    /// Starts at `raw_uj`; the range is where the counter wraps, if that could be read.
    pub(crate) fn new(what: impl Into<String>, raw_uj: u64, range_uj: Option<u64>, limit_w: f64) -> Counter {
        Counter {
            what: what.into(),
            range_uj: range_uj.filter(|r| *r > 0),
            last_uj: raw_uj,
            last_s: None,
            rate_w: None,
            guessed_last: false,
            bridges: true,
            limit_w,
        }
    }

    /// A counter that never wraps in the life of a machine, so that any fall is an error.
    pub(crate) fn absolute(what: impl Into<String>, raw_uj: u64, limit_w: f64) -> Counter {
        Counter { bridges: false, ..Counter::new(what, raw_uj, None, limit_w) }
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Takes the value read at `now_s`.
    ///
    /// A fall is a wrap if the range explains it. With no range it is bridged at the power of the interval
    /// before, once; a second fall in a row, or one with nothing before it, is an error.
    pub(crate) fn advance(&mut self, now_s: f64, raw_uj: u64) -> Result<Step, Error> {
        let dt_s = self.last_s.map(|s| (now_s - s).max(0.0));
        let mut note = None;
        let joules = match raw_uj.checked_sub(self.last_uj) {
            Some(delta_uj) => {
                self.guessed_last = false;
                delta_uj as f64 / 1e6
            }
            None => match self.range_uj {
                Some(range_uj) if self.last_uj <= range_uj => {
                    let joules = (range_uj - self.last_uj) as f64 / 1e6 + raw_uj as f64 / 1e6;
                    if dt_s.is_some_and(|dt_s| joules > limit_j(self.limit_w, dt_s)) {
                        return Err(self.backwards(raw_uj));
                    }
                    joules
                }
                Some(_) => return Err(self.backwards(raw_uj)),
                None => match (self.rate_w, dt_s) {
                    (Some(rate_w), Some(dt_s)) if self.bridges && !self.guessed_last => {
                        self.guessed_last = true;
                        note = Some(format!(
                            "{}: fell from {} to {raw_uj} uJ and its range is unknown; took {rate_w:.1} W, as before, for {dt_s:.3} s",
                            self.what, self.last_uj
                        ));
                        rate_w * dt_s
                    }
                    _ => return Err(self.backwards(raw_uj)),
                },
            },
        };
        if let Some(dt_s) = dt_s {
            if joules > limit_j(self.limit_w, dt_s) {
                return Err(Error::Jump { what: self.what.clone(), delta_j: joules, dt_s, limit_w: self.limit_w });
            }
            if let Some(range_uj) = self.range_uj {
                // Above this power the counter could have gone round once more, unseen.
                let ambiguous_w = range_uj as f64 / 1e6 / dt_s.max(1e-3);
                if note.is_none() && ambiguous_w < AMBIGUOUS_W {
                    note = Some(format!(
                        "{}: not read for {dt_s:.0} s; above {ambiguous_w:.0} W it may have wrapped unseen",
                        self.what
                    ));
                }
            }
            if dt_s > 0.0 && note.is_none() {
                self.rate_w = Some(joules / dt_s);
            }
        }
        self.last_uj = raw_uj;
        self.last_s = Some(now_s);
        Ok(Step { joules, note })
    }

    fn backwards(&self, raw_uj: u64) -> Error {
        Error::Backwards { what: self.what.clone(), from: self.last_uj, to: raw_uj }
    }
}

/// One socket may draw so much; below it a wrap per interval is told apart from two.
const AMBIGUOUS_W: f64 = 1500.0;

/// The joules that are believed of `dt_s`; never less than one second's, since counters move in bursts.
pub(crate) fn limit_j(limit_w: f64, dt_s: f64) -> f64 {
    limit_w * dt_s.max(1.0)
}

/// Watts read now and then, integrated by trapezoids.
#[derive(Debug, Default)]
pub(crate) struct Integral {
    last: Option<(f64, f64)>,
    joules: f64,
}

impl Integral {
    /// The joules so far.
    pub(crate) fn joules(&self) -> f64 {
        self.joules
    }

    /// Takes the power at `now_s`, gives the joules since the first reading.
    pub(crate) fn advance(&mut self, now_s: f64, watts: f64) -> f64 {
        if let Some((last_s, last_w)) = self.last {
            self.joules += (now_s - last_s).max(0.0) * (last_w + watts) / 2.0;
        }
        self.last = Some((now_s, watts));
        self.joules
    }
}

/// A sum that should only rise, but that may dip for a moment or lose a part for good.
///
/// Processes are read one after another, so a child reaped in between is missing once; then the sum returns
/// and must not be counted again. A dip that stays is a real loss (a parent that ignores its children's end),
/// and what is added afterwards counts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Monotone {
    high: f64,
    offset: f64,
    dipped_to: Option<f64>,
}

impl Monotone {
    /// Takes the sum as read, gives the sum as it can only have been.
    pub(crate) fn advance(&mut self, raw: f64) -> f64 {
        let value = raw + self.offset;
        if value >= self.high {
            self.high = value;
            self.dipped_to = None;
        } else if let Some(first) = self.dipped_to.take() {
            self.offset += self.high - first.min(value);
            self.high = self.high.max(raw + self.offset);
        } else {
            self.dipped_to = Some(value);
        }
        self.high
    }

    /// The sum so far.
    pub(crate) fn value(&self) -> f64 {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_W: f64 = 1000.0;

    #[test]
    fn wraps_are_counted_by_the_range() {
        let mut c = Counter::new("package-0", 262_143_300_000, Some(262_143_328_850), LIMIT_W);
        assert_eq!(c.advance(0.0, 262_143_320_000).unwrap().joules, 0.02);
        let step = c.advance(1.0, 99_991_150).unwrap();
        assert!((step.joules - 100.0).abs() < 1e-9, "{step:?}");
        assert_eq!(step.note, None);
    }

    #[test]
    fn a_reset_is_not_taken_for_a_wrap() {
        let mut c = Counter::new("package-0", 50_000_000_000, Some(262_143_328_850), LIMIT_W);
        c.advance(0.0, 50_100_000_000).unwrap();
        assert!(matches!(c.advance(1.0, 5).unwrap_err(), Error::Backwards { from: 50_100_000_000, to: 5, .. }));
    }

    #[test]
    fn a_value_above_its_range_is_an_error() {
        let mut c = Counter::new("package-0", 500, Some(100), LIMIT_W);
        assert!(c.advance(0.0, 3).is_err());
    }

    #[test]
    fn without_a_range_a_fall_is_bridged_once_and_noted() {
        let mut c = Counter::new("package-0", 1_000_000, None, LIMIT_W);
        c.advance(0.0, 1_000_000).unwrap();
        c.advance(1.0, 81_000_000).unwrap();
        let step = c.advance(2.0, 7).unwrap();
        assert_eq!(step.joules, 80.0);
        assert!(step.note.unwrap().contains("range is unknown"));
        assert!(c.advance(3.0, 3).is_err(), "two falls in a row are no wraps");
    }

    #[test]
    fn a_zero_range_is_an_unknown_range() {
        let mut c = Counter::new("package-0", 10, Some(0), LIMIT_W);
        assert!(c.advance(0.0, 3).is_err());
    }

    #[test]
    fn a_counter_that_does_not_wrap_is_never_bridged() {
        let mut c = Counter::absolute("GPU 0", 0, LIMIT_W);
        c.advance(0.0, 0).unwrap();
        c.advance(1.0, 80_000_000).unwrap();
        assert!(matches!(c.advance(2.0, 7), Err(Error::Backwards { .. })));
    }

    #[test]
    fn a_jump_is_refused() {
        let mut c = Counter::new("package-0", 0, None, LIMIT_W);
        c.advance(0.0, 0).unwrap();
        assert!(matches!(c.advance(1.0, 2_000_000_000).unwrap_err(), Error::Jump { .. }));
    }

    #[test]
    fn a_long_silence_is_noted() {
        let mut c = Counter::new("package-0", 0, Some(262_143_328_850), LIMIT_W);
        c.advance(0.0, 0).unwrap();
        assert!(c.advance(3600.0, 5_000_000).unwrap().note.unwrap().contains("wrapped unseen"));
    }

    #[test]
    fn watts_integrate_by_trapezoids() {
        let mut i = Integral::default();
        assert_eq!(i.advance(10.0, 100.0), 0.0);
        assert_eq!(i.advance(12.0, 200.0), 300.0);
        assert_eq!(i.advance(11.0, 200.0), 300.0, "time that runs back adds nothing");
    }

    #[test]
    fn a_dip_that_returns_is_not_counted_twice() {
        let mut m = Monotone::default();
        assert_eq!([10.0, 6.0, 11.0].map(|x| m.advance(x)), [10.0, 10.0, 11.0]);
    }

    #[test]
    fn a_dip_that_stays_goes_on_from_there() {
        let mut m = Monotone::default();
        assert_eq!([10.0, 6.0, 7.0, 9.0].map(|x| m.advance(x)), [10.0, 10.0, 11.0, 13.0]);
    }
}
