//! The failure rate where failures come in bursts and their rate drifts: filtered at several memories at once.
//!
//! A memory of length tau forgets exponentially: it holds the discounted count r of failures and the discounted time e
//! that was watched. With the rate of the next longer memory as its prior, worth w failures, its own rate is the
//! posterior mean of a gamma-Poisson model (Gelman et al., *Bayesian Data Analysis*, §2.6; discounting as in West and
//! Harrison, *Bayesian Forecasting and Dynamic Models*, §10.8): rate = (r + w) / (e + w / longer rate).

use super::HOUR_S;

/// The memories that forget, longest first.
pub const MEMORIES_S: [f64; 3] = [30.0 * 24.0 * HOUR_S, 2.0 * 24.0 * HOUR_S, HOUR_S];

/// Panels of the integral of the rate over a gap; they widen with the age.
const PANELS: u32 = 8;

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

/// The memories, over a rate that forgets nothing.
#[derive(Clone, Debug)]
pub(super) struct Memories([Memory; 3]);

impl Memories {
    pub(super) fn new(weights: [f64; 3]) -> Memories {
        Memories(std::array::from_fn(|i| Memory {
            per_s: 1.0 / MEMORIES_S[i],
            length_s: MEMORIES_S[i],
            weight: weights[i],
            failures: 0.0,
            watched_s: 0.0,
        }))
    }

    /// Forgets for `age_s`, and takes note of so many failures at its end.
    pub(super) fn pass(&mut self, age_s: f64, failed: f64) {
        for memory in &mut self.0 {
            let (failures, watched_s) = memory.after(age_s);
            (memory.failures, memory.watched_s) = (failures + failed, watched_s);
        }
    }

    /// Goes over to a `share` of what was watched, on which that share of the failures falls.
    pub(super) fn thin(&mut self, share: f64) {
        self.0.iter_mut().for_each(|memory| memory.watched_s /= share);
    }

    /// The posterior mean gap of the shortest memory, each with the longer one as its prior. `base` is the time and the
    /// failures of the rate that forgets nothing.
    pub(super) fn mean_s(&self, base: (f64, f64), age_s: f64) -> f64 {
        filtered_s(&self.0, base, age_s)
    }

    /// The same of the last but one, at the last failure: what is left when the burst is over.
    pub(super) fn settled_s(&self, base: (f64, f64)) -> f64 {
        filtered_s(&self.0[..2], base, 0.0)
    }

    /// How many failures the memories expect within `age_s`. `base` is that of the age.
    pub(super) fn expected(&self, base: impl Fn(f64) -> (f64, f64), age_s: f64) -> f64 {
        let edge_s = |i: u32| age_s * (f64::from(i) / f64::from(PANELS)).powi(2);
        let panel = |i: u32| {
            let middle_s = 0.5 * (edge_s(i) + edge_s(i + 1));
            (edge_s(i + 1) - edge_s(i)) / self.mean_s(base(middle_s), middle_s)
        };
        (0..PANELS).map(panel).sum()
    }
}

fn filtered_s(memories: &[Memory], base: (f64, f64), age_s: f64) -> f64 {
    // Each mean is kept as a fraction: one division at the end instead of one after the other.
    let (seconds, failures) = memories.iter().fold(base, |prior, memory| {
        let (failures, watched_s) = memory.after(age_s);
        (watched_s * prior.1 + memory.weight * prior.0, (failures + memory.weight) * prior.1)
    });
    seconds / failures
}
