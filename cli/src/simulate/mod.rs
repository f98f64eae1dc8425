//! Runs `joulepoint simulate`: what the policies and protocols would do on a failure log.

mod compare;
mod output;
mod replay;
mod tables;
mod traces;

use policy::interval::Objective;
use simulator::replay::Setting;

/// What to simulate; `replay` if no task is named.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimulateArgs {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    replay: replay::ReplayArgs,
}

/// The simulations.
#[derive(clap::Subcommand, Debug)]
enum Task {
    /// Each policy against Young's on failure traces.
    Replay(replay::ReplayArgs),
    /// The papers' printed figures beside ours.
    Tables(tables::TablesArgs),
    /// `auto`, fitted on other traces, against the published policies.
    Compare(compare::CompareArgs),
}

/// Simulates and reports.
pub fn run(args: SimulateArgs) -> anyhow::Result<()> {
    match &args.task {
        None => replay::run(&args.replay),
        Some(Task::Replay(args)) => replay::run(args),
        Some(Task::Tables(args)) => tables::run(args),
        Some(Task::Compare(args)) => compare::run(args),
    }
}

/// A grid of costs, power ratios and bounds.
#[derive(clap::Args, Debug)]
struct Grid {
    /// Checkpoint durations in seconds.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_values_t = [600.0])]
    checkpoint: Vec<f64>,
    /// Compute power over idle power.
    #[arg(long, value_name = "X", value_delimiter = ',', default_values_t = [3.0])]
    ratio: Vec<f64>,
    /// Bound on wasted time over the least, in per cent.
    #[arg(long, value_name = "PCT")]
    runtime_bound: Option<f64>,
    /// Bound on the I/O share, in per cent.
    #[arg(long, value_name = "PCT")]
    io_bound: Option<f64>,
}

impl Grid {
    fn settings(&self) -> Vec<Setting> {
        let (runtime_bound, io_bound) = (self.runtime_bound.map(|b| b / 100.0), self.io_bound.map(|b| b / 100.0));
        self.checkpoint
            .iter()
            .flat_map(|c| self.ratio.iter().map(move |r| (*c, *r)))
            .map(|(checkpoint_s, ratio)| Setting { checkpoint_s, ratio, runtime_bound, io_bound, prior_s: None })
            .collect()
    }
}

fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "time",
        Objective::Energy => "energy",
    }
}
