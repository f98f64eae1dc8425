//! What must hold after each history, whatever has happened: one function a promise, with a message of its own.

use super::history::{Daemon, Fault, Order, Process, Storage};
use super::jobs::Job;
use super::table::Ended;
use crate::Site;
use anyhow::{Context, Result, bail, ensure};
use protocol::{Event, Record};
use run::Patience;
use run::checkpoint::{self, State};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Memory that the controller service may have, KiB.
const CONTROLLER_KIB: u64 = 300 << 10;

/// Lines that a program may write on a machine that was paused and goes on, until its node service has looked: a tenth of a
/// second (docs/reliability.md, "What is not covered").
const WOKEN_LINES: usize = 5;

/// Checkpoints that are kept by default.
const KEEP: usize = 2;

/// What a wrapper writes at most when its run is cancelled: its phase, the failure, and the end.
const LAST_RECORDS: usize = 3;

/// For anything that the services still have to write down.
const BOOKS: Duration = Duration::from_secs(60);

/// States in which a run may end, other than `completed`, through a fault that was meant for its job.
pub fn allowed(fault: Fault) -> &'static [&'static str] {
    match fault {
        // Who stands in for the script's srun is what the script waits for.
        Fault::Kill(Process::Program | Process::Srun | Process::StandIn) => &["failed"],
        // An srun that hears of no end, because a cable was cut just then, waits until the walltime ends.
        Fault::Kill(Process::Slurmstepd) => &["failed", "timeout"],
        // The same srun, or slurmctld, waits for a slurmstepd that gave up since no munged answered.
        Fault::KillDaemon(Daemon::NodeMunged) | Fault::StopDaemon(Daemon::NodeMunged) => &["timeout"],
        Fault::Order(Order::Scancel) => &["cancelled"],
        _ => &[],
    }
}

/// Promise 1: the result of an undisturbed run, or an honest failure through one of the `faults` that hit this job.
pub fn end_of(site: &Site, job: &mut Job, faults: &[Fault]) -> Ended {
    match ending(site, job, faults) {
        Ok(ended) => ended,
        Err(e) => Ended::Wrong(format!("{:?}, job {}: {e:#}", job.program, job.id)),
    }
}

/// Lines that may be written twice, by a machine that was paused.
pub fn woken_lines(faults: &[Fault]) -> usize {
    if faults.iter().any(|fault| matches!(fault, Fault::Suspend(_))) { WOKEN_LINES } else { 0 }
}

