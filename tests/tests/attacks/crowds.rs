//! Crowds at the door: whoever asks for much waits for himself.

use crate::{ALICE, End, Field, MALLORY, PATIENCE, as_user, attack, request, started, uid};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// For how long a crowd stands: longer than nodes may be silent.
const STANDS: Duration = Duration::from_secs(5);

/// So long it takes until a user who has asked too much may ask as much at once again: ten times what a second allows.
const FULL_AGAIN: Duration = Duration::from_secs(10);

/// Lets this process have as many connections as it may.
fn many_connections() -> Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

fn connections(address: &str, number: usize) -> Vec<TcpStream> {
    (0..number).filter_map(|_| TcpStream::connect(address).ok()).collect()
}

/// Waits, and looks each second whether all nodes are heard.
fn nodes_are_heard(field: &Field, wait: Duration) -> Result<()> {
    let end = Instant::now() + wait;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        let metrics = field.metrics()?;
        let heard = metrics.lines().find_map(|l| l.strip_prefix("joulepoint_nodes "));
        ensure!(heard == Some(&crate::NODES.to_string()), "{heard:?} nodes are heard");
    }
    Ok(())
}

/// Several threads of a user do something until the time is over.
fn crowd(user: u32, threads: usize, lasts: Duration, act: impl Fn() + Sync) {
    let end = Instant::now() + lasts;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                as_user(user, || {
                    while Instant::now() < end {
                        act();
                    }
                })
            });
        }
    });
}

/// How often slurmctld was asked for something since it began.
fn asked(field: &Field, what: &str) -> Result<u64> {
    let said = field.cluster.output(&mut field.cluster.command("sdiag"))?;
    let count = |l: &str| l.split_once("count:")?.1.split_whitespace().next()?.parse().ok();
    Ok(said.lines().find(|l| l.trim_start().starts_with(&format!("{what} "))).and_then(count).unwrap_or(0))
}

/// A question of alice's wrapper whose answer is held back, since there is no news.
fn no_news(field: &Field) -> Result<String> {
    let health = format!("/v1/runs/{}/{}/health", field.cluster.name, field.alices.1);
    let known: Value = as_user(uid(ALICE), || field.controller().get(&health))?;
    Ok(format!("{health}?since={}&wait_s=60", known["news"].as_u64().context("news")?))
}

#[test]
fn long_node_lists_leave_the_controller_small() -> Result<()> {
    attack("24 lists of 515,000 nodes", |field| {
        let (job, run) = &field.alices;
        let lists = [vec!["a".to_string(); 515_000], vec!["n[1-9999999]".to_string(); 3], vec!["n1,n2\r\nX: y".into()]];
        for list in &lists {
            std::thread::scope(|scope| {
                let send = |n: usize| {
                    let user = if n.is_multiple_of(2) { MALLORY + 10 } else { uid(ALICE) };
                    let (job, run) =
                        if n.is_multiple_of(2) { (0, format!("local-{n}.1")) } else { (*job, run.to_string()) };
                    as_user(user, || field.deliver(&run, vec![started(job, list.clone())]))
                };
                let number = if list.len() > 9 { 24 } else { 2 };
                let sent: Vec<_> = (0..number).map(|n| scope.spawn(move || send(n))).collect();
                for answer in sent {
                    let answer = answer.join().expect("no panic");
                    assert!(answer.is_err(), "{} names are taken: {answer:?}", list.len());
                }
            });
        }
        Ok(())
    })
}

#[test]
fn idle_connections_of_users_keep_no_nodes_heartbeat_out() -> Result<()> {
    many_connections()?;
    attack("3,600 idle connections", |field| {
        let address = field.address();
        let mut idle = connections(&address, 1200);
        for node in [1, 2] {
            idle.extend(field.cluster.in_network_of(&End::Node(node), || connections(&address, 1200))?);
        }
        ensure!(idle.len() > 3000, "only {} connections", idle.len());
        nodes_are_heard(field, STANDS)
    })
}

#[test]
fn idle_connections_of_known_users_keep_no_nodes_heartbeat_out() -> Result<()> {
    many_connections()?;
    attack("1,100 connections that have shown who they are", |field| {
        let address = field.address();
        let known = field.cluster.in_network_of(&End::Node(1), || {
            let of = |n: u32| {
                as_user(MALLORY + 20 + n, || {
                    let mut all = connections(&address, 550);
                    for stream in &mut all {
                        let credential = field.credential("controller", "GET", "/v1/failures", b"");
                        let head =
                            format!("GET /v1/failures HTTP/1.1\r\nHost: x\r\nAuthorization: {credential}\r\n\r\n");
                        let _ = stream.write_all(head.as_bytes());
                        let _ = stream.set_read_timeout(Some(PATIENCE));
                        let _ = stream.read(&mut [0; 512]);
                    }
                    all
                })
            };
            [of(0), of(1)]
        })?;
        ensure!(known.iter().map(Vec::len).sum::<usize>() > 1000);
        nodes_are_heard(field, STANDS)
    })
}

