//! Runs `joulepoint simulate`: what the policies and protocols would do on a failure log.

mod compare;
mod forms;
mod learning;
mod output;
mod platform;
mod platform_report;
mod progress;
mod replay;
mod sweep;
mod tables;
mod traces;

use policy::interval::Objective;
use simulator::replay::Setting;

const EXAMPLES: &str = "\
Which policy suits this cluster's failures:
    joulepoint simulate --sacct --checkpoint 300,600 --plot policies.svg
What bounds cost:
    joulepoint simulate --trace failures.csv --policy young,ema,auto --runtime-bound 3,5,10
How much the interval matters:
    joulepoint simulate sweep --trace failures.csv --plot sweep.svg
How sure that is:
    joulepoint simulate --synthetic weibull:0.7 --mtbf 50000 --runs 100";

/// What to simulate; `replay` if no task is named.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
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
    /// What each constant interval wastes, beside the model.
    Sweep(sweep::SweepArgs),
    /// The papers' printed figures beside ours.
    Tables(tables::TablesArgs),
    /// A machine whose nodes fail, and its queue, under each protocol, beside the closed forms.
    ///
    /// Alone it simulates a machine like Bouteiller13's K computer that one application fills. Times are seconds, or
    /// Slurm's forms such as 1-12:00:00 or 30s. docs/platform.md says what is assumed.
    Platform(Box<platform::PlatformArgs>),
    /// `auto`, fitted on other traces, against the published policies.
    Compare(compare::CompareArgs),
    /// What policies waste beyond the best on gaps of a known distribution.
    Regret(learning::RegretArgs),
    /// Jobs over failure traces: `auto` without the failures of before, handed them, and having lived through them.
    Jobs(learning::JobsArgs),
}

/// Simulates and reports.
pub fn run(args: SimulateArgs) -> anyhow::Result<()> {
    match &args.task {
        None => replay::run(&args.replay),
        Some(Task::Replay(args)) => replay::run(args),
        Some(Task::Sweep(args)) => sweep::run(args),
        Some(Task::Tables(args)) => tables::run(args),
        Some(Task::Platform(args)) => platform::run(args),
        Some(Task::Compare(args)) => compare::run(args),
        Some(Task::Regret(args)) => learning::regret(args),
        Some(Task::Jobs(args)) => learning::jobs(args),
    }
}

/// A grid of costs, power ratios and bounds: every combination is simulated.
#[derive(clap::Args, Debug)]
struct Grid {
    /// Checkpoint durations in seconds.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = forms::seconds, default_values_t = [600.0], help_heading = "Costs")]
    checkpoint: Vec<f64>,
    /// Compute power over idle power.
    #[arg(long, value_name = "X", value_delimiter = ',', value_parser = forms::ratio, default_values_t = [3.0], help_heading = "Costs")]
    ratio: Vec<f64>,
    /// Bounds on wasted time over the least, in per cent; none if none is given.
    #[arg(long, value_name = "PCT", value_delimiter = ',', value_parser = forms::within(0.0..=1e6, "0 to 1e6 per cent"), help_heading = "Costs")]
    runtime_bound: Vec<f64>,
    /// Bounds on the I/O share, in per cent; none if none is given.
    #[arg(long, value_name = "PCT", value_delimiter = ',', value_parser = forms::within(1e-6..=100.0, "1e-6 to 100 per cent"), help_heading = "Costs")]
    io_bound: Vec<f64>,
}

impl Grid {
    fn settings(&self) -> Vec<Setting> {
        let bounds = |given: &[f64]| match given {
            [] => vec![None],
            given => given.iter().map(|b| Some(b / 100.0)).collect(),
        };
        let (runtime_bounds, io_bounds) = (bounds(&self.runtime_bound), bounds(&self.io_bound));
        let mut all = Vec::new();
        for &checkpoint_s in &self.checkpoint {
            for &ratio in &self.ratio {
                for &runtime_bound in &runtime_bounds {
                    for &io_bound in &io_bounds {
                        all.push(Setting { checkpoint_s, ratio, runtime_bound, io_bound, prior_s: None });
                    }
                }
            }
        }
        all
    }
}

/// What a policy minimises, as people write it.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Objectives {
    Time,
    Energy,
}

impl From<Objectives> for Objective {
    fn from(wanted: Objectives) -> Objective {
        match wanted {
            Objectives::Time => Objective::Time,
            Objectives::Energy => Objective::Energy,
        }
    }
}

fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "time",
        Objective::Energy => "energy",
    }
}
