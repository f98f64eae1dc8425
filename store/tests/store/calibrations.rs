//! Calibrations in the store: their history, and what real runs teach them.

use super::both;
use protocol::{
    BasePower, Batch, CALIBRATION_VERSION, Calibration, Correction, Event, Fingerprint, Measured, Noise, Operation,
    Phase, Plan, PlanRequest, Point, Quantity, Record, Request, RunKey, Setting, Source, Storage,
};
use std::collections::BTreeMap;
use store::Store;

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
    // It reads twice as fast as it writes.
    let read = points.iter().map(|p| Point { time_s: 0.5 * p.time_s, ..p.clone() }).collect();
    let of = |operation, points| Measured { operation, storage: Some(Storage::Shared), points, fits: Vec::new() };
    Calibration {
        version: CALIBRATION_VERSION,
        cluster: "c".into(),
        node_type: node_type.into(),
        at_s,
        fast: false,
        fingerprint: Fingerprint::default(),
        differing: BTreeMap::new(),
        energy_source: "model".into(),
        power: BasePower { idle_w: [(node.to_string(), 100.0)].into(), ..BasePower::default() },
        noise: Noise::default(),
        measured: vec![of(Operation::CheckpointWrite, points), of(Operation::CheckpointRead, read)],
        skipped: Vec::new(),
    }
}

/// The plan of a run with an engine, two processes on each node.
pub fn plan(engine: &str) -> Plan {
    let request = Request {
        settings: [("ft-energy".to_string(), Setting { value: String::new(), source: Source::Option })].into(),
    };
    let question = PlanRequest { request, nodes: 1, cpus_per_node: 2, ..PlanRequest::default() };
    let made = planner::make_plan(&question, &planner::History::default(), &config::Site::default()).expect("a plan");
    Plan { engine: engine.into(), ..made }
}

/// The beginning of a run's record on `node`; the second goes on from checkpoint 1.
fn started(node: &str, restart_count: u32) -> Event {
    Event::Started {
        job: 7,
        restart_count,
        user: "alice".into(),
        account: "a".into(),
        partition: "p".into(),
        job_name: "j".into(),
        nodes: vec![node.into()],
        resumed_from: (restart_count > 0).then_some(1),
        dir: "/tmp".into(),
    }
}

/// Tells the store what happened to a run, from record number `from` on.
fn tell(store: &mut Store, name: &str, from: u64, events: Vec<Event>) {
    let records = (from..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect();
    let key = RunKey { cluster: "c".into(), run: name.into() };
    store.append(&Batch { version: protocol::VERSION, key, holder: None, records }, 1000).expect("stored");
}

/// A run on `node` that commits checkpoints of 300 MB, each so long, at 130 W.
fn run(store: &mut Store, name: &str, node: &str, engine: &str, durations_s: &[f64]) {
    let committed = |(i, d): (usize, &f64)| {
        let (number, begun_s) = (i as u64 + 1, 1000.0 * (i as f64 + 1.0));
        Event::Committed {
            number,
            begun_s,
            ended_s: begun_s + d,
            bytes: 300_000_000,
            written_bytes: None,
            joules: Some(130.0 * d),
            still_s: None,
        }
    };
    let begun = [started(node, 0), Event::Planned(Box::new(plan(engine)))];
    tell(store, name, 1, begun.into_iter().chain(durations_s.iter().enumerate().map(committed)).collect());
}

/// The same, up to its end.
fn ended(store: &mut Store, name: &str, node: &str, engine: &str, durations_s: &[f64]) {
    run(store, name, node, engine, durations_s);
    let end = Event::Ended { state: "requeued".into(), exit_code: 0 };
    tell(store, name, durations_s.len() as u64 + 3, vec![end]);
}

fn correction(store: &Store, node_type: &str, operation: Operation, of: Quantity) -> Option<Correction> {
    let newest = store.calibrations(Some(node_type), false).expect("read").remove(0);
    newest.corrections.into_iter().find(|c| (c.operation, c.of) == (operation, of))
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
        store.keep_calibration(&calibration("a", "n1", 0.5)).expect("kept");
        let used = store.calibrations(Some("a"), false).expect("read");
        assert_eq!((used.len(), used[0].calibration.at_s), (1, 0.5), "who imports an old one wants it back");
    });
}

