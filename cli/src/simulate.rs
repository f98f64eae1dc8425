//! Runs `joulepoint simulate`: failure traces in, the policies' waste against Young's out.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use policy::interval::Objective;
use serde_json::json;
use simulator::chart;
use simulator::comparison::{Row, Verdict, against_young, leave_one_out};
use simulator::published::elsayed_cells;
use simulator::replay::{Rule, Setting};
use simulator::trace::{Distribution, Trace};

/// What to simulate.
#[derive(clap::Args, Debug)]
pub struct SimulateArgs {
    /// replay: each policy against Young's; tables: ElSayed14's printed figures beside ours; compare: auto, fitted
    /// on the other traces, against the published policies.
    #[arg(value_enum, default_value_t = Task::Replay)]
    pub task: Task,
    /// Failure traces: CSV with a column failure_start or time. A name ending in system-N tells tables the system.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub trace: Vec<PathBuf>,
    /// Draw gaps instead: exponential, weibull:SHAPE or lognormal:SIGMA.
    #[arg(long, value_name = "DISTRIBUTION")]
    pub synthetic: Option<String>,
    /// Mean gap of a synthetic trace, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 50_000.0)]
    pub mtbf: f64,
    /// Failures of a synthetic trace.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub failures: usize,
    /// Synthetic traces to draw, with seeds from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub runs: u32,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Checkpoint durations in seconds.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_values_t = [600.0])]
    pub checkpoint: Vec<f64>,
    /// Compute power over idle power.
    #[arg(long, value_name = "X", value_delimiter = ',', default_values_t = [3.0])]
    pub ratio: Vec<f64>,
    /// Bound on wasted time over the least, in per cent.
    #[arg(long, value_name = "PCT")]
    pub runtime_bound: Option<f64>,
    /// Bound on the I/O share, in per cent.
    #[arg(long, value_name = "PCT")]
    pub io_bound: Option<f64>,
    /// Policies; all if none is given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV.
    #[arg(long)]
    pub csv: bool,
    /// Draw wasted energy against wasted time.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Write the table and the drawing as one page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Kinds of report.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Each policy against Young's.
    Replay,
    /// Printed figures beside ours.
    Tables,
    /// `auto` against the published policies.
    Compare,
}

/// Simulates and reports.
pub fn run(args: SimulateArgs) -> anyhow::Result<()> {
    let traces = traces(&args)?;
    match args.task {
        Task::Tables => tables(&args, &traces),
        Task::Compare => compare(&args, &traces),
        Task::Replay => replay(&args, &traces),
    }
}

fn traces(args: &SimulateArgs) -> anyhow::Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in &args.trace {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().map_or_else(|| "trace".to_owned(), |s| s.to_string_lossy().into_owned());
        traces.push(Trace::parse(&name, &text).with_context(|| format!("in {}", path.display()))?);
    }
    if let Some(wanted) = &args.synthetic {
        let (name, shape) = wanted.split_once(':').map_or((wanted.as_str(), None), |(n, s)| (n, Some(s)));
        let shape = |otherwise: f64| -> anyhow::Result<f64> {
            shape.map_or(Ok(otherwise), |s| s.parse().with_context(|| format!("{s:?} is no number")))
        };
        let distribution = match name {
            "exponential" => Distribution::Exponential,
            "weibull" => Distribution::Weibull(shape(0.7)?),
            "lognormal" => Distribution::Lognormal(shape(1.0)?),
            _ => anyhow::bail!("--synthetic={wanted}: valid are exponential, weibull:SHAPE, lognormal:SIGMA"),
        };
        anyhow::ensure!(args.failures <= 10_000_000, "--failures={}: at most 10000000", args.failures);
        for run in 0..args.runs {
            let seed = args.seed.wrapping_add(u64::from(run));
            let mut trace = Trace::synthetic(distribution, args.mtbf, args.failures, seed)?;
            trace.name = format!("{} seed {seed}", trace.name);
            traces.push(trace);
        }
    }
    anyhow::ensure!(!traces.is_empty(), "nothing to simulate: give --trace FILE or --synthetic DISTRIBUTION");
    Ok(traces)
}

fn settings(args: &SimulateArgs) -> Vec<Setting> {
    let (runtime_bound, io_bound) = (args.runtime_bound.map(|b| b / 100.0), args.io_bound.map(|b| b / 100.0));
    args.checkpoint
        .iter()
        .flat_map(|c| args.ratio.iter().map(move |r| (*c, *r)))
        .map(|(checkpoint_s, ratio)| Setting { checkpoint_s, ratio, runtime_bound, io_bound, prior_s: None })
        .collect()
}

fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "time",
        Objective::Energy => "energy",
    }
}

fn replay(args: &SimulateArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let names: Vec<String> =
        if args.policy.is_empty() { Rule::NAMES.map(str::to_owned).to_vec() } else { args.policy.clone() };
    let mut all: Vec<(Setting, Row)> = Vec::new();
    for setting in settings(args) {
        for trace in traces {
            for name in &names {
                for objective in [Objective::Time, Objective::Energy] {
                    let row = against_young(trace, name, Rule::named(name)?, objective, &setting)?;
                    all.push((setting, row));
                }
            }
        }
    }
    print_rows(args, &all, &names)
}

fn row_json(setting: &Setting, row: &Row) -> serde_json::Value {
    json!({
        "trace": row.trace,
        "policy": row.policy,
        "objective": objective_name(row.objective),
        "checkpoint_s": setting.checkpoint_s,
        "ratio": setting.ratio,
        "wasted_time_vs_young": row.time,
        "wasted_energy_vs_young": row.energy,
        "wasted_time_s": row.outcome.wasted_s(),
        "wasted_energy_idle_s": row.outcome.wasted_energy(setting.ratio),
        "io_share": row.outcome.io_share(),
        "checkpoints": row.outcome.checkpoints,
        "failures": row.outcome.failures,
    })
}

fn print_rows(args: &SimulateArgs, all: &[(Setting, Row)], names: &[String]) -> anyhow::Result<()> {
    let mut table = String::from(
        "trace                    C s     ratio policy          for     time     energy   I/O     checkpoints\n",
    );
    for (setting, row) in all {
        writeln!(
            table,
            "{:<24} {:<7} {:<5} {:<15} {:<6} {:>+7.2} % {:>+7.2} % {:>5.2} % {:>8}",
            row.trace,
            setting.checkpoint_s,
            setting.ratio,
            row.policy,
            objective_name(row.objective),
            row.time * 100.0,
            row.energy * 100.0,
            row.outcome.io_share() * 100.0,
            row.outcome.checkpoints
        )?;
    }
    table += &means(all, names)?;
    let rows: Vec<Row> = all.iter().map(|(_, row)| row.clone()).collect();
    if args.json {
        let rows: Vec<_> = all.iter().map(|(s, r)| row_json(s, r)).collect();
        println!("{}", json!({ "rows": rows }));
    } else if args.csv {
        println!(
            "trace,policy,objective,checkpoint_s,ratio,wasted_time_vs_young,wasted_energy_vs_young,io_share,checkpoints"
        );
        for (s, r) in all {
            println!(
                "\"{}\",{},{},{},{},{},{},{},{}",
                r.trace.replace('"', "\"\""),
                r.policy,
                objective_name(r.objective),
                s.checkpoint_s,
                s.ratio,
                r.time,
                r.energy,
                r.outcome.io_share(),
                r.outcome.checkpoints
            );
        }
    } else {
        print!("{table}");
    }
    write_drawings(args, &rows, &table)
}

/// Mean over the traces and, from two on, its 95 % confidence interval.
fn means(all: &[(Setting, Row)], names: &[String]) -> anyhow::Result<String> {
    let mut text = String::from("\nmean over the traces (95 % confidence), against Young\n");
    for name in names {
        for objective in [Objective::Time, Objective::Energy] {
            let rows: Vec<&Row> =
                all.iter().map(|(_, r)| r).filter(|r| r.policy == *name && r.objective == objective).collect();
            let (time, time_ci) = mean_and_confidence(rows.iter().map(|r| r.time * 100.0));
            let (energy, energy_ci) = mean_and_confidence(rows.iter().map(|r| r.energy * 100.0));
            writeln!(
                text,
                "{name:<15} {:<6} time {time:>+7.2} ± {time_ci:.2} %  energy {energy:>+7.2} ± {energy_ci:.2} %",
                objective_name(objective)
            )?;
        }
    }
    Ok(text)
}

fn mean_and_confidence(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    // Student's t at 97.5 %, within 1 % from two degrees of freedom on.
    let f = n - 1.0;
    let t = if f < 2.0 { 12.706 } else { 1.96 + 2.372 / f + 2.82 / (f * f) + 2.56 / (f * f * f) };
    (mean, t * (variance / n).sqrt())
}

