//! Corrects the plan during the run: measured checkpoint cost, failures of this run, powers seen.

use options::{Objective, Settings};
use planner::cap;
use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::interval::{Bounds, Costs, choose_interval};
use policy::mtbf::{Estimator, EstimatorKind};
use protocol::Plan;

/// Weight of a new measurement in the moving averages.
const WEIGHT: f64 = 0.3;

/// A change of the interval below this share is not worth a word.
const NOTABLE_CHANGE: f64 = 0.05;

/// What the failures seen are asked.
#[derive(Debug)]
enum Estimate {
    Auto(Box<Adaptive>),
    Named(Estimator),
}

impl Estimate {
    fn observe_gap(&mut self, gap_s: f64) {
        match self {
            Estimate::Auto(policy) => policy.observe_gap(gap_s),
            Estimate::Named(estimator) => estimator.observe_gap(gap_s),
        }
    }
}

/// What the driver believes now, and the interval that follows from it.
#[derive(Debug)]
pub struct Adaptation {
    objective: policy::interval::Objective,
    bounds: Bounds,
    costs: Costs,
    measured_cost: bool,
    estimate: Estimate,
    last_failure_s: f64,
    fixed_s: Option<f64>,
    interval_s: f64,
}

impl Adaptation {
    /// Starts from the plan; `local_s` is `now_s` on the clock on the wall.
    pub fn new(now_s: f64, local_s: f64, settings: &Settings, plan: &Plan) -> Adaptation {
        let objective = match settings.objective {
            Some(Objective::Time) => policy::interval::Objective::Time,
            _ => policy::interval::Objective::Energy,
        };
        let bounds = cap::bounds(settings, plan.longest_interval_s);
        let costs = Costs {
            checkpoint_s: plan.checkpoint_s.value,
            restart_s: plan.restart_s.value,
            down_s: 0.0,
            overlap: 0.0,
            static_w: plan.idle_w.value,
            compute_w: (plan.busy_w.value - plan.idle_w.value).max(0.0),
            checkpoint_w: (planner::checkpoint_power_w(plan) - plan.idle_w.value).max(0.0),
            down_w: 0.0,
        };
        let named = |kind| (Estimate::Named(Estimator::new(kind, plan.mtbf_s.value)), now_s);
        let auto = || {
            let parameters = AdaptiveParameters::for_objective(objective);
            let (policy, last_s) = match &plan.past {
                Some(past) => Adaptive::with_past(parameters, &planner::past::lived(past), now_s, Some(local_s)),
                None => (Adaptive::new(parameters, plan.mtbf_s.value, Some(local_s)), now_s),
            };
            (Estimate::Auto(Box::new(policy)), last_s)
        };
        let (estimate, last_failure_s) = match plan.policy.as_str() {
            "young" | "daly" => named(EstimatorKind::Static),
            name => name.parse().map_or_else(|_| auto(), named),
        };
        let mut adaptation = Adaptation {
            objective,
            bounds,
            costs,
            measured_cost: false,
            estimate,
            last_failure_s,
            fixed_s: plan.interval_fixed.then_some(plan.interval_s),
            interval_s: plan.interval_s,
        };
        // What the plan says is what is done, until something is learnt. A plan that was made by an older controller, or
        // without a start, knew no calendar.
        if matches!(adaptation.estimate, Estimate::Auto(_)) && plan.local_s.is_none() {
            adaptation.choose(now_s);
        }
        adaptation
    }

    /// Work between checkpoints, s.
    pub fn interval_s(&self) -> f64 {
        self.interval_s
    }

    /// Expected duration of a checkpoint, s.
    pub fn checkpoint_s(&self) -> f64 {
        self.costs.checkpoint_s
    }

    /// Expected duration of a restart, s.
    pub fn restart_s(&self) -> f64 {
        self.costs.restart_s
    }

    /// MTBF of the allocation over the coming period as estimated now, s.
    pub fn mtbf_s(&self, now_s: f64) -> f64 {
        let age_s = now_s - self.last_failure_s;
        match &self.estimate {
            Estimate::Auto(policy) => policy.mtbf_s(age_s, self.objective, &self.costs),
            Estimate::Named(estimator) => estimator.estimate_s(age_s),
        }
    }

    /// Takes in a measured checkpoint; the first one replaces the estimate, later ones are averaged in.
    pub fn checkpointed(&mut self, now_s: f64, seconds: f64, power_w: Option<f64>) -> Option<String> {
        if seconds.is_finite() && seconds > 0.0 {
            let weight = if self.measured_cost { WEIGHT } else { 1.0 };
            self.costs.checkpoint_s += weight * (seconds - self.costs.checkpoint_s);
            self.measured_cost = true;
        }
        if let Some(w) = power_w.filter(|w| w.is_finite() && *w > 0.0) {
            let over = (w - self.costs.static_w).max(0.0);
            self.costs.checkpoint_w += WEIGHT * (over - self.costs.checkpoint_w);
        }
        self.choose(now_s)
    }

    /// Takes in the power of computing, W for each node.
    pub fn computed(&mut self, power_w: f64) {
        if power_w.is_finite() && power_w > 0.0 {
            let over = (power_w - self.costs.static_w).max(0.0);
            self.costs.compute_w += WEIGHT * (over - self.costs.compute_w);
        }
    }

    /// Takes in a true failure.
    pub fn failed(&mut self, at_s: f64, now_s: f64) -> Option<String> {
        self.estimate.observe_gap(at_s - self.last_failure_s);
        self.last_failure_s = at_s;
        self.choose(now_s)
    }

    /// Chooses the interval anew; the reason is told if it changed notably.
    fn choose(&mut self, now_s: f64) -> Option<String> {
        if self.fixed_s.is_some() {
            return None;
        }
        let age_s = now_s - self.last_failure_s;
        let choice = match &self.estimate {
            Estimate::Auto(policy) => policy.choose(age_s, self.objective, &self.costs, &self.bounds),
            Estimate::Named(e) => choose_interval(self.objective, e.estimate_s(age_s), &self.costs, &self.bounds),
        };
        let choice = choice.ok().filter(|c| c.interval_s.is_finite() && c.interval_s > 0.0)?;
        let before_s = std::mem::replace(&mut self.interval_s, choice.interval_s);
        let notable = (choice.interval_s - before_s).abs() >= NOTABLE_CHANGE * before_s;
        notable.then(|| format!("checkpoint interval {before_s:.1} s -> {:.1} s: {}", choice.interval_s, choice.reason))
    }
}
