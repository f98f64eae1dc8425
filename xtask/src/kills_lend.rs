//! Kills at random moments around a loan: nodes, batch hosts, wrappers, the service and Slurm's daemons, and what they left.
//!
//! Several runs at once on one cluster. Each loses a node, so that its survivors are parked and lent, and then gets
//! one to three more blows. Right is a run that completes with the bits of an undisturbed one, requeued or not, and
//! leaves nothing behind: no reservation, helper job, held node or process, and a store in which all of it is over.

use anyhow::{Context, Result, anyhow, ensure};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::Site;
use suite::lending::{self, Coupled, Wrapper, borrowers, decisions, kill_wrapper, loans_of, node_of, nothing_is_left};

/// Work that is lost with the first node, s.
const LOST: Duration = Duration::from_secs(90);

/// How long the last dead node takes to be back: a node boots for longer than its death goes unnoticed, and else slurmctld
/// would see that it has booted, which the nodes of one machine cannot show.
const BOOT: Duration = Duration::from_secs(20);

/// Moments of the blows after the first, s: from before the dump to after the return.
const BLOWS_S: f64 = 110.0;

const LIMIT: Duration = Duration::from_secs(480);

/// Longest wait for nodes that are to come back.
const RETURN: Duration = Duration::from_secs(60);

/// Groups 0 and 1 have a line when the last one fails, which has none.
const RUN: Coupled =
    Coupled { groups: 3, spares: 1, steps: 4800, every: "$((FT_ENERGY_GROUP == 2 ? 4800 : 3000))", step_ms: 20 };

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A node that is lent at that moment, or else any of the run.
    LentNode,
    /// The node on which the failed group works its lost time again.
    RecoveringNode,
    BatchHost,
    Wrapper(Wrapper),
    /// The service on the controller, for so many seconds.
    Service(u64),
    /// The same, and the recovering node while nobody hears of it.
    Unheard(u64),
    /// slurmctld, for so many seconds: it forgets what it has not written down yet.
    Slurmctld(u64),
    /// The same, as soon as the nodes that the run lends are back.
    Return(u64),
    /// slurmd of any node, for so many seconds: what runs there lives on.
    Slurmd(u64),
}

/// What a blow has hit.
struct Hit {
    /// Counted under this; absent if there was nothing left to hit.
    kind: Option<&'static str>,
    told: String,
}

/// One run.
struct Played {
    run: Coupled,
    job: u32,
    folder: PathBuf,
    blows: Vec<String>,
    kinds: Vec<&'static str>,
}

/// Plays so many runs and prints what became of each.
pub fn run(runs: usize, seed: u64, at_once: usize) -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-kills-{}", std::process::id()));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes: usize = (0..at_once).map(|n| shape(n).nodes()).sum();
    let site = lending::site(&dir, nodes, &mut |text| println!("  {text}"))?;
    let mut site = site.map_err(|reason| anyhow!("survivors are parked by CRIU: {reason}"))?;
    let expected = RUN.undisturbed(&site, LIMIT)?;
    let (mut right, mut requeued, mut lent) = (0, 0, 0);
    let mut hits = BTreeMap::<&str, usize>::new();
    let begun = Instant::now();
    for first in (0..runs).step_by(at_once) {
        let batch = play(&mut site, &mut rng, first, at_once.min(runs - first))?;
        for (n, played) in batch.iter().enumerate() {
            let told = judged(&site, played, &expected);
            let blows = played.blows.join(", ");
            played.kinds.iter().for_each(|kind| *hits.entry(kind).or_default() += 1);
            match &told {
                Ok((restarts, loans)) => {
                    println!("run {}: {blows}: the same bits; {restarts} requeues, {loans} loans", first + n + 1);
                    (right, requeued, lent) =
                        (right + 1, requeued + usize::from(*restarts > 0), lent + usize::from(*loans > 0));
                }
                Err(e) => println!("run {} (job {}): {blows}: WRONG: {e:#}", first + n + 1, played.job),
            }
        }
        nothing_is_left(&site, LIMIT)?;
    }
    let hits: Vec<String> = hits.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    println!("killed: {}", hits.join(", "));
    println!(
        "seed {seed}: {right} of {runs} runs ended with the bits of an undisturbed one, {requeued} of them requeued; \
         {lent} lent nodes; nothing was left of any; {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    ensure!(right == runs, "everything is kept in {}", dir.display());
    drop(site);
    std::fs::remove_dir_all(&dir)?;
    std::fs::remove_dir_all(dir.with_extension("criu"))?;
    Ok(())
}

