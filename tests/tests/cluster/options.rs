//! What `sbatch` accepts, refuses with a reason, and leaves alone.

use super::{MINUTES, USER, ended, site};
use anyhow::{Context, Result};
use std::fs;

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
    assert!(output.status.success() && said.lines().count() == 6 && said.contains("between checkpoints"), "{said}");
    let output = site.sbatch(USER, &folder, &["--ft-energy", "--ft-energy-explain=full"], "touch ran")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("checkpoint interval") && said.contains("not taken"), "{said}");
    let queue = site.cluster.command("squeue").args(["-h", "-u", USER]).output()?;
    assert!(queue.stdout.is_empty(), "something was submitted");
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
