//! The controller dies on a real Slurm, and its standby takes over: no run is touched, and a node that dies then is noticed.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::{Site, Wanted};
use testbed::PrivateMariadb;

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(180);

/// Counts for a while, and keeps how far it is.
const SCRIPT: &str = "n=0; [ ! -e kept ] || n=$(cat kept)
while [ $n -lt 120 ]; do n=$((n + 1)); sleep 0.5; echo $n > new; mv new kept; done
echo $n > result";

/// Waits until the controller that leads has heard of all nodes; how long that took.
fn until_heard(site: &Site, nodes: usize) -> Result<Duration> {
    let begun = Instant::now();
    site.wait("beats at the controller that leads", MINUTES, |site| {
        let heard = format!("joulepoint_nodes {nodes}");
        Ok(site.metrics()?.lines().any(|line| line.trim() == heard).then(|| begun.elapsed()))
    })
}

#[test]
fn a_standby_takes_over_and_touches_no_run_until_a_node_dies() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-standby-{}", std::process::id()));
    let database = tempfile::tempdir()?;
    let server = PrivateMariadb::start(database.path())?;
    let wanted = Wanted { nodes: 3, standby: true, store: Some(server.database("jp")?.into()), ..Wanted::default() };
    let mut site = Site::start(&dir, &wanted, &mut |text| println!("  {text}"))?;
    site.launch_standby()?;
    let folder = site.folder(USER, "standby")?;
    let job =
        site.submit(USER, &folder, &["--ft-energy", "--ft-energy-done=kept", "--ft-energy-interval=2s"], SCRIPT)?;
    let checkpoints = |run: &serde_json::Value| run["total"]["checkpoints"].as_u64().unwrap_or(0);
    let before = site.wait_report(job, "a checkpoint", MINUTES, |run| Some(checkpoints(run)).filter(|n| *n > 0))?;

    site.kill_controller()?;
    println!("  the standby has heard of all nodes after {:.1} s", until_heard(&site, 3)?.as_secs_f64());
    // What the driver told nobody meanwhile is told now, and no death was seen that was none.
    let run =
        site.wait_report(job, "more checkpoints", MINUTES, |run| (checkpoints(run) > before + 1).then(|| run.clone()))?;
    ensure!(run["total"]["failures"] == 0 && run["records"].as_array().is_some_and(|r| r.len() == 1), "{run:#}");
    ensure!(site.metrics()?.contains("joulepoint_nodes 3"), "{}", site.metrics()?);

    site.launch_controller()?;
    site.wait("the first controller as the standby", MINUTES, |site| {
        let health = site.health()?;
        Ok((health["parts"]["standby"]["ok"] == true).then_some(()))
    })?;
    let victim = run["records"][0]["nodes"][0].as_str().context("a node")?.to_owned();
    site.cluster.kill_node(&victim)?;
    let run = site.wait_report(job, "the end", MINUTES, |run| (run["state"] == "completed").then(|| run.clone()))?;
    ensure!(run["total"]["failures"] == 1, "{run:#}");
    ensure!(fs::read_to_string(folder.join("result"))? == "120\n", "{run:#}");
    let detection_s = run["failures"][0]["detection_s"].as_f64().context("a detection")?;
    println!("  the standby noticed the node's death after {detection_s:.1} s");
    drop(site);
    Ok(fs::remove_dir_all(&dir)?)
}
