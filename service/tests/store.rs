//! The store: every record once and in order, whatever is sent twice, lost or killed; phases that sum to the total.

#[path = "store/calibrations.rs"]
mod calibrations;
#[path = "store/lending.rs"]
mod lending;
#[path = "store/ordering.rs"]
mod ordering;

use protocol::{
    Batch, DecisionAccount, Event, FailureKind, JobReading, LoanAccount, Phase, Record, RunAccount, RunKey,
};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rusqlite::Connection;
use service::account::{Wanted, account, accounts, summary};
use service::store::{Store, Value, Write};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use testbed::PrivateMariadb;

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

fn plan_by(engine: &str) -> protocol::Plan {
    let settings = options::resolve(&protocol::Request::default(), &Default::default()).expect("settings");
    let plan = planner::plan_without_history(&settings, 1, &config::Site::default());
    protocol::Plan { engine: engine.into(), ..plan }
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

/// A MariaDB and its folder, which go in this order.
type Server = (PrivateMariadb, tempfile::TempDir);

/// The MariaDB that the tests that run at the same time share; none where it cannot be started.
fn mariadb() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    if !nix::unistd::geteuid().is_root() {
        println!("skipped on MariaDB: needs root");
        return None;
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let dir = tempfile::tempdir().expect("folder");
    let server = Arc::new((PrivateMariadb::start(dir.path()).expect("MariaDB"), dir));
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// Does the same with an empty store of each kind.
fn both(test: impl Fn(&mut Store)) {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    let dir = tempfile::tempdir().expect("folder");
    test(&mut Store::open(&dir.path().join("store.sqlite")).expect("SQLite"));
    if let Some(server) = mariadb() {
        let name = format!("jp{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let url = server.0.database(&name).expect("database");
        test(&mut Store::open(Path::new(&url)).expect("MariaDB"));
    }
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
        Event::Committed { number: 1, begun_s: 150.0, ended_s: 155.0, bytes: 1000, joules: Some(10.0), still_s: None },
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
    both(|store| {
        let batch = batch("7.1", records(1, run_with_a_death()));
        assert_eq!(store.append(&batch, UID).expect("first"), 27);
        let once = told(store, "7.1");
        assert_eq!(store.append(&batch, UID).expect("again"), 27);
        assert_eq!(told(store, "7.1"), once);
        assert_eq!(once.checkpoints.len(), 1);
    });
}

#[test]
fn every_event_reads_back_as_it_was_sent() {
    both(|store| {
        let mut events = run_with_a_death();
        events.insert(1, Event::CheckpointFailed { reason: "disk full".into() });
        events.insert(1, Event::Decided { action: "interval".into(), reason: "why".into(), interval_s: 9.5 });
        let sent = records(1, events);
        store.append(&batch("7.1", sent.clone()), UID).expect("stored");
        let mut statement =
            store.connection().prepare_cached("SELECT json FROM events ORDER BY seq").expect("prepared");
        let texts = statement.query_map(&[], |r| r.get::<String>(0)).expect("rows").map(|t| t.expect("a text"));
        let read: Vec<Record> =
            texts.map(|t| serde_json::from_str(&t).unwrap_or_else(|e| panic!("{t}: {e}"))).collect();
        assert_eq!(read, sent);
    });
}

#[test]
fn a_gap_is_answered_with_what_is_stored() {
    both(|store| {
        let mut all = records(1, run_with_a_death());
        let late = all.remove(2);
        assert_eq!(store.append(&batch("7.1", all.clone()), UID).expect("with a gap"), 2);
        let rest: Vec<Record> = std::iter::once(late).chain(all.into_iter().skip(2)).collect();
        assert_eq!(store.append(&batch("7.1", rest), UID).expect("the rest"), 27);
    });
}

#[test]
fn any_order_of_deliveries_gives_the_same_account() {
    both(|store| {
        let all = records(1, run_with_a_death());
        store.append(&batch("7.1", all.clone()), UID).expect("in order");
        let wanted = told(store, "7.1");
        for seed in 0..40 {
            let (mut rng, run) = (ChaCha8Rng::seed_from_u64(seed), format!("{seed}.2"));
            let mut upto = 0;
            while upto < 27 {
                let from = rng.random_range(0..=upto as usize);
                let to = rng.random_range(from..=27);
                let mut some = all[from..to].to_vec();
                if rng.random_bool(0.2) {
                    some.shuffle(&mut rng);
                }
                upto = store.append(&batch(&run, some), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}")).max(upto);
            }
            assert_eq!(RunAccount { run: "7.1".into(), ..told(store, &run) }, wanted, "seed {seed}");
        }
    });
}

#[test]
fn a_write_that_cannot_be_done_does_not_hold_up_the_others() {
    both(|store| {
        let good = |run: &str| Write::Batch { batch: batch(run, records(1, vec![started(7, 0, &["n1"])])), uid: UID };
        let headless = Write::Batch { batch: batch("8.1", records(1, vec![ended("completed")])), uid: UID };
        let answers = store.write(&[good("7.1"), headless, good("9.1")]).expect("commits");
        let upto: Vec<Option<u64>> = answers.into_iter().map(Result::ok).collect();
        assert_eq!(upto, [Some(1), None, Some(1)]);
        assert_eq!(accounts(store.connection(), &Wanted::default(), None).expect("accounts").len(), 2);
    });
}

#[test]
fn the_account_of_a_run_that_lost_a_node() {
    both(|store| {
        store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
        let run = told(store, "7.1");
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
    });
}

#[test]
fn a_new_run_is_told_which_engine_made_checkpoints() {
    both(|store| {
        let planned = |engine: &str| Event::Planned(Box::new(plan_by(engine)));
        let committed =
            Event::Committed { number: 1, begun_s: 101.0, ended_s: 102.0, bytes: 9, joules: None, still_s: None };
        let engine = |store: &mut Store| store.history("alice", "heat").expect("history").engine;
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"]), planned("app")])), UID).expect("stored");
        assert_eq!(engine(store), None, "it made no checkpoint");
        let made = vec![started(8, 0, &["n1"]), planned("scr"), committed];
        store.append(&batch("8.1", records(1, made)), UID).expect("stored");
        store.append(&batch("9.1", records(1, vec![started(9, 0, &["n1"]), planned("app")])), UID).expect("stored");
        assert_eq!(engine(store).as_deref(), Some("scr"));
    });
}

#[test]
fn a_new_run_is_told_the_work_and_the_volume_of_earlier_ones() {
    both(|store| {
        assert_eq!(store.history("alice", "heat").expect("history").work_s, None);
        store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
        let history = store.history("alice", "heat").expect("history");
        assert_eq!((history.work_s, history.checkpoint_bytes), (Some(100.0), Some(1000.0)));
        assert_eq!(store.history("alice", "other").expect("history").work_s, None);
    });
}

#[test]
fn an_interval_that_spans_the_line_is_cut_in_proportion() {
    both(|store| {
        let events = vec![
            started(7, 0, &["n1"]),
            phase(Phase::Compute, "n1", (100.0, 200.0), 100.0),
            reading("n1", 100.0, 99.0),
            Event::RolledBack { to: Some(1), kept_until_s: 130.0 },
            ended("completed"),
        ];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert!((joules(&run, Phase::Compute) - 30.0).abs() < 1e-9);
        assert!((joules(&run, Phase::LostWork) - 70.0).abs() < 1e-9);
    });
}

#[test]
fn only_the_work_of_the_group_that_went_back_is_lost() {
    both(|store| {
        let of = Box::new(Event::RolledBack { to: Some(1), kept_until_s: 130.0 });
        let events = vec![
            started(7, 0, &["n1", "n2", "n3"]),
            phase(Phase::Compute, "n1", (100.0, 200.0), 100.0),
            phase(Phase::Compute, "n2", (100.0, 200.0), 100.0),
            Event::InGroup { group: 1, nodes: vec!["n2".into(), "n3".into()], of },
            Event::InGroup { group: 1, nodes: vec!["n3".into()], of: Box::new(node_failure("n2", 195.0)) },
            ended("completed"),
        ];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        assert!((joules(&run, Phase::Compute) - 130.0).abs() < 1e-9);
        assert!((joules(&run, Phase::LostWork) - 70.0).abs() < 1e-9);
        assert_eq!(run.total.failures, 1);
    });
}

#[test]
fn what_a_dead_node_used_last_is_lost_work_and_late_counters_do_not_count() {
    both(|store| {
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
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((run.total.joules, joules(&run, Phase::LostWork)), (25.0, 25.0));
        assert_eq!(run.records[0].state, "interrupted");
    });
}

#[test]
fn a_death_that_both_sides_tell_is_one_failure() {
    let death = |store: &mut Store, controller_first: bool| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1", "n2"])])), UID).expect("stored");
        let tell = |store: &mut Store| store.node_died("n2", 195.0, 198.0, "silent", |_| true).expect("noted");
        if controller_first {
            assert_eq!(tell(store).len(), 1);
        }
        store.append(&batch("7.1", records(2, vec![node_failure("n2", 195.4)])), UID).expect("stored");
        if !controller_first {
            tell(store);
        }
        assert_eq!(told(store, "7.1").total.failures, 1, "controller first: {controller_first}");
        assert_eq!(store.history("alice", "heat").expect("history").node_failures, 1);
        let deaths = store.node_failures().expect("deaths");
        assert_eq!(deaths.iter().map(|d| d.node.as_str()).collect::<Vec<_>>(), ["n2"]);
    };
    both(|store| death(store, true));
    both(|store| death(store, false));
}

#[test]
fn cancelled_runs_and_timeouts_do_not_count_into_the_mtbf() {
    both(|store| {
        let other = |kind| Event::Failure { kind, node: None, failed_s: 1.0, detected_s: 1.0, reason: "asked".into() };
        let kinds = [FailureKind::Timeout, FailureKind::Cancelled, FailureKind::Preempted, FailureKind::Requeued];
        let events = std::iter::once(started(7, 0, &["n1"])).chain(kinds.map(other)).collect();
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        assert_eq!((run.failures.len(), run.total.failures), (4, 0));
        assert_eq!(store.history("alice", "heat").expect("history").node_failures, 0);
    });
}

#[test]
fn reports_are_restricted_to_what_is_asked_and_may_be_seen() {
    both(|store| {
        for (run, uid) in [("7.1", 1000), ("8.1", 1001)] {
            store.append(&batch(run, records(1, vec![started(7, 0, &["n1"])])), uid).expect("stored");
        }
        let count = |wanted: Wanted, uid| accounts(store.connection(), &wanted, uid).expect("accounts").len();
        assert_eq!(count(Wanted::default(), None), 2);
        assert_eq!(count(Wanted::default(), Some(1001)), 1);
        assert_eq!(count(Wanted { user: Some("nobody'; DROP TABLE runs; --".into()), ..Wanted::default() }, None), 0);
        assert_eq!(count(Wanted { end: Some(50.0), ..Wanted::default() }, None), 0);
        assert_eq!(count(Wanted { start: Some(50.0), state: Some("running".into()), ..Wanted::default() }, None), 2);
    });
}

#[test]
fn random_runs_sum_to_their_counters() {
    both(|store| {
        for seed in 0..150 {
            let run = format!("{seed}.1");
            let events = random_run(&mut ChaCha8Rng::seed_from_u64(seed));
            let count = events.len() as u64;
            let upto =
                store.append(&batch(&run, records(1, events)), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}"));
            assert_eq!(upto, count);
            println!("seed {seed}");
            sums(&told(store, &run));
        }
    });
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
fn energy_is_kept_by_phase_node_and_source() {
    both(|store| {
        let mut events = run_with_a_death();
        let rapl = Event::Phase {
            phase: Phase::Idle,
            node: "n3".into(),
            start_s: 255.0,
            end_s: 256.0,
            joules: Some(0.1),
            source: "rapl".into(),
        };
        events.insert(26, rapl);
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let sql = "SELECT node, phase, source, sum(joules) FROM phases WHERE run = ?1
                   GROUP BY node, phase, source ORDER BY node, phase, source";
        let mut statement = store.connection().prepare_cached(sql).expect("prepared");
        let rows = statement.query_map(&[Value::Text("7.1".into())], |r| {
            Ok((r.get::<String>(0)?, r.get::<String>(1)?, r.get::<String>(2)?, r.get::<f64>(3)?))
        });
        let rows: Vec<_> = rows.expect("rows").map(|r| r.expect("a row")).collect();
        let wanted = [
            ("n1", "checkpoint", "model", 5.0),
            ("n1", "compute", "model", 100.0),
            ("n1", "lost_work", "model", 40.0),
            ("n1", "restart", "model", 4.0),
            ("n2", "checkpoint", "model", 5.0),
            ("n2", "compute", "model", 60.0),
            ("n2", "lost_work", "model", 40.0),
            ("n3", "compute", "model", 51.5),
            ("n3", "idle", "rapl", 0.1),
            ("n3", "restart", "model", 4.0),
        ];
        let told: Vec<_> = rows.iter().map(|(n, p, s, j)| (n.as_str(), p.as_str(), s.as_str(), *j)).collect();
        assert_eq!(told, wanted);
    });
}

#[test]
fn decisions_and_loans_read_back() {
    both(|store| {
        let decided =
            |action: &str, interval_s| Event::Decided { action: action.into(), reason: "why".into(), interval_s };
        let events = vec![started(7, 0, &["n1"]), decided("interval", 9.5), decided("requeue", 0.1 + 0.2)];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let of = |at_s, action: &str, interval_s| DecisionAccount {
            at_s,
            action: action.into(),
            reason: "why".into(),
            interval_s,
        };
        let decisions = told(store, "7.1").decisions;
        assert_eq!(decisions, [of(102.0, "interval", 9.5), of(103.0, "requeue", 0.1 + 0.2)]);

        let away = LoanAccount { node: "n1".into(), borrower: Some(9), start_s: 5.0, end_s: None, joules: None };
        let back = LoanAccount { end_s: Some(8.0), joules: Some(12.5), ..away.clone() };
        // A second job may begin on the node in the same second, and nobody come to another.
        let beside = LoanAccount { borrower: Some(10), ..back.clone() };
        let empty = LoanAccount { node: "n2".into(), borrower: None, ..away.clone() };
        for loan in [&away, &empty, &beside, &back, &empty] {
            store.note_loan(&key("7.1"), loan).expect("noted");
        }
        let again = Event::Lent { node: "n1".into(), borrower: Some(9), start_s: 5.0, end_s: 8.0, joules: Some(12.5) };
        store.append(&batch("7.1", records(4, vec![again])), UID).expect("stored");
        assert_eq!(told(store, "7.1").loans, [back, beside, empty]);
        store.append(&batch("8.1", records(1, vec![started(8, 0, &["n1"])])), UID).expect("stored");
        assert_eq!(told(store, "8.1").loans, []);
    });
}

#[test]
fn failures_are_counted_by_kind() {
    both(|store| {
        let other = |kind| Event::Failure { kind, node: None, failed_s: 1.0, detected_s: 1.0, reason: "asked".into() };
        let kinds = [FailureKind::Step, FailureKind::Timeout, FailureKind::Step];
        let events = std::iter::once(started(7, 0, &["n1"])).chain(kinds.map(other)).collect();
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let count = |kind| store.failures(&key("7.1"), kind).expect("counted");
        assert_eq!([FailureKind::Step, FailureKind::Timeout, FailureKind::Node].map(count), [2, 1, 0]);
    });
}

#[test]
fn names_longer_than_a_column_are_cut_not_refused() {
    both(|store| {
        let mut first = started(7, 0, &["n1"]);
        let Event::Started { job_name, .. } = &mut first else { panic!("a start") };
        *job_name = "ü".repeat(5000);
        store.append(&batch("7.1", records(1, vec![first, ended("completed")])), UID).expect("stored");
        assert_eq!(told(store, "7.1").job_name, "ü".repeat(255));
    });
}

#[test]
fn what_one_database_refuses_does_not_hold_up_the_others() {
    both(|store| {
        let good = |run: &str| Write::Batch { batch: batch(run, records(1, vec![started(7, 0, &["n1"])])), uid: UID };
        let answers = store.write(&[good("7.1"), good(&"x".repeat(5000)), good("9.1")]).expect("commits");
        let upto: Vec<Option<u64>> = answers.into_iter().map(Result::ok).collect();
        assert_eq!((upto[0], upto[2]), (Some(1), Some(1)));
    });
}

#[test]
fn runs_that_ended_long_ago_are_forgotten_and_no_others() {
    both(|store| {
        for (run, day) in [("7.1", 1.0), ("8.1", 2.0), ("9.1", 3.0)] {
            let events = [started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (0.0, 1.0), 5.0), ended("completed")];
            let at = |(seq, event)| Record { seq, at_s: day * 86_400.0, event };
            store.append(&batch(run, (1..).zip(events).map(at).collect()), UID).expect("stored");
        }
        store.append(&batch("1.1", records(1, vec![started(1, 0, &["n1"])])), UID).expect("still running");
        store.watched(&[("n1".into(), 10.0)]).expect("noted");
        assert_eq!(store.forget(2.5 * 86_400.0, 1).expect("forgotten"), 1);
        assert_eq!(store.forget(2.5 * 86_400.0, 100).expect("forgotten"), 1);
        assert_eq!(store.forget(2.5 * 86_400.0, 100).expect("forgotten"), 0);
        let left = accounts(store.connection(), &Wanted::default(), None).expect("accounts");
        assert_eq!(left.iter().map(|r| r.run.as_str()).collect::<Vec<_>>(), ["1.1", "9.1"]);
        for (table, rows) in [("events", 4), ("phases", 1), ("records", 2)] {
            let sql = format!("SELECT count(*) FROM {table}");
            let mut statement = store.connection().prepare_cached(&sql).expect("prepared");
            assert_eq!(statement.query_row(&[], |r| r.get::<u32>(0)).expect("counted"), rows, "{table}");
        }
        assert_eq!(store.history("alice", "heat").expect("history").node_seconds, 10.0);
    });
}

#[test]
fn a_store_of_the_first_version_is_brought_up_to_date_with_all_it_holds() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    let old = Connection::open(&path).expect("file");
    old.execute_batch(include_str!("data/store-v1.sql")).expect("the first version's tables");
    old.execute_batch(
        "INSERT INTO runs VALUES ('c', '7.1', 7, 1000, 'alice', 'physics', 'all', 'heat', 'running', 1.0, NULL, 0, NULL);
         INSERT INTO records VALUES ('c', '7.1', 0, 7, 1.0, NULL, 'running', '[\"n1\"]');
         INSERT INTO phases (cluster, run, restart_count, node, phase, start_s, end_s, joules, source)
             VALUES ('c', '7.1', 0, 'n1', 'compute', 1.0, 2.0, 5.0, 'rapl');
         INSERT INTO events VALUES ('c', '7.1', 1, 1.0, '{}');",
    )
    .expect("rows");
    drop(old);
    let version = || {
        let c = Connection::open(&path).expect("opens");
        c.pragma_query_value::<i64, _>(None, "user_version", |r| r.get(0)).expect("asked")
    };
    assert_eq!(version(), 1);
    for _ in 0..2 {
        let mut store = Store::open(&path).expect("migrated");
        assert_eq!(joules(&told(&store, "7.1"), Phase::Compute), 5.0);
        assert_eq!(told(&store, "7.1").total.elapsed_s, 1.0, "it runs, and is known for so long");
        assert_eq!(store.append(&batch("7.1", vec![]), UID).expect("asked"), 1);
    }
    assert_eq!(version(), 7);
    let mut store = Store::open(&path).expect("opens");
    store.append(&batch("7.1", records(2, vec![ended("completed")])), UID).expect("goes on");
    assert_eq!(told(&store, "7.1").state, "completed");
}

#[test]
fn a_damaged_store_is_refused_with_the_cure() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    let mut store = Store::open(&path).expect("store");
    for n in 0..200 {
        let run = format!("{n}.1");
        store.append(&batch(&run, records(1, run_with_a_death())), UID).expect("stored");
    }
    drop(store);
    let whole = std::fs::read(&path).expect("read");
    let mut holed = whole.clone();
    let middle = whole.len() / 2 / 4096 * 4096;
    holed[middle..middle + 4096].fill(0xAA);
    for (what, bytes) in [("a hole", holed.as_slice()), ("half of it", &whole[..middle]), ("a text", &[b'x'; 9000])] {
        std::fs::write(&path, bytes).expect("written");
        let e = format!("{:#}", Store::open(&path).err().unwrap_or_else(|| panic!("{what} must be refused")));
        assert!(e.contains("is damaged") && e.contains("joulepointd backup"), "{what}: {e}");
    }
}

