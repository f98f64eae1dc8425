//! On a real cluster a submitted job is planned as `plan` said, and its checkpoints run at the plan's CPU frequency.

use anyhow::{Context, Result, ensure};
use protocol::{Calibration, Measured, Operation, Point, Storage};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const LIMIT: Duration = Duration::from_secs(90);

/// Figures may differ as much: the MTBF is that of the moment.
const WITHIN: f64 = 0.02;

/// CPUs of the tree of files that stands for the kernel's.
const CPUS: u32 = 2;

/// The ceiling of the tree, and what the plan sets.
const OWN_KHZ: &str = "2400000";
const SET_KHZ: &str = "1200000";

/// Options, arguments of sbatch, and the same for `plan`.
const SHAPES: [(&[&str], &[&str], &[&str]); 4] = [
    (&["ft-energy=energy", "ft-energy-memory=64M"], &["-N1", "-n1"], &["-N1", "-n1"]),
    (&["ft-energy=time", "ft-energy-memory=3G"], &["-N1", "-n2"], &["-N1", "-n2"]),
    (
        &["ft-energy=energy", "ft-energy-memory=8G", "ft-energy-messages=1000000:400G"],
        &["-N2", "--ntasks-per-node=1"],
        &["-N2", "-n2"],
    ),
    (
        &["ft-energy=energy", "ft-energy-memory=1G", "ft-energy-messages=10:4K", "ft-energy-io-bound=1%"],
        &["-N2", "-n4"],
        &["-N2", "-n4"],
    ),
];

fn site(dir: &Path) -> Result<Site> {
    let node_toml = format!(
        "cpufreq = true\ncpufreq_root = {:?}\ncpufreq_state = {:?}",
        dir.join("cpus"),
        dir.join("{node}.cpufreq")
    );
    Site::start(dir, &Wanted { nodes: 2, node_toml, ..Wanted::default() }, &mut |_| {})
}

/// Files as the kernel has them.
fn tree(root: &Path) -> Result<()> {
    for cpu in 0..CPUS {
        let folder = root.join(format!("cpu{cpu}/cpufreq"));
        fs::create_dir_all(&folder)?;
        for (name, value) in [
            ("scaling_available_frequencies", "2400000 1800000 1200000 \n"),
            ("scaling_governor", "ondemand\n"),
            ("scaling_min_freq", "1200000\n"),
            ("scaling_max_freq", "2400000\n"),
        ] {
            fs::write(folder.join(name), value)?;
        }
    }
    Ok(())
}

/// The ceiling of all CPUs, kHz.
fn ceilings(site: &Site) -> Vec<String> {
    let path = |cpu: u32| site.conf.with_file_name("cpus").join(format!("cpu{cpu}/cpufreq/scaling_max_freq"));
    (0..CPUS).map(|cpu| fs::read_to_string(path(cpu)).unwrap_or_default().trim().to_string()).collect()
}

fn holds(site: &Site, khz: &str) -> bool {
    ceilings(site).iter().all(|c| c == khz)
}

/// Aupy15's coefficients, and checkpoints that the disk bounds at three frequencies.
fn calibration(kernel: Option<&str>) -> Result<Calibration> {
    let mut c = Calibration::clone(&planner::published::calibration(100.0).stored.calibration);
    let storage = [(Storage::Memory, "/dev/shm".into()), (Storage::Local, "/tmp".into())].into();
    c.fingerprint = hardware::facts::look("n1", &storage, "mpicc")?.fingerprint;
    c.fingerprint.kernel = kernel.map_or(c.fingerprint.kernel, str::to_string);
    c.at_s = if kernel.is_some() { 1.0 } else { 2.0 };
    c.power.idle_w = ["n1", "n2"].map(|n| (n.to_string(), 100.0)).into();
    let mut points = Vec::new();
    for hz in [1.2e9, 1.8e9, 2.4e9_f64] {
        for bytes in [1e6, 1e8, 1e9, 4e9] {
            points.push(Point {
                nodes: 1,
                processes: 2,
                bytes,
                intensity: 1.0,
                frequency_hz: Some(hz),
                time_s: 0.2 + bytes / 1e8,
                time_ci_s: 0.0,
                delta_w: 8.0 * (hz * 1e-9).powi(2),
                delta_ci_w: Some(0.0),
                count: 5,
                outliers: 0,
            });
        }
    }
    c.measured.retain(|m| m.operation != Operation::CheckpointWrite);
    let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
    c.measured.push(Measured { operation, storage, points, fits: Vec::new() });
    Ok(c)
}

