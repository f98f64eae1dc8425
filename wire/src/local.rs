//! Carries a client's requests over a unix socket, whose two ends the kernel vouches for.

use crate::Peer;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};

/// Connects to one socket, whatever the address of the request says.
#[derive(Debug)]
pub(crate) struct Socket(pub PathBuf);

#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Connector for Socket {
    type Out = Line;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Line>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let peer = peer(&stream)?;
        // SAFETY: geteuid takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        if peer.uid != 0 && peer.uid != own {
            let text = format!("{} is served by user {}, not by root", self.0.display(), peer.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text).into());
        }
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Line { stream, buffers }))
    }
}

impl Transport for Line {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|t| *t))?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|e| timed(e, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|t| *t))?;
        let read = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                // A process that was stopped and goes on hears so, if its socket has a limit (signal(7)).
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|e| timed(e, timeout))?,
            }
        };
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// A line serves one request; a new one costs no handshake.
    fn is_open(&mut self) -> bool {
        false
    }
}

fn timed(e: io::Error, timeout: NextTimeout) -> Error {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => e.into(),
    }
}

/// Who made the other end, as the kernel knows it.
fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes into `who`.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length)
    };
    if result == 0 { Ok(Peer { uid: who.uid, gid: who.gid }) } else { Err(io::Error::last_os_error()) }
}
