//! `simulate replay`: each policy on each trace, against Young's.

use std::fmt::Write as _;

use policy::interval::Objective;
use serde_json::json;
use simulator::comparison::{Row, against_young};
use simulator::replay::{Rule, Setting};
use simulator::trace::Trace;

use super::{
    Grid, objective_name,
    output::{Output, mean_and_confidence, row_json},
    traces::TraceArgs,
};

/// Which policies to replay, on what, at which costs.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    grid: Grid,
    /// Policies; all if none is given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// Replays and reports.
pub fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    replay(args, &args.traces.load()?)
}

fn replay(args: &ReplayArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let names: Vec<String> =
        if args.policy.is_empty() { Rule::NAMES.map(str::to_owned).to_vec() } else { args.policy.clone() };
    let mut all: Vec<(Setting, Row)> = Vec::new();
    for setting in args.grid.settings() {
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

fn print_rows(args: &ReplayArgs, all: &[(Setting, Row)], names: &[String]) -> anyhow::Result<()> {
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
    if args.output.json {
        let rows: Vec<_> = all.iter().map(|(s, r)| row_json(s, r)).collect();
        println!("{}", json!({ "rows": rows }));
    } else if args.output.csv {
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
    args.output.draw(&rows, &table)
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
