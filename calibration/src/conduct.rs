//! Runs inside a calibration job: starts the steps in which nodes measure, and is such a step itself.

use crate::asked;
use crate::meter::Counter;
use crate::mpi;
use crate::operations::Signal;
use crate::orders::Order;
use crate::state::{Outcome, State};
use crate::worker::Worker;
use anyhow::{Context, Result, bail};
use config::Site;
use hardware::facts::{self, Facts};
use protocol::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Starts the steps of a job: all that is not finished yet, or only idle power.
///
/// # Errors
/// When Slurm cannot be run, or the folder not be used.
pub fn conduct(site: &Site, conf: &Path, folder: &Path, only_idle: bool) -> Result<()> {
    let state = State::open(folder, true)?;
    let assignment = state.assignment()?;
    let nodes = slurm::expand_nodelist(&variable("SLURM_JOB_NODELIST")?)?;
    let this = env::current_exe()?;
    let joulepoint = |what: &str| -> Vec<String> {
        [&this.display().to_string(), "--conf", &conf.display().to_string(), "calibrate", what, "--dir"]
            .into_iter()
            .map(str::to_string)
            .chain([folder.display().to_string()])
            .collect()
    };
    if only_idle {
        let idle = assignment.orders.iter().filter(|o| o.operation.is_none()).cloned().collect::<Vec<_>>();
        return step(site, &state, &joulepoint("worker"), nodes.len() as u32, "idle", &idle);
    }
    let left = state.unfinished(&assignment.orders)?;
    let (of_mpi, own): (Vec<Order>, Vec<Order>) = left.into_iter().partition(Order::is_mpi);
    // Idle power is that of all nodes of the type, of which this job may have only some.
    let width_of = |o: &Order| o.nodes.min(nodes.len() as u32);
    let widths: BTreeSet<u32> = own.iter().map(width_of).collect();
    // Idle power first: every other figure is above it.
    for width in widths.into_iter().rev() {
        let some: Vec<Order> = own.iter().filter(|o| width_of(o) == width).cloned().collect();
        step(site, &state, &joulepoint("worker"), width, &width.to_string(), &some)?;
    }
    for order in &of_mpi {
        let (n, p) = (order.nodes, order.processes);
        let file = write_orders(&state, "mpi", std::slice::from_ref(order))?;
        let (program, arguments) =
            site.calibration.mpi_launch.split_first().context("calibration.mpi_launch is empty")?;
        let status = slurm_command(site, program)
            .args(arguments)
            .args(["-N", &n.to_string(), "-n", &(n * p).to_string(), &format!("--ntasks-per-node={p}")])
            .args(joulepoint("rank"))
            .arg("--orders")
            .arg(file)
            .status();
        let why = match status {
            Ok(s) if s.success() => continue,
            Ok(s) => format!("{program} ended with {s}; see the job's output in {}", folder.display()),
            Err(e) => format!("{program}: {e}"),
        };
        // What a rank has not told is told here, so that it is not tried for ever.
        for node in nodes.iter().take(n as usize) {
            let (order, error) = (order.clone(), Some(why.clone()));
            let (times_s, powers_w) = (Vec::new(), Vec::new());
            state.append(&Outcome { order, node: node.clone(), times_s, powers_w, source: String::new(), error })?;
        }
    }
    Ok(())
}

fn step(site: &Site, state: &State, worker: &[String], width: u32, name: &str, orders: &[Order]) -> Result<()> {
    let file = write_orders(state, name, orders)?;
    // A node that cannot measure ends the step: the others would wait for it.
    let status = slurm_command(site, "srun")
        .args(["-N", &width.to_string(), "-n", &width.to_string(), "--ntasks-per-node=1", "-K", "-c"])
        .arg(variable("SLURM_CPUS_ON_NODE")?)
        .args(worker)
        .arg("--orders")
        .arg(file)
        .status()
        .context("srun")?;
    if status.success() { Ok(()) } else { bail!("the step on {width} nodes ended with {status}") }
}

fn write_orders(state: &State, name: &str, orders: &[Order]) -> Result<PathBuf> {
    let path = state.folder.join(format!("orders-{name}.json"));
    run::write_durably(&path, &serde_json::to_vec(orders)?)?;
    Ok(path)
}

/// One of Slurm's commands, without what would put the calibration itself under protection.
pub(crate) fn slurm_command(site: &Site, program: &str) -> Command {
    let path = match &site.slurm_bin {
        Some(dir) if !program.contains('/') => dir.join(program),
        _ => PathBuf::from(program),
    };
    let mut command = Command::new(path);
    for (name, _) in env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("FT_ENERGY")) {
        command.env_remove(name);
    }
    command
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set: this runs within Slurm's jobs only"))
}

/// Folder of each storage target, for nodes whose shared one is `folder`.
pub(crate) fn targets(site: &Site, folder: &Path) -> BTreeMap<Storage, PathBuf> {
    let (memory, local) = (site.calibration.memory_dir.clone(), site.calibration.local_dir.clone());
    [(Storage::Memory, memory), (Storage::Local, local), (Storage::Shared, folder.join("shared"))].into()
}

/// Measures orders on this node, in a step.
///
/// # Errors
/// When the step's environment, the orders or the folder cannot be used.
pub fn work(site: &Site, folder: &Path, orders: &Path) -> Result<()> {
    let state = State::open(folder, true)?;
    let assignment = state.assignment()?;
    let node = variable("SLURMD_NODENAME")?;
    let job = variable("SLURM_JOB_ID")?;
    let step = format!("{job}.{}", variable("SLURM_STEP_ID")?);
    let counter = Counter::new(site, &node, job.parse()?);
    let storage = targets(site, folder);
    let (slurm, id) = (slurm::Slurm::new(site.slurm_bin.clone()), job.parse()?);
    let signal: Signal = Arc::new(move || slurm.signal_steps(id, asked::SIGNAL.as_str()).map_err(|e| e.to_string()));
    let worker = Worker { node, counter, state, rules: assignment.rules, storage, step, signal };
    worker.work(&read_orders(orders)?)
}

fn read_orders(path: &Path) -> Result<Vec<Order>> {
    Ok(serde_json::from_slice(&std::fs::read(path).with_context(|| path.display().to_string())?)?)
}

/// Is one rank of the MPI program, and on each node the one that measures.
///
/// # Errors
/// When the program or the counter fails.
pub fn rank(site: &Site, folder: &Path, orders: &Path) -> Result<()> {
    let state = State::open(folder, true)?;
    let (rules, program) = (state.assignment()?.rules, mpi::program(folder));
    let [order] = &read_orders(orders)?[..] else { bail!("one order for one MPI program") };
    if variable("SLURM_LOCALID")? != "0" {
        return mpi::become_rank(&program, order, &rules);
    }
    let node = variable("SLURMD_NODENAME")?;
    let counter = Counter::new(site, &node, variable("SLURM_JOB_ID")?.parse()?);
    state.append(&mpi::measure(&program, order, &rules, &node, &counter)?)
}

/// What this node says of itself; nothing of the shared storage where it does not see the folder.
///
/// # Errors
/// When it cannot be read.
pub fn own_facts(site: &Site, folder: &Path) -> Result<Facts> {
    let node = variable("SLURMD_NODENAME")?;
    let mut targets = targets(site, folder);
    if !folder.is_dir() {
        targets.remove(&Storage::Shared);
    }
    facts::look(&node, &targets, &site.calibration.mpicc)
}
