//! Power losses and partitions on a real cluster: what is done to it, and what must hold afterwards.

use crate::Site;
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::{ALICE, BOB, End, Part};

/// For anything that should happen, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Length of a step of the program, and its steps beside those that it makes while the trouble lasts.
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 400;

/// Nodes of the run; the first one is that of its script.
const NODES: usize = 3;

/// What is wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A node of the run loses its power, and has it back later.
    Power,
    /// The node of its script does.
    BatchHostPower,
    /// A node of the run is cut off from everybody.
    CutFromAll,
    /// The node of its script is.
    BatchHostCutFromAll,
    /// A node of the run is cut off from the controller service and from slurmctld.
    CutFromController,
    /// Nothing that a node of the run sends arrives.
    OneWayOut,
    /// Nothing that is sent to a node of the run arrives.
    OneWayIn,
    /// The cluster falls into two halves.
    Halves,
    /// The controller service is cut off from all.
    ServiceCut,
    /// Controller service and slurmctld are cut off from all nodes.
    ControllerCut,
    /// Nobody reaches anybody.
    Switch,
    /// A fifth of all packets is lost.
    Lossy,
    /// The slurmds of all nodes are stopped.
    Slurmds,
    /// The slurmds of all nodes are restarted, one after the other, again and again.
    SlurmdsRestart,
}

/// All kinds of trouble, in the order in which a campaign plays them.
pub const TROUBLES: [Trouble; 14] = [
    Trouble::Power,
    Trouble::CutFromAll,
    Trouble::BatchHostPower,
    Trouble::OneWayOut,
    Trouble::CutFromController,
    Trouble::Halves,
    Trouble::BatchHostCutFromAll,
    Trouble::OneWayIn,
    Trouble::Switch,
    Trouble::ServiceCut,
    Trouble::Lossy,
    Trouble::ControllerCut,
    Trouble::Slurmds,
    Trouble::SlurmdsRestart,
];

impl Trouble {
    /// Whether a node loses its power.
    pub fn is_power_loss(self) -> bool {
        matches!(self, Trouble::Power | Trouble::BatchHostPower)
    }

    /// Whether nothing may come of it for any job: nobody is dead.
    pub fn is_harmless(self) -> bool {
        use Trouble::{ControllerCut, CutFromController, ServiceCut, Slurmds, SlurmdsRestart, Switch};
        matches!(self, Switch | ServiceCut | ControllerCut | CutFromController | Slurmds | SlurmdsRestart)
    }
}

/// What one history showed.
#[derive(Clone, Debug)]
pub struct History {
    /// What was wrong.
    pub trouble: Trouble,
    /// From the loss of power until it was noticed, s.
    pub detected_s: Option<f64>,
    /// From then until the program worked again, s.
    pub resumed_s: Option<f64>,
    /// How often the run began again.
    pub restarts: u32,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} restarts", self.trouble, self.restarts)?;
        self.detected_s.map_or(Ok(()), |s| write!(f, ", noticed after {s:.1} s"))?;
        self.resumed_s.map_or(Ok(()), |s| write!(f, ", worked again after {s:.1} s"))
    }
}

/// Plays one history: the run ends with the right result, had one writer at any time, and somebody else's job beside it was
/// not touched.
///
/// # Errors
/// What does not hold.
pub fn play(site: &mut Site, trouble: Trouble, lasts: Duration, rng: &mut ChaCha8Rng) -> Result<History> {
    let name = format!("{trouble:?}-{}", rng.random_range(0..1_000_000)).to_lowercase();
    let folder = site.folder(ALICE, &name)?;
    let idle = idle(site)?;
    let job = submit(site, &folder, lasts, &[&format!("-N{NODES}"), &format!("-n{NODES}")])?;
    let run = site.wait_report(job, "two checkpoints", PATIENCE, |run| {
        (run["total"]["checkpoints"].as_u64() >= Some(2)).then(|| run.clone())
    })?;
    let nodes = nodes(&run);
    ensure!(nodes.len() == NODES, "job {job} has {nodes:?}");
    let bystander = bystander(site, &nodes, lasts)?;
    let batch_host = matches!(trouble, Trouble::BatchHostPower | Trouble::BatchHostCutFromAll);
    let victim = nodes[if batch_host { 0 } else { rng.random_range(1..nodes.len()) }].clone();
    ensure!(ended(site, job)?.is_none(), "job {job} has ended before its trouble");
    let begun = Instant::now();
    let followed = make(site, trouble, &victim, &nodes).and_then(|()| follow(site, &folder, trouble, begun, lasts));
    mend(site, trouble, &victim)?;
    let resumed_s = followed?;
    let state = site.wait(&format!("job {job} to end"), PATIENCE, |site| ended(site, job))?;
    ensure!(state == "completed", "job {job} ended as {state}");
    check_result(&folder, NODES)?;
    check_writers(&folder, NODES, 0)?;
    let left = site.wait_state(bystander, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], PATIENCE)?;
    ensure!(left == "COMPLETED" && restarts(site, bystander)? == 0, "somebody else's job {bystander} ended as {left}");
    site.wait("its nodes to be idle again", PATIENCE, |site| Ok((self::idle(site)? == idle).then_some(())))?;
    let run = site.report(job)?.context("a report")?;
    check_energy(&run)?;
    let restarts = restarts(site, job)?;
    let detected_s = detected_s(&run).filter(|_| trouble.is_power_loss());
    ensure!(!trouble.is_power_loss() || detected_s.is_some(), "{victim} was not noticed: {run:#}");
    if trouble.is_harmless() {
        ensure!(restarts == 0 && run["total"]["failures"] == 0, "{trouble:?} ended something: {run:#}");
    }
    Ok(History { trouble, detected_s, resumed_s, restarts })
}

