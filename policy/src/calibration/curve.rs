//! Fits curves of one variable to measurements by least squares and picks the best (Aupy15 §1.3).

use crate::invalid::{Invalid, require};
use std::sync::LazyLock;

/// A family of curves.
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
    /// Coefficient of determination in data space, each point by its weight.
    pub r2: f64,
    /// Sum of squared errors, each by its weight.
    pub sse: f64,
    /// Sum of squares about the mean, each by its weight.
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

/// Fits the paper's four curves, and b a^p if asked, and picks the best by R² in data space. x <= 0 rules out the
/// logarithm and the power; y <= 0 rules out linearized ones. Refuses fewer than two points, an x that does not vary,
/// |x| > 1e15 and |y| > 1e100.
pub fn best_of(x: &[f64], y: &[f64], method: Method, with_mult: bool) -> Result<BestOf, Invalid> {
    check(x, y)?;
    let curves = Curve::PAPER.into_iter().chain(with_mult.then_some(Curve::ExponentialMult));
    let fits: Vec<Fit> = curves.filter_map(|curve| fit(curve, x, y, method)).collect();
    let mut best = fits[0];
    for candidate in &fits[1..] {
        if candidate.r2 > best.r2 {
            best = *candidate;
        }
    }
    Ok(BestOf { best, degenerate: is_constant(y), fits })
}

/// The straight line alone, by weighted least squares: `widths` are the half widths of the intervals of `y`. Where the
/// scatter differs from point to point, weights of 1 / width² make the line that is nearest to the truth (Aitken 1935;
/// Draper and Smith, Applied Regression Analysis, §9.2). Where a width is zero or missing, all points weigh the same, and
/// the line is that of [`best_of`].
pub fn straight(x: &[f64], y: &[f64], widths: &[f64]) -> Result<Fit, Invalid> {
    check(x, y)?;
    let weights = weights(widths, x.len());
    let (alpha, beta) = weighted_line(x, y, &weights);
    let invalid = Invalid { parameter: "x", value: x[0], range: "values that a line can be drawn through" };
    judged(Curve::Linear, alpha, beta, x, y, &weights).ok_or(invalid)
}

/// The law of what moves bytes, an access and a rate: [`straight`], where neither may be below zero. By noise a line may
/// fall, or begin below zero; it would give nothing at all for what is much larger, or smaller, than was measured.
pub fn law(x: &[f64], y: &[f64], widths: &[f64]) -> Result<Fit, Invalid> {
    let free = straight(x, y, widths)?;
    let weights = weights(widths, x.len());
    let held = if free.alpha < 0.0 {
        judged(Curve::Linear, 0.0, mean(y, &weights), x, y, &weights)
    } else if free.beta < 0.0 {
        let sum = |of: &dyn Fn(usize) -> f64| (0..x.len()).map(|i| weights[i] * x[i] * of(i)).sum::<f64>();
        judged(Curve::Linear, sum(&|i| y[i]) / sum(&|i| x[i]), 0.0, x, y, &weights)
    } else {
        None
    };
    Ok(held.unwrap_or(free))
}

/// How many times as far as the narrowest point the values at `v` scatter about the line of [`straight`], which gives the
/// narrowest the weight 1. Between points, `x` of which rise, it changes evenly; beyond them it stays.
pub fn scatter(x: &[f64], widths: &[f64], v: f64) -> f64 {
    let of: Vec<f64> = weights(widths, x.len()).iter().map(|w| 1.0 / w.sqrt()).collect();
    let after = x.partition_point(|u| *u < v);
    match (after.checked_sub(1), x.get(after)) {
        (Some(before), Some(next)) => of[before] + (of[after] - of[before]) * (v - x[before]) / (next - x[before]),
        (Some(last), None) => of[last],
        (None, _) => of[0],
    }
}

/// The weights of so many points, the greatest of them 1.
fn weights(widths: &[f64], many: usize) -> Vec<f64> {
    if widths.len() != many || !widths.iter().all(|w| w.is_finite() && *w > 0.0) {
        return vec![1.0; many];
    }
    let least = widths.iter().copied().fold(f64::INFINITY, f64::min);
    widths.iter().map(|w| (least / w).powi(2)).collect()
}

fn check(x: &[f64], y: &[f64]) -> Result<(), Invalid> {
    require(x.len() >= 2, "length of x", x.len() as f64, "two points or more")?;
    require(x.len() == y.len(), "length of y", y.len() as f64, "as many values as x")?;
    for value in x {
        require(value.abs() <= 1e15, "x", *value, "finite, at most 1e15")?;
    }
    for value in y {
        require(value.abs() <= 1e100, "y", *value, "finite, at most 1e100")?;
    }
    require(!is_constant(x), "x", x[0], "values that differ")
}

