//! Fits calibration measurements and estimates the energy of each protocol (Aupy15 §1.3, ECOFIT).
//!
//! Errata: B1 the printed rate of t_checkpointing(4, V) is ten times too large; B2 "five values of N" should read of
//! p; B3 logging charges one access time for the whole volume, where M messages cost M accesses ([`logging_s`]).

use crate::invalid::{Invalid, non_negative, positive, require};
use crate::memoryless::golden_section;

/// The five calibration points for a largest value: 1, mid(1, p2), p2, mid(p2, max), max; halves to even.
pub fn points(max: f64) -> Result<[f64; 5], Invalid> {
    points_by(max, f64::round_ties_even)
}

/// The same with halves rounded up.
pub fn points_half_up(max: f64) -> Result<[f64; 5], Invalid> {
    points_by(max, |x| (x + 0.5).floor())
}

fn points_by(max: f64, round: impl Fn(f64) -> f64) -> Result<[f64; 5], Invalid> {
    require((1.0..=1e15).contains(&max) && max.fract() == 0.0, "max", max, "a whole number, 1 to 1e15")?;
    let middle = round(max / 2.0).max(1.0);
    Ok([1.0, round((1.0 + middle) / 2.0).max(1.0), middle, round((middle + max) / 2.0).max(1.0), max])
}

/// Which curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// a p + b.
    Linear,
    /// a ln p + b.
    Logarithmic,
    /// b p^a.
    Power,
    /// a^p + b. Not scale-invariant: fit in SI units.
    Exponential,
    /// b a^p, off by default.
    ExponentialMult,
}

impl Curve {
    /// The four curves of the paper, simplest first.
    pub const PAPER: [Curve; 4] = [Curve::Linear, Curve::Logarithmic, Curve::Power, Curve::Exponential];

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Curve::Linear => "linear",
            Curve::Logarithmic => "logarithmic",
            Curve::Power => "power",
            Curve::Exponential => "exponential",
            Curve::ExponentialMult => "exponential_mult",
        }
    }
}

/// How curves that are not linear in their parameters are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Least squares of the logarithms.
    Linearized,
    /// Least squares of the data.
    LeastSquares,
}

/// A fitted curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The curve.
    pub curve: Curve,
    /// Parameter a.
    pub alpha: f64,
    /// Parameter b.
    pub beta: f64,
    /// Coefficient of determination in data space.
    pub r2: f64,
    /// Sum of squared errors.
    pub sse: f64,
    /// Sum of squares about the mean.
    pub sst: f64,
    /// Coefficient of determination of the logarithms, for [`Curve::Power`].
    pub r2_log: Option<f64>,
}

impl Fit {
    /// The curve's value.
    pub fn at(&self, x: f64) -> f64 {
        match self.curve {
            Curve::Linear => self.alpha * x + self.beta,
            Curve::Logarithmic => self.alpha * x.ln() + self.beta,
            Curve::Power => self.beta * x.powf(self.alpha),
            Curve::Exponential => self.alpha.powf(x) + self.beta,
            Curve::ExponentialMult => self.beta * self.alpha.powf(x),
        }
    }
}

/// The fits of every curve that the points allow, and the best of them.
#[derive(Clone, Debug, PartialEq)]
pub struct BestOf {
    /// The best; on a tie the simplest.
    pub best: Fit,
    /// All, simplest first.
    pub fits: Vec<Fit>,
    /// Whether y is constant, so that R² is undefined and reported as 1 for an exact fit.
    pub degenerate: bool,
}

