//! Corrects the plan during the run: measured checkpoint cost, failures of this run, powers seen.

use options::{Engine as EngineName, Objective, Settings};
use policy::interval::{Bounds, Costs, choose_interval};
use policy::mtbf::{Estimator, EstimatorKind};
use protocol::Plan;

/// Weight of a new measurement in the moving averages.
const WEIGHT: f64 = 0.3;

/// A change of the interval below this share is not worth a new decision.
const NOTABLE_CHANGE: f64 = 0.05;

/// What the driver believes now, and the interval that follows from it.
#[derive(Debug)]
pub struct Adaptation {
    objective: policy::interval::Objective,
    bounds: Bounds,
    costs: Costs,
    measured_cost: bool,
    mtbf: Estimator,
    last_failure_s: f64,
    fixed_s: Option<f64>,
    interval_s: f64,
}

impl Adaptation {
    /// Starts from the plan.
    pub fn new(now_s: f64, settings: &Settings, plan: &Plan) -> Adaptation {
        let kind = match plan.policy.as_str() {
            "young" | "daly" => EstimatorKind::Static,
            name => name.parse().unwrap_or(EstimatorKind::Ema),
        };
        let objective = match settings.objective {
            Some(Objective::Time) => policy::interval::Objective::Time,
            _ => policy::interval::Objective::Energy,
        };
        let bounds =
            Bounds { runtime: settings.bounds.runtime, io: settings.bounds.io, energy: settings.bounds.energy };
        let costs = Costs {
            checkpoint_s: plan.checkpoint_s.value,
            restart_s: plan.restart_s.value,
            down_s: 0.0,
            overlap: 0.0,
            static_w: plan.idle_w.value,
            compute_w: (plan.busy_w.value - plan.idle_w.value).max(0.0),
            checkpoint_w: (plan.checkpoint_w.value - plan.idle_w.value).max(0.0),
            down_w: 0.0,
        };
        Adaptation {
            objective,
            bounds,
            costs,
            measured_cost: false,
            mtbf: Estimator::new(kind, plan.mtbf_s.value),
            last_failure_s: now_s,
            fixed_s: plan.interval_fixed.then_some(plan.interval_s),
            interval_s: plan.interval_s,
        }
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

    /// MTBF of the allocation as estimated now, s.
    pub fn mtbf_s(&self, now_s: f64) -> f64 {
        self.mtbf.estimate_s(now_s - self.last_failure_s)
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
        self.mtbf.observe_gap(at_s - self.last_failure_s);
        self.last_failure_s = at_s;
        self.choose(now_s)
    }

    /// Chooses the interval anew; the reason is told if it changed notably.
    fn choose(&mut self, now_s: f64) -> Option<String> {
        if self.fixed_s.is_some() {
            return None;
        }
        let choice = choose_interval(self.objective, self.mtbf_s(now_s), &self.costs, &self.bounds).ok()?;
        let before_s = self.interval_s;
        if !(choice.interval_s.is_finite() && choice.interval_s > 0.0) {
            return None;
        }
        if (choice.interval_s - before_s).abs() < NOTABLE_CHANGE * before_s {
            return None;
        }
        self.interval_s = choice.interval_s;
        Some(format!("checkpoint interval {before_s:.1} s -> {:.1} s: {}", choice.interval_s, choice.reason))
    }
}

/// The engine that a request and a site mean together, and why.
pub fn choose_engine(settings: &Settings, hook: bool) -> (Option<EngineName>, &'static str) {
    match settings.engine {
        Some(engine) => (Some(engine), "asked for"),
        None if !settings.done.is_empty() || settings.signal.is_some() => {
            (Some(EngineName::App), "the job says how its program checkpoints")
        }
        None if hook => (Some(EngineName::Hook), "checkpoint commands are configured"),
        None => (None, "nothing says how the program checkpoints"),
    }
}
