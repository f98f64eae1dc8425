//! Ranks of two and three groups talk through real relays, whatever comes between.

mod run;

use mpi_relay::{Client, Error, Outcome};
use run::{Run, letter, next, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Rests of both groups, together.
const RESTS: u32 = 20;

/// Each rank sends to all ranks of other groups, in rounds, and checks order and bytes.
fn talk(client: &Client, me: u32, others: &[u32], rounds: u32) {
    let mut seen = [0; 8];
    for round in 0..rounds {
        for other in others {
            let bytes = vec![me as u8; (round as usize * 997) % 5000];
            client.send(*other, letter(me, round as i32), &bytes).expect("sent");
        }
        for _ in others {
            let (envelope, bytes) = next(client).expect("received");
            let from = envelope.source;
            assert_eq!(envelope, letter(from, seen[from as usize]));
            assert_eq!(bytes, vec![from as u8; (seen[from as usize] as usize * 997) % 5000]);
            seen[from as usize] += 1;
        }
    }
}

#[test]
fn ranks_of_three_groups_get_what_was_sent_to_them_in_order() {
    for log in ["none", "memory", "disk"] {
        let run = Run::new("0-1/2,4/3", log);
        let _relays = run.relays();
        let layout = mpi_relay::Layout::parse(run.ranks).expect("a layout");
        thread::scope(|scope| {
            for me in 0..5u32 {
                let (run, layout) = (&run, &layout);
                scope.spawn(move || {
                    let client = run.client(me);
                    let own = layout.group_of(me as usize);
                    let others: Vec<u32> = (0..5).filter(|r| layout.group_of(*r as usize) != own).collect();
                    talk(&client, me, &others, 200);
                    client.finish().expect("ended");
                });
            }
        });
        let status = run.status(0).expect("a status");
        assert!(status.ranks.iter().all(|rank| rank.finished), "{status:?}");
        assert_eq!((status.tally.messages, status.differences.len()), (2 * 3 * 200, 0));
    }
}

#[test]
fn long_messages_arrive_whole_also_when_both_sides_send_first() {
    let run = Run::new("0/1", "memory");
    let _relays = run.relays();
    thread::scope(|scope| {
        for me in 0..2u32 {
            let run = &run;
            scope.spawn(move || {
                let client = run.client(me);
                let bytes: Vec<u8> = (0..50_000_000u32).map(|i| (i / 7) as u8 ^ me as u8).collect();
                client.send(1 - me, letter(me, 1), &bytes).expect("sent");
                client.send(1 - me, letter(me, 2), &[]).expect("sent");
                let (envelope, got) = next(&client).expect("received");
                assert_eq!(envelope, letter(1 - me, 1));
                assert!(got.iter().zip(&bytes).all(|(a, b)| *a == *b ^ 1) && got.len() == bytes.len());
                assert_eq!(next(&client).expect("received"), (letter(1 - me, 2), vec![]));
                client.finish().expect("ended");
            });
        }
    });
}

#[test]
fn a_rest_at_any_moment_loses_and_doubles_nothing() {
    for log in ["memory", "disk"] {
        let run = Run::new("0-1/2", log);
        let _relays = run.relays();
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| {
                let client = run.client(2);
                loop {
                    let (envelope, bytes) = next(&client).expect("received");
                    if bytes == b"end" {
                        return client.finish().expect("ended");
                    }
                    client.send(envelope.source, letter(2, envelope.tag), &bytes).expect("sent");
                }
            });
            let talker = scope.spawn(|| {
                let client = run.client(0);
                for number in (0i32..).take_while(|_| !enough.load(Ordering::SeqCst)) {
                    client.send(2, letter(0, number), &vec![7; (number as usize * 31) % 70_000]).expect("sent");
                    let (envelope, bytes) = next(&client).expect("received");
                    assert_eq!((envelope.tag, bytes.len()), (number, (number as usize * 31) % 70_000));
                }
                client.send(2, letter(0, 0), b"end").expect("sent");
                client.finish().expect("ended");
            });
            // It makes no call at all, and still leaves.
            let idle = run.client(1);
            let mut rests = 0;
            while rests < RESTS {
                for group in [0, 1] {
                    run.order("rest", group, &["--limit", "20"]);
                    assert!(!run.status(group).expect("a status").ranks.iter().any(|rank| rank.here));
                    rests += 1;
                    run.order("wake", group, &[]);
                    wait_for("the ranks", || run.status(group).filter(|s| s.relay.program));
                }
            }
            enough.store(true, Ordering::SeqCst);
            echo.join().expect("no panic");
            talker.join().expect("no panic");
            drop(idle);
        });
    }
}

#[test]
fn a_relay_with_its_log_on_disk_is_killed_and_nothing_is_lost() {
    let run = Run::new("0/1", "disk");
    let mut relays = run.relays();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for me in 0..2u32 {
            let (run, done) = (&run, &done);
            scope.spawn(move || {
                let client = run.client(me);
                talk(&client, me, &[1 - me], 3000);
                client.finish().expect("ended");
                done.store(true, Ordering::SeqCst);
            });
        }
        let mut kills = 0;
        while !done.load(Ordering::SeqCst) && kills < 6 {
            thread::sleep(Duration::from_millis(60));
            relays[kills % 2].kill();
            relays[kills % 2] = run.relay(kills % 2);
            kills += 1;
            wait_for("a relay", || run.status((kills + 1) % 2));
        }
        assert!(kills > 1, "{kills} kills are too few to show anything");
    });
}

#[test]
fn an_abort_reaches_all_ranks_and_those_that_come_later() {
    let run = Run::new("0-1/2/3", "memory");
    let _relays = run.relays();
    thread::scope(|scope| {
        let waiting: Vec<_> = [0, 2].into_iter().map(|me| (me, run.client(me))).collect();
        let waiting: Vec<_> =
            waiting.into_iter().map(|(me, client)| scope.spawn(move || (me, next(&client)))).collect();
        run.client(1).abort(42);
        for waiter in waiting {
            let (me, outcome) = waiter.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::Aborted { rank: 1, code: 42 })), "rank {me}: {outcome:?}");
        }
    });
    wait_for("the abort at group 2", || run.status(2).filter(|s| s.aborted == Some((1, 42))));
    // It may be told while it joins.
    let late = Client::connect(&run.socket(2), 3, 4).and_then(|client| next(&client));
    assert!(matches!(late, Err(Error::Aborted { rank: 1, code: 42 })), "{late:?}");
}

#[test]
fn outcomes_are_kept_in_order_and_are_durable_before_a_later_message_arrives() {
    let run = Run::new("0/1", "memory");
    let _relays = run.relays();
    let (one, two) = (run.client(0), run.client(1));
    for number in 0..100 {
        one.record(Outcome { call: 1, value: number, count: 1 }).expect("kept");
        if number % 10 == 0 {
            one.send(1, letter(0, number as i32), b"after").expect("sent");
            next(&two).expect("received");
            let kept = std::fs::metadata(run.path("relays/0.ranks/outcomes.log")).expect("a file").len();
            assert!(kept as usize >= (number as usize + 1) * mpi_relay::outcomes::RECORD_BYTES, "{kept} at {number}");
        }
    }
    assert_eq!(one.replayed(), None);
    // Another process in its place, from the beginning: it repeats all.
    drop(one);
    let again = run.client(0);
    let repeated: Vec<i64> = std::iter::from_fn(|| again.replayed()).map(|o| o.value).collect();
    assert_eq!(repeated, (0..100).collect::<Vec<i64>>());
}
