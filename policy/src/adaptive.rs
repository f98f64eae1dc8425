//! Places checkpoints by a hazard that learns from the failures so far: the policy `auto`, `gamma-poisson` by name.
//!
//! Nobody knows beforehand in which way a system fails. So several ways are thought of at once, and each weighs as well as
//! it has foretold the gaps until now (Bayesian model averaging: Hoeting and others, Statistical Science 14(4), 1999):
//!
//! - at a steady rate, which is learnt (`renewal`);
//! - in bursts, at a rate that drifts (`memories`): short memories over long ones, so that the hazard falls while no
//!   failure comes;
//! - by wear: Weibull gaps of a shape above 1 (`renewal`), so that the hazard rises.
//!
//! With p the probability of each way before the gap and S that of its surviving until now, the hazard is
//! sum(p S h) / sum(p S): a silence counts once, in each way by itself. Until the first failure is seen nobody knows since
//! when nothing has failed, and only the steady rate speaks. The working day and week (Schroeder and Gibson, *A large-scale
//! study of failures in high-performance computing systems*, DSN 2006) multiply the hazard by
//! exp(-day cos(2 pi hour / 24) - weekend ([Saturday or Sunday] - 2/7)).
//!
//! Checkpoints lie where a hazard h asks for them (Ling, Mi and Lin, IEEE Trans. Computers 50(7), 2001). With lost work
//! worth `ratio` times checkpoint time and C' = C / ratio, the waste of an exponential gap is least at
//! D = sqrt(2 C' / h - C (C - C')) + C' / 3 - C to second order; for ratio 1 that is Daly's formula (2006). h is taken in
//! the middle of the coming period.
//!
//! Only failures that have happened enter: the policy never sees the future.

use std::f64::consts::TAU;

use crate::Invalid;
use crate::interval::{Bounds, Choice, Costs, Objective, bound_interval};

mod memories;
mod past;
mod renewal;

pub use memories::MEMORIES_S;
use memories::Memories;
pub use past::{MOST_FAILURES, Past};
use renewal::Renewal;

const HOUR_S: f64 = 3_600.0;

/// Shapes of the gaps that are thought of: without memory first, then by wear.
const SHAPES: [f64; 5] = [1.0, 1.5, 2.0, 3.0, 5.0];

/// How many ways of failing are thought of: the shapes, then the bursts.
const WAYS: usize = SHAPES.len() + 1;

/// The way that is steady, and that of bursts.
const STEADY: usize = 0;
const BURSTS: usize = WAYS - 1;

/// How probable each way is before anything is seen: known systems fail in bursts, few by wear.
const PROBABLE: [f64; WAYS] = [12.0 / 24.0, 1.0 / 24.0, 1.0 / 24.0, 1.0 / 24.0, 1.0 / 24.0, 8.0 / 24.0];

/// A way is never less probable than exp(-8) of the best, so that a system that changes is soon followed.
const LEAST_EVIDENCE: f64 = -8.0;

/// Ways less probable than this are not reckoned with.
const NEGLIGIBLE: f64 = 2e-3;

/// Steps towards the middle of the coming period.
const STEPS: usize = 3;

/// How far the interval leans from the optimum for time towards that for energy, as a logarithm. Near an optimum waste grows by half the square: 0.2 % of the time is paid for about 3 % of the energy, at three
/// times idle power.
const LEAN_FROM_TIME: f64 = -0.06;

/// The same from the optimum for energy: 0.7 % of the energy is paid for about 6 % of the time.
const LEAN_FROM_ENERGY: f64 = 0.12;

/// The part of the lean that is left where the rate has shown itself to be steady: the optimum is known there.
const LEAN_WHERE_STEADY: f64 = 0.5;

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
    /// Logarithm of a factor on the interval that is best for the objective: below zero saves energy, above zero time. Half
    /// of it counts where the rate has shown itself to be steady.
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
        AdaptiveParameters { weights: [0.7, 2.8, 0.7], day: 0.20, weekend: 0.305, lean: 0.0 }
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

/// The policy and what it has seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    /// The ways of each shape.
    renewals: [Renewal; SHAPES.len()],
    /// The way of bursts.
    memories: Memories,
    /// Time watched and failures seen, the prior's with them.
    watched_s: f64,
    failures: f64,
    /// Whether a failure has been seen, from which gaps and ages count.
    has_failed: bool,
    /// Logarithm of the probability of each way, over that of the best.
    evidence: [f64; WAYS],
    /// The probability of each way.
    probable: [f64; WAYS],
    /// Mean gap as the memories saw it at the last failure, the shortest left out: bursts soon pass.
    settled_s: f64,
    /// Local time of the last failure, where the calendar is known.
    failed_at_s: Option<f64>,
    /// Mean gap in each hour of the week over that of the week, from Thursday on.
    week: [f64; 168],
    /// Logarithm of the factor on the interval, and how much of it counts.
    lean: f64,
    leaning: f64,
}