/// Fits the paper's four curves, and b a^p if asked, and picks the best by R².
pub fn best_of(x: &[f64], y: &[f64], method: Method, with_mult: bool) -> Result<BestOf, Invalid> {
    require(x.len() >= 2, "x", x.len() as f64, "two points or more")?;
    require(x.len() == y.len(), "y", y.len() as f64, "as many values as x")?;
    for value in x {
        require(value.abs() <= 1e15, "x", *value, "finite, at most 1e15")?;
    }
    for value in y {
        require(value.abs() <= 1e100, "y", *value, "finite, at most 1e100")?;
    }
    require(x.iter().any(|v| *v != x[0]), "x", x[0], "values that differ")?;
    let curves = Curve::PAPER.into_iter().chain(with_mult.then_some(Curve::ExponentialMult));
    let fits: Vec<Fit> = curves.filter_map(|curve| fit(curve, x, y, method)).collect();
    let mut best = fits[0];
    for candidate in &fits[1..] {
        if candidate.r2 > best.r2 {
            best = *candidate;
        }
    }
    Ok(BestOf { best, degenerate: y.iter().all(|v| *v == y[0]), fits })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Slope and intercept of the least-squares line.
fn line(x: &[f64], y: &[f64]) -> (f64, f64) {
    let (mx, my) = (mean(x), mean(y));
    let sxx: f64 = x.iter().map(|v| (v - mx) * (v - mx)).sum();
    let sxy: f64 = x.iter().zip(y).map(|(u, v)| (u - mx) * (v - my)).sum();
    let slope = if sxx > 0.0 { sxy / sxx } else { 0.0 };
    (slope, my - slope * mx)
}

fn fit(curve: Curve, x: &[f64], y: &[f64], method: Method) -> Option<Fit> {
    let logs = || -> Option<Vec<f64>> { x.iter().map(|v| (*v > 0.0).then(|| v.ln())).collect() };
    let y_logs = || -> Option<Vec<f64>> { y.iter().map(|v| (*v > 0.0).then(|| v.ln())).collect() };
    let (alpha, beta) = match curve {
        Curve::Linear => line(x, y),
        Curve::Logarithmic => line(&logs()?, y),
        Curve::Power => power(&logs()?, y_logs(), y, method)?,
        Curve::Exponential => exponential(x, y),
        Curve::ExponentialMult => {
            let (slope, intercept) = line(x, &y_logs()?);
            (slope.exp(), intercept.exp())
        }
    };
    let mut fitted = Fit { curve, alpha, beta, r2: 0.0, sse: 0.0, sst: 0.0, r2_log: None };
    let my = mean(y);
    fitted.sst = y.iter().map(|v| (v - my) * (v - my)).sum();
    fitted.sse = x.iter().zip(y).map(|(u, v)| (v - fitted.at(*u)).powi(2)).sum();
    if !fitted.sse.is_finite() {
        return None;
    }
    fitted.r2 = determination(fitted.sse, fitted.sst, y);
    if curve == Curve::Power
        && let (Some(lx), Some(ly)) = (logs(), y_logs())
    {
        let (slope, intercept) = line(&lx, &ly);
        let ml = mean(&ly);
        let sst: f64 = ly.iter().map(|v| (v - ml) * (v - ml)).sum();
        let sse: f64 = lx.iter().zip(&ly).map(|(u, v)| (v - slope * u - intercept).powi(2)).sum();
        fitted.r2_log = Some(determination(sse, sst, &ly));
    }
    Some(fitted)
}

fn determination(sse: f64, sst: f64, y: &[f64]) -> f64 {
    if sst > 0.0 {
        return 1.0 - sse / sst;
    }
    let scale: f64 = y.iter().map(|v| v * v).sum();
    if sse <= 1e-24 * scale || sse < 1e-300 { 1.0 } else { 0.0 }
}

/// b p^a. In data space b has a closed form for each a, so that one parameter is searched.
fn power(lx: &[f64], ly: Option<Vec<f64>>, y: &[f64], method: Method) -> Option<(f64, f64)> {
    if let (Method::Linearized, Some(ly)) = (method, &ly) {
        let (slope, intercept) = line(lx, ly);
        return Some((slope, intercept.exp()));
    }
    if method == Method::Linearized {
        return None;
    }
    let scale = |a: f64| {
        let (mut xy, mut xx) = (0.0, 0.0);
        for (l, v) in lx.iter().zip(y) {
            let u = (a * l).exp();
            xy += u * v;
            xx += u * u;
        }
        xy / xx
    };
    let sse = |a: f64| {
        let b = scale(a);
        lx.iter().zip(y).map(|(l, v)| (v - b * (a * l).exp()).powi(2)).sum::<f64>()
    };
    // A constant is met exactly by exponent zero; otherwise the search spans what stays within e^-40 to e^40.
    if y.iter().all(|v| *v == y[0]) && y[0] != 0.0 {
        return Some((0.0, y[0]));
    }
    let widest = lx.iter().fold(0.0_f64, |m, l| m.max(l.abs()));
    let limit = 40.0 / widest;
    let slope = |a: f64| {
        let b = scale(a);
        -b * lx.iter().zip(y).map(|(l, v)| (v - b * (a * l).exp()) * l * (a * l).exp()).sum::<f64>()
    };
    let a = search(&sse, &slope, -limit, limit);
    Some((a, scale(a)))
}

/// a^p + b. For each a, b is the mean residual, so that ln a is searched.
fn exponential(x: &[f64], y: &[f64]) -> (f64, f64) {
    let offset = |l: f64| x.iter().zip(y).map(|(u, v)| v - (l * u).exp()).sum::<f64>() / x.len() as f64;
    let sse = |l: f64| {
        let b = offset(l);
        x.iter().zip(y).map(|(u, v)| (v - (l * u).exp() - b).powi(2)).sum::<f64>()
    };
    let (low, high) = exponent_range(x, y);
    let slope = |l: f64| {
        let b = offset(l);
        -x.iter().zip(y).map(|(u, v)| (v - (l * u).exp() - b) * u * (l * u).exp()).sum::<f64>()
    };
    let l = search(&sse, &slope, low, high);
    (l.exp(), offset(l))
}

/// ln a from -50 to where a^p exceeds anything in the data.
fn exponent_range(x: &[f64], y: &[f64]) -> (f64, f64) {
    let largest_x = x.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let largest_y = y.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    let high = (4.0 * largest_y + 10.0).ln() / largest_x * 4.0;
    (-(50.0_f64.min(600.0 / largest_x)), high.min(600.0 / largest_x))
}

/// The least value of a function of one variable: a grid finer near zero, golden section about its minimum, then
/// bisection of the derivative, since golden section alone resolves only the square root of the precision.
fn search(f: &impl Fn(f64) -> f64, slope: &impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    const SIDE: i32 = 600;
    let step = |n: i32| {
        let t = f64::from(n) / f64::from(SIDE);
        if n < 0 { low * t.abs().powi(3) } else { high * t.powi(3) }
    };
    let mut best = -SIDE;
    for n in -SIDE..=SIDE {
        if f(step(n)) < f(step(best)) {
            best = n;
        }
    }
    let at = step(best);
    if f(at) == 0.0 || best == -SIDE {
        return at;
    }
    let (a, b) = (step(best - 1), step((best + 1).min(SIDE)));
    let found = golden_section(f, a, b);
    let width = ((b - a) * 1e-3).max(found.abs() * 1e-7);
    let refined = falling_to_rising(slope, found - width, found + width).unwrap_or(found);
    if f(refined) <= f(at) { refined } else { at }
}

/// Where `slope` changes its sign from minus to plus between `low` and `high`.
pub(crate) fn falling_to_rising(slope: &impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> Option<f64> {
    if !(slope(low) < 0.0 && slope(high) > 0.0) {
        return None;
    }
    for _ in 0..200 {
        let x = 0.5 * (low + high);
        if slope(x) < 0.0 {
            low = x;
        } else {
            high = x;
        }
    }
    Some(0.5 * (low + high))
}

/// How the time depends on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeModel {
    /// t = access + V / rate, known beforehand.
    Linear,
    /// The best of the four curves.
    BestOf,
}

/// One path of the two-way estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The inputs of its last fit.
    pub inputs: Vec<f64>,
    /// Its last fit.
    pub fit: Fit,
    /// Its estimate.
    pub value: f64,
}

