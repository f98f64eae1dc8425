//! A loan on the packaged site: two idle nodes of a protected job serve a queued one, and are the job's again.

use crate::site::{CONTROLLER, Site};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// For how long the nodes are offered: more than the borrower's time limit and `lend.shortest_s`.
const OFFERED_S: u32 = 150;

/// Lends, and takes back; what the table says of it.
pub fn lent(site: &mut Site) -> Result<String> {
    let lender = site.submit(
        "-N4 --exclusive --no-kill -t70 --ft-energy=energy --ft-energy-interval=60 --ft-energy-signal=USR1 \
         --ft-energy-done=count.state",
        "sleep 900",
    )?;
    site.wait_report(lender, "the lender's run", |run| (run["state"] == "running").then_some(()))?;
    let nodes = nodes(site, lender)?;
    let borrower = site.submit("-N1 -t1", "sleep 5")?;
    let idle = site.root(&format!("scontrol show hostnames {nodes} | tail -n 2 | paste -s -d ,"))?;
    let asked = format!("joulepoint loans ask --job {lender} --nodes {} --for {OFFERED_S}", idle.trim());
    site.user(&format!("setsid --fork {asked} > asked.out 2>&1"))?;
    let loan = wait_loan(site, lender, "lent")?;
    site.wait_state(borrower, "COMPLETED")?;
    site.root(&format!("joulepoint loans recall {}", loan["id"].as_str().context("an id")?))?;
    let loan = wait_loan(site, lender, "closed")?;
    ensure!(loan["stays"][0]["job"] == borrower, "who used the nodes: {loan:#}");
    ensure!(self::nodes(site, lender)? == nodes, "the lender has other nodes than before: {loan:#}");
    site.user(&format!("scancel {lender}; rm -f asked.out"))?;
    site.all_idle()?;
    Ok("ok: two nodes lent, used and returned".into())
}

fn nodes(site: &Site, job: u32) -> Result<String> {
    Ok(site.root(&format!("squeue --noheader --format=%N --jobs={job}"))?.trim().to_string())
}

fn wait_loan(site: &Site, job: u32, state: &str) -> Result<Value> {
    let mut last = Value::Null;
    let found = site.hosts.wait(&format!("a loan that is {state}"), 100, |hosts| {
        let said = hosts.try_run(CONTROLLER, "root", &format!("joulepoint loans -j {job} --json"))?;
        let loans: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        last = loans.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        Ok((last["state"] == state).then(|| last.clone()))
    });
    found.with_context(|| format!("{last:#}; {}", site.user("cat asked.out").unwrap_or_default()))
}
