//! Estimates the time to the next failure from the gaps between past ones (ElSayed14's adaptive estimators).
//!
//! An [`Estimator`] is told each gap once, when the failure that ends it has happened, and so cannot see the future.
//! The exceptions, which exist to reproduce ElSayed14, are named: [`Estimator::with_history`] fixes the table of
//! [`EstimatorKind::Hazard`] in advance (in-sample, when the history is the one that is replayed).

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use crate::residual::ResidualTable;
use crate::special::{ln_gamma, upper_gamma_scaled};

const DAY_S: f64 = 86_400.0;

/// Weight of the newest gap in the exponential moving average (reproduces ElSayed14's averages).
pub const EMA_WEIGHT: f64 = 0.2;
/// Window of the simple moving average, in days.
pub const SMA_WINDOW_DAYS: f64 = 28.0;
/// Window of the weighted moving average, in days.
pub const WMA_WINDOW_DAYS: f64 = 53.0;
/// Order of the autoregressive estimator.
pub const AR_ORDER: usize = 3;
/// Shape of the Weibull distribution where none is given: the middle of published failure logs.
pub const DEFAULT_SHAPE: f64 = 0.7;

/// The longest gap that is kept: a thousand years.
const LONGEST_GAP_S: f64 = 1e3 * 365.25 * DAY_S;

/// The kinds of estimators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EstimatorKind {
    /// The prior, always (Young, Daly).
    Static,
    /// Mean of the gaps that ended in the last [`SMA_WINDOW_DAYS`].
    Sma,
    /// The same, weighted linearly towards the newest, over [`WMA_WINDOW_DAYS`].
    Wma,
    /// Exponential moving average with weight [`EMA_WEIGHT`].
    Ema,
    /// Autoregressive prediction of order [`AR_ORDER`].
    Ar,
    /// Expected time to failure given the time since the last one, from a fixed table of past gaps.
    Hazard,
    /// The same from the gaps that have ended so far.
    HazardDynamic,
    /// The same from a Weibull distribution of given shape and mean.
    HazardShape,
}

impl EstimatorKind {
    /// Every kind.
    pub const ALL: [EstimatorKind; 8] = [
        EstimatorKind::Static,
        EstimatorKind::Sma,
        EstimatorKind::Wma,
        EstimatorKind::Ema,
        EstimatorKind::Ar,
        EstimatorKind::Hazard,
        EstimatorKind::HazardDynamic,
        EstimatorKind::HazardShape,
    ];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            EstimatorKind::Static => "static",
            EstimatorKind::Sma => "sma",
            EstimatorKind::Wma => "wma",
            EstimatorKind::Ema => "ema",
            EstimatorKind::Ar => "ar",
            EstimatorKind::Hazard => "hazard",
            EstimatorKind::HazardDynamic => "hazard-dynamic",
            EstimatorKind::HazardShape => "hazard-shape",
        }
    }
}

impl fmt::Display for EstimatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no estimator has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEstimator(pub String);

impl fmt::Display for UnknownEstimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = EstimatorKind::ALL.iter().map(|k| k.name()).collect();
        write!(f, "no estimator is called {:?}; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownEstimator {}

impl FromStr for EstimatorKind {
    type Err = UnknownEstimator;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        EstimatorKind::ALL.into_iter().find(|k| k.name() == name).ok_or_else(|| UnknownEstimator(name.to_owned()))
    }
}

/// A gap as it is kept, if it can be one.
fn observable_s(gap_s: f64) -> Option<f64> {
    (gap_s.is_finite() && gap_s > 0.0).then(|| gap_s.min(LONGEST_GAP_S))
}

/// MTBF of a platform: the MTBF of one node over the number of nodes. Zero nodes count as one.
pub fn combine_prior(site_mtbf_node_s: f64, nodes: u32) -> f64 {
    site_mtbf_node_s / f64::from(nodes.max(1))
}

/// An estimator and what it has seen.
#[derive(Clone, Debug)]
pub struct Estimator {
    kind: EstimatorKind,
    prior_s: f64,
    seen: Seen,
}

#[derive(Clone, Debug)]
enum Seen {
    Nothing,
    Window(Window),
    Average(Option<f64>),
    Lags(Autoregression),
    Table { table: ResidualTable, fixed: bool },
    Weibull { shape: f64 },
}

