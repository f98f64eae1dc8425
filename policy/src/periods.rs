//! Finds checkpoint periods that minimise time or energy (Aupy15 §1.2, Young, Daly, Meneses).
//!
//! A period `T` includes the checkpoint: it runs from the start of one checkpoint to the start of the next.
//! Errata of the paper (numbered as in docs/models.md): A1 the last printed quadratic lacks alpha twice and holds
//! only for alpha = 1 ([`Aupy::printed_energy_period_s`] keeps it, to compare); A2 signs in the lines before it;
//! A3 "the only positive root" is false, but exactly one root lies in (a, 2 mu b).

use crate::invalid::{Invalid, fraction, non_negative, positive};
use crate::memoryless::golden_section;

/// Parameters of Aupy15 §1.2. Powers of compute, I/O and down time are overheads over `static_w`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aupy {
    /// Platform mean time between failures, mu > 0.
    pub mtbf_s: f64,
    /// Checkpoint duration, C > 0.
    pub checkpoint_s: f64,
    /// Restart (recovery) duration, R >= 0.
    pub restart_s: f64,
    /// Down time, D >= 0.
    pub down_s: f64,
    /// Share of the work speed that goes on during a checkpoint, omega in [0, 1].
    pub overlap: f64,
    /// P_static > 0, drawn all the time.
    pub static_w: f64,
    /// P_cal >= 0, drawn on top while computing.
    pub compute_w: f64,
    /// P_io >= 0, drawn on top while checkpointing and recovering.
    pub io_w: f64,
    /// P_down >= 0, drawn on top while down.
    pub down_w: f64,
    /// Failure-free, checkpoint-free duration, T_base > 0.
    pub base_s: f64,
}

/// A quadratic `q2 T^2 + q1 T + q0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quadratic {
    /// Coefficient of the square.
    pub q2: f64,
    /// Coefficient of the linear term.
    pub q1: f64,
    /// Constant.
    pub q0: f64,
}

impl Quadratic {
    /// Real roots in ascending order, without cancellation; a degenerate quadratic gives its linear root.
    pub fn roots(&self) -> Vec<f64> {
        let Quadratic { q2, q1, q0 } = *self;
        if q2 == 0.0 {
            return if q1 == 0.0 { Vec::new() } else { vec![-q0 / q1] };
        }
        let disc = q1 * q1 - 4.0 * q2 * q0;
        if disc.is_nan() || disc < 0.0 {
            return Vec::new();
        }
        let q = -0.5 * (q1 + disc.sqrt().copysign(q1));
        if q == 0.0 {
            return vec![0.0, 0.0];
        }
        let (x, y) = (q / q2, q0 / q);
        if x <= y { vec![x, y] } else { vec![y, x] }
    }
}

/// What Aupy15's first-order model expects of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The period, checkpoint included.
    pub period_s: f64,
    /// Whether the period lies in the domain (a, 2 mu b) with b > 0.
    pub valid: bool,
    /// Whether the period holds a whole checkpoint.
    pub period_ge_checkpoint: bool,
    /// Duration with checkpoints and without failures.
    pub failure_free_s: f64,
    /// Expected duration.
    pub final_s: f64,
    /// Expected duration that failures add.
    pub failures_s: f64,
    /// Share of the expected duration that is not `base_s`.
    pub waste: f64,
    /// Expected number of failures.
    pub failures: f64,
    /// Number of checkpoints of the failure-free run.
    pub checkpoints: f64,
    /// Time that one failure costs, down time and restart included.
    pub lost_per_failure_s: f64,
    /// Time computed again after one failure.
    pub reexecution_per_failure_s: f64,
    /// Time at compute power.
    pub compute_s: f64,
    /// Time at I/O power.
    pub io_s: f64,
    /// Down time.
    pub down_s: f64,
    /// Expected energy.
    pub energy_j: f64,
}

