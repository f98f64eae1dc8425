//! Calibrations in the store: their history, and what the commits of real runs teach them.

use super::both;
use protocol::{
    BasePower, Batch, CALIBRATION_VERSION, Calibration, Correction, Event, Fingerprint, Measured, Noise, Operation,
    Point, Record, RunKey, Storage,
};
use service::store::Store;

/// Writes 100 MB/s to the shared file system.
fn calibration(node_type: &str, node: &str, at_s: f64) -> Calibration {
    let point = |bytes: f64| Point {
        nodes: 1,
        processes: 1,
        bytes,
        intensity: 1.0,
        frequency_hz: None,
        time_s: bytes / 1e8,
        time_ci_s: 0.0,
        delta_w: 10.0,
        delta_ci_w: None,
        count: 5,
        outliers: 0,
    };
    let points = vec![point(1e8), point(2e8), point(4e8)];
    let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
    Calibration {
        version: CALIBRATION_VERSION,
        cluster: "c".into(),
        node_type: node_type.into(),
        at_s,
        fast: false,
        fingerprint: Fingerprint::default(),
        energy_source: "model".into(),
        power: BasePower { idle_w: [(node.to_string(), 100.0)].into(), ..BasePower::default() },
        noise: Noise::default(),
        measured: vec![Measured { operation, storage, points, fits: Vec::new() }],
        skipped: Vec::new(),
    }
}

/// A run on `node` that commits checkpoints of 300 MB, each so long.
fn run(store: &mut Store, name: &str, node: &str, durations_s: &[f64]) {
    let started = Event::Started {
        job: 7,
        restart_count: 0,
        user: "alice".into(),
        account: "a".into(),
        partition: "p".into(),
        job_name: "j".into(),
        nodes: vec![node.into(), "other".into()],
        resumed_from: None,
        dir: "/tmp".into(),
    };
    let committed = |(i, d): (usize, &f64)| {
        let (number, begun_s) = (i as u64 + 1, 1000.0 * i as f64);
        Event::Committed { number, begun_s, ended_s: begun_s + d, bytes: 300_000_000, joules: None }
    };
    let events = std::iter::once(started).chain(durations_s.iter().enumerate().map(committed));
    let records = (1..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect();
    let key = RunKey { cluster: "c".into(), run: name.into() };
    store.append(&Batch { version: protocol::VERSION, key, records }, 1000).expect("stored");
}

fn correction(store: &Store, node_type: &str) -> Option<Correction> {
    let newest = store.calibrations(Some(node_type), false).expect("read").remove(0);
    newest.corrections.into_iter().next()
}

#[test]
fn the_newest_of_each_type_is_told_and_the_history_is_kept() {
    both(|store| {
        for (node_type, at_s) in [("a", 1.0), ("b", 2.0), ("a", 3.0)] {
            store.keep_calibration(&calibration(node_type, "n1", at_s)).expect("kept");
        }
        let newest = store.calibrations(None, false).expect("read");
        let of: Vec<(&str, f64)> =
            newest.iter().map(|s| (s.calibration.node_type.as_str(), s.calibration.at_s)).collect();
        assert_eq!(of, [("a", 3.0), ("b", 2.0)]);
        assert_eq!(newest[0].calibration, calibration("a", "n1", 3.0));
        let ids: Vec<u64> = store.calibrations(Some("a"), true).expect("read").iter().map(|s| s.id).collect();
        assert_eq!(ids.len(), 2);
        assert!(ids[0] > ids[1], "newest first");
        assert!(store.calibrations(Some("c"), true).expect("read").is_empty());
    });
}

#[test]
fn commits_of_real_runs_refine_the_estimate_and_one_odd_run_does_not_spoil_it() {
    both(|store| {
        store.keep_calibration(&calibration("a", "n1", 1.0)).expect("kept");
        run(store, "7.1", "n1", &[3.9; 40]);
        let learnt = correction(store, "a").expect("a correction");
        assert!((learnt.factor - 1.3).abs() < 0.02 && learnt.count == 40, "{learnt:?}");
        run(store, "8.1", "n1", &[3000.0]);
        let after = correction(store, "a").expect("a correction");
        assert!((after.factor / learnt.factor).ln().abs() < 0.02, "{after:?}");
        run(store, "9.1", "elsewhere", &[1.0; 5]);
        assert_eq!(correction(store, "a"), Some(after), "a node of no known type teaches nothing");
        store.keep_calibration(&calibration("a", "n1", 9.0)).expect("kept");
        assert_eq!(correction(store, "a"), None, "a new calibration begins anew");
    });
}
