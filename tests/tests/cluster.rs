//! Joulepoint on a real Slurm: eight nodes, where nodes, daemons and wrappers really die.
//!
//! One cluster serves all tests, one after the other. Every test waits for events, and leaves all nodes alive.

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
            toml: "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n[wrapper]\nend_margin_s = 5.0\n".into(),
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

#[test]
fn options_are_in_sbatch_help() -> Result<()> {
    let site = site();
    for program in ["sbatch", "srun", "salloc"] {
        let output = site.cluster.command_as(USER, program).arg("--help").output()?;
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        for option in
            ["--ft-energy=energy|time|on|off", "--ft-energy-runtime-bound=", "--ft-energy-done=", "--ft-energy-explain"]
        {
            assert!(help.contains(option), "{program} --help lacks {option}:\n{help}");
        }
    }
    Ok(())
}

#[test]
fn invalid_options_are_refused_at_submit_each_with_its_message() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "refused")?;
    let wrong: [(&[&str], &str); 14] = [
        (&["--ft-energy=power"], "power"),
        (&["--ft-energy", "--ft-energy-runtime-bound=fast"], "fast"),
        (&["--ft-energy", "--ft-energy-io-bound=0%"], "0%"),
        (&["--ft-energy=time", "--ft-energy-energy-bound=-3"], "-3"),
        (&["--ft-energy", "--ft-energy-protocol=magic"], "magic"),
        (&["--ft-energy", "--ft-energy-engine=blcr"], "blcr"),
        (&["--ft-energy", "--ft-energy-interval=1:99"], "1:99"),
        (&["--ft-energy", "--ft-energy-policy=oracle"], "oracle"),
        (&["--ft-energy", "--ft-energy-keep=none"], "none"),
        (&["--ft-energy", "--ft-energy-signal=KILL"], "KILL"),
        (&["--ft-energy", "--ft-energy-dir=here"], "here"),
        (&["--ft-energy", "--ft-energy-memory=12Q"], "12Q"),
        (&["--ft-energy", "--ft-energy-protocol=uncoordinated"], "how many groups"),
        (&["--ft-energy-keep=2"], "no effect without --ft-energy"),
    ];
    let mut messages = Vec::new();
    for (options, word) in wrong {
        let output = site.sbatch(USER, &folder, options, "true")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{options:?} was accepted");
        assert!(said.contains(word), "{options:?}: {said}");
        let first = said.lines().next().unwrap_or("").to_string();
        assert!(!messages.contains(&first), "the same message twice: {first}");
        messages.push(first);
    }
    println!("  {} invalid options refused, such as: {}", messages.len(), messages[1]);
    Ok(())
}

#[test]
fn a_wrong_environment_twin_is_refused_by_its_name() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "twin")?;
    let mut command = site.user_command(USER, "sbatch", &folder);
    let output = command.args(["--ft-energy", "--wrap", "true"]).env("FT_ENERGY_IO_BOUND", "much").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("FT_ENERGY_IO_BOUND") && said.contains("much"), "{said}");
    Ok(())
}

#[test]
fn explain_prints_a_plan_and_submits_nothing() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "explain")?;
    let output = site.sbatch(USER, &folder, &["--ft-energy", "--ft-energy-explain"], "touch ran")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("checkpoint interval"), "{said}");
    let queue = site.cluster.command("squeue").args(["-h", "-u", USER]).output()?;
    assert!(queue.stdout.is_empty(), "something was submitted");
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
fn a_job_without_the_option_is_not_touched() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "plain")?;
    let job =
        site.submit(USER, &folder, &["-n1"], "ps -o args= $PPID > parent; env | grep -c FT_ENERGY > twins; true")?;
    site.wait_state(job, &["COMPLETED"], MINUTES)?;
    assert!(fs::read_to_string(folder.join("parent"))?.contains("slurmstepd"));
    assert_eq!(fs::read_to_string(folder.join("twins"))?.trim(), "0");
    assert!(site.report(job)?.is_none());
    Ok(())
}

#[test]
fn a_broken_site_file_does_not_stop_a_job() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "broken-conf")?;
    let good = fs::read_to_string(&site.conf)?;
    fs::write(&site.conf, "controler = 3\n[[[")?;
    let outcome = (|| {
        let job = site.submit(USER, &folder, &["-n1", "--ft-energy", "--ft-energy-done=x"], "echo done > ran")?;
        site.wait_state(job, &["COMPLETED"], MINUTES)
    })();
    fs::write(&site.conf, good)?;
    outcome?;
    assert_eq!(fs::read_to_string(folder.join("ran"))?, "done\n");
    Ok(())
}