impl Aupy {
    /// Refuses parameters for which no formula of the paper has a meaning.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("mu", self.mtbf_s)?;
        positive("C", self.checkpoint_s)?;
        non_negative("R", self.restart_s)?;
        non_negative("D", self.down_s)?;
        fraction("omega", self.overlap)?;
        positive("P_static", self.static_w)?;
        non_negative("P_cal", self.compute_w)?;
        non_negative("P_io", self.io_w)?;
        non_negative("P_down", self.down_w)?;
        positive("T_base", self.base_s)?;
        Ok(())
    }

    /// a = (1 - omega) C: the work that one checkpoint costs.
    pub fn a(&self) -> f64 {
        (1.0 - self.overlap) * self.checkpoint_s
    }

    /// b = 1 - (D + R + omega C) / mu: the share of the time that is left after each failure's fixed cost.
    pub fn b(&self) -> f64 {
        1.0 - (self.down_s + self.restart_s + self.overlap * self.checkpoint_s) / self.mtbf_s
    }

    /// P_cal / P_static.
    pub fn alpha(&self) -> f64 {
        self.compute_w / self.static_w
    }

    /// P_io / P_static.
    pub fn beta(&self) -> f64 {
        self.io_w / self.static_w
    }

    /// P_down / P_static.
    pub fn gamma(&self) -> f64 {
        self.down_w / self.static_w
    }

    /// (1 + beta) / (1 + alpha): power of I/O over power of computing.
    pub fn rho(&self) -> f64 {
        (1.0 + self.beta()) / (1.0 + self.alpha())
    }

    /// 2 mu b: at longer periods the model has the run never end.
    pub fn upper_limit_s(&self) -> f64 {
        2.0 * self.mtbf_s * self.b()
    }

    /// Whether some period holds a checkpoint and lets the run end: where 2 mu b is C but for the rounding, none does.
    pub fn feasible(&self) -> bool {
        self.b() > 0.0 && self.upper_limit_s() > self.checkpoint_s * (1.0 + 1e-9)
    }

    /// Eq. 1.1: sqrt(2 a b mu), not clamped to C. NaN where b < 0.
    pub fn time_period_unclamped_s(&self) -> f64 {
        (2.0 * self.a() * self.b() * self.mtbf_s).sqrt()
    }

    /// The quadratic whose root in (a, 2 mu b) minimises energy, rederived (errata A1, A2).
    pub fn energy_quadratic(&self) -> Quadratic {
        let (a, b, mu, c, w) = (self.a(), self.b(), self.mtbf_s, self.checkpoint_s, self.overlap);
        let (alpha, beta, gamma) = (self.alpha(), self.beta(), self.gamma());
        let a0 = alpha * w * c + beta * self.restart_s + gamma * self.down_s + mu;
        let kappa = (alpha * (1.0 - w) - beta) * c * c;
        Quadratic {
            q2: a0 / (2.0 * mu * mu) + alpha * b / (2.0 * mu) + (alpha * a - beta * c) / (4.0 * mu * mu),
            q1: (beta * c - alpha * a) * b / mu - kappa / (2.0 * mu * mu),
            q0: -a * b * a0 / mu - beta * c * b * b + (b / (2.0 * mu) + a / (4.0 * mu * mu)) * kappa,
        }
    }

    /// The root of [`Aupy::energy_quadratic`] in (a, 2 mu b), not clamped to C.
    pub fn energy_period_unclamped_s(&self) -> Option<f64> {
        root_within(&self.energy_quadratic(), self.a(), self.upper_limit_s())
    }

    /// Erratum A1: the root of the paper's last printed quadratic, right only for alpha = 1.
    pub fn printed_energy_period_s(&self) -> Option<f64> {
        root_within(&self.printed_quadratic(), self.a(), self.upper_limit_s())
    }

    /// Erratum A1: the last quadratic as printed, with 1 where alpha belongs.
    pub fn printed_quadratic(&self) -> Quadratic {
        let (a, b, mu) = (self.a(), self.b(), self.mtbf_s);
        let missing = 1.0 - self.alpha();
        let right = self.energy_quadratic();
        Quadratic {
            q2: right.q2 + missing * (b / (2.0 * mu) + a / (4.0 * mu * mu)),
            q1: right.q1 - missing * a * b / mu,
            ..right
        }
    }

    /// The period at which direct search finds the least expected time, a check on eq. 1.1.
    pub fn time_period_by_search_s(&self) -> Option<f64> {
        self.search(|t| self.evaluate(t).final_s)
    }

    /// The period at which direct search finds the least expected energy, a check on the quadratic.
    pub fn energy_period_by_search_s(&self) -> Option<f64> {
        self.search(|t| self.evaluate(t).energy_j)
    }

    fn search(&self, cost: impl Fn(f64) -> f64) -> Option<f64> {
        let (low, high) = (self.a() + 1e-12 * self.checkpoint_s, self.upper_limit_s() * (1.0 - 1e-12));
        (self.b() > 0.0 && low < high).then(|| golden_section(cost, low, high))
    }

    /// The period of at least C that minimises time; none where the model is infeasible.
    pub fn time_period_s(&self) -> Option<f64> {
        self.feasible().then(|| self.time_period_unclamped_s().max(self.checkpoint_s))
    }

    /// The period of at least C that minimises energy; none where the model is infeasible.
    pub fn energy_period_s(&self) -> Option<f64> {
        if !self.feasible() {
            return None;
        }
        self.energy_period_unclamped_s().map(|t| t.max(self.checkpoint_s))
    }

    /// Evaluates one period. Outside the domain the figures are what the formulas give, with `valid` false.
    pub fn evaluate(&self, period_s: f64) -> Evaluation {
        let (a, b, mu, c, w, t) = (self.a(), self.b(), self.mtbf_s, self.checkpoint_s, self.overlap, period_s);
        let failure_free_s = self.base_s * t / (t - a);
        let final_s = self.base_s * t / ((t - a) * (b - t / (2.0 * mu)));
        let failures = final_s / mu;
        let reexecution_per_failure_s = w * c + (t * t - c * c) / (2.0 * t) + w * c * c / (2.0 * t);
        let compute_s = self.base_s + failures * reexecution_per_failure_s;
        let io_s = self.base_s * c / (t - a) + failures * (self.restart_s + c * c / (2.0 * t));
        let down_s = failures * self.down_s;
        Evaluation {
            period_s: t,
            valid: b > 0.0 && t > a && t < self.upper_limit_s(),
            period_ge_checkpoint: t >= c,
            failure_free_s,
            final_s,
            failures_s: final_s - failure_free_s,
            waste: 1.0 - self.base_s / final_s,
            failures,
            checkpoints: self.base_s / (t - a),
            lost_per_failure_s: self.down_s + self.restart_s + w * c + t / 2.0,
            reexecution_per_failure_s,
            compute_s,
            io_s,
            down_s,
            energy_j: compute_s * self.compute_w + io_s * self.io_w + down_s * self.down_w + final_s * self.static_w,
        }
    }
}

