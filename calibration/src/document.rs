//! Makes a calibration of finished measurements: means, intervals, fits, and what could not be measured.

use crate::orders::Order;
use crate::state::Outcome;
use hardware::facts::Facts;
use policy::calibration::{Method, best_of, law};
use policy::estimate::pooled;
use policy::repeated::{Summary, median, summarize};
use protocol::{
    Axis, BasePower, CALIBRATION_VERSION, Calibration, Measured, Noise, Operation, Point, Quantity, Skipped, Storage,
    StoredFit,
};
use std::collections::BTreeMap;

/// What a calibration is called, and what the site says for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Title {
    /// Cluster name.
    pub cluster: String,
    /// Node type.
    pub node_type: String,
    /// When it ended, s.
    pub at_s: f64,
    /// Whether it was cut short.
    pub fast: bool,
    /// Idle power of each switch, W.
    pub switches_idle_w: Vec<f64>,
    /// Extra power of a busy switch, W.
    pub switch_delta_w: f64,
}

/// Sums everything up. `refused` is what was never tried, with the reason.
pub fn assemble(title: &Title, facts: &Facts, outcomes: &[Outcome], refused: Vec<Skipped>) -> Calibration {
    let idle_w = idle(outcomes);
    let mut spreads = (Vec::new(), Vec::new());
    let mut measured: BTreeMap<(Operation, Option<Storage>), Vec<Point>> = BTreeMap::new();
    let mut skipped = refused;
    for (order, of_order) in by_order(outcomes) {
        let Some(operation) = order.operation else { continue };
        match point(order, &of_order, &idle_w, &mut spreads) {
            Some(point) => measured.entry((operation, order.storage)).or_default().push(point),
            None => {
                let error = of_order.iter().find_map(|o| o.error.clone());
                let why = error.unwrap_or_else(|| "no duration or no power could be read in so short a time".into());
                let skip = Skipped { operation, storage: order.storage, why };
                if !skipped.contains(&skip) {
                    skipped.push(skip);
                }
            }
        }
    }
    let with_fits = |((operation, storage), points): ((Operation, Option<Storage>), Vec<Point>)| {
        let fits = fits(&points);
        Measured { operation, storage, points, fits }
    };
    Calibration {
        version: CALIBRATION_VERSION,
        cluster: title.cluster.clone(),
        node_type: title.node_type.clone(),
        at_s: title.at_s,
        fast: title.fast,
        fingerprint: facts.fingerprint.clone(),
        differing: BTreeMap::new(),
        energy_source: source(outcomes),
        power: BasePower {
            idle_w,
            switches_idle_w: title.switches_idle_w.clone(),
            switch_delta_w: title.switch_delta_w,
        },
        noise: Noise { time_fraction: median(&spreads.0).unwrap_or(0.0), delta_w: median(&spreads.1).unwrap_or(0.0) },
        measured: measured.into_iter().map(with_fits).collect(),
        skipped,
    }
}

fn idle(outcomes: &[Outcome]) -> BTreeMap<String, f64> {
    let of_idle = outcomes.iter().filter(|o| o.order.operation.is_none());
    of_idle.filter_map(|o| Some((o.node.clone(), summarize(&o.powers_w)?.mean))).collect()
}

/// The source of most figures.
fn source(outcomes: &[Outcome]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    outcomes.iter().filter(|o| !o.source.is_empty()).for_each(|o| *counts.entry(&o.source).or_default() += 1);
    counts.into_iter().max_by_key(|(_, n)| *n).map(|(s, _)| s.to_string()).unwrap_or_default()
}

fn by_order(outcomes: &[Outcome]) -> Vec<(&Order, Vec<&Outcome>)> {
    let mut groups: Vec<(&Order, Vec<&Outcome>)> = Vec::new();
    for outcome in outcomes {
        match groups.iter_mut().find(|(order, _)| **order == outcome.order) {
            Some((_, group)) => group.push(outcome),
            None => groups.push((&outcome.order, vec![outcome])),
        }
    }
    let coordinates = |o: &Order| [f64::from(o.nodes), f64::from(o.processes), o.bytes, o.intensity];
    groups.sort_by(|(a, _), (b, _)| coordinates(a).partial_cmp(&coordinates(b)).unwrap_or(std::cmp::Ordering::Equal));
    groups
}

