//! The store: every record once and in order, whatever is sent twice, lost or killed; phases that sum to the total.

use protocol::{Batch, Event, FailureKind, JobReading, Phase, Record, RunAccount, RunKey};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use service::account::{Wanted, account, accounts, summary};
use service::store::{Store, Write};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

const UID: u32 = 1000;

fn key(run: &str) -> RunKey {
    RunKey { cluster: "c".into(), run: run.into() }
}

fn started(job: u32, restart_count: u32, nodes: &[&str]) -> Event {
    Event::Started {
        job,
        restart_count,
        user: "alice".into(),
        account: "physics".into(),
        partition: "all".into(),
        job_name: "heat".into(),
        nodes: nodes.iter().map(|n| n.to_string()).collect(),
        resumed_from: None,
        dir: "/tmp".into(),
    }
}

fn phase(phase: Phase, node: &str, span: (f64, f64), joules: f64) -> Event {
    let source = "model".into();
    Event::Phase { phase, node: node.into(), start_s: span.0, end_s: span.1, joules: Some(joules), source }
}

fn reading(node: &str, joules: f64, since_s: f64) -> Event {
    let reading = JobReading { job: 7, joules, cpu_s: 0.0, source: "model".into(), since_s };
    Event::Reading { node: node.into(), reading }
}

fn ended(state: &str) -> Event {
    Event::Ended { state: state.into(), exit_code: 0 }
}

fn node_failure(node: &str, at_s: f64) -> Event {
    let (kind, reason) = (FailureKind::Node, "gone".to_string());
    Event::Failure { kind, node: Some(node.into()), failed_s: at_s, detected_s: at_s + 3.0, reason }
}

/// Records from `first` on, one second apart.
fn records(first: u64, events: Vec<Event>) -> Vec<Record> {
    (first..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect()
}

fn batch(run: &str, records: Vec<Record>) -> Batch {
    Batch { version: protocol::VERSION, key: key(run), records }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("folder");
    let store = Store::open(&dir.path().join("store.sqlite")).expect("store");
    (dir, store)
}

fn told(store: &Store, run: &str) -> RunAccount {
    account(store.connection(), &key(run)).expect("account")
}

fn joules(run: &RunAccount, phase: Phase) -> f64 {
    run.phases.iter().find(|p| p.phase == phase).expect("all phases").joules
}

#[track_caller]
fn sums(run: &RunAccount) {
    let sum: f64 = run.phases.iter().map(|p| p.joules).sum();
    let off = (sum - run.total.joules).abs();
    assert!(off <= 1e-6 * run.total.joules.max(1.0), "phases {sum} J, total {} J", run.total.joules);
    assert!(run.phases.iter().all(|p| p.joules >= 0.0 && p.node_seconds >= 0.0), "{:?}", run.phases);
}

/// A run that lost a node: two records, the second from a checkpoint.
fn run_with_a_death() -> Vec<Event> {
    vec![
        started(7, 0, &["n1", "n2"]),
        phase(Phase::Compute, "n1", (100.0, 150.0), 50.0),
        reading("n1", 50.0, 99.0),
        phase(Phase::Compute, "n2", (100.0, 150.0), 60.0),
        reading("n2", 60.0, 99.0),
        phase(Phase::Checkpoint, "n1", (150.0, 155.0), 5.0),
        reading("n1", 55.0, 99.0),
        phase(Phase::Checkpoint, "n2", (150.0, 155.0), 5.0),
        reading("n2", 65.0, 99.0),
        Event::Committed { number: 1, begun_s: 150.0, ended_s: 155.0, bytes: 1000, joules: Some(10.0) },
        phase(Phase::Compute, "n1", (155.0, 195.0), 40.0),
        reading("n1", 95.0, 99.0),
        phase(Phase::Compute, "n2", (155.0, 195.0), 40.0),
        reading("n2", 105.0, 99.0),
        node_failure("n2", 195.0),
        ended("requeued"),
        started(7, 1, &["n1", "n3"]),
        Event::RolledBack { to: Some(1), kept_until_s: 150.0 },
        phase(Phase::Restart, "n1", (200.0, 205.0), 4.0),
        reading("n1", 4.0, 199.0),
        phase(Phase::Restart, "n3", (200.0, 205.0), 4.0),
        reading("n3", 4.0, 199.0),
        phase(Phase::Compute, "n1", (205.0, 255.0), 50.0),
        reading("n1", 54.0, 199.0),
        phase(Phase::Compute, "n3", (205.0, 255.0), 51.5),
        reading("n3", 55.5, 199.0),
        ended("completed"),
    ]
}

#[test]
fn what_is_sent_twice_is_stored_once() {
    let (_dir, mut store) = store();
    let batch = batch("7.1", records(1, run_with_a_death()));
    assert_eq!(store.append(&batch, UID).expect("first"), 27);
    let once = told(&store, "7.1");
    assert_eq!(store.append(&batch, UID).expect("again"), 27);
    assert_eq!(told(&store, "7.1"), once);
    assert_eq!(once.checkpoints.len(), 1);
}

#[test]
fn every_event_reads_back_as_it_was_sent() {
    let (_dir, mut store) = store();
    let mut events = run_with_a_death();
    events.insert(1, Event::CheckpointFailed { reason: "disk full".into() });
    events.insert(1, Event::Decided { action: "interval".into(), reason: "why".into(), interval_s: 9.5 });
    let sent = records(1, events);
    store.append(&batch("7.1", sent.clone()), UID).expect("stored");
    let mut statement = store.connection().prepare("SELECT json FROM events ORDER BY seq").expect("prepared");
    let texts = statement.query_map([], |r| r.get::<_, String>(0)).expect("rows").map(|t| t.expect("a text"));
    let read: Vec<Record> = texts.map(|t| serde_json::from_str(&t).unwrap_or_else(|e| panic!("{t}: {e}"))).collect();
    assert_eq!(read, sent);
}

#[test]
fn a_gap_is_answered_with_what_is_stored() {
    let (_dir, mut store) = store();
    let mut all = records(1, run_with_a_death());
    let late = all.remove(2);
    assert_eq!(store.append(&batch("7.1", all.clone()), UID).expect("with a gap"), 2);
    let rest: Vec<Record> = std::iter::once(late).chain(all.into_iter().skip(2)).collect();
    assert_eq!(store.append(&batch("7.1", rest), UID).expect("the rest"), 27);
}

#[test]
fn any_order_of_deliveries_gives_the_same_account() {
    let all = records(1, run_with_a_death());
    let (_dir, mut reference) = store();
    reference.append(&batch("7.1", all.clone()), UID).expect("in order");
    let wanted = told(&reference, "7.1");
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (_dir, mut store) = store();
        let mut upto = 0;
        while upto < 27 {
            let from = rng.random_range(0..=upto as usize);
            let to = rng.random_range(from..=27);
            let mut some = all[from..to].to_vec();
            if rng.random_bool(0.2) {
                some.shuffle(&mut rng);
            }
            upto = store.append(&batch("7.1", some), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}")).max(upto);
        }
        assert_eq!(told(&store, "7.1"), wanted, "seed {seed}");
    }
}

