//! Chores of the repository: the demo, the benchmarks.

mod accuracy;
mod bench;
mod bench_simulator;
mod demo;
mod demo_lend;

use clap::{Parser, Subcommand};

/// Chores of the repository.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// A real program survives the death of a node on a private Slurm.
    Demo {
        /// gromacs, lammps or heat.
        #[arg(long, default_value = "gromacs")]
        app: String,
    },
    /// A coupled program loses a node, and the nodes that would wait are lent to another user's jobs meanwhile.
    DemoLend,
    /// Ten jobs of different shape, planned before and measured after, on a private Slurm that is calibrated first.
    Accuracy {
        /// The whole method instead of three minutes.
        #[arg(long)]
        full: bool,
    },
    /// Costs of the plugin, the wrapper and the service, side by side, beside their targets.
    Bench {
        /// Only these parts.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<bench::Part>,
    },
    /// The simulator's replay beside a plain Python one.
    BenchSimulator,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Demo { app } => demo::run(&app),
        Chore::DemoLend => demo_lend::run(),
        Chore::Accuracy { full } => accuracy::run(full),
        Chore::Bench { only } => bench::run(&only),
        Chore::BenchSimulator => bench_simulator::run(),
    }
}
