//! Checkpoints at the same ages in every gap: of a rule that looks at nothing but the age, and the best that there are.

use policy::Invalid;
use policy::interval::Objective;
use policy::special::ln_gamma;

use crate::Error;
use crate::replay::{CHECKPOINT_OVER_IDLE, Outcome, gap};
use crate::trace::Trace;

/// The most checkpoints in one gap of a rule by age.
pub(crate) const LONGEST_SCHEDULE: usize = 1_000_000;

/// Steps of the search for the best schedule in the shorter of a checkpoint and a tenth of Young's interval.
const STEPS: f64 = 8.0;

/// The best work between checkpoints is looked for up to so many times Young's interval.
const REACH: f64 = 6.0;

/// The best schedule is looked for until a gap lasts longer with this probability.
const RARE: f64 = 1e-7;

/// The most steps of a search: longer gaps are paced as the longest that is looked at.
const MOST_STEPS: usize = 400_000;

/// Ages at which computing begins, after the failure or a checkpoint, and the work until the next checkpoint.
#[derive(Clone, Debug)]
pub struct Schedule {
    checkpoint_s: f64,
    starts_s: Vec<f64>,
    intervals_s: Vec<f64>,
}

impl Schedule {
    /// The schedule of a rule, as far as a gap can reach.
    pub fn by_age(longest_s: f64, checkpoint_s: f64, next: impl Fn(f64) -> f64) -> Result<Schedule, Error> {
        let mut schedule = Schedule { checkpoint_s, starts_s: vec![0.0], intervals_s: Vec::new() };
        let mut age_s = 0.0;
        while age_s < longest_s {
            let interval_s = next(age_s);
            schedule.intervals_s.push(interval_s);
            if schedule.intervals_s.len() > LONGEST_SCHEDULE {
                return Err(too_many(checkpoint_s));
            }
            age_s += interval_s + checkpoint_s;
            schedule.starts_s.push(age_s);
        }
        Ok(schedule)
    }

    /// The schedule of least expected waste where gaps are Weibull (exponential at shape 1) of that mean: found backwards,
    /// from the longest gap on, each moment's least waste from those that come after it.
    pub fn best(
        shape: f64,
        mean_s: f64,
        checkpoint_s: f64,
        ratio: f64,
        objective: Objective,
    ) -> Result<Schedule, Error> {
        let search = Search::new(shape, mean_s, checkpoint_s, ratio, objective);
        let intervals = search.intervals();
        let at = |age_s: f64| intervals[((age_s / search.step_s).round() as usize).min(intervals.len() - 1)];
        Schedule::by_age(search.step_s * intervals.len() as f64, checkpoint_s, |age_s| at(age_s) as f64 * search.step_s)
    }

    /// Adds a gap to what was spent; one that outlasts the schedule goes on at its last interval.
    pub fn spend(&self, outcome: &mut Outcome, gap_s: f64) {
        // The first checkpoint that did not end strictly before the failure.
        let count = self.starts_s.partition_point(|start_s| *start_s < gap_s) - 1;
        let Some(interval_s) = self.intervals_s.get(count) else {
            let (end_s, last_s) = (self.starts_s[count], self.intervals_s[count - 1]);
            outcome.total_s += end_s;
            outcome.checkpoints += count as f64;
            outcome.checkpoint_s += count as f64 * self.checkpoint_s;
            return gap(outcome, gap_s - end_s, last_s, self.checkpoint_s);
        };
        let left_s = gap_s - self.starts_s[count];
        let part_s = (left_s - interval_s).max(0.0);
        outcome.add(gap_s, count as f64, self.checkpoint_s, left_s, part_s);
    }

    /// What a trace spends under it.
    pub fn replay(&self, trace: &Trace) -> Outcome {
        let mut outcome = Outcome::default();
        trace.gaps_s.iter().for_each(|gap_s| self.spend(&mut outcome, *gap_s));
        outcome
    }
}

/// Why a schedule is not made.
pub(crate) fn too_many(checkpoint_s: f64) -> Error {
    let range = "so long that the longest gap holds at most 1,000,000 checkpoints";
    Invalid { parameter: "C", value: checkpoint_s, range }.into()
}

/// The search for the best schedule, on a grid of ages.
struct Search {
    step_s: f64,
    /// Steps of a checkpoint.
    checkpoint: usize,
    /// The most steps of work.
    reach: usize,
    /// What lost work costs, and time in a checkpoint.
    price: (f64, f64),
    /// Probability that nothing fails until each step, and its integral.
    survival: Vec<f64>,
    survived_s: Vec<f64>,
}

impl Search {
    fn new(shape: f64, mean_s: f64, checkpoint_s: f64, ratio: f64, objective: Objective) -> Search {
        let price = match objective {
            Objective::Time => (1.0, 1.0),
            Objective::Energy => (ratio, CHECKPOINT_OVER_IDLE),
        };
        let young_s = (2.0 * checkpoint_s * mean_s * price.1 / price.0).sqrt();
        let checkpoint = (STEPS * (10.0 * checkpoint_s / young_s).max(1.0)).ceil() as usize;
        let step_s = checkpoint_s / checkpoint as f64;
        let scale_s = mean_s / ln_gamma(1.0 + 1.0 / shape).exp();
        let longest_s = scale_s * (-RARE.ln()).powf(1.0 / shape);
        let steps = ((longest_s / step_s).ceil() as usize).clamp(1, MOST_STEPS);
        let reach = ((REACH * young_s.max(mean_s.min(2.0 * young_s)) / step_s).ceil() as usize).max(1);
        let survival: Vec<f64> =
            (0..=steps + reach + checkpoint).map(|i| (-(i as f64 * step_s / scale_s).powf(shape)).exp()).collect();
        let mut survived_s = vec![0.0; survival.len()];
        for i in 1..survival.len() {
            survived_s[i] = survived_s[i - 1] + 0.5 * step_s * (survival[i - 1] + survival[i]);
        }
        Search { step_s, checkpoint, reach, price, survival, survived_s }
    }

    /// Steps of work at each age.
    fn intervals(&self) -> Vec<usize> {
        let steps = self.survival.len() - self.reach - self.checkpoint;
        let mut wastes = vec![0.0; self.survival.len()];
        let mut intervals = vec![self.reach; steps];
        for from in (0..steps).rev() {
            let (mut best, mut least) = (1, f64::INFINITY);
            for work in 1..=self.reach {
                let waste = self.period(from, work) + wastes[from + work + self.checkpoint];
                if waste < least {
                    (best, least) = (work, waste);
                }
            }
            (intervals[from], wastes[from]) = (best, least);
        }
        intervals
    }

    /// Waste that is expected of a period, weighed by the probability that it begins.
    fn period(&self, from: usize, work: usize) -> f64 {
        let (idle, end) = (from + work, from + work + self.checkpoint);
        let (s, step_s, (lost, writing)) = (&self.survival, self.step_s, self.price);
        let lived_s = |a: usize, b: usize| self.survived_s[b] - self.survived_s[a];
        // The mean of the time since `a` of failures between `a` and `b`: what was lived, less what those give that did not fail.
        let since_s = |a: usize, b: usize| lived_s(a, b) - (b - a) as f64 * step_s * s[b];
        lost * (since_s(from, idle) + work as f64 * step_s * (s[idle] - s[end]))
            + writing * (since_s(idle, end) + self.checkpoint as f64 * step_s * s[end])
    }
}
