//! The upgrade from the version before this one, under a protected job that lost its node while that version ran.

use crate::admin_page;
use crate::site::{BEFORE, CONTROLLER, Site};
use crate::steps::{COUNTER, PROTECTED, done};
use anyhow::{Result, ensure};
use serde_json::Value;

/// Installs the older packages, begins a job, and upgrades; what the table says of it.
pub fn upgraded(site: &mut Site) -> Result<String> {
    if !site.has_before {
        return Ok("skipped: the packages of the version before are not built (packaging/previous.sh)".into());
    }
    site.everywhere(&format!("apt-get install -q -y {BEFORE}/joulepoint_*.deb {BEFORE}/joulepoint-[ps]*.deb"))?;
    ensure!(version(site)?.contains("~before"), "{}", version(site)?);
    // What follows the installation has been the same since that version.
    (2..=6).try_for_each(|step| admin_page::follow(site, &format!("Step {step}:")))?;
    let job = site.submit(&format!("-o upgraded.out --open-mode=append {PROTECTED}"), COUNTER)?;
    lose_a_node(site, job)?;

    let pid = "systemctl show -p MainPID joulepoint-controller";
    let before = (site.root(pid)?, migrations(site)?);
    admin_page::follow(site, "Upgrading")?;
    ensure!(!version(site)?.contains("~before"), "{}", version(site)?);
    ensure!(before.0 != site.root(pid)?, "the controller service was not restarted");
    ensure!(before.1 < migrations(site)?, "the store was not brought up to date");
    goes_on(site, job)?;
    site.user("touch enough")?;
    site.wait_state(job, "COMPLETED")?;
    let said = site.user("cat upgraded.out")?;
    ensure!(said.contains("counted to"), "{said}");
    let run = site.wait_report(job, "the run's end", |run| (run["state"] == "completed").then(|| run.clone()))?;
    ensure!(records(&run) == Some(2) && run["total"]["failures"] == 1, "{run:#}");
    again(site)?;
    done()
}

fn version(site: &Site) -> Result<String> {
    site.root("dpkg-query -W -f '${Version}' joulepoint-service")
}

/// How often the controller service has brought its store to the next version.
fn migrations(site: &Site) -> Result<usize> {
    let log = site.root("journalctl --no-pager -u joulepoint-controller")?;
    Ok(log.matches("the store's tables are brought up to date").count())
}

fn records(run: &Value) -> Option<usize> {
    run["records"].as_array().map(Vec::len)
}

/// Cuts the power of the node of a job that has a checkpoint; returns when the job runs on another and the node is back.
fn lose_a_node(site: &mut Site, job: u32) -> Result<()> {
    goes_on(site, job)?;
    let node = site.root(&format!("squeue --noheader --format=%N --jobs={job}"))?.trim().to_string();
    site.hosts.cut_power(&node)?;
    site.wait_report(job, "the job on another node", |run| (records(run)? == 2).then_some(()))?;
    site.hosts.boot(&node)?;
    site.hosts.wait("the node to be back", 120, |hosts| {
        let said = hosts.try_run(CONTROLLER, "root", &format!("sinfo --noheader --nodes={node} --format=%T"))?;
        Ok((said.stdout.trim_ascii() == b"idle").then_some(()))
    })?;
    goes_on(site, job)
}

/// Waits until a run has one checkpoint more than now.
fn goes_on(site: &Site, job: u32) -> Result<()> {
    let checkpoints = |run: &Value| run["total"]["checkpoints"].as_u64();
    let had = site.wait_report(job, "the run", checkpoints)?;
    site.wait_report(job, "one more checkpoint", |run| (checkpoints(run)? > had).then_some(()))
}

/// A new job of the new version, to its end.
fn again(site: &Site) -> Result<()> {
    site.user("rm count.state enough")?;
    let job = site.submit(PROTECTED, COUNTER)?;
    goes_on(site, job)?;
    site.user("touch enough")?;
    site.wait_state(job, "COMPLETED")?;
    site.user("rm count.state enough").map(drop)
}
