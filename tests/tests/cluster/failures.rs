//! Nodes, batch hosts, daemons, wrappers and steps die, and the run ends with the same result.

use super::{MINUTES, PROTECTED, USER, checkpoints, finished_well, kinds, lost_work_j, nodes, script, site, started};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;
use suite::Site;
use testbed::Part;

#[test]
fn a_run_whose_node_dies_is_requeued_and_ends_with_the_same_result() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "node-death", &["-N3", "-n3"])?;
    let run = site.report(job)?.context("a report")?;
    let victim = nodes(&run)[1].clone();
    site.cluster.kill_node(&victim)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 1, "{run:#}");
    assert!(lost_work_j(&run) > 0.0, "{run:#}");
    assert_eq!(run["records"].as_array().map(Vec::len), Some(2));
    let detection_s = run["failures"].as_array().and_then(|f| f.iter().find(|f| f["counts"] == true));
    let detection_s = detection_s.and_then(|f| f["detection_s"].as_f64()).context("a detection time")?;
    println!("  node death noticed after {detection_s:.1} s");
    site.cluster.revive_node(&victim)
}

#[test]
fn a_run_whose_batch_host_dies_resumes_elsewhere() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "batch-host", &["-N2", "-n2"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[0].clone();
    site.cluster.kill_node(&victim)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 1, "{run:#}");
    assert!(lost_work_j(&run) > 0.0, "{run:#}");
    site.cluster.revive_node(&victim)
}

#[test]
fn a_node_that_an_operator_has_drained_stays_drained_and_its_empty_death_is_no_failure() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "drained", &["-N1"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[0].clone();
    let drain = [format!("nodename={victim}"), "state=drain".into(), "reason=ECC errors".into()];
    let update = |site: &Site, args: &[String]| site.cluster.command("scontrol").arg("update").args(args).status();
    assert!(update(&site, &drain)?.success());
    site.cluster.kill_node(&victim)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 1, "{run:#}");
    let of = |site: &Site, field: &str| -> Result<String> {
        Ok(site.cluster.node(&victim)?.get(field).cloned().unwrap_or_default())
    };
    let reason = of(&site, "Reason")?;
    assert!(reason.starts_with("joulepoint: ") && reason.contains("ECC errors"), "{reason}");
    site.cluster.give_power(&victim)?;
    let logged = |site: &Site, text: &str| {
        Ok(fs::read_to_string(site.conf.with_file_name("controller.log"))?.contains(text).then_some(()))
    };
    site.wait("the node to be well", MINUTES, |site| logged(site, "and stays drained"))?;
    let state = of(&site, "State")?;
    assert!(state.contains("DRAIN"), "{state}");
    site.cluster.kill_node(&victim)?;
    site.wait("its second death", MINUTES, |site| logged(site, "it was out of service: that is no failure"))?;
    let resume = [format!("nodename={victim}"), "state=resume".into()];
    site.cluster.give_power(&victim)?;
    assert!(update(&site, &resume)?.success());
    site.cluster.revive_node(&victim)
}

#[test]
fn with_a_spare_node_a_run_restarts_in_place() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "spare", &["-N3", "-n3", "--no-kill", "--ft-energy-spare=1"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[1].clone();
    site.cluster.kill_node(&victim)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["records"].as_array().map(Vec::len), Some(1), "it went through the queue: {run:#}");
    assert_eq!(run["total"]["failures"], 1, "{run:#}");
    site.cluster.revive_node(&victim)
}

/// Three steps, of which the test program is the second; each of the others writes down that it ran.
fn three_steps(site: &Site) -> String {
    let side = |name: &str| format!("srun -N1 -n1 sh -c 'echo ran >> {name}; echo made' > {name}.log");
    format!("{}\n{}\n{}", side("first"), script(site), side("third"))
}

