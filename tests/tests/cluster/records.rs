//! What is kept of a run, for whom, and what is told of it in Slurm.

use super::{MINUTES, USER, checkpoints, ended, finished_well, lost_work_j, nodes, site, started};
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;
use suite::Site;

#[test]
fn a_quiet_run_is_accounted_and_noted_in_slurm() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "quiet", &["--comment=kept"])?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 0);
    assert_eq!(lost_work_j(&run), 0.0);
    assert!(run["plan"]["interval_s"].as_f64().is_some());
    let comment = site.wait("AdminComment in sacct", MINUTES, |site| {
        let output = site
            .cluster
            .command("sacct")
            .args(["-X", "-n", "-P", "-o", "AdminComment", "-j", &job.to_string()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        Ok((!text.is_empty()).then_some(text))
    })?;
    let comment: Value = serde_json::from_str(&comment).context(comment)?;
    assert!(comment["joules"].as_f64().is_some_and(|j| j > 0.0));
    Ok(())
}

#[test]
fn the_doctor_finds_a_real_site_sound_and_what_is_then_broken() -> Result<()> {
    let mut site = site();
    let faults = |site: &Site| -> Result<Vec<String>> {
        let output = site.joulepoint(USER, &["doctor", "--side=login", "--json"])?;
        let said: Value = serde_json::from_slice(&output.stdout)?;
        let findings = said["findings"].as_array().context("findings")?.clone();
        let faults = findings.into_iter().filter(|f| f["level"] == "fault");
        Ok(faults.map(|f| format!("{}: {}", f["check"], f["found"])).collect())
    };
    assert_eq!(faults(&site)?, Vec::<String>::new());
    site.kill_controller()?;
    let broken = faults(&site)?;
    site.start_controller()?;
    assert!(broken.len() == 1 && broken[0].starts_with("\"controller\""), "{broken:?}");
    Ok(())
}

#[test]
fn records_made_while_the_controller_is_away_arrive_once() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "controller-away", &[])?;
    let before = checkpoints(&site.report(job)?.context("a report")?);
    site.kill_controller()?;
    let run = site.cluster.shared().join(format!("runs-{USER}"));
    let committed = |site: &Site| -> Result<usize> {
        let text = Command::new("grep").args(["-rhc", "\"event\":\"committed\""]).arg(&run).output()?;
        let _ = site;
        Ok(String::from_utf8_lossy(&text.stdout).lines().filter_map(|l| l.trim().parse::<usize>().ok()).sum())
    };
    let then = committed(&site)?;
    site.wait("a checkpoint without the controller", MINUTES, |site| Ok((committed(site)? > then).then_some(())))?;
    site.start_controller()?;
    let run = finished_well(&site, job, &folder)?;
    assert!(checkpoints(&run) > before);
    let numbers: Vec<u64> =
        run["checkpoints"].as_array().into_iter().flatten().filter_map(|c| c["number"].as_u64()).collect();
    let mut once = numbers.clone();
    once.dedup();
    assert_eq!(numbers, once);
    Ok(())
}

#[test]
fn another_user_cannot_read_a_run() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "private")?;
    let job = site.submit(USER, &folder, &["-n1", "--ft-energy", "--ft-energy-done=x"], "true")?;
    site.wait_report(job, "the end", MINUTES, ended)?;
    let id = job.to_string();
    let of = |user: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&site.joulepoint(user, &["report", "-j", &id, "--json"])?.stdout)
            .unwrap_or(Value::Null))
    };
    assert_eq!(of(USER)?.as_array().map(Vec::len), Some(1));
    assert_eq!(of("jpbob")?.as_array().map_or(0, Vec::len), 0);
    Ok(())
}

#[test]
fn a_clusters_own_node_failures_are_simulated() -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, "own-history")?;
    for _ in 0..3 {
        let job = site.submit(USER, &folder, &["-N1", "--no-requeue"], "sleep 600")?;
        site.wait_state(job, &["RUNNING"], MINUTES)?;
        let victim = site.cluster.job(job)?.remove("NodeList").context("a node")?;
        site.cluster.kill_node(&victim)?;
        // Slurm takes longer to find out, and nobody asked us to protect the job.
        let down = [format!("nodename={victim}"), "state=down".to_string(), "reason=dead".to_string()];
        assert!(site.cluster.command("scontrol").arg("update").args(down).status()?.success());
        site.wait_state(job, &["NODE_FAIL"], MINUTES)?;
        site.cluster.revive_node(&victim)?;
    }
    for source in ["--history", "--sacct"] {
        let answer = site.wait(source, MINUTES, |site| {
            let output = site.joulepoint(USER, &["simulate", source, "--policy", "young", "--json"])?;
            Ok(serde_json::from_slice::<Value>(&output.stdout).ok())
        })?;
        let gaps = answer["rows"][0]["failures"].as_f64().context("failures")?;
        assert!(gaps >= 2.0, "{source}: {answer:#}");
    }
    Ok(())
}

#[test]
fn a_sites_own_comment_is_kept_and_the_report_is_joined_with_sacct() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "commented", &[])?;
    let id = job.to_string();
    let update = ["update", &format!("JobId={job}"), "AdminComment=ticket 5, rack {3}"];
    assert!(site.cluster.command("scontrol").args(update).status()?.success());
    let run = finished_well(&site, job, &folder)?;
    let comment = site.cluster.command("sacct").args(["-X", "-n", "-P", "-o", "AdminComment", "-j", &id]).output()?;
    let comment = String::from_utf8(comment.stdout)?;
    let ours = comment.strip_prefix("ticket 5, rack {3} ").with_context(|| comment.clone())?;
    assert!(serde_json::from_str::<Value>(ours)?["joules"].as_f64().is_some_and(|j| j > 0.0));
    let fields = ["report", "-j", &id, "-n", "-P", "-o", "state,slurmstate,exitcode,nnodes"];
    let told = String::from_utf8(site.joulepoint("root", &fields)?.stdout)?;
    assert_eq!(told, format!("COMPLETED|COMPLETED|0:0|{}\n", nodes(&run).len()));
    Ok(())
}