fn said(site: &Site, user: &str, args: &[&str]) -> Result<String> {
    let output = site.joulepoint(user, args)?;
    Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

fn import(site: &Site, calibration: &Calibration) -> Result<()> {
    let file = site.conf.with_file_name("imported.json");
    fs::write(&file, serde_json::to_string(calibration)?)?;
    let said = said(site, "root", &["calibrate", "import", &file.display().to_string()])?;
    ensure!(said.contains("stored as number"), "{said}");
    Ok(())
}

/// Where two documents differ: a figure by more than the moment explains, or a word.
fn difference(one: &Value, other: &Value, at: &str) -> Option<String> {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect::<String>();
    let same = match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = b.keys().find(|k| !a.contains_key(*k)).map(|k| format!("{at}.{k} is missing"));
            return missing.or_else(|| {
                a.iter().find_map(|(k, v)| difference(v, b.get(k).unwrap_or(&Value::Null), &format!("{at}.{k}")))
            });
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            return a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(a, b, &format!("{at}[{i}]")));
        }
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= WITHIN * a.abs().max(b.abs()),
            _ => false,
        },
        (Value::String(a), Value::String(b)) => words(a) == words(b),
        (a, b) => a == b,
    };
    (!same).then(|| format!("{at}: {one} is not {other}"))
}

/// The plan that a job has in its folder, as soon as it is there.
fn plan_of(site: &Site, job: u32) -> Result<Value> {
    let root = site.cluster.shared().join(format!("runs-{USER}"));
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    site.wait("the job's plan", LIMIT, |_| {
        let is_its = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&format!("{job}.")));
        let run = below(root.clone()).flat_map(below).find(is_its);
        let text = run.and_then(|run| fs::read(run.join("plan.json")).ok());
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    })
}

fn a_stale_calibration_is_named(site: &Site) -> Result<()> {
    import(site, &calibration(Some("2.6.32"))?)?;
    let change = "kernel changed: '2.6.32' is now";
    site.wait("the plan to name the new kernel", LIMIT, |site| {
        Ok(said(site, USER, &["plan", "--full"])?.contains(&format!("n1: {change}")).then_some(()))
    })?;
    let shown = said(site, USER, &["calibrate", "show", "--no-check"])?;
    ensure!(shown.contains("no, it is stale") && shown.contains(change), "{shown}");
    let doctor = said(site, "root", &["doctor"])?;
    ensure!(doctor.contains("is stale: n1: kernel changed"), "{doctor}");
    import(site, &calibration(None)?)?;
    site.wait("a plan on the new calibration", LIMIT, |site| {
        Ok(said(site, USER, &["plan", "--json"])?.contains("calibration 2 of").then_some(()))
    })
}