/// Kills the node of the second of three steps and waits for the end; how often the first and the third ran.
fn killed_in_the_second_step(name: &str, options: &[&str], victim: usize) -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, name)?;
    let args: Vec<&str> = PROTECTED.iter().chain(options).copied().collect();
    let job = site.submit(USER, &folder, &args, &three_steps(&site))?;
    let run = site.wait_report(job, "two checkpoints", MINUTES, |run| (checkpoints(run) >= 2).then(|| run.clone()))?;
    let victim = nodes(&run)[victim].clone();
    site.cluster.kill_node(&victim)?;
    let outcome = finished_well(&site, job, &folder);
    site.cluster.revive_node(&victim)?;
    let run = outcome?;
    assert_eq!(kinds(&run).len(), 1, "{run:#}");
    for step in ["first", "third"] {
        assert_eq!(fs::read_to_string(folder.join(step))?, "ran\n", "{run:#}");
        assert_eq!(fs::read_to_string(folder.join(format!("{step}.log")))?, "made\n");
    }
    Ok(())
}

#[test]
fn a_step_that_had_ended_is_not_run_again_in_place() -> Result<()> {
    killed_in_the_second_step("three-in-place", &["-N3", "-n3", "--no-kill", "--ft-energy-spare=1"], 1)
}

#[test]
fn a_step_that_had_ended_is_not_run_again_after_a_requeue() -> Result<()> {
    // Its output has another name on each node.
    killed_in_the_second_step("three-requeued", &["-N1", "--output=out.%N"], 0)
}

#[test]
fn a_no_kill_job_whose_batch_host_dies_is_found_and_requeued() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "no-kill-host", &["-N2", "-n2", "--no-kill"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[0].clone();
    site.cluster.kill_node(&victim)?;
    let outcome = finished_well(&site, job, &folder);
    site.cluster.revive_node(&victim)?;
    outcome.map(drop)
}

#[test]
fn when_only_slurmd_dies_the_job_goes_on_as_if_nothing_had_happened() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "slurmd-death", &["-N2", "-n2"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[1].clone();
    site.cluster.kill_slurmd(&victim)?;
    let outcome = finished_well(&site, job, &folder);
    site.cluster.revive_node(&victim)?;
    let run = outcome?;
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    assert_eq!(run["records"].as_array().map(Vec::len), Some(1), "{run:#}");
    Ok(())
}

#[test]
fn a_killed_wrapper_is_started_again_in_place() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "wrapper-death", &[])?;
    let node = nodes(&site.report(job)?.context("a report")?)[0].clone();
    let pids = site.cluster.node_pids(&node)?;
    let is_driver = |pid: &&i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|e| String::from_utf8_lossy(&e).contains("JOULEPOINT_DRIVER_ATTEMPT=0"))
            && fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|c| c.trim() == "joulepoint" || c.trim() == "exe")
    };
    let driver = *pids.iter().find(is_driver).context("no driver found")?;
    // SAFETY: a plain kill of a process of the test.
    assert_eq!(unsafe { libc::kill(driver, libc::SIGKILL) }, 0);
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    assert!(run["total"]["checkpoints"].as_u64() >= Some(3));
    Ok(())
}

#[test]
fn a_crashed_step_is_tried_again_and_does_not_count_into_the_mtbf() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "crash", &[])?;
    let node = nodes(&site.report(job)?.context("a report")?)[0].clone();
    let is_heat = |pid: &&i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "heat");
    let pids = site.cluster.node_pids(&node)?;
    let heat = *pids.iter().find(is_heat).context("no heat runs")?;
    // SAFETY: a plain kill of a process of the test.
    assert_eq!(unsafe { libc::kill(heat, libc::SIGSEGV) }, 0);
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(kinds(&run), ["step"]);
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    Ok(())
}

#[test]
fn a_damaged_checkpoint_is_never_used() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "damaged", &["-N2", "-n2"])?;
    let run = site.report(job)?.context("a report")?;
    let victim = nodes(&run)[1].clone();
    let name = run["run"].as_str().context("a run")?;
    let runs =
        site.cluster.shared().join(format!("runs-{USER}")).join(&site.cluster.name).join(name).join("checkpoints");
    site.cluster.kill_node(&victim)?;
    // Nothing is committed after the death; flip a byte of the newest.
    let newest = fs::read_dir(&runs)?
        .flatten()
        .filter(|e| e.path().join("manifest.json").exists())
        .filter_map(|e| e.file_name().to_str().and_then(|n| n.parse::<u64>().ok()))
        .max()
        .context("a checkpoint")?;
    let copy = runs.join(newest.to_string()).join("0000-heat.ckpt");
    let mut bytes = fs::read(&copy)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&copy, bytes)?;
    finished_well(&site, job, &folder)?;
    site.cluster.revive_node(&victim)
}