/// Which value the two-way estimate returns.
#[derive(Clone, Debug, PartialEq)]
pub enum TwoWay {
    /// The point was measured.
    Measured(f64),
    /// Path A: a curve in p at the wanted volume; path B: a curve in V at the wanted p. A unless B's R² is higher.
    Estimated {
        /// Path A.
        a: Path,
        /// Path B.
        b: Path,
        /// Whether B's R² is higher.
        b_is_better: bool,
    },
}

/// Estimates t(p0, V0) from a table `t[i][j]` at `p[i]`, `v[j]`.
pub fn two_way(p: &[f64], v: &[f64], t: &[Vec<f64>], p0: f64, v0: f64, model: VolumeModel) -> Result<TwoWay, Invalid> {
    require(p.len() >= 2, "p_values", p.len() as f64, "two values or more")?;
    require(v.len() >= 2, "V_values", v.len() as f64, "two values or more")?;
    require(t.len() == p.len(), "t", t.len() as f64, "one row for each of p_values")?;
    for row in t {
        require(row.len() == v.len(), "t", row.len() as f64, "one column for each of V_values")?;
    }
    positive("p0", p0)?;
    non_negative("V0", v0)?;
    let (at_p, at_v) = (p.iter().position(|x| *x == p0), v.iter().position(|x| *x == v0));
    if let (Some(i), Some(j)) = (at_p, at_v) {
        return Ok(TwoWay::Measured(t[i][j]));
    }
    let in_volume = |y: &[f64]| -> Result<Fit, Invalid> {
        let all = best_of(v, y, Method::LeastSquares, false)?;
        Ok(match model {
            VolumeModel::Linear => all.fits[0],
            VolumeModel::BestOf => all.best,
        })
    };
    let in_nodes = |y: &[f64]| -> Result<Fit, Invalid> { Ok(best_of(p, y, Method::LeastSquares, false)?.best) };
    let mut inputs_a = Vec::with_capacity(p.len());
    for row in t {
        inputs_a.push(match at_v {
            Some(j) => row[j],
            None => in_volume(row)?.at(v0),
        });
    }
    let fit_a = in_nodes(&inputs_a)?;
    let mut inputs_b = Vec::with_capacity(v.len());
    for j in 0..v.len() {
        let column: Vec<f64> = t.iter().map(|row| row[j]).collect();
        inputs_b.push(match at_p {
            Some(i) => t[i][j],
            None => in_nodes(&column)?.at(p0),
        });
    }
    let fit_b = in_volume(&inputs_b)?;
    let a = Path { value: fit_a.at(p0), fit: fit_a, inputs: inputs_a };
    let b = Path { value: fit_b.at(v0), fit: fit_b, inputs: inputs_b };
    let b_is_better = b.fit.r2 > a.fit.r2;
    Ok(TwoWay::Estimated { a, b, b_is_better })
}

