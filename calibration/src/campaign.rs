//! Calibrates a cluster: finds its node types, submits one job for each, follows them, and sums up.

use crate::conduct::slurm_command;
use crate::document::{Title, assemble};
use crate::duration::{Pace, bounds_s};
use crate::inquiry::{ask, is_usable};
use crate::orders::{Scope, orders};
use crate::state::{Assignment, Outcome, State};
use crate::together::{Together, together};
use crate::wish::Wish;
use crate::{mpi, node_types, stop};
use anyhow::{Context, Result, anyhow, bail};
use config::Site;
use hardware::facts::Facts;
use protocol::{Calibration, Operation, Skipped, Storage};
use slurm::{JobText, Node, Slurm};
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks at the jobs.
const LOOK: Duration = Duration::from_millis(500);

/// Name of the jobs that measure.
const JOB_NAME: &str = "joulepoint-calibrate";

/// Largest checkpoint and message in a hurry, MiB.
const FAST_MIB: (u32, u32) = (32, 4);

/// How far one node type is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The type.
    pub node_type: String,
    /// Points that are finished.
    pub done: usize,
    /// All points.
    pub all: usize,
    /// Shortest and longest time that those which are left take, as the rules and the pace so far have it, s.
    pub left_s: (f64, f64),
}

/// A type whose jobs have been submitted.
struct Underway {
    node_type: String,
    facts: Vec<Facts>,
    state: State,
    assignment: Assignment,
    /// Its nodes as jobs can have them, those that measure first.
    lots: Vec<Together>,
    jobs: Vec<u32>,
}

/// Measures the cluster; tells `progress` how far it is. Each calibration is also in a file, which is named; of a type that
/// could not be measured it is said why. A signal to end ends the jobs too.
///
/// # Errors
/// When nodes cannot be asked, a job not be submitted, jobs of an earlier command still measure and are not to be resumed, or
/// what is resumed was begun with other options.
pub fn run(
    site: &Site,
    conf: &Path,
    wish: &Wish,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Result<(Calibration, PathBuf)>>> {
    let slurm = Slurm::new(site.slurm_bin.clone());
    let cluster = slurm.cluster_name()?;
    let root = root(site)?.join(&cluster);
    std::fs::create_dir_all(&root).with_context(|| format!("calibration.dir = {}", root.display()))?;
    stop::listen()?;
    let earlier = left_running(&slurm, &root)?;
    if let Some(job) = earlier.iter().flat_map(|u| &u.jobs).next().filter(|_| !wish.resume) {
        bail!(
            "job {job} of an earlier calibration still measures; go on with it by --resume, or end it by `scancel {job}`"
        );
    }
    earlier.iter().try_for_each(|u| wish.agrees_with(&u.assignment))?;
    follow(&slurm, &earlier, progress)?;
    let partition = wish.partition.as_deref();
    let nodes: Vec<Node> = slurm.nodes()?.into_iter().filter(|n| is_usable(n, partition)).collect();
    if nodes.is_empty() {
        bail!("no node is up{}", partition.map_or(String::new(), |p| format!(" in partition '{p}'")));
    }
    let partitions = slurm.partitions()?;
    let lots = together(&nodes.iter().collect::<Vec<_>>(), &partitions, partition);
    if lots.is_empty() {
        bail!("no partition that `scontrol show partition` names is up and holds a node: name one by --partition");
    }
    let mut facts = Vec::new();
    for lot in lots {
        facts.extend(ask(site, conf, &root, &lot, &nodes, false)?);
    }
    if let Some(f) = facts.iter().find(|f| !f.fingerprint.storage.contains_key(&Storage::Shared)) {
        bail!(
            "{} does not see {}: set calibration.dir to a folder that all nodes share, which this user may write",
            f.node,
            root.display()
        );
    }
    let features = nodes.iter().map(|n| (n.name.clone(), n.features.clone())).collect();
    let mut underway = Vec::new();
    for (node_type, facts) in node_types::sort(&facts, &features, &site.calibration.classes)? {
        let of_type: Vec<&Node> = nodes.iter().filter(|n| facts.iter().any(|f| f.node == n.name)).collect();
        underway.push(prepare(site, wish, &root, node_type, facts, together(&of_type, &partitions, partition))?);
    }
    underway.iter_mut().try_for_each(|u| begin(site, conf, u))?;
    follow(&slurm, &underway, progress)?;
    Ok(underway.iter().map(|u| conclude(site, &cluster, u)).collect())
}

/// The work folder of this user.
///
/// # Errors
/// When the user has no name.
pub fn root(site: &Site) -> Result<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid())?.context("this user has no name")?;
    let dir = site.calibration.dir.replace("{home}", &user.dir.display().to_string()).replace("{user}", &user.name);
    Ok(PathBuf::from(dir))
}

