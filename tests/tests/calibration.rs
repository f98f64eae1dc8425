//! A real cluster is calibrated in a hurry, across an interruption; the document holds, travels, and is compared.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{Calibration, Operation, Plan, Quantity, Storage, StoredCalibration};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use suite::{Site, Wanted};

/// Longest wait for the first points, and for what a job does.
const BEGINNING: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(120);

/// Time between the checkpoints of the programs that are planned, s.
const BETWEEN_S: f64 = 10.0;

/// Messages of a program that sends much, and of one that sends next to nothing.
const HEAVY: &str = "1000000:400M";
const PARALLEL: &str = "320:32K";

fn said(output: &Output) -> Result<String> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {out}{err}", output.status);
    Ok(out.into_owned())
}

fn site(name: &str, nodes: u32) -> Result<Site> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-{name}-{}", std::process::id()));
    let toml = format!("[calibration]\ndir = {:?}\n", dir.join("slurm/shared/calibration"));
    Site::start(&dir, &Wanted { nodes, toml, ..Wanted::default() }, &mut |_| {})
}

fn calibrate(site: &Site, args: &[&str]) -> Result<String> {
    said(&site.joulepoint("root", &[&["calibrate"], args].concat())?)
}

/// All finished measurements, as lines.
fn finished(site: &Site) -> Vec<String> {
    let root = site.conf.with_file_name("slurm").join("shared/calibration");
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let files = below(root).flat_map(below).flat_map(|of_type| below(of_type.join("outcomes")));
    let text = files.map(|file| std::fs::read_to_string(file).unwrap_or_default()).collect::<String>();
    text.lines().map(str::to_owned).collect()
}

/// A calibration that runs beside the test.
fn begun(site: &Site, resume: &[&str]) -> Result<Child> {
    let program = site.bin().join("joulepoint").display().to_string();
    let mut command = site.user_command("root", &program, Path::new("/"));
    command.args(["calibrate", "run", "--fast", "--nodes-per-type", "3"]).args(resume);
    Ok(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}

/// What a calibration said that is ended by a signal once so many measurements are finished, and those.
fn ended_by(site: &Site, mut running: Child, signal: Signal, after: usize) -> Result<(String, Vec<String>)> {
    let done = site.wait("some points", BEGINNING, |site| Ok(Some(finished(site)).filter(|l| l.len() > after)));
    kill(Pid::from_raw(i32::try_from(running.id())?), signal)?;
    let mut said = String::new();
    running.stderr.take().context("standard error")?.read_to_string(&mut said)?;
    let status = running.wait()?;
    ensure!(!status.success(), "{status}: {said}");
    Ok((said, done?))
}

/// Whether jobs of a name wait or run.
fn queued(site: &Site, name: &str) -> Result<bool> {
    Ok(!said(&site.cluster.command("squeue").args(["-h", "-o", "%i", "-n", name]).output()?)?.trim().is_empty())
}

/// A calibration that is killed measures on, and is taken up; one that is interrupted stops. What was finished by then.
fn interrupted(site: &Site) -> Result<Vec<String>> {
    let jobs = || queued(site, "joulepoint-calibrate");
    let (said, before) = ended_by(site, begun(site, &[])?, Signal::SIGKILL, 5)?;
    ensure!(said.contains(" min left"), "how long it takes is told: {said}");
    ensure!(jobs()?, "its jobs measure on");
    let refused = site.joulepoint("root", &["calibrate", "run", "--fast"])?;
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && text.contains("still measures"), "{text}");
    let (said, done) = ended_by(site, begun(site, &["--resume"])?, Signal::SIGINT, before.len() + 10)?;
    ensure!(said.contains("told to stop") && said.contains("--resume"), "{said}");
    site.wait("the end of its jobs", LIMIT, |_| Ok((!jobs()?).then_some(())))?;
    Ok(done)
}

