//! A program of the real SCR, on real clusters: its node dies, and its walltime ends.
//!
//! SCR's sources lie beside the repository (`../shared/sources`), or every test says that it skipped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Duration;
use suite::real::totals;
use suite::{Site, real};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(300);

/// Two nodes whose users find SCR's program, and its library below a folder that is not in any `PATH`.
fn site() -> Option<MutexGuard<'static, Site>> {
    real::shared("scr", 2, real::scr)
}

fn program(site: &Site, arguments: &str) -> String {
    let scr = site.conf.with_file_name("scr");
    let library = scr.join("lib");
    format!(
        "export LD_LIBRARY_PATH={}\nmpirun --oversubscribe -n 2 {} {arguments}",
        library.display(),
        scr.join("bin/steps").display()
    )
}

/// Starts the program under nothing but the one option and `more`.
fn submitted(site: &Site, name: &str, more: &[&str], script: &str) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let options = ["-N1", "-n2", "--ft-energy", "--ft-energy-interval=4s", "--open-mode=append", "--output=out"];
    let job = site.submit(USER, &folder, &[&options, more].concat(), script)?;
    Ok((job, folder))
}

fn ended(run: &Value) -> Option<Value> {
    ["completed", "failed", "timeout"].iter().any(|state| run["state"] == *state).then(|| run.clone())
}

/// What the program says when nothing disturbs it.
fn undisturbed(site: &Site, arguments: &str) -> Result<Vec<String>> {
    let folder = site.folder(USER, "undisturbed")?;
    let script = program(site, arguments);
    let job = site.submit(USER, &folder, &["-N1", "-n2", "--output=out"], &script)?;
    let state = site.wait_state(job, &["COMPLETED", "FAILED"], MINUTES)?;
    ensure!(state == "COMPLETED", "{}", fs::read_to_string(folder.join("out"))?);
    totals(&folder)
}

#[test]
fn a_program_of_scr_goes_on_from_its_own_checkpoint_and_the_report_knows_its_size_and_time() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let expected = undisturbed(&site, "250 0")?;
    let (job, folder) = submitted(&site, "killed", &[], &program(&site, "250 0.1"))?;
    let many = |run: &Value| (run["total"]["checkpoints"].as_u64() >= Some(2)).then(|| run.clone());
    let run = site.wait_report(job, "two checkpoints", MINUTES, many)?;
    let node = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
    site.cluster.kill_node(&node)?;
    let run = site.wait_report(job, "the end", MINUTES, ended)?;
    let said = fs::read_to_string(folder.join("out"))?;
    assert_eq!(run["state"], "completed", "{said}{run:#}");
    assert_eq!(totals(&folder)?, expected);
    assert!(said.contains("from the start") && said.contains(": ok 1, step "), "{said}");
    assert!(said.contains("protected by engine scr"), "{said}");
    let checkpoints = run["checkpoints"].as_array().context("checkpoints")?;
    // Two ranks write a hundred thousand bytes each.
    let is_right = |c: &Value| c["bytes"].as_u64() > Some(200_000) && c["still_s"].as_f64() > Some(0.0);
    assert!(checkpoints.iter().all(is_right), "{checkpoints:?}");
    Ok(())
}

#[test]
fn a_program_that_never_asks_to_exit_is_halted_before_its_walltime_ends_and_goes_on_in_the_next() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let expected = undisturbed(&site, "700 0")?;
    let script = format!("{}\necho after $?", program(&site, "700 0.1 NO_EXIT"));
    let (job, folder) = submitted(&site, "walltime", &["-t1", "--ft-energy-requeue=yes"], &script)?;
    let run = site.wait_report(job, "the end", MINUTES, ended)?;
    let said = fs::read_to_string(folder.join("out"))?;
    assert_eq!(run["state"], "completed", "{said}{run:#}");
    assert_eq!(totals(&folder)?, expected);
    assert!(run["records"].as_array().is_some_and(|records| records.len() >= 2), "{run:#}");
    let after: Vec<&str> = said.lines().filter(|line| line.starts_with("after")).collect();
    assert_eq!(after, ["after 0"], "the script does not go on after a halt: {said}");
    Ok(())
}