impl Estimator {
    /// An estimator that has seen no failure and answers with the prior, which must be the MTBF of the nodes in use.
    /// A prior that is not finite and positive counts as a year.
    pub fn new(kind: EstimatorKind, prior_mtbf_s: f64) -> Estimator {
        let prior_s = if prior_mtbf_s.is_finite() && prior_mtbf_s > 0.0 { prior_mtbf_s } else { 365.25 * DAY_S };
        let seen = match kind {
            EstimatorKind::Static => Seen::Nothing,
            EstimatorKind::Sma => Seen::Window(Window::new(SMA_WINDOW_DAYS * DAY_S, false)),
            EstimatorKind::Wma => Seen::Window(Window::new(WMA_WINDOW_DAYS * DAY_S, true)),
            EstimatorKind::Ema => Seen::Average(None),
            EstimatorKind::Ar => Seen::Lags(Autoregression::new(AR_ORDER)),
            EstimatorKind::Hazard | EstimatorKind::HazardDynamic => {
                Seen::Table { table: ResidualTable::default(), fixed: false }
            }
            EstimatorKind::HazardShape => Seen::Weibull { shape: DEFAULT_SHAPE },
        };
        Estimator { kind, prior_s, seen }
    }

    /// An estimator that knows past gaps. For [`EstimatorKind::Hazard`] they are the whole, fixed table; the other
    /// kinds observe them in order.
    pub fn with_history(kind: EstimatorKind, prior_mtbf_s: f64, gaps_s: &[f64]) -> Estimator {
        let mut estimator = Estimator::new(kind, prior_mtbf_s);
        if kind == EstimatorKind::Hazard {
            let table = ResidualTable::of(gaps_s.iter().filter_map(|gap_s| observable_s(*gap_s)).collect());
            estimator.seen = Seen::Table { table, fixed: true };
            return estimator;
        }
        for gap_s in gaps_s {
            estimator.observe_gap(*gap_s);
        }
        estimator
    }

    /// A [`EstimatorKind::HazardShape`] estimator of the given Weibull shape (clamped to 0.1 ..= 10).
    pub fn with_shape(prior_mtbf_s: f64, shape: f64) -> Estimator {
        let mut estimator = Estimator::new(EstimatorKind::HazardShape, prior_mtbf_s);
        let shape = if shape.is_finite() { shape.clamp(0.1, 10.0) } else { DEFAULT_SHAPE };
        estimator.seen = Seen::Weibull { shape };
        estimator
    }

    /// Which estimator this is.
    pub fn kind(&self) -> EstimatorKind {
        self.kind
    }

    /// Takes note of the gap that a failure has just ended. Gaps that are not finite and positive are ignored.
    pub fn observe_gap(&mut self, gap_s: f64) {
        let Some(gap_s) = observable_s(gap_s) else { return };
        match &mut self.seen {
            Seen::Nothing | Seen::Weibull { .. } => {}
            Seen::Window(window) => window.observe(gap_s),
            Seen::Average(average) => {
                let before_s = average.unwrap_or(self.prior_s);
                *average = Some(EMA_WEIGHT * gap_s + (1.0 - EMA_WEIGHT) * before_s);
            }
            Seen::Lags(lags) => lags.observe(gap_s),
            Seen::Table { table, fixed } => {
                if !*fixed {
                    table.insert(gap_s);
                }
            }
        }
    }

    /// The expected time to the next failure, given the time since the last one. Finite and positive.
    pub fn estimate_s(&self, elapsed_since_failure_s: f64) -> f64 {
        let elapsed_s = if elapsed_since_failure_s.is_finite() { elapsed_since_failure_s.max(0.0) } else { 0.0 };
        let estimate_s = match &self.seen {
            Seen::Nothing => None,
            Seen::Window(window) => window.mean_s(),
            Seen::Average(average) => *average,
            Seen::Lags(lags) => lags.predict_s(),
            Seen::Table { table, .. } => table.mean_residual_s(elapsed_s),
            Seen::Weibull { shape } => Some(weibull_mean_residual_s(*shape, self.prior_s, elapsed_s)),
        };
        estimate_s.filter(|e| e.is_finite() && *e > 0.0).unwrap_or(self.prior_s)
    }
}

