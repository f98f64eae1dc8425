//! Estimates duration, power and energy of an operation from measured points (Aupy15 §1.3), with their uncertainty.
//!
//! Axes are nodes N, processes p and volume V. Where two of them vary in the points, the two-way estimate is taken;
//! where all three do, it is taken for each N, and a curve in N through the results.
//!
//! The extra power of an operation that moves no bytes depends on p alone (MODELS B), so it is averaged over the rest.
//! One that moves bytes follows a known law, an access and a rate. Large volumes scatter more than small ones, so the law
//! is fitted by weighted least squares ([`law`]): the weight of a volume comes of the intervals of all its points
//! together, since the interval of one, of a few repetitions, may be narrow by luck.
//!
//! What moves bytes also waits first and works then: its extra energy follows the volume as its duration does, an access
//! and a rate, and its mean power is their quotient.
//!
//! Beyond the largest N or p that was measured no curve is followed that only noise may have bent: see [`beyond_the_last`].

use crate::calibration::{Curve, Fit, Fits, TwoWay, VolumeModel, law, logging_s, operation_j, scatter, two_way};
use crate::invalid::{Invalid, non_negative, positive, require};
use crate::repeated::student;

/// One measured point of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Nodes, N.
    pub nodes: f64,
    /// Processes on each node, p.
    pub processes: f64,
    /// Volume of each node, V; 0 where there is none.
    pub bytes: f64,
    /// CPU frequency that was set, Hz; None where the node chose.
    pub frequency_hz: Option<f64>,
    /// Duration, s.
    pub time_s: f64,
    /// Half width of its 95 % confidence interval, s.
    pub time_ci_s: f64,
    /// Power of a node above idle, W.
    pub delta_w: f64,
    /// Half width of its 95 % confidence interval, W.
    pub delta_ci_w: f64,
}

/// Where an estimate is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// Nodes, N.
    pub nodes: f64,
    /// Processes on each node, p.
    pub processes: f64,
    /// Volume of each node, V.
    pub bytes: f64,
}

/// A figure and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Lower end, not below zero.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// A figure, not below zero, and the half width of its interval.
    pub fn around(value: f64, half: f64) -> Estimate {
        let value = value.max(0.0);
        Estimate { value, low: (value - half).max(0.0), high: value + half }
    }

    /// The estimate and its ends through a function that rises.
    pub fn through(self, f: impl Fn(f64) -> f64) -> Estimate {
        Estimate { value: f(self.value), low: f(self.low), high: f(self.high) }
    }

    /// The sum with another; the ends are added, since both may err the same way.
    pub fn plus(self, other: Estimate) -> Estimate {
        Estimate { value: self.value + other.value, low: self.low + other.low, high: self.high + other.high }
    }

    /// Whether it cannot be told from another.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// What an operation costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Duration, s.
    pub time_s: Estimate,
    /// Power of a node above idle, W.
    pub delta_w: Estimate,
    /// Whether the point lies outside of what was measured: curves say little there.
    pub extrapolated: bool,
}

/// Power that is drawn whatever the nodes do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Base {
    /// Nodes that take part.
    pub nodes: f64,
    /// Idle power of all of them, W.
    pub idle_w: f64,
    /// Power of the switches, W.
    pub switches_w: f64,
}

impl Cost {
    /// Energy of the operation on all nodes, J.
    pub fn energy_j(&self, base: &Base) -> Estimate {
        let j = |t: f64, d: f64| operation_j(t, base.nodes, d, base.idle_w, base.switches_w);
        Estimate {
            value: j(self.time_s.value, self.delta_w.value),
            low: j(self.time_s.low, self.delta_w.low),
            high: j(self.time_s.high, self.delta_w.high),
        }
    }
}

/// Energy of a checkpoint of all nodes, J.
pub fn checkpoint_j(write: &Cost, base: &Base) -> Estimate {
    write.energy_j(base)
}

/// Energy of one coordination, J: polling while messages drain, then synchronisation.
pub fn coordination_j(polling: &Cost, synchro: &Cost, base: &Base) -> Estimate {
    polling.energy_j(base).plus(synchro.energy_j(base))
}

/// Energy of logging over a run, J. `log` is the estimate of [`logging`].
pub fn logging_j(log: &Cost, base: &Base) -> Estimate {
    log.energy_j(base)
}

