//! Chooses the checkpoint interval for time or for energy, within the user's bounds, and says why.
//!
//! The optimum is Aupy15's (exact power model, [`crate::periods`]); where that first-order model has no solution,
//! the exact renewal model of [`crate::memoryless`] takes its place and the reason says so. The bounds are those of
//! ElSayed14, kept on the same model as the optimum:
//!
//! - **runtime bound t**: expected wasted time at most (1 + t) times that of the time-optimal interval. Without
//!   restart cost, down time and overlap, and for rare failures, the admissible range is ElSayed14's
//!   `Delta_bound ..= Delta_R^2 / Delta_bound`. As wasted time is a part of the run, the run itself then never
//!   lasts more than (1 + t) times the time-optimal run either.
//! - **I/O bound b**: the checkpoint takes at most b of each period, C / (interval + C) <= b (ElSayed14 eq. 6).
//! - **energy bound e**: expected energy at most (1 + e) times that of the energy-optimal interval.
//!
//! Two more look at the interval alone, whatever is expected of the nodes, and are ours:
//!
//! - **largest loss**: what a failure takes at most, the interval and the checkpoint that was not complete yet. The
//!   interval is never below the checkpoint's duration for that.
//! - **longest interval**: what a site lets runs have that say nothing; the other bounds win over it, and it never asks
//!   for more than a ninth of the time.
//!
//! Bounds that cannot all hold are served in the order largest loss, runtime, I/O, energy: what the user was promised
//! first; then the interval is the one that keeps the earlier bounds and comes nearest to the later one, and the choice is
//! flagged [`Limit::Conflict`].

use crate::invalid::{Invalid, fraction, non_negative, positive, require};
use crate::memoryless;
use crate::periods::Aupy;
use crate::phrase::{duration, percent};

/// The longest MTBF, and the longest single cost, that is accepted: a million years and a year.
const LONGEST_MTBF_S: f64 = 3.2e13;
const LONGEST_COST_S: f64 = 3.2e7;

/// So many times its cost must lie between two checkpoints for which only the site's longest interval asks: they take a
/// ninth of the time at most.
const AFFORDABLE: f64 = 8.0;

/// What the interval is to minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Expected energy.
    Energy,
    /// Expected time.
    Time,
}

/// Bounds on what the objective may cost elsewhere; fractions: 0.10 is ten per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Wasted time over the least wasted time, minus one.
    pub runtime: Option<f64>,
    /// Share of each period that the checkpoint takes.
    pub io: Option<f64>,
    /// Energy over the least energy, minus one.
    pub energy: Option<f64>,
    /// Work that a failure may cost, s.
    pub loss_s: Option<f64>,
    /// The longest interval, where no other bound asks for a longer one, s.
    pub longest_s: Option<f64>,
}

/// Durations and powers of a checkpointed run. The last three powers are overheads over `static_w`, as in Aupy15.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Duration of a checkpoint, C.
    pub checkpoint_s: f64,
    /// Duration of a restart, R.
    pub restart_s: f64,
    /// Down time after a failure, D.
    pub down_s: f64,
    /// Share of the work speed that goes on during a checkpoint, omega.
    pub overlap: f64,
    /// Power of the idle nodes.
    pub static_w: f64,
    /// Overhead of computing.
    pub compute_w: f64,
    /// Overhead of checkpoint I/O.
    pub checkpoint_w: f64,
    /// Overhead while down.
    pub down_w: f64,
}

/// Expected overheads against a run without failures and checkpoints, as fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Duration over the failure-free, checkpoint-free duration, minus one.
    pub time_overhead: f64,
    /// Energy over the failure-free, checkpoint-free energy, minus one.
    pub energy_overhead: f64,
    /// Share of each period that the checkpoint takes.
    pub io_share: f64,
}

/// What kept the interval from its optimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The runtime bound.
    RuntimeBound,
    /// The I/O bound.
    IoBound,
    /// The energy bound.
    EnergyBound,
    /// What a failure may cost.
    LargestLoss,
    /// The site's longest interval.
    LongestInterval,
    /// The optimum would be shorter than a checkpoint.
    CheckpointCost,
    /// The bounds exclude each other.
    Conflict,
}

