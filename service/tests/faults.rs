//! The daemon under load while it is killed, its disk is full, slow or hangs, and its clock jumps: events sent are
//! events stored.

mod daemons;

use daemons::{Daemon, Site, batch, is_root, key, preload, records, send, send_all, until};
use job::deliver::Courier;
use nix::sys::signal::Signal;
use node::spool::Spool;
use protocol::{Batch, Beat, BeatReply, Delivered, Event, Health, Record, RunHealth};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::Store;
use testbed::PrivateMariadb;
use wire::Error;

const ALICE: u32 = 54_321;
const MALLORY: u32 = 54_322;

/// Runs that send at the same time, and the events of each: ten thousand in all.
const RUNS: u64 = 4;
const EVENTS: u64 = 2500;

/// Sends all events from all runs while `meanwhile` does its harm; then reconciles.
fn under_load(site: &Site, meanwhile: impl FnOnce(&AtomicBool)) {
    let all = records(EVENTS);
    let sending = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..RUNS)
            .map(|n| {
                let (client, all) = (site.client(), &all);
                scope.spawn(move || send_all(&client, &format!("{n}.1"), all, 5 + 20 * n as usize))
            })
            .collect();
        let sending = &sending;
        scope.spawn(move || {
            for sender in senders {
                sender.join().expect("all is sent");
            }
            sending.store(false, Ordering::SeqCst);
        });
        meanwhile(sending);
    });
    for n in 0..RUNS {
        site.reconcile(&format!("{n}.1"), &all);
    }
}

/// Kills of a controller: on a slow machine it does little between two of them.
const MOST_KILLS: u32 = 40;

/// Kills the controller at random instants, until all is sent or it was killed often enough.
fn kill_in_a_loop(site: &Site, controller: Daemon, sending: &AtomicBool) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut controller, mut kills) = (controller, 0);
    while sending.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(rng.random_range(1..250)));
        if kills < MOST_KILLS {
            controller.kill();
            kills += 1;
            controller = site.controller();
        }
    }
    println!("killed {kills} times");
    assert!(kills >= 5, "killed only {kills} times");
}

#[test]
fn ten_thousand_events_outlive_kills_at_random_instants() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let controller = site.controller();
    under_load(&site, |sending| kill_in_a_loop(&site, controller, sending));
}

#[test]
fn ten_thousand_events_outlive_kills_on_a_mariadb() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let server = PrivateMariadb::start(dir.path()).expect("MariaDB");
    let site = Site::new(Some(PathBuf::from(server.database("jp").expect("database"))));
    let controller = site.controller();
    under_load(&site, |sending| kill_in_a_loop(&site, controller, sending));
}

/// How a controller is lost to its standby.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    /// It goes on when another one leads, with all that it had in hand.
    Stopped,
    Ended,
}

#[test]
fn events_outlive_controllers_that_take_over_from_each_other() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let server = PrivateMariadb::start(dir.path()).expect("MariaDB");
    let site = Site::of_two(PathBuf::from(server.database("jp").expect("database")));
    let mut leader = site.controller_of_two(false);
    site.until_leads(false);
    let mut standby = site.controller_of_two(true);
    let (all, going_on) = (records(5_000), AtomicBool::new(true));
    let sent = std::thread::scope(|scope| {
        let (client, all, going_on) = (site.client().within(Duration::from_secs(3)), &all, &going_on);
        let sender = scope.spawn(move || {
            let mut upto = 0;
            while going_on.load(Ordering::SeqCst) && upto < all.len() {
                // Whoever is not answered sends again; what is stored is stored once.
                upto = send(&client, "1.1", &all[upto..upto + 1]).map_or(upto, |now| now as usize);
                std::thread::sleep(Duration::from_millis(10));
            }
            // The last one may be stored though its answer was lost.
            let last = upto.min(all.len() - 1);
            until("an answer", || send(&client, "1.1", &all[last..=last]).map(|now| now as usize).ok())
        });
        let mut second = true;
        for loss in [Loss::Killed, Loss::Stopped, Loss::Ended, Loss::Stopped] {
            until("the standby to be known", || match site.client().get::<Health>("/healthz") {
                // There is no Slurm here, and the page is signed for nobody.
                Err(Error::Unproven { status: 503, text, .. }) => {
                    text.contains(r#""standby":{"ok":true"#).then_some(())
                }
                _ => None,
            });
            let lost = Instant::now();
            match loss {
                Loss::Killed => leader.kill(),
                Loss::Stopped => leader.signal(Signal::SIGSTOP),
                Loss::Ended => leader.signal(Signal::SIGTERM),
            }
            site.until_leads(second);
            println!("{loss:?}: the standby leads after {:.1} s", lost.elapsed().as_secs_f64());
            if matches!(loss, Loss::Stopped) {
                leader.signal(Signal::SIGCONT);
            }
            until("the controller before to end", || leader.has_ended().then_some(()));
            leader = std::mem::replace(&mut standby, site.controller_of_two(!second));
            second = !second;
        }
        going_on.store(false, Ordering::SeqCst);
        sender.join().expect("the sender")
    });
    assert!(sent > 100, "{sent} events were sent");
    site.reconcile("1.1", &all[..sent]);
}