#[test]
fn a_write_that_cannot_be_done_does_not_hold_up_the_others() {
    let (_dir, mut store) = store();
    let good = |run: &str| Write::Batch { batch: batch(run, records(1, vec![started(7, 0, &["n1"])])), uid: UID };
    let headless = Write::Batch { batch: batch("8.1", records(1, vec![ended("completed")])), uid: UID };
    let answers = store.write(&[good("7.1"), headless, good("9.1")]).expect("commits");
    let upto: Vec<Option<u64>> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(upto, [Some(1), None, Some(1)]);
    assert_eq!(accounts(store.connection(), &Wanted::default(), None).expect("accounts").len(), 2);
}

#[test]
fn the_account_of_a_run_that_lost_a_node() {
    let (_dir, mut store) = store();
    store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
    let run = told(&store, "7.1");
    sums(&run);
    assert_eq!(run.total.joules, 95.0 + 105.0 + 54.0 + 55.5);
    assert_eq!(joules(&run, Phase::LostWork), 80.0);
    assert_eq!((run.total.recomputed_j, run.total.recomputed_node_s), (80.0, 80.0));
    assert_eq!((joules(&run, Phase::Checkpoint), joules(&run, Phase::Restart)), (10.0, 8.0));
    assert_eq!((run.total.failures, run.total.checkpoints, run.records.len()), (1, 1, 2));
    assert_eq!((run.state.as_str(), run.records[0].state.as_str()), ("completed", "requeued"));
    let overhead = run.total.energy_overhead.expect("there is computing");
    assert!((overhead - (309.5 - 211.5) / 211.5).abs() < 1e-12, "{overhead}");
    let short = summary(&run);
    assert_eq!((short.joules, short.lost_work_j, short.failures, short.source.as_str()), (309.5, 80.0, 1, "model"));
}

#[test]
fn a_new_run_is_told_the_work_and_the_volume_of_earlier_ones() {
    let (_dir, mut store) = store();
    assert_eq!(store.history("alice", "heat").expect("history").work_s, None);
    store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
    let history = store.history("alice", "heat").expect("history");
    assert_eq!((history.work_s, history.checkpoint_bytes), (Some(100.0), Some(1000.0)));
    assert_eq!(store.history("alice", "other").expect("history").work_s, None);
}