impl Adaptive {
    /// A policy that has seen no failure and starts from the prior MTBF (a year if it is not finite and positive).
    /// `local_s` is the time that gaps start from, in local seconds since 1970; without it no hour differs.
    pub fn new(parameters: AdaptiveParameters, prior_mtbf_s: f64, local_s: Option<f64>) -> Adaptive {
        let parameters = parameters.sound();
        let known = prior_mtbf_s.is_finite() && prior_mtbf_s > 0.0;
        let prior_s = if known { prior_mtbf_s.clamp(SHORTEST_S, LONGEST_S) } else { 3.15576e7 };
        let week = std::array::from_fn(|hour| {
            let [day, weekend] = calendar((hour as f64 + 0.5) * HOUR_S);
            (-parameters.day * day - parameters.weekend * weekend).exp()
        });
        let mut new = Adaptive {
            renewals: SHAPES.map(|shape| match shape {
                1.0 => Renewal::steady(prior_s, PRIOR_WEIGHT),
                shape => Renewal::unknown(shape, prior_s),
            }),
            memories: Memories::new(parameters.weights),
            watched_s: PRIOR_WEIGHT * prior_s,
            failures: PRIOR_WEIGHT,
            has_failed: false,
            evidence: PROBABLE.map(f64::ln),
            probable: [0.0; WAYS],
            settled_s: prior_s,
            failed_at_s: local_s.filter(|t| (0.0..LONGEST_S).contains(t)),
            week,
            lean: parameters.lean,
            leaning: 1.0,
        };
        new.weigh();
        new
    }

    /// Makes probabilities of the evidence.
    fn weigh(&mut self) {
        if !self.has_failed {
            self.probable = std::array::from_fn(|way| if way == STEADY { 1.0 } else { 0.0 });
            return;
        }
        let best = self.evidence.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ruled_out = f64::NEG_INFINITY;
        self.evidence = self.evidence.map(|e| if e == ruled_out { e } else { (e - best).max(LEAST_EVIDENCE) });
        let weight = |way: usize| if self.is_known(way) { self.evidence[way].exp() } else { 0.0 };
        let sum: f64 = (0..WAYS).map(weight).sum();
        let probable = std::array::from_fn(|way| weight(way) / sum);
        self.probable = probable.map(|p: f64| if p < NEGLIGIBLE { 0.0 } else { p });
        let unsteady = ((1.0 - self.probable[STEADY]) / (1.0 - PROBABLE[STEADY])).min(1.0);
        self.leaning = LEAN_WHERE_STEADY + (1.0 - LEAN_WHERE_STEADY) * unsteady;
    }

    /// Takes note of the gap that a failure has just ended. Gaps that are not finite and positive are ignored.
    pub fn observe_gap(&mut self, gap_s: f64) {
        if !(gap_s.is_finite() && gap_s > 0.0) {
            return;
        }
        let gap_s = gap_s.clamp(SHORTEST_S, LONGEST_S);
        // The time until the first failure is no gap: nobody knows when the one before it was.
        if self.has_failed {
            let foretold = |way: usize| self.ln_survival(way, gap_s) - self.mean_of_s(way, gap_s).ln();
            // A way that says nothing yet is no better for it, and no worse.
            let foretold = |way: usize| foretold(if self.is_known(way) { way } else { STEADY });
            self.evidence = std::array::from_fn(|way| self.evidence[way] + foretold(way));
            self.renewals.iter_mut().skip(1).for_each(|renewal| renewal.observe(gap_s));
        }
        self.renewals[STEADY].observe(gap_s);
        self.memories.pass(gap_s, 1.0);
        self.failures += 1.0;
        self.watched_s += gap_s;
        self.failed_at_s = self.failed_at_s.map(|t| t + gap_s);
        self.has_failed = true;
        self.settled_s = self.memories.settled_s(self.base(0.0));
        self.weigh();
    }

    /// How probable it is that failures come at a steady rate, in bursts, and by wear.
    pub fn ways(&self) -> [f64; 3] {
        [self.probable[STEADY], self.probable[BURSTS], self.probable[STEADY + 1..BURSTS].iter().sum()]
    }

    /// Time and failures at that age of the rate that forgets nothing.
    fn base(&self, age_s: f64) -> (f64, f64) {
        (self.watched_s + age_s, self.failures)
    }

    /// Whether a way of failing says something.
    fn is_known(&self, way: usize) -> bool {
        way == BURSTS || self.renewals[way].is_known()
    }

