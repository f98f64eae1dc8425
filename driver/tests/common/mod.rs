//! What both simulations of the wrapper share.

use protocol::{Event, Figure, Plan};
use std::collections::BTreeMap;

/// The wrapper is killed: unwinds through the driver and is caught by the history.
pub struct Killed;

/// What a full disk says.
pub fn disk_full() -> run::Error {
    let source = std::io::ErrorKind::StorageFull.into();
    run::Error::Storage { path: "/run".into(), source }
}

fn figure(value: f64) -> Figure {
    Figure { value, from: "test".into() }
}

/// A plan of a scripted run.
pub fn plan(protocol: &str, interval_s: f64) -> Plan {
    Plan {
        version: protocol::VERSION,
        objective: "energy".into(),
        protocol: protocol.into(),
        engine: "scripted".into(),
        options: BTreeMap::new(),
        policy: "ema".into(),
        interval_s,
        longest_interval_s: None,
        interval_fixed: false,
        mtbf_s: figure(5000.0),
        past: None,
        local_s: None,
        checkpoint_s: figure(10.0),
        restart_s: figure(5.0),
        node_share: None,
        idle_w: figure(100.0),
        busy_w: figure(300.0),
        checkpoint_w: figure(150.0),
        still_share: None,
        checkpoint_hz: None,
        stale: Vec::new(),
        expected_time_overhead: 0.0,
        expected_energy_overhead: 0.0,
        expected_io_share: 0.0,
        flexible_s: None,
        alternatives: Vec::new(),
        choice: None,
        reasons: Vec::new(),
        made_by: "test".into(),
    }
}

/// The phases of a node add up to its counter as it was last read, and no phase is negative.
pub fn check_energy(journal: &[Event]) {
    let mut phases: BTreeMap<&str, f64> = BTreeMap::new();
    let mut counters: BTreeMap<&str, f64> = BTreeMap::new();
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    for event in journal {
        match event {
            Event::Phase { node, joules, start_s, end_s, .. } => {
                assert!(joules.is_none_or(|j| j >= 0.0), "negative energy");
                assert!(end_s >= start_s, "a phase that ends before it begins");
                if let Some(before) = ends.insert(node, *end_s) {
                    assert_eq!(before, *start_s, "a gap between phases of {node}");
                }
                *phases.entry(node).or_default() += joules.unwrap_or(0.0);
            }
            Event::Reading { node, reading } => {
                counters.insert(node, reading.joules);
            }
            // What a node did while it was lent is none of the run's account.
            Event::Decided { action, reason, .. } if action == "unpark" => {
                ends.retain(|node, _| !reason.split([' ', ',', ';']).any(|word| word == *node));
            }
            _ => {}
        }
    }
    for (node, counter) in counters {
        let sum = phases.get(node).copied().unwrap_or(0.0);
        assert!((sum - counter).abs() <= 1e-6 * counter.max(1.0), "{node}: phases {sum} J, counter {counter} J");
    }
}
