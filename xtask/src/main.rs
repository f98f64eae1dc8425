//! Chores of the repository: campaigns of faults, the benchmarks.

mod accuracy;
mod bench;
mod bench_simulator;
mod chaos;
mod demo_lend;
mod gpu;
mod histories;
mod kills_criu;
mod kills_lend;
mod partitions;
mod programs;
mod scale;
mod task;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Chores of the repository.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// A coupled program loses a node, and the nodes that would wait are lent to another user's jobs meanwhile.
    DemoLend,
    /// Kills at random moments around a loan, of nodes, wrappers and the service; and whether all came out right.
    KillsLend {
        /// How many runs.
        #[arg(long, default_value_t = 30)]
        runs: usize,
        /// What the random numbers begin with.
        #[arg(long, default_value_t = 7)]
        seed: u64,
        /// Runs at the same time; each takes four or five nodes.
        #[arg(long, default_value = "4")]
        at_once: std::num::NonZeroUsize,
    },
    /// Programs that know nothing of checkpoints lose their nodes at random moments; and whether their output is the same.
    KillsCriu {
        /// How often each program is run.
        #[arg(long, default_value_t = 4)]
        runs: usize,
        /// How often its node is killed in each run.
        #[arg(long, default_value_t = 5)]
        kills: u32,
        /// What the random numbers begin with.
        #[arg(long, default_value_t = 6)]
        seed: u64,
    },
    /// Third-party programs with one option each lose their node at half time; and whether anything ends otherwise.
    Programs {
        /// Only those whose name contains this.
        #[arg(long)]
        only: Option<String>,
        /// The scripts of this folder instead, NAME.sh: each leaves what it has computed in the file `result`.
        #[arg(long)]
        scripts: Option<PathBuf>,
    },
    /// The wrapper on a storage that fails and lies: the real driver and run folder on two mounts, under seeds.
    StorageHistories {
        /// How many histories.
        #[arg(long, default_value_t = 10_000)]
        runs: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Histories at the same time.
        #[arg(long, default_value = "4")]
        at_once: std::num::NonZeroUsize,
    },
    /// Real clusters and real programs, with everything that can break, at random; and what must hold after each history.
    Chaos {
        /// How many histories.
        #[arg(long, default_value_t = 20)]
        runs: u64,
        /// Seed of the first; each other has the next number.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Clusters side by side.
        #[arg(long, default_value = "1")]
        at_once: std::num::NonZeroUsize,
        /// No history begins after so many minutes.
        #[arg(long)]
        minutes: Option<f64>,
        /// Only this kind of fault.
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(suite::chaos::history::kinds()))]
        only: Option<String>,
    },
    /// Losses of power and partitions on a real cluster: one writer at any time, and how long it took.
    Partitions {
        /// How many losses of power.
        #[arg(long, default_value_t = 40)]
        power: u32,
        /// How many partitions and other silences.
        #[arg(long, default_value_t = 40)]
        cuts: u32,
        /// Seed of the first; each other has the next number.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What no job may notice, under load: slurmds restarted and away, a controller that is cut off, a switch that reboots.
    Standstill {
        /// How long slurmds and controller are away.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
    },
    /// Ten jobs of different shape, planned before and measured after, on a private Slurm that is calibrated first.
    Accuracy {
        /// The whole method instead of a few points.
        #[arg(long)]
        full: bool,
    },
    /// One process of such a job.
    #[command(hide = true)]
    Task { folder: PathBuf, bytes: usize, seconds: u64 },
    /// Costs of the plugin, the wrapper and the service, side by side, beside their targets.
    Bench {
        /// Only these parts.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<bench::Part>,
    },
    /// A site of thousands of nodes: what Joulepoint costs its slurmctld and its controller, and how it takes a storm.
    Scale(scale::Scale),
    /// The wrappers of one user of such a site.
    #[command(hide = true)]
    ScaleWrappers(scale::Wrappers),
    /// The simulator's replay beside a plain Python one.
    BenchSimulator,
    /// A program on this machine's GPU is dumped, killed and brought back; and whether its output is the same.
    Gpu {
        /// The program `joulepoint`; the one that is built, if absent.
        #[arg(long)]
        joulepoint: Option<PathBuf>,
        /// CRIU; the one of `packaging/criu.sh`, if absent.
        #[arg(long)]
        criu: Option<PathBuf>,
        /// Dumps before it is killed.
        #[arg(long, default_value_t = 2)]
        dumps: u32,
        /// A program that writes the same lines each time, and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::DemoLend => demo_lend::run(),
        Chore::KillsLend { runs, seed, at_once } => kills_lend::run(runs, seed, at_once.get()),
        Chore::KillsCriu { runs, kills, seed } => kills_criu::run(runs, kills, seed),
        Chore::Programs { only, scripts } => programs::run(only.as_deref(), scripts.as_deref()),
        Chore::StorageHistories { runs, seed, at_once } => histories::run(runs, seed, at_once.get()),
        Chore::Partitions { power, cuts, seed } => partitions::run(power, cuts, seed),
        Chore::Standstill { minutes } => partitions::run_standstill(minutes),
        Chore::Chaos { runs, seed, at_once, minutes, only } => {
            let limit = minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
            chaos::run(&chaos::Campaign { runs, seed, at_once, limit, only })
        }
        Chore::Accuracy { full } => accuracy::run(full),
        Chore::Task { folder, bytes, seconds } => task::run(&folder, bytes, Duration::from_secs(seconds)),
        Chore::Bench { only } => bench::run(&only),
        Chore::Scale(scale) => scale::run(&scale),
        Chore::ScaleWrappers(of) => scale::wrap(&of),
        Chore::BenchSimulator => bench_simulator::run(),
        Chore::Gpu { joulepoint, criu, dumps, command } => {
            let built = |given: Option<PathBuf>, name| given.map_or_else(|| Ok(suite::built()?.join(name)), anyhow::Ok);
            let (joulepoint, criu) = (built(joulepoint, "joulepoint")?, built(criu, "criu/criu")?);
            gpu::Trial { joulepoint, criu, dumps, command }.run()
        }
    }
}
