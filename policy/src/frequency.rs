//! Predicts checkpoint energy from problem size and CPU frequency, and picks the frequency (Balladini).
//!
//! P(f) is quadratic, t(size, f) bilinear; f is in GHz. Errata: E1 the header's Hz means GHz; E2 eq. 2 counts one
//! checkpoint too many; E3 the printed time coefficients look like an unconverged fit.

use crate::invalid::{Invalid, positive, require};

/// Balladini's P(f) = p0 + p1 f + p2 f^2 in watts, f in GHz; valid between the frequencies that it was fitted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerModel(pub [f64; 3]);

/// Balladini's t(size, f) = c0 + c1 size + c2 f + c3 size f in seconds, f in GHz, size in grid cells; valid between the
/// sizes and frequencies that it was fitted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeModel(pub [f64; 4]);

/// The published power model, for one node.
pub const PUBLISHED_POWER: PowerModel = PowerModel([76.806, -11.5988, 5.28026]);
/// The published time model, size in grid cells. Erratum E3: its coefficients look unconverged, and time rises with
/// frequency below 8.6e7 cells.
pub const PUBLISHED_TIME: TimeModel = TimeModel([1.0, 6.05086e-7, 1.0, -1.16005e-8]);

/// Duration, power and energy of one checkpoint of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointEnergy {
    /// Duration.
    pub time_s: f64,
    /// Power.
    pub power_w: f64,
    /// Their product.
    pub energy_j: f64,
}

/// A least-squares fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit<const N: usize> {
    /// Coefficients in the order of the model.
    pub coefficients: [f64; N],
    /// Sum of squared errors.
    pub sse: f64,
    /// Coefficient of determination; 1 for a constant that is met exactly.
    pub r2: f64,
}

impl PowerModel {
    /// Power at a frequency.
    pub fn power_w(&self, frequency_hz: f64) -> f64 {
        let f = frequency_hz * 1e-9;
        self.0[0] + self.0[1] * f + self.0[2] * f * f
    }

    /// Fits three or more frequencies.
    pub fn fit(frequency_hz: &[f64], power_w: &[f64]) -> Result<Fit<3>, Invalid> {
        same_length("P", frequency_hz.len(), power_w.len())?;
        let rows: Vec<[f64; 3]> = frequency_hz.iter().map(|f| f * 1e-9).map(|f| [1.0, f, f * f]).collect();
        least_squares("f_hz", &rows, power_w)
    }
}

impl TimeModel {
    /// Duration at a size and a frequency.
    pub fn time_s(&self, size: f64, frequency_hz: f64) -> f64 {
        let f = frequency_hz * 1e-9;
        self.0[0] + self.0[1] * size + self.0[2] * f + self.0[3] * size * f
    }

    /// Fits four or more points of size and frequency.
    pub fn fit(size: &[f64], frequency_hz: &[f64], time_s: &[f64]) -> Result<Fit<4>, Invalid> {
        same_length("T", frequency_hz.len(), time_s.len())?;
        same_length("tam", frequency_hz.len(), size.len())?;
        let rows: Vec<[f64; 4]> =
            size.iter().zip(frequency_hz).map(|(s, f)| [1.0, *s, f * 1e-9, s * f * 1e-9]).collect();
        least_squares("tam", &rows, time_s)
    }
}

/// Energy of one checkpoint of one node, E = t P. Refuses a negative size and a frequency of zero or less.
pub fn predict(
    power: &PowerModel,
    time: &TimeModel,
    size: f64,
    frequency_hz: f64,
) -> Result<CheckpointEnergy, Invalid> {
    require(size >= 0.0, "tam", size, "finite, >= 0")?;
    positive("f_hz", frequency_hz)?;
    let (time_s, power_w) = (time.time_s(size, frequency_hz), power.power_w(frequency_hz));
    Ok(CheckpointEnergy { time_s, power_w, energy_j: time_s * power_w })
}