fn checks_the_document(c: &Calibration, nodes: usize, measuring: u32) -> Result<()> {
    ensure!(c.power.idle_w.len() == nodes, "idle power of every node: {:?}", c.power);
    ensure!(c.power.idle_w.values().all(|w| (99.0..150.0).contains(w)), "about 100 W: {:?}", c.power);
    ensure!(c.energy_source == "model" && c.fast && !c.fingerprint.kernel.is_empty());
    for operation in Operation::ALL {
        let of: Vec<_> = c.measured.iter().filter(|m| m.operation == operation).collect();
        let mpi = matches!(operation, Operation::Synchro | Operation::Polling);
        ensure!(!of.is_empty() || mpi && c.fingerprint.mpi.is_none(), "{operation:?}: {:?}", c.skipped);
        for point in of.iter().flat_map(|m| &m.points) {
            ensure!(point.time_s > 0.0 && point.count > 0 && point.delta_w > -20.0, "{operation:?}: {point:?}");
        }
    }
    for storage in Storage::ALL {
        let of = c.measured.iter().find(|m| (m.operation, m.storage) == (Operation::CheckpointWrite, Some(storage)));
        let write = of.with_context(|| format!("{storage:?}"))?;
        let wider = |n: &u32| write.points.iter().any(|p| p.nodes == *n);
        ensure!(wider(&1) && (storage != Storage::Shared || wider(&measuring)), "{write:?}");
        ensure!(write.fits.iter().any(|f| f.alpha > 0.0 && f.curve == "linear"), "{write:?}");
    }
    let busy = |m: &&protocol::Measured| m.operation == Operation::Compute;
    let points = &c.measured.iter().find(busy).context("compute")?.points;
    let delta = |p: u32, i: f64| points.iter().find(|x| x.processes == p && x.intensity == i).map(|x| x.delta_w);
    let (half, full) = (delta(1, 0.5).context("50 %")?, delta(1, 1.0).context("100 %")?);
    ensure!(half > 2.0 && full > 1.3 * half && full < 220.0, "{half} W at half, {full} W at full intensity");
    Ok(())
}

fn planned(site: &Site, messages: &str, checkpoints: f64) -> Result<Plan> {
    let (messages, work) =
        (format!("ft-energy-messages={messages}"), format!("{:.0}s", BETWEEN_S * checkpoints.max(1.0)));
    let interval = format!("ft-energy-interval={BETWEEN_S}s");
    let size = ["plan", "--json", "-N4", "-n8", "--work", &work, "-o", "ft-energy-memory=1M"];
    let said = said(&site.joulepoint("root", &[&size[..], &["-o", &messages, "-o", &interval]].concat())?)?;
    Ok(serde_json::from_str(&said)?)
}

/// Expected energy of the whole run under a protocol, and its break-even.
fn energy_j(plan: &Plan, protocol: &str) -> Result<(f64, Option<f64>)> {
    let rows = &plan.choice.as_ref().context("a choice")?.rows;
    let row = rows.iter().find(|r| r.protocol == protocol).with_context(|| protocol.to_string())?;
    let figures = row.figures.as_ref().with_context(|| format!("{:?}", row.refused))?;
    Ok((figures.energy_j.value, figures.break_even_energy))
}

/// On what this cluster itself has measured, the choice flips at the number of checkpoints that the model gives.
fn the_choice_flips_at_the_break_even_of_this_cluster(site: &Site) -> Result<()> {
    let unhindered = |plan: &Plan| plan.choice.as_ref().map(|c| c.unhindered.clone()).unwrap_or_default();
    let n = energy_j(&planned(site, HEAVY, 1.0)?, "uncoordinated-disk")?.1.context("a break-even")?;
    println!("break-even of {HEAVY} on this cluster: {n:.0} checkpoints");
    for (share, coordinated) in [(0.1, true), (0.5, true), (2.0, false), (10.0, false)] {
        let plan = planned(site, HEAVY, share * n)?;
        let (one, other) = (energy_j(&plan, "coordinated")?.0, energy_j(&plan, "uncoordinated-disk")?.0);
        ensure!((one < other) == coordinated, "at {share} of the break-even: {one} J, {other} J");
        // So far from it the intervals do not touch.
        let is_far = !(0.2..=5.0).contains(&share);
        let taken = unhindered(&plan);
        ensure!(!is_far || (taken == "coordinated") == coordinated, "at {share}: {taken}; {:?}", plan.reasons);
    }
    let parallel = planned(site, PARALLEL, 100.0)?;
    ensure!(unhindered(&parallel).starts_with("uncoordinated"), "{:?}", parallel.reasons);
    Ok(())
}

