//! The Rust interface over real relays: matching, collectives, bounds, refusals, checkpoints.

mod run;

use mlog::{Endpoint, Error, Operation};
use run::{Run, wait_for};
use std::thread;

fn join(run: &Run, group: usize, checkpoint: u64) -> Endpoint {
    wait_for("a relay", || run.status(group));
    Endpoint::connect(&run.socket(group), checkpoint).expect("joined")
}

/// Runs one function in each group, in a thread of its own, and gives back what they return.
fn all<T: Send>(run: &Run, act: impl Fn(Endpoint) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..run.groups).map(|g| scope.spawn(move || act(join(run, g, 0)))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

#[test]
fn collectives_give_all_groups_the_same_bits_in_a_fixed_order() {
    for groups in [1, 2, 5] {
        let run = Run::new(groups, "memory");
        let _relays = run.relays();
        let results = all(&run, |mut endpoint| {
            let me = endpoint.group() as f64;
            let mut values = [0.1 * (me + 1.0), 1e16 / (me + 1.0), -me];
            endpoint.allreduce(&mut values, Operation::Sum).expect("reduced");
            let mut largest = [endpoint.group() as i64];
            endpoint.allreduce(&mut largest, Operation::Max).expect("reduced");
            let root = endpoint.groups() - 1;
            let mut word = if endpoint.group() == root { *b"from the last" } else { [0; 13] };
            endpoint.broadcast(root, &mut word).expect("broadcast");
            endpoint.barrier().expect("all here");
            endpoint.finalize().expect("ended");
            (values.map(f64::to_bits), largest, word)
        });
        assert!(results.iter().all(|r| *r == results[0]), "{groups} groups");
        assert_eq!((results[0].1, &results[0].2), ([groups as i64 - 1], b"from the last"));
    }
}

#[test]
fn receives_match_by_source_and_tag_and_keep_the_order_in_which_they_began() {
    let run = Run::new(2, "memory");
    let _relays = run.relays();
    let big = vec![7u8; 5 << 20];
    all(&run, |mut endpoint| {
        if endpoint.group() == 0 {
            for (tag, bytes) in [(1, b"a"), (2, b"b"), (1, b"c")] {
                endpoint.isend(1, tag, bytes).expect("begun");
            }
            endpoint.send(1, 3, &big).expect("sent");
            endpoint.send(1, 4, b"").expect("sent");
        } else {
            let first = endpoint.irecv(0, 1).expect("begun");
            let second = endpoint.irecv(0, 1).expect("begun");
            assert_eq!(endpoint.recv(0, 4).expect("received"), b"");
            assert_eq!(endpoint.wait(second).expect("received").as_deref(), Some(&b"c"[..]));
            assert_eq!(endpoint.test(first).expect("tested"), Some(Some(b"a".to_vec())));
            assert!(matches!(endpoint.wait(first), Err(Error::Usage(_))));
            assert_eq!(endpoint.recv(0, 2).expect("received"), b"b");
            assert!(endpoint.recv(0, 3).expect("received") == big);
        }
        endpoint.finalize().expect("ended");
    });
}

#[test]
fn what_cannot_be_replayed_or_makes_no_sense_is_refused() {
    let run = Run::new(2, "memory");
    let _relays = run.relays();
    let mut endpoint = join(&run, 0, 0);
    assert!(matches!(endpoint.recv(-1, 1), Err(Error::Wildcard)));
    for outcome in [endpoint.send(0, 1, b""), endpoint.send(2, 1, b""), endpoint.send(1, -5, b"")] {
        assert!(matches!(outcome, Err(Error::Usage(_))));
    }
    let _open = endpoint.irecv(1, 1).expect("begun");
    assert!(matches!(endpoint.mark(1), Err(Error::Open(1))));
    drop(endpoint);
    assert!(matches!(Endpoint::connect(&run.socket(0), 3), Err(Error::Unmarked(3))));
}

#[test]
fn a_long_send_ends_though_nobody_answers() {
    let run = Run::new(2, "memory");
    let _relay = run.relay(0);
    let mut endpoint = join(&run, 0, 0);
    for _ in 0..20 {
        endpoint.send(1, 1, &vec![1; 3 << 20]).expect("sent");
    }
    endpoint.finalize().expect("ended");
    assert_eq!(run.known(0).counts.messages, 20);
}

#[test]
fn a_log_at_its_bound_says_so() {
    let run = Run::new(2, "memory");
    let _relay = run.relay_with(0, &["--log-bytes", "1000000"]);
    let mut endpoint = join(&run, 0, 0);
    let block = vec![1; 100_000];
    let outcome = (0..1000).try_for_each(|_| endpoint.send(1, 1, &block));
    assert!(matches!(outcome, Err(Error::Full(_))), "{outcome:?}");
}

#[test]
fn a_program_that_does_not_repeat_itself_is_found_out() {
    for log in ["memory", "disk"] {
        let run = Run::new(2, log);
        let _relay = run.relay(0);
        let mut endpoint = join(&run, 0, 0);
        endpoint.send(1, 1, b"heads").expect("sent");
        endpoint.finalize().expect("ended");
        let mut same = join(&run, 0, 0);
        same.send(1, 1, b"heads").expect("known");
        same.finalize().expect("ended");
        let mut other = join(&run, 0, 0);
        let outcome = other.send(1, 1, b"tails").and_then(|()| other.finalize());
        assert!(matches!(outcome, Err(Error::Diverged(_))), "{outcome:?}");
    }
}

#[test]
fn a_committed_checkpoint_frees_the_senders_log_and_a_resumed_program_gets_the_rest_again() {
    for log in ["memory", "disk"] {
        let run = Run::new(2, log);
        let _relays = run.relays();
        let mut sender = join(&run, 0, 0);
        for number in 0..10u8 {
            sender.send(1, i32::from(number % 2), &[number]).expect("sent");
        }
        let mut receiver = join(&run, 1, 0);
        // Received: 0 2 4 6 with tag 0, and 1 with tag 1. So 3 and 5 are still wanted, and 0 to 2 are not.
        let evens: Vec<u8> = (0..4).map(|_| receiver.recv(0, 0).expect("received")[0]).collect();
        assert_eq!((evens, receiver.recv(0, 1).expect("received")), (vec![0, 2, 4, 6], vec![1]));
        receiver.mark(5).expect("marked");
        receiver.commit(5).expect("committed");
        assert_eq!(receiver.recv(0, 1).expect("received"), [3], "after the checkpoint");
        drop(receiver);
        wait_for("collection", || run.status(0).filter(|s| s.peers[0].collected == 3));

        let mut receiver = join(&run, 1, 5);
        let odds: Vec<u8> = (0..4).map(|_| receiver.recv(0, 1).expect("received")[0]).collect();
        assert_eq!((odds, receiver.recv(0, 0).expect("received")), (vec![3, 5, 7, 9], vec![8]));
        let replayed = run.known(0).counts.replayed;
        assert_eq!(replayed, 7, "from message 4 on");
        drop(receiver);
        // From the beginning it cannot go any more, and is told so.
        let outcome = Endpoint::connect(&run.socket(1), 0).and_then(|mut receiver| receiver.recv(0, 0));
        assert!(matches!(outcome, Err(Error::Lost(_))));
    }
}

#[test]
fn a_damaged_disk_log_is_cut_and_the_loss_is_reported() {
    let run = Run::new(2, "disk");
    let mut relay = run.relay(0);
    let mut sender = join(&run, 0, 0);
    for number in 0..10u8 {
        sender.send(1, 1, &[number; 100]).expect("sent");
    }
    sender.mark(1).expect("marked");
    sender.finalize().expect("ended");
    relay.kill();
    let path = run.path("relays/0.log/0000000001.log");
    let mut bytes = std::fs::read(&path).expect("the log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");

    let _relays = run.relays();
    assert!(wait_for("words", || Some(run.errors(0)).filter(|e| !e.is_empty())).contains("damaged at its end"));
    let _sender = join(&run, 0, 1);
    wait_for("a relay", || run.status(1));
    let outcome = Endpoint::connect(&run.socket(1), 0).and_then(|mut receiver| receiver.recv(0, 1));
    assert!(matches!(outcome, Err(Error::Lost(_))));
}

#[test]
fn without_a_log_messages_pass_and_are_forgotten_and_whoever_goes_back_is_told_of_the_loss() {
    let run = Run::new(2, "none");
    let _relays = run.relays();
    let (mut sender, mut receiver) = (join(&run, 0, 0), join(&run, 1, 0));
    receiver.mark(1).expect("marked");
    receiver.commit(1).expect("committed");
    for number in 0..10u8 {
        sender.send(1, 1, &[number]).expect("sent");
        assert_eq!(receiver.recv(0, 1).expect("received"), [number]);
    }
    let status = run.known(0);
    assert_eq!((status.log.as_str(), status.log_bytes, status.counts.messages), ("none", 0, 10));
    drop(receiver);
    let outcome = Endpoint::connect(&run.socket(1), 1).and_then(|mut receiver| receiver.recv(0, 1));
    assert!(matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");

    // Both begin again, the sender first: all is made anew.
    drop(sender);
    let (mut sender, mut receiver) = (join(&run, 0, 0), join(&run, 1, 1));
    sender.send(1, 1, b"again").expect("sent");
    assert_eq!(receiver.recv(0, 1).expect("received"), b"again");
}

#[test]
fn a_long_message_goes_on_where_it_was_when_relays_die_in_the_middle_of_it() {
    const LENGTH: usize = 6_000_001;
    let run = Run::new(2, "disk");
    let mut relays = run.relays();
    (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
    let pattern: Vec<u8> = (0..LENGTH + 8).map(|i| (i % 251) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut endpoint = Endpoint::connect(&run.socket(0), 0).expect("joined");
            (0..8).for_each(|n| endpoint.send(1, 1, &pattern[n..n + LENGTH]).expect("sent"));
            endpoint.finalize().expect("ended");
        });
        scope.spawn(|| {
            let mut endpoint = Endpoint::connect(&run.socket(1), 0).expect("joined");
            (0..8).for_each(|n| assert!(endpoint.recv(0, 1).expect("received") == pattern[n..n + LENGTH]));
            endpoint.finalize().expect("ended");
        });
        for (struck, parts) in [(1, 5), (0, 25), (1, 42), (0, 60)] {
            wait_for("a part", || run.status(0).filter(|s| s.peers[0].logged > parts));
            relays[struck].kill();
            relays[struck] = run.relay(struck);
        }
    });
    assert_eq!(run.known(0).peers[0].logged, 8 * 12);
}