/// A file system of a few bytes, gone with this value.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, size: &str) -> Small {
        std::fs::create_dir(&at).expect("folder");
        let small = Small(at);
        small.run(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        small
    }

    fn run(&self, options: &[&str]) {
        assert!(Command::new("mount").args(options).arg(&self.0).status().expect("mount").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn ten_thousand_events_outlive_a_full_disk() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let disk = Small::mount(dir.path().join("disk"), "1m");
    let site = Site::new(Some(disk.0.join("store.sqlite")));
    let _controller = site.controller();
    under_load(&site, |sending| {
        until("the disk to be full", || site.log("controller").contains("disk is full").then_some(()));
        assert!(sending.load(Ordering::SeqCst));
        let status = site.client().get::<Vec<protocol::RunAccount>>("/v1/report").expect("it still answers");
        assert!(!status.is_empty());
        disk.run(&["-o", "remount,size=64m"]);
    });
}

#[test]
fn ten_thousand_events_outlive_a_disk_that_is_slow_and_hangs() {
    if !is_root() {
        return;
    }
    let mut site = Site::new(None);
    let delay_ms = preload(&mut site, "disk.c", "JP_DISK");
    let _controller = site.controller();
    under_load(&site, |sending| {
        for ms in ["30", "600000"] {
            std::fs::write(&delay_ms, ms).expect("written");
            std::thread::sleep(Duration::from_millis(500));
            assert!(sending.load(Ordering::SeqCst), "with {ms} ms for a sync");
        }
        let one = records(1);
        let hung = std::thread::scope(|scope| {
            let asking = scope.spawn(|| send(&site.client(), "hung", &one));
            std::thread::sleep(Duration::from_millis(300));
            let hung = !asking.is_finished();
            std::fs::write(&delay_ms, "0").expect("written");
            asking.join().expect("no panic").expect("stored in the end");
            hung
        });
        assert!(hung, "nothing is acknowledged before it is on disk");
    });
}

#[test]
fn ten_thousand_events_outlive_steps_of_the_clock() {
    if !is_root() {
        return;
    }
    let mut site = Site::new(None);
    let ahead_s = preload(&mut site, "clock.c", "JP_CLOCK");
    let _controller = site.controller();
    sees_a_step(&site, &ahead_s);
    under_load(&site, |sending| {
        for step_s in [3600, -7200, 86_400, 0, -1, 1].iter().cycle() {
            std::fs::write(&ahead_s, step_s.to_string()).expect("written");
            std::thread::sleep(Duration::from_millis(40));
            if !sending.load(Ordering::SeqCst) {
                break;
            }
        }
    });
}

/// The daemon's clock is really the one that steps, by ten years; no node falls silent by that.
fn sees_a_step(site: &Site, ahead_s: &Path) {
    let beat = Beat {
        version: protocol::VERSION,
        node: "n1".into(),
        at_s: 0.0,
        started_s: 0.0,
        url: String::new(),
        slurmd_up: true,
        node_joules: 0.0,
        source: "model".into(),
        jobs: Vec::new(),
        fingerprint: None,
        boot_id: "boot".into(),
        epoch: None,
        engines: None,
        pause_s: None,
        up_s: None,
    };
    site.client().post::<Beat, BeatReply>("/v1/beats", &beat).expect("heard");
    send(&site.client(), "step", &records(1)).expect("stored");
    std::fs::write(ahead_s, TEN_YEARS_S.to_string()).expect("written");
    let since = std::time::SystemTime::UNIX_EPOCH;
    let now_s = std::time::SystemTime::now().duration_since(since).expect("a time").as_secs() as i64;
    let year = 1970 + (now_s + TEN_YEARS_S) / 31_556_952;
    until("a line of the log from ten years ahead", || {
        site.client().get::<RunHealth>("/v1/runs/c/none/health").expect_err("no such run, which is logged");
        // The calendar's year begins some hours before or after this one.
        let log = site.log("controller");
        (year - 1..=year + 1).any(|year| log.contains(&format!("{year}-"))).then_some(())
    });
    let health = site.client().get::<RunHealth>("/v1/runs/c/step/health").expect("health").nodes;
    assert!(health[0].silent_s.is_some_and(|s| s < 1000.0), "{health:?}");
}

/// As the calendar has it, s.
const TEN_YEARS_S: i64 = 315_569_520;

/// Waits until the store has all of a run.
fn arrived(site: &Site, run: &str, all: &[Record]) {
    until("the spool to be delivered", || {
        let upto = send(&site.client(), run, &[]).ok()?;
        (upto == all.len() as u64).then_some(())
    });
    site.reconcile(run, all);
}

#[test]
fn a_wrapper_s_records_arrive_once_while_both_services_are_killed() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let all = records(10_000);
    let (mut controller, mut node) = (site.controller(), site.node());
    let known = Arc::new(job::cluster::Controller::new(site.client(), "c/w.1".into(), 0));
    let spool = site.node_client();
    let spooled = Box::new(move || Some(spool.clone()));
    let courier = Courier::start(known, spooled, Box::new(Vec::new), key("w.1"), None, Vec::new());
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for (n, some) in all.chunks(250).enumerate() {
        courier.take(some.to_vec());
        std::thread::sleep(Duration::from_millis(rng.random_range(1..100)));
        match n % 4 {
            0 => controller.kill(),
            1 => node.kill(),
            2 => node = site.node(),
            _ => controller = site.controller(),
        }
    }
    controller.kill();
    assert!(courier.flush(Duration::from_secs(60)), "the last breath reaches the node's spool");
    drop(courier);
    drop(node);
    let _again = (site.controller(), site.node());
    arrived(&site, "w.1", &all);
    let waits = || std::fs::read_dir(site.dir.path().join("spool/n1")).expect("spool").count();
    until("the spool to be empty", || (waits() == 0).then_some(()));
}