/// A job checkpoints, leaves its nodes, and restarts: what was measured stands beside the plan, and corrects the next.
fn predictions_stand_beside_measurements(site: &Site) -> Result<()> {
    const USER: &str = "jpalice";
    let folder = site.folder(USER, "measured")?;
    let options = ["--ft-energy", "--ft-energy-signal=USR1", "--ft-energy-done=state", "--ft-energy-memory=4M"];
    let program = "trap 'head -c 4M /dev/zero > state' USR1; while [ ! -e end ]; do sleep 0.2 & wait $!; done";
    let args = [&options[..], &["-N1", "-n1", "--exclusive", "--ft-energy-interval=2s", "-J", "measured"]].concat();
    let job = site.submit(USER, &folder, &args, program)?;
    let id = job.to_string();
    let checkpoints = |least: u64| {
        site.wait_report(job, "checkpoints", LIMIT, |run| run["total"]["checkpoints"].as_u64().filter(|n| *n >= least))
    };
    let made = checkpoints(3)?;
    said(&site.joulepoint(USER, &["vacate", &id])?)?;
    checkpoints(made + 2)?;
    std::fs::write(folder.join("end"), "")?;
    site.wait_report(job, "its end", LIMIT, |run| (run["state"] == "completed").then_some(()))?;

    let rows: Vec<Value> =
        serde_json::from_str(&said(&site.joulepoint("root", &["report", "--accuracy", "--json"])?)?)?;
    println!("{}", said(&site.joulepoint("root", &["report", "--accuracy"])?)?);
    let stored: Vec<StoredCalibration> = serde_json::from_str(&calibrate(site, &["show", "--json", "--no-check"])?)?;
    for operation in ["checkpoint", "restart"] {
        let row =
            rows.iter().find(|r| r["operation"] == operation).with_context(|| format!("{operation}: {rows:?}"))?;
        ensure!(row["node_type"] == stored[0].calibration.node_type.as_str(), "{row}");
        // The counters of a record begin before its restart does.
        let figures: &[&str] = if operation == "restart" { &["time"] } else { &["time", "energy"] };
        for figure in figures {
            let (mean, worst) = (&row[figure]["mean"], &row[figure]["worst"]);
            ensure!(row[figure]["runs"] == 1 && mean.as_f64().is_some() && mean == worst, "{row}");
        }
    }
    for (operation, of) in [
        (Operation::CheckpointWrite, Quantity::TimeS),
        (Operation::CheckpointWrite, Quantity::DeltaW),
        (Operation::CheckpointRead, Quantity::TimeS),
    ] {
        let found = stored[0].corrections.iter().find(|c| (c.operation, c.of) == (operation, of));
        ensure!(found.is_some_and(|c| c.count > 0), "{operation:?} {of:?}: {:?}", stored[0].corrections);
    }
    let again = ["plan", "--json", "-J", "measured", "-o", "ft-energy-memory=4M"];
    let plan: Plan = serde_json::from_str(&said(&site.joulepoint(USER, &again)?)?)?;
    ensure!((plan.checkpoint_s.from.as_str(), plan.restart_s.from.as_str()) == ("history", "history"), "{plan:?}");
    Ok(())
}

