//! Follows the first hour of `docs/admin.md` to the letter: types its commands where it says, and looks where it says.

use crate::site::{CONTROLLER, Site, USER};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use suite::page::{Block, blocks};
use suite::repository;

/// How long what the page says may take to come true, seconds.
const PATIENCE_S: u64 = 120;
/// The most steps from an empty site to a protected job.
const MOST_STEPS: usize = 14;

/// Follows it; how many steps it has.
pub fn follow(site: &mut Site) -> Result<usize> {
    let page = fs::read_to_string(repository().join("docs/admin.md"))?;
    let blocks: Vec<Block> = blocks(&page).into_iter().filter(|b| b.step.starts_with("Step ")).collect();
    let mut steps: Vec<&str> = blocks.iter().map(|b| b.step.as_str()).collect();
    steps.dedup();
    if steps.is_empty() || steps.len() > MOST_STEPS {
        bail!("{} steps", steps.len());
    }
    for step in &steps {
        let seen = blocks.iter().filter(|b| b.step == *step && b.words.first().is_some_and(|w| w == "text")).count();
        if seen == 0 {
            bail!("{step}: nothing says how to see that it worked");
        }
    }
    let mut typed = blocks.iter().peekable();
    while let Some(block) = typed.next() {
        let wanted = typed.next_if(|next| next.words.first().is_some_and(|w| w == "text"));
        let result = match wanted {
            Some(wanted) => look(site, block, &wanted.text),
            None => do_it(site, block),
        };
        result.with_context(|| block.step.clone())?;
    }
    Ok(steps.len())
}

/// The hosts on which a block is typed, and by whom.
fn places(site: &Site, block: &Block) -> Result<(Vec<String>, &'static str)> {
    let hosts = site.hosts.names().to_vec();
    Ok(match block.words.get(1).map(String::as_str) {
        Some("every-host") => (hosts, "root"),
        Some("every-node") => (hosts.into_iter().filter(|h| h != CONTROLLER).collect(), "root"),
        Some("controller") => (vec![CONTROLLER.to_string()], "root"),
        Some("user") => (vec![CONTROLLER.to_string()], USER),
        Some("node-of-the-job") => (vec![site.user("squeue --noheader --format=%N")?.trim().to_string()], "root"),
        other => bail!("{other:?} is no place"),
    })
}

fn do_it(site: &mut Site, block: &Block) -> Result<()> {
    let (hosts, who) = places(site, block)?;
    for host in &hosts {
        let done = site.hosts.run(host, who, &block.text);
        if block.words.get(2).is_some_and(|w| w == "goes-off") {
            ensure!(site.hosts.goes_off(host), "{host} is still on: {done:?}");
            site.powered_off.push(host.clone());
        } else {
            done?;
        }
    }
    Ok(())
}

/// Types a block until all that the page shows is seen.
fn look(site: &mut Site, block: &Block, wanted: &str) -> Result<()> {
    if block.words.get(2).is_some_and(|w| w == "switched-on-again") {
        for host in std::mem::take(&mut site.powered_off) {
            site.hosts.boot(&host)?;
        }
    }
    let (hosts, who) = places(site, block)?;
    for host in hosts {
        let mut last = String::new();
        let seen = site.hosts.wait("what the page shows", PATIENCE_S, |on| {
            let output = on.try_run(&host, who, &block.text)?;
            last = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            Ok((output.status.success() && wanted.lines().all(|line| last.contains(line.trim()))).then_some(()))
        });
        seen.with_context(|| format!("{who}@{host}: {}said:\n{last}wanted:\n{wanted}", block.text))?;
    }
    Ok(())
}
