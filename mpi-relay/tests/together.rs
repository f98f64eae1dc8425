//! Relays of groups that all go back together: their logs stay small without checkpoints, and a line holds what is under way.

mod run;

use mpi_relay::layout::Layout;
use mpi_relay::{Client, line};
use run::{BEYOND_BYTES, Run, letter, next, wait_for};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MESSAGES: u32 = 1000;

/// What a log may take, bytes.
const LOG_BYTES: u64 = 8_000_000;

/// Its number, and 100,000 bytes.
fn message(number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(100_000, 7);
    bytes
}

fn take(client: &Client, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (_, bytes) = next(client).expect("received");
        assert_eq!(bytes, message(number));
    }
}

#[test]
fn a_log_that_is_many_times_too_small_for_all_messages_is_never_full() {
    let run = Run::new("0/1", "memory");
    let _relays = [0, 1].map(|group| run.relay_with(group, &["--together", "--log-bytes", &LOG_BYTES.to_string()]));
    (0..2).for_each(|group| drop(wait_for("a relay", || run.status(group))));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| take(&run.client(1), 0..MESSAGES));
        let sender = run.client(0);
        (0..MESSAGES).for_each(|n| sender.send(1, letter(0, 1), &message(n)).expect("sent"));
        receiver.join().expect("all in order");
    });
    let status = run.status(0).expect("a status");
    assert!(status.relay.log_bytes <= LOG_BYTES + BEYOND_BYTES && status.tally.bytes > 3 * BEYOND_BYTES, "{status:?}");
    assert_eq!(status.uncompared, 0, "{status:?}");
    assert!(!run.path("relays/0.ranks/ranks.json").exists(), "nothing is kept beside what is saved");
}

#[test]
fn what_is_under_way_at_a_line_arrives_after_all_have_gone_back_to_it() {
    let run = Run::new("0/1", "memory");
    let together = |group, more: &[&str]| run.relay_with(group, &[&["--together"], more].concat());
    let mut relays = [0, 1].map(|group| together(group, &[]));
    (0..2).for_each(|group| drop(wait_for("a relay", || run.status(group))));
    let (sender, receiver) = (run.client(0), run.client(1));
    (0..40).for_each(|n| sender.send(1, letter(0, 1), &message(n)).expect("sent"));
    take(&receiver, 0..40);
    let received = receiver.progress().expect("progress");
    run.order("rest", 1, &["--checkpoint", "1"]);
    (40..100).for_each(|n| sender.send(1, letter(0, 1), &message(n)).expect("sent"));
    let sent = sender.progress().expect("progress");
    let saved = [0, 1].map(|group| run.path(&format!("saved{group}")));
    run.order("rest", 0, &["--checkpoint", "1"]);
    for (group, folder) in saved.iter().enumerate() {
        run.order("save", group, &["--to", folder.to_str().expect("a path")]);
    }
    let folders = [saved[0].as_path(), saved[1].as_path()];
    assert!(line::is_line(&Layout::parse("0/1").expect("a layout"), &folders, 1).expect("marks"));
    (0..2).for_each(|group| run.order("wake", group, &[]));
    // What follows never was.
    (100..120).for_each(|_| sender.send(1, letter(0, 1), b"another life").expect("sent"));
    drop((sender, receiver));
    relays.iter_mut().for_each(run::Process::kill);
    let _relays = [0, 1].map(|group| together(group, &["--line", saved[group].to_str().expect("a path")]));
    let (sender, receiver) = (
        Client::connect_at(&run.socket(0), 0, &sent).expect("joined"),
        Client::connect_at(&run.socket(1), 1, &received).expect("joined"),
    );
    (100..200).for_each(|n| sender.send(1, letter(0, 1), &message(n)).expect("sent"));
    take(&receiver, 40..200);
}

/// Sends to rank 0 and waits for the answer, until it is over.
fn ask_on(run: &Run, rank: u32, is_over: &AtomicBool, all_over: &Barrier) {
    let client = run.client(rank);
    while !is_over.load(Ordering::SeqCst) {
        client.send(0, letter(rank, 0), b"question").expect("sent");
        next(&client).expect("an answer");
    }
    client.send(0, letter(rank, 1), b"").expect("sent");
    all_over.wait();
}

/// Answers whoever asks, until all have said that it is over.
fn answer_on(run: &Run, mut asking: usize, all_over: &Barrier) {
    let client = run.client(0);
    while asking > 0 {
        let (envelope, _) = next(&client).expect("a question");
        match envelope.tag {
            0 => client.send(envelope.source, letter(0, 0), b"answer").expect("sent"),
            _ => asking -= 1,
        }
    }
    all_over.wait();
}

#[test]
fn ranks_that_are_busy_have_said_how_far_they_are_at_each_line() {
    let layout = "0/1-2/3-4";
    let run = &Run::new(layout, "memory");
    let _relays = [0, 1, 2].map(|group| run.relay_with(group, &["--together"]));
    (0..3).for_each(|group| drop(wait_for("a relay", || run.status(group))));
    let (is_over, all_over) = (&AtomicBool::new(false), &Barrier::new(5));
    let lines = thread::scope(|scope| {
        scope.spawn(|| answer_on(run, 4, all_over));
        (1..5).for_each(|rank| drop(scope.spawn(move || ask_on(run, rank, is_over, all_over))));
        (0..3).for_each(|group| drop(wait_for("its ranks", || run.status(group).filter(|s| s.relay.joined_s > 0.0))));
        let lines: Vec<bool> = (1..=6)
            .map(|number: u64| {
                thread::sleep(Duration::from_millis(100));
                let of = &*number.to_string();
                let saved = [0, 1, 2].map(|group| run.path(&format!("saved{number}.{group}")));
                thread::scope(|all| {
                    (0..3).for_each(|group| drop(all.spawn(move || run.order("rest", group, &["--checkpoint", of]))));
                });
                for (group, folder) in saved.iter().enumerate() {
                    run.order("save", group, &["--to", folder.to_str().expect("a path")]);
                }
                (0..3).for_each(|group| run.order("wake", group, &[]));
                let folders = saved.each_ref().map(|folder| folder.as_path());
                line::is_line(&Layout::parse(layout).expect("a layout"), &folders, number).expect("marks")
            })
            .collect();
        is_over.store(true, Ordering::SeqCst);
        lines
    });
    assert_eq!(lines, [true; 6]);
}