/// Every second run has a spare for a second failure.
fn shape(n: usize) -> Coupled {
    Coupled { spares: 1 + n % 2, ..RUN }
}

/// Plays some runs at once until the last blow; all nodes are back then.
fn play(site: &mut Site, rng: &mut ChaCha8Rng, first: usize, count: usize) -> Result<Vec<Played>> {
    let mut batch = Vec::new();
    for n in 0..count {
        let run = shape(n);
        let (job, folder) = run.submit(site, &format!("run-{}", first + n), true)?;
        batch.push(Played { run, job, folder, blows: Vec::new(), kinds: vec!["working node"] });
    }
    for played in &batch {
        site.wait_report(played.job, "the start", LIMIT, |run| node_of(run, RUN.groups - 1))?;
    }
    borrowers(site, 2 * count, 20)?;
    std::thread::sleep(LOST);
    let mut dead = Vec::new();
    for played in &batch {
        kill(site, &node_of(&report(site, played.job)?, RUN.groups - 1).context("a node")?, &mut dead)?;
    }
    let struck = Instant::now();
    for (at_s, n, blow) in plan(rng, count) {
        std::thread::sleep(Duration::from_secs_f64(at_s).saturating_sub(struck.elapsed()));
        let Hit { kind, told } = strike(site, rng, &batch[n], blow, &mut dead)?;
        batch[n].blows.push(format!("{told} after {:.0} s", struck.elapsed().as_secs_f64()));
        batch[n].kinds.extend(kind);
    }
    std::thread::sleep(BOOT);
    for node in dead {
        site.cluster.revive_node(&node)?;
    }
    Ok(batch)
}

