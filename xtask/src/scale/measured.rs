//! What the daemons used within a while.

use super::place::{Daemon, Place};
use crate::bench::cpu_s;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Counters at one moment.
pub struct Meter<'a> {
    place: &'a Place,
    controller: Option<&'a Daemon>,
    begun: Instant,
    at: Counters,
}

struct Counters {
    cpu_s: [f64; 3],
    bytes: f64,
    beats: f64,
    calls: BTreeMap<String, f64>,
}

/// What was used, shares in % of a core.
pub struct Reading {
    pub slurmctld: f64,
    pub munged: f64,
    pub controller: f64,
    pub kib_per_s: f64,
    pub beats_per_s: f64,
    /// Calls of slurmctld a minute.
    pub by_kind: BTreeMap<String, f64>,
}

impl Reading {
    pub fn calls(&self) -> f64 {
        self.by_kind.values().sum()
    }
}

impl<'a> Meter<'a> {
    pub fn start(place: &'a Place, controller: Option<&'a Daemon>) -> Result<Meter<'a>> {
        Ok(Meter { place, controller, begun: Instant::now(), at: Counters::read(place, controller)? })
    }

    /// Waits, and tells what was used meanwhile.
    pub fn after(self, wait: Duration) -> Result<Reading> {
        std::thread::sleep(wait);
        let now = Counters::read(self.place, self.controller)?;
        let seconds = self.begun.elapsed().as_secs_f64();
        let share = |of: usize| 100.0 * (now.cpu_s[of] - self.at.cpu_s[of]) / seconds;
        let calls = now.calls.iter().map(|(kind, count)| {
            let before = self.at.calls.get(kind).copied().unwrap_or(0.0);
            (kind.clone(), 60.0 * (count - before) / seconds)
        });
        Ok(Reading {
            slurmctld: share(0),
            munged: share(1),
            controller: share(2),
            kib_per_s: (now.bytes - self.at.bytes) / 1024.0 / seconds,
            beats_per_s: (now.beats - self.at.beats) / seconds,
            by_kind: calls.filter(|(_, per_minute)| *per_minute > 0.5).collect(),
        })
    }
}

impl Counters {
    fn read(place: &Place, controller: Option<&Daemon>) -> Result<Counters> {
        let [slurmctld, munged] = place.pids()?.map(cpu_s);
        let cpu = [slurmctld.context("slurmctld has ended")?, munged.context("munged has ended")?];
        let (own, beats) = match controller {
            Some(daemon) => (daemon.cpu_s()?, daemon.metric("joulepoint_beats_total")?),
            None => (0.0, 0.0),
        };
        Ok(Counters { cpu_s: [cpu[0], cpu[1], own], bytes: bytes()?, beats, calls: calls(&place.ask("sdiag", &[])?) })
    }
}

/// What went over this site's network so far, bytes.
fn bytes() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    let lo = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).context("no lo")?;
    Ok(lo.split_whitespace().next().context("no bytes")?.parse()?)
}

/// Calls that slurmctld has answered, by type, as sdiag prints them.
fn calls(text: &str) -> BTreeMap<String, f64> {
    let types = text.lines().skip_while(|line| !line.contains("by message type")).skip(1);
    types
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| {
            let (kind, rest) = line.trim().split_once(|c: char| c.is_whitespace())?;
            let count = rest.split("count:").nth(1)?.split_whitespace().next()?.parse().ok()?;
            Some((kind.to_string(), count))
        })
        .collect()
}