/// The repetitions of all nodes together.
fn point(
    order: &Order,
    outcomes: &[&Outcome],
    idle_w: &BTreeMap<String, f64>,
    spreads: &mut (Vec<f64>, Vec<f64>),
) -> Option<Point> {
    let times: Vec<f64> = outcomes.iter().flat_map(|o| o.times_s.iter().copied()).collect();
    let usual = summarize(&idle_w.values().copied().collect::<Vec<_>>()).map_or(0.0, |s| s.mean);
    let above = |o: &&Outcome| {
        let idle = idle_w.get(&o.node).copied().unwrap_or(usual);
        o.powers_w.iter().map(move |w| w - idle).collect::<Vec<_>>()
    };
    let deltas: Vec<f64> = outcomes.iter().flat_map(above).collect();
    let (time, delta): (Summary, Summary) = (summarize(&times)?, summarize(&deltas)?);
    if time.mean <= 0.0 {
        return None;
    }
    spreads.0.push(time.deviation / time.mean);
    spreads.1.push(delta.deviation);
    Some(Point {
        nodes: order.nodes,
        processes: order.processes,
        bytes: order.bytes,
        intensity: order.intensity,
        frequency_hz: order.frequency_hz,
        time_s: time.mean,
        // Of a single one nothing is known of its spread: the whole of it.
        time_ci_s: if time.half_width.is_finite() { time.half_width } else { time.mean },
        delta_w: delta.mean,
        delta_ci_w: Some(delta.half_width).filter(|w| w.is_finite()),
        count: time.count as u32,
        outliers: time.outliers as u32,
    })
}

/// A coordinate of a point.
pub fn coordinate(point: &Point, axis: Axis) -> f64 {
    match axis {
        Axis::Nodes => f64::from(point.nodes),
        Axis::Processes => f64::from(point.processes),
        Axis::Bytes => point.bytes,
    }
}

/// Whether two points differ on one axis only.
pub fn on_one_line(a: &Point, b: &Point, axis: Axis) -> bool {
    let others = [Axis::Nodes, Axis::Processes, Axis::Bytes].into_iter().filter(|x| *x != axis);
    a.intensity == b.intensity
        && a.frequency_hz == b.frequency_hz
        && others.into_iter().all(|x| coordinate(a, x) == coordinate(b, x))
}

/// A fit over every line of three or more points: durations over all axes, powers over the processes.
fn fits(points: &[Point]) -> Vec<StoredFit> {
    let mut found = Vec::new();
    for (axis, of) in [
        (Axis::Bytes, Quantity::TimeS),
        (Axis::Processes, Quantity::TimeS),
        (Axis::Nodes, Quantity::TimeS),
        (Axis::Processes, Quantity::DeltaW),
    ] {
        for (at, first) in points.iter().enumerate() {
            if points[..at].iter().any(|p| on_one_line(p, first, axis)) {
                continue;
            }
            let line: Vec<&Point> = points.iter().filter(|p| on_one_line(p, first, axis)).collect();
            found.extend(fit(points, &line, at, axis, of));
        }
    }
    found
}

fn fit(all: &[Point], line: &[&Point], at: usize, over: Axis, of: Quantity) -> Option<StoredFit> {
    if line.len() < 3 {
        return None;
    }
    let x: Vec<f64> = line.iter().map(|p| coordinate(p, over)).collect();
    let y: Vec<f64> = line.iter().map(|p| if of == Quantity::TimeS { p.time_s } else { p.delta_w }).collect();
    let curves = best_of(&x, &y, Method::LeastSquares, false).ok()?;
    let fit = match over {
        // The volume's law is known: an access, and a rate. It is fitted as estimates are.
        Axis::Bytes => law(&x, &y, &line.iter().map(|p| usual_width_s(all, p)).collect::<Vec<_>>()).ok()?,
        _ => curves.best,
    };
    let squares: f64 = x.iter().zip(&y).map(|(u, v)| (v - fit.at(*u)).powi(2)).sum();
    let residual = (squares / x.len() as f64).sqrt();
    let curve = fit.curve.name().to_string();
    let (alpha, beta, r2) = (fit.alpha, fit.beta, fit.r2);
    Some(StoredFit { of, over, at, curve, alpha, beta, r2, residual, degenerate: curves.degenerate })
}

