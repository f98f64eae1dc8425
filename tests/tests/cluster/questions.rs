//! What slurmctld is asked while protected jobs run and others wait, as its own `sdiag` counts it.

use super::{USER, script, site};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use suite::Site;

/// Jobs that wait; a listing would name each.
const WAITING: u32 = 60;

/// How long slurmctld's questions are counted.
const QUIET: Duration = Duration::from_secs(30);

/// How often slurmctld was asked for what since its counts began.
fn asked(site: &Site) -> Result<BTreeMap<String, u64>> {
    let said = site.cluster.output(&mut site.cluster.command("sdiag"))?;
    let (_, types) = said.split_once("statistics by message type").context("sdiag counts no types")?;
    let count = |line: &str| {
        let (name, counts) = line.split_once('(')?;
        let count = counts.split_once("count:")?.1.split_whitespace().next()?.parse().ok()?;
        Some((name.trim().to_string(), count))
    };
    Ok(types.lines().skip(1).map_while(count).collect())
}

#[test]
fn slurmctld_is_asked_about_protected_jobs_alone_however_many_wait() -> Result<()> {
    let site = site();
    let counted = counted(&site);
    site.cluster.output(site.cluster.command("scancel").arg(format!("--user={USER}")))?;
    let asked = counted?;
    println!("asked in {} s, with {WAITING} jobs that wait: {asked:?}", QUIET.as_secs());
    ensure!(asked.contains_key("REQUEST_STATS_INFO"), "sdiag does not count itself: {asked:?}");
    for listing in ["REQUEST_JOB_INFO", "REQUEST_JOB_USER_INFO", "REQUEST_NODE_INFO"] {
        ensure!(!asked.contains_key(listing), "{listing}: {asked:?}");
    }
    Ok(())
}

/// What slurmctld is asked for a while in which a protected job runs and others wait.
fn counted(site: &Site) -> Result<BTreeMap<String, u64>> {
    let folder = site.folder(USER, "questions")?;
    let held = format!("for job in $(seq {WAITING}); do sbatch --quiet --hold --wrap=true || exit 1; done");
    let submitted = site.user_command(USER, "bash", &folder).args(["-c", &held]).output()?;
    ensure!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
    let steps = script(site).replace("--steps 1500", "--steps 20000");
    let options = [
        "-N2",
        "--ntasks-per-node=1",
        "--ft-energy=energy",
        "--ft-energy-signal=USR1",
        "--ft-energy-done=heat.ckpt",
        "--ft-energy-interval=5s",
    ];
    let job = site.submit(USER, &folder, &options, &steps)?;
    let begun = |run: &serde_json::Value| run["total"]["checkpoints"].as_u64().filter(|count| *count >= 1);
    site.wait_report(job, "a checkpoint", super::MINUTES, begun)?;
    site.cluster.output(site.cluster.command("sdiag").arg("--reset"))?;
    std::thread::sleep(QUIET);
    asked(site)
}
