//! `make bench-simulator`: the replay beside a plain Python one of the same semantics, on Los Alamos' system 20.

use anyhow::{Context, Result, ensure};
use policy::interval::Objective;
use serde::Deserialize;
use simulator::replay::{Rule, Setting, replay};
use simulator::trace::Trace;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const LOG: &str = "tests/data/lanl/system-20.csv";
const SCRIPT: &str = "bench/replay.py";
const POLICIES: [&str; 5] = ["young", "ema", "sma", "hazard", "hazard-dynamic"];

/// Python's defaults, in `bench/replay.py`.
const SETTING: Setting =
    Setting { checkpoint_s: 600.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };

/// Rounds of each; the fastest counts, on both sides.
const ROUNDS: usize = 7;

#[derive(Deserialize)]
struct Theirs {
    policy: String,
    failures: f64,
    checkpoints: f64,
    checkpoint_s: f64,
    lost_s: f64,
    seconds: f64,
}

/// Prints millions of events (failures and checkpoints) per second on one core, ours and Python's.
pub fn run() -> Result<()> {
    let log = std::fs::read_to_string(LOG).with_context(|| format!("{LOG}: run this in the repository's root"))?;
    let trace = Trace::parse("system-20", &log)?;
    println!("{:<16} {:>10} {:>14} {:>14} {:>8}", "policy", "events", "Python M/s", "Joulepoint M/s", "ratio");
    for name in POLICIES {
        let theirs = theirs(name)?;
        let (events, ours_s) = ours(&trace, name, &theirs)?;
        println!(
            "{name:<16} {events:>10} {:>14.2} {:>14.2} {:>8.0}",
            events / theirs.seconds / 1e6,
            events / ours_s / 1e6,
            theirs.seconds / ours_s
        );
    }
    println!("Both spend the same. Failure records: Los Alamos National Laboratory (LA-UR-05-7318), which we thank.");
    Ok(())
}

/// Python's fastest round.
fn theirs(name: &str) -> Result<Theirs> {
    let mut best: Option<Theirs> = None;
    for _ in 0..ROUNDS {
        let output = Command::new("python3").args([SCRIPT, LOG, name]).output().context("python3")?;
        ensure!(output.status.success(), "{SCRIPT}: {}", String::from_utf8_lossy(&output.stderr));
        let round: Theirs = serde_json::from_slice(&output.stdout).with_context(|| SCRIPT.to_string())?;
        ensure!(round.policy == name, "{SCRIPT} answered for {}, not for {name}", round.policy);
        best = best.filter(|b| b.seconds <= round.seconds).or(Some(round));
    }
    best.context("no round")
}

/// Events and the seconds of our fastest round, after a look that both spend the same.
fn ours(trace: &Trace, name: &str, theirs: &Theirs) -> Result<(f64, f64)> {
    let rule = Rule::named(name)?;
    let mut best_s = f64::INFINITY;
    for _ in 0..ROUNDS * 10 {
        let start = Instant::now();
        let outcome = black_box(replay(black_box(trace), rule, Objective::Energy, &SETTING)?);
        best_s = best_s.min(start.elapsed().as_secs_f64());
        let same = |what: &str, ours: f64, theirs: f64| {
            ensure!((ours / theirs - 1.0).abs() < 1e-9, "{name}: {what} is {ours} here and {theirs} in Python");
            Ok(())
        };
        same("failures", outcome.failures, theirs.failures)?;
        same("checkpoints", outcome.checkpoints, theirs.checkpoints)?;
        same("checkpoint time", outcome.checkpoint_s, theirs.checkpoint_s)?;
        same("lost time", outcome.lost_s, theirs.lost_s)?;
    }
    Ok((theirs.failures + theirs.checkpoints, best_s))
}