#[test]
fn a_step_that_is_launched_while_a_slurmd_is_away_is_launched_again() -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, "slurmd-away")?;
    let text = "srun true\ntouch first\nwhile ! [ -e away ]; do sleep 0.2; done\nsrun -N2 -n2 sh -c 'echo $SLURM_PROCID >> second'";
    let job = site.submit(USER, &folder, &["-N2", "-n2", "--exclusive", "--ft-energy"], text)?;
    site.wait("the first step's end", MINUTES, |_| Ok(folder.join("first").exists().then_some(())))?;
    let run = site.wait_report(job, "its nodes", MINUTES, |run| (nodes(run).len() == 2).then(|| run.clone()))?;
    let upgraded = nodes(&run)[1].clone();
    site.cluster.kill_slurmd(&upgraded)?;
    fs::write(folder.join("away"), "")?;
    let out = folder.join(format!("slurm-{job}.out"));
    let said = |word: &str| fs::read_to_string(&out).is_ok_and(|text| text.contains(word));
    let waits = format!("no slurmd on {upgraded}; it is launched again");
    let waited = site.wait("the word that it waits", MINUTES, |_| Ok(said(&waits).then_some(())));
    site.cluster.start_part(&Part::Slurmd(upgraded))?;
    waited?;
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], MINUTES)?;
    assert_eq!(state, "COMPLETED", "{}", fs::read_to_string(&out)?);
    let mut tasks: Vec<String> = fs::read_to_string(folder.join("second"))?.lines().map(str::to_string).collect();
    tasks.sort();
    tasks.dedup();
    assert_eq!(tasks, ["0", "1"]);
    Ok(())
}

#[test]
fn a_job_that_a_killed_node_service_left_stopped_goes_on_with_the_next_one() -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, "left-stopped")?;
    let text = format!("sh -c 'while ! [ -e end ]; do date +%s%N > tick; sleep 0.2; done' {}", folder.display());
    let job = site.submit(USER, &folder, &["-N1", "--ft-energy"], &text)?;
    let node = site.wait_report(job, "its node", MINUTES, |run| nodes(run).first().cloned())?;
    site.wait("its script", MINUTES, |_| Ok(folder.join("tick").exists().then_some(())))?;
    site.cluster.kill_node_command(&node)?;
    // What a service has noted and done that is killed between "the cluster reaches this node" and SIGCONT.
    let file = site.bin().with_file_name(format!("{node}.lease"));
    let mut lease: Value = serde_json::from_slice(&fs::read(&file)?)?;
    lease["stopped"] = json!([{ "job": job, "restart_count": 0 }]);
    fs::write(&file, lease.to_string())?;
    let stopped = Command::new("pkill").args(["-STOP", "-f"]).arg(&folder).status()?;
    assert!(stopped.success(), "its processes are stopped");
    let tick = || fs::read_to_string(folder.join("tick"));
    std::thread::sleep(Duration::from_secs(1));
    let stood = tick()?;
    site.cluster.start_part(&Part::NodeCommand(node))?;
    site.wait("its going on", MINUTES, |_| Ok((tick()? != stood).then_some(())))?;
    fs::write(folder.join("end"), "")?;
    assert_eq!(site.wait_state(job, &["COMPLETED", "FAILED", "CANCELLED"], MINUTES)?, "COMPLETED");
    Ok(())
}

#[test]
fn a_life_that_slurm_takes_for_failed_by_what_it_meant_for_the_one_before_goes_on() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "taken-for-failed", &["-N2", "-n2"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[0].clone();
    site.cluster.kill_node(&victim)?;
    site.wait_report(job, "its second life", MINUTES, |run| {
        (run["records"].as_array().map(Vec::len) == Some(2)).then_some(())
    })?;
    // As slurmctld itself does when a slurmd that is back refuses the launch of the life before.
    let call = format!(
        "import ctypes, ctypes.util; s = ctypes.CDLL(ctypes.util.find_library('slurm'), ctypes.RTLD_GLOBAL); s.slurm_init(None); \
         exit(s.slurm_complete_job({job}, 256))"
    );
    site.cluster.output(site.cluster.command("python3").args(["-c", &call]))?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["records"].as_array().map(Vec::len), Some(3), "{run:#}");
    site.cluster.revive_node(&victim)
}
