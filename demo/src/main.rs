//! Shows Joulepoint at work on a private Slurm: a program that loses its node, or a shell to try it.

mod play;
mod power;
mod shell;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Joulepoint on a private Slurm of this machine; needs root.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A real program survives the death of its node.
    Show {
        /// gromacs, lammps, heat, lammps-mpi or gromacs-mpi.
        #[arg(long, default_value = "gromacs")]
        app: String,
    },
    /// A shell of an ordinary user; with commands on standard input, it runs them. The cluster ends with it.
    Try,
    /// What the shell's commands `kill-node` and `revive-node` are.
    #[command(hide = true)]
    Power { cluster: PathBuf, what: String, node: String },
}

fn main() -> Result<ExitCode> {
    match Cli::parse().what {
        What::Show { app } => play::run(&app).map(|()| ExitCode::SUCCESS),
        What::Try => shell::run(),
        What::Power { cluster, what, node } => power::order(&cluster, &what, &node).map(|()| ExitCode::SUCCESS),
    }
}
