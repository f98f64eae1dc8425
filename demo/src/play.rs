//! `make demo`: a real program loses a node, recovers, and ends with the result of an undisturbed run.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use site::{Site, Wanted, repository};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const USER: &str = "jpalice";

/// Longest time that either run may take.
const RUN_LIMIT: Duration = Duration::from_secs(480);

/// Checkpoints that are to be complete before the node is killed.
const CHECKPOINTS_BEFORE: u64 = 2;

/// Work done after the last of them before the node is killed, so that there is something to lose.
const LATER: Duration = Duration::from_secs(4);

/// How one program is run and protected.
struct App {
    name: &'static str,
    /// Options of both runs.
    sbatch: &'static [&'static str],
    /// Options that the user adds.
    protection: &'static [&'static str],
    /// Variables of the protected run.
    environment: &'static [(&'static str, &'static str)],
    /// Which node of the job is killed: 0 is the batch host.
    victim: usize,
    /// Whether its checkpoints are dumps of its processes.
    by_criu: bool,
}

const APPS: [App; 5] = [
    App {
        name: "gromacs",
        sbatch: &["-N1", "-n1"],
        protection: &["--ft-energy=energy", "--ft-energy-done=*.cpt"],
        environment: &[],
        victim: 0,
        by_criu: false,
    },
    App {
        name: "lammps",
        sbatch: &["-N4", "--ntasks-per-node=1"],
        protection: &["--ft-energy=energy", "--ft-energy-engine=hook"],
        environment: &[
            ("FT_ENERGY_CHECKPOINT_COMMAND", "sh ./checkpoint.sh"),
            ("FT_ENERGY_RESTART_COMMAND", "sh ./restart.sh"),
        ],
        victim: 2,
        by_criu: false,
    },
    App {
        name: "heat",
        sbatch: &["-N4", "--ntasks-per-node=1"],
        protection: &["--ft-energy=energy", "--ft-energy-signal=USR1", "--ft-energy-done=heat.ckpt"],
        environment: &[],
        victim: 2,
        by_criu: false,
    },
    by_one_option("lammps-mpi"),
    by_one_option("gromacs-mpi"),
];

/// An MPI program that writes no checkpoints; its script names three nodes.
const fn by_one_option(name: &'static str) -> App {
    App { name, sbatch: &[], protection: &["--ft-energy"], environment: &[], victim: 2, by_criu: true }
}

/// Runs the demo.
pub fn run(name: &str) -> Result<()> {
    let names = APPS.map(|a| a.name).join(", ");
    let app = APPS.iter().find(|a| a.name == name).with_context(|| format!("APP={name} is not one of {names}"))?;
    let dir = PathBuf::from(format!("/tmp/joulepoint-demo-{}", std::process::id()));
    let clock = Instant::now();
    let criu = dir.with_extension("criu");
    let outcome = play(app, &dir, &criu, &clock);
    let _ = std::fs::remove_dir_all(&criu);
    if outcome.is_ok() {
        std::fs::remove_dir_all(&dir)?;
    } else {
        eprintln!("everything is kept in {}", dir.display());
    }
    outcome
}

/// A site whose nodes are taken to fail often, so that a short run has several checkpoints. With the CRIU of a folder that
/// all its nodes see, if the program needs it.
fn wanted(criu: Option<&Path>) -> Wanted {
    let estimates = "[estimates]\nnode_mtbf_s = 600.0\ncheckpoint_s = 0.5\nrestart_s = 5.0\n";
    let command = criu.map(|criu| format!("[criu]\ncommand = {:?}\n\n", criu.join("criu"))).unwrap_or_default();
    Wanted { toml: command + estimates, shared: criu.map(Path::to_path_buf).into_iter().collect(), ..Wanted::default() }
}

fn say(clock: &Instant, text: &str) {
    println!("[{:6.1} s] {text}", clock.elapsed().as_secs_f64());
}

