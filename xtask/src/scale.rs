//! `make bench-scale`: a site of thousands of nodes on one machine. Slurm's controller, the slurmds of the busy nodes and
//! Joulepoint's controller are real; node services and wrappers are emulated and speak to it over the real wire.

mod fleet;
mod measured;
mod place;
mod wrappers;

use self::fleet::Fleet;
use self::measured::{Meter, Reading};
pub use self::place::Scale;
use self::place::{Daemon, Place};
pub use self::wrappers::Wrappers;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time in which new sessions, runs and questions about them come to rest.
const SETTLE: Duration = Duration::from_secs(45);

/// Longest wait for what a storm has stopped.
const STORM_LIMIT: Duration = Duration::from_secs(900);

/// As one user's wrappers.
pub fn wrap(of: &Wrappers) -> Result<()> {
    wrappers::run(of)
}

/// Builds the site, and measures it without Joulepoint, with it, and in a storm.
pub fn run(scale: &Scale) -> Result<()> {
    if scale.storm > scale.busy || scale.busy + scale.storm > scale.nodes {
        bail!("a storm meets busy nodes, and each of them needs a free one beside them");
    }
    place::own_network(scale.nodes)?;
    let place = Place::start(scale)?;
    std::thread::sleep(SETTLE);
    let watch = Duration::from_secs(scale.watch_s);
    let without = Meter::start(&place, None)?.after(watch)?;
    let controller = place.controller()?;
    let fleet = Fleet::start(&place, scale.nodes)?;
    let wrappers = place.wrappers()?;
    wrappers.wait_for(place.jobs(), STORM_LIMIT)?;
    std::thread::sleep(SETTLE);
    let with = Meter::start(&place, Some(&controller))?.after(watch)?;
    print(scale, &without, &with);
    println!("{:<44} {:>12}", "plans, as wrappers start: median, 99 %, ms", wrappers.plans());
    println!("{:<44} {:>12}", "nodes that are heard", controller.metric("joulepoint_nodes")?);
    println!("{:<44} {:>12}", "runs that are open", controller.metric("joulepoint_runs_open")?);
    if scale.storm > 0 {
        storm(scale, &place, &fleet, &wrappers, &controller)?;
    }
    println!("{:<44} {:>12}", "peak memory of the controller, MiB", controller.peak_mib()?);
    Ok(())
}

/// What each state cost, side by side.
fn print(scale: &Scale, without: &Reading, with: &Reading) {
    println!("{scale:?}");
    println!("{:<44} {:>12} {:>12}", "", "without us", "with us");
    let row = |what: &str, a: f64, b: f64| println!("{what:<44} {a:>12.2} {b:>12.2}");
    row("slurmctld, % of a core", without.slurmctld, with.slurmctld);
    row("munged, % of a core", without.munged, with.munged);
    row("controller, % of a core", 0.0, with.controller);
    row("slurmctld's calls a minute", without.calls(), with.calls());
    row("bytes on the wire, KiB/s", without.kib_per_s, with.kib_per_s);
    row("heartbeats a second", 0.0, with.beats_per_s);
    for (kind, per_minute) in &with.by_kind {
        row(&format!("  {kind}"), without.by_kind.get(kind).copied().unwrap_or(0.0), *per_minute);
    }
}

/// Some nodes lose their power at once: how long until their jobs go on, and whether anybody else's job noticed.
fn storm(scale: &Scale, place: &Place, fleet: &Fleet, wrappers: &wrappers::All, controller: &Daemon) -> Result<()> {
    let dead: BTreeSet<String> = (0..scale.storm).map(place::name).collect();
    let (lost, others) = place.running()?.into_iter().partition::<Vec<_>, _>(|job| dead.contains(&job.node));
    let lost: BTreeSet<u32> = lost.into_iter().map(|job| job.id).collect();
    let (begun, cpu_s) = (Instant::now(), controller.cpu_s()?);
    place.power_off(&dead)?;
    fleet.power_off(&dead);
    let mut told = 0;
    while wrappers.begun_again(&lost).len() < lost.len() && begun.elapsed() < STORM_LIMIT {
        std::thread::sleep(Duration::from_millis(500));
        let down = place.down()?;
        if down > told {
            told = down;
            let (after_s, back) = (begun.elapsed().as_secs_f64(), wrappers.begun_again(&lost).len());
            println!("storm: after {after_s:.1} s {down} nodes are set down, and {back} runs went on");
        }
    }
    let mut after_s: Vec<f64> =
        wrappers.begun_again(&lost).iter().map(|at| at.duration_since(begun).as_secs_f64()).collect();
    println!("storm: {} of {} runs went on", after_s.len(), lost.len());
    if !after_s.is_empty() {
        let [first, median, last] = [0.0, 0.5, 1.0].map(|share| crate::bench::quantile(&mut after_s, share));
        println!("storm: they went on after {first:.1} s (first), {median:.1} s (median), {last:.1} s (last)");
    }
    let share = 100.0 * (controller.cpu_s()? - cpu_s) / begun.elapsed().as_secs_f64();
    println!("storm: controller, % of a core: {share:.1}");
    let now = place.running()?;
    let touched = others.iter().filter(|job| !now.contains(job)).count();
    println!("storm: jobs of other nodes that were touched: {touched} of {}", others.len());
    Ok(())
}