#[test]
fn slow_heads_and_slow_bodies_hold_nobody_up() -> Result<()> {
    many_connections()?;
    attack("600 slow requests", |field| {
        let mut slow = connections(&field.address(), 600);
        as_user(uid(ALICE), || {
            for (n, stream) in slow.iter_mut().enumerate() {
                let credential = field.credential("controller", "POST", "/v1/records", b"");
                let signed = format!("Authorization: {credential}\r\nContent-Length: 3000000\r\n");
                let whole = request("POST", "/v1/records", &signed, b"");
                // A head that does not end, or a body that does not.
                let part = if n.is_multiple_of(2) { &whole[..whole.len() - 2] } else { &whole[..] };
                let _ = stream.write_all(part);
            }
        });
        let end = Instant::now() + STANDS;
        while Instant::now() < end {
            for stream in &mut slow {
                let _ = stream.write_all(b"x");
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(())
    })
}

#[test]
fn a_flood_on_every_route_is_its_senders_own() -> Result<()> {
    attack("a flood on every route", |field| {
        let run = format!("/v1/runs/{}/{}", field.cluster.name, field.alices.1);
        let (health, begin) = (format!("{run}/health"), format!("{run}/begin"));
        let former = serde_json::json!({"node": "n1", "of": {"job": field.alices.0, "restart_count": 7}});
        let begins = serde_json::json!({"version": 1, "former": vec![former; 4000]}).to_string();
        let plan = r#"{"version":1}"#.to_string();
        let order = format!(r#"{{"version":1,"id":"f1","verb":"checkpoint","job":"{}_7"}}"#, field.alices.0);
        let routes: Vec<(&str, &str, &str)> = vec![
            ("GET", "/v1/report", ""),
            ("GET", "/v1/report?start=0&end=99999999999", ""),
            ("GET", "/v1/failures", ""),
            ("GET", "/v1/loans", ""),
            ("GET", "/v1/calibrations", ""),
            ("GET", "/v1/queue?partition=all&cpus=4", ""),
            ("GET", &health, ""),
            ("POST", &begin, &begins),
            ("POST", "/v1/plan", &plan),
            ("POST", "/v1/records", &plan),
            ("POST", "/v1/orders", &order),
            ("POST", "/v1/loans", &plan),
            ("POST", "/v1/beats", &plan),
            ("POST", "/v1/calibrations", &plan),
            ("GET", "/v1/orders/f1", ""),
            ("GET", "/metrics", ""),
            ("GET", "/healthz", ""),
        ];
        let counts = std::sync::Mutex::new(BTreeMap::<u16, u32>::new());
        let (lists, singles) = (asked(field, "REQUEST_JOB_INFO")?, field.questions()?);
        crowd(uid(ALICE), 6, Duration::from_secs(8), || {
            for (method, path, body) in &routes {
                let (status, _) = field.signed(method, path, body.as_bytes(), "");
                *counts.lock().expect("counts").entry(status).or_default() += 1;
            }
        });
        let counts = counts.into_inner()?;
        println!("    {counts:?}");
        ensure!(counts.get(&200).is_some_and(|n| *n > 20), "{counts:?}");
        ensure!(!counts.contains_key(&500), "{counts:?}");
        let (lists, singles) = (asked(field, "REQUEST_JOB_INFO")? - lists, field.questions()? - singles);
        // The queue is listed once in five seconds; orders about an array's task ask for its list.
        ensure!(lists + singles < 700, "slurmctld was asked {lists} times for all jobs, {singles} times for one");
        Ok(())
    })
}

#[test]
fn answers_that_one_user_has_held_back_leave_room_for_others() -> Result<()> {
    many_connections()?;
    attack("700 held answers", |field| {
        let path = no_news(field)?;
        // The crowd of another test may have used up what alice may ask at once.
        std::thread::sleep(FULL_AGAIN);
        let sign = || field.credential("controller", "GET", &path, b"");
        let signed: Vec<String> = as_user(uid(ALICE), || (0..700).map(|_| sign()).collect());
        let mut held = connections(&field.address(), 700);
        for (stream, credential) in held.iter_mut().zip(signed) {
            let _ = stream.write_all(&request("GET", &path, &format!("Authorization: {credential}\r\n"), b""));
        }
        std::thread::sleep(STANDS);
        let waits = |stream: &&TcpStream| {
            let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
            peeked.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        };
        let waits = held.iter().filter(waits).count();
        ensure!(waits > 200, "only {waits} answers are held back");
        Ok(())
    })
}

#[test]
fn a_wrapper_that_comes_and_goes_causes_no_flood_of_questions_to_slurm() -> Result<()> {
    attack("waiting and going away", |field| {
        let path = no_news(field)?;
        let (before, begun) = (field.questions()?, Instant::now());
        crowd(uid(ALICE), 4, STANDS, || {
            let credential = field.credential("controller", "GET", &path, b"");
            if let Ok(mut stream) = TcpStream::connect(field.address()) {
                let _ = stream.write_all(&request("GET", &path, &format!("Authorization: {credential}\r\n"), b""));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let (asked, seconds) = (field.questions()? - before, begun.elapsed().as_secs_f64());
        // Ten a second in the long run, and sixty at once.
        ensure!((asked as f64) < 60.0 + 10.0 * seconds + 10.0, "slurmctld was asked {asked} times in {seconds:.1} s");
        Ok(())
    })
}
