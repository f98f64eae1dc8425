//! The store on SQLite and MariaDB: what goes in once, what comes out of it, and what its files survive.

mod accounts;
mod calibrations;
mod delivery;
mod files;
mod leadership;
mod lending;
mod ordering;
mod tariff;

use protocol::{Batch, Event, FailureKind, JobReading, Phase, Record, RunAccount, RunKey};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use store::Store;
use store::account::account;
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

/// Makes documents of another version of rows: `TABLE WHERE ...`.
fn spoil(store: &Store, rows: &str) {
    let (table, which) = rows.split_once(' ').expect("a table and rows");
    let sql = format!("UPDATE {table} SET json = '{{}}' {which}");
    assert_eq!(store.connection().execute(&sql, &[]).expect("spoilt"), 1);
}

/// Records from `first` on, one second apart.
fn records(first: u64, events: Vec<Event>) -> Vec<Record> {
    (first..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect()
}

fn batch(run: &str, records: Vec<Record>) -> Batch {
    Batch { version: protocol::VERSION, key: key(run), holder: None, records }
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

/// An empty database of MariaDB; none where it cannot be started. It is there as long as the server is held.
fn database() -> Option<(Arc<Server>, PathBuf)> {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    let server = mariadb()?;
    let name = format!("jp{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    let url = server.0.database(&name).expect("database");
    Some((server, url.into()))
}

/// Does the same with an empty store of each kind.
fn both(test: impl Fn(&mut Store)) {
    let dir = tempfile::tempdir().expect("folder");
    test(&mut Store::open(&dir.path().join("store.sqlite")).expect("SQLite"));
    if let Some((_server, place)) = database() {
        test(&mut Store::open(&place).expect("MariaDB"));
    }
}

fn told(store: &Store, run: &str) -> RunAccount {
    account(store.connection(), &key(run)).expect("account")
}

fn joules(run: &RunAccount, phase: Phase) -> f64 {
    run.phases.iter().find(|p| p.phase == phase).expect("all phases").joules.unwrap_or(0.0)
}

#[track_caller]
fn sums(run: &RunAccount) {
    let sum: f64 = run.phases.iter().filter_map(|p| p.joules).sum();
    let total_j = run.total.joules.unwrap_or(0.0);
    let off = (sum - total_j).abs();
    assert!(off <= 1e-6 * total_j.max(1.0), "phases {sum} J, total {total_j} J");
    assert!(run.phases.iter().all(|p| p.joules.is_none_or(|j| j >= 0.0) && p.node_seconds >= 0.0), "{:?}", run.phases);
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
        Event::Committed {
            number: 1,
            begun_s: 150.0,
            ended_s: 155.0,
            bytes: 1000,
            written_bytes: None,
            joules: Some(10.0),
            still_s: None,
        },
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