/// The points at one CPU frequency; at the node's own choice for None, or at the highest where that was not measured.
pub fn of_frequency(samples: &[Sample], frequency_hz: Option<f64>) -> Vec<Sample> {
    let at = |f: Option<f64>| samples.iter().filter(move |s| s.frequency_hz == f).copied();
    let mut found: Vec<Sample> = at(frequency_hz).collect();
    let highest = samples.iter().filter_map(|s| s.frequency_hz).max_by(f64::total_cmp);
    if frequency_hz.is_none() && highest.is_some() {
        let place = |s: &Sample| (s.nodes, s.processes, s.bytes);
        let own: Vec<(f64, f64, f64)> = found.iter().map(place).collect();
        found.extend(at(highest).filter(|s| !own.contains(&place(s))));
    }
    found
}

/// Estimates an operation. The points must be of one frequency ([`of_frequency`]).
///
/// `volume` is [`VolumeModel::Law`] for what moves bytes, [`VolumeModel::BestOf`] for synchronisation. `fits` keeps
/// what other estimates from the same points can use.
///
/// # Errors
/// Without points, or with figures that are not finite or below zero.
pub fn estimate(samples: &[Sample], at: At, volume: VolumeModel, fits: &Fits) -> Result<Cost, Invalid> {
    require(!samples.is_empty(), "samples", 0.0, "one measured point or more")?;
    positive("N", at.nodes)?;
    positive("p", at.processes)?;
    non_negative("V", at.bytes)?;
    let outside = outside(samples, at);
    let time = over_nodes(samples, at, volume, fits)?;
    let time_half = time.half * (1.0 + outside);
    let delta = match volume {
        VolumeModel::Law if time.value > 0.0 => power_of_volume(samples, at, time.value, fits)?,
        _ => delta(samples, at, fits)?,
    };
    Ok(Cost {
        time_s: Estimate::around(time.value, time_half),
        delta_w: Estimate::around(delta.value, delta.half * (1.0 + outside)),
        extrapolated: outside > 0.0,
    })
}

/// Mean extra power of what moves bytes for `time_s`: the extra energies are estimated as durations are.
fn power_of_volume(samples: &[Sample], at: At, time_s: f64, fits: &Fits) -> Result<Value, Invalid> {
    let energy = |s: &Sample| Sample {
        time_s: s.time_s * s.delta_w,
        // What is wrong with a duration is wrong with the energy over it, and is in the duration's interval already.
        time_ci_s: s.time_s * if s.delta_ci_w.is_finite() { s.delta_ci_w } else { 0.0 },
        ..*s
    };
    let energies: Vec<Sample> = samples.iter().map(energy).collect();
    let energy = over_nodes(&energies, at, VolumeModel::Law, fits)?;
    Ok(Value { value: energy.value / time_s, half: energy.half / time_s })
}

/// Estimates the logging of messages on one node over a run: M accesses and the volume's transfer (erratum B3).
///
/// # Errors
/// As [`estimate`], and with fewer than two volumes.
pub fn logging(samples: &[Sample], messages: f64, at: At, fits: &Fits) -> Result<Cost, Invalid> {
    non_negative("messages", messages)?;
    let one = |bytes: f64| estimate(samples, At { bytes, ..at }, VolumeModel::Law, fits);
    let volumes = distinct(samples, |s| s.bytes);
    require(volumes.len() >= 2, "length of V_values", volumes.len() as f64, "two values or more")?;
    let (least, most) = (volumes[0], volumes[volumes.len() - 1]);
    let (small, large) = (one(least)?, one(most)?);
    let rate = (most - least) / (large.time_s.value - small.time_s.value).max(f64::MIN_POSITIVE);
    let access_s = (small.time_s.value - least / rate).max(0.0);
    let value = logging_s(messages, access_s, at.bytes, rate);
    let relative = |e: &Estimate| if e.value > 0.0 { (e.high - e.value) / e.value } else { 0.0 };
    let half = value * relative(&small.time_s).max(relative(&large.time_s));
    Ok(Cost { time_s: Estimate::around(value, half), ..large })
}

/// A value and its uncertainty.
#[derive(Clone, Copy)]
struct Value {
    value: f64,
    half: f64,
}

/// How far a place lies outside of what was measured, on the axis where it is farthest, as a part of its range.
pub fn outside(samples: &[Sample], at: At) -> f64 {
    let axes = [(|s: &Sample| s.nodes) as fn(&Sample) -> f64, |s| s.processes, |s| s.bytes].into_iter().zip([
        at.nodes,
        at.processes,
        at.bytes,
    ]);
    axes.map(|(of, x)| beyond(samples, of, x)).fold(0.0, f64::max)
}

