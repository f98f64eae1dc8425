//! `simulate replay`: each policy on each trace at each setting, against Young's.

use std::fmt::Write as _;

use serde_json::json;
use simulator::figure;
use simulator::grid::{self, Cell, Estimate, Mean, Policy};
use simulator::replay::Rule;

use super::{
    Grid, Objectives, forms, objective_name,
    output::{Output, Record, print_csv, setting_words},
    progress,
    traces::TraceArgs,
};

/// Los Alamos's systems that the built-in parameters of `auto` were fitted on.
const FITTED_ON: [&str; 6] = ["system-2", "system-3", "system-12", "system-18", "system-20", "system-21"];

/// Which policies to replay, on what, at which costs.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct ReplayArgs {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    grid: Grid,
    /// Policies; all if none is given. `constant:SECONDS` and `hazard-shape:SHAPE` are others.
    ///
    /// young, daly, sma, wma, ema, ar, hazard, hazard-dynamic, hazard-shape, auto.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Policies")]
    policy: Vec<String>,
    /// What they minimise.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_values = ["time", "energy"], help_heading = "Policies")]
    objective: Vec<Objectives>,
    /// No progress bar.
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
    #[command(flatten)]
    output: Output,
}

/// Replays and reports.
pub fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let names: Vec<&str> =
        if args.policy.is_empty() { Rule::NAMES.to_vec() } else { args.policy.iter().map(String::as_str).collect() };
    let objectives: Vec<_> = args.objective.iter().map(|o| (*o).into()).collect();
    let policies = Policy::all(&names, &objectives)?;
    let grid = grid::Grid { settings: args.grid.settings(), traces: args.traces.load()?, policies };
    let bar = progress::bar(grid.len(), args.quiet);
    let cells = grid.replay(|| bar.inc(1))?;
    bar.finish_and_clear();
    let means = grid.means(&cells);
    report(args, &grid, &cells, &means)
}

fn report(args: &ReplayArgs, grid: &grid::Grid, cells: &[Cell], means: &[Mean]) -> anyhow::Result<()> {
    let note = figure::acknowledgement(grid.traces.iter().map(|trace| trace.name.as_str()));
    let mut table = String::new();
    let each = (cells.len() / grid.settings.len(), means.len() / grid.settings.len());
    for (cells, means) in cells.chunks(each.0).zip(means.chunks(each.1)) {
        writeln!(table, "{}; against Young's interval for time", setting_words(&means[0].setting))?;
        if !args.traces.is_sample() {
            rows_table(&mut table, cells)?;
        }
        if grid.traces.len() > 1 {
            means_table(&mut table, means, grid.traces.len())?;
        }
        table.push('\n');
    }
    table += note;
    if fitted_here(grid) {
        table +=
            "\n`auto` was fitted on these systems; `simulate compare` judges it on systems that it was not fitted on.";
    }
    if args.output.json {
        let rows: Vec<_> = cells.iter().map(|cell| Record::of(&cell.setting, &cell.row)).collect();
        let means: Vec<_> = means.iter().map(mean_json).collect();
        crate::out::print(format!("{}\n", json!({ "rows": rows, "means": means, "acknowledgement": note })))?;
    } else if args.output.csv {
        print_csv(cells.iter().map(|cell| Record::of(&cell.setting, &cell.row)))?;
    } else {
        crate::out::print(format!("{}\n", table.trim_end()))?;
    }
    let draw = || match grid.settings.len() {
        1 => figure::energy_against_time(&cells.iter().map(|cell| cell.row.clone()).collect::<Vec<_>>()),
        _ => figure::trade_off(means, note),
    };
    args.output.write("Policies against Young", draw, &table)
}

/// Whether `auto` is shown on a trace that it was fitted on.
fn fitted_here(grid: &grid::Grid) -> bool {
    grid.policies.iter().any(|policy| policy.rule == Rule::Auto(None))
        && grid.traces.iter().any(|trace| FITTED_ON.contains(&trace.name.as_str()))
}

fn rows_table(table: &mut String, cells: &[Cell]) -> anyhow::Result<()> {
    writeln!(
        table,
        "{:<24} {:<18} {:<6} {:>9} {:>9} {:>8} {:>12} {:>14} {:>11}",
        "trace", "policy", "for", "time", "energy", "I/O", "wasted h", "wasted idle h", "checkpoints"
    )?;
    for Cell { setting, row } in cells {
        writeln!(
            table,
            "{:<24} {:<18} {:<6} {:>+7.2} % {:>+7.2} % {:>6.2} % {:>12.1} {:>14.1} {:>11}",
            row.trace,
            row.policy,
            objective_name(row.objective),
            row.time * 100.0,
            row.energy * 100.0,
            row.outcome.io_share() * 100.0,
            row.outcome.wasted_s() / 3600.0,
            row.outcome.wasted_energy(setting.ratio) / 3600.0,
            row.outcome.checkpoints
        )?;
    }
    Ok(())
}

/// Means over the traces with their 95 % confidence intervals.
fn means_table(table: &mut String, means: &[Mean], traces: usize) -> anyhow::Result<()> {
    let percent = |e: &Estimate| {
        let width = e.half_width.map_or_else(String::new, |w| format!(" ± {:.2}", w * 100.0));
        format!("{:+.2}{width} %", e.mean * 100.0)
    };
    writeln!(
        table,
        "{:<24} {:<18} {:<6} {:>16} {:>16} {:>8}",
        format!("mean of {traces}, 95 %"),
        "policy",
        "for",
        "time",
        "energy",
        "I/O"
    )?;
    for mean in means {
        writeln!(
            table,
            "{:<24} {:<18} {:<6} {:>16} {:>16} {:>6.2} %",
            "",
            mean.policy,
            objective_name(mean.objective),
            percent(&mean.time),
            percent(&mean.energy),
            mean.io_share.mean * 100.0
        )?;
    }
    Ok(())
}

fn mean_json(mean: &Mean) -> serde_json::Value {
    let setting = &mean.setting;
    json!({
        "policy": mean.policy,
        "objective": objective_name(mean.objective),
        "checkpoint_s": setting.checkpoint_s,
        "ratio": setting.ratio,
        "runtime_bound": setting.runtime_bound,
        "io_bound": setting.io_bound,
        "wasted_time_vs_young": mean.time.mean,
        "wasted_time_vs_young_half_width_95": mean.time.half_width,
        "wasted_energy_vs_young": mean.energy.mean,
        "wasted_energy_vs_young_half_width_95": mean.energy.half_width,
        "io_share": mean.io_share.mean,
        "io_share_half_width_95": mean.io_share.half_width,
    })
}