#[test]
fn what_a_controller_has_lost_with_its_store_is_brought_again_by_runs_that_go_on() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let all = records(2000);
    let mut controller = site.controller();
    let known = Arc::new(job::cluster::Controller::new(site.client(), "c/w.1".into(), 0));
    let journals = all.clone();
    let recall = Box::new(move || journals.clone());
    let courier = Courier::start(known, Box::new(|| None), recall, key("w.1"), None, Vec::new());
    courier.take(all[..1500].to_vec());
    assert!(courier.flush(Duration::from_secs(60)));
    for file in ["", "-wal", "-shm"] {
        let path = format!("{}{file}", site.store.display());
        drop(std::fs::remove_file(path));
    }
    courier.take(all[1500..1800].to_vec());
    assert!(!courier.flush(Duration::from_secs(3)), "nothing goes into a file that is gone");
    let health = || site.client().get::<Health>("/healthz");
    let is_told = |e: Error| e.to_string().contains("removed or replaced").then_some(());
    until("healthz to say so", || health().err().and_then(is_told));
    controller.kill();
    let _again = site.controller();
    courier.take(all[1800..].to_vec());
    assert!(courier.flush(Duration::from_secs(60)), "{}", site.log("controller"));
    site.reconcile("w.1", &all);
}

#[test]
fn the_spool_delivers_in_the_name_of_who_filled_it_and_nobody_else_may_name_others() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let _node = site.node();
    let all = records(3);
    let sent = site.as_user(ALICE, || send(&site.node_client(), "a.1", &all));
    assert_eq!(sent.expect("kept"), 3);
    let _controller = site.controller();
    until("the delivery", || (site.stored("a.1") == of_user(ALICE, &all)).then_some(()));
    let seen = |uid| site.as_user(uid, || send(&site.client(), "a.1", &[]));
    assert_eq!(seen(ALICE).expect("hers"), 3);
    assert!(matches!(seen(MALLORY), Err(Error::Refused { status: 403, .. })));
    let forged = site.as_user(MALLORY, || {
        let path = format!("/v1/records?uid={ALICE}");
        site.client().post::<Batch, Delivered>(&path, &batch("a.1", &records(4)))
    });
    assert!(matches!(&forged, Err(Error::Refused { status: 403, text }) if text.contains("records of others")));
    // What the controller will never take does not stay in the way of others, and is kept beside the spool.
    let mut never = records(9);
    never[4].at_s = -1.0;
    site.as_user(MALLORY, || send(&site.node_client(), "a.1", &all[1..])).expect("kept, for now");
    site.as_user(MALLORY, || send(&site.node_client(), "n.1", &never)).expect("kept, for now");
    site.as_user(MALLORY, || send(&site.node_client(), "m.1", &all)).expect("kept");
    until("the delivery", || (site.stored("m.1") == of_user(MALLORY, &all)).then_some(()));
    until("the spool to be empty", || {
        (std::fs::read_dir(site.dir.path().join("spool/n1")).expect("spool").count() == 0).then_some(())
    });
    assert_eq!(site.stored("a.1"), of_user(ALICE, &all));
    assert!(site.stored("n.1").is_empty(), "of a batch with a bad record nothing is stored");
    assert!(site.log("node").contains("the controller refuses records"), "it is told");
    let refused = std::fs::read_dir(site.dir.path().join("spool/n1.refused")).expect("the folder of what was refused");
    let pages: Vec<String> =
        refused.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("read")).collect();
    assert_eq!(pages.len(), 2, "{pages:?}");
    let of = |run: &str| pages.iter().find(|page| page.contains(&format!("\"run\": \"{run}\""))).expect("its page");
    assert!(of("a.1").contains("user 54322 may not write this run"), "{pages:?}");
    assert!(of("n.1").contains("record 5: at_s = -1 is not within a day"), "{pages:?}");
}

