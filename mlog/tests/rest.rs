//! A program leaves its relay for a dump and comes back, and nothing is lost or doubled.

mod run;

use mlog::Endpoint;
use run::{Run, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Rests of the two programs, together.
const RESTS: u32 = 20;

fn rested(run: &Run, group: usize, more: &[&str]) -> bool {
    run.ask("rest", group, more).status.success()
}

#[test]
fn a_rest_at_any_moment_loses_and_doubles_nothing() {
    for log in ["memory", "disk"] {
        let run = Run::new(2, log);
        let _relays = run.relays();
        let enough = AtomicBool::new(false);
        (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut endpoint = Endpoint::connect(&run.socket(0), 0).expect("joined");
                for number in (0u64..).take_while(|_| !enough.load(Ordering::SeqCst)) {
                    endpoint.send(1, 1, &number.to_le_bytes()).expect("sent");
                    assert_eq!(endpoint.recv(1, 2).expect("received"), number.to_le_bytes());
                }
                endpoint.send(1, 1, b"the end").expect("sent");
                endpoint.finalize().expect("ended");
            });
            let receiver = scope.spawn(|| {
                let mut endpoint = Endpoint::connect(&run.socket(1), 0).expect("joined");
                for number in 0u64.. {
                    let word = endpoint.recv(0, 1).expect("received");
                    if word == b"the end" {
                        break;
                    }
                    assert_eq!(word, number.to_le_bytes());
                    endpoint.send(0, 2, &word).expect("sent");
                    thread::sleep(std::time::Duration::from_millis(2));
                }
                endpoint.finalize().expect("ended");
            });
            let (mut rests, mut tries) = (0, 0);
            while !(sender.is_finished() && receiver.is_finished()) {
                for group in [0, 1] {
                    // One that has said goodbye is not waited for.
                    if rested(&run, group, &["--limit", "1"]) {
                        rests += 1;
                        assert!(!run.known(group).program, "it holds a socket");
                    }
                    assert!(run.ask("wake", group, &[]).status.success());
                }
                tries += 1;
                enough.store(rests >= RESTS || tries >= 20 * RESTS, Ordering::SeqCst);
            }
            assert!(rests >= RESTS, "{rests} rests in {tries} tries are too few to show anything");
            sender.join().expect("no panic");
            receiver.join().expect("no panic");
        });
    }
}

#[test]
fn a_program_that_waits_for_a_message_rests_and_goes_on_waiting_at_another_relay() {
    let run = Run::new(2, "disk");
    let (mut first, _other) = (run.relay(0), run.relay(1));
    (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut endpoint = Endpoint::connect(&run.socket(0), 0).expect("joined");
            endpoint.recv(1, 1).expect("received")
        });
        wait_for("the program", || run.status(0).filter(|s| s.program));
        assert!(rested(&run, 0, &[]));
        // Its relay goes, as that of a suspended group, and another one comes.
        first.kill();
        let _second = run.relay(0);
        wait_for("the program again", || run.status(0).filter(|s| s.program));
        let mut sender = Endpoint::connect(&run.socket(1), 0).expect("joined");
        sender.send(0, 1, b"word").expect("sent");
        assert_eq!(waits.join().expect("no panic"), b"word");
    });
}

#[test]
fn a_program_that_makes_no_call_is_left_as_it_was() {
    let run = Run::new(2, "memory");
    let _relays = run.relays();
    (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
    let mut quiet = Endpoint::connect(&run.socket(0), 0).expect("joined");
    let output = run.ask("rest", 0, &["--limit", "1"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no call of mlog"));
    quiet.send(1, 1, b"word").expect("sent");
    let mut other = Endpoint::connect(&run.socket(1), 0).expect("joined");
    assert_eq!(other.recv(0, 1).expect("received"), b"word");
}
