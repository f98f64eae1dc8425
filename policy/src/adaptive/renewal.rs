//! The failure rate where each failure begins anew: Weibull gaps of a known shape and an unknown scale.
//!
//! To the power of the shape, a Weibull gap is exponential: its rate has a gamma prior, which the gaps update in closed
//! form (Soland, *Bayesian analysis of the Weibull process with unknown scale parameter*, IEEE Trans. Reliability 17(2),
//! 1968). With n the failures, prior included, and b the sum of the powers, nothing fails until t with the probability
//! (b / (b + t^k))^n: a silence counts once.

use super::SHORTEST_S;

/// Gaps of one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    shape: f64,
    /// Failures, prior included.
    failures: f64,
    /// Sum of the gaps to the power of the shape, in units of the prior's mean gap.
    sum: f64,
    unit_s: f64,
}

impl Renewal {
    /// Gaps without memory, whose mean is as if `weight` of them had shown it.
    pub(super) fn steady(mean_s: f64, weight: f64) -> Renewal {
        Renewal { shape: 1.0, failures: weight, sum: weight, unit_s: mean_s }
    }

    /// Gaps of a shape above 1, of which nothing is known: a mean that is ten times too long would count as much as
    /// ten to the power of the shape of gaps. Of the unit nothing depends.
    pub(super) fn unknown(shape: f64, unit_s: f64) -> Renewal {
        Renewal { shape, failures: 0.0, sum: 0.0, unit_s }
    }

    /// Whether a gap has told the scale.
    pub(super) fn is_known(&self) -> bool {
        self.failures > 0.0
    }

    fn power(&self, age_s: f64) -> f64 {
        let age = age_s / self.unit_s;
        if self.shape == 1.0 { age } else { age.powf(self.shape) }
    }

    /// Takes note of failures within a time that was watched; for gaps without memory.
    pub(super) fn watch(&mut self, watched_s: f64, failures: f64) {
        self.sum += self.power(watched_s);
        self.failures += failures;
    }

    /// Takes note of a gap.
    pub(super) fn observe(&mut self, gap_s: f64) {
        self.sum += self.power(gap_s);
        self.failures += 1.0;
    }

    /// Goes over to a `share` of what was watched, on which that share of the failures falls; for gaps without memory.
    pub(super) fn thin(&mut self, share: f64) {
        self.sum /= share;
    }

    /// The inverse of the hazard at that age.
    pub(super) fn mean_s(&self, age_s: f64) -> f64 {
        if self.shape == 1.0 {
            return (self.unit_s * self.sum + age_s) / self.failures;
        }
        let age_s = age_s.max(SHORTEST_S);
        let power = self.power(age_s);
        age_s * (self.sum + power) / (self.failures * self.shape * power)
    }

    /// Logarithm of the probability that nothing fails until that age.
    pub(super) fn ln_survival(&self, age_s: f64) -> f64 {
        -self.failures * (self.power(age_s) / self.sum).ln_1p()
    }
}