/// The chosen interval, what is expected of it, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Time between the end of a checkpoint and the start of the next, excluding C.
    pub interval_s: f64,
    /// The objective's optimum before any bound.
    pub optimum_s: f64,
    /// What moved the interval away from the optimum.
    pub limited_by: Option<Limit>,
    /// Expectation at the chosen interval.
    pub expected: Expected,
    /// Expectation at the other objective's optimum, without bounds.
    pub expected_alternative: Expected,
    /// Short sentences with figures and units.
    pub reason: String,
}

/// What choosing an interval needs to know of a run under a protocol.
pub(crate) trait Expectation {
    /// Duration of a checkpoint.
    fn checkpoint_s(&self) -> f64;
    /// The shortest interval that is ever chosen.
    fn floor(&self) -> f64;
    /// The longest interval for which the expectation holds.
    fn ceiling(&self) -> f64;
    /// The interval of least expected time.
    fn time_optimum(&self) -> f64;
    /// The interval of least expected energy.
    fn energy_optimum(&self) -> f64;
    /// The shortest interval of which the checkpoint takes at most the share `io`.
    fn io_edge(&self, io: f64) -> f64;
    /// What is expected of an interval.
    fn expect(&self, interval_s: f64) -> Expected;
}

/// The model that expectations come from.
enum Model<'a> {
    FirstOrder(Aupy),
    Renewal { mtbf_s: f64, costs: &'a Costs },
}

/// Chooses the interval that minimises the objective within the bounds.
pub fn choose_interval(objective: Objective, mtbf_s: f64, costs: &Costs, bounds: &Bounds) -> Result<Choice, Invalid> {
    choose(objective, None, mtbf_s, costs, bounds)
}

/// The same for an interval that a policy wants instead of the model's optimum: only the bounds move it.
pub fn bound_interval(
    objective: Objective,
    wanted_s: f64,
    mtbf_s: f64,
    costs: &Costs,
    bounds: &Bounds,
) -> Result<Choice, Invalid> {
    positive("interval_s", wanted_s)?;
    choose(objective, Some(wanted_s), mtbf_s, costs, bounds)
}

fn choose(
    objective: Objective,
    wanted_s: Option<f64>,
    mtbf_s: f64,
    costs: &Costs,
    bounds: &Bounds,
) -> Result<Choice, Invalid> {
    check(mtbf_s, costs, bounds)?;
    let model = Model::of(mtbf_s, costs);
    let mut choice = choose_on(&model, objective, wanted_s, bounds);
    choice.reason = reason(objective, mtbf_s, costs, bounds, &choice, &model);
    Ok(choice)
}

/// [`choose_interval`] and [`bound_interval`] on any expectation, without the reason.
pub(crate) fn choose_on(
    model: &impl Expectation,
    objective: Objective,
    wanted_s: Option<f64>,
    bounds: &Bounds,
) -> Choice {
    let (time_opt, energy_opt) = (model.time_optimum(), model.energy_optimum());
    let (optimum_s, other_s) = match objective {
        Objective::Energy => (energy_opt, time_opt),
        Objective::Time => (time_opt, energy_opt),
    };
    let optimum_s = wanted_s.unwrap_or(optimum_s);
    let allowed = admissible(model, bounds, time_opt, energy_opt);
    let interval_s = optimum_s.max(allowed.low).min(allowed.high);
    let moved = if interval_s > optimum_s { allowed.low_by } else { allowed.high_by };
    let limited_by = if allowed.conflict {
        Some(Limit::Conflict)
    } else if (interval_s - optimum_s).abs() > 1e-9 * optimum_s {
        moved
    } else if interval_s <= model.floor() {
        Some(Limit::CheckpointCost)
    } else {
        None
    };
    Choice {
        interval_s,
        optimum_s,
        limited_by,
        expected: model.expect(interval_s),
        expected_alternative: model.expect(other_s),
        reason: String::new(),
    }
}

