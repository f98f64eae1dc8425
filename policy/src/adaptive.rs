//! Places checkpoints by a hazard that learns from the failures so far: the policy `auto`, `gamma-poisson` by name.
//!
//! Failures come in bursts, drift with the age of a system, and follow the working day and week (Schroeder and
//! Gibson, *A large-scale study of failures in high-performance computing systems*, DSN 2006). So the failure rate is
//! filtered at several memories at once. A memory of length tau forgets exponentially: it holds the discounted count
//! r of failures and the discounted time e that was watched. With the rate of the next longer memory as its prior,
//! worth w failures, its own rate is the posterior mean of a gamma-Poisson model (Gelman et al., *Bayesian Data
//! Analysis*, §2.6; discounting as in West and Harrison, *Bayesian Forecasting and Dynamic Models*, §10.8):
//!
//! ```text
//! rate = (r + w) / (e + w / longer rate)          never forgets -> 30 d -> 2 d -> 1 h
//! h(t) = rate at 1 h  x  exp(-day cos(2 pi hour / 24) - weekend ([Saturday or Sunday] - 2/7))
//! ```
//!
//! While no failure comes, the short memories empty and h falls: the falling hazard of ElSayed14's `hazard` follows
//! from the bursts. Checkpoints lie where a hazard h asks for them (Ling, Mi and Lin, IEEE Trans. Computers 50(7),
//! 2001). With lost work worth `ratio` times checkpoint time and C' = C / ratio, the waste of an exponential gap is
//! least at D = sqrt(2 C' / h - C (C - C')) + C' / 3 - C to second order; for ratio 1 that is Daly's formula (2006).
//!
//! Only failures that have happened enter: the policy never sees the future.

use std::f64::consts::TAU;

use crate::Invalid;
use crate::interval::{Bounds, Choice, Costs, Objective, bound_interval};

const HOUR_S: f64 = 3_600.0;

/// The memories that forget, longest first.
pub const MEMORIES_S: [f64; 3] = [30.0 * 24.0 * HOUR_S, 2.0 * 24.0 * HOUR_S, HOUR_S];

/// How far the interval leans from the optimum for time towards that for energy, as a logarithm. Near an optimum waste
/// grows by half the square: 0.2 % of the time is paid for about 3 % of the energy, at three times idle power.
const LEAN_FROM_TIME: f64 = -0.06;

/// The same from the optimum for energy: 0.7 % of the energy is paid for about 6 % of the time.
const LEAN_FROM_ENERGY: f64 = 0.12;

/// How many failures the MTBF that the policy starts from is worth.
const PRIOR_WEIGHT: f64 = 3.0;

/// The shortest work between checkpoints, over the checkpoint.
const LEAST_WORK: f64 = 0.25;

/// MTBFs, gaps and ages are kept within a millisecond and a million years.
const LONGEST_S: f64 = 3.2e13;
const SHORTEST_S: f64 = 1e-3;

/// Parameters of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveParameters {
    /// What each memory's prior is worth, in failures; longest memory first.
    pub weights: [f64; 3],
    /// Amplitude of the hazard's logarithm over the day, least at midnight.
    pub day: f64,
    /// By how much the hazard's logarithm is lower at the weekend.
    pub weekend: f64,
    /// Logarithm of a factor on the interval that is best for the objective: below zero saves energy, above zero time.
    pub lean: f64,
}

impl AdaptiveParameters {
    /// The parameters of greatest likelihood on six Los Alamos systems, leaning a little from the objective's optimum
    /// towards the other's.
    pub fn for_objective(objective: Objective) -> AdaptiveParameters {
        let lean = match objective {
            Objective::Time => LEAN_FROM_TIME,
            Objective::Energy => LEAN_FROM_ENERGY,
        };
        AdaptiveParameters { lean, ..AdaptiveParameters::default() }
    }

    fn sound(self) -> AdaptiveParameters {
        let within = |x: f64, low: f64, high: f64, otherwise: f64| {
            if x.is_finite() { x.clamp(low, high) } else { otherwise }
        };
        AdaptiveParameters {
            weights: self.weights.map(|w| within(w, 0.01, 1e3, 1.0)),
            day: within(self.day, -2.0, 2.0, 0.0),
            weekend: within(self.weekend, -2.0, 2.0, 0.0),
            lean: within(self.lean, -2.0, 2.0, 0.0),
        }
    }
}

impl Default for AdaptiveParameters {
    fn default() -> Self {
        AdaptiveParameters { weights: [1.4, 2.8, 0.7], day: 0.20, weekend: 0.29, lean: 0.0 }
    }
}

/// What the calendar says of a time: minus the cosine of the day, and minus [weekend] less its mean; each multiplies
/// its parameter. The time is in local seconds since 1970.
pub fn calendar(local_s: f64) -> [f64; 2] {
    // 1970 began on a Thursday.
    let hours = (local_s / HOUR_S).rem_euclid(168.0);
    let weekend = if (48.0..96.0).contains(&hours) { 1.0 } else { 0.0 };
    [-(TAU * hours / 24.0).cos(), 2.0 / 7.0 - weekend]
}

/// One memory: discounted failures and discounted time at the last failure.
#[derive(Clone, Copy, Debug)]
struct Memory {
    per_s: f64,
    length_s: f64,
    weight: f64,
    failures: f64,
    watched_s: f64,
}

impl Memory {
    fn after(&self, age_s: f64) -> (f64, f64) {
        let kept = (-age_s * self.per_s).exp();
        (self.failures * kept, self.length_s + (self.watched_s - self.length_s) * kept)
    }
}