/// The frequency with the least checkpoint energy whose duration is at most `(1 + slowdown)` times the shortest.
/// None where no frequency has a positive duration and power.
pub fn best_frequency_hz(
    power: &PowerModel,
    time: &TimeModel,
    size: f64,
    frequencies_hz: &[f64],
    slowdown: f64,
) -> Option<f64> {
    let usable: Vec<(f64, CheckpointEnergy)> = frequencies_hz
        .iter()
        .filter_map(|f| predict(power, time, size, *f).ok().map(|e| (*f, e)))
        .filter(|(_, e)| e.time_s > 0.0 && e.power_w > 0.0)
        .collect();
    let shortest_s = usable.iter().map(|(_, e)| e.time_s).fold(f64::INFINITY, f64::min);
    usable
        .into_iter()
        .filter(|(_, e)| e.time_s <= (1.0 + slowdown.max(0.0)) * shortest_s)
        .min_by(|(_, x), (_, y)| x.energy_j.total_cmp(&y.energy_j))
        .map(|(f, _)| f)
}

fn same_length(name: &'static str, expected: usize, found: usize) -> Result<(), Invalid> {
    require(expected == found, name, found as f64, "as many values as f_hz")
}

/// Least squares by Householder reflections on columns scaled to their largest entry.
fn least_squares<const N: usize>(name: &'static str, rows: &[[f64; N]], values: &[f64]) -> Result<Fit<N>, Invalid> {
    require(rows.len() >= N, name, rows.len() as f64, "at least as many points as coefficients")?;
    for value in values.iter().chain(rows.iter().flatten()) {
        require(value.is_finite(), name, *value, "finite")?;
    }
    let mut scale = [0.0_f64; N];
    for row in rows {
        for (s, v) in scale.iter_mut().zip(row) {
            *s = s.max(v.abs());
        }
    }
    let mut a: Vec<Vec<f64>> = rows
        .iter()
        .zip(values)
        .map(|(row, y)| row.iter().zip(&scale).map(|(v, s)| if *s > 0.0 { v / s } else { 0.0 }).chain([*y]).collect())
        .collect();
    for k in 0..N {
        let norm = a[k..].iter().map(|row| row[k] * row[k]).sum::<f64>().sqrt();
        require(norm > 1e-10, name, norm, "points that differ enough to determine every coefficient")?;
        let pivot = -norm.copysign(a[k][k]);
        let mut v: Vec<f64> = a[k..].iter().map(|row| row[k]).collect();
        v[0] -= pivot;
        let vv: f64 = v.iter().map(|x| x * x).sum();
        if vv == 0.0 {
            continue;
        }
        let mut dots = vec![0.0; N + 1];
        for (row, v) in a[k..].iter().zip(&v) {
            for (dot, x) in dots.iter_mut().zip(row).skip(k) {
                *dot += v * x;
            }
        }
        for (row, v) in a[k..].iter_mut().zip(&v) {
            for (x, dot) in row.iter_mut().zip(&dots).skip(k) {
                *x -= 2.0 * v * dot / vv;
            }
        }
    }
    let mut coefficients = [0.0; N];
    for k in (0..N).rev() {
        let known: f64 = (k + 1..N).map(|j| a[k][j] * coefficients[j]).sum();
        coefficients[k] = (a[k][N] - known) / a[k][k];
    }
    for (c, s) in coefficients.iter_mut().zip(&scale) {
        *c /= s;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let sst: f64 = values.iter().map(|y| (y - mean) * (y - mean)).sum();
    let sse: f64 = rows
        .iter()
        .zip(values)
        .map(|(row, y)| y - row.iter().zip(&coefficients).map(|(v, c)| v * c).sum::<f64>())
        .map(|e| e * e)
        .sum();
    let r2 = if sst > 0.0 { 1.0 - sse / sst } else { 1.0 };
    Ok(Fit { coefficients, sse, r2 })
}