/// Any volume is predicted, with its interval.
fn a_checkpoint_is_predicted(site: &Site) -> Result<()> {
    let one = |size: &str| -> Result<Value> {
        Ok(serde_json::from_str(&calibrate(site, &["predict", size, "-N3", "-p2", "--json"])?)?)
    };
    let (small, large) = (one("2M")?, one("24M")?);
    let figure = |v: &Value, name: &str, end: &str| v[name][end].as_f64().unwrap_or(f64::NAN);
    for name in ["time_s", "energy_j"] {
        ensure!(figure(&small, name, "value") < figure(&large, name, "value"), "{small} {large}");
        ensure!(figure(&large, name, "low") < figure(&large, name, "high"), "{large}");
    }
    ensure!(large["extrapolated"] == false, "six files on one node were measured: {large}");
    Ok(())
}

#[test]
fn a_cluster_is_calibrated_across_an_interruption_and_its_document_travels() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return Ok(());
    }
    // One of them tells its idle power only.
    let (nodes, measuring) = (4, 3);
    let site = site("calibration", nodes)?;
    let begun = Instant::now();
    let before = interrupted(&site)?;
    let text = calibrate(&site, &["run", "--fast", "--resume", "--json"])?;
    println!("calibrated {nodes} nodes in {:.0} s", begun.elapsed().as_secs_f64());
    let after = finished(&site);
    ensure!(after.len() > before.len() && before.iter().all(|line| after.contains(line)), "nothing is lost");
    let mut all: Vec<Calibration> = serde_json::from_str(&text)?;
    ensure!(all.len() == 1, "one type of node: {all:?}");
    let first = all.remove(0);
    println!("noise: {:?}; {} points", first.noise, first.measured.iter().map(|m| m.points.len()).sum::<usize>());
    checks_the_document(&first, nodes as usize, measuring)?;

    a_checkpoint_is_predicted(&site)?;
    if first.fingerprint.mpi.is_some() {
        the_choice_flips_at_the_break_even_of_this_cluster(&site)?;
    }
    predictions_stand_beside_measurements(&site)?;
    let shown = calibrate(&site, &["show"])?;
    println!("{shown}");
    ensure!(shown.contains("holds       yes"), "{shown}");
    let file = site.conf.with_file_name("calibration.json");
    let name = file.display().to_string();
    calibrate(&site, &["export", "-o", &name])?;
    ensure!(serde_json::from_str::<Calibration>(&std::fs::read_to_string(&file)?)? == first);
    let mut changed = first.clone();
    changed.at_s += 1.0;
    changed.fingerprint.kernel = "2.6.32".into();
    changed.measured[0].points[0].time_s *= 3.0;
    let other = site.conf.with_file_name("other.json").display().to_string();
    std::fs::write(Path::new(&other), serde_json::to_string(&changed)?)?;
    let kept = calibrate(&site, &["import", &other])?;
    let number = kept.split_whitespace().nth(3).with_context(|| kept.clone())?;
    ensure!(calibrate(&site, &["show"])?.contains("kernel changed: '2.6.32'"), "a stale one is named");
    let same = calibrate(&site, &["diff", "1", &name])?;
    ensure!(same.starts_with("0 of "), "{same}");
    let differs = calibrate(&site, &["diff", "1", number])?;
    ensure!(differs.contains("kernel changed") && differs.contains("1 of "), "{differs}");
    let stored: Vec<StoredCalibration> = serde_json::from_str(&calibrate(&site, &["show", "--history", "--json"])?)?;
    ensure!(stored.len() == 2 && stored[1].calibration == first, "the history is kept");
    let svg = site.conf.with_file_name("calibration.svg").display().to_string();
    calibrate(&site, &["show", "--plot", &svg])?;
    ensure!(std::fs::read_to_string(&svg)?.contains("<circle"));
    if let Ok(keep) = std::env::var("JOULEPOINT_KEEP") {
        std::fs::copy(&svg, Path::new(&keep).join("calibration.svg"))?;
        std::fs::copy(&file, Path::new(&keep).join("calibration.json"))?;
    }
    Ok(())
}

fn scontrol(site: &Site, words: &[&str]) -> Result<()> {
    succeeds(site.cluster.command("scontrol").args(words))
}

