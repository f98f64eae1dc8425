//! What ends a job and is no failure: cancel, requeue, preemption, the walltime, an order to leave.

use super::{
    MINUTES, PROTECTED, STEPS, USER, assert_energy_adds_up, at_work, checkpoints, ended, finished_well, heat, kinds,
    nodes, patient, script, second_record, site, start_requeued, started,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use suite::Site;
use testbed::Part;

#[test]
fn a_cancelled_job_is_no_failure() -> Result<()> {
    let site = site();
    let (job, _) = started(&site, "cancelled", &[])?;
    site.cluster.command_as(USER, "scancel").arg(job.to_string()).status()?;
    let state = site.wait_report(job, "the end", MINUTES, ended)?;
    assert_eq!(state, "cancelled");
    let run = site.report(job)?.context("a report")?;
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    assert_energy_adds_up(&run);
    Ok(())
}

#[test]
fn a_term_that_ends_no_job_is_for_its_script_and_checkpoints_go_on() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "term")?;
    let text = "trap 'echo got >> signals' TERM\nn=0; while ! [ -e end ]; do n=$((n + 1)); echo $n > new; mv new kept; sleep 0.2; done";
    let args = ["--ft-energy", "--ft-energy-done=kept", "--ft-energy-interval=2s"];
    let job = site.submit(USER, &folder, &args, text)?;
    let made = |least| move |run: &Value| (checkpoints(run) >= least).then(|| checkpoints(run));
    let before = site.wait_report(job, "a checkpoint", MINUTES, made(1))?;
    site.cluster.command_as(USER, "scancel").args(["--batch", "--signal=TERM", &job.to_string()]).status()?;
    site.wait("the signal", MINUTES, |_| Ok(folder.join("signals").exists().then_some(())))?;
    site.wait_report(job, "checkpoints after it", MINUTES, made(before + 2))?;
    fs::write(folder.join("end"), "")?;
    assert_eq!(site.wait_report(job, "the end", MINUTES, ended)?, "completed");
    assert_eq!(fs::read_to_string(folder.join("signals"))?, "got\n");
    Ok(())
}

#[test]
fn a_requeued_job_resumes_and_counts_no_failure() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "requeued", &[])?;
    site.cluster.command_as(USER, "scontrol").args(["requeue", &job.to_string()]).status()?;
    start_requeued(&site, job)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    Ok(())
}

#[test]
fn a_job_that_has_completed_and_is_requeued_begins_anew_and_says_so() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "again")?;
    let script = "rm -f kept log; for i in $(seq 12); do echo $i >> log; cp log new; mv new kept; sleep 0.5; done";
    let args = ["--ft-energy", "--ft-energy-done=kept", "--ft-energy-interval=1s", "--open-mode=append"];
    let job = site.submit(USER, &folder, &args, script)?;
    site.wait_state(job, &["COMPLETED"], MINUTES)?;
    site.cluster.command_as(USER, "scontrol").args(["requeue", &job.to_string()]).status()?;
    site.wait_state(job, &["PENDING"], MINUTES)?;
    let id = format!("jobid={job}");
    site.cluster.command("scontrol").args(["update", &id, "StartTime=now+2seconds"]).status()?;
    site.wait_state(job, &["RUNNING"], MINUTES)?;
    site.wait_state(job, &["COMPLETED"], MINUTES)?;
    let log = fs::read_to_string(folder.join("log"))?;
    assert_eq!(log.lines().count(), 12, "{log}");
    let told = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(told.contains("had completed") && !told.contains("goes on from checkpoint"), "{told}");
    Ok(())
}

