//! Places checkpoints by the hazard that recent gaps and the time since the last failure imply: the policy `auto`.
//!
//! It joins three published ideas. The failure rate drifts and bursts, so the expected gap is a geometric moving
//! average of past gaps at a fast and a slow rate (ElSayed14's EMA, on logarithms: one long gap does not swamp it).
//! Within a gap the hazard falls, as a Weibull distribution of shape below one has it (ElSayed14's Hazard). And a
//! hazard h(t) is best met by checkpoints with density sqrt(h(t) / 2C), not by repeating Young's formula (Ling, Mi
//! and Lin, IEEE Trans. Computers 50(7), 2001): the n-th line lies where the integral of the density reaches n.
//!
//! The estimate uses only gaps that have ended, and never sees the future.

use crate::interval::Objective;

/// Parameters of the policy. The defaults were fitted on failure logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveParameters {
    /// Weight of the newest gap in the fast average of log gaps.
    pub fast: f64,
    /// Weight of the newest gap in the slow average of log gaps.
    pub slow: f64,
    /// Share of the fast average in the prediction.
    pub mix: f64,
    /// Weibull shape of a gap about its prediction.
    pub shape: f64,
    /// Factor on every interval.
    pub stretch: f64,
}

impl AdaptiveParameters {
    /// The parameters fitted for an objective on six Los Alamos systems (C = 10 min, compute at 3 times idle power,
    /// a point of wasted time weighing twice a point of wasted energy).
    pub fn for_objective(objective: Objective) -> AdaptiveParameters {
        match objective {
            Objective::Time => AdaptiveParameters { fast: 0.1, slow: 0.005, mix: 0.6, shape: 0.75, stretch: 0.85 },
            Objective::Energy => AdaptiveParameters { fast: 0.1, slow: 0.02, mix: 0.4, shape: 0.75, stretch: 1.1 },
        }
    }
}

impl Default for AdaptiveParameters {
    fn default() -> Self {
        AdaptiveParameters::for_objective(Objective::Energy)
    }
}

/// The policy and what it has seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    parameters: AdaptiveParameters,
    fast: f64,
    slow: f64,
    /// Running mean of gap over predicted geometric mean: turns geometric means into means.
    bias: f64,
    seen: u32,
}

impl Adaptive {
    /// A policy that has seen no failure and starts from the prior MTBF (a year if it is not finite and positive).
    pub fn new(parameters: AdaptiveParameters, prior_mtbf_s: f64) -> Adaptive {
        let prior_s = if prior_mtbf_s.is_finite() && prior_mtbf_s > 0.0 { prior_mtbf_s } else { 3.15576e7 };
        let fraction = |x: f64, otherwise: f64| if x.is_finite() { x.clamp(0.0, 1.0) } else { otherwise };
        let parameters = AdaptiveParameters {
            fast: fraction(parameters.fast, 0.1),
            slow: fraction(parameters.slow, 0.01),
            mix: fraction(parameters.mix, 0.5),
            shape: if parameters.shape.is_finite() { parameters.shape.clamp(0.2, 5.0) } else { 0.75 },
            stretch: if parameters.stretch.is_finite() { parameters.stretch.clamp(0.1, 10.0) } else { 1.0 },
        };
        Adaptive { parameters, fast: prior_s.ln(), slow: prior_s.ln(), bias: 1.0, seen: 0 }
    }

    /// Takes note of the gap that a failure has just ended. Gaps that are not finite and positive are ignored.
    pub fn observe_gap(&mut self, gap_s: f64) {
        if !(gap_s.is_finite() && gap_s > 0.0) {
            return;
        }
        // A burst of failures within a second says no more than one within a second.
        let gap_s = gap_s.clamp(1.0, 3.2e10);
        self.seen = self.seen.saturating_add(1);
        let surprise = (gap_s / self.centre_s()).clamp(1e-3, 1e3);
        self.bias += (surprise - self.bias) / f64::from(self.seen.min(300) + 20);
        self.fast += self.parameters.fast * (gap_s.ln() - self.fast);
        let warm = (1.0 / f64::from(self.seen + 5)).max(self.parameters.slow);
        self.slow += warm * (gap_s.ln() - self.slow);
    }

    fn centre_s(&self) -> f64 {
        (self.parameters.mix * self.fast + (1.0 - self.parameters.mix) * self.slow).exp()
    }

    /// The expected length of the present gap, before its age is considered. Finite and positive.
    pub fn mean_gap_s(&self) -> f64 {
        (self.centre_s() * self.bias).clamp(1e-3, 3.2e13)
    }

    /// The work until the next checkpoint, `elapsed_s` after the last failure, for checkpoints of `checkpoint_s` and
    /// a ratio of compute to checkpoint power (1 minimises time). Finite and positive for finite, positive costs.
    pub fn interval_s(&self, elapsed_s: f64, checkpoint_s: f64, ratio: f64) -> f64 {
        let shape = self.parameters.shape;
        let scale_s = self.mean_gap_s() / crate::special::gamma(1.0 + 1.0 / shape);
        let elapsed_s = if elapsed_s.is_finite() { elapsed_s.max(0.0) } else { 0.0 };
        // h(t) = (shape / scale) (t / scale)^(shape - 1); the integral of sqrt(h / 2C') grows by one per checkpoint.
        let cost_s = (checkpoint_s / ratio).max(1e-9);
        let power = (shape + 1.0) / 2.0;
        let density = (shape / (2.0 * cost_s)).sqrt() * scale_s.powf(-shape / 2.0);
        let next_s = (elapsed_s.powf(power) + power / density).powf(1.0 / power);
        let interval_s = (next_s - elapsed_s) * self.parameters.stretch;
        if interval_s.is_finite() { interval_s.max(1e-3) } else { (2.0 * cost_s * self.mean_gap_s()).sqrt() }
    }
}