/// What is to be measured of one type: what an earlier calibration was to measure, if that is gone on with.
fn prepare(
    site: &Site,
    wish: &Wish,
    root: &Path,
    node_type: String,
    facts: Vec<Facts>,
    lots: Vec<Together>,
) -> Result<Underway> {
    let folder = root.join(&node_type);
    let state = State::open(&folder, wish.resume)?;
    std::fs::create_dir_all(folder.join("shared"))?;
    let measure = &lots.first().context("a type without nodes")?.names;
    let assignment = match state.assignment().ok().filter(|_| wish.resume) {
        Some(earlier) => {
            wish.agrees_with(&earlier)?;
            if let Some(gone) = earlier.nodes.iter().find(|n| !measure.contains(n)) {
                bail!(
                    "{node_type}: {gone} is not up, and was to measure; bring it back, or begin anew without --resume"
                );
            }
            state.forget_failed()?;
            earlier
        }
        None => {
            let new = assignment(site, wish, &folder, &facts, measure)?;
            state.assign(&new)?;
            new
        }
    };
    Ok(Underway { node_type, facts, state, assignment, lots, jobs: Vec::new() })
}

/// Submits what is not finished.
fn begin(site: &Site, conf: &Path, u: &mut Underway) -> Result<()> {
    if u.state.unfinished(&u.assignment.orders)?.is_empty() {
        return Ok(());
    }
    let (folder, measure) = (&u.state.folder, &u.assignment.nodes);
    for (i, lot) in u.lots.iter().enumerate() {
        if i == 0 {
            u.jobs.push(submit(site, conf, &lot.partition, folder, measure, false)?);
        }
        let rest: Vec<&String> = lot.names.iter().filter(|n| !measure.contains(n)).collect();
        if !rest.is_empty() {
            u.jobs.push(submit(site, conf, &lot.partition, folder, &rest, true)?);
        }
    }
    u.state.note_jobs(&u.jobs)
}

/// Jobs that measure on though the command that submitted them is gone.
fn left_running(slurm: &Slurm, root: &Path) -> Result<Vec<Underway>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)?.flatten().filter(|e| e.path().is_dir()) {
        let state = State { folder: entry.path() };
        let mut jobs = state.jobs();
        let mut asked = Ok(());
        jobs.retain(|job| {
            is_running(slurm, *job).unwrap_or_else(|e| {
                asked = Err(e);
                true
            })
        });
        asked?;
        if !jobs.is_empty() {
            let (node_type, assignment) = (entry.file_name().to_string_lossy().into_owned(), state.assignment()?);
            found.push(Underway { node_type, facts: Vec::new(), state, assignment, lots: Vec::new(), jobs });
        }
    }
    Ok(found)
}

/// Whether a job is one of a calibration, and not over: numbers are used again.
fn is_running(slurm: &Slurm, job: u32) -> Result<bool, slurm::Error> {
    match slurm.job(job)?.filter(|j| !j.state.is_over()) {
        Some(job) => Ok(slurm.text(&job, JobText::Name)? == JOB_NAME),
        None => Ok(false),
    }
}

