//! The program's side: one unix socket to its relay, one thread, progress only inside calls.

use crate::call::call;
use crate::frame::{Frame, Kind, LONGEST_BYTES, PART_BYTES};
use crate::inbox::{Counters, Inbox};
use crate::link::Link;
use crate::program::{Join, Opened};
use crate::{Error, system};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that `isend` queues before it writes them without a further call.
const QUEUE_BYTES: usize = 64 << 10;

/// Bytes kept for a relay that may have to be replaced; a send waits beyond it.
const UNLOGGED_BYTES: usize = 16 << 20;

/// How long a relay may be away, s, unless `FT_ENERGY_RELAY_WAIT` says otherwise.
const RELAY_WAIT_S: u64 = 60;

/// A group's connection to the other groups.
#[derive(Debug)]
pub struct Endpoint {
    socket: PathBuf,
    rest: PathBuf,
    wait_s: u64,
    link: Link,
    group: usize,
    inbox: Inbox,
    sent: Vec<u64>,
    /// Number of the last message on each channel that the relay had logged when this program joined: up to it
    /// nothing is sent again.
    known: Vec<u64>,
    /// Messages that the relay has not yet confirmed as logged.
    unlogged: VecDeque<Frame>,
    unlogged_bytes: usize,
    /// How many it has confirmed on this connection.
    told: u64,
    /// How often the program has joined again.
    joins: u64,
    posted: VecDeque<Posted>,
    next_request: u64,
    answer: Option<Frame>,
    trouble: Option<(i32, String, u64)>,
}

/// An open receive.
#[derive(Debug)]
struct Posted {
    request: u64,
    from: usize,
    tag: i32,
    got: Option<Vec<u8>>,
}

/// An open send or receive, for [`Endpoint::wait`] or [`Endpoint::test`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(pub(crate) u64);

/// A send is done when it returns, since the relay or this library then holds the message.
const SENT: Request = Request(0);

impl Endpoint {
    /// Joins through the relay at `FT_ENERGY_RELAY`; `checkpoint` is the one from which the program resumes, 0 for
    /// none.
    ///
    /// # Errors
    /// [`Error::Away`], [`Error::Unmarked`], or what the relay says.
    pub fn start(checkpoint: u64) -> Result<Endpoint, Error> {
        let socket = std::env::var_os("FT_ENERGY_RELAY");
        let socket =
            socket.ok_or_else(|| Error::Usage("FT_ENERGY_RELAY is not set: it names the relay's socket".into()))?;
        Endpoint::connect(Path::new(&socket), checkpoint)
    }

    /// As [`Endpoint::start`], through the relay at this socket.
    ///
    /// # Errors
    /// As [`Endpoint::start`].
    pub fn connect(socket: &Path, checkpoint: u64) -> Result<Endpoint, Error> {
        let wait = std::env::var("FT_ENERGY_RELAY_WAIT").ok().and_then(|s| s.parse().ok());
        let wait_s = wait.unwrap_or(RELAY_WAIT_S);
        let mut begin = Counters::default();
        let (link, opened, known) = call(socket, None, wait_s, checkpoint, &mut |opened| {
            begin = opened.counters.clone().unwrap_or_else(|| Counters::start(opened.groups));
            Join { arrived: begin.received.clone(), held: begin.sent.clone() }
        })?;
        let mut endpoint = Endpoint {
            socket: socket.into(),
            rest: opened.rest,
            wait_s,
            link,
            group: opened.group,
            inbox: Inbox::new(&begin),
            sent: begin.sent,
            known,
            unlogged: VecDeque::new(),
            unlogged_bytes: 0,
            told: 0,
            joins: 0,
            posted: VecDeque::new(),
            next_request: 1,
            answer: None,
            trouble: None,
        };
        endpoint.take_all()?;
        Ok(endpoint)
    }

    /// The number of this group.
    pub fn group(&self) -> usize {
        self.group
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.sent.len()
    }

    /// Sends a message; returns when it is written, or held to be written.
    ///
    /// # Errors
    /// [`Error::Usage`] for a group or tag that cannot be, [`Error::TooLong`], or what the relay says.
    pub fn send(&mut self, to: usize, tag: i32, bytes: &[u8]) -> Result<(), Error> {
        self.isend(to, tag, bytes)?;
        self.flush()
    }