/// The mean by weights; of values that are all the same, that value itself, which a rounded sum may miss.
fn mean(values: &[f64], weights: &[f64]) -> f64 {
    if is_constant(values) {
        return values[0];
    }
    values.iter().zip(weights).map(|(v, w)| w * v).sum::<f64>() / weights.iter().sum::<f64>()
}

fn is_constant(values: &[f64]) -> bool {
    values.iter().all(|v| *v == values[0])
}

/// Slope and intercept of the least-squares line.
fn line(x: &[f64], y: &[f64]) -> (f64, f64) {
    weighted_line(x, y, &vec![1.0; x.len()])
}

fn weighted_line(x: &[f64], y: &[f64], weights: &[f64]) -> (f64, f64) {
    let (mx, my) = (mean(x, weights), mean(y, weights));
    let sxx: f64 = x.iter().zip(weights).map(|(u, w)| w * (u - mx) * (u - mx)).sum();
    let sxy: f64 = x.iter().zip(y).zip(weights).map(|((u, v), w)| w * (u - mx) * (v - my)).sum();
    let slope = if sxx > 0.0 { sxy / sxx } else { 0.0 };
    (slope, my - slope * mx)
}

fn fit(curve: Curve, x: &[f64], y: &[f64], method: Method) -> Option<Fit> {
    let logs = || -> Option<Vec<f64>> { x.iter().map(|v| (*v > 0.0).then(|| v.ln())).collect() };
    let y_logs = || -> Option<Vec<f64>> { y.iter().map(|v| (*v > 0.0).then(|| v.ln())).collect() };
    let (alpha, beta) = match curve {
        Curve::Linear => line(x, y),
        Curve::Logarithmic => line(&logs()?, y),
        Curve::Power => scaled(&logs()?, y_logs(), y, method)?,
        Curve::Exponential => exponential(x, y),
        Curve::ExponentialMult => {
            let (rate, scale) = scaled(x, y_logs(), y, method)?;
            (rate.exp(), scale)
        }
    };
    let alike = vec![1.0; x.len()];
    let mut fitted = judged(curve, alpha, beta, x, y, &alike)?;
    if curve == Curve::Power
        && let (Some(lx), Some(ly)) = (logs(), y_logs())
    {
        let (slope, intercept) = line(&lx, &ly);
        let ml = mean(&ly, &alike);
        let sst: f64 = ly.iter().map(|v| (v - ml) * (v - ml)).sum();
        let sse: f64 = lx.iter().zip(&ly).map(|(u, v)| (v - slope * u - intercept).powi(2)).sum();
        fitted.r2_log = Some(determination(sse, sst, &ly));
    }
    Some(fitted)
}

/// A curve, and how well it meets the points, each by its weight.
fn judged(curve: Curve, alpha: f64, beta: f64, x: &[f64], y: &[f64], weights: &[f64]) -> Option<Fit> {
    let mut fitted = Fit { curve, alpha, beta, r2: 0.0, sse: 0.0, sst: 0.0, r2_log: None };
    let my = mean(y, weights);
    fitted.sst = y.iter().zip(weights).map(|(v, w)| w * (v - my) * (v - my)).sum();
    fitted.sse = x.iter().zip(y).zip(weights).map(|((u, v), w)| w * (v - fitted.at(*u)).powi(2)).sum();
    fitted.r2 = determination(fitted.sse, fitted.sst, y);
    fitted.sse.is_finite().then_some(fitted)
}

fn determination(sse: f64, sst: f64, y: &[f64]) -> f64 {
    if sst > 0.0 {
        return 1.0 - sse / sst;
    }
    let scale: f64 = y.iter().map(|v| v * v).sum();
    if sse <= 1e-24 * scale || sse < 1e-300 { 1.0 } else { 0.0 }
}

/// The rate a and the scale b of b e^(a u), which is b p^a for u = ln p. In data space b has a closed form for each a,
/// so that one parameter is searched.
fn scaled(lx: &[f64], ly: Option<Vec<f64>>, y: &[f64], method: Method) -> Option<(f64, f64)> {
    if let (Method::Linearized, Some(ly)) = (method, &ly) {
        let (slope, intercept) = line(lx, ly);
        return Some((slope, intercept.exp()));
    }
    if method == Method::Linearized {
        return None;
    }
    // A constant is met exactly by exponent zero; otherwise the search spans what stays within e^-40 to e^40.
    if is_constant(y) && y[0] != 0.0 {
        return Some((0.0, y[0]));
    }
    let mut u = vec![0.0; lx.len()];
    let scale = |a: f64, u: &mut [f64]| {
        let (mut xy, mut xx) = (0.0, 0.0);
        for ((u, l), v) in u.iter_mut().zip(lx).zip(y) {
            *u = (a * l).exp();
            xy += *u * v;
            xx += *u * *u;
        }
        xy / xx
    };
    let widest = lx.iter().fold(0.0_f64, |m, l| m.max(l.abs()));
    let limit = 40.0 / widest;
    let a = search(-limit, limit, |a| {
        let b = scale(a, &mut u);
        let (mut sse, mut slope) = (0.0, 0.0);
        for ((l, u), v) in lx.iter().zip(&u).zip(y) {
            let missed = v - b * u;
            sse += missed.powi(2);
            slope += missed * l * u;
        }
        (sse, -b * slope)
    });
    Some((a, scale(a, &mut u)))
}

