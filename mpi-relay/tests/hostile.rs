//! Strangers at the relay's doors, and ranks that do not keep to the protocol: they are sent away, and the run goes on.

mod run;

use mlog::book::{Address, Book};
use mlog::frame::{Frame, Header, Kind};
use mpi_relay::words::Progress;
use run::{Run, letter, next, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn address(run: &Run, group: usize) -> Address {
    Book::open(run.folder.path()).and_then(|b| b.read(group)).expect("an address")
}

fn bytes(frame: &Frame) -> Vec<u8> {
    [&frame.header.encode()[..], &frame.body[..]].concat()
}

/// What the other side says until it closes.
fn said(mut stream: impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

fn header(kind: Kind, group: u16, number: u64, length: u32) -> Header {
    Header { kind, group, tag: 0, number, length, rest: 0 }
}

#[test]
fn strangers_are_refused_and_counted_and_the_run_goes_on() {
    let run = Run::new("0/1", "memory");
    let _relays = run.relays();
    let address = address(&run, 0);
    let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let huge = header(Kind::Greet, 1, 0, u32::MAX).encode().to_vec();
    let greet = bytes(&Frame::new(Kind::Greet, 1, 0, 0, vec![5; 32]));
    let wrong_proof = [greet, bytes(&Frame::new(Kind::Proof, 1, 0, 0, vec![0; 32]))].concat();
    let as_rank = bytes(&Frame::new(Kind::Enter, 0, 0, 0, vec![]));
    for attempt in [&garbage, &huge, &wrong_proof, &as_rank] {
        let mut stream = TcpStream::connect(&address.address).expect("connected");
        let _ = stream.write_all(attempt);
        assert!(said(stream).len() <= 24 + 64);
    }
    let of_another_group = bytes(&Frame::new(Kind::Enter, 0, 0, 1, vec![]));
    let of_no_rank = bytes(&Frame::new(Kind::Enter, 0, 0, u64::MAX, vec![]));
    for attempt in [&garbage, &huge, &of_another_group, &of_no_rank] {
        let mut stream = UnixStream::connect(&address.socket).expect("connected");
        let _ = stream.write_all(attempt);
        said(stream);
    }
    assert!(run.status(0).expect("a status").relay.counts.refused >= 8);
    assert_eq!(run.errors(0).matches("refused: ").count(), 1, "strangers do not fill the log");
    let (one, two) = (run.client(0), run.client(1));
    one.send(1, letter(0, 1), b"word").expect("sent");
    assert_eq!(next(&two).expect("received").1, b"word");
}

/// Enters as rank 0 and joins, then says this.
fn as_rank(run: &Run, words: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(address(run, 0).socket).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let join = Frame::json(Kind::Join, 0, &Progress::start(3)).expect("written");
    let begin = [bytes(&Frame::new(Kind::Enter, 0, 0, 0, vec![])), bytes(&join)].concat();
    stream.write_all(&[&begin, words].concat()).expect("written");
    said(stream)
}

#[test]
fn a_rank_that_does_not_keep_to_the_protocol_is_told_so_and_harms_nobody() {
    let run = Run::new("0,2/1", "memory");
    let _relays = run.relays();
    let message = |to: u16, number: u64| [&header(Kind::Message, to, number, 36).encode()[..], &[0; 36]].concat();
    let join = bytes(&Frame::json(Kind::Join, 0, &Progress::start(2)).expect("written"));
    let attempts = [
        message(1, 2),
        message(2, 1),
        message(60_000, 1),
        [&header(Kind::Message, 1, 1, 5).encode()[..], b"short"].concat(),
        header(Kind::Message, 1, 1, u32::MAX).encode().to_vec(),
        bytes(&Frame::new(Kind::Again, 1, 0, 1, vec![1; 3])),
        bytes(&Frame::new(Kind::Record, 0, 0, 7, vec![0; 16])),
        bytes(&Frame::new(Kind::Record, 0, 0, 1, vec![0; 2])),
        bytes(&Frame::number(Kind::Want, 1)),
        bytes(&Frame::new(Kind::Leave, 0, 0, 0, b"{}".to_vec())),
        join,
        vec![255; 1000],
    ];
    for (number, attempt) in attempts.iter().enumerate() {
        let answer = as_rank(&run, attempt);
        assert!(answer.len() > 48, "attempt {number} got no answer");
        wait_for("the end of the rank", || run.status(0).filter(|s| !s.ranks[0].here));
    }
    let clients: Vec<_> = (0..3).map(|rank| run.client(rank)).collect();
    clients[0].send(1, letter(0, 1), b"word").expect("sent");
    assert_eq!(next(&clients[1]).expect("received").1, b"word");
}