fn play(app: &App, dir: &Path, criu: &Path, clock: &Instant) -> Result<()> {
    if app.by_criu {
        say(clock, "making a CRIU for this kernel (packaging/criu.sh): minutes for the first time");
        site::fetch(site::Fetched::Criu, criu).map_err(anyhow::Error::msg)?;
    }
    say(clock, "starting a private Slurm: slurmctld, slurmdbd on MariaDB, munge, eight slurmd with Joulepoint");
    let mut site =
        Site::start(dir, &wanted(app.by_criu.then_some(criu)), &mut |text| say(clock, &format!("  {text}")))?;
    let undisturbed = prepare(&site, app, "undisturbed")?;
    let protected = copy(&site, &undisturbed, "protected")?;
    say(clock, &format!("submitting {} twice: as it is, and with {}", app.name, app.protection.join(" ")));
    let plain = submit(&site, app, &undisturbed, &[])?;
    let job = submit(&site, app, &protected, app.protection)?;
    say(clock, &format!("job {plain} runs undisturbed, job {job} will lose a node"));

    let mut told = Told::default();
    let enough = |run: &Value| run["total"]["checkpoints"].as_u64().is_some_and(|n| n >= CHECKPOINTS_BEFORE);
    follow(&site, job, clock, &mut told, enough)?;
    let run = site.report(job)?.context("the run is not in the store")?;
    let nodes = run["records"][0]["nodes"].as_array().context("no nodes")?;
    let node = nodes[app.victim.min(nodes.len() - 1)].as_str().context("no name")?.to_string();
    std::thread::sleep(LATER);
    say(clock, &format!("KILLING {node}: slurmd, its steps, every process and its Joulepoint service, at once"));
    let killed = Instant::now();
    site.cluster.kill_node(&node)?;
    follow(&site, job, clock, &mut told, |run| run["failures"].as_array().is_some_and(|f| !f.is_empty()))?;
    say(clock, &format!("noticed {:.1} s after the kill", killed.elapsed().as_secs_f64()));
    let ended = |run: &Value| matches!(run["state"].as_str(), Some("completed" | "failed" | "cancelled" | "timeout"));
    follow(&site, job, clock, &mut told, ended)?;
    site.wait_state(plain, &["COMPLETED", "FAILED"], RUN_LIMIT)?;

    say(clock, "comparing the results");
    let script = repository().join("apps").join(app.name).join("compare.sh");
    let same = std::process::Command::new("sh").arg(&script).args([&undisturbed, &protected]).status()?;
    let output = site.joulepoint(USER, &["report", "-j", &job.to_string()])?;
    println!("\n$ joulepoint report -j {job}\n{}", String::from_utf8_lossy(&output.stdout));
    if !same.success() {
        bail!("the results differ");
    }
    say(clock, "the result equals that of the undisturbed run; stopping everything");
    drop(site);
    say(clock, "done");
    Ok(())
}

/// Inputs in a folder of the user's, with the job script.
fn prepare(site: &Site, app: &App, name: &str) -> Result<PathBuf> {
    let folder = site.folder(USER, name)?;
    let (source, copied) = (repository().join("apps"), site.cluster.shared().join("apps"));
    if !copied.exists() {
        let status = std::process::Command::new("cp").arg("-r").args([&source, &copied]).status()?;
        let open = std::process::Command::new("chmod").args(["-R", "a+rX"]).arg(&copied).status()?;
        if !status.success() || !open.success() {
            bail!("{} cannot be copied", source.display());
        }
    }
    let made = site
        .user_command(USER, "sh", &folder)
        .arg(copied.join(app.name).join("prepare.sh"))
        .arg(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !made.success() {
        bail!("apps/{}/prepare.sh failed in {}", app.name, folder.display());
    }
    Ok(folder)
}

/// The same inputs, to the byte, in another folder.
fn copy(site: &Site, from: &Path, name: &str) -> Result<PathBuf> {
    let folder = site.folder(USER, name)?;
    let copied = site.user_command(USER, "cp", from).args(["-a", "."]).arg(&folder).status()?;
    if !copied.success() {
        bail!("{} cannot be copied", from.display());
    }
    Ok(folder)
}

fn submit(site: &Site, app: &App, folder: &Path, protection: &[&str]) -> Result<u32> {
    let mut command = site.user_command(USER, "sbatch", folder);
    command.args(["--parsable", "--exclusive", "-t", "30"]).args(app.sbatch).args(protection).arg("job.sh");
    if !protection.is_empty() {
        command.envs(app.environment.iter().copied());
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    said.parse().with_context(|| format!("sbatch: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// How much of a run has been told.
#[derive(Default)]
struct Told {
    checkpoints: usize,
    failures: usize,
    records: usize,
}

/// Tells what happens to a run until `enough`.
fn follow(site: &Site, job: u32, clock: &Instant, told: &mut Told, enough: impl Fn(&Value) -> bool) -> Result<()> {
    site.wait_report(job, "the run to go on", RUN_LIMIT, |run| {
        tell(clock, run, told);
        enough(run).then_some(())
    })
}

fn tell(clock: &Instant, run: &Value, told: &mut Told) {
    let list = |name: &str| run[name].as_array().cloned().unwrap_or_default();
    for c in list("checkpoints").iter().skip(told.checkpoints) {
        let text = format!(
            "checkpoint {}: {:.2} s, {} bytes, {:.1} J",
            c["number"],
            c["seconds"].as_f64().unwrap_or(0.0),
            c["bytes"],
            c["joules"].as_f64().unwrap_or(f64::NAN)
        );
        say(clock, &text);
        told.checkpoints += 1;
    }
    for f in list("failures").iter().skip(told.failures) {
        say(clock, &format!("failure: {}", f["reason"].as_str().unwrap_or("")));
        told.failures += 1;
    }
    for r in list("records").iter().skip(told.records) {
        let nodes: Vec<&str> = r["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        say(clock, &format!("running on {} (restart {})", nodes.join(","), r["restart_count"]));
        told.records += 1;
    }
}
