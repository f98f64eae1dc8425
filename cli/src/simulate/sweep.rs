//! `simulate sweep`: what each constant interval wastes on a trace, beside ElSayed14's model.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;
use simulator::figure;
use simulator::sweep::{Point, Sweep};

use super::{
    Grid, forms,
    output::{Output, print_csv, setting_words},
    traces::TraceArgs,
};

/// On which traces, at which costs, over which intervals.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct SweepArgs {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    grid: Grid,
    /// From a REACHth of Young's interval to REACH times it.
    #[arg(long, default_value_t = 8.0)]
    reach: f64,
    /// How many intervals.
    #[arg(long, value_name = "N", default_value_t = 121)]
    points: usize,
    #[command(flatten)]
    output: Output,
}

/// One interval, as JSON and CSV have it.
#[derive(Serialize)]
struct Record<'a> {
    trace: &'a str,
    checkpoint_s: f64,
    ratio: f64,
    mttf_s: f64,
    interval_s: f64,
    wasted_time: f64,
    wasted_energy: f64,
    model_wasted_time: f64,
    model_wasted_energy: f64,
}

impl<'a> Record<'a> {
    fn of(sweep: &'a Sweep, point: &Point) -> Record<'a> {
        Record {
            trace: &sweep.trace,
            checkpoint_s: sweep.setting.checkpoint_s,
            ratio: sweep.setting.ratio,
            mttf_s: sweep.mttf_s,
            interval_s: point.interval_s,
            wasted_time: point.replayed.time,
            wasted_energy: point.replayed.energy,
            model_wasted_time: point.model.time,
            model_wasted_energy: point.model.energy,
        }
    }
}

/// Sweeps and reports.
pub fn run(args: &SweepArgs) -> anyhow::Result<()> {
    let traces = args.traces.load()?;
    let mut sweeps = Vec::new();
    for setting in args.grid.settings() {
        for trace in &traces {
            sweeps.push(Sweep::of(trace, &setting, args.reach, args.points)?);
        }
    }
    let table = table(&sweeps)?;
    if args.output.json {
        let all: Vec<_> = sweeps
            .iter()
            .map(|s| {
                let points: Vec<_> = s.points.iter().map(|p| Record::of(s, p)).collect();
                json!({ "young": Record::of(s, &s.young), "energy_optimal": Record::of(s, &s.energy), "points": points })
            })
            .collect();
        crate::out::print(format!("{}\n", json!({ "sweeps": all })))?;
    } else if args.output.csv {
        print_csv(sweeps.iter().flat_map(|s| s.points.iter().map(move |p| Record::of(s, p))))?;
    } else {
        crate::out::print(format!("{}\n", table.trim_end()))?;
    }
    args.output.write("What a constant interval wastes", || figure::interval_sweep(&sweeps), &table)
}

/// The marked intervals, and those that turned out best on each trace.
fn table(sweeps: &[Sweep]) -> anyhow::Result<String> {
    let mut text = String::new();
    for sweep in sweeps {
        writeln!(text, "{}: {}, MTTF {:.0} s", sweep.trace, setting_words(&sweep.setting), sweep.mttf_s)?;
        writeln!(
            text,
            "{:<28} {:>12} {:>11} {:>9} {:>13} {:>9}",
            "interval", "minutes", "time", "model", "energy", "model"
        )?;
        let least = |figure: fn(&Point) -> f64| sweep.points.iter().min_by(|a, b| figure(a).total_cmp(&figure(b)));
        let marked = [
            ("Young", Some(&sweep.young)),
            ("energy-optimal", Some(&sweep.energy)),
            ("least time of those swept", least(|p| p.replayed.time)),
            ("least energy of those swept", least(|p| p.replayed.energy)),
        ];
        for (name, point) in marked.into_iter().filter_map(|(name, point)| Some((name, point?))) {
            writeln!(
                text,
                "{name:<28} {:>12.2} {:>9.3} % {:>7.3} % {:>11.3} % {:>7.3} %",
                point.interval_s / 60.0,
                100.0 * point.replayed.time,
                100.0 * point.model.time,
                100.0 * point.replayed.energy,
                100.0 * point.model.energy
            )?;
        }
        text.push('\n');
    }
    Ok(text + figure::acknowledgement(sweeps.iter().map(|s| s.trace.as_str())))
}