#[test]
fn a_requeued_job_whose_run_cannot_be_found_is_held_and_not_begun_anew() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "hidden", &["--open-mode=append"])?;
    let id = format!("jobid={job}");
    let scontrol = |args: &[&str]| site.cluster.command("scontrol").args(args).status();
    let shown = |what: &str| -> Result<()> {
        site.wait(what, MINUTES, |site| {
            let show = site.cluster.command("scontrol").args(["show", "job", "-o", &job.to_string()]).output()?;
            Ok(String::from_utf8_lossy(&show.stdout).contains(what).then_some(()))
        })
    };
    let runs = site.cluster.shared().join(format!("runs-{USER}"));
    let run = glob::glob(&runs.join(format!("*/{job}.*")).to_string_lossy())?.next().context("a run")??;
    scontrol(&["requeue", &job.to_string()])?;
    shown("Reason=BeginTime")?;
    fs::rename(&run, runs.join("away"))?;
    scontrol(&["update", &id, "StartTime=now+2seconds"])?;
    let held = shown("Priority=0 ");
    fs::rename(runs.join("away"), &run)?;
    held?;
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(said.contains("does not hold it") && !said.contains("begins anew"), "{said}");
    scontrol(&["release", &job.to_string()])?;
    scontrol(&["update", &id, "StartTime=now+2seconds"])?;
    finished_well(&site, job, &folder)?;
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(said.contains("goes on from checkpoint"), "{said}");
    Ok(())
}

#[test]
fn what_a_killed_slurmstepd_left_keeps_no_later_life_from_being_launched() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "left", &["-N2", "-n2"])?;
    let nodes = nodes(&site.report(job)?.context("a report")?);
    site.cluster.command_as(USER, "scontrol").args(["requeue", &job.to_string()]).status()?;
    site.wait_state(job, &["PENDING"], MINUTES)?;
    let spools = nodes.iter().map(|n| site.cluster.dir.join(format!("spool/{n}")));
    let left: Vec<[PathBuf; 2]> =
        spools.map(|s| [s.join(format!("stepd.slurm.pmix.{job}.0")), s.join(format!("pmix.{job}.0"))]).collect();
    for [socket, made] in &left {
        drop(UnixListener::bind(socket).with_context(|| socket.display().to_string())?);
        fs::create_dir(made).with_context(|| made.display().to_string())?;
    }
    start_requeued(&site, job)?;
    finished_well(&site, job, &folder)?;
    assert!(left.iter().flatten().all(|path| !path.exists()), "of the nodes that it had");
    Ok(())
}

#[test]
fn a_preempted_job_resumes_and_counts_no_failure() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "preempted", &["-w", "n8"])?;
    let urgent = site.folder("jpbob", "urgent")?;
    let other = site.submit("jpbob", &urgent, &["-p", "urgent", "-w", "n8", "-n1", "--exclusive"], "true")?;
    site.wait_state(other, &["COMPLETED"], MINUTES)?;
    start_requeued(&site, job)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(kinds(&run), ["preempted"]);
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    Ok(())
}

#[test]
fn before_the_walltime_ends_a_run_checkpoints_and_is_requeued_if_asked() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "walltime")?;
    let more = ["-t", "20", "--ft-energy-requeue=yes", "--ft-energy-interval=8s"];
    let mut args: Vec<&str> = PROTECTED.iter().filter(|a| !a.contains("interval")).copied().collect();
    args.extend(more);
    // Longer than its limit of one minute, but not than two of them.
    let long = format!("srun --mpi=pmix {} --size 96 --steps {STEPS} --step-ms 55 --report 0", heat(&site));
    let job = site.submit(USER, &folder, &args, &long)?;
    site.wait_report(job, "a checkpoint", MINUTES, |run| (checkpoints(run) > 0).then_some(()))?;
    // The limit that counts is the one that the job has by then.
    let id = format!("jobid={job}");
    site.cluster.command_as(USER, "scontrol").args(["update", &id, "TimeLimit=1"]).status()?;
    site.wait_report(job, "the second record", MINUTES, second_record)?;
    let run = finished_well(&site, job, &folder)?;
    assert!(kinds(&run).contains(&"timeout".to_string()), "{run:#}");
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    Ok(())
}

#[test]
fn a_step_without_a_handler_outlives_the_checkpoints_of_another() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "deaf")?;
    let args: Vec<&str> = PROTECTED.iter().map(|a| if *a == "-n1" { "-n2" } else { a }).collect();
    let program = script(&site).replacen("srun ", "srun -n1 --exact ", 1);
    let job =
        site.submit(USER, &folder, &args, &format!("srun -n1 --exact sleep 20 &\n{program}\nwait $!; echo deaf $?"))?;
    let run = finished_well(&site, job, &folder)?;
    assert!(checkpoints(&run) >= 2, "{run:#}");
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(said.lines().any(|line| line == "deaf 0"), "{said}");
    Ok(())
}