/// What is expected of an interval that somebody else chose.
///
/// # Errors
/// [`Invalid`] names the parameter, its value and the valid range.
pub fn expected_at(interval_s: f64, mtbf_s: f64, costs: &Costs) -> Result<Expected, Invalid> {
    check(mtbf_s, costs, &Bounds::default())?;
    positive("interval_s", interval_s)?;
    let expected = match Model::of(mtbf_s, costs) {
        // Beyond its domain the expansion says nothing.
        Model::FirstOrder(aupy) if interval_s + costs.checkpoint_s >= EDGE * aupy.upper_limit_s() => {
            Model::Renewal { mtbf_s, costs }.expect(interval_s)
        }
        model => model.expect(interval_s),
    };
    Ok(expected)
}

/// How near the first-order expansion may come to the limit of its domain.
const EDGE: f64 = 0.999;

fn check(mtbf_s: f64, costs: &Costs, bounds: &Bounds) -> Result<(), Invalid> {
    let cost = |name, value: f64| require((0.0..=LONGEST_COST_S).contains(&value), name, value, "0 to 3.2e7 s");
    require((1e-3..=LONGEST_MTBF_S).contains(&mtbf_s), "mtbf_s", mtbf_s, "0.001 to 3.2e13 s")?;
    require(costs.checkpoint_s >= 1e-6, "checkpoint_s", costs.checkpoint_s, "1e-6 to 3.2e7 s")?;
    cost("checkpoint_s", costs.checkpoint_s)?;
    cost("restart_s", costs.restart_s)?;
    cost("down_s", costs.down_s)?;
    fraction("overlap", costs.overlap)?;
    positive("static_w", costs.static_w)?;
    for (name, value) in
        [("compute_w", costs.compute_w), ("checkpoint_w", costs.checkpoint_w), ("down_w", costs.down_w)]
    {
        non_negative(name, value)?;
        require(value <= 1e6 * costs.static_w, name, value, "at most 1e6 times static_w")?;
    }
    if let Some(t) = bounds.runtime {
        non_negative("runtime bound", t)?;
    }
    if let Some(b) = bounds.io {
        require(b > 0.0 && b <= 1.0, "io bound", b, "> 0, <= 1")?;
    }
    if let Some(e) = bounds.energy {
        non_negative("energy bound", e)?;
    }
    for (name, value) in [("largest loss", bounds.loss_s), ("longest interval", bounds.longest_s)] {
        value.map_or(Ok(()), |s| require(s > 0.0 && s.is_finite(), name, s, "> 0 s"))?;
    }
    Ok(())
}

/// A range of intervals, and which bound made each end.
struct Admissible {
    low: f64,
    high: f64,
    low_by: Option<Limit>,
    high_by: Option<Limit>,
    conflict: bool,
}

impl Admissible {
    /// Narrows the range; where nothing is left, keeps the end that is nearest to `[low, high]`.
    fn narrow(&mut self, low: f64, high: f64, by: Limit) {
        if low > self.high {
            self.low = self.high;
            self.conflict = true;
        } else if high < self.low {
            self.high = self.low;
            self.conflict = true;
        } else {
            if low > self.low {
                (self.low, self.low_by) = (low, Some(by));
            }
            if high < self.high {
                (self.high, self.high_by) = (high, Some(by));
            }
        }
    }
}

impl Model<'_> {
    fn of(mtbf_s: f64, costs: &Costs) -> Model<'_> {
        let aupy = Aupy {
            mtbf_s,
            checkpoint_s: costs.checkpoint_s,
            restart_s: costs.restart_s,
            down_s: costs.down_s,
            overlap: costs.overlap,
            static_w: costs.static_w,
            compute_w: costs.compute_w,
            io_w: costs.checkpoint_w,
            down_w: costs.down_w,
            base_s: 1.0,
        };
        // The root must leave work in the period: at the very edge of the domain the expansion is worthless.
        let usable = |t: Option<f64>| t.is_some_and(|t| t > aupy.a() && t < EDGE * aupy.upper_limit_s());
        if usable(aupy.time_period_s()) && usable(aupy.energy_period_s()) {
            Model::FirstOrder(aupy)
        } else {
            Model::Renewal { mtbf_s, costs }
        }
    }
}