/// A job that may run on one node only, which is cut off, fenced, and there again: it goes on there, and the node stays in
/// service.
///
/// # Errors
/// What does not hold.
pub fn back_on_the_same_node(site: &mut Site, lasts: Duration) -> Result<()> {
    let folder = site.folder(ALICE, "same-node")?;
    let idle = idle(site)?;
    let node = site.cluster.nodes[2].clone();
    let job = submit(site, &folder, lasts, &["-N1", "-n1", "-w", &node])?;
    let two = |run: &Value| (run["total"]["checkpoints"].as_u64() >= Some(2)).then_some(());
    site.wait_report(job, "two checkpoints", PATIENCE, two)?;
    site.cut_node(&node)?;
    std::thread::sleep(lasts);
    site.heal()?;
    let state = site.wait(&format!("job {job} to end"), PATIENCE, |site| ended(site, job))?;
    ensure!(state == "completed", "job {job} ended as {state}");
    check_result(&folder, 1)?;
    check_writers(&folder, 1, 0)?;
    ensure!(restarts(site, job)? > 0, "the node was not set down");
    site.wait("its node to be idle again", PATIENCE, |site| Ok((self::idle(site)? == idle).then_some(())))
}

/// Half of all nodes lose their power, among them that of a job. Nobody can tell that from a broken network, so the job waits
/// until an operator says that its node is off.
///
/// # Errors
/// What does not hold.
pub fn off_by_a_persons_word(site: &mut Site, lasts: Duration) -> Result<()> {
    let folder = site.folder(ALICE, "confirmed-off")?;
    let idle = idle(site)?;
    let job = submit(site, &folder, lasts, &["-N1", "-n1"])?;
    let two = |run: &Value| (run["total"]["checkpoints"].as_u64() >= Some(2)).then(|| run.clone());
    let its = nodes(&site.wait_report(job, "two checkpoints", PATIENCE, two)?);
    let (mut dead, mut well): (Vec<String>, Vec<String>) =
        site.cluster.nodes.iter().cloned().partition(|n| its.contains(n));
    dead.extend(well.drain(..site.cluster.nodes.len() / 2 - 1));
    dead.iter().try_for_each(|node| site.cluster.kill_node(node))?;
    std::thread::sleep(lasts);
    let before = site.report(job)?.context("a report")?;
    ensure!(before["total"]["failures"] == 0 && site.state(job)? == "RUNNING", "half of all nodes were set down");
    let say = |user: &str, node: &str| site.joulepoint(user, &["confirm-off", node]);
    for (user, node, why) in [(ALICE, &dead[0], "may not"), ("root", &well[0], "reaches it")] {
        let refused = say(user, node)?;
        let told = String::from_utf8_lossy(&refused.stdout).into_owned();
        ensure!(refused.status.code() == Some(1) && told.contains(why), "{user} of {node}: {told}");
    }
    ensure!(say("root", &dead[0])?.status.success(), "{} is not taken to be off", dead[0]);
    let state = site.wait(&format!("job {job} to end"), PATIENCE, |site| ended(site, job))?;
    ensure!(state == "completed", "job {job} ended as {state}");
    check_result(&folder, 1)?;
    check_writers(&folder, 1, 0)?;
    ensure!(restarts(site, job)? > 0, "its node was not set down");
    dead.iter().try_for_each(|node| site.cluster.revive_node(node))?;
    site.wait("the nodes to be idle again", PATIENCE, |site| Ok((self::idle(site)? == idle).then_some(())))
}