/// a^p + b. For each a, b is the mean residual, so that ln a is searched.
fn exponential(x: &[f64], y: &[f64]) -> (f64, f64) {
    let mut u = vec![0.0; x.len()];
    let offset = |l: f64, u: &mut [f64]| {
        let mut sum = 0.0;
        for ((u, x), v) in u.iter_mut().zip(x).zip(y) {
            *u = (l * x).exp();
            sum += v - *u;
        }
        sum / x.len() as f64
    };
    let (low, high) = exponent_range(x, y);
    let l = search(low, high, |l| {
        let b = offset(l, &mut u);
        let (mut sse, mut slope) = (0.0, 0.0);
        for ((x, u), v) in x.iter().zip(&u).zip(y) {
            let missed = v - u - b;
            sse += missed.powi(2);
            slope += missed * x * u;
        }
        (sse, -slope)
    });
    (l.exp(), offset(l, &mut u))
}

/// ln a from -50 to where a^p exceeds anything in the data.
fn exponent_range(x: &[f64], y: &[f64]) -> (f64, f64) {
    let largest_x = x.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let largest_y = y.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    let high = (4.0 * largest_y + 10.0).ln() / largest_x * 4.0;
    (-(50.0_f64.min(600.0 / largest_x)), high.min(600.0 / largest_x))
}

/// Points of the grid on each side of zero, and how many of them are logarithmic.
const SIDE: i32 = 1200;
const HALF: i32 = 600;

/// The grid as parts of its limit: logarithmic near zero, where a slow trend lies, and linear from a hundredth of the
/// limit on, where a steep one does.
static GRID: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let part = |n: i32| match (n, f64::from(n) / f64::from(HALF)) {
        (0, _) => 0.0,
        (..HALF, t) => 10_f64.powf(10.0 * t - 12.0),
        (_, t) => 0.01 + 0.99 * (t - 1.0),
    };
    (0..=SIDE).map(part).collect()
});

/// Where a function of one variable is least: each valley of a coarse grid is looked at more closely, and in the
/// deepest the derivative is bisected. `f` gives the value and the derivative.
fn search(low: f64, high: f64, mut f: impl FnMut(f64) -> (f64, f64)) -> f64 {
    let at = |n: i32| if n < 0 { low } else { high } * GRID[n.unsigned_abs() as usize];
    // Near zero a function hardly bends from one point to the next.
    let is_coarse = |n: &i32| n % if n.abs() < HALF { 24 } else { 8 } == 0;
    let coarse: Vec<(i32, f64)> = (-SIDE..=SIDE).filter(is_coarse).map(|n| (n, f(at(n)).0)).collect();
    let (mut best, mut least) = coarse[0];
    for (i, (_, value)) in coarse.iter().enumerate() {
        let (before, after) = (i.checked_sub(1).map(|b| coarse[b]), coarse.get(i + 1).copied());
        if before.is_some_and(|(_, v)| v <= *value) || after.is_some_and(|(_, v)| v < *value) {
            continue;
        }
        for n in before.map_or(-SIDE, |(n, _)| n)..=after.map_or(SIDE, |(n, _)| n) {
            let value = f(at(n)).0;
            if value < least {
                (best, least) = (n, value);
            }
        }
    }
    let near = at(best);
    let (a, b) = (at((best - 1).max(-SIDE)), at((best + 1).min(SIDE)));
    match falling_to_rising(|x| f(x).1, a, b) {
        Some(refined) if least > 0.0 && f(refined).0 <= least => refined,
        _ => near,
    }
}

/// Where `slope` changes its sign from minus to plus between `low` and `high`.
pub(crate) fn falling_to_rising(mut slope: impl FnMut(f64) -> f64, mut low: f64, mut high: f64) -> Option<f64> {
    if !(slope(low) < 0.0 && slope(high) > 0.0) {
        return None;
    }
    for _ in 0..200 {
        let x = 0.5 * (low + high);
        if x == low || x == high {
            break;
        }
        if slope(x) < 0.0 {
            low = x;
        } else {
            high = x;
        }
    }
    Some(0.5 * (low + high))
}