impl Expectation for Model<'_> {
    fn checkpoint_s(&self) -> f64 {
        match self {
            Model::FirstOrder(aupy) => aupy.checkpoint_s,
            Model::Renewal { costs, .. } => costs.checkpoint_s,
        }
    }

    /// A thousandth of a checkpoint.
    fn floor(&self) -> f64 {
        1e-3 * self.checkpoint_s()
    }

    fn ceiling(&self) -> f64 {
        match self {
            Model::FirstOrder(aupy) => aupy.upper_limit_s() * (1.0 - 1e-9) - aupy.checkpoint_s,
            Model::Renewal { mtbf_s, costs } => 1e3 * mtbf_s.max(costs.checkpoint_s),
        }
    }

    fn time_optimum(&self) -> f64 {
        let work = match self {
            Model::FirstOrder(aupy) => aupy.time_period_unclamped_s() - aupy.checkpoint_s,
            Model::Renewal { mtbf_s, costs } => memoryless::time_work_s(*mtbf_s, costs.checkpoint_s),
        };
        work.max(self.floor())
    }

    fn energy_optimum(&self) -> f64 {
        let work = match self {
            Model::FirstOrder(aupy) => {
                aupy.energy_period_unclamped_s().unwrap_or(aupy.checkpoint_s) - aupy.checkpoint_s
            }
            Model::Renewal { mtbf_s, costs } => memoryless::energy_work_s(*mtbf_s, costs),
        };
        work.max(self.floor())
    }

    fn io_edge(&self, io: f64) -> f64 {
        self.checkpoint_s() / io - self.checkpoint_s()
    }

    fn expect(&self, interval_s: f64) -> Expected {
        let c = self.checkpoint_s();
        let io_share = c / (interval_s + c);
        let (time, energy, base_w) = match self {
            Model::FirstOrder(aupy) => {
                let e = aupy.evaluate(interval_s + c);
                (e.final_s, e.energy_j, aupy.static_w + aupy.compute_w)
            }
            Model::Renewal { mtbf_s, costs } => {
                let r = memoryless::evaluate(*mtbf_s, costs, interval_s);
                (r.time, r.energy_j, costs.static_w + costs.compute_w)
            }
        };
        Expected { time_overhead: time - 1.0, energy_overhead: energy / base_w - 1.0, io_share }
    }
}

/// The intervals that keep the bounds, or as many of them as can be kept, in the order of precedence.
fn admissible(model: &impl Expectation, bounds: &Bounds, time_opt: f64, energy_opt: f64) -> Admissible {
    let (floor, ceiling) = (model.floor(), model.ceiling().max(time_opt).max(energy_opt));
    let mut allowed = Admissible { low: floor, high: ceiling, low_by: None, high_by: None, conflict: false };
    if let Some(loss_s) = bounds.loss_s {
        let cost_s = model.checkpoint_s();
        allowed.narrow(0.0, (loss_s - cost_s).max(cost_s).max(floor), Limit::LargestLoss);
    }
    if let Some(t) = bounds.runtime {
        let target = (1.0 + t) * model.expect(time_opt).time_overhead;
        let within = |x: f64| model.expect(x).time_overhead <= target;
        let (low, high) = (edge(time_opt, floor, within), edge(time_opt, ceiling, within));
        allowed.narrow(low, high, Limit::RuntimeBound);
    }
    if let Some(b) = bounds.io {
        allowed.narrow(model.io_edge(b), f64::INFINITY, Limit::IoBound);
    }
    if let Some(e) = bounds.energy {
        let target = (1.0 + e) * (1.0 + model.expect(energy_opt).energy_overhead) - 1.0;
        let within = |x: f64| model.expect(x).energy_overhead <= target;
        let (low, high) = (edge(energy_opt, floor, within), edge(energy_opt, ceiling, within));
        allowed.narrow(low, high, Limit::EnergyBound);
    }
    if let Some(longest_s) = bounds.longest_s {
        let affordable_s = AFFORDABLE * model.checkpoint_s();
        allowed.narrow(0.0, longest_s.max(affordable_s).max(allowed.low), Limit::LongestInterval);
    }
    allowed
}

