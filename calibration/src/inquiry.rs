//! Asks nodes what they are, by a step of a second on each.

use crate::conduct::slurm_command;
use crate::stop;
use crate::together::{Together, together};
use anyhow::{Context, Result, bail};
use config::Site;
use hardware::facts::Facts;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::calibrated::{fingerprint_of, stale};
use protocol::Calibration;
use slurm::{Node, Slurm};
use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A wait for nodes is told after this long.
const SILENT: Duration = Duration::from_secs(3);

/// Time between two looks whether the command is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Longest wait for a node where nobody wants to wait, s.
const SOON_S: u32 = 5;

/// Asks nodes what they are; waits until they are free, unless it is to be `soon`.
///
/// # Errors
/// When they cannot be reached by `srun`, or the command is told to stop.
pub fn ask(site: &Site, conf: &Path, folder: &Path, lot: &Together, nodes: &[Node], soon: bool) -> Result<Vec<Facts>> {
    let n = lot.names.len().to_string();
    let mut command = slurm_command(site, "srun");
    command.args(["--exclusive", "--mem=0", "-Q", "-J", "joulepoint-facts", "-N", &n, "-n", &n, "--ntasks-per-node=1"]);
    command.arg(format!("--nodelist={}", slurm::compress_nodelist(&lot.names)));
    command.arg(format!("--partition={}", lot.partition));
    command.args(soon.then(|| format!("--immediate={SOON_S}")));
    command.arg(env::current_exe()?).arg("--conf").arg(conf).args(["calibrate", "facts", "--dir"]).arg(folder);
    let output = output(command, &lot.names)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut facts: Vec<Facts> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    for f in &mut facts {
        // What jobs can have, which only Slurm knows.
        f.fingerprint.cores = nodes.iter().find(|n| n.name == f.node).map_or(1, |n| n.cpus);
    }
    if !output.status.success() || facts.len() < lot.names.len() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        bail!("{} of {} nodes said what they are: {said}", facts.len(), lot.names.len());
    }
    Ok(facts)
}

/// What a command says; that it waits for nodes is told, and a signal to end ends it too.
fn output(mut command: Command, names: &[String]) -> Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("srun")?;
    let id = Pid::from_raw(i32::try_from(child.id())?);
    let (answer, answered) = channel();
    thread::spawn(move || answer.send(child.wait_with_output()));
    let mut waited = Duration::ZERO;
    loop {
        match answered.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            said => return said?.context("srun"),
        }
        waited += LOOK;
        if waited == SILENT {
            protocol::say!("waiting until all of {} are free, to ask what they are", slurm::compress_nodelist(names));
        }
        if stop::is_told() {
            kill(id, Signal::SIGTERM)?;
            bail!("told to stop: nothing is measured yet");
        }
    }
}

/// What nodes say of themselves now, for calibrations that may be stale: one node of each, by name of the type, or why
/// none says it soon.
///
/// # Errors
/// When Slurm does not answer.
pub fn ask_again(
    site: &Site,
    conf: &Path,
    root: &Path,
    all: &[&Calibration],
) -> Result<BTreeMap<String, Result<Facts, String>>> {
    let slurm = Slurm::new(site.slurm_bin.clone());
    let (nodes, partitions) = (slurm.nodes()?, slurm.partitions()?);
    let mut found = BTreeMap::new();
    for c in all {
        let is_of = |n: &&Node| c.power.idle_w.contains_key(&n.name) && n.state == "IDLE" && is_usable(n, None);
        let lot = nodes.iter().find(is_of).and_then(|n| together(&[n], &partitions, None).pop());
        let said = match lot {
            None => Err("no node of it is idle".to_string()),
            Some(lot) => {
                let folder = root.join(&c.cluster).join(&c.node_type);
                let asked = ask(site, conf, &folder, &lot, &nodes, true).map_err(|e| format!("{e:#}"));
                asked.and_then(|mut facts| facts.pop().ok_or_else(|| "no answer".to_string()))
            }
        };
        found.insert(c.node_type.clone(), said);
    }
    Ok(found)
}

/// Why a calibration no longer holds on a node; empty if it does. Another user than the one who calibrated may see no such
/// shared folder.
pub fn changes(then: &Calibration, now: &Facts) -> Vec<String> {
    let mut fingerprint = fingerprint_of(then, &now.node).clone();
    fingerprint.storage.retain(|target, _| now.fingerprint.storage.contains_key(target));
    stale(&fingerprint, &now.fingerprint)
}

/// Whether a node can take a job, of that partition.
pub fn is_usable(node: &Node, partition: Option<&str>) -> bool {
    let away = ["DRAIN", "NOT_RESPONDING", "POWERED_DOWN", "MAINTENANCE", "REBOOT_ISSUED"];
    !matches!(node.state.as_str(), "DOWN" | "UNKNOWN" | "FUTURE" | "ERROR")
        && !away.iter().any(|flag| node.has_flag(flag))
        && partition.is_none_or(|p| node.partitions.iter().any(|own| own == p))
}