#[test]
fn an_interval_that_spans_the_line_is_cut_in_proportion() {
    let (_dir, mut store) = store();
    let events = vec![
        started(7, 0, &["n1"]),
        phase(Phase::Compute, "n1", (100.0, 200.0), 100.0),
        reading("n1", 100.0, 99.0),
        Event::RolledBack { to: Some(1), kept_until_s: 130.0 },
        ended("completed"),
    ];
    store.append(&batch("7.1", records(1, events)), UID).expect("stored");
    let run = told(&store, "7.1");
    sums(&run);
    assert!((joules(&run, Phase::Compute) - 30.0).abs() < 1e-9);
    assert!((joules(&run, Phase::LostWork) - 70.0).abs() < 1e-9);
}

#[test]
fn what_a_dead_node_used_last_is_lost_work_and_late_counters_do_not_count() {
    let (_dir, mut store) = store();
    let events =
        vec![started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (100.0, 110.0), 10.0), reading("n1", 10.0, 99.0)];
    store.append(&batch("7.1", records(1, events)), UID).expect("stored");
    let counters = |restart_count, joules, at_s| Write::Counters {
        key: key("7.1"),
        restart_count,
        node: "n1".into(),
        at_s,
        reading: JobReading { job: 7, joules, cpu_s: 0.0, source: "model".into(), since_s: 99.0 },
    };
    store.write(&[counters(0, 25.0, 120.0)]).expect("counted");
    let resumed = vec![started(7, 1, &["n2"]), Event::RolledBack { to: None, kept_until_s: 0.0 }];
    store.append(&batch("7.1", records(4, resumed)), UID).expect("stored");
    store.write(&[counters(0, 99.0, 130.0)]).expect("ignored");
    store.append(&batch("7.1", records(6, vec![ended("completed")])), UID).expect("stored");
    let run = told(&store, "7.1");
    sums(&run);
    assert_eq!((run.total.joules, joules(&run, Phase::LostWork)), (25.0, 25.0));
    assert_eq!(run.records[0].state, "interrupted");
}

#[test]
fn a_death_that_both_sides_tell_is_one_failure() {
    for controller_first in [true, false] {
        let (_dir, mut store) = store();
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1", "n2"])])), UID).expect("stored");
        let tell = |store: &mut Store| store.node_died("n2", 195.0, 198.0, "silent").expect("noted");
        if controller_first {
            assert_eq!(tell(&mut store).len(), 1);
        }
        store.append(&batch("7.1", records(2, vec![node_failure("n2", 195.4)])), UID).expect("stored");
        if !controller_first {
            tell(&mut store);
        }
        assert_eq!(told(&store, "7.1").total.failures, 1, "controller first: {controller_first}");
        assert_eq!(store.history("alice", "heat").expect("history").node_failures, 1);
    }
}

#[test]
fn cancelled_runs_and_timeouts_do_not_count_into_the_mtbf() {
    let (_dir, mut store) = store();
    let other = |kind| Event::Failure { kind, node: None, failed_s: 1.0, detected_s: 1.0, reason: "asked".into() };
    let kinds = [FailureKind::Timeout, FailureKind::Cancelled, FailureKind::Preempted, FailureKind::Requeued];
    let events = std::iter::once(started(7, 0, &["n1"])).chain(kinds.map(other)).collect();
    store.append(&batch("7.1", records(1, events)), UID).expect("stored");
    let run = told(&store, "7.1");
    assert_eq!((run.failures.len(), run.total.failures), (4, 0));
    assert_eq!(store.history("alice", "heat").expect("history").node_failures, 0);
}

#[test]
fn reports_are_restricted_to_what_is_asked_and_may_be_seen() {
    let (_dir, mut store) = store();
    for (run, uid) in [("7.1", 1000), ("8.1", 1001)] {
        store.append(&batch(run, records(1, vec![started(7, 0, &["n1"])])), uid).expect("stored");
    }
    let count = |wanted: Wanted, uid| accounts(store.connection(), &wanted, uid).expect("accounts").len();
    assert_eq!(count(Wanted::default(), None), 2);
    assert_eq!(count(Wanted::default(), Some(1001)), 1);
    assert_eq!(count(Wanted { user: Some("nobody'; DROP TABLE runs; --".into()), ..Wanted::default() }, None), 0);
    assert_eq!(count(Wanted { end: Some(50.0), ..Wanted::default() }, None), 0);
    assert_eq!(count(Wanted { start: Some(50.0), state: Some("running".into()), ..Wanted::default() }, None), 2);
}

#[test]
fn random_runs_sum_to_their_counters() {
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (_dir, mut store) = store();
        let events = random_run(&mut rng);
        let count = events.len() as u64;
        let upto =
            store.append(&batch("7.1", records(1, events)), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}"));
        assert_eq!(upto, count);
        let run = told(&store, "7.1");
        let sum: f64 = run.phases.iter().map(|p| p.joules).sum();
        let off = (sum - run.total.joules).abs();
        assert!(off <= 1e-6 * run.total.joules.max(1.0), "seed {seed}: phases {sum} J, total {} J", run.total.joules);
        assert!(run.total.resilience_j >= 0.0 && run.total.joules >= 0.0, "seed {seed}");
    }
}