/// The interval furthest from `inside` towards `outside` for which `within` holds, for a range that holds at
/// `inside` and fails at most once on the way; `inside` itself is the answer where nothing further holds.
fn edge(inside: f64, outside: f64, within: impl Fn(f64) -> bool) -> f64 {
    if within(outside) {
        return outside;
    }
    let (mut good, mut bad) = (inside, outside);
    for _ in 0..200 {
        let x = 0.5 * (good + bad);
        if within(x) {
            good = x;
        } else {
            bad = x;
        }
    }
    good
}

fn reason(
    objective: Objective,
    mtbf_s: f64,
    costs: &Costs,
    bounds: &Bounds,
    choice: &Choice,
    model: &Model<'_>,
) -> String {
    let aim = match objective {
        Objective::Energy => "energy",
        Objective::Time => "time",
    };
    let mut text = format!(
        "interval {} for {aim}: MTBF {}, checkpoint {}, optimum {}",
        duration(choice.interval_s),
        duration(mtbf_s),
        duration(costs.checkpoint_s),
        duration(choice.optimum_s)
    );
    let of = |bound: Option<f64>| percent(bound.unwrap_or(0.0));
    match choice.limited_by {
        None => text.push('.'),
        Some(Limit::RuntimeBound) => {
            text += &format!(", limited by the runtime bound of {}.", of(bounds.runtime));
        }
        Some(Limit::IoBound) => text += &format!(", limited by the I/O bound of {}.", of(bounds.io)),
        Some(Limit::EnergyBound) => text += &format!(", limited by the energy bound of {}.", of(bounds.energy)),
        Some(Limit::LargestLoss) => {
            let (loss_s, cost_s) = (bounds.loss_s.unwrap_or(0.0), choice.interval_s + costs.checkpoint_s);
            text += &match cost_s <= loss_s * (1.0 + 1e-9) {
                true => format!(", shortened so that a failure costs {} at most.", duration(loss_s)),
                false => format!(
                    ", as short as a checkpoint is: a failure costs {}, more than the {} that were asked for.",
                    duration(cost_s),
                    duration(loss_s)
                ),
            };
        }
        Some(Limit::LongestInterval) => {
            text += ", shortened to the longest that the site lets a run of this walltime have.";
        }
        Some(Limit::CheckpointCost) => {
            text += "; the optimum is not longer than a checkpoint, so they follow each other."
        }
        Some(Limit::Conflict) => text += &conflict(bounds, choice),
    }
    if matches!(model, Model::Renewal { .. }) {
        text += &format!(
            " The MTBF of {} is too short for the first-order model (checkpoint {}, restart {}, down {}); the exact \
             renewal model was used, and most of the time is expected to be lost.",
            duration(mtbf_s),
            duration(costs.checkpoint_s),
            duration(costs.restart_s),
            duration(costs.down_s)
        );
    }
    text += &format!(
        " Expected overhead: time {}, energy {}, I/O {} (at the other objective's optimum: time {}, energy {}).",
        percent(choice.expected.time_overhead),
        percent(choice.expected.energy_overhead),
        percent(choice.expected.io_share),
        percent(choice.expected_alternative.time_overhead),
        percent(choice.expected_alternative.energy_overhead)
    );
    text
}

fn conflict(bounds: &Bounds, choice: &Choice) -> String {
    let mut kept = Vec::new();
    if let Some(loss_s) = bounds.loss_s {
        kept.push(format!("largest loss of {}", duration(loss_s)));
    }
    if let Some(t) = bounds.runtime {
        kept.push(format!("runtime bound of {}", percent(t)));
    }
    if let Some(b) = bounds.io {
        kept.push(format!("I/O bound of {}", percent(b)));
    }
    if let Some(e) = bounds.energy {
        kept.push(format!("energy bound of {}", percent(e)));
    }
    format!(
        "; the {} exclude each other, and are served in this order; the I/O share is {}.",
        kept.join(", "),
        percent(choice.expected.io_share)
    )
}