/// The policy and what it has seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    memories: [Memory; 3],
    failures: f64,
    watched_s: f64,
    /// Mean gap as the memories saw it at the last failure, the shortest left out: bursts soon pass.
    settled_s: f64,
    /// Local time of the last failure, where the calendar is known.
    failed_at_s: Option<f64>,
    /// Mean gap in each hour of the week over that of the week, from Thursday on.
    week: [f64; 168],
    /// Square of the factor on the interval.
    stretch: f64,
}

impl Adaptive {
    /// A policy that has seen no failure and starts from the prior MTBF (a year if it is not finite and positive).
    /// `local_s` is the time that gaps start from, in local seconds since 1970; without it no hour differs.
    pub fn new(parameters: AdaptiveParameters, prior_mtbf_s: f64, local_s: Option<f64>) -> Adaptive {
        let parameters = parameters.sound();
        let known = prior_mtbf_s.is_finite() && prior_mtbf_s > 0.0;
        let prior_s = if known { prior_mtbf_s.clamp(SHORTEST_S, LONGEST_S) } else { 3.15576e7 };
        let memory = |i: usize| Memory {
            per_s: 1.0 / MEMORIES_S[i],
            length_s: MEMORIES_S[i],
            weight: parameters.weights[i],
            failures: 0.0,
            watched_s: 0.0,
        };
        let week = std::array::from_fn(|hour| {
            let [day, weekend] = calendar((hour as f64 + 0.5) * HOUR_S);
            (-parameters.day * day - parameters.weekend * weekend).exp()
        });
        Adaptive {
            memories: std::array::from_fn(memory),
            failures: PRIOR_WEIGHT,
            watched_s: PRIOR_WEIGHT * prior_s,
            settled_s: prior_s,
            failed_at_s: local_s.filter(|t| (0.0..LONGEST_S).contains(t)),
            week,
            stretch: (2.0 * parameters.lean).exp(),
        }
    }

    /// Takes note of the gap that a failure has just ended. Gaps that are not finite and positive are ignored.
    pub fn observe_gap(&mut self, gap_s: f64) {
        if !(gap_s.is_finite() && gap_s > 0.0) {
            return;
        }
        let gap_s = gap_s.clamp(SHORTEST_S, LONGEST_S);
        for memory in &mut self.memories {
            let (failures, watched_s) = memory.after(gap_s);
            (memory.failures, memory.watched_s) = (failures + 1.0, watched_s);
        }
        self.failures += 1.0;
        self.watched_s += gap_s;
        self.failed_at_s = self.failed_at_s.map(|t| t + gap_s);
        self.settled_s = self.mean_s(&self.memories[..2], 0.0);
    }

    /// Failures to be expected in a second, `age_s` after the last one. Finite and positive.
    pub fn hazard_per_s(&self, age_s: f64) -> f64 {
        1.0 / self.mean_gap_s(if age_s.is_finite() { age_s.clamp(0.0, LONGEST_S) } else { 0.0 })
    }

    /// The inverse of the hazard.
    fn mean_gap_s(&self, age_s: f64) -> f64 {
        let mean_s = self.mean_s(&self.memories, age_s);
        self.failed_at_s.map_or(mean_s, |failed_at_s| {
            let hour = ((failed_at_s + age_s) * (1.0 / HOUR_S)) as u64;
            mean_s * self.week[(hour % 168) as usize]
        })
    }

    /// The posterior mean of the last of the memories, each of which has the one before as its prior.
    fn mean_s(&self, memories: &[Memory], age_s: f64) -> f64 {
        // Each mean is kept as a fraction: one division at the end instead of one after the other.
        let prior = (self.watched_s + age_s, self.failures);
        let (seconds, failures) = memories.iter().fold(prior, |prior, memory| {
            let (failures, watched_s) = memory.after(age_s);
            (watched_s * prior.1 + memory.weight * prior.0, (failures + memory.weight) * prior.1)
        });
        seconds / failures
    }

    /// The work until the next checkpoint, `age_s` after the last failure, for checkpoints of `checkpoint_s` and a
    /// ratio of compute to checkpoint power (1 minimises time). Finite and positive whatever is given.
    #[inline]
    pub fn interval_s(&self, age_s: f64, checkpoint_s: f64, ratio: f64) -> f64 {
        let positive = |x: f64, otherwise: f64| if x.is_finite() && x > 0.0 { x } else { otherwise };
        let age_s = positive(age_s, 0.0).min(LONGEST_S);
        let checkpoint_s = positive(checkpoint_s, 1.0).clamp(1e-6, LONGEST_S);
        // The checkpoint in units of lost work, leaning.
        let worth_s = checkpoint_s * self.stretch / positive(ratio, 1.0).clamp(1e-6, 1e6);
        let square_s2 = checkpoint_s * (checkpoint_s - worth_s);
        let least_s = (1.0 + LEAST_WORK) * checkpoint_s;
        let period_s =
            |mean_s: f64| ((2.0 * worth_s * mean_s - square_s2).max(0.0).sqrt() + worth_s / 3.0).max(least_s);
        // The hazard is taken in the middle of the coming period.
        let middle_s = age_s + 0.5 * period_s(self.settled_s);
        period_s(self.mean_gap_s(middle_s)) - checkpoint_s
    }

    /// The same for a job's costs, within its bounds, with the reason. Ages and costs are in s and W.
    pub fn choose(&self, age_s: f64, objective: Objective, costs: &Costs, bounds: &Bounds) -> Result<Choice, Invalid> {
        let ratio = match objective {
            Objective::Energy => (costs.static_w + costs.compute_w) / (costs.static_w + costs.checkpoint_w),
            Objective::Time => 1.0,
        };
        let wanted_s = self.interval_s(age_s, costs.checkpoint_s, ratio);
        bound_interval(objective, wanted_s, 1.0 / self.hazard_per_s(age_s), costs, bounds)
    }
}