#[test]
fn a_missing_wrapper_does_not_stop_a_job() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "no-wrapper")?;
    let program = site.conf.with_file_name("bin").join("joulepoint");
    let aside = program.with_extension("aside");
    fs::rename(&program, &aside)?;
    let outcome = (|| {
        let job = site.submit(USER, &folder, &["-n1", "--ft-energy"], "echo done > ran")?;
        site.wait_state(job, &["COMPLETED"], MINUTES)
    })();
    fs::rename(&aside, &program)?;
    outcome?;
    assert_eq!(fs::read_to_string(folder.join("ran"))?, "done\n");
    Ok(())
}

#[test]
fn the_exit_code_and_the_arguments_of_a_script_pass_through() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "exit-code")?;
    let job = site.submit(
        USER,
        &folder,
        &["-n1", "--ft-energy", "--ft-energy-done=x"],
        "echo \"$0\" > name; env > seen; exit 7",
    )?;
    site.wait_state(job, &["FAILED"], MINUTES)?;
    let show = site.cluster.command("scontrol").args(["show", "job", "-o", &job.to_string()]).output()?;
    assert!(String::from_utf8_lossy(&show.stdout).contains("ExitCode=7:0"));
    assert!(fs::read_to_string(folder.join("name"))?.contains("slurm_script"));
    assert!(!fs::read_to_string(folder.join("seen"))?.contains("JOULEPOINT_DRIVER_ATTEMPT"), "nested jobs inherit it");
    Ok(())
}

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
    killed_in_the_second_step("three-requeued", &["-N1"], 0)
}

#[test]
fn a_no_kill_job_whose_batch_host_dies_is_found_and_requeued() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "no-kill-host", &["-N2", "-n2", "--no-kill"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[0].clone();
    site.cluster.kill_node(&victim)?;
    finished_well(&site, job, &folder)?;
    site.cluster.revive_node(&victim)
}

#[test]
fn when_only_slurmd_dies_no_second_instance_runs() -> Result<()> {
    let mut site = site();
    let (job, folder) = started(&site, "slurmd-death", &["-N2", "-n2"])?;
    let victim = nodes(&site.report(job)?.context("a report")?)[1].clone();
    site.cluster.kill_slurmd(&victim)?;
    let run = finished_well(&site, job, &folder)?;
    assert_eq!(run["total"]["failures"], 1, "{run:#}");
    site.cluster.revive_node(&victim)
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
    let more = ["-t", "1", "--ft-energy-requeue=yes"];
    let mut args: Vec<&str> = PROTECTED.iter().chain(&more).copied().collect();
    args.retain(|a| !a.contains("interval"));
    // Longer than its limit of one minute, but not than two of them.
    let long = format!("srun --mpi=pmix {} --size 96 --steps {STEPS} --step-ms 55 --report 0", heat(&site));
    let job = site.submit(USER, &folder, &args, &long)?;
    site.wait_report(job, "the second record", MINUTES, second_record)?;
    let run = finished_well(&site, job, &folder)?;
    assert!(kinds(&run).contains(&"timeout".to_string()), "{run:#}");
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
fn slurm_options_in_the_script_and_twins_in_the_environment_work() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "sbatch-lines")?;
    let lines = "#SBATCH --ft-energy=time\n#SBATCH --ft-energy-done=x.cpt\nsleep 1";
    let path = folder.join("lines.sh");
    fs::write(&path, format!("#!/bin/bash\n{lines}\n"))?;
    let mut command = site.user_command(USER, "sbatch", &folder);
    let output = command.args(["--parsable", "-n1", "lines.sh"]).env("FT_ENERGY_KEEP", "5").output()?;
    let job: u32 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    site.wait_report(job, "the end", MINUTES, ended)?;
    let run = site.report(job)?.context("a report")?;
    assert_eq!(run["plan"]["objective"], "time", "{run:#}");
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

/// `joulepoint ARGS` as a user: exit code, standard output as JSON, standard error.
fn order(site: &Site, user: &str, args: &[&str]) -> Result<(Option<i32>, Value, String)> {
    let output = site.joulepoint(user, args)?;
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ok((output.status.code(), said, String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Options of a job that checkpoints on a signal, but by itself only after an hour.
fn patient() -> Vec<&'static str> {
    PROTECTED.iter().map(|a| if a.contains("interval") { "--ft-energy-interval=1:00:00" } else { a }).collect()
}

/// Submits the test program with an hour between checkpoints, and waits until it runs.
fn started_patiently(site: &Site, name: &str) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let job = site.submit(USER, &folder, &patient(), &script(site))?;
    site.wait("the program at work", MINUTES, |site| {
        let steps = site.cluster.command("squeue").args(["-h", "-s", "-j", &job.to_string()]).output()?;
        let runs = String::from_utf8_lossy(&steps.stdout).contains(&format!("{job}.0"));
        Ok((runs && site.report(job)?.is_some()).then_some(()))
    })?;
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
    assert_eq!(told, format!("completed|COMPLETED|0:0|{}\n", nodes(&run).len()));
    Ok(())
}
