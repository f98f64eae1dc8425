//! Takes over from Slurm which nodes died before Joulepoint watched them.

use anyhow::Result;
use parking_lot::Mutex;
use slurm::{NodeEvent, NodeHistory};
use store::{Before, Store};

/// How far back Slurm's events are read, s.
const LOOK_BACK_S: u64 = 365 * 86_400;

/// What the reasons of failures begin with that Slurm told us.
const SOURCE: &str = "slurm: ";

/// Fills a store that has watched nothing yet; whether it did. A later start finds it filled and does nothing.
///
/// # Errors
/// What Slurm or the store says; a site without slurmdbd has no events.
pub fn take_over(slurm: &slurm::Slurm, store: &Mutex<Store>, now_s: f64) -> Result<bool> {
    if store.lock().has_watched()? {
        return Ok(false);
    }
    let nodes: Vec<String> = slurm.nodes()?.into_iter().map(|n| n.name).collect();
    let before = before(&slurm.node_events(LOOK_BACK_S)?, &nodes, now_s);
    tracing::info!(failures = before.failures.len(), nodes = before.watched.len(), "history taken over from Slurm");
    store.lock().take_over(&before)?;
    Ok(true)
}

fn before(history: &NodeHistory, nodes: &[String], now_s: f64) -> Before {
    let from_s = history.from_s.unwrap_or(now_s).max(now_s - LOOK_BACK_S as f64);
    let out_s = |e: &NodeEvent| (e.end_s.unwrap_or(now_s).min(now_s) - e.start_s.max(from_s)).max(0.0);
    let watched = nodes.iter().map(|node| {
        let out: f64 = history.events.iter().filter(|e| e.node == *node).map(out_s).sum();
        (node.clone(), (now_s - from_s - out).max(0.0))
    });
    let died = history.events.iter().filter(|e| e.is_failure() && nodes.contains(&e.node));
    Before {
        failures: died.map(|e| (e.node.clone(), e.start_s, format!("{SOURCE}{}", e.reason))).collect(),
        watched: watched.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, start_s: f64, end_s: Option<f64>, state: &str, reason: &str) -> NodeEvent {
        NodeEvent { node: node.into(), start_s, end_s, state: state.into(), reason: reason.into() }
    }

    #[test]
    fn deaths_count_and_time_out_of_service_does_not() {
        let events = vec![
            event("n1", 200.0, Some(300.0), "DOWN*", "Not responding"),
            event("n2", 400.0, None, "DRAIN", "disk"),
            event("gone", 150.0, Some(160.0), "DOWN*", "Not responding"),
        ];
        let history = NodeHistory { from_s: Some(100.0), events };
        let before = before(&history, &["n1".into(), "n2".into(), "n3".into()], 1100.0);
        assert_eq!(before.failures, [("n1".to_string(), 200.0, "slurm: Not responding".to_string())]);
        let seconds: Vec<f64> = before.watched.iter().map(|w| w.1).collect();
        assert_eq!(seconds, [900.0, 300.0, 1000.0]);
    }

    #[test]
    fn a_store_takes_over_history_once() {
        let dir = tempfile::tempdir().expect("folder");
        let mut store = Store::open(&dir.path().join("store.sqlite")).expect("store");
        let before = Before {
            failures: vec![("n1".into(), 200.0, "slurm: Not responding".into())],
            watched: vec![("n1".into(), 900.0)],
        };
        assert!(!store.has_watched().expect("answer"));
        store.take_over(&before).expect("taken");
        assert!(store.has_watched().expect("answer"));
        let history = store.history("alice", "heat").expect("history");
        assert_eq!((history.node_failures, history.node_seconds), (1, 900.0));
    }
}