/// `joulepoint ARGS` as a user: exit code, standard output as JSON, standard error.
fn order(site: &Site, user: &str, args: &[&str]) -> Result<(Option<i32>, Value, String)> {
    let output = site.joulepoint(user, args)?;
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ok((output.status.code(), said, String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Submits the test program with an hour between checkpoints, and waits until it runs.
fn started_patiently(site: &Site, name: &str) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let job = site.submit(USER, &folder, &patient(), &script(site))?;
    at_work(site, job)?;
    Ok((job, folder))
}

#[test]
fn a_checkpoint_is_made_on_order_and_only_for_who_may() -> Result<()> {
    let site = site();
    let (job, folder) = started_patiently(&site, "ordered")?;
    let id = job.to_string();
    for verb in ["checkpoint", "vacate", "disable"] {
        let (code, _, text) = order(&site, "jpbob", &[verb, &id])?;
        assert_eq!(code, Some(1));
        assert!(text.contains("of yours is known here"), "{text}");
    }
    let (code, made, text) = order(&site, USER, &["checkpoint", "--json", &id])?;
    assert_eq!(code, Some(0), "{made} {text}");
    let path = made["checkpoint"]["path"].as_str().context("a path")?;
    assert!(Path::new(path).join("manifest.json").exists(), "{path}");
    assert!(made["checkpoint"]["bytes"].as_u64() > Some(0));
    assert_eq!(order(&site, USER, &["disable", &id])?.0, Some(0));
    let (code, refused, _) = order(&site, USER, &["checkpoint", "--json", &id])?;
    assert_eq!((code, refused["state"].as_str()), (Some(1), Some("failed")), "{refused}");
    // The second one is an operator's: root.
    assert_eq!(order(&site, "root", &["enable", &id])?.0, Some(0));
    assert_eq!(order(&site, "root", &["checkpoint", &id])?.0, Some(0));
    let (code, restarted, _) = order(&site, USER, &["restart", "--json", &id])?;
    assert_eq!(code, Some(0), "{restarted}");
    assert_eq!(restarted["text"], "it starts again from checkpoint 2", "{restarted}");
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(checkpoints(&run), 2, "{run:#}");
    assert_eq!((run["total"]["failures"].clone(), run["records"].as_array().map(Vec::len)), (0.into(), Some(1)));
    let (code, _, text) = order(&site, USER, &["checkpoint", &id])?;
    assert_eq!(code, Some(1), "the job is over: {text}");
    Ok(())
}

#[test]
fn a_vacated_job_frees_its_nodes_and_resumes_from_its_checkpoint() -> Result<()> {
    let site = site();
    let (job, folder) = started_patiently(&site, "vacated")?;
    let (code, made, text) = order(&site, USER, &["vacate", "--json", &job.to_string()])?;
    assert_eq!(code, Some(0), "{made} {text}");
    start_requeued(&site, job)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["records"].as_array().map(Vec::len), Some(2), "{run:#}");
    assert_eq!(run["total"]["failures"], 0, "{run:#}");
    Ok(())
}

/// Waits until slurmctld has written its jobs down since `changed`.
fn state_is_kept(site: &Site, changed: SystemTime) -> Result<()> {
    site.wait("the state on disk", MINUTES, |site| {
        let kept = fs::metadata(site.cluster.dir.join(JOBS)).and_then(|file| file.modified());
        Ok(kept.is_ok_and(|at| at > changed).then_some(()))
    })
}

/// Where slurmctld keeps its jobs.
const JOBS: &str = "state/job_state";

/// Vacates a job while slurmctld is dying; it goes on from its checkpoint when slurmctld is there again, though that may have
/// `forgotten` all since the job was submitted.
fn vacated_while_slurmctld_dies(name: &str, forgotten: bool) -> Result<String> {
    let site = site();
    let folder = site.folder(USER, name)?;
    // Its checkpoint takes longer than slurmctld needs to die.
    let script = r#"n=$(cat state 2> /dev/null || echo 0); echo "from $n"
        trap 'sleep 6; echo $n > state.new; mv state.new state' USR1
        until [ -e enough ]; do sleep 0.1; n=$((n + 1)); done"#;
    let asked = ["--ft-energy-interval=1:00:00", "--ft-energy-signal=USR1", "--ft-energy-done=state"];
    let submitted = SystemTime::now();
    let job = site.submit(USER, &folder, &[&["-n1", "--hold", "--ft-energy"], &asked[..]].concat(), script)?;
    let scontrol = |words: &[&str]| site.cluster.command("scontrol").args(words).output();
    state_is_kept(&site, submitted)?;
    let pending = fs::read(site.cluster.dir.join(JOBS))?;
    let id = job.to_string();
    scontrol(&["release", &id])?;
    let output = || fs::read_to_string(folder.join(format!("slurm-{job}.out"))).unwrap_or_default();
    site.wait("the script", MINUTES, |_| Ok(output().contains("from 0").then_some(())))?;
    site.wait_report(job, "its run", MINUTES, |run| (run["state"] == "running").then_some(()))?;
    let begun = SystemTime::now();
    scontrol(&["update", &format!("JobId={job}"), "Comment=begun"])?;
    state_is_kept(&site, begun)?;
    let (code, _, text) = order(&site, USER, &["vacate", "--no-wait", &id])?;
    site.cluster.kill_part(&Part::Slurmctld)?;
    if forgotten {
        fs::write(site.cluster.dir.join(JOBS), pending)?;
    }
    let waits = site.wait("the job to wait for Slurm", MINUTES, |_| {
        Ok(output().contains("the job goes back into the queue when it does").then_some(()))
    });
    site.cluster.start_part(&Part::Slurmctld)?;
    assert_eq!(code, Some(0), "{text}");
    waits.with_context(output)?;
    if forgotten {
        // It is held again, as it was.
        site.wait("slurmctld", MINUTES, |_| Ok(scontrol(&["release", &id])?.status.success().then_some(())))?;
    } else {
        start_requeued(&site, job)?;
    }
    let goes_on = |_: &Site| Ok(output().contains("goes on from checkpoint 1").then_some(()));
    site.wait("its second life", MINUTES, goes_on).with_context(output)?;
    fs::write(folder.join("enough"), "")?;
    site.wait_state(job, &["COMPLETED"], MINUTES)?;
    Ok(output())
}

#[test]
fn a_job_that_is_to_go_back_while_slurmctld_is_away_waits_for_it() -> Result<()> {
    let said = vacated_while_slurmctld_dies("slurmctld-away", false)?;
    assert!(said.contains("Slurm answers again"), "{said}");
    Ok(())
}

/// This slurmctld had not kept that the job had started: it starts it once more, as if for the first time.
#[test]
fn a_job_whose_start_slurmctld_has_forgotten_goes_on() -> Result<()> {
    let said = vacated_while_slurmctld_dies("slurmctld-forgets", true)?;
    assert!(said.contains("Slurm has forgotten that this job had started"), "{said}");
    Ok(())
}

#[test]
fn a_job_that_is_cancelled_right_after_it_was_vacated_does_not_come_back() -> Result<()> {
    let site = site();
    let (job, _) = started_patiently(&site, "vacated-cancelled")?;
    let (code, made, text) = order(&site, USER, &["vacate", "--json", &job.to_string()])?;
    assert_eq!(code, Some(0), "{made} {text}");
    let cancelled = site.cluster.command_as(USER, "scancel").arg(job.to_string()).output()?;
    assert!(cancelled.status.success(), "{cancelled:?}");
    let run = site.wait_report(job, "the end", MINUTES, |run| (run["state"] == "cancelled").then(|| run.clone()))?;
    // Longer than the controller takes to start a requeued job.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(
        site.wait_state(job, &["CANCELLED", "PENDING", "RUNNING", "REQUEUED"], MINUTES)?,
        "CANCELLED",
        "{run:#}"
    );
    Ok(())
}