#[test]
fn real_runs_refine_the_estimate_and_one_odd_run_does_not_spoil_it_however_many_its_checkpoints() {
    both(|store| {
        store.keep_calibration(&calibration("a", "n1", 1.0)).expect("kept");
        let write = |store: &Store, of| correction(store, "a", Operation::CheckpointWrite, of);
        (0..40).for_each(|i| ended(store, &format!("7.{i}"), "n1", "app", &[3.8, 4.0, 3.9]));
        let learnt = write(store, Quantity::TimeS).expect("a correction");
        assert!((learnt.factor - 1.3).abs() < 0.02 && learnt.count == 40, "{learnt:?}");
        let power = write(store, Quantity::DeltaW).expect("a correction");
        assert!((power.factor / 3.0 - 1.0).abs() < 0.1, "30 W above idle instead of 10: {power:?}");
        ended(store, "8.1", "n1", "app", &[3000.0; 50]);
        let after = write(store, Quantity::TimeS).expect("a correction");
        assert!((after.factor / learnt.factor).ln().abs() < 0.02, "{after:?}");
        ended(store, "9.1", "elsewhere", "app", &[1.0; 5]);
        ended(store, "10.1", "n1", "criu", &[1.0; 5]);
        run(store, "11.1", "n1", "app", &[1.0; 5]);
        let now = write(store, Quantity::TimeS);
        assert_eq!(
            now,
            Some(after),
            "a node of no known type teaches nothing, nor an engine that was not measured, nor a run before its end"
        );
        store.keep_calibration(&calibration("a", "n1", 9.0)).expect("kept");
        assert_eq!(write(store, Quantity::TimeS), None, "a new calibration begins anew");
    });
}

#[test]
fn a_record_teaches_once_however_it_ends() {
    both(|store| {
        store.keep_calibration(&calibration("a", "n1", 1.0)).expect("kept");
        let count = |store: &Store| {
            correction(store, "a", Operation::CheckpointWrite, Quantity::TimeS).map_or(0, |learnt| learnt.count)
        };
        // Its wrapper ends it, and once more when it could not be requeued.
        ended(store, "7.1", "n1", "app", &[3.9]);
        tell(store, "7.1", 5, vec![Event::Ended { state: "failed".into(), exit_code: 1 }]);
        assert_eq!(count(store), 1);
        // Its batch host dies: the watch ends it.
        run(store, "8.1", "n1", "app", &[3.9]);
        let open = store.open_runs().expect("read").into_iter().find(|o| o.key.run == "8.1").expect("a run");
        store.close(&open, 2000.0, "failed").expect("closed");
        assert_eq!(count(store), 2);
        // Or its next record does.
        run(store, "9.1", "n1", "app", &[3.9]);
        tell(store, "9.1", 4, vec![started("n1", 1)]);
        assert_eq!(count(store), 3);
    });
}

#[test]
fn a_run_that_resumes_refines_the_restart_and_the_history_has_its_time() {
    both(|store| {
        store.keep_calibration(&calibration("a", "n1", 1.0)).expect("kept");
        run(store, "7.1", "n1", "app", &[3.0]);
        let restart = |start_s: f64, end_s: f64| Event::Phase {
            phase: Phase::Restart,
            node: "n1".into(),
            start_s,
            end_s,
            joules: Some(1.0),
            source: "model".into(),
        };
        // A newer checkpoint that turns out to be damaged, and the way into the queue, which brings no checkpoint back.
        let damaged = Event::Committed {
            number: 2,
            begun_s: 101.0,
            ended_s: 104.0,
            bytes: 3_000_000,
            written_bytes: None,
            joules: None,
            still_s: None,
        };
        tell(store, "7.1", 4, vec![restart(103.5, 103.9), damaged]);
        let read = |store: &Store| correction(store, "a", Operation::CheckpointRead, Quantity::TimeS);
        assert_eq!(read(store), None);
        // The record is told at 106 s, just after it began; later its program is started again in place.
        tell(store, "7.1", 6, vec![started("n1", 1), restart(105.9, 107.4), restart(120.0, 190.0)]);
        let learnt = read(store).expect("a correction");
        assert!(learnt.count == 1 && (learnt.factor - 1.0).abs() < 1e-6, "1.5 s, as 300 MB were estimated: {learnt:?}");
        let seen_s = store.history("alice", "j").expect("read").restart_s.expect("a restart");
        assert!((seen_s - 1.5).abs() < 1e-6, "{seen_s}");
    });
}