/// Intervals and periods of Young and Daly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YoungDaly {
    /// Young's interval sqrt(2 C mu), without the checkpoint.
    pub young_interval_s: f64,
    /// The chapter's period sqrt(2 C mu) + C.
    pub young_period_s: f64,
    /// The chapter's period sqrt(2 C (mu + D + R)) + C.
    pub daly_period_s: f64,
    /// Daly 2006, first order: sqrt(2 C (mu + R)).
    pub daly_first_order_interval_s: f64,
    /// Daly 2006, higher order: sqrt(2 C mu) [1 + sqrt(C / 2 mu) / 3 + C / (18 mu)] - C; mu from C = 2 mu on.
    pub daly_higher_order_interval_s: f64,
}

/// Young's and Daly's intervals. Erratum A4: eq. 1.1 with omega = 0 is neither of them.
pub fn young_daly(mtbf_s: f64, checkpoint_s: f64, down_s: f64, restart_s: f64) -> Result<YoungDaly, Invalid> {
    positive("mu", mtbf_s)?;
    positive("C", checkpoint_s)?;
    non_negative("D", down_s)?;
    non_negative("R", restart_s)?;
    let young_interval_s = (2.0 * checkpoint_s * mtbf_s).sqrt();
    Ok(YoungDaly {
        young_interval_s,
        young_period_s: young_interval_s + checkpoint_s,
        daly_period_s: (2.0 * checkpoint_s * (mtbf_s + down_s + restart_s)).sqrt() + checkpoint_s,
        daly_first_order_interval_s: (2.0 * checkpoint_s * (mtbf_s + restart_s)).sqrt(),
        daly_higher_order_interval_s: daly_higher_order_interval_s(mtbf_s, checkpoint_s),
    })
}

