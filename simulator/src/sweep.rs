//! Sweeps a constant interval over a trace, beside ElSayed14's model (as their Fig. 1).

use policy::bounds::ElSayed;
use policy::interval::Objective;
use rayon::prelude::*;

use crate::Error;
use crate::replay::{CHECKPOINT_OVER_IDLE, Rule, Setting, replay};
use crate::trace::Trace;

/// Shares of time and energy that one interval wastes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waste {
    /// Of the time.
    pub time: f64,
    /// Of what computing all the time would use.
    pub energy: f64,
}

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Work between checkpoints.
    pub interval_s: f64,
    /// As replayed.
    pub replayed: Waste,
    /// As ElSayed14's eq. 1 and 3 have it.
    pub model: Waste,
}

/// A trace under many constant intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The trace's name.
    pub trace: String,
    /// What it was replayed at; bounds play no part.
    pub setting: Setting,
    /// Mean time to failure.
    pub mttf_s: f64,
    /// The intervals, rising.
    pub points: Vec<Point>,
    /// Young's interval, sqrt(2 C M).
    pub young: Point,
    /// The energy-optimal interval, Young's over the root of the ratio.
    pub energy: Point,
}

impl Sweep {
    /// Replays `count` intervals, spaced evenly in their logarithm, from a `reach`th of Young's to `reach` times it.
    ///
    /// # Errors
    /// Parameters outside the model's range, `reach` not above 1, fewer than 2 intervals or more than 100,000.
    pub fn of(trace: &Trace, setting: &Setting, reach: f64, count: usize) -> Result<Sweep, Error> {
        let invalid = |parameter, value, range| Error::Invalid(policy::Invalid { parameter, value, range });
        if !(reach > 1.0 && reach <= 1e4) {
            return Err(invalid("reach", reach, "> 1, <= 10000"));
        }
        if !(2..=100_000).contains(&count) {
            return Err(invalid("points", count as f64, "2 to 100000"));
        }
        let mttf_s = trace.mean_s();
        let nominal = ElSayed { checkpoint_s: setting.checkpoint_s, mttf_s, ratio: setting.ratio };
        nominal.check()?;
        let accounted = ElSayed { ratio: setting.ratio / CHECKPOINT_OVER_IDLE, ..nominal };
        let young_s = nominal.time_interval_s();
        let at = |interval_s: f64| point(trace, setting, &accounted, interval_s);
        let step = 2.0 * reach.ln() / (count - 1) as f64;
        Ok(Sweep {
            trace: trace.name.clone(),
            setting: *setting,
            mttf_s,
            points: (0..count)
                .into_par_iter()
                .map(|i| at(young_s / reach * (step * i as f64).exp()))
                .collect::<Result<_, _>>()?,
            young: at(young_s)?,
            energy: at(nominal.energy_interval_s())?,
        })
    }
}

fn point(trace: &Trace, setting: &Setting, model: &ElSayed, interval_s: f64) -> Result<Point, Error> {
    let outcome = replay(trace, Rule::Constant(interval_s), Objective::Time, setting)?;
    let expected = model.waste(interval_s);
    Ok(Point {
        interval_s,
        replayed: Waste {
            time: outcome.wasted_s() / outcome.total_s,
            energy: outcome.wasted_energy(setting.ratio) / (setting.ratio * outcome.total_s),
        },
        model: Waste { time: expected.time, energy: expected.energy },
    })
}