#[test]
fn a_copy_made_while_the_store_is_written_is_whole() {
    let dir = tempfile::tempdir().expect("folder");
    let (path, copy) = (dir.path().join("store.sqlite"), dir.path().join("copy.sqlite"));
    let mut store = Store::open(&path).expect("store");
    store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"])])), UID).expect("start");
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for batch in thousand(1).take(300) {
                store.append(&batch, UID).expect("stored");
            }
        });
        while !writing.is_finished() {
            Store::back_up(&path, &copy).expect("copied");
            let mut copied = Store::open(&copy).expect("a whole store");
            assert_eq!(copied.append(&batch("7.1", vec![]), UID).expect("asked") % 2, 1, "whole batches only");
        }
        writing.join().expect("no panic");
        Store::back_up(&path, &copy).expect("copied");
    });
    assert_eq!(Store::open(&copy).expect("opens").append(&batch("7.1", vec![]), UID).expect("asked"), 601);
}

#[test]
fn a_mariadb_that_went_away_is_found_again() {
    if mariadb().is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let server = PrivateMariadb::start(dir.path()).expect("MariaDB");
    let mut store = Store::open(Path::new(&server.database("jp").expect("database"))).expect("store");
    let mut send = |first, events| store.append(&batch("7.1", records(first, events)), UID);
    assert_eq!(send(1, vec![started(7, 0, &["n1"])]).expect("stored"), 1);
    drop(server);
    assert!(send(2, vec![ended("completed")]).is_err());
    let _server = PrivateMariadb::again(dir.path()).expect("MariaDB");
    // The killed server's socket file is still there, so that the new one need not listen yet.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    let upto = loop {
        match send(1, vec![started(7, 0, &["n1"]), ended("completed")]) {
            Ok(upto) => break upto,
            Err(e) if std::time::Instant::now() > deadline => panic!("not found again: {e:#}"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    assert_eq!(upto, 2);
    assert_eq!(told(&store, "7.1").state, "completed");
}

#[test]
fn a_store_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    Connection::open(&path).and_then(|c| c.pragma_update(None, "user_version", 99)).expect("set");
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
    assert_eq!(store.connection().damage().expect("looked through"), None);
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
