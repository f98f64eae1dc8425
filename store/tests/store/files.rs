//! The database itself: older and later versions, damage, a copy, a kill, a server that goes away, and what is forgotten.

use super::{UID, batch, both, ended, joules, mariadb, phase, reading, records, run_with_a_death, started, sums, told};
use protocol::{Batch, Phase, Record};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use store::Store;
use store::account::{Wanted, accounts};
use testbed::PrivateMariadb;

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
        let left = accounts(store.connection(), &Wanted::default(), None, None).expect("accounts");
        assert_eq!(left.iter().map(|r| r.run.as_str()).collect::<Vec<_>>(), ["1.1", "9.1"]);
        for (table, rows) in [("events", 4), ("phases", 1), ("records", 2)] {
            let sql = format!("SELECT count(*) FROM {table}");
            assert_eq!(store.connection().query_row(&sql, &[], |r| r.get::<u32>(0)).expect("counted"), rows, "{table}");
        }
        assert_eq!(store.history("alice", "heat").expect("history").node_seconds, 10.0);
    });
}

#[test]
fn a_store_of_the_first_version_is_brought_up_to_date_with_all_it_holds() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    let old = Connection::open(&path).expect("file");
    old.execute_batch(include_str!("../data/store-v1.sql")).expect("the first version's tables");
    old.execute_batch(
        "INSERT INTO runs VALUES ('c', '7.1', 7, 1000, 'alice', 'physics', 'all', 'heat', 'running', 1.0, NULL, 0, NULL);
         INSERT INTO records VALUES ('c', '7.1', 0, 7, 1.0, NULL, 'running', '[\"n1\"]');
         INSERT INTO phases (cluster, run, restart_count, node, phase, start_s, end_s, joules, source)
             VALUES ('c', '7.1', 0, 'n1', 'compute', 1.0, 2.0, 5.0, 'rapl');
         INSERT INTO checkpoints VALUES ('c', '7.1', 1, 1.5, 1.75, 9, 2.0);
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
        assert_eq!(told(&store, "7.1").checkpoints.iter().map(|c| c.still_s).collect::<Vec<_>>(), [None]);
        assert_eq!(store.append(&batch("7.1", vec![]), UID).expect("asked"), 1);
    }
    assert_eq!(version(), 17);
    let mut store = Store::open(&path).expect("opens");
    store.append(&batch("7.1", records(2, vec![ended("completed")])), UID).expect("goes on");
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

#[test]
fn a_place_of_an_unknown_kind_or_in_no_folder_is_refused_and_nothing_is_made_there() {
    let dir = tempfile::tempdir().expect("folder");
    let elsewhere = dir.path().join("unmounted/store.sqlite");
    for (place, said) in [
        ("postgres://x/y", "postgres://x/y"),
        ("mariadb://me:secret@db/jp", "mariadb://...@db/jp"),
        (elsewhere.to_str().expect("UTF-8"), "unmounted for the store: make it"),
    ] {
        let refused = Store::open(Path::new(place)).err().expect("refused").to_string();
        assert!(refused.contains(said) && !refused.contains("secret"), "{refused}");
    }
    assert!(!elsewhere.exists() && !elsewhere.parent().expect("a folder").exists());
    assert!(!Path::new("postgres:").exists());
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
        .args(["--exact", "files::victim", "--nocapture"])
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
    assert_eq!(run.total.joules, Some(1000.0));
    assert_eq!(joules(&run, Phase::Compute), 1000.0);
}

#[test]
fn a_plan_is_told_the_newest_deaths_of_nodes_by_their_index() {
    both(|store| {
        store.watched(&[("n1".into(), 10.0), ("n2".into(), 20.0)]).expect("noted");
        assert_eq!(store.failure_log(5.0).expect("none").nodes, 0, "without a death nothing is counted");
        for i in 0..600 {
            store.node_died(&format!("n{}", i % 2), f64::from(i), f64::from(i), "silent", |_| false).expect("noted");
        }
        let log = store.failure_log(700.0).expect("a log");
        assert_eq!((log.nodes, log.newest.len(), log.now_s), (2, 512, 700.0));
        assert_eq!((log.newest[0].at_s, log.newest[511].at_s), (599.0, 88.0));
    });
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("store.sqlite");
    drop(Store::open(&path).expect("store"));
    let c = Connection::open(&path).expect("opens");
    let sql = "EXPLAIN QUERY PLAN SELECT node, at_s FROM node_failures ORDER BY at_s DESC LIMIT 512";
    let how: String = c.query_row(sql, [], |r| r.get(3)).expect("a plan");
    assert!(how.contains("node_failures_by_time"), "{how}");
}
