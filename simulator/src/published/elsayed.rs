//! ElSayed14's Tables I to IV from failure logs, and the means over its ten systems.

use policy::bounds::ElSayed;
use policy::interval::Objective;

use super::{Cell, Paper, System};
use crate::Error;
use crate::comparison::{Row, against_young};
use crate::replay::{Rule, Setting};
use crate::trace::Trace;

/// The systems that the paper's means are taken over.
const SYSTEMS: usize = 10;

const MINUTE_S: f64 = 60.0;

/// "3X": computing takes three times the power of idling.
const fn setting(checkpoint_s: f64) -> Setting {
    Setting { checkpoint_s, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None }
}

pub(super) fn cells(systems: &[System]) -> Result<Vec<Cell>, Error> {
    let rounded: Vec<System> =
        systems.iter().map(|s| System { id: s.id, trace: s.trace.rounded_as_published() }).collect();
    let mut cells = Vec::new();
    for system in &rounded {
        cells.extend(table_1(system));
        cells.extend(table_2(system)?);
        cells.extend(table_3(system)?);
        cells.extend(table_4(system)?);
    }
    if !rounded.is_empty() {
        cells.extend(means(&rounded)?);
    }
    Ok(cells)
}

/// A cell whose printed figure is known for some systems only.
fn cell(place: &str, quantity: String, printed: Option<f64>, ours: f64, tolerance: f64) -> Cell {
    match printed {
        Some(printed) => Cell::printed(Paper::ElSayed14, place, quantity, printed, ours).within(tolerance),
        None => Cell::ours(Paper::ElSayed14, place, quantity, ours),
    }
}

fn model(trace: &Trace, setting: &Setting) -> ElSayed {
    ElSayed { checkpoint_s: setting.checkpoint_s, mttf_s: trace.mean_s(), ratio: setting.ratio }
}

fn replayed(trace: &Trace, policy: &str, objective: Objective, setting: &Setting) -> Result<Row, Error> {
    against_young(trace, policy, Rule::named(policy)?, objective, setting)
}

fn table_1(system: &System) -> Vec<Cell> {
    let printed = (system.id == 11).then_some(2.51);
    let place = format!("Table I, system {}", system.id);
    vec![cell(&place, "MTTF, d".to_owned(), printed, system.trace.mean_s() / 86_400.0, 5e-3)]
}

/// C = 10 min: Young's interval, and energy under three bounds on the wasted time.
fn table_2(system: &System) -> Result<Vec<Cell>, Error> {
    let free = setting(600.0);
    let model = model(&system.trace, &free);
    let place = format!("Table II, system {}", system.id);
    let young = (system.id == 20).then_some(127.70);
    let mut cells = vec![cell(&place, "Young, min".to_owned(), young, model.time_interval_s() / MINUTE_S, 5e-3)];
    for percent in [3, 5, 10] {
        let printed = match (system.id, percent) {
            (20, 3) => Some((100.02, 2.41, -8.06)),
            (20, 10) => Some((81.95, 7.97, -11.42)),
            (21, 5) => Some((123.75, -1.68, -16.78)),
            _ => None,
        };
        let bound = f64::from(percent) / 100.0;
        let bounded = Setting { runtime_bound: Some(bound), ..free };
        let row = replayed(&system.trace, "young", Objective::Energy, &bounded)?;
        let minutes = model.energy_interval_bounded_s(bound)? / MINUTE_S;
        let name = |what| format!("bound {percent} %: {what}");
        cells.push(cell(&place, name("interval, min"), printed.map(|p| p.0), minutes, 5e-3));
        cells.push(cell(&place, name("wasted time, %"), printed.map(|p| p.1), row.time * 100.0, 5e-3));
        cells.push(cell(&place, name("wasted energy, %"), printed.map(|p| p.2), row.energy * 100.0, 5e-3));
    }
    Ok(cells)
}

/// C = 5 min: each policy for time and for energy. No printed cell is known here, only the means.
fn table_3(system: &System) -> Result<Vec<Cell>, Error> {
    let place = format!("Table III, system {}", system.id);
    let mut cells = Vec::new();
    for policy in ["young", "daly", "sma", "wma", "ema", "ar", "hazard", "hazard-dynamic", "hazard-shape"] {
        for (objective, name) in [(Objective::Time, "time"), (Objective::Energy, "energy")] {
            if (policy, objective) == ("young", Objective::Time) {
                continue; // What the others are measured against.
            }
            let row = replayed(&system.trace, policy, objective, &setting(300.0))?;
            for (what, value) in [("time", row.time), ("energy", row.energy)] {
                cells.push(cell(&place, format!("{policy} for {name}: wasted {what}, %"), None, value * 100.0, 0.0));
            }
        }
    }
    Ok(cells)
}