    /// The mean gap at that age, in one way of failing.
    fn mean_of_s(&self, way: usize, age_s: f64) -> f64 {
        match way {
            BURSTS => self.memories.mean_s(self.base(age_s), age_s),
            shape => self.renewals[shape].mean_s(age_s),
        }
    }

    /// Logarithm of the probability that nothing fails until that age, in one way of failing.
    fn ln_survival(&self, way: usize, age_s: f64) -> f64 {
        match way {
            BURSTS => -self.memories.expected(|age_s| self.base(age_s), age_s),
            shape => self.renewals[shape].ln_survival(age_s),
        }
    }

    /// Failures to be expected in a second, `age_s` after the last one. Finite and positive.
    pub fn hazard_per_s(&self, age_s: f64) -> f64 {
        1.0 / self.mean_gap_s(if age_s.is_finite() { age_s.clamp(0.0, LONGEST_S) } else { 0.0 })
    }

    /// The inverse of the hazard.
    fn mean_gap_s(&self, age_s: f64) -> f64 {
        let ways = || (0..WAYS).filter(|way| self.probable[*way] > 0.0);
        let mean_s = if ways().count() == 1 {
            ways().map(|way| self.mean_of_s(way, age_s)).sum()
        } else {
            let mut survived = [f64::NEG_INFINITY; WAYS];
            ways().for_each(|way| survived[way] = self.probable[way].ln() + self.ln_survival(way, age_s));
            let best = survived.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (sum, hazard) = ways().fold((0.0, 0.0), |(sum, hazard), way| {
                let share = (survived[way] - best).exp();
                (sum + share, hazard + share / self.mean_of_s(way, age_s))
            });
            sum / hazard
        };
        let mean_s = mean_s.clamp(SHORTEST_S, LONGEST_S);
        self.failed_at_s.map_or(mean_s, |failed_at_s| {
            let hour = ((failed_at_s + age_s) * (1.0 / HOUR_S)) as u64;
            mean_s * self.week[(hour % 168) as usize]
        })
    }

    /// The work until the next checkpoint, `age_s` after the last failure, for checkpoints of `checkpoint_s` and a
    /// ratio of compute to checkpoint power (1 minimises time). Finite and positive whatever is given.
    #[inline]
    pub fn interval_s(&self, age_s: f64, checkpoint_s: f64, ratio: f64) -> f64 {
        self.pace(age_s, checkpoint_s, ratio).0
    }

    /// The same, and the mean gap in the middle of the coming period, on which it rests.
    pub fn pace(&self, age_s: f64, checkpoint_s: f64, ratio: f64) -> (f64, f64) {
        let positive = |x: f64, otherwise: f64| if x.is_finite() && x > 0.0 { x } else { otherwise };
        let age_s = positive(age_s, 0.0).min(LONGEST_S);
        let checkpoint_s = positive(checkpoint_s, 1.0).clamp(1e-6, LONGEST_S);
        // The checkpoint in units of lost work, leaning.
        let stretch = (2.0 * self.lean * self.leaning).exp();
        let worth_s = checkpoint_s * stretch / positive(ratio, 1.0).clamp(1e-6, 1e6);
        let square_s2 = checkpoint_s * (checkpoint_s - worth_s);
        let least_s = (1.0 + LEAST_WORK) * checkpoint_s;
        let period_s =
            |mean_s: f64| ((2.0 * worth_s * mean_s - square_s2).max(0.0).sqrt() + worth_s / 3.0).max(least_s);
        // The middle is that of the period that it asks for: the root of both meets it where the hazard rises, too.
        let mut meant_s = period_s(self.settled_s);
        for _ in 0..STEPS {
            meant_s = (meant_s * period_s(self.mean_gap_s(age_s + 0.5 * meant_s))).sqrt();
        }
        let mean_s = self.mean_gap_s(age_s + 0.5 * meant_s);
        (period_s(mean_s) - checkpoint_s, mean_s)
    }

    /// The same for a job's costs, within its bounds, with the reason. Ages and costs are in s and W.
    pub fn choose(&self, age_s: f64, objective: Objective, costs: &Costs, bounds: &Bounds) -> Result<Choice, Invalid> {
        let (wanted_s, mean_s) = self.pace(age_s, costs.checkpoint_s, ratio(objective, costs));
        bound_interval(objective, wanted_s, mean_s, costs, bounds)
    }

    /// The MTBF over the coming period, for a job's costs.
    pub fn mtbf_s(&self, age_s: f64, objective: Objective, costs: &Costs) -> f64 {
        self.pace(age_s, costs.checkpoint_s, ratio(objective, costs)).1
    }
}

/// What lost work costs over checkpoint time.
fn ratio(objective: Objective, costs: &Costs) -> f64 {
    match objective {
        Objective::Energy => (costs.static_w + costs.compute_w) / (costs.static_w + costs.checkpoint_w),
        Objective::Time => 1.0,
    }
}
