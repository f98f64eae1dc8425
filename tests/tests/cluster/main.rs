//! Joulepoint on a real Slurm: eight nodes, where nodes, daemons and wrappers really die.
//!
//! One cluster serves all tests, one after the other. Every test waits for events, and leaves all nodes alive.

mod ends;
mod failures;
mod options;
mod questions;
mod records;
mod storage;
mod waiting;

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use suite::{Site, Wanted, repository};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(180);

/// Time steps of the test program, at least 10 ms each.
const STEPS: u32 = 1500;

fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceLock<Mutex<Site>> = OnceLock::new();
    let start = || {
        let dir = PathBuf::from(format!("/tmp/joulepoint-suite-{}", std::process::id()));
        let wanted = Wanted {
            toml: format!(
                "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n[wrapper]\nend_margin_s = 5.0\n\
                 [accounting]\ntariff = \"{}\"\ncurrency = \"EUR\"\n",
                dir.join("tariff.csv").display()
            ),
            // A second partition whose jobs take the nodes of the first one's.
            slurm_conf: "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n\
                PartitionName=all Nodes=n[1-8] Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n\
                PartitionName=urgent Nodes=n[1-8] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF\n"
                .into(),
            ..Wanted::default()
        };
        let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts");
        let bin = dir.join("bin");
        let made = Command::new("make")
            .arg("-C")
            .arg(repository().join("apps/heat"))
            .arg(format!("BUILD={}", bin.display()))
            .output()
            .expect("make");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Mutex::new(site)
    };
    SITE.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner)
}

fn heat(site: &Site) -> String {
    site.conf.with_file_name("bin").join("heat").display().to_string()
}

/// The batch script of the test program.
fn script(site: &Site) -> String {
    format!("srun --mpi=pmix {} --size 96 --steps {STEPS} --step-ms 10 --report 0", heat(site))
}

/// The result that an undisturbed run has.
fn expected(site: &Site) -> String {
    static RESULT: OnceLock<String> = OnceLock::new();
    let compute = || {
        let dir = tempfile::tempdir().expect("a folder");
        let steps = STEPS.to_string();
        let status = Command::new(heat(site))
            .args(["--size", "96", "--steps", &steps, "--report", "0", "--dir"])
            .arg(dir.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .status()
            .expect("heat runs");
        assert!(status.success());
        fs::read_to_string(dir.path().join("heat.out")).expect("a result")
    };
    RESULT.get_or_init(compute).clone()
}

/// Options of a job that checkpoints every three seconds on a signal.
const PROTECTED: [&str; 6] = [
    "-n1",
    "--exclusive",
    "--ft-energy=energy",
    "--ft-energy-interval=3s",
    "--ft-energy-signal=USR1",
    "--ft-energy-done=heat.ckpt",
];

fn checkpoints(run: &Value) -> u64 {
    run["total"]["checkpoints"].as_u64().unwrap_or(0)
}

fn ended(run: &Value) -> Option<String> {
    let state = run["state"].as_str()?;
    matches!(state, "completed" | "failed" | "cancelled" | "timeout").then(|| state.to_string())
}

fn nodes(run: &Value) -> Vec<String> {
    let last = run["records"].as_array().and_then(|r| r.last());
    let nodes = last.and_then(|r| r["nodes"].as_array());
    nodes.into_iter().flatten().filter_map(|n| n.as_str().map(str::to_string)).collect()
}

/// The phases of a run add up to what its nodes measured.
fn assert_energy_adds_up(run: &Value) {
    let total = run["total"]["joules"].as_f64().expect("a total");
    let phases: f64 = run["phases"].as_array().expect("phases").iter().filter_map(|p| p["joules"].as_f64()).sum();
    assert!(total > 0.0);
    assert!((phases - total).abs() <= 1e-6 * total, "phases {phases} J, total {total} J");
}

fn lost_work_j(run: &Value) -> f64 {
    run["total"]["recomputed_j"].as_f64().unwrap_or(0.0)
}

/// True failures by kind.
fn kinds(run: &Value) -> Vec<String> {
    let failures = run["failures"].as_array().into_iter().flatten();
    failures.filter_map(|f| f["kind"].as_str().map(str::to_string)).collect()
}

/// Submits the test program protected and waits until it has two checkpoints.
fn started(site: &Site, name: &str, more: &[&str]) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let args: Vec<&str> = PROTECTED.iter().chain(more).copied().collect();
    let job = site.submit(USER, &folder, &args, &script(site))?;
    site.wait_report(job, "two checkpoints", MINUTES, |run| (checkpoints(run) >= 2).then_some(()))?;
    Ok((job, folder))
}

fn second_record(run: &Value) -> Option<()> {
    (run["records"].as_array().map(Vec::len) == Some(2)).then_some(())
}

/// Slurm holds a job that was requeued by hand back for two minutes; an operator lets it start, once.
fn start_requeued(site: &Site, job: u32) -> Result<()> {
    site.wait("the job in the queue", MINUTES, |site| {
        let show = site.cluster.command("scontrol").args(["show", "job", "-o", &job.to_string()]).output()?;
        let text = String::from_utf8_lossy(&show.stdout).into_owned();
        Ok((text.contains("JobState=PENDING") && text.contains("Reason=BeginTime")).then_some(()))
    })?;
    let id = format!("jobid={job}");
    site.cluster.command("scontrol").args(["update", &id, "StartTime=now+2seconds"]).status()?;
    site.wait_report(job, "the second record", MINUTES, second_record)
}

/// Waits until a job's first step runs, and the controller knows of it.
fn at_work(site: &Site, job: u32) -> Result<()> {
    site.wait("the program at work", MINUTES, |site| {
        let steps = site.cluster.command("squeue").args(["-h", "-s", "-j", &job.to_string()]).output()?;
        let runs = String::from_utf8_lossy(&steps.stdout).contains(&format!("{job}.0"));
        Ok((runs && site.report(job)?.is_some()).then_some(()))
    })
}

/// Options of a job that checkpoints on a signal, but by itself only after an hour.
fn patient() -> Vec<&'static str> {
    PROTECTED.iter().map(|a| if a.contains("interval") { "--ft-energy-interval=1:00:00" } else { a }).collect()
}

/// Waits for the end of a run, and checks state, result and energy.
fn finished_well(site: &Site, job: u32, folder: &Path) -> Result<Value> {
    site.wait_report(job, "the end", MINUTES, ended)?;
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], MINUTES)?;
    let run = site.report(job)?.context("a report")?;
    assert_eq!(state, "COMPLETED", "{run:#}");
    let result = fs::read_to_string(folder.join("heat.out")).with_context(|| format!("{run:#}"))?;
    assert_eq!(result, expected(site));
    assert_energy_adds_up(&run);
    Ok(run)
}