/// One to three blows for each run, in order of time.
fn plan(rng: &mut ChaCha8Rng, count: usize) -> Vec<(f64, usize, Blow)> {
    let mut all = Vec::new();
    for n in 0..count {
        for _ in 0..rng.random_range(1..=3) {
            let blow = match rng.random_range(0..18) {
                0..3 => Blow::LentNode,
                3..5 => Blow::RecoveringNode,
                5..7 => Blow::BatchHost,
                7..9 => Blow::Wrapper(Wrapper::Driver),
                9 => Blow::Wrapper(Wrapper::Supervisor),
                10 => Blow::Service(rng.random_range(0..20)),
                11 => Blow::Unheard(rng.random_range(3..20)),
                12..14 => Blow::Slurmctld(rng.random_range(0..=20)),
                14..16 => Blow::Return(rng.random_range(0..=20)),
                _ => Blow::Slurmd(rng.random_range(0..=20)),
            };
            all.push((rng.random_range(0.0..BLOWS_S), n, blow));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// Strikes, and tells what was hit.
fn strike(site: &mut Site, rng: &mut ChaCha8Rng, on: &Played, blow: Blow, dead: &mut Vec<String>) -> Result<Hit> {
    let run = report(site, on.job)?;
    let names = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|n| n.as_str().map(str::to_owned)).collect()
    };
    let record = run["records"].as_array().and_then(|r| r.last()).context("a record")?;
    let all = names(&record["nodes"]);
    let host = all.first().context("a batch host")?.clone();
    let (kind, node) = match blow {
        Blow::Service(seconds) => {
            without_service(site, seconds, |_| Ok(()))?;
            return Ok(Hit { kind: Some("service"), told: format!("service for {seconds} s") });
        }
        Blow::Unheard(seconds) => {
            let node = node_of(&run, RUN.groups - 1).context("a node")?;
            let mut was_alive = false;
            without_service(site, seconds, |site| kill(site, &node, dead).map(|hit| was_alive = hit))?;
            let (kind, also) = if was_alive { ("service and a node", "with") } else { ("service", "not") };
            return Ok(Hit { kind: Some(kind), told: format!("service for {seconds} s, {also} {node}") });
        }
        Blow::Slurmctld(seconds) => {
            without_slurmctld(site, seconds)?;
            return Ok(Hit { kind: Some("slurmctld"), told: format!("slurmctld for {seconds} s") });
        }
        Blow::Return(seconds) => {
            let is_out = |l: &Value| ["lent", "returning"].iter().any(|s| l["state"] == *s);
            let is_back = |l: &Value| ["growing", "closing", "closed"].iter().any(|s| l["state"] == *s);
            let last = |site: &Site| -> Result<Value> { Ok(loans_of(site, on.job)?.pop().unwrap_or_default()) };
            if !is_out(&last(site)?) {
                return Ok(Hit { kind: None, told: "slurmctld at a return (nothing is lent)".to_string() });
            }
            let back = site.wait("a return", RETURN, |site| Ok(Some(last(site)?).filter(&is_back)));
            without_slurmctld(site, seconds)?;
            let (kind, at) = if back.is_ok() { ("slurmctld at a return", " at the return") } else { ("slurmctld", "") };
            return Ok(Hit { kind: Some(kind), told: format!("slurmctld for {seconds} s{at}") });
        }
        Blow::Slurmd(seconds) => {
            let node = all.choose(rng).context("a node")?;
            if dead.contains(node) {
                return Ok(Hit { kind: None, told: format!("slurmd of {node} (dead already)") });
            }
            site.cluster.kill_slurmd(node)?;
            std::thread::sleep(Duration::from_secs(seconds));
            site.cluster.revive_node(node)?;
            return Ok(Hit { kind: Some("slurmd"), told: format!("slurmd of {node} for {seconds} s") });
        }
        Blow::Wrapper(which) => {
            let is_there = !dead.contains(&host) && kill_wrapper(site, &host, on.job, which)?;
            let name = if which == Wrapper::Driver { "driver" } else { "supervisor" };
            let told = format!("{}{name}", if is_there { "" } else { "no " });
            return Ok(Hit { kind: is_there.then_some(name), told });
        }
        Blow::BatchHost => ("batch host", host),
        Blow::RecoveringNode => ("recovering node", node_of(&run, RUN.groups - 1).context("a node")?),
        Blow::LentNode => {
            let lent = loans_of(site, on.job)?.pop().filter(|l| l["state"] == "lent").map(|l| names(&l["nodes"]));
            let kind = if lent.is_some() { "lent node" } else { "any node" };
            (kind, lent.unwrap_or(all).choose(rng).context("a node")?.clone())
        }
    };
    if !kill(site, &node, dead)? {
        return Ok(Hit { kind: None, told: format!("{node} (dead already)") });
    }
    Ok(Hit { kind: Some(kind), told: format!("{kind} {node}") })
}

/// Kills slurmctld, and starts it again so many seconds after.
fn without_slurmctld(site: &mut Site, seconds: u64) -> Result<()> {
    site.cluster.kill_controller()?;
    std::thread::sleep(Duration::from_secs(seconds));
    site.cluster.start_controller()
}

/// Kills the service, and starts it again so many seconds after something was done meanwhile.
fn without_service(site: &mut Site, seconds: u64, meanwhile: impl FnOnce(&mut Site) -> Result<()>) -> Result<()> {
    site.kill_controller()?;
    meanwhile(site)?;
    std::thread::sleep(Duration::from_secs(seconds));
    site.start_controller()
}

fn report(site: &Site, job: u32) -> Result<Value> {
    site.report(job)?.with_context(|| format!("a report of job {job}"))
}

/// Kills a node; whether it was not dead yet.
fn kill(site: &mut Site, node: &str, dead: &mut Vec<String>) -> Result<bool> {
    if dead.iter().any(|n| n == node) {
        return Ok(false);
    }
    site.cluster.kill_node(node)?;
    dead.push(node.to_string());
    Ok(true)
}

/// Whether a run ended as it must, and the store knows it; its requeues and loans.
fn judged(site: &Site, played: &Played, expected: &[String]) -> Result<(usize, usize)> {
    let run = lending::report_of_the_end(site, played.job, LIMIT)?;
    ensure!(played.run.results(&played.folder)? == expected, "other bits: {:#?}", decisions(&run));
    let records = run["records"].as_array().context("records")?;
    ensure!(records.iter().all(|r| r["end_s"].is_f64()), "a record has no end: {records:#?}");
    let loans = loans_of(site, played.job)?;
    let is_over = |l: &&Value| l["state"] == "closed" || l["state"] == "failed";
    ensure!(loans.iter().all(|l| is_over(&l)), "a loan is not over: {loans:#?}");
    Ok((records.len() - 1, loans.iter().filter(|l| l["lent_s"].is_f64()).count()))
}