/// Energy of one operation: t (N delta + sum of idle + sum of switches' idle).
pub fn operation_j(time_s: f64, nodes: f64, delta_w: f64, idle_w: f64, switches_w: f64) -> f64 {
    time_s * (nodes * delta_w + idle_w + switches_w)
}

/// Erratum B3: M messages cost M accesses and the volume's transfer.
pub fn logging_s(messages: f64, access_s: f64, volume_bytes: f64, rate_bytes_per_s: f64) -> f64 {
    messages * access_s + volume_bytes / rate_bytes_per_s
}

/// Coordinated n (E_ckpt + E_coord) against uncoordinated n E_ckpt + E_log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolEnergy {
    /// Checkpoint of all nodes.
    pub checkpoint_j: f64,
    /// Polling and synchronisation of one coordinated checkpoint.
    pub coordination_j: f64,
    /// Logging over the run.
    pub logging_j: f64,
}

impl ProtocolEnergy {
    /// Energy of `n` coordinated checkpoints.
    pub fn coordinated_j(&self, n: f64) -> f64 {
        n * (self.checkpoint_j + self.coordination_j)
    }

    /// Energy of `n` uncoordinated checkpoints and the logging.
    pub fn uncoordinated_j(&self, n: f64) -> f64 {
        n * self.checkpoint_j + self.logging_j
    }

    /// E_log / E_coord: below this number of checkpoints, coordination is cheaper. Infinite if it costs nothing.
    pub fn break_even(&self) -> f64 {
        self.logging_j / self.coordination_j
    }
}

/// The published fit of t_synchro(N, 4) on N nodes of four processes: 0.0103757 ln N + 0.00445945 seconds.
pub fn published_synchro_p4_s(nodes: f64) -> Result<f64, Invalid> {
    require(nodes >= 1.0, "x", nodes, "finite, >= 1 node")?;
    Ok(0.010_375_7 * nodes.ln() + 0.004_459_45)
}

/// The published fit of t_logging(V) on a hard disk: 8.58e-5 s and 1.0552e9 bytes per second (erratum B3: one access
/// for the whole volume; [`logging_s`] charges one for each message).
pub fn published_logging_hdd_s(volume_bytes: f64) -> Result<f64, Invalid> {
    non_negative("x", volume_bytes)?;
    Ok(logging_s(1.0, 8.58e-5, volume_bytes, 1.0552e9))
}

/// The published t_checkpointing(p, 1000 MB) is 3.41099 p^a; a is not known here, so that p = 1 is the only point.
/// Erratum B1 puts the other fit, t_checkpointing(4, V), at 0.056569e9 bytes per second, a tenth of what is printed.
pub fn published_checkpointing_1000mb_s(processes: f64) -> Result<f64, Invalid> {
    require(processes == 1.0, "x", processes, "1, since the published exponent is not known here")?;
    Ok(3.410_99)
}
