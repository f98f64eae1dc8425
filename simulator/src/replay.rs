//! Replays the gaps of a trace under one policy, as ElSayed14's simulation does.
//!
//! One application runs on the whole system without end. After each failure computing starts at once: no repair, no
//! restart cost. Compute D, checkpoint C, repeat; a checkpoint counts only if it ends strictly before the failure.

use std::ops::RangeInclusive;

use policy::Invalid;
use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::bounds::ElSayed;
use policy::interval::Objective;
use policy::mtbf::{Estimator, EstimatorKind};
use policy::periods::daly_higher_order_interval_s;

use crate::Error;
use crate::schedule::{LONGEST_SCHEDULE, Schedule, too_many};
use crate::trace::Trace;

/// Range of checkpoint durations, and of the means of drawn gaps, s.
pub const PRACTICAL_S: RangeInclusive<f64> = 1e-3..=1e12;
/// Ratios of compute to idle power that are replayed.
pub const PRACTICAL_RATIO: RangeInclusive<f64> = 1e-6..=1e6;
/// Mean gaps that are replayed: what is drawn need not have the mean of its distribution.
const MEAN_GAP_S: RangeInclusive<f64> = 1e-9..=1e15;

/// Checkpoint power over idle power.
pub const CHECKPOINT_OVER_IDLE: f64 = 1.1;

/// The most checkpoints in a trace, at Young's interval for energy.
const MOST_CHECKPOINTS: f64 = 1e9;
/// The MTBF that `auto` starts from where none is given.
pub const DAY_S: f64 = 86_400.0;

/// Costs, power and bounds of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Duration of a checkpoint.
    pub checkpoint_s: f64,
    /// Nominal ratio of compute to idle power ("3X"); the accounting ratio to checkpoint power is a 1.1th of it.
    pub ratio: f64,
    /// Bound on wasted time over the least, as a fraction.
    pub runtime_bound: Option<f64>,
    /// Bound on the I/O share, as a fraction.
    pub io_bound: Option<f64>,
    /// The MTBF that adaptive policies start from. If none is given, the published ones take the trace's own mean, as
    /// ElSayed14 has it, and `auto` a day.
    pub prior_s: Option<f64>,
}

/// What one replay spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Length of the trace.
    pub total_s: f64,
    /// Time in checkpoints, those cut short by a failure included.
    pub checkpoint_s: f64,
    /// Work lost to failures.
    pub lost_s: f64,
    /// Checkpoints that counted.
    pub checkpoints: f64,
    /// Failures.
    pub failures: f64,
}

impl Outcome {
    /// Wasted time.
    pub fn wasted_s(&self) -> f64 {
        self.checkpoint_s + self.lost_s
    }

    /// Wasted energy, in seconds at idle power.
    pub fn wasted_energy(&self, ratio: f64) -> f64 {
        CHECKPOINT_OVER_IDLE * self.checkpoint_s + ratio * self.lost_s
    }

    /// Share of the time spent in checkpoints.
    pub fn io_share(&self) -> f64 {
        self.checkpoint_s / self.total_s
    }

    /// Adds a gap with `count` checkpoints, and `left_s` after the last of them, of which `part_s` in one cut short.
    pub(crate) fn add(&mut self, gap_s: f64, count: f64, checkpoint_s: f64, left_s: f64, part_s: f64) {
        self.total_s += gap_s;
        self.failures += 1.0;
        self.checkpoints += count;
        self.checkpoint_s += count * checkpoint_s + part_s;
        self.lost_s += left_s - part_s;
    }

    /// Events replayed: failures and checkpoints.
    pub fn events(&self) -> f64 {
        self.checkpoints + self.failures
    }
}

/// How the next interval is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// One interval throughout.
    Constant(f64),
    /// Young's formula on an estimator's answer.
    Estimated(EstimatorKind),
    /// Daly's higher-order formula on the trace's mean.
    Daly,
    /// Hazard of a Weibull distribution of the given shape.
    Shape(f64),
    /// [`policy::adaptive`]; without parameters, those that suit the objective.
    Auto(Option<AdaptiveParameters>),
}