fn ending(site: &Site, job: &mut Job, faults: &[Fault]) -> Result<Ended> {
    let (mut slurm, mut told) = (String::new(), String::new());
    // What the controller puts back into the queue ends once more.
    let agreed = site.wait("Slurm and the report to agree", BOOKS, |site| {
        slurm = site.state(job.id)?;
        told = site.report(job.id)?.and_then(|run| run["state"].as_str().map(str::to_string)).unwrap_or_default();
        Ok((slurm.to_lowercase() == told && told != "running").then_some(()))
    });
    // Slurm hears of no end of a script whose slurmstepd was killed, and so waits for the time limit.
    let is_unheard = faults.contains(&Fault::Kill(Process::Slurmstepd)) && slurm == "TIMEOUT" && told == "completed";
    let is_killed = |fault: &Fault| matches!(fault, Fault::Kill(Process::Program | Process::StandIn));
    let has_told_of_a_kill = faults.iter().any(is_killed) && job.script_told_of_a_kill();
    if is_unheard && job.said().iter().any(|line| line.contains("Slurm will not hear of it")) {
        if !has_told_of_a_kill {
            job.check_result(site, woken_lines(faults))?;
        }
        return Ok(Ended::Honest("completed, and Slurm, which did not hear of it, says timeout".into()));
    }
    // What cannot be told to its node goes on, and may come to its end before.
    let is_untold = faults.contains(&Fault::Order(Order::Scancel)) && faults.iter().any(is_unreachable);
    if is_untold && slurm == "CANCELLED" && told == "completed" {
        job.check_result(site, woken_lines(faults))?;
        return Ok(Ended::Honest("completed before its node heard that it was cancelled".into()));
    }
    if agreed.is_err() {
        bail!("Slurm says {slurm}, the report {told}: {:?}", job.said());
    }
    if has_told_of_a_kill && slurm == "COMPLETED" {
        return Ok(Ended::Honest("its script tells of the kill, as it would without us".into()));
    }
    if slurm == "COMPLETED" {
        let more = job.check_result(site, woken_lines(faults))?;
        return Ok(match more {
            0 => Ended::Right,
            n => Ended::Honest(format!("{n} lines of a machine that was paused, before its node service had looked")),
        });
    }
    // The shell reads its script from the run's folder, and says so when it cannot.
    let is_unread = |fault: &Fault| matches!(fault, Fault::Storage(Storage::Eio | Storage::Estale | Storage::Eacces));
    if told == "failed" && faults.iter().any(is_unread) && job.script_told_of_its_storage() {
        return Ok(Ended::Honest("failed: the shell says that it could not read its script".into()));
    }
    // With clocks that differ by minutes Slurm itself launches nothing, and says so.
    let is_clock = |fault: &Fault| matches!(fault, Fault::Clock(_));
    if told == "failed" && faults.iter().any(is_clock) && job.slurm_told_of_the_clock() {
        return Ok(Ended::Honest("failed: Slurm says that the credential of a step had expired".into()));
    }
    let mut may_end: BTreeSet<&str> = faults.iter().flat_map(|fault| allowed(*fault)).copied().collect();
    if faults.contains(&Fault::Order(Order::Suspend)) && faults.iter().any(is_unreachable) {
        may_end.insert("timeout");
    }
    ensure!(may_end.contains(told.as_str()), "{slurm}, {told}: nothing that happened may end it so: {faults:?}");
    let said = job.said();
    let is_told_by_slurm = told == "cancelled" || told == "timeout" && job.slurm_told_of_the_limit();
    let is_told = !said.is_empty() || is_told_by_slurm || job.shell_told_of_a_kill();
    ensure!(is_told, "{slurm}: its output does not say so");
    Ok(Ended::Honest(format!("{told}: {}", said.last().map_or("", String::as_str))))
}

/// Whether nodes may not have heard that a suspended job goes on: Slurm says it once.
fn is_unreachable(fault: &Fault) -> bool {
    matches!(fault, Fault::Cut(_) | Fault::Suspend(_) | Fault::StopDaemon(_) | Fault::KillDaemon(_))
}

/// Whether a run may be cancelled in the moment in which its node dies.
pub fn may_die_at_end(faults: &[Fault]) -> bool {
    let is_death = |fault: &Fault| matches!(fault, Fault::Power(_) | Fault::TwoPower);
    faults.contains(&Fault::Order(Order::Scancel)) && faults.iter().any(is_death)
}

/// Which of these jobs Slurm does not know any more: one is on disk only after some seconds, and slurmctld was killed.
///
/// # Errors
/// Slurm does not tell.
pub fn lost_by_slurm(site: &Site, jobs: impl Iterator<Item = u32>, faults: &[Fault]) -> Result<Vec<u32>> {
    if !faults.contains(&Fault::KillDaemon(Daemon::Slurmctld)) {
        return Ok(Vec::new());
    }
    let said = site.cluster.output(site.cluster.command("squeue").args(["-h", "-a", "-t", "all", "-o", "%A"]))?;
    let known: BTreeSet<u32> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    Ok(jobs.filter(|job| !known.contains(job)).collect())
}

/// The folder of a job's run; none, if it has not got as far.
pub fn run_folder(runs: &Path, job: u32) -> Option<PathBuf> {
    let pattern = runs.join(format!("*/{job}.*"));
    glob::glob(&pattern.to_string_lossy()).ok()?.flatten().next()
}

