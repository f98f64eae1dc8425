//! How many events a second the store takes durably, and how fast it tells what a day's runs cost.

use super::{quantile, row};
use anyhow::{Context, Result};
use protocol::{Batch, Event, JobReading, Phase, Record, RunKey};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;
use store::account::{Wanted, accounts};
use store::{Store, Write};
use testbed::PrivateMariadb;

/// How often the history of a user's job is read.
const HISTORIES: usize = 1000;

/// Runs in the store that is reported on, over a year, and those that are written together.
pub const RUNS: u32 = 100_000;
const TOGETHER: u32 = 1000;
pub const DAY_S: f64 = 86_400.0;
const YEAR_S: f64 = 365.0 * DAY_S;

/// The first moment of that year.
pub const BEGIN_S: f64 = 1.7e9;

/// The user, of a hundred, who asks for plans; as one of a thousand names, the job that is planned.
pub const ASKING: u32 = 7;

/// Events of a batch, and batches.
const BATCH: u64 = 500;
const BATCHES: u64 = 100;

/// Durable events a second: a bare log beside both databases, in batches and one by one.
pub fn events(dir: &Path) -> Result<()> {
    let bytes = serde_json::to_vec(&batch("1", 1, BATCH))?;
    let mut log = File::create(dir.join("log"))?;
    let start = Instant::now();
    for _ in 0..BATCHES {
        log.write_all(&bytes)?;
        log.sync_data()?;
    }
    let bare = rate(BATCHES * BATCH, start);
    row("events, bare log, 500 to a sync", &per_s(bare), "1.00", "");
    let folder = dir.join("mariadb");
    let server = PrivateMariadb::start(&folder)?;
    let places = [("SQLite", dir.join("events.sqlite")), ("MariaDB", server.database("jp")?.into())];
    for (name, place) in places {
        let mut store = Store::open(&place)?;
        let start = Instant::now();
        for n in 0..BATCHES {
            store.append(&batch("1", 1 + n * BATCH, BATCH), 0)?;
        }
        let together = rate(BATCHES * BATCH, start);
        let ratio = format!("{:.2}", together / bare);
        row(&format!("events, {name}, 500 to a sync"), &per_s(together), &ratio, ">= 10000/s");
        let start = Instant::now();
        for n in 0..BATCH {
            store.append(&batch("2", 1 + n, 1), 0)?;
        }
        row(&format!("events, {name}, one to a sync"), &per_s(rate(BATCH, start)), "", "");
    }
    Ok(())
}

fn rate(count: u64, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

pub fn per_s(rate: f64) -> String {
    format!("{rate:.0} /s")
}

/// A part of a run: its start, then cuts of its counter.
pub fn batch(run: &str, first: u64, count: u64) -> Batch {
    let event = |seq: u64| match seq {
        1 => started("load", seq as u32),
        seq if seq % 2 == 0 => phase(Phase::Compute, (seq as f64, seq as f64 + 2.0)),
        seq => reading(seq as f64),
    };
    let records = (first..first + count).map(|seq| Record { seq, at_s: BEGIN_S + seq as f64, event: event(seq) });
    Batch { version: protocol::VERSION, key: key(run), holder: None, records: records.collect() }
}

fn key(run: &str) -> RunKey {
    RunKey { cluster: "c".into(), run: run.into() }
}

/// One of the users; the service takes this benchmark's own questions as root's, so that root has a history.
fn user(n: u32) -> String {
    if n == ASKING { "root".into() } else { format!("user{n}") }
}

fn started(job_name: &str, n: u32) -> Event {
    Event::Started {
        job: 0,
        restart_count: 0,
        user: user(n % 100),
        account: format!("account{}", n % 10),
        partition: "all".into(),
        job_name: job_name.into(),
        nodes: vec!["n1".into(), "n2".into()],
        resumed_from: None,
        dir: "/tmp".into(),
    }
}

fn phase(phase: Phase, (start_s, end_s): (f64, f64)) -> Event {
    Event::Phase { phase, node: "n1".into(), start_s, end_s, joules: Some(2.0), source: "rapl".into() }
}

fn reading(joules: f64) -> Event {
    let reading = JobReading { job: 0, joules, cpu_s: 1.0, source: "rapl".into(), since_s: 0.0 };
    Event::Reading { node: "n1".into(), reading }
}

/// A store with a year of runs, each an hour long with two checkpoints and a plan's worth of cuts.
pub fn year(place: &Path) -> Result<Store> {
    let mut store = Store::open(place)?;
    for first in (0..RUNS).step_by(TOGETHER as usize) {
        let writes: Vec<Write> =
            (first..first + TOGETHER).map(|n| Write::Batch { batch: hour(n), uid: n % 100, verified: true }).collect();
        store.write(&writes)?.into_iter().collect::<store::Result<Vec<u64>>>().context("a run of the year")?;
    }
    Ok(store)
}

fn hour(n: u32) -> Batch {
    let begin_s = BEGIN_S + YEAR_S * f64::from(n) / f64::from(RUNS);
    let mut events = vec![started(&format!("job{}", n % 1000), n)];
    for part in 0..2_u32 {
        let at_s = begin_s + 1800.0 * f64::from(part);
        events.push(phase(Phase::Compute, (at_s, at_s + 1790.0)));
        events.push(phase(Phase::Checkpoint, (at_s + 1790.0, at_s + 1800.0)));
        events.push(reading(4.0 * f64::from(part + 1)));
        let (number, begun_s, ended_s) = (u64::from(part) + 1, at_s + 1790.0, at_s + 1800.0);
        events.push(Event::Committed {
            number,
            begun_s,
            ended_s,
            bytes: 1 << 30,
            written_bytes: None,
            joules: Some(2.0),
            still_s: None,
        });
    }
    events.push(Event::Ended { state: "completed".into(), exit_code: 0 });
    let records = (1..).zip(events).map(|(seq, event)| Record { seq, at_s: begin_s + seq as f64, event }).collect();
    Batch { version: protocol::VERSION, key: key(&format!("{n}.1")), holder: None, records }
}

/// Time to read a day's accounts out of the year, and all of them, and what bears on a plan.
pub fn reports(store: &Store) -> Result<()> {
    let mut times_us = Vec::new();
    for _ in 0..HISTORIES {
        let start = Instant::now();
        std::hint::black_box(store.history(&user(ASKING), &format!("job{ASKING}"))?);
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    row("history for a plan, median", &format!("{:.0} us", quantile(&mut times_us, 0.5)), "", "");
    let day = Wanted { start: Some(BEGIN_S + 180.0 * DAY_S), end: Some(BEGIN_S + 181.0 * DAY_S), ..Wanted::default() };
    for (what, wanted, target) in [("a day's", day, "< 1 s"), ("all", Wanted::default(), "")] {
        let start = Instant::now();
        let runs = accounts(store.connection(), &wanted, None, None)?.len();
        let time = format!("{:.3} s", start.elapsed().as_secs_f64());
        row(&format!("accounts of {runs} runs ({what}) of {RUNS}"), &time, "", target);
    }
    Ok(())
}
