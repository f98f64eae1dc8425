//! Draws what a simulation found: energy against time (as ElSayed14 Fig. 2), waste against interval (as Fig. 1).

use policy::interval::Objective;

use crate::chart::{Axis, Colour, Legend, Mark, Panel, Rule, Series, document};
use crate::comparison::Row;
use crate::grid::Mean;
use crate::sweep::{Point, Sweep, Waste};

const DASHED: &str = "6 4";

/// Thanks to Los Alamos where one of the traces is a `system-N` of theirs; they ask for it.
pub fn acknowledgement<'a>(mut traces: impl Iterator<Item = &'a str>) -> &'static str {
    if traces.any(|name| name.starts_with("system-")) {
        "Failure records: Los Alamos National Laboratory (LA-UR-05-7318), which we thank."
    } else {
        ""
    }
}

/// Wasted energy against wasted time: a mark for the mean of each policy, a dot for each row where there are several.
pub fn energy_against_time(rows: &[Row]) -> String {
    let mut dots = Vec::new();
    let mut marks: Vec<Series> = Vec::new();
    for (policy, objective) in kinds(rows.iter().map(|row| (row.policy.as_str(), row.objective))) {
        let of: Vec<&Row> = rows.iter().filter(|r| r.policy == policy && r.objective == objective).collect();
        let mean = |figure: fn(&Row) -> f64| of.iter().map(|r| figure(r)).sum::<f64>() / of.len() as f64;
        if of.len() > 1 {
            let points = of.iter().map(|r| (100.0 * r.time, 100.0 * r.energy, told(policy, objective, &r.trace)));
            dots.push(Series {
                colour: family(policy),
                mark: Mark::Dot,
                line: None,
                points: points.collect(),
                label: None,
            });
        }
        let what = format!("mean of {}", of.len());
        let title = told(policy, objective, if of.len() > 1 { &what } else { &of[0].trace });
        let points = vec![(100.0 * mean(|r| r.time), 100.0 * mean(|r| r.energy), title)];
        marks.push(mean_series(policy, objective, points, None));
    }
    dots.append(&mut marks);
    against_young("each policy", dots, acknowledgement(rows.iter().map(|row| row.trace.as_str())))
}

/// The same for many settings: a line for each policy joins its means in the order of the settings.
pub fn trade_off(means: &[Mean], note: &str) -> String {
    let kinds = kinds(means.iter().map(|mean| (mean.policy.as_str(), mean.objective)));
    let series = kinds.into_iter().map(|(policy, objective)| {
        let of = means.iter().filter(|m| m.policy == policy && m.objective == objective);
        let points = of.map(|m| {
            let (s, percent) =
                (&m.setting, |b: Option<f64>| b.map_or_else(|| "none".into(), |b| format!("{} %", 100.0 * b)));
            let title = format!(
                "C {} s, ratio {}, runtime bound {}, I/O bound {}",
                s.checkpoint_s,
                s.ratio,
                percent(s.runtime_bound),
                percent(s.io_bound)
            );
            (100.0 * m.time.mean, 100.0 * m.energy.mean, told(policy, objective, &title))
        });
        mean_series(policy, objective, points.collect(), Some(""))
    });
    against_young("each policy over the settings", series.collect(), note)
}

/// Each policy and objective once, in the order of their coming.
fn kinds<'a>(all: impl Iterator<Item = (&'a str, Objective)>) -> Vec<(&'a str, Objective)> {
    let mut kinds = Vec::new();
    for kind in all {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn told(policy: &str, objective: Objective, where_from: &str) -> String {
    format!("{policy}, for {}: {where_from}", objective_name(objective))
}

fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "time",
        Objective::Energy => "energy",
    }
}

fn family(policy: &str) -> Colour {
    match policy.split(':').next().unwrap_or_default() {
        "sma" | "wma" | "ema" | "ar" => Colour::Blue,
        "hazard" | "hazard-dynamic" | "hazard-shape" => Colour::Green,
        "auto" => Colour::Vermilion,
        _ => Colour::Grey,
    }
}

