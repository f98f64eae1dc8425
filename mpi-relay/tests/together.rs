//! Relays of groups that all go back together: their logs stay small without checkpoints, and a line holds what is under way.

mod run;

use mpi_relay::layout::Layout;
use mpi_relay::{Client, line};
use run::{Run, letter, next, wait_for};
use std::thread;

const MESSAGES: u32 = 1000;

/// What a log may take, and what a rank holds by itself at most, bytes.
const LOG_BYTES: u64 = 8_000_000;
const HELD_BYTES: u64 = 17_000_000;

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
    assert!(status.relay.log_bytes <= LOG_BYTES + HELD_BYTES && status.tally.bytes > 3 * HELD_BYTES, "{status:?}");
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