/// Promise 4: what was committed and is to be kept is there and verifies; nothing is torn.
///
/// # Errors
/// Which checkpoint is not.
pub fn checkpoints(run: &Path, records: &[Record]) -> Result<()> {
    let patience = Patience::SHORT;
    let mut committed: Vec<u64> = Vec::new();
    for record in records {
        match &record.event {
            Event::Committed { number, .. } => committed.push(*number),
            // What the run went back behind is set aside.
            Event::RolledBack { to, .. } => committed.retain(|number| Some(*number) <= *to),
            _ => {}
        }
    }
    committed.sort_unstable();
    committed.dedup();
    for number in committed.iter().rev().take(KEEP) {
        let folder = run.join(format!("checkpoints/{number}"));
        let state = checkpoint::state(&folder, patience)?;
        ensure!(state == State::Complete, "checkpoint {number} was committed and is {state:?}: {}", folder.display());
    }
    // Those of groups, too.
    for manifest in glob::glob(&run.join("checkpoints/**/manifest.json").to_string_lossy())?.flatten() {
        let folder = manifest.parent().context("a folder")?;
        let found: protocol::Manifest = serde_json::from_slice(&fs::read(&manifest)?)?;
        let verdict = checkpoint::verify(folder, &found, patience);
        ensure!(format!("{verdict:?}") == "Good", "{}: {verdict:?}", folder.display());
    }
    let damaged = glob::glob(&run.join("checkpoints/**/manifest.damaged").to_string_lossy())?.flatten().next();
    ensure!(damaged.is_none(), "{damaged:?}: a complete checkpoint was found damaged");
    Ok(())
}

/// Promise 5: the store has every record that counts, once, in order, as it was written; but for the last ones of a run that
/// ends for good with its node (`dies_at_end`): no wrapper of it comes that would deliver them. The records.
///
/// # Errors
/// What is missing or differs.
pub fn records(site: &Site, run: &Path, dies_at_end: bool) -> Result<Vec<Record>> {
    let name = run.file_name().context("a name")?.to_string_lossy().into_owned();
    let history = run::history::read(run, Patience::SHORT)?;
    site.wait("the store to have all records", BOOKS, |site| {
        let stored = stored(site, &name)?;
        let same = |(record, stored): (&Record, &Record)| record == stored;
        let first = history.records.iter().zip(&stored).position(|pair| !same(pair));
        if let Some(at) = first {
            let (written, stored) = (&history.records[at], &stored[at]);
            bail!("record {} of {name} differs in the store: {stored:?} instead of {written:?}", at + 1);
        }
        let (written, stored) = (history.records.len(), stored.len());
        ensure!(stored <= written, "{stored} records of {name} are stored, {written} written");
        if stored < written && !(dies_at_end && stored + LAST_RECORDS >= written) {
            anyhow::bail!("{stored} of {written} records of {name} are stored");
        }
        Ok(Some(()))
    })?;
    Ok(history.records)
}

fn stored(site: &Site, run: &str) -> Result<Vec<Record>> {
    let store = Connection::open_with_flags(&site.store, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    store.busy_timeout(Duration::from_secs(10))?;
    let mut rows = store.prepare("SELECT seq, json FROM events WHERE run = ?1 ORDER BY seq")?;
    let rows = rows.query_map([run], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (seq, json) = row?;
        let record: Record = serde_json::from_str(&json)?;
        ensure!(record.seq == seq, "row {seq} holds record {}", record.seq);
        Ok(record)
    })
    .collect()
}

/// Promise 6: the phases of a run add up to its counters; none is negative, and none is zero for want of a figure.
///
/// # Errors
/// What does not hold.
pub fn energy(site: &Site, job: u32) -> Result<()> {
    let run = site.report(job)?.context("a report")?;
    let total = run["total"]["joules"].as_f64().context("a total")?;
    let phases: Vec<f64> =
        run["phases"].as_array().into_iter().flatten().filter_map(|p| p["joules"].as_f64()).collect();
    let sum: f64 = phases.iter().sum();
    ensure!((sum - total).abs() <= 1e-6 * total.abs() + 1e-9, "job {job}: phases {sum} J, total {total} J");
    ensure!(phases.iter().all(|j| *j >= 0.0), "job {job}: a phase is negative: {phases:?}");
    let spans = run["spans"].as_array().cloned().unwrap_or_default();
    for span in spans {
        let lasts_s = span["end_s"].as_f64().unwrap_or(0.0) - span["start_s"].as_f64().unwrap_or(0.0);
        ensure!(lasts_s >= 0.0, "job {job}: a phase ends before it begins: {span}");
        if let Some(joules) = span["joules"].as_f64() {
            ensure!(joules >= 0.0 && (joules > 0.0 || lasts_s < 1.0), "job {job}: {joules} J in {lasts_s} s: {span}");
        }
    }
    Ok(())
}