fn mean_series(
    policy: &str,
    objective: Objective,
    points: Vec<(f64, f64, String)>,
    line: Option<&'static str>,
) -> Series {
    let mark = match objective {
        Objective::Time => Mark::Circle,
        Objective::Energy => Mark::Diamond,
    };
    Series { colour: family(policy), mark, line, points, label: Some(policy.to_owned()) }
}

fn against_young(title: &str, series: Vec<Series>, note: &str) -> String {
    let signed = |label| Axis { label, logarithmic: false, signed: true };
    let mut legend: Vec<Legend> = vec![
        (Colour::Grey, Mark::Circle, None, "for time"),
        (Colour::Grey, Mark::Diamond, None, "for energy"),
        (Colour::Grey, Mark::None, Some(""), "one interval"),
        (Colour::Blue, Mark::None, Some(""), "averages of past gaps"),
        (Colour::Green, Mark::None, Some(""), "hazard since the last failure"),
        (Colour::Vermilion, Mark::None, Some(""), "auto"),
    ];
    if series.iter().any(|s| s.mark == Mark::Dot) {
        legend.insert(2, (Colour::Grey, Mark::Dot, None, "on one trace"));
    }
    let panel = Panel {
        title: "Nearer to the lower left is better; 0, 0 is Young's interval for time".to_owned(),
        x: signed("wasted time against Young, %"),
        y: signed("wasted energy against Young, %"),
        series,
        rules: Vec::new(),
    };
    document(&format!("Energy against time: {title}"), &[panel], 1, &legend, note)
}

/// Wasted time and wasted energy against the constant interval, as replayed and as the model has it; one row of two
/// panels for each trace.
pub fn interval_sweep(sweeps: &[Sweep]) -> String {
    let time: fn(&Waste) -> f64 = |waste| waste.time;
    let energy: fn(&Waste) -> f64 = |waste| waste.energy;
    let panels: Vec<Panel> = sweeps
        .iter()
        .flat_map(|sweep| {
            [
                sweep_panel(sweep, "time", "wasted time, % of the time", time),
                sweep_panel(sweep, "energy", "wasted energy, % of computing all the time", energy),
            ]
        })
        .collect();
    let legend: [Legend; 4] = [
        (Colour::Blue, Mark::None, Some(""), "replayed"),
        (Colour::Grey, Mark::None, Some(DASHED), "model: C/D + D/2M"),
        (Colour::Vermilion, Mark::None, Some("2 3"), "Young"),
        (Colour::Green, Mark::None, Some("2 3"), "energy-optimal"),
    ];
    document(
        "What a constant interval wastes",
        &panels,
        2,
        &legend,
        acknowledgement(sweeps.iter().map(|s| s.trace.as_str())),
    )
}

fn sweep_panel(sweep: &Sweep, what: &str, label: &'static str, figure: fn(&Waste) -> f64) -> Panel {
    let line = |colour, line, of: fn(&Point) -> &Waste| Series {
        colour,
        mark: Mark::None,
        line: Some(line),
        points: sweep.points.iter().map(|p| (p.interval_s / 60.0, 100.0 * figure(of(p)), String::new())).collect(),
        label: None,
    };
    let rule = |name: &str, point: &Point, colour| Rule {
        x: point.interval_s / 60.0,
        label: format!("{name} {:.0} min: {:.1} %", point.interval_s / 60.0, 100.0 * figure(&point.replayed)),
        colour,
    };
    Panel {
        title: format!(
            "{}: wasted {what}, C {} s, ratio {}",
            sweep.trace, sweep.setting.checkpoint_s, sweep.setting.ratio
        ),
        x: Axis { label: "interval between checkpoints, min", logarithmic: true, signed: false },
        y: Axis { label, logarithmic: false, signed: false },
        series: vec![line(Colour::Grey, DASHED, |p| &p.model), line(Colour::Blue, "", |p| &p.replayed)],
        rules: vec![
            rule("energy-optimal", &sweep.energy, Colour::Green),
            rule("Young", &sweep.young, Colour::Vermilion),
        ],
    }
}