impl Rule {
    /// Names that [`Rule::named`] knows; it also takes [`Rule::FORMS`].
    pub const NAMES: [&'static str; 10] =
        ["young", "daly", "sma", "wma", "ema", "ar", "hazard", "hazard-dynamic", "hazard-shape", "auto"];

    /// Rules with a figure, for people.
    pub const FORMS: &'static str = "constant:SECONDS (above 0) and hazard-shape:SHAPE (0.1 to 10)";

    /// The rule of that name.
    pub fn named(name: &str) -> Result<Rule, Error> {
        match name {
            "young" => Ok(Rule::Estimated(EstimatorKind::Static)),
            "daly" => Ok(Rule::Daly),
            "auto" | "gamma-poisson" => Ok(Rule::Auto(None)),
            name => {
                let with_figure = |(rule, figure): (&str, &str)| match (rule, figure.parse::<f64>().ok()?) {
                    ("constant", interval_s) if interval_s.is_finite() && interval_s > 0.0 => {
                        Some(Rule::Constant(interval_s))
                    }
                    ("hazard-shape", shape) if (0.1..=10.0).contains(&shape) => Some(Rule::Shape(shape)),
                    _ => None,
                };
                let rule = name.parse().map(Rule::Estimated).ok();
                rule.or_else(|| name.split_once(':').and_then(with_figure))
                    .ok_or_else(|| Error::UnknownPolicy(name.to_owned()))
            }
        }
    }
}

/// Refuses what no machine has, and what would be replayed for hours.
fn check(trace: &Trace, model: &ElSayed) -> Result<(), Error> {
    let refuse = |parameter, value, range| Err(Invalid { parameter, value, range }.into());
    if !PRACTICAL_S.contains(&model.checkpoint_s) {
        return refuse("C", model.checkpoint_s, "0.001 to 1e12 s");
    }
    if !MEAN_GAP_S.contains(&model.mttf_s) {
        return refuse("mean gap", model.mttf_s, "1e-9 to 1e15 s");
    }
    if !PRACTICAL_RATIO.contains(&model.ratio) {
        return refuse("ratio", model.ratio, "1e-6 to 1e6");
    }
    let shortest_s = model.energy_interval_s().min(model.time_interval_s()) + model.checkpoint_s;
    if trace.gaps_s.len() as f64 * model.mttf_s > MOST_CHECKPOINTS * shortest_s {
        return refuse("C", model.checkpoint_s, "so long that the trace holds at most 1e9 checkpoints");
    }
    Ok(())
}

/// Replays a trace under a rule and an objective.
pub fn replay(trace: &Trace, rule: Rule, objective: Objective, setting: &Setting) -> Result<Outcome, Error> {
    let mean_s = trace.mean_s();
    let prior_s = setting.prior_s.unwrap_or(mean_s);
    let model = ElSayed { checkpoint_s: setting.checkpoint_s, mttf_s: mean_s, ratio: setting.ratio };
    check(trace, &model)?;
    let ratio = match objective {
        Objective::Energy => setting.ratio,
        Objective::Time => 1.0,
    };
    // What lost work really costs over checkpoint time; the published policies take the nominal ratio.
    let accounted = match objective {
        Objective::Energy => setting.ratio / CHECKPOINT_OVER_IDLE,
        Objective::Time => 1.0,
    };
    let limits = Limits::of(&model, setting, objective)?;
    let bounded = |d: f64, mttf_s: f64| limits.apply(d, mttf_s, setting.checkpoint_s);
    let worth_s = 2.0 * setting.checkpoint_s / ratio;
    let young = |mttf_s: f64| bounded((worth_s * mttf_s).sqrt(), mttf_s);
    Ok(match rule {
        Rule::Constant(d) => constant(trace, d, setting.checkpoint_s),
        Rule::Daly => {
            let d = daly_higher_order_interval_s(mean_s, setting.checkpoint_s) / ratio.sqrt();
            constant(trace, bounded(d, mean_s), setting.checkpoint_s)
        }
        Rule::Estimated(EstimatorKind::Static) => constant(trace, young(mean_s), setting.checkpoint_s),
        Rule::Shape(shape) => fixed_by_age(trace, &Estimator::with_shape(mean_s, shape), setting, young)?,
        Rule::Estimated(EstimatorKind::HazardShape) => {
            fixed_by_age(trace, &Estimator::new(EstimatorKind::HazardShape, prior_s), setting, young)?
        }
        Rule::Estimated(kind @ EstimatorKind::Hazard) => {
            fixed_by_age(trace, &Estimator::with_history(kind, prior_s, &trace.gaps_s), setting, young)?
        }
        Rule::Estimated(kind @ EstimatorKind::HazardDynamic) => {
            let mut estimator = Estimator::new(kind, prior_s);
            let mut outcome = Outcome::default();
            for gap_s in &trace.gaps_s {
                walk(&mut outcome, *gap_s, setting.checkpoint_s, |age_s| young(at_minute_s(&estimator, age_s)))?;
                estimator.observe_gap(*gap_s);
            }
            outcome
        }
        Rule::Estimated(kind) => {
            let mut estimator = Estimator::new(kind, prior_s);
            let mut outcome = Outcome::default();
            for gap_s in &trace.gaps_s {
                gap(&mut outcome, *gap_s, young(estimator.estimate_s(0.0)), setting.checkpoint_s);
                estimator.observe_gap(*gap_s);
            }
            outcome
        }
        Rule::Auto(parameters) => {
            let parameters = parameters.unwrap_or_else(|| AdaptiveParameters::for_objective(objective));
            // Never the trace's own mean, which a run could not know.
            let mut policy = Adaptive::new(parameters, setting.prior_s.unwrap_or(DAY_S), trace.local_start_s());
            let mut outcome = Outcome::default();
            for gap_s in &trace.gaps_s {
                let next = |age_s: f64| {
                    let (interval_s, mttf_s) = policy.pace(age_s, setting.checkpoint_s, accounted);
                    bounded(interval_s, mttf_s)
                };
                walk(&mut outcome, *gap_s, setting.checkpoint_s, next)?;
                policy.observe_gap(*gap_s);
            }
            outcome
        }
    })
}

/// The admissible range of intervals, relative to the estimate that they rest on.
struct Limits {
    runtime: Option<f64>,
    io_s: f64,
}

impl Limits {
    fn of(model: &ElSayed, setting: &Setting, objective: Objective) -> Result<Limits, Error> {
        let runtime = match (setting.runtime_bound, objective) {
            (Some(t), Objective::Energy) => Some(model.bound_interval_s(t)? / model.time_interval_s()),
            _ => None,
        };
        let io_s = match setting.io_bound {
            Some(b) if b > 0.0 && b <= 1.0 => setting.checkpoint_s / b - setting.checkpoint_s,
            Some(b) => return Err(Invalid { parameter: "io_bound", value: b, range: "> 0, <= 1" }.into()),
            None => 0.0,
        };
        Ok(Limits { runtime, io_s })
    }

