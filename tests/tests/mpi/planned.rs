//! One option, no word of groups: what an earlier run has shown of a program's messages decides whether its nodes go back
//! one by one.

use super::coordinated::{node, with_checkpoints};
use super::{MINUTES, USER, built, ended, node_of, restarts, said, site};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use suite::Site;

/// Ranks in a ring that compute for long and tell their neighbours little.
const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, steps = atoi(words[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double mine = rank + 1, theirs = 0, sum = 0;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < 3000000; i++) mine = 1.0 / (1.0 + mine * mine) + 0.5;
        MPI_Sendrecv(&mine, 1, MPI_DOUBLE, (rank + 1) % ranks, 1, &theirs, 1, MPI_DOUBLE, (rank + ranks - 1) % ranks, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mine = 0.7 * mine + 0.3 * theirs;
    }
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %.17g\n", sum);
    MPI_Finalize();
    return 0;
}
"#;

const STEPS: u32 = 700;

/// What a user adds who has a node to spare.
const OPTIONS: [&str; 7] = [
    "-N3",
    "--exclusive",
    "--no-kill",
    "--ft-energy=energy",
    "--ft-energy-spare=1",
    "--ft-energy-interval=5s",
    "--job-name=ring",
];

/// The cluster's nodes as those of Aupy15, whose nodes computed at a known power.
fn import(site: &Site) -> Result<()> {
    let mut calibration = planner::published::calibration(100.0).stored.calibration.clone();
    calibration.fingerprint = hardware::facts::look("n1", &Default::default(), "mpicc")?.fingerprint;
    calibration.at_s = 1.0;
    calibration.power.idle_w = ["n1", "n2", "n3", "n4"].map(|n| (n.to_string(), 100.0)).into();
    let file = site.conf.with_file_name("imported.json");
    fs::write(&file, serde_json::to_string(&calibration)?)?;
    let output = site.joulepoint("root", &["calibrate", "import", &file.display().to_string()])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn plan(site: &Site, name: &str) -> Result<Value> {
    let output = site.joulepoint(USER, &["plan", "-N3", "-n4", "-J", name, "-o", "ft-energy-spare=1", "--json"])?;
    serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn nodes_go_back_one_by_one_as_soon_as_an_earlier_run_has_shown_that_it_pays() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    import(&site)?;
    let program = built(&site, "ring", RING)?;
    let script = format!("srun --mpi=pmix -n4 {program} {STEPS}\necho ended $?");
    let sum_of = |said: &str| said.lines().find(|line| line.starts_with("sum ")).map(str::to_string);

    let unknown = plan(&site, "ring")?;
    ensure!(unknown["protocol"] == "coordinated" && unknown.to_string().contains("no earlier run"), "{unknown:#}");
    let folder = site.folder(USER, "ring-first")?;
    let job = site.submit(USER, &folder, &OPTIONS, &script)?;
    with_checkpoints(&site, &folder, job, 2)?;
    let first = ended(&site, &folder, job)?;
    let right = sum_of(&said(&folder, job)).with_context(|| said(&folder, job))?;
    ensure!(first["plan"]["protocol"] == "coordinated", "{first:#}");

    let known = plan(&site, "ring")?;
    ensure!(known["protocol"] == "uncoordinated" && known["options"]["ft-energy-groups"] == "2", "{known:#}");
    let folder = site.folder(USER, "ring-second")?;
    let job = site.submit(USER, &folder, &OPTIONS, &script)?;
    let run = with_checkpoints(&site, &folder, job, 3)?;
    let lost = node_of(&run, 1).context("a node of group 1")?;
    site.cluster.kill_node(&lost)?;
    let again = |run: &Value| restarts(run).first().map(|again| (*again).to_string());
    let again = site.wait_report(job, "a group's restart", MINUTES, again).with_context(|| said(&folder, job))?;
    ensure!(again.starts_with("group 1 ") && again.contains("checkpoint"), "{again}");
    site.cluster.revive_node(&lost)?;

    // What the plan has set holds after a requeue, too: a checkpoint of groups is none of the whole.
    let made = run["total"]["checkpoints"].as_u64().unwrap_or(0);
    with_checkpoints(&site, &folder, job, made + 3)?;
    let host = node(&run, 0)?;
    site.cluster.kill_node(&host)?;
    let run = ended(&site, &folder, job);
    site.cluster.revive_node(&host)?;
    let (run, told) = (run?, said(&folder, job));
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    ensure!(told.matches("planned as uncoordinated").count() == 2 && told.contains("ended 0"), "{told}");
    ensure!(!told.contains("begins anew"), "{told}");
    ensure!(sum_of(&told).as_ref() == Some(&right), "{told} and not {right}");
    println!("ring: {} checkpoints, {again}", run["total"]["checkpoints"]);
    Ok(())
}