/// Records with random phases, counters that begin anew, deaths, roll-backs and wrappers that vanish.
fn random_run(rng: &mut ChaCha8Rng) -> Vec<Event> {
    let mut events = Vec::new();
    let mut t = 100.0;
    for restart_count in 0..rng.random_range(1..4) {
        events.push(started(7, restart_count, &["n1", "n2"]));
        if restart_count > 0 {
            events.push(Event::RolledBack { to: None, kept_until_s: rng.random_range(0.0..t) });
        }
        let mut counters = [(0.0, t); 2];
        for _ in 0..rng.random_range(0..12) {
            let span = (t, t + rng.random_range(0.0..50.0));
            let which = Phase::ALL[rng.random_range(0..5)];
            for (node, counter) in ["n1", "n2"].into_iter().zip(&mut counters) {
                if rng.random_bool(0.1) {
                    *counter = (0.0, t);
                }
                let used = rng.random_range(0.0..1e4);
                counter.0 += used;
                events.push(phase(which, node, span, used));
                events.push(reading(node, counter.0, counter.1));
            }
            t = span.1;
            if rng.random_bool(0.1) {
                events.push(Event::RolledBack { to: None, kept_until_s: rng.random_range(0.0..t) });
            }
            if rng.random_bool(0.1) {
                let more = counters[0].0 + rng.random_range(0.0..100.0);
                counters[0].0 = more;
                events.push(reading("n1", more, counters[0].1));
                events.push(phase(Phase::Idle, "n1", (t, t), 0.0));
            }
        }
        if rng.random_bool(0.7) {
            events.push(ended("requeued"));
        }
    }
    events.push(ended("completed"));
    events
}

#[test]
fn a_store_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    Store::open(&path).expect("new").connection().pragma_update(None, "user_version", 99).expect("set");
    let e = Store::open(&path).err().expect("refused").to_string();
    assert!(e.contains("version 99"), "{e}");
}

/// Batches that the killed process writes: the start, then a phase and its reading in each.
fn thousand(first: u64) -> impl Iterator<Item = Batch> {
    let of = |n: u64| {
        let (t, j) = (100.0 + n as f64, n as f64);
        vec![phase(Phase::Compute, "n1", (t, t + 1.0), 1.0), reading("n1", j, 99.0)]
    };
    (first..=1000).map(move |n| batch("7.1", records(2 * n, of(n))))
}

/// Not a test by itself: what [`a_kill_in_the_middle_of_a_thousand_batches_loses_and_doubles_nothing`] kills.
#[test]
fn victim() {
    let Some(path) = std::env::var_os("JOULEPOINT_TEST_STORE") else { return };
    let mut store = Store::open(Path::new(&path)).expect("store");
    store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"])])), UID).expect("start");
    let mut out = std::io::stdout();
    for batch in thousand(1) {
        let upto = store.append(&batch, UID).expect("stored");
        writeln!(out, "upto {upto}").and_then(|()| out.flush()).expect("told");
    }
}

#[test]
fn a_kill_in_the_middle_of_a_thousand_batches_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "victim", "--nocapture"])
        .env("JOULEPOINT_TEST_STORE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the victim starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut acknowledged = 0;
    for line in lines.map_while(Result::ok) {
        // The harness's own words may stand before the first one on its line.
        let Some((_, upto)) = line.split_once("upto ") else { continue };
        acknowledged = upto.parse().expect("a number");
        if acknowledged >= 801 {
            child.kill().expect("killed");
            break;
        }
    }
    child.wait().expect("waited");
    assert!(acknowledged >= 801, "the victim told only {acknowledged}");

    let mut store = Store::open(&path).expect("opens again");
    let check: String = store.connection().pragma_query_value(None, "integrity_check", |r| r.get(0)).expect("checked");
    assert_eq!(check, "ok");
    let stored = store.append(&batch("7.1", vec![]), UID).expect("asked");
    assert!(stored >= acknowledged, "{stored} stored, {acknowledged} acknowledged");
    assert_eq!(stored % 2, 1, "a batch is stored whole or not at all");
    for batch in thousand(1) {
        store.append(&batch, UID).expect("sent again");
    }
    store.append(&batch("7.1", records(2002, vec![ended("completed")])), UID).expect("ended");
    let run = told(&store, "7.1");
    sums(&run);
    assert_eq!(run.total.joules, 1000.0);
    assert_eq!(joules(&run, Phase::Compute), 1000.0);
}