/// The points, for nodes of which so many as are wanted measure together: `names` are those that one job can have.
fn assignment(site: &Site, wish: &Wish, folder: &Path, facts: &[Facts], names: &[String]) -> Result<Assignment> {
    let many = wish.nodes_per_type.map_or(names.len(), |n| (n.max(1) as usize).min(names.len()));
    let first = facts.first().context("a type without nodes")?;
    let program = mpi::compile(&site.calibration.mpicc, folder);
    let (checkpoint_mib, message_mib) = match wish.fast {
        true => FAST_MIB,
        false => (site.calibration.largest_checkpoint_mib, site.calibration.largest_message_mib),
    };
    let scope = Scope {
        cores: facts.iter().map(|f| f.fingerprint.cores).min().unwrap_or(1).max(1),
        nodes: many as u32,
        nodes_of_type: facts.len() as u32,
        storage: wish.storage(),
        frequencies_hz: first.frequencies_hz.clone(),
        largest_checkpoint_mib: f64::from(checkpoint_mib),
        largest_message_mib: f64::from(message_mib),
        mpi: program.is_ok(),
        fast: wish.fast,
    };
    Ok(Assignment {
        orders: orders(&scope)?,
        nodes: names[..many].to_vec(),
        rules: wish.rules(),
        no_mpi: program.err(),
        fast: wish.fast,
    })
}

