//! A transport for tests: a unix socket to one router that serves all groups, logs nothing and restores nobody.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Envelope, Error, Outcome, Transport};
use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a frame before the body: length of the body, peer, envelope.
pub const HEADER: usize = 8 + 4 + 4 + 8 + 4 + 4 + 4 + 4;

/// The kind of a frame that ends all ranks.
pub const ABORT: u32 = 255;

/// A connection to the router.
pub struct Direct {
    socket: UnixStream,
    come: RefCell<Vec<u8>>,
}

/// A frame's header; `peer` is the receiver on the way to the router, and the sender on the way from it.
#[must_use]
pub fn header(peer: u32, envelope: Envelope, bytes: usize) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..8].copy_from_slice(&(bytes as u64).to_le_bytes());
    out[8..12].copy_from_slice(&peer.to_le_bytes());
    out[12..16].copy_from_slice(&envelope.source.to_le_bytes());
    out[16..24].copy_from_slice(&envelope.context.to_le_bytes());
    out[24..28].copy_from_slice(&envelope.tag.to_le_bytes());
    out[28..32].copy_from_slice(&envelope.comm_source.to_le_bytes());
    out[32..36].copy_from_slice(&u32::from(envelope.kind).to_le_bytes());
    out[36..40].copy_from_slice(&envelope.sync.to_le_bytes());
    out
}

fn parse(bytes: &[u8]) -> (usize, Envelope) {
    let four = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let eight = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let envelope = Envelope {
        source: four(12),
        context: eight(16),
        tag: four(24) as i32,
        comm_source: four(28),
        kind: four(32) as u8,
        sync: four(36),
    };
    (eight(0) as usize, envelope)
}

impl Direct {
    /// Connects to the router at `socket`, for which it waits.
    pub fn connect(socket: &Path, rank: u32, _ranks: usize) -> Result<Direct, Error> {
        let until = Instant::now() + Duration::from_secs(30);
        let mut stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > until => return Err(Error(format!("{}: {error}", socket.display()))),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.write_all(&rank.to_le_bytes()).map_err(|error| Error(error.to_string()))?;
        Ok(Direct { socket: stream, come: RefCell::default() })
    }

    fn write(&self, peer: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error> {
        let mut frame = header(peer, envelope, body.len()).to_vec();
        frame.extend_from_slice(body);
        (&self.socket).write_all(&frame).map_err(|error| Error(error.to_string()))
    }

    /// Reads what is there, without waiting.
    fn read(&self) -> Result<usize, Error> {
        let mut chunk = [0u8; 1 << 16];
        // SAFETY: a socket of ours, and a buffer of the length that is said.
        let got =
            unsafe { libc::recv(self.socket.as_raw_fd(), chunk.as_mut_ptr().cast(), chunk.len(), libc::MSG_DONTWAIT) };
        match got {
            0 => Err(Error("the router went away".to_owned())),
            1.. => {
                self.come.borrow_mut().extend_from_slice(&chunk[..got as usize]);
                Ok(got as usize)
            }
            _ => match std::io::Error::last_os_error() {
                error if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
                error => Err(Error(error.to_string())),
            },
        }
    }

    fn whole_frame(&self) -> Option<(Envelope, Vec<u8>)> {
        let mut come = self.come.borrow_mut();
        let (bytes, envelope) = parse(come.get(..HEADER)?);
        let body = come.get(HEADER..HEADER + bytes)?.to_vec();
        come.drain(..HEADER + bytes);
        Some((envelope, body))
    }
}

impl Transport for Direct {
    fn send(&self, to: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error> {
        self.write(to, envelope, body)
    }

    fn receive(&self) -> Result<Option<(Envelope, Vec<u8>)>, Error> {
        loop {
            if let Some(frame) = self.whole_frame() {
                return match frame.0.kind {
                    255 => Err(Error(format!("rank {} called MPI_Abort", frame.0.source))),
                    _ => Ok(Some(frame)),
                };
            }
            if self.read()? == 0 {
                return Ok(None);
            }
        }
    }

    fn wait(&self, at_most: Duration) -> Result<bool, Error> {
        std::thread::sleep(at_most);
        Ok(true)
    }

    fn record(&self, _outcome: Outcome) -> Result<(), Error> {
        Ok(())
    }

    fn replayed(&self) -> Option<Outcome> {
        None
    }

    fn abort(&self, code: i32) {
        let envelope = Envelope { kind: ABORT as u8, tag: code, ..Envelope::default() };
        if let Err(error) = self.write(u32::MAX, envelope, &[]) {
            eprintln!("joulepoint: the router does not hear of the abort: {error}");
        }
    }

    fn finish(&self) -> Result<(), Error> {
        self.socket.shutdown(std::net::Shutdown::Write).map_err(|error| Error(error.to_string()))
    }
}