/// How far `x` lies outside of the values, as a part of their range; by its own size where they do not differ.
fn beyond(samples: &[Sample], of: impl Fn(&Sample) -> f64, x: f64) -> f64 {
    let (low, high) = samples.iter().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let away = (low - x).max(x - high).max(0.0);
    if away == 0.0 { 0.0 } else { away / (high - low).max(low.abs()).max(f64::MIN_POSITIVE) }
}

fn distinct(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn over_nodes(samples: &[Sample], at: At, volume: VolumeModel, fits: &Fits) -> Result<Value, Invalid> {
    let nodes = distinct(samples, |s| s.nodes);
    let (bytes, processes) = (distinct(samples, |s| s.bytes), distinct(samples, |s| s.processes));
    if nodes.len() == 1 {
        return plane(samples, &processes, &bytes, (at.processes, at.bytes), volume, fits, |s| (s.processes, s.bytes));
    }
    let is_within = nodes.last().is_some_and(|most| at.nodes <= *most);
    if bytes.len() == 1 && is_within {
        return plane(samples, &nodes, &processes, (at.nodes, at.processes), volume, fits, |s| (s.nodes, s.processes));
    }
    let at_n = |n: f64| {
        let of_n: Vec<Sample> = samples.iter().filter(|s| s.nodes == n).copied().collect();
        over_nodes(&of_n, at, volume, fits)
    };
    if nodes.contains(&at.nodes) {
        return at_n(at.nodes);
    }
    let through: Vec<Value> = nodes.iter().map(|n| at_n(*n)).collect::<Result<_, _>>()?;
    curve(&nodes, &through, at.nodes, VolumeModel::BestOf, fits)
}

/// A value from a table over two axes; from a line over one of them where the table has holes or only one row.
fn plane(
    samples: &[Sample],
    rows: &[f64],
    columns: &[f64],
    at: (f64, f64),
    model: VolumeModel,
    fits: &Fits,
    of: impl Fn(&Sample) -> (f64, f64),
) -> Result<Value, Invalid> {
    let cell = |r: f64, c: f64| samples.iter().find(|s| of(s) == (r, c));
    let along = |values: &[f64], x: f64, model, of: &dyn Fn(f64) -> Option<Value>| {
        let known: Vec<(f64, Value)> = values.iter().filter_map(|v| Some((*v, of(*v)?))).collect();
        let (x_values, y): (Vec<f64>, Vec<Value>) = known.into_iter().unzip();
        curve(&x_values, &y, x, model, fits)
    };
    if let Some(found) = cell(at.0, at.1) {
        return Ok(Value { value: found.time_s, half: found.time_ci_s });
    }
    let width = |c: f64| pooled(samples.iter().filter(|s| of(s).1 == c).map(|s| s.time_ci_s));
    let measured = |s: &Sample| Value { value: s.time_s, half: width(of(s).1) };
    let full: Option<Vec<Vec<f64>>> =
        rows.iter().map(|r| columns.iter().map(|c| cell(*r, *c).map(|s| s.time_s)).collect()).collect();
    match full {
        Some(table) if rows.len() >= 2 && columns.len() >= 2 => {
            let noise = relative_noise(samples);
            let widths: Vec<f64> = columns.iter().map(|c| width(*c)).collect();
            Ok(match two_way(rows, columns, &table, at, model, &widths, fits)? {
                TwoWay::Measured(value) => Value { value, half: noise * value },
                TwoWay::Estimated { a, b, b_is_better } => {
                    let path = if b_is_better { &b } else { &a };
                    let along_volume = b_is_better && model == VolumeModel::Law;
                    let scatter = if along_volume { scatter(columns, &widths, at.1) } else { 1.0 };
                    let half = (noise * path.value).hypot(scatter * missed(&path.fit, path.inputs.len()));
                    // The two paths are two opinions: they differ where the model does not fit.
                    Value { value: path.value, half: half.max(0.5 * (a.value - b.value).abs()) }
                }
            })
        }
        _ => {
            let nearest = |values: &[f64], x: f64| {
                values.iter().copied().min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs())).unwrap_or(x)
            };
            if columns.len() >= 2 {
                let r = nearest(rows, at.0);
                along(columns, at.1, model, &|c| cell(r, c).map(measured))
            } else {
                let c = nearest(columns, at.1);
                along(rows, at.0, VolumeModel::BestOf, &|r| cell(r, c).map(measured))
            }
        }
    }
}

