//! `simulate compare`: `auto`, fitted on the other traces, against the published policies.

use std::fmt::Write as _;

use policy::interval::Objective;
use serde_json::json;
use simulator::comparison::{Row, Verdict, leave_one_out};
use simulator::replay::Setting;
use simulator::trace::Trace;

use super::{
    Grid, objective_name,
    output::{Output, row_json},
    traces::TraceArgs,
};

/// On which traces, at which costs.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    grid: Grid,
    #[command(flatten)]
    output: Output,
}

/// Compares and reports.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    compare(args, &args.traces.load()?)
}

fn compare(args: &CompareArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut table = String::new();
    let mut documents = Vec::new();
    for setting in args.grid.settings() {
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
    if args.output.json {
        println!("{}", json!({ "verdicts": documents }));
    } else {
        print!("{table}");
    }
    args.output.draw(&rows, &table)
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