/// The gaps that ended within a window of time, on a clock that advances by the gaps themselves.
#[derive(Clone, Debug)]
struct Window {
    window_s: f64,
    weighted: bool,
    now_s: f64,
    ended: VecDeque<(f64, f64)>,
}

impl Window {
    fn new(window_s: f64, weighted: bool) -> Window {
        Window { window_s, weighted, now_s: 0.0, ended: VecDeque::new() }
    }

    fn observe(&mut self, gap_s: f64) {
        self.now_s += gap_s;
        self.ended.push_back((self.now_s, gap_s));
        // The newest gap always stays: it is the only figure left after a quiet time longer than the window.
        while self.ended.len() > 1 && self.ended.front().is_some_and(|(end_s, _)| self.now_s - end_s > self.window_s) {
            self.ended.pop_front();
        }
    }

    fn mean_s(&self) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (i, (_, gap_s)) in self.ended.iter().enumerate() {
            let weight = if self.weighted { (i + 1) as f64 } else { 1.0 };
            sum += weight * gap_s;
            weights += weight;
        }
        (weights > 0.0).then(|| sum / weights)
    }
}

/// An autoregressive model of the gaps, by Yule-Walker on running sums.
#[derive(Clone, Debug)]
struct Autoregression {
    order: usize,
    count: usize,
    sum: f64,
    /// Sum of products of gaps that lie `lag` apart, for each lag up to the order.
    products: Vec<f64>,
    recent: VecDeque<f64>,
    smallest_s: f64,
}

impl Autoregression {
    fn new(order: usize) -> Autoregression {
        Autoregression {
            order,
            count: 0,
            sum: 0.0,
            products: vec![0.0; order + 1],
            recent: VecDeque::new(),
            smallest_s: f64::INFINITY,
        }
    }

    fn observe(&mut self, gap_s: f64) {
        self.count += 1;
        self.sum += gap_s;
        self.smallest_s = self.smallest_s.min(gap_s);
        self.recent.push_front(gap_s);
        for (lag, product) in self.products.iter_mut().enumerate() {
            if let Some(earlier_s) = self.recent.get(lag) {
                *product += gap_s * earlier_s;
            }
        }
        self.recent.truncate(self.order + 1);
    }

    fn predict_s(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let n = self.count as f64;
        let mean_s = self.sum / n;
        if self.count < 4 * self.order {
            return Some(mean_s);
        }
        let covariance: Vec<f64> = self.products.iter().map(|p| p / n - mean_s * mean_s).collect();
        let predicted_s = levinson(&covariance)
            .iter()
            .zip(&self.recent)
            .fold(mean_s, |sum, (phi, gap_s)| sum + phi * (gap_s - mean_s));
        // A prediction below a tenth of the mean is an artefact of the linear form on positive, skewed gaps.
        Some(predicted_s.max(0.1 * mean_s))
    }
}

/// Coefficients of the autoregression with the given autocovariances (Levinson-Durbin).
fn levinson(covariance: &[f64]) -> Vec<f64> {
    let order = covariance.len() - 1;
    let mut phi = vec![0.0; order];
    let mut error = covariance[0];
    for k in 0..order {
        if error.is_nan() || error <= 1e-12 * covariance[0].abs() {
            break;
        }
        let reached: f64 = (0..k).map(|j| phi[j] * covariance[k - j]).sum();
        let reflection = (covariance[k + 1] - reached) / error;
        let before = phi.clone();
        phi[k] = reflection;
        for j in 0..k {
            phi[j] = before[j] - reflection * before[k - 1 - j];
        }
        error *= 1.0 - reflection * reflection;
    }
    phi
}

/// Mean residual life of a Weibull distribution of the given shape and mean at age `elapsed_s`:
/// scale / shape * e^x Gamma(1 / shape, x) with x = (elapsed / scale)^shape.
pub fn weibull_mean_residual_s(shape: f64, mean_s: f64, elapsed_s: f64) -> f64 {
    let scale_s = mean_s / ln_gamma(1.0 + 1.0 / shape).exp();
    let x = (elapsed_s / scale_s).powf(shape);
    if x < 1e-12 {
        return mean_s;
    }
    // Gamma(a, x) e^x = x^a h, and scale x^(1/shape) is the age itself.
    elapsed_s / shape * upper_gamma_scaled(1.0 / shape, x)
}
