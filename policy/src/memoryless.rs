//! Gives the exact expectation of a checkpointed run under exponential failures, for any ratio of costs to MTBF.
//!
//! Aupy15's formulas are a first-order expansion and have no solution once 2 mu b <= C. The renewal argument below
//! (Daly 2006's exact form, checkpoints that block) always has one; it serves where the expansion does not hold.

use crate::interval::Costs;

/// The largest exponent that is evaluated; beyond it a run has no practical end and figures only stay ordered.
const EXPONENT_LIMIT: f64 = 300.0;

/// Expectations per second of useful work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Renewal {
    /// Expected duration per second of work.
    pub time: f64,
    /// Expected energy in joules per second of work.
    pub energy_j: f64,
}

/// Evaluates work of `work_s` between checkpoints, each attempt repeated until it ends without a failure.
pub fn evaluate(mtbf_s: f64, costs: &Costs, work_s: f64) -> Renewal {
    let mu = mtbf_s;
    let attempts = ((work_s + costs.checkpoint_s) / mu).min(EXPONENT_LIMIT).exp();
    let failures = ((work_s + costs.checkpoint_s) / mu).min(EXPONENT_LIMIT).exp_m1();
    let compute_s = attempts * mu * -(-work_s / mu).exp_m1();
    let checkpoint_s = (mu * failures - compute_s).max(0.0);
    let restarts = (costs.restart_s / mu).min(EXPONENT_LIMIT);
    let restart_s = failures * mu * restarts.exp_m1();
    let down_s = failures * restarts.exp() * costs.down_s;
    let total_s = compute_s + checkpoint_s + restart_s + down_s;
    let energy_j = total_s * costs.static_w
        + compute_s * costs.compute_w
        + (checkpoint_s + restart_s) * costs.checkpoint_w
        + down_s * costs.down_w;
    Renewal { time: total_s / work_s, energy_j: energy_j / work_s }
}

/// The work between checkpoints that minimises expected time: mu x with x e^x - e^x + e^(-C/mu) = 0.
pub fn time_work_s(mtbf_s: f64, checkpoint_s: f64) -> f64 {
    let floor = (-checkpoint_s / mtbf_s).exp();
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..200 {
        let x = 0.5 * (low + high);
        if x == low || x == high {
            break;
        }
        if (x - 1.0) * x.exp() + floor < 0.0 {
            low = x;
        } else {
            high = x;
        }
    }
    mtbf_s * 0.5 * (low + high)
}

/// The work between checkpoints that minimises expected energy, by golden-section search on a logarithmic scale.
pub fn energy_work_s(mtbf_s: f64, costs: &Costs) -> f64 {
    let centre = time_work_s(mtbf_s, costs.checkpoint_s);
    let cost = |x: f64| evaluate(mtbf_s, costs, x.exp()).energy_j;
    golden_section(cost, (centre * 1e-3).ln(), (centre * 1e3).ln()).exp()
}

/// The abscissa of the least value of a unimodal function on `[low, high]`.
pub fn golden_section(f: impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    let ratio = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (low, high);
    let (mut x, mut y) = (b - ratio * (b - a), a + ratio * (b - a));
    let (mut fx, mut fy) = (f(x), f(y));
    for _ in 0..200 {
        if x >= y || b - a <= f64::EPSILON * a.abs().max(b.abs()) {
            break;
        }
        if fx <= fy {
            b = y;
            y = x;
            fy = fx;
            x = b - ratio * (b - a);
            fx = f(x);
        } else {
            a = x;
            x = y;
            fx = fy;
            y = a + ratio * (b - a);
            fy = f(y);
        }
    }
    0.5 * (a + b)
}
