//! Carries messages between all ranks of a test, in the place of the groups' relays: `router SOCKET RANKS`.
// SPDX-License-Identifier: GPL-2.0-or-later

use joulepoint_mpi::transport::direct::{ABORT, HEADER};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Hands each frame to the writer of its receiver; an abort, and the loss of a rank that has not ended, go to all.
fn serve(mut from: UnixStream, rank: u32, to: &[Sender<Vec<u8>>]) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; HEADER];
        match from.read_exact(&mut frame) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let bytes = u64::from_le_bytes(frame[..8].try_into().expect("eight bytes")) as usize;
        let peer = u32::from_le_bytes(frame[8..12].try_into().expect("four bytes"));
        let kind = u32::from_le_bytes(frame[32..36].try_into().expect("four bytes"));
        frame.resize(HEADER + bytes, 0);
        from.read_exact(&mut frame[HEADER..])?;
        // A receiver that has ended hears nothing more.
        if kind == ABORT {
            to.iter()
                .enumerate()
                .filter(|(other, _)| *other != rank as usize)
                .for_each(|(_, other)| drop(other.send(frame.clone())));
        } else {
            drop(to[peer as usize].send(frame));
        }
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(Ok(ranks))) = (arguments.next(), arguments.next().map(|n| n.parse::<usize>())) else {
        eprintln!("router SOCKET RANKS");
        std::process::exit(2);
    };
    let listener = UnixListener::bind(socket)?;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel::<Vec<u8>>()).unzip();
    let (senders, mut receivers) = (Arc::new(senders), receivers.into_iter().map(Some).collect::<Vec<_>>());
    let mut serving = Vec::new();
    for _ in 0..ranks {
        let (mut stream, _) = listener.accept()?;
        let mut rank = [0; 4];
        stream.read_exact(&mut rank)?;
        let rank = u32::from_le_bytes(rank);
        let frames = receivers[rank as usize].take().expect("each rank connects once");
        let mut out = stream.try_clone()?;
        std::thread::spawn(move || frames.iter().try_for_each(|frame| out.write_all(&frame)));
        let senders = senders.clone();
        serving.push(std::thread::spawn(move || serve(stream, rank, &senders)));
    }
    for thread in serving {
        thread.join().expect("a thread that serves a rank")?;
    }
    Ok(())
}