fn a_job_is_planned_as_plan_says(site: &Site, shape: usize) -> Result<()> {
    let (options, sbatch, plan) = SHAPES[shape];
    let name = format!("shape{shape}");
    let folder = site.folder(USER, &name)?;
    let mut args: Vec<&str> = [&["plan", "--json", "-c2", "-J", &name], plan].concat();
    options.iter().for_each(|o| args.extend(["-o", o]));
    let planned: Value = serde_json::from_str(&said(site, USER, &args)?)?;
    let asked: Vec<String> = options.iter().map(|o| format!("--{o}")).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let args = [&["--exclusive", "-J", &name], sbatch, &asked].concat();
    let told = site.sbatch(USER, &folder, &[&args[..], &["--ft-energy-explain=full"]].concat(), "true")?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let protocol = planned["protocol"].as_str().context("protocol")?;
    ensure!(told.contains(&format!("* {protocol}")), "{told}");
    let figure = |name: &str, key: &str| {
        let line = told.lines().find(|l| l.starts_with(name)).map(str::to_string);
        let shown = line.and_then(|l| l[name.len()..].split_whitespace().next().and_then(|n| n.parse::<f64>().ok()));
        let planned = planned[key]["value"].as_f64().or(planned[key].as_f64()).unwrap_or(f64::NAN);
        ensure!(shown.is_some_and(|s| (s - planned).abs() <= WITHIN * planned + 0.5), "{name}: {planned}: {told}");
        Ok(())
    };
    figure("checkpoint interval", "interval_s")?;
    figure("node in checkpoint", "checkpoint_w")?;

    let job = site.submit(USER, &folder, &args, "true")?;
    let mut found = plan_of(site, job)?;
    // Which engine it is shows only in the job.
    for key in ["engine", "made_by"] {
        found[key] = planned[key].clone();
    }
    let reasons = found["reasons"].as_array_mut().context("reasons")?;
    reasons.retain(|r| !r.as_str().is_some_and(|r| r.starts_with("engine ")));
    let difference = difference(&planned, &found, "plan");
    ensure!(difference.is_none(), "job {job} of {options:?}: {difference:?}");
    site.wait_state(job, &["COMPLETED"], LIMIT).map(drop)
}

/// The node's own frequency comes back after a checkpoint, after a kill of everything in the job, and at the next
/// start of a service that was killed.
fn checkpoints_run_at_the_frequency_of_the_plan(site: &mut Site) -> Result<()> {
    ensure!(holds(site, OWN_KHZ));
    let job = slow_job(site, "returns")?;
    let go = site.folder(USER, "returns")?.join("go");
    ensure!(plan_of(site, job)?["checkpoint_hz"] == 1.2e9, "{}", plan_of(site, job)?);
    becomes(site, "the checkpoint's frequency", SET_KHZ)?;
    fs::write(&go, "")?;
    becomes(site, "the node's own frequency", OWN_KHZ)?;
    becomes(site, "that of the next checkpoint", SET_KHZ)?;
    site.cluster.command("scancel").args(["--signal=KILL", "--full", &job.to_string()]).status()?;
    becomes(site, "the node's own frequency without the job", OWN_KHZ)?;

    let job = slow_job(site, "killed")?;
    becomes(site, "the checkpoint's frequency", SET_KHZ)?;
    site.cluster.kill_node("n1")?;
    ensure!(holds(site, SET_KHZ), "nobody is there to put it back");
    site.cluster.command("scancel").arg(job.to_string()).status()?;
    site.cluster.revive_node("n1")?;
    becomes(site, "the node's own frequency", OWN_KHZ)
}

/// A job whose checkpoints last until a file tells them to end.
fn slow_job(site: &Site, name: &str) -> Result<u32> {
    let folder = site.folder(USER, name)?;
    let program = "trap 'while [ ! -e go ]; do sleep 0.1; done; rm go; date > state' USR1\n\
                   while true; do sleep 0.1 & wait $!; done";
    let options = ["--ft-energy", "--ft-energy-memory=1G", "--ft-energy-interval=2s", "--ft-energy-signal=USR1"];
    let args = [&options[..], &["--ft-energy-done=state", "-N1", "-w", "n1", "--exclusive", "--no-requeue"]].concat();
    site.submit(USER, &folder, &args, program)
}

fn becomes(site: &Site, what: &str, khz: &str) -> Result<()> {
    site.wait(what, LIMIT, |site| Ok(holds(site, khz).then_some(())))
}

#[test]
fn a_submitted_job_is_planned_as_said_and_checkpoints_at_the_frequency_of_its_plan() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return Ok(());
    }
    let dir = PathBuf::from(format!("/tmp/joulepoint-choice-{}", std::process::id()));
    let mut site = site(&dir)?;
    tree(&dir.join("cpus"))?;
    a_stale_calibration_is_named(&site)?;
    (0..SHAPES.len()).try_for_each(|shape| a_job_is_planned_as_plan_says(&site, shape))?;
    checkpoints_run_at_the_frequency_of_the_plan(&mut site)
}