/// Records as the controller keeps them: their user is whom munge names.
fn of_user(uid: u32, records: &[Record]) -> Vec<Record> {
    let mut records = records.to_vec();
    for record in &mut records {
        if let Event::Started { user, .. } = &mut record.event {
            *user = uid.to_string();
        }
    }
    records
}

#[test]
fn what_a_spool_has_of_an_ended_run_whose_beginning_the_controller_has_lost_does_not_stay_for_ever() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let spool = Spool::open(&site.dir.path().join("s"), 1 << 20).expect("spool");
    let _controller = site.controller();
    let mut all = records(9);
    spool.keep(0, &batch("1.1", &all[3..])).expect("kept");
    assert!(!spool.deliver(&site.client()), "its wrapper may bring what is missing");
    all.push(Record { seq: 10, at_s: 10.0, event: Event::Ended { state: "completed".into(), exit_code: 0 } });
    spool.keep(0, &batch("1.1", &all[9..])).expect("kept");
    assert!(spool.deliver(&site.client()), "nobody brings it any more");
    assert_eq!(spool.used_bytes(), 0);
    let aside = std::fs::read_dir(site.dir.path().join("s.refused")).expect("the folder of what was refused").count();
    assert_eq!(aside, 2);
}

#[test]
fn the_oldest_complete_run_is_delivered_first() {
    if !is_root() {
        return;
    }
    let site = Site::new(None);
    let spool = Spool::open(&site.dir.path().join("s"), 1 << 20).expect("spool");
    let complete = |run: &str| {
        let mut all = records(3);
        all.push(Record { seq: 4, at_s: 4.0, event: Event::Ended { state: "completed".into(), exit_code: 0 } });
        spool.keep(0, &batch(run, &all)).expect("kept");
    };
    spool.keep(0, &batch("1-open", &records(3))).expect("kept");
    complete("2-complete");
    complete("3-complete");
    assert!(!spool.deliver(&site.client()), "nobody is there");
    let _controller = site.controller();
    assert!(spool.deliver(&site.client()));
    assert_eq!(spool.used_bytes(), 0);
    let store = Store::open(&site.store).expect("opens");
    let mut order: Vec<String> =
        store.connection().query_map("SELECT run FROM decisions ORDER BY id", &[], |r| r.get(0)).expect("rows");
    order.dedup();
    assert_eq!(order, ["2-complete", "3-complete", "1-open"]);
}

#[test]
fn a_spool_on_a_full_disk_keeps_what_it_acknowledged() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let disk = Small::mount(dir.path().join("disk"), "256k");
    let spool = Spool::open(&disk.0, 1 << 30).expect("spool");
    let all = records(100_000);
    let keep = |some: &[Record]| spool.keep(0, &batch("a.1", some));
    let kept = all.chunks(100).map(keep).take_while(Result::is_ok).map(|r| r.expect("kept")).last().expect("some");
    assert!((100..100_000).contains(&kept), "{kept}");
    let opened = Spool::open(&disk.0, 1 << 30).expect("opens");
    assert_eq!(opened.used_bytes(), spool.used_bytes());
    let site = Site::new(None);
    let _controller = site.controller();
    assert!(opened.deliver(&site.client()));
    site.reconcile("a.1", &all[..kept as usize]);
}

#[test]
fn the_store_of_a_running_controller_is_copied_and_may_be_named_by_the_environment() {
    if !is_root() {
        return;
    }
    let mut site = Site::new(None);
    site.store = site.dir.path().join("other.sqlite");
    site.environment.push(("JOULEPOINT_STORE".into(), site.store.display().to_string()));
    let _controller = site.controller();
    let all = records(100);
    send_all(&site.client(), "7.1", &all, 50);
    let copy = site.dir.path().join("copy.sqlite");
    for _ in 0..2 {
        let mut backup = Command::new(env!("CARGO_BIN_EXE_joulepointd"));
        backup.arg("backup").arg(&copy).arg("--conf").arg(site.dir.path().join("conf"));
        let said = backup.envs(site.environment.iter().cloned()).output().expect("run");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    send_all(&site.client(), "8.1", &all, 50);
    site.store = copy;
    site.reconcile("7.1", &all);
    assert!(site.stored("8.1").is_empty(), "it came after the copy");
}