/// Daly 2006's higher-order interval, without the checkpoint.
pub fn daly_higher_order_interval_s(mtbf_s: f64, checkpoint_s: f64) -> f64 {
    if checkpoint_s >= 2.0 * mtbf_s {
        return mtbf_s;
    }
    let half = checkpoint_s / (2.0 * mtbf_s);
    (2.0 * checkpoint_s * mtbf_s).sqrt() * (1.0 + half.sqrt() / 3.0 + half / 9.0) - checkpoint_s
}

/// Meneses's accounting for blocking checkpoints: after a failure (T - 2C) / 2 is computed again at compute power,
/// and R + C pass at I/O power. Takes Aupy15's parameters; omega is zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meneses(Aupy);

/// What Meneses's model expects of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MenesesEvaluation {
    /// The period, checkpoint included.
    pub period_s: f64,
    /// Whether the period lies in the domain.
    pub valid: bool,
    /// Expected duration.
    pub final_s: f64,
    /// Time at compute power.
    pub compute_s: f64,
    /// Time at I/O power.
    pub io_s: f64,
    /// Expected energy.
    pub energy_j: f64,
    /// Whether the re-execution (T - 2C) / 2 is at least zero.
    pub reexecution_nonnegative: bool,
}

impl Meneses {
    /// Meneses's form of the parameters, with omega set to zero.
    pub fn new(parameters: Aupy) -> Result<Meneses, Invalid> {
        let blocking = Aupy { overlap: 0.0, ..parameters };
        blocking.check()?;
        Ok(Meneses(blocking))
    }

    /// The parameters, with omega zero.
    pub fn parameters(&self) -> &Aupy {
        &self.0
    }

    /// The quadratic whose root in (C, 2 mu b) minimises energy.
    pub fn energy_quadratic(&self) -> Quadratic {
        let p = &self.0;
        let (a, b, mu, c) = (p.a(), p.b(), p.mtbf_s, p.checkpoint_s);
        let (alpha, beta, gamma) = (p.alpha(), p.beta(), p.gamma());
        let a0 = -alpha * c + beta * (p.restart_s + c) + gamma * p.down_s + mu;
        Quadratic {
            q2: a0 / (2.0 * mu * mu) + alpha * b / (2.0 * mu) + (alpha * a - beta * c) / (4.0 * mu * mu),
            q1: (beta * c - alpha * a) * b / mu,
            q0: -a * b * a0 / mu - beta * c * b * b,
        }
    }

    /// The energy-optimal period, not clamped.
    pub fn energy_period_unclamped_s(&self) -> Option<f64> {
        root_within(&self.energy_quadratic(), self.0.a(), self.0.upper_limit_s())
    }

    /// The energy-optimal period of at least C; none where the model is infeasible.
    pub fn energy_period_s(&self) -> Option<f64> {
        if !self.0.feasible() {
            return None;
        }
        self.energy_period_unclamped_s().map(|t| t.max(self.0.checkpoint_s))
    }

    /// The period at which direct search finds the least expected energy.
    pub fn energy_period_by_search_s(&self) -> Option<f64> {
        self.0.search(|t| self.evaluate(t).energy_j)
    }

    /// Evaluates one period.
    pub fn evaluate(&self, period_s: f64) -> MenesesEvaluation {
        let p = &self.0;
        let (c, t) = (p.checkpoint_s, period_s);
        let base = p.evaluate(t);
        let compute_s = p.base_s + base.failures * (t - 2.0 * c) / 2.0;
        let io_s = p.base_s * c / (t - p.a()) + base.failures * (p.restart_s + c);
        MenesesEvaluation {
            period_s: t,
            valid: base.valid,
            final_s: base.final_s,
            compute_s,
            io_s,
            energy_j: compute_s * p.compute_w + io_s * p.io_w + base.down_s * p.down_w + base.final_s * p.static_w,
            reexecution_nonnegative: t >= 2.0 * c,
        }
    }
}

/// The root of `q` strictly inside `(low, high)`; where rounding leaves none, the root nearest to the inside.
fn root_within(q: &Quadratic, low: f64, high: f64) -> Option<f64> {
    let roots = q.roots();
    roots.iter().copied().find(|t| *t > low && *t < high).or_else(|| {
        let slack = 1e-9 * high.abs().max(low.abs());
        roots.into_iter().find(|t| *t >= low - slack && *t <= high + slack)
    })
}