/// C = 10 min: energy under a bound of 10 % on the I/O share.
fn table_4(system: &System) -> Result<Vec<Cell>, Error> {
    let bounded = Setting { io_bound: Some(0.10), ..setting(600.0) };
    let row = replayed(&system.trace, "young", Objective::Energy, &bounded)?;
    let minutes = model(&system.trace, &bounded).energy_interval_io_s(0.10)? / MINUTE_S;
    let place = format!("Table IV, system {}", system.id);
    let printed = (system.id == 2).then_some([90.0, 5.31, -10.39, 9.49]);
    let ours = [
        ("interval, min", minutes, 5e-3),
        ("wasted time, %", row.time * 100.0, 0.01),
        ("wasted energy, %", row.energy * 100.0, 0.01),
        ("I/O share, %", row.outcome.io_share() * 100.0, 0.01),
    ];
    let cells = ours.into_iter().enumerate();
    Ok(cells
        .map(|(i, (what, value, tolerance))| {
            cell(&place, format!("I/O bound 10 %: {what}"), printed.map(|p| p[i]), value, tolerance)
        })
        .collect())
}

/// Policy, then wasted time and energy optimised for time, then optimised for energy; C = 5 min, every policy on the
/// same gaps.
const MEANS: [(&str, [f64; 4]); 6] = [
    ("daly", [-1.17, -2.99, 15.04, -11.97]),
    ("sma", [-4.55, -6.92, 11.60, -14.89]),
    ("wma", [-4.39, -6.52, 11.64, -14.71]),
    ("ema", [-4.33, -6.37, 11.52, -14.75]),
    ("ar", [-4.20, -4.42, 9.65, -14.61]),
    ("hazard", [-0.91, 10.79, -0.65, -12.25]),
];

const UNSTATED: &str = "the paper states no window, weight or order";

const COLUMNS: [&str; 4] = [
    "for time: wasted time, %",
    "for time: wasted energy, %",
    "for energy: wasted time, %",
    "for energy: wasted energy, %",
];

fn means(systems: &[System]) -> Result<Vec<Cell>, Error> {
    let place = format!("means over {} systems", systems.len());
    let complete = |cell: Cell| {
        if systems.len() == SYSTEMS {
            return cell;
        }
        cell.incomparable(format!("{} of the paper's {SYSTEMS} systems", systems.len()))
    };
    let mut cells = Vec::new();
    let mut averages = [0.0; 4];
    for (policy, known) in MEANS {
        let ours = mean(systems, policy)?;
        for i in 0..COLUMNS.len() {
            let quantity = format!("{policy} {}", COLUMNS[i]);
            let cell = Cell::mended(Paper::ElSayed14, &*place, quantity, known[i], ours[i]).within(0.02);
            let stated = matches!(policy, "daly" | "hazard");
            cells.push(complete(if stated { cell } else { cell.may_differ(UNSTATED) }));
            if policy.ends_with("ma") {
                averages[i] += ours[i] / 3.0;
            }
        }
    }
    for (i, printed) in [-5.0, -7.0, 11.0, -15.4].into_iter().enumerate() {
        let quantity = format!("moving averages {}", COLUMNS[i]);
        cells.push(complete(
            Cell::printed(Paper::ElSayed14, &*place, quantity, printed, averages[i]).within(1.0).may_differ(UNSTATED),
        ));
    }
    Ok(cells)
}

/// Mean over the systems of what [`COLUMNS`] names.
fn mean(systems: &[System], policy: &str) -> Result<[f64; 4], Error> {
    let mut sums = [0.0; 4];
    for system in systems {
        for (i, objective) in [Objective::Time, Objective::Energy].into_iter().enumerate() {
            let row = replayed(&system.trace, policy, objective, &setting(300.0))?;
            sums[2 * i] += row.time;
            sums[2 * i + 1] += row.energy;
        }
    }
    Ok(sums.map(|sum| 100.0 * sum / systems.len() as f64))
}
