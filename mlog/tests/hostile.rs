//! Callers without a proof: wrong tokens, huge frames, garbage, silence. They are refused, and the run goes on.

mod run;

use mlog::Endpoint;
use mlog::book::{Address, Book};
use mlog::frame::{Frame, Header, Kind};
use mlog::proof::MOST_UNPROVEN;
use run::{Run, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

fn address(run: &Run, group: usize) -> Address {
    wait_for("a relay", || run.status(group));
    Book::open(run.folder.path()).and_then(|b| b.read(group)).expect("an address")
}

/// True if the other side closes without having said more than a challenge.
fn is_closed(mut stream: impl Read) -> bool {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said.len() <= 24 + 64
}

fn bytes(frame: &Frame) -> Vec<u8> {
    [&frame.header.encode()[..], &frame.body[..]].concat()
}

#[test]
fn callers_without_a_proof_are_refused_and_counted_and_the_run_goes_on() {
    let run = Run::new(2, "memory");
    let _relays = run.relays();
    let address = address(&run, 0);
    let greet = bytes(&Frame::new(Kind::Greet, 1, 0, 0, vec![5; 32]));
    let wrong_proof = [greet.clone(), bytes(&Frame::new(Kind::Proof, 1, 0, 0, vec![0; 32]))].concat();
    let huge = Header { kind: Kind::Greet, group: 1, tag: 0, number: 0, length: u32::MAX, rest: 0 }.encode().to_vec();
    let before_greeting = bytes(&Frame::new(Kind::Message, 1, 1, 1, b"trust me".to_vec()));
    let as_own_group = bytes(&Frame::new(Kind::Greet, 0, 0, 0, vec![5; 32]));
    let of_no_group = bytes(&Frame::new(Kind::Greet, 60_000, 0, 0, vec![5; 32]));
    let short_nonce = bytes(&Frame::new(Kind::Greet, 1, 0, 0, vec![]));
    let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let attempts =
        [wrong_proof, huge.clone(), before_greeting, as_own_group, of_no_group, short_nonce, garbage.clone()];
    for (number, attempt) in attempts.iter().enumerate() {
        let mut stream = TcpStream::connect(&address.address).expect("connected");
        // The relay may close before it has read all of it.
        let _ = stream.write_all(attempt);
        assert!(is_closed(stream), "attempt {number}");
    }
    for attempt in [huge, garbage, bytes(&Frame::number(Kind::Want, 1))] {
        let mut stream = UnixStream::connect(&address.socket).expect("connected");
        let _ = stream.write_all(&attempt);
        assert!(is_closed(stream));
    }
    let _silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(&address.address).expect("connected")).collect();
    wait_for("refusals", || run.status(0).filter(|s| s.counts.refused >= 10 + 16));
    assert_eq!(run.errors(0).matches("refused: ").count(), 1, "callers do not fill the log");

    let mut zero = Endpoint::connect(&run.socket(0), 0).expect("joined");
    let mut one = Endpoint::connect(&run.socket(1), 0).expect("joined");
    zero.send(1, 1, b"still here").expect("sent");
    assert_eq!(one.recv(0, 1).expect("received"), b"still here");
}

/// Keeps all places for unproven callers taken; one that was sent away calls again.
fn crowd(door: &str, callers: &mut Vec<TcpStream>) {
    let is_there = |s: &TcpStream| s.peek(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
    callers.retain(is_there);
    while callers.len() < MOST_UNPROVEN {
        let caller = TcpStream::connect(door).expect("connected");
        caller.set_nonblocking(true).expect("a socket");
        callers.push(caller);
    }
}

#[test]
fn a_crowd_of_silent_callers_keeps_neither_the_program_nor_another_relay_out() {
    let run = Run::new(2, "memory");
    let _zeroth = run.relay(0);
    let (door, mut callers) = (address(&run, 0).address, Vec::new());
    crowd(&door, &mut callers);
    assert!(run.status(0).is_some(), "the user's own callers have a door of their own");
    let mut zero = Endpoint::connect(&run.socket(0), 0).expect("joined");
    let _first = run.relay(1);
    wait_for("the other relay", || {
        crowd(&door, &mut callers);
        run.status(0).filter(|s| s.counts.connections > 0)
    });
    let mut one = Endpoint::connect(&run.socket(1), 0).expect("joined");
    zero.send(1, 1, b"through the crowd").expect("sent");
    assert_eq!(one.recv(0, 1).expect("received"), b"through the crowd");
}

#[test]
fn a_program_that_breaks_the_protocol_is_told_and_dropped() {
    let run = Run::new(2, "memory");
    let _relay = run.relay(0);
    let address = address(&run, 0);
    let open = bytes(&Frame::number(Kind::Open, 0));
    let early = bytes(&Frame::new(Kind::Message, 1, 1, 7, b"the seventh first".to_vec()));
    let join = bytes(&Frame::new(Kind::Join, 0, 0, 0, br#"{"arrived":[0,0],"held":[0,0]}"#.to_vec()));
    let wrong_join = bytes(&Frame::new(Kind::Join, 0, 0, 0, br#"{"arrived":[0],"held":[0]}"#.to_vec()));
    let to_nobody = bytes(&Frame::new(Kind::Message, 9, 1, 1, vec![]));
    for words in
        [vec![&open, &early], vec![&open, &join, &early], vec![&open, &wrong_join], vec![&open, &join, &to_nobody]]
    {
        let mut stream = UnixStream::connect(&address.socket).expect("connected");
        for word in words {
            stream.write_all(word).expect("written");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.contains(&(Kind::Trouble as u8)));
    }
    assert!(Endpoint::connect(&run.socket(0), 0).is_ok());
}

#[test]
fn a_relay_does_not_use_a_token_that_others_may_read_and_two_relays_do_not_share_a_log() {
    let run = Run::new(2, "disk");
    let mut relay = run.relay(0);
    wait_for("a relay", || run.status(0));
    assert_eq!(run.relay(0).code(), Some(2));
    assert!(run.errors(0).contains("another relay holds this log"));
    relay.kill();
    // One that nobody could end goes when its placement is over, and the next one waits for that.
    let file = run.path(fencing::FILE);
    let placement = |number| format!("7:{number}:relay.g0:{}", file.display());
    let mut relay = run.relay_with(0, &["--placement", &placement(0)]);
    wait_for("a relay", || run.status(0));
    let _next = run.relay_with(0, &["--placement", &placement(1)]);
    std::fs::write(&file, r#"{"version": 1, "holder": 7, "over": {"relay.g0": 1}}"#).expect("written");
    assert_eq!(relay.code(), Some(0));
    wait_for("the next", || run.status(0));
    let token = run.path("relays/token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).expect("changed");
    assert_eq!(run.relay(1).code(), Some(2));
    assert!(run.errors(1).contains("others may read it"));
}

#[test]
fn relays_with_different_tokens_do_not_talk() {
    let (run, other) = (Run::new(2, "memory"), Run::new(2, "memory"));
    let _relays = (run.relay(0), other.relay(0));
    let stolen = address(&run, 0);
    address(&other, 0);
    Book::open(other.folder.path()).and_then(|b| b.write(&stolen)).expect("written");
    let _liar = other.relay(1);
    // The caller sees first that the other side does not know its token, and does not give its own proof away.
    wait_for("refusal", || other.status(1).filter(|s| s.counts.refused > 0));
    assert_eq!(run.known(0).counts.connections, 0);
}
