//! Aupy15: the ratios of §1.2 and what is known of §1.3.

use policy::Invalid;
use policy::calibration;
use policy::periods::Aupy;

use super::{Cell, Paper};

const MINUTE_S: f64 = 60.0;

/// §1.2's platform: C = R = 10 min, D = 1 min, omega = 1/2, mu = 300 min; powers static, compute and I/O.
fn platform(static_w: f64) -> Aupy {
    Aupy {
        mtbf_s: 300.0 * MINUTE_S,
        checkpoint_s: 10.0 * MINUTE_S,
        restart_s: 10.0 * MINUTE_S,
        down_s: MINUTE_S,
        overlap: 0.5,
        static_w,
        compute_w: 10.0,
        io_w: 100.0,
        down_w: 0.0,
        base_s: 1.0,
    }
}

/// Energy-optimal over time-optimal: time, and the energy of the time-optimal over the energy-optimal.
fn ratios(m: &Aupy, time_s: f64, energy_s: f64) -> (f64, f64) {
    let (at_time, at_energy) = (m.evaluate(time_s), m.evaluate(energy_s));
    (at_energy.final_s / at_time.final_s, at_time.energy_j / at_energy.energy_j)
}

pub(super) fn cells() -> Result<Vec<Cell>, Invalid> {
    let mut cells = periods("rho = 5.5", &platform(10.0), 128.0673, 1.10327, 1.22495, 20.0);
    cells.extend(periods("rho = 7", &platform(5.0), 138.9938, 1.12777, 1.29550, 30.0));
    cells.extend(quadratic());
    cells.push(scale());
    cells.extend(estimation()?);
    Ok(cells)
}

fn periods(name: &str, m: &Aupy, energy_min: f64, time: f64, energy: f64, saving_percent: f64) -> Vec<Cell> {
    let place = format!("§1.2, {name}, mu = 300 min");
    let (Some(time_s), Some(energy_s)) = (m.time_period_s(), m.energy_period_s()) else { return Vec::new() };
    let (time_ratio, energy_ratio) = ratios(m, time_s, energy_s);
    let mended = |quantity, known, ours| Cell::mended(Paper::Aupy15, &*place, quantity, known, ours);
    let printed = |quantity, ours| Cell::printed(Paper::Aupy15, &*place, quantity, saving_percent, ours);
    vec![
        mended("period for time, min", 53.2917, time_s / MINUTE_S).within(5e-5),
        mended("period for energy, min", energy_min, energy_s / MINUTE_S).within(5e-5),
        mended("time, energy-optimal over time-optimal", time, time_ratio).within(5e-6),
        mended("energy, time-optimal over energy-optimal", energy, energy_ratio).within(5e-6),
        printed("energy ratio minus one, % (to one digit)", 100.0 * (energy_ratio - 1.0)).within(5.0),
        printed("energy saved, % (to one digit)", 100.0 * (1.0 - 1.0 / energy_ratio))
            .within(5.0)
            .erratum("A5: the printed per cents are ratios minus one, not savings"),
    ]
}

fn quadratic() -> Vec<Cell> {
    let seven = platform(5.0);
    let place = "§1.2, last quadratic, rho = 7";
    let minutes = |period_s: Option<f64>| period_s.unwrap_or(f64::NAN) / MINUTE_S;
    let printed = |quantity, ours| Cell::printed(Paper::Aupy15, place, quantity, 155.18, ours).within(5e-3);
    let blocking = Aupy { restart_s: 0.0, down_s: 0.0, overlap: 0.0, compute_w: 0.0, io_w: 2_000.0, ..platform(10.0) };
    let positive = blocking.energy_quadratic().roots().into_iter().filter(|root| *root > 0.0).count();
    vec![
        printed("its root as printed, min", minutes(seven.printed_energy_period_s())),
        printed("period for energy, min", minutes(seven.energy_period_s()))
            .erratum("A1: alpha is missing twice, which is right for alpha = 1 only"),
        Cell::printed(
            Paper::Aupy15,
            "§1.2, R = D = omega = alpha = 0, beta = 200",
            "positive roots",
            1.0,
            positive as f64,
        )
        .erratum("A3: there can be two; one lies in (a, 2 mu b)"),
    ]
}

/// The scaling figures have C = R = 1 min, D = 6 s and an MTBF of 120 min at a million nodes.
fn scale() -> Cell {
    let platform = |nodes: f64| Aupy {
        mtbf_s: 120.0 * MINUTE_S * 1e6 / nodes,
        checkpoint_s: MINUTE_S,
        restart_s: MINUTE_S,
        down_s: 6.0,
        ..platform(10.0)
    };
    let (mut low, mut high) = (1e6, 1e8);
    for _ in 0..60 {
        let nodes = 0.5 * (low + high);
        if platform(nodes).feasible() {
            low = nodes;
        } else {
            high = nodes;
        }
    }
    Cell::mended(Paper::Aupy15, "§1.2, scaling figures (erratum A6)", "largest feasible platform, nodes", 5.71e7, low)
        .within(5e4)
}

fn estimation() -> Result<Vec<Cell>, Invalid> {
    let second = |max: f64| calibration::points(max).map(|points| points[1]);
    let point = |quantity, ours| Cell::printed(Paper::Aupy15, "§1.3, calibration points", quantity, 4.0, ours);
    let without = |place, quantity, printed, why: &str| {
        Cell { ours: None, ..Cell::printed(Paper::Aupy15, place, quantity, printed, 0.0) }.incomparable(why)
    };
    let measured = "measured on the authors' machines";
    Ok(vec![
        point("second of five up to 12 (3.5 to even)", second(12.0)?),
        point("second of five up to 16 (4.5 to even)", second(16.0)?),
        without(
            "§1.3, t_checkpointing(4, V)",
            "rate, bytes/s",
            5.6569e8,
            "erratum B1: ten times too large; 0.056569e9 fits the other fit, whose exponent is unknown here",
        ),
        without("§1.3, Fig. 1.15", "estimate against measurement, mean, %", 4.9, measured),
        without("§1.3, Fig. 1.15", "estimate against measurement, worst, %", 7.6, measured),
    ])
}