/// The value at `x` of the curve through points; of the only one, or of the one that was measured there.
fn curve(x_values: &[f64], y: &[Value], x: f64, model: VolumeModel, fits: &Fits) -> Result<Value, Invalid> {
    if let Some(i) = x_values.iter().position(|v| *v == x) {
        return Ok(y[i]);
    }
    if let [only] = y {
        return Ok(*only);
    }
    let values: Vec<f64> = y.iter().map(|v| v.value).collect();
    let widths: Vec<f64> = y.iter().map(|v| v.half).collect();
    let (value, fit, scatter) = match model {
        VolumeModel::BestOf => {
            let (value, fit) = beyond_the_last(x_values, fits.best_of(x_values, &values)?.fits, x);
            (value, fit, 1.0)
        }
        VolumeModel::Law | VolumeModel::Linear => {
            let fit = law(x_values, &values, &widths)?;
            (fit.at(x), fit, scatter(x_values, &widths, x))
        }
    };
    Ok(Value { value, half: own_width(y, value).hypot(scatter * missed(&fit, values.len())) })
}

/// How wide the interval of a value is by those of the points: as wide as the widest is in proportion, but not wider than
/// any of them, unless the value is larger than all. A point near zero says nothing of the others.
fn own_width(y: &[Value], value: f64) -> f64 {
    let most = |of: &dyn Fn(&Value) -> f64| y.iter().map(of).fold(0.0, f64::max);
    let widest = most(&|v| if v.value > 0.0 { v.half / v.value } else { 0.0 });
    let (half, largest) = (most(&|v| v.half), most(&|v| v.value));
    match largest > 0.0 {
        true => (widest * value.abs()).min(half * (value.abs() / largest).max(1.0)),
        false => half,
    }
}

/// The value at `x`, and its curve. Beyond the last point a^p + b is not followed, which noise makes run away, and a curve
/// that falls stays where it was: more nodes or processes do not cost less.
fn beyond_the_last(x_values: &[f64], mut all: Vec<Fit>, x: f64) -> (f64, Fit) {
    let last = x_values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if x <= last {
        let fit = safest(&all, x_values.len());
        return (fit.at(x), fit);
    }
    all.retain(|f| f.curve != Curve::Exponential);
    let fit = safest(&all, x_values.len());
    (fit.at(x).max(fit.at(last)), fit)
}

/// The best fit; of two points, which every curve meets, the line.
fn safest(fits: &[Fit], points: usize) -> Fit {
    let line = fits[0];
    if points <= 2 {
        return line;
    }
    fits.iter().fold(line, |best, f| if f.r2 > best.r2 && f.curve != Curve::Linear { *f } else { best })
}

/// Half width that comes of what a fit misses, where points have the weight 1.
fn missed(fit: &Fit, points: usize) -> f64 {
    if points <= 2 {
        return 0.0;
    }
    let degrees = points - 2;
    student(degrees).min(4.0) * (fit.sse.max(0.0) / degrees as f64).sqrt()
}

/// The usual half width of several, their root mean square; 0 where none is known.
pub fn pooled(widths: impl Iterator<Item = f64>) -> f64 {
    let known = widths.filter(|w| *w > 0.0);
    let (sum, count) = known.fold((0.0, 0.0), |(sum, n), w| (sum + w * w, n + 1.0));
    if count > 0.0 { (sum / count).sqrt() } else { 0.0 }
}

fn relative_noise(samples: &[Sample]) -> f64 {
    let squares: f64 =
        samples.iter().filter(|s| s.time_s > 0.0).map(|s| (s.time_ci_s / s.time_s).min(1.0).powi(2)).sum();
    (squares / samples.len() as f64).sqrt()
}

/// Extra power at p: the mean over the rest for every p, then the best curve in p.
fn delta(samples: &[Sample], at: At, fits: &Fits) -> Result<Value, Invalid> {
    let processes = distinct(samples, |s| s.processes);
    let mut through = Vec::with_capacity(processes.len());
    for p in &processes {
        let of_p: Vec<&Sample> = samples.iter().filter(|s| s.processes == *p).collect();
        let n = of_p.len() as f64;
        let value = of_p.iter().map(|s| s.delta_w).sum::<f64>() / n;
        let own = of_p.iter().map(|s| s.delta_ci_w).filter(|c| c.is_finite()).fold(0.0, f64::max);
        let spread = of_p.iter().map(|s| (s.delta_w - value).powi(2)).sum::<f64>() / n;
        through.push(Value { value, half: own.hypot(spread.sqrt()) });
    }
    curve(&processes, &through, at.processes, VolumeModel::BestOf, fits)
}
