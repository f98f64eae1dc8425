//! Compares policies with Young's on each trace, and fits `auto` on other traces than the one reported.

use policy::adaptive::AdaptiveParameters;
use policy::interval::Objective;
use rayon::prelude::*;

use crate::Error;
use crate::replay::{Outcome, Rule, Setting, replay};
use crate::trace::Trace;

/// One policy on one trace, against Young's.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The trace.
    pub trace: String,
    /// The policy.
    pub policy: String,
    /// What it minimises.
    pub objective: Objective,
    /// What it spent.
    pub outcome: Outcome,
    /// Wasted time over Young's, minus one.
    pub time: f64,
    /// Wasted energy over Young's, minus one.
    pub energy: f64,
}

/// Replays one rule and sets it against Young's time-optimal interval.
pub fn against_young(
    trace: &Trace,
    name: &str,
    rule: Rule,
    objective: Objective,
    setting: &Setting,
) -> Result<Row, Error> {
    let free = Setting { runtime_bound: None, io_bound: None, ..*setting };
    let young = replay(trace, Rule::named("young")?, Objective::Time, &free)?;
    let outcome = replay(trace, rule, objective, setting)?;
    Ok(Row {
        trace: trace.name.clone(),
        policy: name.to_owned(),
        objective,
        outcome,
        time: outcome.wasted_s() / young.wasted_s() - 1.0,
        energy: outcome.wasted_energy(setting.ratio) / young.wasted_energy(setting.ratio) - 1.0,
    })
}

/// The candidates that a fit chooses from.
pub fn candidates() -> Vec<AdaptiveParameters> {
    let mut all = Vec::new();
    for fast in [0.1, 0.2] {
        for slow in [0.005, 0.02, 0.05] {
            for mix in [0.2, 0.4, 0.6, 0.8] {
                for shape in [0.65, 0.7, 0.75, 0.8, 0.9] {
                    for stretch in [0.85, 0.9, 0.95, 1.0, 1.1] {
                        all.push(AdaptiveParameters { fast, slow, mix, shape, stretch });
                    }
                }
            }
        }
    }
    all
}

/// The published adaptive policies that `auto` is measured against.
pub const PUBLISHED: [&str; 7] = ["sma", "wma", "ema", "ar", "hazard", "hazard-dynamic", "hazard-shape"];

/// Fits `auto` on the given traces: least sum, over the traces, of wasted energy against the reference's plus
/// [`time_weight`] times wasted time against the reference's, each trace weighted by the root of its failures.
pub fn fit(
    traces: &[&Trace],
    reference: &str,
    objective: Objective,
    setting: &Setting,
) -> Result<AdaptiveParameters, Error> {
    let rule = Rule::named(reference)?;
    let targets: Vec<Row> = traces
        .par_iter()
        .map(|trace| against_young(trace, reference, rule, objective, setting))
        .collect::<Result<_, Error>>()?;
    let scored: Vec<(AdaptiveParameters, f64)> = candidates()
        .into_par_iter()
        .map(|p| {
            let mut score = 0.0;
            for (trace, target) in traces.iter().zip(&targets) {
                let row = against_young(trace, "auto", Rule::Auto(Some(p)), objective, setting)?;
                let weight = (trace.gaps_s.len() as f64).sqrt();
                score += weight * (row.energy - target.energy + time_weight(objective) * (row.time - target.time));
            }
            Ok((p, score))
        })
        .collect::<Result<_, Error>>()?;
    Ok(scored.iter().min_by(|x, y| x.1.total_cmp(&y.1)).map(|(p, _)| *p).unwrap_or_default())
}

/// What a point of wasted time weighs against a point of wasted energy in a fit: the objective weighs double.
pub fn time_weight(objective: Objective) -> f64 {
    match objective {
        Objective::Time => 2.0,
        Objective::Energy => 0.5,
    }
}

/// The published policy with the least mean wasted energy over the traces.
pub fn best_published(traces: &[&Trace], objective: Objective, setting: &Setting) -> Result<&'static str, Error> {
    let mut best = (PUBLISHED[0], f64::INFINITY);
    for name in PUBLISHED {
        let mut energy = 0.0;
        for trace in traces {
            energy += against_young(trace, name, Rule::named(name)?, objective, setting)?.energy;
        }
        if energy < best.1 {
            best = (name, energy);
        }
    }
    Ok(best.0)
}

/// `auto` and the seven on one trace; `auto` was fitted on all the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The trace.
    pub trace: String,
    /// The seven on this trace.
    pub published: Vec<Row>,
    /// `auto`.
    pub auto: Row,
    /// Its parameters, fitted on the other traces.
    pub parameters: AdaptiveParameters,
    /// The published policy that was best on the other traces: the one that a site would have chosen.
    pub chosen: Row,
    /// The published policy with the least wasted energy on this trace, known only in hindsight.
    pub hindsight: Row,
}

impl Verdict {
    /// Whether `auto` wastes less energy and no more time than the given policy.
    pub fn beats(&self, other: &Row) -> bool {
        self.auto.energy < other.energy && self.auto.time <= other.time
    }
}

/// Leaves each trace out in turn. Walk-forward: `auto` sees only gaps that have ended, and its parameters and its
/// first estimate come from the traces left in.
pub fn leave_one_out(traces: &[Trace], objective: Objective, setting: &Setting) -> Result<Vec<Verdict>, Error> {
    if traces.len() < 2 {
        return Err(policy::Invalid { parameter: "traces", value: traces.len() as f64, range: "two or more" }.into());
    }
    let mut verdicts = Vec::with_capacity(traces.len());
    for (i, trace) in traces.iter().enumerate() {
        let others: Vec<&Trace> = traces.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, t)| t).collect();
        let published = PUBLISHED
            .par_iter()
            .map(|name| against_young(trace, name, Rule::named(name)?, objective, setting))
            .collect::<Result<Vec<_>, Error>>()?;
        let reference = best_published(&others, objective, setting)?;
        let parameters = fit(&others, reference, objective, setting)?;
        // The published policies keep their start from the trace's own mean; auto starts from the others' means.
        let prior_s = (others.iter().map(|t| t.mean_s().ln()).sum::<f64>() / others.len() as f64).exp();
        let blind = Setting { prior_s: Some(prior_s), ..*setting };
        let auto = against_young(trace, "auto", Rule::Auto(Some(parameters)), objective, &blind)?;
        let chosen = against_young(trace, reference, Rule::named(reference)?, objective, setting)?;
        let hindsight =
            published.iter().min_by(|x, y| x.energy.total_cmp(&y.energy)).cloned().unwrap_or_else(|| chosen.clone());
        verdicts.push(Verdict { trace: trace.name.clone(), published, auto, parameters, chosen, hindsight });
    }
    Ok(verdicts)
}
