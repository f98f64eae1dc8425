//! Compares policies with Young's on each trace, and `auto`, fitted on other traces, with the best published ones.

use policy::adaptive::AdaptiveParameters;
use policy::interval::Objective;
use rayon::prelude::*;

use crate::Error;
use crate::fitting::{Fitted, fit};
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

/// The published adaptive policies that `auto` is measured against.
pub const PUBLISHED: [&str; 7] = ["sma", "wma", "ema", "ar", "hazard", "hazard-dynamic", "hazard-shape"];

/// `auto` and the seven on one trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Costs, power and bounds.
    pub setting: Setting,
    /// The seven on this trace.
    pub published: Vec<Row>,
    /// `auto`.
    pub auto: Row,
    /// Its parameters, fitted on other traces.
    pub parameters: AdaptiveParameters,
    /// The published policy that was best on those other traces: the one that a site would have chosen.
    pub chosen: Row,
    /// The published policy that wastes least energy on this trace, known only in hindsight.
    pub least_energy: Row,
    /// The published policy that wastes least time on this trace, known only in hindsight.
    pub least_time: Row,
}

impl Verdict {
    /// Whether `auto` wastes less energy and no more time than the given policy.
    pub fn beats(&self, other: &Row) -> bool {
        self.auto.energy < other.energy && self.auto.time <= other.time
    }
}

/// Sets `auto` against the published policies on each trace, at each setting, for an objective. Its parameters are
/// fitted on the traces of `fitted_on` or, without any, on all traces but the one reported.
pub fn compare(
    traces: &[Trace],
    fitted_on: &[Trace],
    objective: Objective,
    settings: &[Setting],
) -> Result<Vec<Verdict>, Error> {
    if fitted_on.is_empty() && traces.len() < 2 {
        return Err(policy::Invalid { parameter: "traces", value: traces.len() as f64, range: "two or more" }.into());
    }
    let contest = |trace| Contest::new(trace, objective, settings);
    let reported: Vec<_> = traces.par_iter().map(contest).collect::<Result<_, Error>>()?;
    let others: Vec<_> = fitted_on.par_iter().map(contest).collect::<Result<_, Error>>()?;
    let school = |i: usize| -> Vec<&Contest> {
        if others.is_empty() {
            reported.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, c)| c).collect()
        } else {
            others.iter().collect()
        }
    };
    let judged: Vec<_> = (0..reported.len())
        .into_par_iter()
        .map(|i| reported[i].judge(&school(i), objective, settings))
        .collect::<Result<_, Error>>()?;
    Ok(judged.concat())
}

/// The published policies on one trace, at each setting.
struct Contest<'a> {
    fitted: Fitted<'a>,
    published: Vec<Vec<Row>>,
}

impl<'a> Contest<'a> {
    fn new(trace: &'a Trace, objective: Objective, settings: &[Setting]) -> Result<Contest<'a>, Error> {
        let row = |name: &&str, setting| against_young(trace, name, Rule::named(name)?, objective, setting);
        let rows = |setting| PUBLISHED.par_iter().map(|name| row(name, setting)).collect::<Result<Vec<_>, _>>();
        Ok(Contest { fitted: Fitted::new(trace), published: settings.iter().map(rows).collect::<Result<_, Error>>()? })
    }

    /// `auto`, fitted on the traces of `school`, at each setting.
    fn judge(&self, school: &[&Contest], objective: Objective, settings: &[Setting]) -> Result<Vec<Verdict>, Error> {
        let parameters = fit(&school.iter().map(|c| &c.fitted).collect::<Vec<_>>(), objective);
        let judge = |(i, setting): (usize, &Setting)| {
            let published = &self.published[i];
            let elsewhere = |name: usize| school.iter().map(|c| c.published[i][name].energy).sum::<f64>();
            let chosen = (0..PUBLISHED.len()).min_by(|a, b| elsewhere(*a).total_cmp(&elsewhere(*b))).unwrap_or(0);
            Ok(Verdict {
                setting: *setting,
                auto: against_young(self.fitted.trace, "auto", Rule::Auto(Some(parameters)), objective, setting)?,
                parameters,
                chosen: published[chosen].clone(),
                least_energy: least(published, |r| r.energy).clone(),
                least_time: least(published, |r| r.time).clone(),
                published: published.clone(),
            })
        };
        settings.iter().enumerate().map(judge).collect()
    }
}

/// The row with the least of something; there is one for each of [`PUBLISHED`].
fn least(rows: &[Row], of: impl Fn(&Row) -> f64) -> &Row {
    rows.iter().fold(&rows[0], |best, row| if of(row) < of(best) { row } else { best })
}