/// Reasons for which Slurm itself drains a node after a fault: a slurmctld was killed before it had written down that a job
/// began, and a slurmstepd stood still when its step was to end.
const BY_SLURM: [(Fault, &str); 2] = [
    (Fault::KillDaemon(Daemon::Slurmctld), "Reason=Duplicate jobid"),
    (Fault::Stop(Process::Slurmstepd), "Reason=Kill task failed"),
];

/// What is left on the nodes, in the queue, in spools, or of the services' health, when all jobs are over.
///
/// # Errors
/// Slurm does not tell.
pub fn left(site: &Site, jobs: &[u32], mounts: &BTreeMap<String, usize>, faults: &[Fault]) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let shown = |what: &str| site.cluster.output(site.cluster.command("scontrol").args(["show", what, "-o"]));
    let lines = |what: &str, words: &[&str]| -> Result<Vec<String>> {
        let text = shown(what)?;
        let bad = text.lines().filter(|l| words.iter().any(|w| l.contains(w)));
        Ok(bad.map(|l| l.chars().take(160).collect()).collect())
    };
    left.extend(lines("job", &["JobState=PENDING", "JobState=RUNNING", "JobState=COMPLETING", "JobState=SUSPENDED"])?);
    left.extend(lines("reservation", &["ReservationName="])?);
    for line in shown("node")?.lines().filter(|line| !line.contains(" State=IDLE ")) {
        let name = line.split_whitespace().find_map(|word| word.strip_prefix("NodeName=")).unwrap_or_default();
        if BY_SLURM.iter().any(|(fault, reason)| faults.contains(fault) && line.contains(reason)) {
            let resume = ["update", &format!("nodename={name}"), "state=resume"];
            site.cluster.output(site.cluster.command("scontrol").args(resume))?;
        }
        left.push(format!("node {name}: {}", line.split_once(" State=").map_or(line, |(_, state)| state)));
    }
    for job in jobs {
        let all = super::processes::all(&site.cluster.conf, &format!("SLURM_JOB_ID={job}"));
        left.extend(all.iter().map(|f| format!("process {} of job {job}: {}", f.pid, f.words)));
    }
    for node in &site.cluster.nodes {
        let pids = site.cluster.node_pids(node)?;
        let stopped = pids.iter().filter(|pid| super::processes::state(**pid) == Some('T'));
        left.extend(stopped.map(|pid| format!("process {pid} on {node} stands still")));
        let now = mounts_of(site, node)?;
        if mounts.get(node).is_some_and(|before| now > *before) {
            left.push(format!("{node} has {now} mounts instead of {}", mounts[node]));
        }
    }
    let spool = glob::glob(&site.conf.with_file_name("spool").join("**/*").to_string_lossy())?.flatten();
    left.extend(spool.filter(|f| f.is_file()).map(|f| format!("in a spool: {}", f.display())));
    left.extend(health(site));
    Ok(left)
}

fn health(site: &Site) -> Vec<String> {
    let mut bad = Vec::new();
    match site.metrics() {
        Ok(metrics) => {
            let beating = metrics.lines().find_map(|l| l.strip_prefix("joulepoint_nodes ")?.trim().parse::<f64>().ok());
            let all = site.cluster.nodes.len() as f64;
            bad.extend((beating != Some(all)).then(|| format!("{beating:?} of {all} node services are heard")));
        }
        Err(e) => bad.push(format!("the controller service does not answer: {e:#}")),
    }
    match site.health() {
        Ok(health) if health["ok"] == true => {}
        other => bad.push(format!("the controller service is not healthy: {other:?}")),
    }
    let status = |pid: i32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rss = |text: String| {
        text.lines().find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok())
    };
    match site.controller_pid().and_then(|pid| rss(status(pid))) {
        Some(kib) if kib < CONTROLLER_KIB => {}
        other => bad.push(format!("the controller service has {other:?} KiB")),
    }
    bad
}

/// The mounts that a node has.
///
/// # Errors
/// It has no power.
pub fn mounts_of(site: &Site, node: &str) -> Result<usize> {
    let pid = site.cluster.node_pids(node)?.into_iter().min().context("a process")?;
    Ok(fs::read_to_string(format!("/proc/{pid}/mounts"))?.lines().count())
}
