//! Fits calibration measurements and estimates the energy of each protocol (Aupy15 §1.3, ECOFIT).
//!
//! Times in seconds, volumes in bytes, powers in watts. p counts processes of a node, N nodes, V bytes. Errata: B1
//! the printed rate of t_checkpointing(4, V) is ten times too large; B2 "five values of N" should read of p; B3
//! logging charges one access time for the whole volume, where M messages cost M accesses ([`logging_s`]).

mod curve;
mod fits;

pub(crate) use curve::falling_to_rising;
pub use curve::{BestOf, Curve, Fit, Method, best_of, law, scatter, straight};
pub use fits::Fits;

use crate::invalid::{Invalid, non_negative, positive, require};

/// The five calibration points of Aupy15 §1.3 up to `max`: 1, mid(1, p2), p2 = max / 2, mid(p2, max), max; halves to
/// even, and never below 1. Refuses all but whole numbers from 1 to 1e15.
pub fn points(max: f64) -> Result<[f64; 5], Invalid> {
    points_by(max, f64::round_ties_even)
}

/// [`points`] with halves rounded up, which is not what the paper does.
pub fn points_half_up(max: f64) -> Result<[f64; 5], Invalid> {
    points_by(max, |x| (x + 0.5).floor())
}

fn points_by(max: f64, round: impl Fn(f64) -> f64) -> Result<[f64; 5], Invalid> {
    require((1.0..=1e15).contains(&max) && max.fract() == 0.0, "max", max, "a whole number, 1 to 1e15")?;
    let middle = round(max / 2.0).max(1.0);
    Ok([1.0, round((1.0 + middle) / 2.0).max(1.0), middle, round((middle + max) / 2.0).max(1.0), max])
}

/// How the time depends on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeModel {
    /// t = access + V / rate, known beforehand, by plain least squares as in the paper.
    Linear,
    /// The same with neither below zero, by weighted least squares: [`law`].
    Law,
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

/// Estimates t(p0, V0) in seconds from a table `t[i][j]` at `p[i]` processes (or nodes) and `v[j]` bytes: Aupy15
/// §1.3's two ways. Path A fits every row in V and the results in p; path B every column in p and the results in V.
/// Points that were measured are used as they are. `widths` are the half widths of the intervals at `v`, by which
/// [`law`] weighs. Refuses tables below two by two, and p0 <= 0 or V0 < 0.
pub fn two_way(
    p: &[f64],
    v: &[f64],
    t: &[Vec<f64>],
    (p0, v0): (f64, f64),
    model: VolumeModel,
    widths: &[f64],
    fits: &Fits,
) -> Result<TwoWay, Invalid> {
    require(p.len() >= 2, "length of p_values", p.len() as f64, "two values or more")?;
    require(v.len() >= 2, "length of V_values", v.len() as f64, "two values or more")?;
    require(t.len() == p.len(), "length of t", t.len() as f64, "one row for each of p_values")?;
    for row in t {
        require(row.len() == v.len(), "length of a row of t", row.len() as f64, "one column for each of V_values")?;
    }
    positive("p0", p0)?;
    non_negative("V0", v0)?;
    let (at_p, at_v) = (p.iter().position(|x| *x == p0), v.iter().position(|x| *x == v0));
    if let (Some(i), Some(j)) = (at_p, at_v) {
        return Ok(TwoWay::Measured(t[i][j]));
    }
    let in_volume = |y: &[f64]| -> Result<Fit, Invalid> {
        match model {
            VolumeModel::Linear => straight(v, y, &[]),
            VolumeModel::Law => law(v, y, widths),
            VolumeModel::BestOf => Ok(fits.best_of(v, y)?.best),
        }
    };
    let in_nodes = |y: &[f64]| -> Result<Fit, Invalid> { Ok(fits.best_of(p, y)?.best) };
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

/// Energy of one operation, E = t (N delta + sum of the nodes' idle power + sum of the switches'), in joules (Aupy15
/// §1.3): idle power is of a node, delta of a type of nodes, and a switch's delta is about zero.
pub fn operation_j(time_s: f64, nodes: f64, delta_w: f64, idle_w: f64, switches_w: f64) -> f64 {
    time_s * (nodes * delta_w + idle_w + switches_w)
}

/// Time to log M messages, M t_access + V / rate. Erratum B3: the paper charges one access for the whole volume.
pub fn logging_s(messages: f64, access_s: f64, volume_bytes: f64, rate_bytes_per_s: f64) -> f64 {
    messages * access_s + volume_bytes / rate_bytes_per_s
}

/// Energies of the two protocols of Aupy15 §1.3: n (E_ckpt + E_coord) if coordinated, n E_ckpt + E_log if not.
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

    /// n = E_log / E_coord: below this number of checkpoints, coordination is cheaper. Infinite if it costs nothing.
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