    fn apply(&self, interval_s: f64, mttf_s: f64, checkpoint_s: f64) -> f64 {
        let floor_s = self.runtime.map_or(0.0, |share| share * (2.0 * checkpoint_s * mttf_s).sqrt());
        interval_s.max(floor_s).max(self.io_s).max(1e-3)
    }
}

pub(crate) fn constant(trace: &Trace, interval_s: f64, checkpoint_s: f64) -> Outcome {
    let mut outcome = Outcome::default();
    for gap_s in &trace.gaps_s {
        gap(&mut outcome, *gap_s, interval_s, checkpoint_s);
    }
    outcome
}

/// One gap with one interval, in closed form.
pub(crate) fn gap(outcome: &mut Outcome, gap_s: f64, interval_s: f64, checkpoint_s: f64) {
    let period_s = interval_s + checkpoint_s;
    let count = ((gap_s / period_s).ceil() - 1.0).max(0.0);
    let left_s = gap_s - count * period_s;
    outcome.add(gap_s, count, checkpoint_s, left_s, (left_s - interval_s).max(0.0));
}

/// One gap with an interval for each age.
fn walk(outcome: &mut Outcome, gap_s: f64, checkpoint_s: f64, next: impl Fn(f64) -> f64) -> Result<(), Error> {
    let mut age_s = 0.0;
    for count in 0..=LONGEST_SCHEDULE {
        let interval_s = next(age_s);
        let end_s = age_s + interval_s + checkpoint_s;
        if end_s >= gap_s {
            let left_s = gap_s - age_s;
            outcome.add(gap_s, count as f64, checkpoint_s, left_s, (left_s - interval_s).max(0.0));
            return Ok(());
        }
        age_s = end_s;
    }
    Err(too_many(checkpoint_s))
}

/// ElSayed14's table has one entry for each whole minute since the last failure.
fn at_minute_s(estimator: &Estimator, age_s: f64) -> f64 {
    // A call of `round` takes as long as the rest.
    estimator.estimate_s(((age_s / 60.0 + 0.5) as u64) as f64 * 60.0)
}

/// A rule that looks at nothing but the age: the schedule is made once, as far as the longest gap reaches.
fn fixed_by_age(
    trace: &Trace,
    estimator: &Estimator,
    setting: &Setting,
    young: impl Fn(f64) -> f64,
) -> Result<Outcome, Error> {
    let longest_s = trace.gaps_s.iter().copied().fold(0.0, f64::max);
    let next = |age_s: f64| young(at_minute_s(estimator, age_s));
    Ok(Schedule::by_age(longest_s, setting.checkpoint_s, next)?.replay(trace))
}
