//! Holds the gaps between failures of a system, as they were logged or as they are drawn from a distribution.

use std::ops::RangeInclusive;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Error;
use crate::failure_log::{self, Log};

/// The gaps between failures of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What to call it.
    pub name: String,
    /// Time of the first failure.
    pub first_s: f64,
    /// Gaps between distinct failure times, in order, all positive.
    pub gaps_s: Vec<f64>,
}

/// A distribution of gaps, described by its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// No memory.
    Exponential,
    /// Weibull of the given shape.
    Weibull(f64),
    /// Lognormal of the given sigma of the logarithm.
    Lognormal(f64),
}

/// Shapes, and sigmas, that a distribution of gaps may have.
pub const DISTRIBUTION_SHAPE: RangeInclusive<f64> = 0.1..=10.0;

impl Trace {
    /// A trace from gaps; those that are not finite and positive are left out.
    pub fn from_gaps(name: &str, gaps_s: impl IntoIterator<Item = f64>) -> Result<Trace, Error> {
        let gaps_s: Vec<f64> = gaps_s.into_iter().filter(|g| g.is_finite() && *g > 0.0).collect();
        if gaps_s.len() < 2 {
            return Err(Error::TooShort { gaps: gaps_s.len() });
        }
        Ok(Trace { name: name.to_owned(), first_s: 0.0, gaps_s })
    }

    /// A trace from the times of failures, in any order; equal times count once.
    pub fn from_times(name: &str, mut times_s: Vec<f64>) -> Result<Trace, Error> {
        times_s.sort_by(f64::total_cmp);
        let trace = Trace::from_gaps(name, times_s.windows(2).map(|w| w[1] - w[0]))?;
        Ok(Trace { first_s: times_s[0], ..trace })
    }

    /// Reads the log of one system, as [`failure_log::read`] does.
    pub fn parse(name: &str, text: &str) -> Result<Trace, Error> {
        let Log { traces, left_out } = failure_log::read(name, text, None)?;
        let known: Vec<u32> =
            traces.iter().filter_map(Trace::system).chain(left_out.iter().map(|(system, _)| *system)).collect();
        match <[Trace; 1]>::try_from(traces) {
            Ok([trace]) if left_out.is_empty() => Ok(Trace { name: name.to_owned(), ..trace }),
            _ => Err(Error::System { known }),
        }
    }

    /// The number of a trace that is called `system-N`.
    pub fn system(&self) -> Option<u32> {
        self.name.rsplit(['-', ' ']).next()?.parse().ok()
    }

    /// Draws `count` gaps of the given mean; the same seed gives the same trace.
    pub fn synthetic(distribution: Distribution, mean_s: f64, count: usize, seed: u64) -> Result<Trace, Error> {
        if !(mean_s.is_finite() && mean_s > 0.0) {
            return Err(policy::Invalid { parameter: "mean_s", value: mean_s, range: "finite, > 0" }.into());
        }
        let (name, shape) = match distribution {
            Distribution::Exponential => ("exponential".to_owned(), 1.0),
            Distribution::Weibull(shape) => (format!("weibull {shape}"), shape),
            Distribution::Lognormal(sigma) => (format!("lognormal {sigma}"), sigma),
        };
        if !DISTRIBUTION_SHAPE.contains(&shape) {
            return Err(policy::Invalid { parameter: "shape", value: shape, range: "0.1 to 10" }.into());
        }
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut uniform = move || 1.0 - random.random::<f64>();
        let scale_s = mean_s / policy::special::gamma(1.0 + 1.0 / shape);
        let gaps_s = (0..count).map(|_| match distribution {
            Distribution::Exponential => -mean_s * uniform().ln(),
            Distribution::Weibull(shape) => scale_s * (-uniform().ln()).powf(1.0 / shape),
            Distribution::Lognormal(sigma) => {
                let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                mean_s * (sigma * normal - sigma * sigma / 2.0).exp()
            }
        });
        Trace::from_gaps(&name, gaps_s.collect::<Vec<_>>())
    }

    /// The mean gap.
    pub fn mean_s(&self) -> f64 {
        self.gaps_s.iter().sum::<f64>() / self.gaps_s.len() as f64
    }

    /// Local time of the first failure, where the trace has dates. Times before 1973 count from somewhere else.
    pub fn local_start_s(&self) -> Option<f64> {
        (self.first_s > 1e8).then_some(self.first_s)
    }

    /// The trace at ElSayed14's precision: failure times in days, rounded half-up to 4 decimals.
    pub fn rounded_as_published(&self) -> Trace {
        let round = |t: f64| (t / 86_400.0 * 1e4 + 0.5).floor();
        let mut now_s = self.first_s;
        let mut gaps_s = Vec::with_capacity(self.gaps_s.len());
        for gap_s in &self.gaps_s {
            let rounded = round(now_s + gap_s) - round(now_s);
            now_s += gap_s;
            if rounded > 0.0 {
                gaps_s.push(rounded * 8.64);
            }
        }
        Trace { name: self.name.clone(), first_s: self.first_s, gaps_s }
    }
}
