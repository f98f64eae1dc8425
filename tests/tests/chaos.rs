//! A few histories of random faults on a real cluster with real programs: what must hold after each does.
//!
//! `make chaos` plays as many as are wanted, others too; each kind of fault, and what must hold, stands in docs/testing/failures.md.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::chaos::history::draw;
use suite::chaos::{Lab, Outcome};
use suite::{Fetched, fetch};

/// Their seeds, as many as there is time for: losses of power, kills, cut cables and a storage that fails, in about a minute each.
const SEEDS: [u64; 5] = [1002, 1001, 1009, 1012, 1023];

/// No history begins after so long.
const LIMIT: Duration = Duration::from_secs(3 * 60);

#[test]
fn whatever_breaks_nothing_complete_is_lost_and_nobody_else_is_touched() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-few-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    if let Err(reason) = fetch(Fetched::Criu, &dir.join("criu")) {
        println!("skipped: no CRIU: {reason}");
        return Ok(());
    }
    let mut lab = Lab::start(&dir.join("lab"), SEEDS[0], &mut |text| println!("  {text}"))?;
    let begun = Instant::now();
    let mut played = 0;
    for seed in SEEDS.into_iter().take_while(|_| begun.elapsed() < LIMIT) {
        let history = draw(seed, None);
        let Outcome { wrong, told, right, honest, lasted_s, .. } = lab.play(&history);
        ensure!(wrong.is_empty(), "seed {seed}, {history:?}:\n{told}{}", wrong.join("\n"));
        println!("  seed {seed}: {right} jobs ended right, {honest} honestly otherwise, {lasted_s:.0} s");
        played += 1;
    }
    println!("  {played} histories");
    lab.remove()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