fn succeeds(command: &mut Command) -> Result<()> {
    said(&command.output()?).map(drop)
}

/// Who waits for a node to be free waits for ever on a cluster that is used.
fn a_calibration_is_shown_while_its_node_is_busy(site: &Site) -> Result<()> {
    let job = site.submit("root", &site.folder("root", "busy")?, &["-w", "n1", "--exclusive"], "sleep 300")?;
    site.wait_state(job, &["RUNNING"], LIMIT)?;
    let shown = calibrate(site, &["show"])?;
    ensure!(shown.contains("holds       as far as the node services tell (no node of it is idle)"), "{shown}");
    let running = begun(site, &["--storage", "local"])?;
    site.wait("the nodes to be asked", LIMIT, |site| Ok(queued(site, "joulepoint-facts")?.then_some(())))?;
    let (said, _) = ended_by(site, running, Signal::SIGTERM, 0)?;
    ensure!(said.contains("told to stop: nothing is measured yet"), "{said}");
    site.wait("nobody to be asked", LIMIT, |site| Ok((!queued(site, "joulepoint-facts")?).then_some(())))?;
    succeeds(site.cluster.command("scancel").arg(job.to_string()))
}

#[test]
fn two_partitions_are_measured_apart_and_a_node_without_its_service_is_named() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return Ok(());
    }
    let mut site = site("partitions", 2)?;
    scontrol(&site, &["update", "PartitionName=all", "Nodes=n1"])?;
    scontrol(&site, &["create", "PartitionName=gpu", "Nodes=n2", "State=UP"])?;
    scontrol(&site, &["create", "PartitionName=brief", "Nodes=n1", "State=UP", "PriorityTier=9", "MaxTime=1"])?;
    scontrol(&site, &["update", "NodeName=n2", "AvailableFeatures=gpu", "ActiveFeatures=gpu"])?;
    site.cluster.kill_node_command("n2")?;
    let begun = Instant::now();
    let output = site.joulepoint("root", &["calibrate", "run", "--fast", "--storage", "local"])?;
    println!("calibrated one of two types in {:.0} s", begun.elapsed().as_secs_f64());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(!output.status.success() && err.contains("n2: the node service must run to calibrate"), "{out}{err}");
    ensure!(out.contains("stored as number 1"), "the other type is not lost: {out}{err}");
    let jobs = said(&site.cluster.command("scontrol").args(["show", "job", "-o"]).output()?)?;
    ensure!(jobs.contains(" Partition=all ") && !jobs.contains("Partition=brief"), "the default one serves: {jobs}");

    let names =
        |args: &[&str]| -> Result<Vec<StoredCalibration>> { Ok(serde_json::from_str(&calibrate(&site, args)?)?) };
    let mut stored = names(&["show", "--json", "--no-check"])?;
    ensure!(stored.len() == 1 && stored[0].calibration.power.idle_w.contains_key("n1"), "{stored:?}");
    let planned = |node: &str| said(&site.joulepoint("root", &["plan", "--full", "-w", node])?);
    ensure!(planned("n1")?.contains("calibration 1 of node type"), "{}", planned("n1")?);
    ensure!(planned("n2")?.contains("no calibration has the nodes n2"), "{}", planned("n2")?);
    a_calibration_is_shown_while_its_node_is_busy(&site)?;

    let file = site.conf.with_file_name("older.json").display().to_string();
    let older = Calibration { at_s: 1.0, ..stored.remove(0).calibration };
    std::fs::write(&file, serde_json::to_string(&older)?)?;
    calibrate(&site, &["import", &file])?;
    let used = names(&["show", "--json", "--no-check"])?;
    ensure!(used.len() == 1 && used[0].calibration == older, "who imports an old one wants it back: {used:?}");
    std::fs::write(&file, serde_json::to_string(&older)?.replace("\"time_s\":", "\"time_s\":-"))?;
    let refused = site.joulepoint("root", &["calibrate", "import", &file])?;
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(2) && text.contains("is outside its range"), "{text}");
    Ok(())
}
