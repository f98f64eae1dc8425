//! A non-blocking connection that carries frames: reads in large pieces, writes many frames in one call.

use crate::Error;
use crate::buffer::Buffer;
use crate::frame::{Frame, HEADER_BYTES, Header};
use nix::sys::socket::{MsgFlags, sendmsg, setsockopt, sockopt};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Bytes read at once beyond the rest of a body; these are copied once more.
const PIECE_BYTES: usize = 32 << 10;

/// Size of a unix socket's buffer, bytes.
const UNDER_WAY_BYTES: usize = 1 << 20;

/// Frames written in one call.
const FRAMES_AT_ONCE: usize = 64;

/// Either kind of socket.
#[derive(Debug)]
pub enum Stream {
    /// To the program or a command.
    Unix(UnixStream),
    /// To another relay.
    Tcp(TcpStream),
    /// A socket that was closed for a dump.
    Closed(File),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
            Stream::Closed(f) => f.as_fd(),
        }
    }
}

impl Stream {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => (&mut &*s).read(into),
            Stream::Tcp(s) => (&mut &*s).read(into),
            Stream::Closed(_) => Ok(0),
        }
    }

    fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => (&mut &*s).read_vectored(into),
            Stream::Tcp(s) => (&mut &*s).read_vectored(into),
            Stream::Closed(_) => Ok(0),
        }
    }
}

/// A connection with its buffers.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    limit_bytes: usize,
    piece: Vec<u8>,
    /// Bytes of `piece` that were read from the socket, and of those that went into frames.
    filled: usize,
    taken: usize,
    /// The last read found less than there was room for.
    drained: bool,
    /// A frame whose body is still coming, and how much of it is there.
    open: Option<(Header, Buffer, usize)>,
    out: VecDeque<([u8; HEADER_BYTES], Frame)>,
    /// Bytes of the first frame in `out` that are already written.
    written: usize,
    out_bytes: usize,
}

impl Link {
    /// A link over a connected socket; bodies longer than `limit_bytes` are refused.
    ///
    /// # Errors
    /// What the socket says.
    pub fn new(stream: Stream, limit_bytes: usize) -> io::Result<Link> {
        match &stream {
            Stream::Unix(s) => {
                s.set_nonblocking(true)?;
                // The system may grant less.
                setsockopt(s, sockopt::SndBuf, &UNDER_WAY_BYTES)?;
            }
            Stream::Tcp(s) => {
                s.set_nonblocking(true)?;
                s.set_nodelay(true)?;
                notice_death(s)?;
            }
            Stream::Closed(_) => {}
        }
        let (piece, out) = (vec![0; PIECE_BYTES], VecDeque::new());
        let (filled, taken, drained, written, out_bytes) = Default::default();
        Ok(Link { stream, limit_bytes, piece, filled, taken, drained, open: None, out, written, out_bytes })
    }

    /// The other side has proved who it is: longer bodies are allowed.
    pub fn trust(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Closes the socket; what is in the queue will not be written.
    ///
    /// # Errors
    /// What the system says.
    pub fn close(&mut self) -> io::Result<()> {
        self.stream = Stream::Closed(File::open("/dev/null")?);
        Ok(())
    }

    /// The socket, to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Bytes not yet written.
    pub fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Reads once what has arrived. False: the other side has closed the connection.
    ///
    /// # Errors
    /// What the socket says.
    pub fn receive(&mut self) -> io::Result<bool> {
        Ok(self.receive_some()? != Some(0))
    }

    /// Reads what is there, once: how many bytes, 0 if the other side has closed, `None` if there was nothing.
    ///
    /// # Errors
    /// What the socket says.
    pub fn receive_some(&mut self) -> io::Result<Option<usize>> {
        self.piece.copy_within(self.taken..self.filled, 0);
        (self.taken, self.filled) = (0, self.filled - self.taken);
        let space = &mut self.piece[self.filled..];
        let mut room = space.len();
        let read = match &mut self.open {
            None => self.stream.read(space).inspect(|count| self.filled += count),
            Some((_, body, there)) => {
                let body = &mut body[*there..];
                let missing = body.len();
                room += missing;
                let read = self.stream.read_vectored(&mut [IoSliceMut::new(body), IoSliceMut::new(space)]);
                read.inspect(|count| {
                    *there += (*count).min(missing);
                    self.filled += count.saturating_sub(missing);
                })
            }
        };
        self.drained = !matches!(read, Ok(count) if count == room);
        match read {
            Ok(count) => Ok(Some(count)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// True if the last read found less than there was room for: at that moment nothing more was there.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// The next whole frame that was read.
    ///
    /// # Errors
    /// [`Error::Garbage`] if the other side does not keep to the format.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        if self.open.is_none() {
            let Some(head) = self.piece[self.taken..self.filled].first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let header = Header::decode(head, self.limit_bytes)?;
            self.taken += HEADER_BYTES;
            // A buffer of the announced length; unproven callers have a small limit.
            self.open = Some((header, Buffer::new(header.length as usize), 0));
        }
        let Some((header, mut body, there)) = self.open.take() else { return Ok(None) };
        let rest = &self.piece[self.taken..self.filled];
        let more = rest.len().min(body.len() - there);
        body[there..there + more].copy_from_slice(&rest[..more]);
        self.taken += more;
        if there + more < body.len() {
            self.open = Some((header, body, there + more));
            return Ok(None);
        }
        Ok(Some(Frame { header, body: Arc::new(body) }))
    }

    /// Puts a frame into the queue.
    pub fn push(&mut self, frame: Frame) {
        self.out_bytes += HEADER_BYTES + frame.body.len();
        self.out.push_back((frame.header.encode(), frame));
    }

    /// Writes as much of the queue as the socket takes.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.write_once() {
                Ok(count) => self.forget(count),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn write_once(&self) -> io::Result<usize> {
        let mut slices = Vec::with_capacity(2 * FRAMES_AT_ONCE);
        let mut skip = self.written;
        for (head, frame) in self.out.iter().take(FRAMES_AT_ONCE) {
            for part in [&head[..], &frame.body[..]] {
                let from = skip.min(part.len());
                skip -= from;
                if from < part.len() {
                    slices.push(IoSlice::new(&part[from..]));
                }
            }
        }
        let fd: RawFd = self.stream.as_fd().as_raw_fd();
        Ok(sendmsg::<()>(fd, &slices, &[], MsgFlags::MSG_NOSIGNAL, None)?)
    }

    fn forget(&mut self, count: usize) {
        self.out_bytes -= count;
        self.written += count;
        while let Some((_, frame)) = self.out.front() {
            let length = HEADER_BYTES + frame.body.len();
            if self.written < length {
                break;
            }
            self.written -= length;
            self.out.pop_front();
        }
    }
}

/// A host that dies closes no connection: TCP keepalive asks it every few seconds.
fn notice_death(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &4)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &2)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &10_000)?)
}
