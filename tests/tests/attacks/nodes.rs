//! What stands on nodes: their services do nothing for strangers, and keep what they were given.

use crate::{
    ALICE, BOB, End, Field, MALLORY, MINUTES, Over, PATIENCE, PROTECTED, as_user, attack, field, refused, started, uid,
};
use anyhow::{Context, Result, ensure};
use protocol::Event;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use wire::{Client, Error};

/// The number of the node on which a job runs.
fn node_of(field: &Field, job: u32) -> Result<u32> {
    let node = field.cluster.job(job)?.remove("NodeList").context("a node")?;
    Ok(node.trim_start_matches('n').parse()?)
}

fn socket(field: &Field, number: u32) -> PathBuf {
    field.conf.with_file_name(format!("n{number}.socket"))
}

#[test]
fn a_node_ends_grants_and_testifies_for_root_and_owners_alone() -> Result<()> {
    attack("orders to a node", |field| {
        let job = field.bobs.0;
        let number = node_of(field, job)?;
        let on = |what: &str| format!("/v1/jobs/{job}/{what}");
        as_user(uid(ALICE), || {
            let node = field.node(number);
            let ask = |path: &str, body: Value| node.post::<_, Value>(path, &body);
            refused(ask(&on("end"), json!({"version": 1, "restart_count": 4_294_967_295_u32})), &[403]);
            refused(ask("/v1/lease", json!({"version": 1, "node": "n2", "epoch": 1})), &[403]);
            let places = json!({"version": 1, "node": "n2", "url": "http://127.0.0.1:1", "slurmd": "127.0.0.1:1", "epoch": 9, "ended": []});
            refused(ask("/v1/testimony", places), &[403]);
            refused(ask(&on("frequency"), json!({"version": 1, "hz": 1})), &[400, 403, 404]);
            refused(ask(&on("writers"), json!({"version": 1, "files": []})), &[404]);
            let of_all: Vec<Value> = (0..2000).map(|_| json!({"begun_s": 0.0, "ended_s": 1e308})).collect();
            refused(ask(&on("leavings"), json!({"version": 1, "now_s": 0.0, "steps": of_all})), &[400]);
            let energy: Value = node.get(&on("energy")).expect("an answer as for a job that is not there");
            assert!(energy["job"].is_null(), "{energy}");
            let beat = json!({"version": 1, "node": "n1", "at_s": 0.0, "started_s": 0.0, "url": "http://127.0.0.1:1", "slurmd_up": false,
                "node_joules": 0.0, "source": "model", "jobs": []});
            refused(field.controller().post::<_, Value>("/v1/beats", &beat), &[403]);
        });
        Ok(())
    })
}

#[test]
fn a_crowd_on_a_nodes_socket_keeps_nobody_else_out() -> Result<()> {
    attack("1,200 connections to a node's socket", |field| {
        let path = socket(field, 1);
        let crowd =
            as_user(uid(ALICE), || (0..1200).filter_map(|_| UnixStream::connect(&path).ok()).collect::<Vec<_>>());
        ensure!(crowd.len() > 1000, "only {}", crowd.len());
        for user in [0, uid(BOB)] {
            let path = format!("/v1/jobs/{}/energy", field.bobs.0);
            as_user(user, || Client::on_socket(&socket(field, 1), PATIENCE).get::<Value>(&path))?;
        }
        std::thread::sleep(Duration::from_secs(4));
        Ok(())
    })
}

#[test]
fn what_root_writes_lies_where_no_user_may_write() -> Result<()> {
    attack("links in the way of root", |field| {
        let dir = field.conf.parent().context("a folder")?;
        let mut seen = 0;
        for entry in std::fs::read_dir(dir)?.chain(std::fs::read_dir(dir.join("spool"))?) {
            let path = entry?.path();
            // The new part of a lease is renamed at each heartbeat.
            let Ok(of) = std::fs::symlink_metadata(&path) else { continue };
            let is_socket = path.extension().is_some_and(|e| e == "socket");
            ensure!(
                of.uid() == 0 && (is_socket || of.is_symlink() || of.mode() & 0o022 == 0),
                "{}: {:o}",
                path.display(),
                of.mode()
            );
            seen += 1;
        }
        ensure!(seen > 5, "{seen} files");
        let spool = dir.join("spool/n1");
        ensure!(spool.is_dir() && as_user(uid(ALICE), || std::fs::read_dir(&spool).is_err()), "alice reads the spool");
        // A link in her run's folder leads root nowhere.
        let folder = field.folder(ALICE, "links")?;
        let target = dir.join("precious");
        std::fs::write(&target, "precious")?;
        let script = format!("ln -sf {} state; ln -sf /etc/shadow slurm-x; sleep 3", target.display());
        let args = [&PROTECTED[..], &["--ft-energy-interval=1s"]].concat();
        let job = field.submit(ALICE, &folder, &args, &script)?;
        field.wait_report(job, "its end", MINUTES, |run| (run["state"] != "running").then_some(()))?;
        ensure!(std::fs::read_to_string(&target)? == "precious");
        Ok(())
    })
}

