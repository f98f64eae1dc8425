//! Fits the hazard of `auto` to failure traces by maximum likelihood, each failure predicted from those before it.

use policy::adaptive::{Adaptive, AdaptiveParameters, calendar};
use policy::interval::Objective;
use rayon::prelude::*;

use crate::replay::DAY_S;
use crate::trace::Trace;

/// Weights of a memory's prior among which a fit chooses, in failures.
const WEIGHTS: [f64; 4] = [0.7, 1.4, 2.8, 5.6];

/// Panels of the integral of the hazard over a gap; they widen with the age.
const PANELS: u32 = 8;

/// A trace that is fitted on, with the likelihood of each choice of weights.
pub struct Fitted<'a> {
    /// The trace.
    pub trace: &'a Trace,
    likelihoods: Vec<f64>,
}

impl<'a> Fitted<'a> {
    /// Scores the weights on a trace.
    pub fn new(trace: &'a Trace) -> Fitted<'a> {
        let likelihoods = weights().into_par_iter().map(|w| likelihood(trace, &steady(w))).collect();
        Fitted { trace, likelihoods }
    }

    /// Weight of a trace in a fit: ten times the failures, three times the weight.
    pub fn weight(&self) -> f64 {
        (self.trace.gaps_s.len() as f64).sqrt()
    }
}

/// The parameters of greatest likelihood over the traces: the weights first, without a calendar, then the calendar.
/// The lean is not fitted.
pub fn fit(traces: &[&Fitted], objective: Objective) -> AdaptiveParameters {
    let score = |i: usize| traces.iter().map(|t| t.likelihoods[i] / t.weight()).sum::<f64>();
    let choices = weights();
    let best = (0..choices.len()).max_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(0);
    let base = steady(choices[best]);
    let [day, weekend] = fit_calendar(traces, &base);
    AdaptiveParameters { day, weekend, weights: base.weights, ..AdaptiveParameters::for_objective(objective) }
}

fn steady(weights: [f64; 3]) -> AdaptiveParameters {
    AdaptiveParameters { weights, day: 0.0, weekend: 0.0, lean: 0.0 }
}

fn weights() -> Vec<[f64; 3]> {
    let pairs = WEIGHTS.iter().flat_map(|a| WEIGHTS.iter().map(move |b| (*a, *b)));
    pairs.flat_map(|(a, b)| WEIGHTS.iter().map(move |c| [a, b, *c])).collect()
}

/// The middle of a panel of each gap, its expected failures there, and at last the failure itself.
fn visit(
    trace: &Trace,
    parameters: &AdaptiveParameters,
    mut panel: impl FnMut(f64, f64),
    mut failure: impl FnMut(f64, f64),
) {
    let mut policy = Adaptive::new(*parameters, DAY_S, None);
    let mut start_s = trace.first_s;
    for gap_s in &trace.gaps_s {
        let edge_s = |i: u32| gap_s * (f64::from(i) / f64::from(PANELS)).powi(2);
        for i in 0..PANELS {
            let (from_s, to_s) = (edge_s(i), edge_s(i + 1));
            let age_s = 0.5 * (from_s + to_s);
            panel(start_s + age_s, policy.hazard_per_s(age_s) * (to_s - from_s));
        }
        failure(start_s + gap_s, policy.hazard_per_s(*gap_s));
        policy.observe_gap(*gap_s);
        start_s += gap_s;
    }
}

/// Logarithm of the likelihood of a trace's failures under a hazard without calendar.
fn likelihood(trace: &Trace, parameters: &AdaptiveParameters) -> f64 {
    let (mut expected, mut seen) = (0.0, 0.0);
    visit(trace, parameters, |_, count| expected += count, |_, hazard| seen += hazard.ln());
    seen - expected
}

/// Newton's method on the two factors of the calendar, which enter the hazard's logarithm linearly: the likelihood
/// is concave.
fn fit_calendar(traces: &[&Fitted], base: &AdaptiveParameters) -> [f64; 2] {
    let dated: Vec<_> = traces.iter().filter(|t| t.trace.local_start_s().is_some()).collect();
    let mut panels: Vec<([f64; 2], f64)> = Vec::new();
    let mut seen = [0.0; 2];
    for t in &dated {
        let share = 1.0 / t.weight();
        let add = |at_s: f64, count: f64| panels.push((calendar(at_s), share * count));
        visit(t.trace, base, add, |at_s, _| (0..2).for_each(|i| seen[i] += share * calendar(at_s)[i]));
    }
    let mut found = [0.0; 2];
    for _ in 0..20 {
        let (mut slope, mut bend) = (seen, [[0.0; 2]; 2]);
        for (x, count) in &panels {
            let expected = count * (found[0] * x[0] + found[1] * x[1]).exp();
            for i in 0..2 {
                slope[i] -= expected * x[i];
                (0..2).for_each(|j| bend[i][j] += expected * x[i] * x[j]);
            }
        }
        let determinant = bend[0][0] * bend[1][1] - bend[0][1] * bend[1][0];
        if determinant <= 0.0 {
            return [0.0; 2];
        }
        found[0] += (slope[0] * bend[1][1] - slope[1] * bend[0][1]) / determinant;
        found[1] += (slope[1] * bend[0][0] - slope[0] * bend[1][0]) / determinant;
        if slope.iter().all(|s| s.abs() < 1e-6) {
            break;
        }
    }
    found
}