/// Half width of the interval of the durations of one volume, over all processes.
fn usual_width_s(all: &[Point], of: &Point) -> f64 {
    let place = |p: &Point| (p.nodes, p.bytes, p.intensity, p.frequency_hz);
    pooled(all.iter().filter(|p| place(p) == place(of)).map(|p| p.time_ci_s))
}

/// The value of a stored fit.
pub fn at(fit: &StoredFit, x: f64) -> f64 {
    match fit.curve.as_str() {
        "logarithmic" => fit.alpha * x.ln() + fit.beta,
        "power" => fit.beta * x.powf(fit.alpha),
        "exponential" => fit.alpha.powf(x) + fit.beta,
        _ => fit.alpha * x + fit.beta,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use protocol::Fingerprint;
    use rand::{Rng, SeedableRng};

    fn order(operation: Option<Operation>, processes: u32, bytes: f64) -> Order {
        let storage = (operation == Some(Operation::CheckpointWrite)).then_some(Storage::Local);
        Order { operation, storage, nodes: 1, processes, bytes, intensity: 1.0, frequency_hz: None }
    }

    /// A calibration of a machine that writes 400 MB/s after 50 ms, draws 20 W + 5 W a process, with 2 % of noise.
    pub(crate) fn generated(seed: u64) -> Calibration {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut noisy = |x: f64| (0..8).map(|_| x * (1.0 + 0.02 * rng.random_range(-1.0..1.0))).collect::<Vec<_>>();
        let mut one = |order: Order, time_s: f64, power_w: f64| Outcome {
            order,
            node: "n1".into(),
            times_s: noisy(time_s),
            powers_w: noisy(power_w),
            source: "rapl".into(),
            error: None,
        };
        let mut outcomes = vec![one(order(None, 0, 0.0), 1.0, 100.0)];
        for p in [1, 4, 8, 12, 16] {
            for v in [1e8, 5e8, 1e9] {
                let (t, w) = (0.05 + v / 4e8, 120.0 + 5.0 * f64::from(p));
                outcomes.push(one(order(Some(Operation::CheckpointWrite), p, v), t, w));
            }
        }
        let error = Some("No space left on device".to_string());
        let failed = order(Some(Operation::LogDisk), 1, 1e6);
        outcomes.push(Outcome { error, times_s: vec![], powers_w: vec![], ..one(failed, 1.0, 1.0) });
        let title = Title {
            cluster: "c".into(),
            node_type: "t".into(),
            at_s: 1e9,
            fast: false,
            switches_idle_w: vec![50.0],
            switch_delta_w: 0.0,
        };
        let facts = Facts { node: "n1".into(), fingerprint: Fingerprint::default(), frequencies_hz: vec![] };
        assemble(&title, &facts, &outcomes, Vec::new())
    }

    #[test]
    fn the_fits_find_the_generated_machine_again() {
        let c = generated(1);
        assert!((c.power.idle_w["n1"] / 100.0 - 1.0).abs() < 0.02, "{:?}", c.power);
        let write = &c.measured[0];
        assert_eq!((write.points.len(), write.points[0].count + write.points[0].outliers), (15, 8));
        let over = |axis, of| write.fits.iter().filter(move |f| f.over == axis && f.of == of);
        assert_eq!(over(Axis::Bytes, Quantity::TimeS).count(), 5, "one for each p");
        for fit in over(Axis::Bytes, Quantity::TimeS) {
            assert!((fit.alpha * 4e8 - 1.0).abs() < 0.05 && fit.r2 > 0.99, "{fit:?}");
            assert!(fit.residual < 0.05, "{fit:?}");
        }
        for fit in over(Axis::Processes, Quantity::DeltaW) {
            assert!((at(fit, 10.0) / 70.0 - 1.0).abs() < 0.1, "{fit:?}");
        }
        assert!(c.noise.time_fraction > 0.005 && c.noise.time_fraction < 0.03, "{:?}", c.noise);
    }

    #[test]
    fn what_could_not_be_measured_says_why() {
        let c = generated(1);
        assert_eq!(c.skipped.len(), 1);
        assert_eq!(
            (c.skipped[0].operation, c.skipped[0].why.as_str()),
            (Operation::LogDisk, "No space left on device")
        );
    }

    #[test]
    fn a_calibration_survives_its_file() {
        let c = generated(2);
        let text = serde_json::to_string(&c).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), c);
    }
}