    /// Begins to send a message; the bytes are copied and free at once.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn isend(&mut self, to: usize, tag: i32, bytes: &[u8]) -> Result<Request, Error> {
        check_tag(tag)?;
        self.post_send(to, tag, bytes)?;
        Ok(SENT)
    }

    pub(crate) fn post_send(&mut self, to: usize, tag: i32, bytes: &[u8]) -> Result<(), Error> {
        self.check_group(to)?;
        if bytes.len() > LONGEST_BYTES {
            return Err(Error::TooLong { bytes: bytes.len(), room: LONGEST_BYTES });
        }
        let mut rest = bytes;
        loop {
            let (part, after) = rest.split_at(rest.len().min(PART_BYTES));
            self.post_part(to, tag, part, after.len())?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    fn post_part(&mut self, to: usize, tag: i32, part: &[u8], rest: usize) -> Result<(), Error> {
        self.sent[to] += 1;
        let number = self.sent[to];
        let known = number <= self.known[to];
        let mut frame = if known {
            Frame::new(Kind::Again, to, tag, number, &xxh3_64(part).to_le_bytes()[..])
        } else {
            Frame::new(Kind::Message, to, tag, number, part)
        };
        frame.header.rest = rest as u32;
        if !known {
            self.unlogged_bytes += frame.body.len();
            self.unlogged.push_back(frame.clone());
        }
        self.link.push(frame);
        if self.link.out_bytes() > QUEUE_BYTES {
            self.flush()?;
        }
        while self.unlogged_bytes > UNLOGGED_BYTES {
            self.progress(true)?;
        }
        Ok(())
    }

    /// Receives the oldest message of a group with this tag.
    ///
    /// # Errors
    /// [`Error::Wildcard`] for no group in particular, [`Error::Usage`], or what the relay says.
    pub fn recv(&mut self, from: i32, tag: i32) -> Result<Vec<u8>, Error> {
        let request = self.irecv(from, tag)?;
        Ok(self.wait(request)?.unwrap_or_default())
    }

    /// Begins to receive; receives of the same group and tag get their messages in the order in which they began.
    ///
    /// # Errors
    /// As [`Endpoint::recv`].
    pub fn irecv(&mut self, from: i32, tag: i32) -> Result<Request, Error> {
        check_tag(tag)?;
        let from = usize::try_from(from).map_err(|_| Error::Wildcard)?;
        self.post_recv(from, tag)
    }

    pub(crate) fn post_recv(&mut self, from: usize, tag: i32) -> Result<Request, Error> {
        self.check_group(from)?;
        let request = self.next_request;
        self.next_request += 1;
        self.posted.push_back(Posted { request, from, tag, got: None });
        Ok(Request(request))
    }

    /// Waits for a request; the message, if it was a receive.
    ///
    /// # Errors
    /// [`Error::Usage`] for a request that is not open, or what the relay says.
    pub fn wait(&mut self, request: Request) -> Result<Option<Vec<u8>>, Error> {
        if request == SENT {
            return self.flush().map(|()| None);
        }
        loop {
            if let Some(bytes) = self.finish(request)? {
                return Ok(Some(bytes));
            }
            self.progress(true)?;
        }
    }

    /// As [`Endpoint::wait`], but does not wait: `None` if the request is still open.
    ///
    /// The time of arrival is not logged, so what the program sends must not depend on the answer of a test.
    ///
    /// # Errors
    /// As [`Endpoint::wait`].
    pub fn test(&mut self, request: Request) -> Result<Option<Option<Vec<u8>>>, Error> {
        self.progress(false)?;
        if request == SENT {
            return Ok((self.link.out_bytes() == 0).then_some(None));
        }
        Ok(self.finish(request)?.map(Some))
    }

    /// Completes open receives in order; returns the message of this request if it has arrived.
    fn finish(&mut self, request: Request) -> Result<Option<Vec<u8>>, Error> {
        for posted in self.posted.iter_mut().filter(|p| p.got.is_none()) {
            posted.got = self.inbox.take(posted.from, posted.tag);
        }
        let index = self.posted.iter().position(|p| p.request == request.0);
        let index = index.ok_or_else(|| Error::Usage("a request that is not open".into()))?;
        match self.posted[index].got.take() {
            Some(bytes) => {
                self.posted.remove(index);
                Ok(Some(bytes))
            }
            None => Ok(None),
        }
    }

    /// Announces that the program's present state will be in checkpoint `checkpoint` (from 1 on); its counters are
    /// kept.
    ///
    /// To be called before the checkpoint is written, at a point to which the program will resume.
    ///
    /// # Errors
    /// [`Error::Open`] while requests are open, or what the relay says.
    pub fn mark(&mut self, checkpoint: u64) -> Result<(), Error> {
        if !self.posted.is_empty() {
            return Err(Error::Open(self.posted.len()));
        }
        let (received, beyond) = self.inbox.received();
        let counters = Counters { sent: self.sent.clone(), received: received.to_vec(), beyond: beyond.to_vec() };
        self.ask(&Frame::json(Kind::Mark, checkpoint, &counters)?)
    }

    /// Announces that a marked checkpoint is durable: logs that only older ones need may go.
    ///
    /// # Errors
    /// [`Error::Unmarked`], or what the relay says.
    pub fn commit(&mut self, checkpoint: u64) -> Result<(), Error> {
        self.ask(&Frame::number(Kind::Commit, checkpoint))
    }

    /// Ends; all that was sent is logged, and the relay will serve it.
    ///
    /// # Errors
    /// What the relay says.
    pub fn finalize(mut self) -> Result<(), Error> {
        self.ask(&Frame::number(Kind::Bye, 0))
    }

    fn check_group(&self, group: usize) -> Result<(), Error> {
        if group == self.group || group >= self.groups() {
            let (me, groups) = (self.group, self.groups());
            return Err(Error::Usage(format!("group {group}: this is group {me} of {groups}")));
        }
        Ok(())
    }

    /// Asks the relay until it answers, also across a restart of the relay.
    fn ask(&mut self, question: &Frame) -> Result<(), Error> {
        self.answer = None;
        loop {
            self.link.push(question.clone());
            let joins = self.joins;
            while self.answer.is_none() && joins == self.joins {
                self.progress(true)?;
            }
            if self.answer.take().is_some_and(|a| a.header.kind == question.header.kind) {
                return Ok(());
            }
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.write()?;
        while self.link.out_bytes() > 0 {
            self.progress(true)?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        match self.link.flush() {
            Ok(()) => Ok(()),
            // Its last messages may still be readable.
            Err(_) => self.read(),
        }
    }

    /// Writes what is queued and reads what has arrived; waits for either if `may_wait`.
    fn progress(&mut self, may_wait: bool) -> Result<(), Error> {
        if let Some((code, text, number)) = &self.trouble {
            return Err(Error::told(*code, text.clone(), *number));
        }
        let waiting = self.link.out_bytes() > 0;
        self.write()?;
        // Everything is written, which is what a flush waits for: nothing may ever arrive to read.
        let may_wait = may_wait && !(waiting && self.link.out_bytes() == 0);
        let writing = if self.link.out_bytes() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds = [PollFd::new(self.link.fd(), PollFlags::POLLIN | writing)];
        let timeout = if may_wait { PollTimeout::NONE } else { PollTimeout::ZERO };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(system("poll")(e.into())),
        }
        let seen = fds[0].revents().unwrap_or(PollFlags::empty());
        if seen.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
            self.read()?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let open = self.link.receive();
        self.take_all()?;
        if matches!(open, Ok(true)) { Ok(()) } else { self.rejoin() }
    }

    /// Handles the frames that were read; on a new connection also those that came together with the welcome.
    fn take_all(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.link.next_frame()? {
            self.take_in(frame)?;
        }
        Ok(())
    }

    fn take_in(&mut self, frame: Frame) -> Result<(), Error> {
        let header = frame.header;
        match header.kind {
            Kind::Message => {
                if !self.inbox.put(&header, frame.body) {
                    return Err(Error::Garbage(format!("message {} of group {}", header.number, header.group)));
                }
            }
            Kind::Logged => {
                while self.told < header.number {
                    self.told += 1;
                    let logged = self.unlogged.pop_front();
                    self.unlogged_bytes -= logged.map_or(0, |f| f.body.len());
                }
            }
            Kind::Trouble => {
                let text = String::from_utf8_lossy(&frame.body).into_owned();
                self.trouble = Some((header.tag, text.clone(), header.number));
                return Err(Error::told(header.tag, text, header.number));
            }
            Kind::Mark | Kind::Commit | Kind::Bye => self.answer = Some(frame),
            Kind::Rest => {
                self.link.close().map_err(system("/dev/null"))?;
                return self.rejoin();
            }
            kind => return Err(Error::Garbage(format!("{kind:?} from the relay"))),
        }
        Ok(())
    }

    /// The relay has gone, or admits no program for a while: joins again when it may, and sends again what the relay
    /// may not have logged.
    fn rejoin(&mut self) -> Result<(), Error> {
        let mut held = self.sent.clone();
        for frame in &self.unlogged {
            held[usize::from(frame.header.group)] -= 1;
        }
        let arrived = self.inbox.arrived().to_vec();
        let mut join = |_: &Opened| Join { arrived: arrived.clone(), held: held.clone() };
        let rest = Some(&*self.rest).filter(|rest| !rest.as_os_str().is_empty());
        let (link, opened, known) = call(&self.socket, rest, self.wait_s, 0, &mut join)?;
        (self.link, self.rest) = (link, opened.rest);
        self.told = 0;
        self.joins += 1;
        self.unlogged.retain(|f| f.header.number > known[usize::from(f.header.group)]);
        self.unlogged_bytes = self.unlogged.iter().map(|f| f.body.len()).sum();
        self.unlogged.iter().for_each(|f| self.link.push(f.clone()));
        self.known = known;
        self.take_all()
    }
}

fn check_tag(tag: i32) -> Result<(), Error> {
    if tag < 0 {
        return Err(Error::Usage(format!("tag {tag}: tags are 0 and above")));
    }
    Ok(())
}
