//! A group goes back alone: it gets its messages again, what it sends again is compared, and lines and full logs hold.

mod run;

use mpi_relay::layout::Layout;
use mpi_relay::words::Progress;
use mpi_relay::{Client, Error, line};
use run::{BEYOND_BYTES, Run, letter, next, wait_for};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// One exchange of ranks 0 and 1: a number goes out, and comes back by one more.
fn ask(client: &Client, word: u64) -> Result<u64, Error> {
    client.send(1, letter(0, 1), &word.to_le_bytes())?;
    let (_, bytes) = next(client)?;
    Ok(u64::from_le_bytes(bytes[..].try_into().expect("a word")))
}

/// Rank 1: adds one to each of so many words.
fn answer(client: &Client, count: u64) {
    for _ in 0..count {
        let (_, bytes) = next(client).expect("received");
        let word = u64::from_le_bytes(bytes[..].try_into().expect("a word"));
        client.send(0, letter(1, 1), &(word + 1).to_le_bytes()).expect("sent");
    }
}

/// As rank 1. One that is gone without a goodbye holds back what its group has sent last.
fn answer_and_end(run: &Run, count: u64) {
    let client = run.client(1);
    answer(&client, count);
    client.finish().expect("ended");
}

/// Rank 0 asks ten times, is checkpointed, asks ten times more, and is gone. How far it was, and its word, at the checkpoint.
fn until_its_end(run: &Run) -> (Progress, u64) {
    let client = run.client(0);
    let mut word = 0;
    for _ in 0..10 {
        word = ask(&client, word).expect("asked");
    }
    let checkpoint = (client.progress().expect("all received"), word);
    run.order("rest", 0, &["--checkpoint", "1"]);
    run.order("wake", 0, &[]);
    run.order("commit", 0, &["--checkpoint", "1"]);
    for _ in 0..10 {
        word = ask(&client, word).expect("asked");
    }
    checkpoint
}

#[test]
fn a_rank_that_goes_back_gets_its_answers_again_and_the_other_notices_nothing() {
    for log in ["memory", "disk"] {
        let run = Run::new("0/1", log);
        let _relays = run.relays();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let client = run.client(1);
                answer(&client, 30);
                client.finish().expect("ended");
            });
            let (progress, mut word) = until_its_end(&run);
            assert!(matches!(run.ask("commit", 0, &["--checkpoint", "9"]).status.code(), Some(1 | 2)));
            let client = Client::connect_at(&run.socket(0), 0, &progress).expect("joined");
            for _ in 10..30 {
                word = ask(&client, word).expect("asked");
            }
            assert_eq!(word, 30);
            client.finish().expect("ended");
            other.join().expect("no panic");
        });
        let (one, two) = (run.status(0).expect("a status"), run.status(1).expect("a status"));
        assert_eq!((one.tally.repeated, one.uncompared, one.differences.len()), (10, 0, 0));
        assert_eq!(
            (two.tally.messages, two.relay.peers[0].collected),
            (30, 10),
            "answers of the checkpoint are given up"
        );
    }
}