/// How many nodes have no job.
fn idle(site: &Site) -> Result<usize> {
    let output = site.cluster.command("sinfo").args(["-h", "-N", "-t", "idle", "-o", "%N"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().count())
}

/// Jobs of two users that go on for hours: one that is protected, and two that never asked for us, one of them with a step.
///
/// # Errors
/// What sbatch says, or that they do not begin.
pub fn load(site: &Site) -> Result<Vec<u32>> {
    let (own, others) = (site.folder(ALICE, "load")?, site.folder(BOB, "load")?);
    let copy = own.join("tally.py");
    fs::copy(crate::repository().join("apps/tally/tally.py"), &copy)?;
    let script = format!("srun python3 {} --steps 1000000 --step-ms 200", copy.display());
    let jobs = [
        site.submit(ALICE, &own, &[&["-N2", "-n2", "--open-mode=append"], &PROTECTED[..]].concat(), &script)?,
        site.submit(BOB, &others, &["-N2", "-n2"], "srun sleep 36000")?,
        site.submit(BOB, &others, &["-N1", "-n1"], "sleep 36000")?,
    ];
    for job in jobs {
        site.wait_state(job, &["RUNNING"], PATIENCE)?;
    }
    Ok(jobs.to_vec())
}

/// Whether jobs run on as if nothing had been.
///
/// # Errors
/// Which does not.
pub fn untouched(site: &Site, jobs: &[u32]) -> Result<()> {
    jobs.iter().try_for_each(|job| {
        let (state, restarts) = (site.state(*job)?, restarts(site, *job)?);
        ensure!(state == "RUNNING" && restarts == 0, "job {job}: {state}, {restarts} restarts");
        Ok(())
    })
}

/// Options of the program.
const PROTECTED: [&str; 4] =
    ["--ft-energy=energy", "--ft-energy-interval=3s", "--ft-energy-signal=USR1", "--ft-energy-done=state.?"];

fn submit(site: &Site, folder: &Path, lasts: Duration, on: &[&str]) -> Result<u32> {
    let program = crate::repository().join("apps/tally/tally.py");
    let copy = folder.join("tally.py");
    fs::copy(program, &copy)?;
    let steps = STEPS + (lasts.as_secs_f64() / STEP.as_secs_f64()) as u32;
    let script = format!("srun python3 {} --steps {steps} --step-ms {}", copy.display(), STEP.as_millis());
    let args = [on, &["--exclusive", "--open-mode=append"], &PROTECTED[..]].concat();
    site.submit(ALICE, folder, &args, &script)
}

/// A job that never asked for us, on a node that the run does not have.
fn bystander(site: &Site, nodes: &[String], lasts: Duration) -> Result<u32> {
    let free = site.cluster.nodes.iter().rev().find(|n| !nodes.contains(n)).context("a free node")?;
    let folder = site.folder(BOB, "beside")?;
    let begun = folder.join("begun");
    let _ = fs::remove_file(&begun);
    let script = format!("touch {}; sleep {}", begun.display(), 40 + lasts.as_secs());
    let job = site.submit(BOB, &folder, &["-N1", "-n1", "-w", free, "-o", "/dev/null"], &script)?;
    // Slurm itself puts a job back into the queue whose start it could not deliver.
    site.wait("somebody else's job to begin", PATIENCE, |_| Ok(begun.exists().then_some(())))?;
    Ok(job)
}

fn end(node: &str) -> Result<End> {
    Ok(node.parse()?)
}

fn make(site: &mut Site, trouble: Trouble, victim: &str, nodes: &[String]) -> Result<()> {
    let all = site.cluster.ends();
    let others: Vec<End> = all.iter().filter(|e| e.to_string() != victim).cloned().collect();
    match trouble {
        Trouble::Power | Trouble::BatchHostPower => site.cluster.kill_node(victim),
        Trouble::CutFromAll | Trouble::BatchHostCutFromAll => site.cut_node(victim),
        Trouble::CutFromController => site.cut_from_controller(victim),
        Trouble::OneWayOut => site.cluster.cut_one_way(&[end(victim)?], &others),
        Trouble::OneWayIn => site.cluster.cut_one_way(&others, &[end(victim)?]),
        Trouble::Halves => {
            // The victim with two others that the run does not have.
            let apart: Vec<&String> = site.cluster.nodes.iter().filter(|n| !nodes.contains(n)).take(2).collect();
            let apart: BTreeSet<String> = apart.into_iter().cloned().chain([victim.to_string()]).collect();
            let (one, other): (Vec<End>, Vec<End>) = all.into_iter().partition(|e| apart.contains(&e.to_string()));
            site.cluster.cut(&one, &other)
        }
        Trouble::ServiceCut => site.cut_service(),
        Trouble::ControllerCut => site.cut_controller(),
        Trouble::Switch => site.cut_all(),
        Trouble::Lossy => site.cluster.lose(&all, &all, 20),
        Trouble::Slurmds => {
            let nodes = site.cluster.nodes.clone();
            nodes.iter().try_for_each(|n| site.cluster.kill_slurmd(n))
        }
        Trouble::SlurmdsRestart => Ok(()),
    }
}

/// Lets the trouble last; after how long the program has worked again, where it was lost, s.
fn follow(site: &Site, folder: &Path, trouble: Trouble, begun: Instant, lasts: Duration) -> Result<Option<f64>> {
    let before = generations(folder)?;
    let mut resumed_s = None;
    while begun.elapsed() < lasts || (trouble.is_power_loss() && resumed_s.is_none()) {
        if resumed_s.is_none() && generations(folder)? > before {
            resumed_s = Some(begun.elapsed().as_secs_f64());
        }
        if trouble == Trouble::SlurmdsRestart {
            let nodes = site.cluster.nodes.iter();
            nodes.cloned().map(Part::Slurmd).try_for_each(|slurmd| site.cluster.restart_part(&slurmd))?;
            std::thread::sleep(Duration::from_secs(3));
        }
        if begun.elapsed() > lasts + PATIENCE {
            bail!("the run does not go on: {:?}", site.metrics());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(resumed_s)
}

fn mend(site: &mut Site, trouble: Trouble, victim: &str) -> Result<()> {
    site.heal()?;
    match trouble {
        Trouble::Power | Trouble::BatchHostPower => site.cluster.revive_node(victim),
        Trouble::Slurmds => {
            let nodes = site.cluster.nodes.clone();
            nodes.iter().try_for_each(|n| site.cluster.revive_node(n))
        }
        _ => Ok(()),
    }
}

/// How a job has ended, as both the report and Slurm have it: one that is put back into the queue has not.
fn ended(site: &Site, job: u32) -> Result<Option<String>> {
    let run = site.report(job)?.context("a report")?;
    let state = run["state"].as_str().context("a state")?;
    Ok((state != "running" && site.state(job)?.to_lowercase() == state).then(|| state.to_string()))
}

fn nodes(run: &Value) -> Vec<String> {
    let last = run["records"].as_array().and_then(|r| r.last());
    let nodes = last.and_then(|r| r["nodes"].as_array());
    nodes.into_iter().flatten().filter_map(|n| n.as_str().map(str::to_string)).collect()
}

fn restarts(site: &Site, job: u32) -> Result<u32> {
    let shown = site.cluster.job(job)?;
    Ok(shown.get("Restarts").context("restarts")?.parse()?)
}

/// When a dead node was noticed, after its loss, as the report has it.
fn detected_s(run: &Value) -> Option<f64> {
    run["failures"].as_array()?.iter().find(|f| f["counts"] == true)?["detection_s"].as_f64()
}

fn writers(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("writers.{rank}"))
}

/// How many instances of the first rank have worked.
fn generations(folder: &Path) -> Result<usize> {
    let text = fs::read_to_string(writers(folder, 0))?;
    let who: BTreeSet<&str> = text.lines().filter_map(|l| l.split(' ').nth(1)).collect();
    Ok(who.len())
}

/// The last of the hashes is what it is without any trouble.
pub(crate) fn check_result(folder: &Path, ranks: usize) -> Result<()> {
    for rank in 0..ranks {
        let text = fs::read_to_string(folder.join(format!("result.{rank}"))).context("a result")?;
        let (steps, last) = text.trim().split_once(' ').context("steps and a hash")?;
        let mut chain = "0".repeat(64);
        for _ in 0..steps.parse::<u32>()? {
            chain = Sha256::digest(chain.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        }
        ensure!(last == chain, "rank {rank} ends with {last} and not with {chain}");
    }
    Ok(())
}

/// Nobody writes after somebody else has begun to, but for so many lines of each rank.
pub(crate) fn check_writers(folder: &Path, ranks: usize, most: usize) -> Result<()> {
    for rank in 0..ranks {
        let mut beside = 0;
        let text = fs::read_to_string(writers(folder, rank))?;
        let mut over: BTreeSet<&str> = BTreeSet::new();
        let mut now = "";
        for line in text.lines() {
            let who = line.split(' ').nth(1).with_context(|| format!("a line {line}"))?;
            if over.contains(who) {
                beside += 1;
                ensure!(beside <= most, "rank {rank}: {who} wrote beside {now}: {line}");
            } else if who != now {
                over.insert(now);
                now = who;
            }
        }
    }
    Ok(())
}

/// The phases of a run add up to what its nodes measured.
pub(crate) fn check_energy(run: &Value) -> Result<()> {
    let total = run["total"]["joules"].as_f64().context("a total")?;
    let phases = run["phases"].as_array().context("phases")?;
    let phases: f64 = phases.iter().filter_map(|p| p["joules"].as_f64()).sum();
    ensure!(total > 0.0 && (phases - total).abs() <= 1e-6 * total, "phases {phases} J, total {total} J");
    Ok(())
}
