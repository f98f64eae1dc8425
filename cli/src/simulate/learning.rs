//! `simulate regret` and `simulate jobs`: what learning costs, and what it is worth to know the failures of before.

use policy::interval::Objective;
use simulator::grid::Policy;
use simulator::jobs::{self, Jobs};
use simulator::regret::{self, Contest};

use super::{Objectives, forms, objective_name, traces::TraceArgs};

/// Which gaps, at which costs.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct RegretArgs {
    /// Weibull shapes of the gaps; at 1 they are exponential.
    #[arg(long, value_delimiter = ',', value_parser = forms::within(0.2..=10.0, "0.2 to 10"), default_values_t = [1.0, 1.5, 3.0])]
    shape: Vec<f64>,
    /// Mean gap, which the policies start from.
    #[arg(long, value_name = "SECONDS", value_parser = forms::seconds, default_value_t = 86_400.0)]
    mtbf: f64,
    /// Failures of each trace.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=100_000), default_values_t = [30, 100, 1000])]
    failures: Vec<u32>,
    /// Traces of each length.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), default_value_t = 200)]
    runs: u32,
    /// Duration of a checkpoint.
    #[arg(long, value_name = "SECONDS", value_parser = forms::seconds, default_value_t = 600.0)]
    checkpoint: f64,
    /// Policies, as of `replay`.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["hazard-dynamic", "auto"])]
    policy: Vec<String>,
}

/// On which traces, at which costs.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct JobsArgs {
    #[command(flatten)]
    traces: TraceArgs,
    /// Length of each job.
    #[arg(long, value_parser = forms::within(0.01..=1e6, "0.01 to 1e6"), default_value_t = 24.0)]
    hours: f64,
    /// Durations of a checkpoint.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = forms::seconds, default_values_t = [600.0, 300.0])]
    checkpoint: Vec<f64>,
    /// What they minimise.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_values = ["time", "energy"])]
    objective: Vec<Objectives>,
}

/// Compute power over idle power, of both.
const RATIO: f64 = 3.0;

/// Draws, replays and reports.
pub fn regret(args: &RegretArgs) -> anyhow::Result<()> {
    let policies = Policy::all(&args.policy, &[Objective::Time, Objective::Energy])?;
    let mut all = Vec::new();
    for &shape in &args.shape {
        for &failures in &args.failures {
            let (mean_s, runs, checkpoint_s) = (args.mtbf, args.runs, args.checkpoint);
            let contest =
                Contest { shape, mean_s, failures: failures as usize, runs, seed: 1, checkpoint_s, ratio: RATIO };
            all.extend(contest.regrets(&policies)?);
        }
    }
    Ok(crate::out::print(regret::table(&all)?)?)
}

/// Replays jobs and reports.
pub fn jobs(args: &JobsArgs) -> anyhow::Result<()> {
    let traces = args.traces.load()?;
    let mut text =
        String::from("Wasted time / energy of jobs in per cent against Young's interval with the trace's mean\n");
    for objective in args.objective.iter().map(|wanted| Objective::from(*wanted)) {
        for &checkpoint_s in &args.checkpoint {
            let jobs = Jobs { job_s: 3600.0 * args.hours, checkpoint_s, ratio: RATIO, objective };
            let rows: Vec<_> = traces.iter().flat_map(|trace| jobs.rows(trace)).collect();
            text += &format!("\n{} h, C {checkpoint_s} s, {RATIO}X, for {}\n", args.hours, objective_name(objective));
            text += &jobs::table(&rows)?;
        }
    }
    Ok(crate::out::print(text)?)
}
