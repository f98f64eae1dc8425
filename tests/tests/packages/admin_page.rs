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

/// The blocks of the page below headlines that begin so.
fn blocks_of(headline: &str) -> Result<Vec<Block>> {
    let page = fs::read_to_string(repository().join("docs/admin.md"))?;
    Ok(blocks(&page).into_iter().filter(|b| b.step.starts_with(headline)).collect())
}

fn shows(block: &Block) -> bool {
    block.words.first().is_some_and(|word| word == "text")
}

/// The headlines of the first hour.
fn steps() -> Result<Vec<String>> {
    let mut steps: Vec<String> = blocks_of("Step ")?.into_iter().map(|b| b.step).collect();
    steps.dedup();
    Ok(steps)
}

#[test]
fn a_protected_job_is_under_fifteen_steps_away_and_each_is_seen_to_work() -> Result<()> {
    let steps = steps()?;
    ensure!((1..=MOST_STEPS).contains(&steps.len()), "{} steps", steps.len());
    for step in steps {
        ensure!(blocks_of(&step)?.iter().any(shows), "{step}: nothing says how to see that it worked");
    }
    Ok(())
}

/// Follows the first hour; how many steps it has.
pub fn follow_all(site: &mut Site) -> Result<usize> {
    let steps = steps()?;
    steps.iter().try_for_each(|step| follow(site, step))?;
    Ok(steps.len())
}

/// Follows what stands below one headline, given by its beginning.
pub fn follow(site: &mut Site, headline: &str) -> Result<()> {
    let blocks = blocks_of(headline)?;
    ensure!(!blocks.is_empty(), "docs/admin.md has no commands for {headline:?}");
    let mut typed = blocks.iter().peekable();
    while let Some(block) = typed.next() {
        let result = match typed.next_if(|next| shows(next)) {
            Some(wanted) => look(site, block, &wanted.text),
            None => do_it(site, block),
        };
        result.with_context(|| block.step.clone())?;
    }
    Ok(())
}

/// Types one of the commands that take the packages away: 0 removes, 1 purges.
pub fn take_away(site: &mut Site, which: usize) -> Result<()> {
    do_it(site, blocks_of("Taking it away")?.get(which).context("docs/admin.md does not say how")?)
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