/// Whoever holds the controller's port while it is away, and says no to everybody; how often.
fn stranger(field: &Field, over: &AtomicBool, asked: &AtomicU32, ready: &AtomicBool) -> Result<()> {
    let address = field.address();
    let listener =
        field.cluster.in_network_of(&End::Service, || as_user(uid(ALICE), || TcpListener::bind(&address)))??;
    listener.set_nonblocking(true)?;
    ready.store(true, Ordering::Relaxed);
    while !over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
        let _ = stream.read(&mut [0; 16 << 10]);
        let no = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
        let _ = stream.write_all(no.as_bytes());
        asked.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Fills a user's part of all spools; what the last refusal said.
fn fill(field: &Field, user: u32) -> Vec<String> {
    let text = "x".repeat(15_000);
    let of = |number: u32| {
        let client = Client::on_socket(&socket(field, number), PATIENCE);
        for from in (2_u64..).step_by(20).take(200) {
            let events = (0..20).map(|_| Event::CheckpointFailed { reason: text.clone() }).collect();
            let mut batch = field.batch("local-spool.1", from, events);
            if from == 2 {
                batch = field.batch("local-spool.1", 1, vec![started(0, vec![format!("n{number}")])]);
            }
            if let Err(e @ Error::Refused { status: 507, .. }) = client.post::<_, Value>("/v1/records", &batch) {
                return e.to_string();
            }
        }
        panic!("n{number} has taken 60 MB of one user");
    };
    as_user(user, || (1..=crate::NODES).map(of).collect())
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).map_or(true, |mut all| all.next().is_none())
}

#[test]
fn records_outlive_a_stranger_on_the_controllers_port_and_a_full_spool() -> Result<()> {
    let mut field = field();
    field.unharmed("before the controller is away")?;
    field.kill_controller()?;
    let (over, ready, asked) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
    let job = std::thread::scope(|scope| {
        let no = scope.spawn(|| stranger(&field, &over, &asked, &ready));
        let away = || -> Result<u32> {
            field.wait("the stranger on the port", MINUTES, |_| Ok(ready.load(Ordering::Relaxed).then_some(())))?;
            for said in fill(&field, MALLORY) {
                ensure!(said.contains("node.spool_bytes") && said.contains("a quarter"), "{said}");
            }
            let job = field.submit(BOB, &field.folder(BOB, "away")?, &PROTECTED, "sleep 1")?;
            field.wait_state(job, &["COMPLETED"], MINUTES)?;
            // The node tries the stranger with what it keeps.
            let before = asked.load(Ordering::Relaxed);
            field.wait("tries at the stranger", MINUTES, |_| {
                Ok((asked.load(Ordering::Relaxed) > before + 20).then_some(()))
            })?;
            Ok(job)
        };
        let job = {
            let _over = Over(&over);
            away()
        };
        no.join().expect("no panic")?;
        job
    })?;
    println!("  a stranger on the port: {} requests refused without a proof", asked.load(Ordering::Relaxed));
    field.start_controller()?;
    field.wait_report(job, "all of the run", MINUTES, |run| (run["state"] == "completed").then_some(()))?;
    for number in 1..=crate::NODES {
        let refused = field.conf.with_file_name("spool").join(format!("n{number}.refused"));
        ensure!(is_empty(&refused), "{} holds something", refused.display());
    }
    field.wait("bob's run to be known again", MINUTES, |f| {
        Ok(f.report(field.bobs.0)?.filter(|run| run["state"] == "running").map(drop))
    })?;
    field.unharmed("after it is back")
}
