//! A program of the real VELOC, in jobs whose nodes die: `make engines`.
//!
//! VELOC's sources lie beside the repository (`../shared/sources`), or every test says that it skipped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::sync::MutexGuard;
use std::time::Duration;
use suite::real::totals;
use suite::{Site, real};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(300);

/// A site whose users find VELOC's program and library in a folder that is not in any `PATH`.
fn site() -> Option<MutexGuard<'static, Site>> {
    real::shared("veloc", 3, real::veloc)
}

/// A script that writes the program's configuration and starts the program. The daemon that flushes in the background would go on
/// after the job, with its configuration, since Slurm tracks no daemons here.
fn script(site: &Site, launcher: &str, mode: &str, steps: &str) -> String {
    let veloc = site.conf.with_file_name("veloc");
    let (library, bin) = (veloc.join("lib"), veloc.join("bin"));
    format!(
        "trap 'pkill -U $UID veloc-backend' EXIT\nexport LD_LIBRARY_PATH={} VELOC_BIN={}\ncat >veloc.cfg <<EOF\nscratch = /tmp/veloc-$SLURM_JOB_ID\n\
         persistent = $PWD/persistent\nmeta = $PWD/meta\nmode = {mode}\nmax_versions = 2\nchksum = true\nEOF\n\
         {launcher} {} veloc.cfg {steps}",
        library.display(),
        bin.display(),
        bin.join("steps").display()
    )
}

/// The script, undisturbed and with a node that dies after two checkpoints while VELOC writes the next: the same result.
fn goes_on(name: &str, size: &[&str], launcher: &str, mode: &str) -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let plain = site.folder(USER, &format!("{name}-plain"))?;
    let options = [size, &["--output=out"]].concat();
    let job = site.submit(USER, &plain, &options, &script(&site, launcher, mode, "200 0"))?;
    site.wait_state(job, &["COMPLETED", "FAILED"], MINUTES)?;
    let expected = totals(&plain)?;
    let folder = site.folder(USER, name)?;
    let options = [size, &["--output=out", "--open-mode=append", "--ft-energy"]].concat();
    let job = site.submit(USER, &folder, &options, &script(&site, launcher, mode, "200 0.1"))?;
    let said = || fs::read_to_string(folder.join("out")).unwrap_or_default();
    let many = |run: &Value| (run["total"]["checkpoints"].as_u64() >= Some(2)).then(|| run.clone());
    let run = site.wait_report(job, "two checkpoints", MINUTES, many).with_context(said)?;
    let nodes = run["records"][0]["nodes"].as_array().context("nodes")?;
    let node = nodes.last().and_then(Value::as_str).context("a node")?.to_string();
    let torn = folder.join("persistent/steps-0-9980.dat");
    fs::write(&torn, "a flush that the death of the node has cut off")?;
    let user = nix::unistd::User::from_name(USER)?.context("a user")?;
    chown(&torn, Some(user.uid.as_raw()), None)?;
    site.cluster.kill_node(&node)?;
    let ended = |run: &Value| (!run["end_s"].is_null()).then(|| run.clone());
    let run = site.wait_report(job, "the end", MINUTES, ended).with_context(said)?;
    site.cluster.revive_node(&node)?;
    let said = said();
    ensure!(run["state"] == "completed" && run["total"]["failures"] == 1, "{said}{run:#}");
    ensure!(totals(&folder)? == expected, "{expected:?}: {said}");
    ensure!(said.contains("protected by engine veloc") && said.contains("set aside"), "{said}");
    let begins: Vec<&str> = said.lines().filter(|line| line.starts_with("begins at step")).collect();
    ensure!(begins.len() == 2 && begins[0].ends_with(" 0") && !begins[1].ends_with(" 0"), "{said}");
    Ok(())
}

#[test]
fn a_program_of_veloc_on_one_node_goes_on_from_its_last_whole_version() -> Result<()> {
    goes_on("one", &["-N1", "-n2"], "mpirun --oversubscribe -n 2", "sync")
}

#[test]
fn a_program_of_veloc_on_two_nodes_goes_on_from_its_last_whole_version() -> Result<()> {
    goes_on("two", &["-N2", "-n2"], "srun --mpi=pmix", "sync")
}

#[test]
fn a_program_whose_checkpoints_are_flushed_in_the_background_goes_on_from_its_last_whole_version() -> Result<()> {
    goes_on("background", &["-N1", "-n2"], "mpirun --oversubscribe -n 2", "async")
}
