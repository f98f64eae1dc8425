//! What policies waste beyond the best on gaps whose distribution is known: what learning costs.

use std::fmt::Write as _;

use policy::interval::Objective;
use rayon::prelude::*;

use crate::Error;
use crate::grid::{Estimate, Policy};
use crate::replay::{Rule, Setting, constant, replay};
use crate::schedule::Schedule;
use crate::trace::{Distribution, Trace};

/// Gaps of which shape and how many, at which costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Contest {
    /// Weibull shape; at 1 gaps are exponential.
    pub shape: f64,
    /// Mean gap, which the policies start from.
    pub mean_s: f64,
    /// Failures of each trace.
    pub failures: usize,
    /// Traces drawn.
    pub runs: u32,
    /// Seed of the first.
    pub seed: u64,
    /// Duration of a checkpoint.
    pub checkpoint_s: f64,
    /// Compute power over idle power.
    pub ratio: f64,
}

/// What a policy wastes beyond two that know the distribution, as a fraction.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// The gaps and costs.
    pub contest: Contest,
    /// The policy.
    pub policy: Policy,
    /// Against the schedule of least expected waste.
    pub to_best: Estimate,
    /// Against Young's interval with the true mean.
    pub to_young: Estimate,
}

impl Contest {
    /// The regret of each policy, in what it minimises, on the same gaps for all.
    pub fn regrets(&self, policies: &[Policy]) -> Result<Vec<Regret>, Error> {
        let traces = self.traces()?;
        policies.par_iter().map(|policy| self.regret(&traces, policy)).collect()
    }

    fn traces(&self) -> Result<Vec<Trace>, Error> {
        let draw = |run| {
            let seed = self.seed.wrapping_add(u64::from(run));
            Trace::synthetic(Distribution::Weibull(self.shape), self.mean_s, self.failures, seed)
        };
        (0..self.runs).map(draw).collect()
    }

    fn regret(&self, traces: &[Trace], policy: &Policy) -> Result<Regret, Error> {
        let Contest { shape, mean_s, checkpoint_s, ratio, .. } = *self;
        let prior_s = Some(mean_s);
        let setting = Setting { checkpoint_s, ratio, runtime_bound: None, io_bound: None, prior_s };
        let best = Schedule::best(shape, mean_s, checkpoint_s, ratio, policy.objective)?;
        let (nominal, is_young) = match policy.objective {
            Objective::Time => (1.0, policy.rule == Rule::named("young")?),
            Objective::Energy => (ratio, policy.rule == Rule::named("young")?),
        };
        let young_s = (2.0 * checkpoint_s * mean_s / nominal).sqrt();
        let waste = |outcome: crate::replay::Outcome| match policy.objective {
            Objective::Time => outcome.wasted_s(),
            Objective::Energy => outcome.wasted_energy(ratio),
        };
        let each = |trace: &Trace| -> Result<[f64; 3], Error> {
            let young = waste(constant(trace, young_s, checkpoint_s));
            let own = if is_young { young } else { waste(replay(trace, policy.rule, policy.objective, &setting)?) };
            Ok([own, waste(best.replay(trace)), young])
        };
        let wastes = traces.par_iter().map(each).collect::<Result<Vec<_>, _>>()?;
        let against = |other: usize| {
            let mean = wastes.iter().map(|w| w[other]).sum::<f64>() / wastes.len() as f64;
            Estimate::of(wastes.iter().map(|w| (w[0] - w[other]) / mean))
        };
        Ok(Regret { contest: self.clone(), policy: policy.clone(), to_best: against(1), to_young: against(2) })
    }
}

/// The regrets as people read them.
pub fn table(regrets: &[Regret]) -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "What is wasted beyond the schedule that is best for the distribution, and beyond Young's interval with the true mean\n\
         shape   MTBF s   failures  C s    ratio  policy           for     to the best        to Young\n",
    );
    let percent = |e: &Estimate| {
        let width = e.half_width.map_or_else(String::new, |w| format!(" ± {:.2}", 100.0 * w));
        format!("{:+.2}{width} %", 100.0 * e.mean)
    };
    for r in regrets {
        let c = &r.contest;
        let objective = if r.policy.objective == Objective::Time { "time" } else { "energy" };
        writeln!(
            text,
            "{:<7} {:<8} {:<9} {:<6} {:<6} {:<16} {:<7} {:<18} {}",
            c.shape,
            c.mean_s,
            c.failures,
            c.checkpoint_s,
            c.ratio,
            r.policy.name,
            objective,
            percent(&r.to_best),
            percent(&r.to_young)
        )?;
    }
    Ok(text)
}
