//! `joulepointd --role=controller|node`: the service of a site.

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use service::controller;
use std::path::PathBuf;
use store::Store;

/// Joulepoint's service.
///
/// On the controller host: plans protected jobs, stores what they cost, notices dead nodes.
/// On every compute node: meters the jobs there and sends a heartbeat.
#[derive(Parser)]
#[command(name = "joulepointd", version, subcommand_negates_reqs = true)]
struct Cli {
    /// What this host is.
    #[arg(long, value_enum, required = true)]
    role: Option<Role>,
    /// Site file.
    #[arg(long, env = "JOULEPOINT_CONF", default_value = config::DEFAULT_PATH, value_name = "FILE", global = true)]
    conf: PathBuf,
    /// Node name as Slurm knows it; this host's name up to the first dot if absent.
    #[arg(long, env = "SLURMD_NODENAME")]
    node: Option<String>,
    /// Root of the process tree that is metered.
    #[arg(long, default_value = "/proc", hide = true)]
    proc_root: PathBuf,
    #[command(subcommand)]
    inner: Option<Inner>,
}

/// Raises the limit of open files as far as it goes: every running wrapper keeps a connection.
fn allow_connections() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(e) = raised {
        tracing::warn!(%e, "the limit of open files cannot be raised");
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Controller,
    Node,
}

#[derive(Subcommand)]
enum Inner {
    /// Print the manual page of this program.
    #[command(hide = true)]
    Man,
    /// Print Slurm's own energy figure of a node; a process of its own, since libslurm may end it.
    #[command(hide = true)]
    SlurmEnergy {
        /// Node name.
        node: String,
    },
    /// Write a copy of the controller's store while it is in use.
    Backup {
        /// The copy; an earlier one is replaced when the new one is whole.
        file: PathBuf,
    },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match &cli.inner {
        Some(Inner::SlurmEnergy { node }) => std::process::exit(energy::slurm_energy::slurm_helper_main(node)),
        Some(Inner::Man) => {
            let page = clap_mangen::Man::new(Cli::command()).section("8");
            return Ok(page.render(&mut std::io::stdout())?);
        }
        Some(Inner::Backup { .. }) | None => {}
    }
    let level = tracing_subscriber::EnvFilter::try_from_env("JOULEPOINT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_ansi(false)
        .init();
    let mut site = config::read(&cli.conf).unwrap_or_else(|e| {
        tracing::error!(%e, "the site file cannot be used");
        std::process::exit(2)
    });
    // A URL with a password belongs into the environment, not into a file that everybody reads.
    if let Some(store) = std::env::var_os("JOULEPOINT_STORE").filter(|s| !s.is_empty()) {
        site.controller.store = store.into();
    }
    if let Some(Inner::Backup { file }) = &cli.inner {
        return Ok(Store::back_up(&site.controller.store, file)?);
    }
    allow_connections();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match cli.role.context("--role=controller or --role=node is needed")? {
        Role::Controller => runtime.block_on(controller::serve(site)),
        Role::Node => {
            let node = match cli.node {
                Some(node) => node,
                None => {
                    nix::unistd::gethostname()?.to_string_lossy().split('.').next().unwrap_or("localhost").to_string()
                }
            };
            runtime.block_on(node::serve(node::Params { site, node, proc_root: cli.proc_root }))
        }
    }
}
