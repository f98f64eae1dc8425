//! `simulate compare`: `auto`, fitted on other traces, against the published policies.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use policy::interval::Objective;
use serde_json::json;
use simulator::comparison::{Row, Verdict, compare};
use simulator::replay::Setting;
use simulator::trace::Trace;

use super::{
    forms, objective_name,
    output::{Output, row_json},
    traces::TraceArgs,
};

/// On which traces, fitted on which, at which costs.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct CompareArgs {
    #[command(flatten)]
    traces: TraceArgs,
    /// Fit `auto` on these traces; without it, on all of --trace but the one reported.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    fitted_on: Vec<PathBuf>,
    /// Checkpoint durations in seconds.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = forms::seconds, default_values_t = [600.0, 300.0])]
    checkpoint: Vec<f64>,
    /// Compute power over idle power.
    #[arg(long, value_name = "X", value_delimiter = ',', value_parser = forms::ratio, default_values_t = [3.0])]
    ratio: Vec<f64>,
    #[command(flatten)]
    output: Output,
}

/// Compares and reports.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let traces = args.traces.load()?;
    let fitted_on = args.fitted_on.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let pairs = args.checkpoint.iter().flat_map(|c| args.ratio.iter().map(move |r| (*c, *r)));
    let settings: Vec<Setting> = pairs
        .map(|(checkpoint_s, ratio)| Setting {
            checkpoint_s,
            ratio,
            runtime_bound: None,
            io_bound: None,
            prior_s: None,
        })
        .collect();
    let mut verdicts = Vec::new();
    for objective in [Objective::Time, Objective::Energy] {
        verdicts.extend(compare(&traces, &fitted_on, objective, &settings)?);
    }
    let table = tables(&verdicts, &settings)?;
    if args.output.json {
        crate::out::print(format!(
            "{}\n",
            json!({ "verdicts": verdicts.iter().map(verdict_json).collect::<Vec<_>>() })
        ))?;
    } else {
        crate::out::print(&table)?;
    }
    // Every policy on every trace: a mean over the traces where one was best would say nothing about it.
    let drawn: Vec<Row> = verdicts.iter().flat_map(|v| std::iter::once(&v.auto).chain(&v.published)).cloned().collect();
    args.output.draw(&drawn, &table)
}

fn read(path: &Path) -> anyhow::Result<Trace> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Trace::parse(&path.display().to_string(), &text).with_context(|| format!("in {}", path.display()))
}

/// One table for each setting and objective, then the counts of all.
fn tables(verdicts: &[Verdict], settings: &[Setting]) -> anyhow::Result<String> {
    let mut text = String::from(
        "Wasted time / energy in per cent against Young. `auto` sees only failures that have happened, and is fitted on\n\
         other traces; * marks a published policy that it beats: less energy and no more time.\n\n",
    );
    let mut counts = String::from("beaten                      best elsewhere   least energy here   least time here\n");
    for setting in settings {
        for objective in [Objective::Time, Objective::Energy] {
            let rows: Vec<&Verdict> =
                verdicts.iter().filter(|v| v.setting == *setting && v.auto.objective == objective).collect();
            let title = format!("C {} s, {}X, for {}", setting.checkpoint_s, setting.ratio, objective_name(objective));
            text += &verdict_table(&title, &rows)?;
            let beaten = |other: fn(&Verdict) -> &Row| {
                format!("{} of {}", rows.iter().filter(|v| v.beats(other(v))).count(), rows.len())
            };
            let (chosen, energy, time) =
                (beaten(|v| &v.chosen), beaten(|v| &v.least_energy), beaten(|v| &v.least_time));
            writeln!(counts, "{title:<27} {chosen:<16} {energy:<19} {time}")?;
        }
    }
    Ok(text + &counts)
}

fn verdict_table(title: &str, verdicts: &[&Verdict]) -> anyhow::Result<String> {
    let figures = |r: &Row| format!("{:+.2} / {:+.2}", r.time * 100.0, r.energy * 100.0);
    let mut text = format!(
        "{title}\n{:<12} {:<17} {:<34} {:<34} {}\n",
        "trace", "auto", "best published elsewhere", "least energy here, in hindsight", "least time here, in hindsight"
    );
    for v in verdicts {
        let other = |r: &Row| format!("{:<14} {}{}", r.policy, figures(r), if v.beats(r) { " *" } else { "" });
        let (chosen, energy, time) = (other(&v.chosen), other(&v.least_energy), other(&v.least_time));
        writeln!(text, "{:<12} {:<17} {chosen:<34} {energy:<34} {time}", v.auto.trace, figures(&v.auto))?;
    }
    text.push('\n');
    Ok(text)
}

fn verdict_json(v: &Verdict) -> serde_json::Value {
    json!({
        "trace": v.auto.trace,
        "auto": row_json(&v.setting, &v.auto),
        "chosen": row_json(&v.setting, &v.chosen),
        "least_energy": row_json(&v.setting, &v.least_energy),
        "least_time": row_json(&v.setting, &v.least_time),
        "beats_chosen": v.beats(&v.chosen),
        "beats_least_energy": v.beats(&v.least_energy),
        "beats_least_time": v.beats(&v.least_time),
        "published": v.published.iter().map(|r| row_json(&v.setting, r)).collect::<Vec<_>>(),
        "parameters": {
            "weights": v.parameters.weights, "day": v.parameters.day,
            "weekend": v.parameters.weekend, "lean": v.parameters.lean,
        },
    })
}
