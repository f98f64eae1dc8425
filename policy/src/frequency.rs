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
        same_length("length of P", frequency_hz.len(), power_w.len())?;
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
        same_length("length of T", frequency_hz.len(), time_s.len())?;
        same_length("length of tam", frequency_hz.len(), size.len())?;
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

/// Both models of one node, fitted to the same points.
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    power: PowerModel,
    time: TimeModel,
    /// What the fits miss of one measurement: W and s, root mean square by the degrees of freedom.
    missed_w: f64,
    missed_s: f64,
}

/// A checkpoint's energy as it is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Duration, power and energy of one node.
    pub checkpoint: CheckpointEnergy,
    /// Half widths of the 95 % intervals that come of what the fits miss: of the duration, s,
    pub error_s: f64,
    /// of the power, W,
    pub error_w: f64,
    /// and of the energy, J.
    pub error_j: f64,
}

/// The frequency for the checkpoint phase, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The frequency, Hz.
    pub frequency_hz: f64,
    /// What is expected there.
    pub prediction: Prediction,
    /// One sentence with figures and units.
    pub reason: String,
}

impl Models {
    /// Fits points of size, frequency, duration and power; three frequencies and five points or more.
    pub fn fit(size: &[f64], frequency_hz: &[f64], time_s: &[f64], power_w: &[f64]) -> Result<Models, Invalid> {
        require(size.len() > 4, "length of tam", size.len() as f64, "five points or more")?;
        let (power, time) = (PowerModel::fit(frequency_hz, power_w)?, TimeModel::fit(size, frequency_hz, time_s)?);
        let missed = |sse: f64, parameters: usize| (sse / (size.len() - parameters) as f64).sqrt();
        Ok(Models {
            power: PowerModel(power.coefficients),
            time: TimeModel(time.coefficients),
            missed_w: missed(power.sse, 3),
            missed_s: missed(time.sse, 4),
        })
    }

    /// Predicts one checkpoint of one node, with its error.
    pub fn predict(&self, size: f64, frequency_hz: f64) -> Result<Prediction, Invalid> {
        let checkpoint = predict(&self.power, &self.time, size, frequency_hz)?;
        let (error_s, error_w) = (1.96 * self.missed_s, 1.96 * self.missed_w);
        let error_j = (checkpoint.time_s * error_w).hypot(checkpoint.power_w * error_s);
        Ok(Prediction { checkpoint, error_s, error_w, error_j })
    }

    /// Chooses the frequency of the checkpoint phase among those that can be set: the one with the least energy whose
    /// duration is at most `(1 + slowdown)` times the shortest. The highest stays where the saving is within the error.
    /// None where nothing can be predicted.
    pub fn choose(&self, size: f64, frequencies_hz: &[f64], slowdown: f64) -> Option<Choice> {
        let highest_hz = frequencies_hz.iter().copied().max_by(f64::total_cmp)?;
        let best_hz = best_frequency_hz(&self.power, &self.time, size, frequencies_hz, slowdown)?;
        let (best, highest) = (self.predict(size, best_hz).ok()?, self.predict(size, highest_hz).ok()?);
        let saved_j = highest.checkpoint.energy_j - best.checkpoint.energy_j;
        let error_j = best.error_j.hypot(highest.error_j);
        let ghz = |hz: f64| format!("{:.2} GHz", hz * 1e-9);
        let usable = highest.checkpoint.time_s > 0.0 && highest.checkpoint.power_w > 0.0;
        if usable && saved_j <= error_j {
            let reason = format!(
                "{} may save {saved_j:.1} J of {:.1} J, within the error of {error_j:.1} J: {} stays",
                ghz(best_hz),
                highest.checkpoint.energy_j,
                ghz(highest_hz)
            );
            // The highest is within the bound unless it is the slower one, against all sense of the fit.
            let within = highest.checkpoint.time_s <= (1.0 + slowdown.max(0.0)) * best.checkpoint.time_s;
            if within {
                return Some(Choice { frequency_hz: highest_hz, prediction: highest, reason });
            }
        }
        let reason = format!(
            "{} saves {saved_j:.1} J of {:.1} J (error {error_j:.1} J) in {:.2} s instead of {:.2} s",
            ghz(best_hz),
            highest.checkpoint.energy_j,
            best.checkpoint.time_s,
            highest.checkpoint.time_s
        );
        Some(Choice { frequency_hz: best_hz, prediction: best, reason })
    }
}

