//! Replays every policy on every trace at every setting, on all cores and in one order.

use policy::interval::Objective;
use rayon::prelude::*;

use crate::Error;
use crate::comparison::{Row, against_young};
use crate::replay::{Rule, Setting};
use crate::trace::Trace;

/// A rule and what it minimises.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What to call it.
    pub name: String,
    /// How it finds the next interval.
    pub rule: Rule,
    /// What it minimises.
    pub objective: Objective,
}

impl Policy {
    /// Every rule of the names for every objective.
    pub fn all(names: &[impl AsRef<str>], objectives: &[Objective]) -> Result<Vec<Policy>, Error> {
        let mut policies = Vec::with_capacity(names.len() * objectives.len());
        for name in names.iter().map(AsRef::as_ref) {
            let rule = Rule::named(name)?;
            policies.extend(objectives.iter().map(|o| Policy { name: name.to_owned(), rule, objective: *o }));
        }
        Ok(policies)
    }
}

/// What to combine.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Costs, powers and bounds.
    pub settings: Vec<Setting>,
    /// Failure traces.
    pub traces: Vec<Trace>,
    /// Policies.
    pub policies: Vec<Policy>,
}

/// One policy on one trace at one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The setting.
    pub setting: Setting,
    /// What came out, against Young's.
    pub row: Row,
}

/// One policy at one setting over all traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    /// The setting.
    pub setting: Setting,
    /// Its policy's name.
    pub policy: String,
    /// What it minimises.
    pub objective: Objective,
    /// Wasted time over Young's, minus one.
    pub time: Estimate,
    /// Wasted energy over Young's, minus one.
    pub energy: Estimate,
    /// Share of the time in checkpoints.
    pub io_share: Estimate,
}

impl Grid {
    /// How many replays there are.
    pub fn len(&self) -> usize {
        self.settings.len() * self.traces.len() * self.policies.len()
    }

    /// Whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replays all, by setting, then trace, then policy; `done` is called after each.
    pub fn replay(&self, done: impl Fn() + Sync) -> Result<Vec<Cell>, Error> {
        (0..self.len())
            .into_par_iter()
            .map(|index| {
                let cell = self.cell(index);
                done();
                cell
            })
            .collect()
    }

    /// The replay at a place in the order.
    pub fn cell(&self, index: usize) -> Result<Cell, Error> {
        let (traces, policies) = (self.traces.len(), self.policies.len());
        let setting = self.settings[index / (traces * policies)];
        let policy = &self.policies[index % policies];
        let trace = &self.traces[index / policies % traces];
        let row = against_young(trace, &policy.name, policy.rule, policy.objective, &setting)?;
        Ok(Cell { setting, row })
    }

    /// Means over the traces, by setting, then policy; `cells` are those of [`Grid::replay`].
    pub fn means(&self, cells: &[Cell]) -> Vec<Mean> {
        let policies = self.policies.len();
        let mut means = Vec::with_capacity(self.settings.len() * policies);
        for (setting, cells) in self.settings.iter().zip(cells.chunks(self.traces.len() * policies)) {
            for (i, policy) in self.policies.iter().enumerate() {
                let of = |figure: fn(&Row) -> f64| {
                    Estimate::of(cells.iter().skip(i).step_by(policies).map(|cell| figure(&cell.row)))
                };
                means.push(Mean {
                    setting: *setting,
                    policy: policy.name.clone(),
                    objective: policy.objective,
                    time: of(|row| row.time),
                    energy: of(|row| row.energy),
                    io_share: of(|row| row.outcome.io_share()),
                });
            }
        }
        means
    }
}

/// A mean and how well it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval (Student); absent for a single value.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// The mean of independent values.
    pub fn of(values: impl Iterator<Item = f64>) -> Estimate {
        let values: Vec<f64> = values.collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n.max(1.0);
        if values.len() < 2 {
            return Estimate { mean, half_width: None };
        }
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
        Estimate { mean, half_width: Some(student_975(n - 1.0) * (variance / n).sqrt()) }
    }
}

/// Student's t at 97.5 %, within 1 % of the tables: Fisher's expansion about the normal quantile.
fn student_975(freedom: f64) -> f64 {
    if freedom < 2.0 {
        return 12.706;
    }
    let terms = [1.96, 2.372, 2.822, 2.556, 1.590];
    terms.iter().rev().fold(0.0, |sum, term| sum / freedom + term)
}