/// Submits a job that conducts; its id.
fn submit<S: AsRef<str>>(
    site: &Site,
    conf: &Path,
    partition: &str,
    folder: &Path,
    nodes: &[S],
    only_idle: bool,
) -> Result<u32> {
    let quoted = |p: &Path| format!("'{}'", p.display().to_string().replace('\'', "'\\''"));
    let idle = if only_idle { " --only-idle" } else { "" };
    let (this, conf, dir) = (quoted(&env::current_exe()?), quoted(conf), quoted(folder));
    let mut command = slurm_command(site, "sbatch");
    command.args(["--parsable", "--exclusive", "--mem=0", "--no-requeue", "-J", JOB_NAME, "-o"]);
    command.arg(folder.join("job-%j.log")).arg("-D").arg(folder);
    command.args(["-N", &nodes.len().to_string(), "-w", &slurm::compress_nodelist(nodes)]);
    command.arg(format!("--partition={partition}"));
    command.args(["--wrap", &format!("exec {this} --conf {conf} calibrate conduct --dir {dir}{idle}")]);
    let output = command.output().context("sbatch")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let id = said.trim().split(';').next().and_then(|t| t.parse().ok());
    id.with_context(|| format!("sbatch: {said}{}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Waits until all jobs have ended; ends them where this command is to end.
fn follow(slurm: &Slurm, underway: &[Underway], progress: &mut dyn FnMut(&Progress)) -> Result<()> {
    let mut paces = vec![Pace::default(); underway.len()];
    loop {
        let mut running = false;
        for (u, pace) in underway.iter().zip(&mut paces) {
            let (left, all) = (u.state.unfinished(&u.assignment.orders)?, u.assignment.orders.len());
            let left_s = pace.left_s(Instant::now(), bounds_s(&left, &u.assignment.rules));
            progress(&Progress { node_type: u.node_type.clone(), done: all - left.len(), all, left_s });
            for job in &u.jobs {
                running |= is_running(slurm, *job)?;
            }
        }
        if running && stop::is_told() {
            underway.iter().flat_map(|u| &u.jobs).try_for_each(|job| slurm.cancel(*job))?;
            bail!("told to stop: the jobs are ended, and what is finished is kept; go on with --resume");
        }
        if !running {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn conclude(site: &Site, cluster: &str, u: &Underway) -> Result<(Calibration, PathBuf)> {
    let (left, outcomes) = (u.state.unfinished(&u.assignment.orders)?, u.state.outcomes()?);
    let failed: Vec<&Outcome> = outcomes.iter().filter(|o| o.error.is_some()).collect();
    let unmetered = failed.iter().filter(|o| o.order.operation.is_none()).count();
    if !left.is_empty() || unmetered > 0 {
        let (folder, all) = (u.state.folder.display(), u.assignment.orders.len());
        let first = failed.iter().find(|o| o.order.operation.is_none()).or(failed.first());
        let why = first.map_or(String::new(), |o| format!(" ({})", o.failure()));
        bail!(
            "{}: {} of {all} points and the idle power of {unmetered} nodes are not measured{why}; the job's output is in \
             {folder}; go on with --resume",
            u.node_type,
            left.len()
        );
    }
    let refused = |why: &String| {
        let skip = |operation| Skipped { operation, storage: None, why: why.clone() };
        [Operation::Synchro, Operation::Polling].map(skip).to_vec()
    };
    let title = Title {
        cluster: cluster.to_string(),
        node_type: u.node_type.clone(),
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
        fast: u.assignment.fast,
        switches_idle_w: site.calibration.switches_idle_w.clone(),
        switch_delta_w: site.calibration.switch_delta_w,
    };
    let storage = u.assignment.storage();
    let mut facts = u.facts.clone();
    facts.iter_mut().for_each(|f| f.fingerprint.storage.retain(|target, _| storage.contains(target)));
    let (first, others) = facts.split_first().context("a type without nodes")?;
    let refused = u.assignment.no_mpi.as_ref().map(refused).unwrap_or_default();
    let mut calibration = assemble(&title, first, &outcomes, refused);
    let differing = others.iter().filter(|f| f.fingerprint != first.fingerprint);
    calibration.differing = differing.map(|f| (f.node.clone(), f.fingerprint.clone())).collect();
    planner::sound::check(&calibration).map_err(|why| anyhow!("{}: {why}", u.node_type))?;
    let file = u.state.folder.join("calibration.json");
    run::write_durably(&file, &serde_json::to_vec_pretty(&calibration)?).with_context(|| file.display().to_string())?;
    Ok((calibration, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Order;

    #[test]
    fn a_calibration_that_is_resumed_is_kept_as_it_was_begun() {
        let dir = tempfile::tempdir().unwrap();
        let mut site = Site::default();
        site.calibration.mpicc = "false".into();
        let fingerprint = protocol::Fingerprint {
            storage: Storage::ALL.into_iter().map(|s| (s, "disk".to_string())).collect(),
            ..Default::default()
        };
        let facts = vec![Facts { node: "n1".into(), fingerprint, frequencies_hz: vec![] }];
        let plain = Wish { resume: true, ..Wish::default() };
        let first = Wish { fast: true, storage: Some(vec![Storage::Shared]), resume: false, ..plain.clone() };
        let begin = |wish: &Wish| {
            let lot = Together { names: vec!["n1".into()], partition: "all".into() };
            prepare(&site, wish, dir.path(), "t".into(), facts.clone(), vec![lot])
        };
        let begun = begin(&first).unwrap();
        let answer = |u: &Underway, order: &Order, error: Option<&str>| {
            let (times_s, powers_w, source) = (vec![1.0], vec![200.0], "model".to_string());
            let (order, node, error) = (order.clone(), "n1".to_string(), error.map(str::to_string));
            u.state.append(&Outcome { order, node, times_s, powers_w, source, error }).unwrap();
        };
        let orders = &begun.assignment.orders;
        orders.iter().for_each(|o| answer(&begun, o, (*o == orders[1]).then_some("timed out")));
        assert!(begin(&Wish { most: Some(50), ..plain.clone() }).is_err(), "its own options hold");
        let resumed = begin(&plain).unwrap();
        assert_eq!(resumed.state.unfinished(orders).unwrap(), orders[1..2], "what failed is tried again");
        answer(&resumed, &orders[1], None);
        let (calibration, _) = conclude(&site, "c", &resumed).unwrap();
        let storage: Vec<Storage> = calibration.fingerprint.storage.into_keys().collect();
        assert_eq!((calibration.fast, storage), (true, vec![Storage::Shared]));
    }
}