fn same_length(name: &'static str, expected: usize, found: usize) -> Result<(), Invalid> {
    require(expected == found, name, found as f64, "as many values as f_hz")
}

/// Least squares by Householder reflections on columns scaled to their largest entry.
fn least_squares<const N: usize>(name: &'static str, rows: &[[f64; N]], values: &[f64]) -> Result<Fit<N>, Invalid> {
    require(rows.len() >= N, "number of points", rows.len() as f64, "at least as many as coefficients")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const FREQUENCIES: [f64; 5] = [1.2e9, 1.5e9, 1.8e9, 2.1e9, 2.4e9];

    /// A node whose checkpoints are bound by the disk (`share` of the time does not depend on f), with some noise.
    fn models(share: f64, noise: f64) -> Models {
        let (mut size, mut f, mut t, mut p) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (i, v) in [1e8, 4e8, 7e8, 1e9].into_iter().enumerate() {
            for (j, hz) in FREQUENCIES.into_iter().enumerate() {
                let wobble = 1.0 + noise * if (i + j) % 2 == 0 { 1.0 } else { -1.0 };
                size.push(v);
                f.push(hz);
                t.push(wobble * v / 1e8 * (share + (1.0 - share) * (3.4 - hz * 1e-9)));
                p.push(wobble * (70.0 + 8.0 * (hz * 1e-9).powi(2)));
            }
        }
        Models::fit(&size, &f, &t, &p).unwrap()
    }

    #[test]
    fn a_checkpoint_bound_by_the_disk_is_made_at_a_low_frequency() {
        let choice = models(1.0, 0.001).choose(5e8, &FREQUENCIES, 0.1).unwrap();
        assert_eq!(choice.frequency_hz, 1.2e9);
        assert!(choice.reason.contains("1.20 GHz saves"), "{}", choice.reason);
    }

    #[test]
    fn the_bound_on_the_time_is_kept() {
        let models = models(0.8, 0.0);
        let time_s = |hz: f64| models.predict(5e8, hz).unwrap().checkpoint.time_s;
        for slowdown in [0.0, 0.05, 0.1, 0.2] {
            let choice = models.choose(5e8, &FREQUENCIES, slowdown).unwrap();
            assert!(time_s(choice.frequency_hz) <= (1.0 + slowdown) * time_s(2.4e9) * (1.0 + 1e-9), "{choice:?}");
        }
        assert_eq!(models.choose(5e8, &FREQUENCIES, 0.0).unwrap().frequency_hz, 2.4e9);
    }

    #[test]
    fn a_saving_within_the_error_changes_nothing() {
        let choice = models(1.0, 0.3).choose(5e8, &FREQUENCIES, 0.5).unwrap();
        assert_eq!(choice.frequency_hz, 2.4e9);
        assert!(choice.reason.contains("within the error"), "{}", choice.reason);
    }

    #[test]
    fn a_prediction_is_as_good_as_the_data() {
        let (exact, noisy) =
            (models(0.5, 0.0).predict(6e8, 2.0e9).unwrap(), models(0.5, 0.05).predict(6e8, 2.0e9).unwrap());
        let truth = 6.0 * (0.5 + 0.5 * 1.4) * (70.0 + 32.0);
        assert!((exact.checkpoint.energy_j / truth - 1.0).abs() < 1e-6 && exact.error_j < 1e-3, "{exact:?}");
        assert!((noisy.checkpoint.energy_j - truth).abs() < noisy.error_j, "{noisy:?}");
        assert!(Models::fit(&[1.0; 4], &[1e9; 4], &[1.0; 4], &[1.0; 4]).is_err());
    }
}