fn write_drawings(args: &SimulateArgs, rows: &[Row], table: &str) -> anyhow::Result<()> {
    let svg = chart::energy_against_time(rows);
    if let Some(path) = &args.plot {
        std::fs::write(path, &svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Joulepoint: policies against Young</title>\n\
             <h1>Policies against Young</h1>\n{svg}\n<pre>{}</pre>\n",
            chart::escape(table)
        );
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn tables(args: &SimulateArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let mut cells = Vec::new();
    for trace in traces {
        let id = trace.name.rsplit(['-', ' ']).next().and_then(|id| id.parse().ok()).unwrap_or(0);
        cells.extend(elsayed_cells(id, trace)?.into_iter().map(|c| (trace.name.clone(), c)));
    }
    anyhow::ensure!(!cells.is_empty(), "no printed figure is known for these traces; name them system-2, -20 or -21");
    if args.json {
        let cells: Vec<_> = cells
            .iter()
            .map(|(trace, c)| {
                json!({
                    "trace": trace, "place": c.place, "quantity": c.quantity, "printed": c.printed,
                    "found": c.found, "tolerance": c.tolerance, "reproduced": c.reproduced(),
                })
            })
            .collect();
        println!("{}", json!({ "cells": cells }));
        return Ok(());
    }
    println!("{:<12} {:<20} {:<26} {:>9} {:>9}  reproduced", "trace", "place", "quantity", "printed", "found");
    for (trace, c) in &cells {
        let verdict = if c.reproduced() { "yes" } else { "no" };
        println!("{trace:<12} {:<20} {:<26} {:>9.2} {:>9.2}  {verdict}", c.place, c.quantity, c.printed, c.found);
    }
    println!("Failure records: Los Alamos National Laboratory, LA-UR-05-7318.");
    Ok(())
}

fn compare(args: &SimulateArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut table = String::new();
    let mut documents = Vec::new();
    for setting in settings(args) {
        for objective in [Objective::Time, Objective::Energy] {
            let verdicts = leave_one_out(traces, objective, &setting)?;
            table += &verdict_table(&verdicts, objective, &setting)?;
            for v in &verdicts {
                rows.push(v.auto.clone());
                rows.extend(v.published.iter().cloned());
                documents.push(json!({
                    "trace": v.trace,
                    "auto": row_json(&setting, &v.auto),
                    "chosen": row_json(&setting, &v.chosen),
                    "hindsight": row_json(&setting, &v.hindsight),
                    "beats_chosen": v.beats(&v.chosen),
                    "beats_hindsight": v.beats(&v.hindsight),
                    "parameters": {
                        "fast": v.parameters.fast, "slow": v.parameters.slow, "mix": v.parameters.mix,
                        "shape": v.parameters.shape, "stretch": v.parameters.stretch,
                    },
                }));
            }
        }
    }
    if args.json {
        println!("{}", json!({ "verdicts": documents }));
    } else {
        print!("{table}");
    }
    write_drawings(args, &rows, &table)
}

fn verdict_table(verdicts: &[Verdict], objective: Objective, setting: &Setting) -> anyhow::Result<String> {
    let mut text = format!(
        "C {} s, {}X, for {}: wasted time / energy against Young; auto fitted on the other traces\n\
         {:<12} {:>17}   {:<32} {:<32}\n",
        setting.checkpoint_s,
        setting.ratio,
        objective_name(objective),
        "trace",
        "auto",
        "best published on the others",
        "best published here, in hindsight"
    );
    let figure = |r: &Row| format!("{:+.2} / {:+.2}", r.time * 100.0, r.energy * 100.0);
    for v in verdicts {
        let word = |r: &Row| if v.beats(r) { "beaten" } else { "not beaten" };
        let other = |r: &Row| format!("{} {} {}", r.policy, figure(r), word(r));
        writeln!(
            text,
            "{:<12} {:>17}   {:<38} {:<38}",
            v.trace,
            figure(&v.auto),
            other(&v.chosen),
            other(&v.hindsight)
        )?;
    }
    let beaten = verdicts.iter().filter(|v| v.beats(&v.chosen)).count();
    let hindsight = verdicts.iter().filter(|v| v.beats(&v.hindsight)).count();
    writeln!(
        text,
        "auto wastes less energy and no more time on {beaten} of {} traces ({hindsight} against hindsight)\n",
        verdicts.len()
    )?;
    Ok(text)
}