#[test]
fn what_is_sent_again_with_a_difference_is_told_and_which() {
    for (deterministic, same_length) in [(false, true), (false, false), (true, true), (true, false)] {
        let run = Run::new("0/1", "memory");
        let more: &[&str] = if deterministic { &["--deterministic"] } else { &[] };
        let _relays = (run.relay_with(0, more), run.relay(1));
        (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
        thread::scope(|scope| {
            scope.spawn(|| answer_and_end(&run, 20));
            let (progress, _) = until_its_end(&run);
            let client = Client::connect_at(&run.socket(0), 0, &progress).expect("joined");
            let wrong: &[u8] = if same_length { b"8 bytes!" } else { b"9 bytes !" };
            client.send(1, letter(0, 1), wrong).expect("sent");
            // Answers of before may come first.
            let all_fine = same_length && deterministic;
            let outcome = std::iter::repeat_with(|| next(&client)).find(|o| o.is_err() || all_fine).expect("one");
            match (same_length, deterministic) {
                (true, true) => assert!(outcome.is_ok(), "{outcome:?}"),
                (true, false) => assert!(matches!(outcome, Err(Error::Contents(_))), "{outcome:?}"),
                (false, _) => assert!(matches!(outcome, Err(Error::Structure(_))), "{outcome:?}"),
            }
            let status = run.status(0).expect("a status");
            assert_eq!(status.differences.len(), usize::from(!(same_length && deterministic)));
            assert_eq!(status.tally.accepted, u64::from(same_length && deterministic));
        });
    }
}

#[test]
fn a_node_is_lost_with_its_relay_and_what_is_sent_again_is_compared_with_what_the_other_has_got() {
    for differs in [false, true] {
        let run = Run::new("0/1", "memory");
        let mut relays = run.relays();
        thread::scope(|scope| {
            scope.spawn(|| answer_and_end(&run, if differs { 20 } else { 30 }));
            let (progress, mut word) = until_its_end(&run);
            relays[0].kill();
            relays[0] = run.relay(0);
            let client = Client::connect_at(&run.socket(0), 0, &progress).expect("joined");
            if differs {
                client.send(1, letter(0, 1), b"8 bytes!").expect("sent");
                // The answer of before may come first.
                let outcome = std::iter::repeat_with(|| next(&client)).find(Result::is_err);
                assert!(matches!(outcome, Some(Err(Error::Contents(_)))), "{outcome:?}");
            } else {
                for _ in 10..30 {
                    word = ask(&client, word).expect("asked");
                }
                assert_eq!(word, 30);
                let status = run.status(0).expect("a status");
                assert_eq!((status.tally.repeated, status.uncompared), (10, 0), "all was compared");
            }
        });
    }
}

#[test]
fn a_line_keeps_what_is_under_way_and_all_go_on_from_it() {
    let run = Run::new("0/1", "memory");
    let mut relays = run.relays();
    let (one, two) = (run.client(0), run.client(1));
    one.send(1, letter(0, 1), b"before").expect("sent");
    assert_eq!(next(&two).expect("received").1, b"before");
    let progress = two.progress().expect("all received");
    // Rank 1 leaves first: what is sent then is under way.
    run.order("rest", 1, &["--checkpoint", "1"]);
    one.send(1, letter(0, 2), b"under way").expect("sent");
    wait_for("the log", || run.status(0).filter(|s| s.tally.messages == 2));
    let sender = one.progress().expect("all received");
    run.order("rest", 0, &["--checkpoint", "1"]);
    let folders = [run.path("line/0"), run.path("line/1")];
    for (group, folder) in folders.iter().enumerate() {
        run.order("save", group, &["--to", folder.to_str().expect("a name")]);
        run.order("wake", group, &[]);
    }
    let layout = Layout::parse(run.ranks).expect("a layout");
    let [first, second] = &folders;
    assert!(line::is_line(&layout, &[first, second], 1).expect("read"));
    one.send(1, letter(0, 3), b"of a time that never was").expect("sent");
    assert_eq!(next(&two).expect("received").1, b"under way");
    drop((one, two));
    relays.iter_mut().for_each(run::Process::kill);
    for (group, relay) in relays.iter_mut().enumerate() {
        *relay = run.relay_with(group, &["--line", folders[group].to_str().expect("a name")]);
    }
    let one = Client::connect_at(&run.socket(0), 0, &sender).expect("joined");
    let two = Client::connect_at(&run.socket(1), 1, &progress).expect("joined");
    assert_eq!(next(&two).expect("received"), (letter(0, 2), b"under way".to_vec()));
    one.send(1, letter(0, 4), b"another way").expect("sent");
    assert_eq!(next(&two).expect("received"), (letter(0, 4), b"another way".to_vec()));
}

/// What the log of the next test may take, bytes.
const LOG_BYTES: u64 = 4_000_000;

#[test]
fn at_a_full_log_the_sender_waits_for_a_checkpoint_of_the_receiver_and_receives_meanwhile() {
    let run = Arc::new(Run::new("0/1", "memory"));
    let _relays = (run.relay_with(0, &["--log-bytes", &LOG_BYTES.to_string()]), run.relay(1));
    (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
    let two = run.client(1);
    let of_sender = run.clone();
    // Not in a scope, which would wait without end for a sender that waits for what has failed here.
    let sender = thread::spawn(move || {
        let one = of_sender.client(0);
        for number in 0..300 {
            one.send(1, letter(0, number), &vec![1; 100_000]).expect("sent");
        }
        one.finish().expect("ended");
    });
    let mut got = 0;
    let mut checkpoint = 0;
    while got < 300 {
        while let Some((envelope, _)) = two.receive().expect("received") {
            assert_eq!(envelope.tag, got);
            got += 1;
        }
        if got < 300 && !two.wait(Duration::from_millis(300)).expect("waited") {
            let status = run.status(0).expect("a status");
            assert!(status.relay.log_bytes < LOG_BYTES + BEYOND_BYTES, "{status:?}");
            // On a machine that is held up it may only be slow.
            if status.full_permille >= 1000 {
                checkpoint += 1;
                run.order("rest", 1, &["--checkpoint", &checkpoint.to_string()]);
                run.order("wake", 1, &[]);
                run.order("commit", 1, &["--checkpoint", &checkpoint.to_string()]);
            }
        }
    }
    sender.join().expect("no panic");
    assert!(checkpoint > 1 && run.status(0).expect("a status").waited_s > 0.0, "{checkpoint}");
}
