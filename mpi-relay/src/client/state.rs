//! What a rank knows: how far it is on each channel, what may have to be sent again, what has come.

use super::body::Body;
use crate::envelope::{ENVELOPE_BYTES, PREFIX_BYTES};
use crate::prints::Print;
use crate::words::{COMPARED, Progress, Welcome, abort};
use crate::{Envelope, Error, Outcome};
use mlog::Link;
use mlog::buffer::Buffer;
use mlog::frame::{Frame, Header, Kind};
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// How many bytes are missing from a message, where it is as many or more.
const MORE: u32 = u32::MAX;

/// What the callers and the keeper share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: PathBuf,
    pub(super) rank: u32,
    pub(super) wait_s: u64,
    state: Mutex<State>,
    /// The state has changed: a link has gone or come, nobody sleeps any more, all has ended.
    pub(super) changed: Condvar,
    /// Wakes whoever sleeps on the socket. A counter that an image can hold.
    rouse: EventFd,
}

/// How far a rank is.
#[derive(Debug)]
pub(super) struct State {
    /// The connection for messages; none while the relay is away, or at a rest.
    pub(super) link: Option<Link>,
    /// The keeper is about to close it.
    pub(super) leaving: bool,
    /// Threads that sleep on it.
    pub(super) sleepers: usize,
    pub(super) inbox: VecDeque<(Envelope, Body)>,
    /// The last message was taken out, and the socket had no more.
    pub(super) emptied: bool,
    pub(super) unlogged_bytes: usize,
    pub(super) finished: bool,
    /// Why nothing goes on.
    pub(super) ended: Option<Error>,
    rank: u32,
    sent: Vec<u64>,
    arrived: Vec<u64>,
    /// By sender: a message of which parts are still to come, and how many bytes of it.
    partial: Vec<Option<(Envelope, Body, usize)>>,
    /// What the relay had logged at the last join: of that only fingerprints are sent.
    known: Vec<u64>,
    /// Messages, fingerprints and outcomes of which the relay has not said that it has them.
    unlogged: VecDeque<Frame>,
    /// How many it has told of on this connection.
    told: u64,
    outcomes: u64,
    repeat: VecDeque<Outcome>,
    aborting: Option<i32>,
    leaving_for_good: bool,
    /// What the rank does depends on when messages come.
    varies: bool,
}

impl Shared {
    pub(super) fn new(socket: &Path, rank: u32, wait_s: u64, progress: &Progress) -> Result<Shared, Error> {
        let ranks = progress.sent.len();
        if rank as usize >= ranks || !progress.fits(ranks) {
            return Err(Error::Usage(format!("rank {rank} of {ranks}")));
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let rouse = EventFd::from_flags(flags).map_err(|e| Error::System(format!("an event counter: {e}")))?;
        let state = State {
            link: None,
            leaving: false,
            sleepers: 0,
            inbox: VecDeque::new(),
            emptied: false,
            unlogged_bytes: 0,
            finished: false,
            ended: None,
            rank,
            sent: progress.sent.clone(),
            arrived: progress.arrived.clone(),
            partial: (0..ranks).map(|_| None).collect(),
            known: vec![0; ranks],
            unlogged: VecDeque::new(),
            told: 0,
            outcomes: progress.outcomes,
            repeat: VecDeque::new(),
            aborting: None,
            leaving_for_good: false,
            varies: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Shared { socket: socket.into(), rank, wait_s, state, changed, rouse })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A caller that panicked left a state that the next call may find wanting, but not memory that is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who sleep.
    pub(super) fn rouse(&self) {
        // A full counter wakes as well.
        let _ = self.rouse.write(1);
        self.changed.notify_all();
    }

    /// Those who sleep from now on sleep.
    pub(super) fn calm(&self) {
        // An empty one is calm.
        let _ = self.rouse.read();
    }

    pub(super) fn roused(&self) -> PollFd<'_> {
        PollFd::new(self.rouse.as_fd(), PollFlags::POLLIN)
    }
}

impl State {
    /// Why nothing goes on, if so.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.ended.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }

    pub(super) fn out_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::out_bytes)
    }

    /// Whether the socket had no more than was read.
    pub(super) fn is_drained(&self) -> bool {
        self.link.as_ref().is_none_or(Link::is_drained)
    }

    /// How far this rank is.
    pub(super) fn progress(&self) -> Progress {
        let mut held = self.sent.clone();
        let mut outcomes_held = self.outcomes;
        for frame in &self.unlogged {
            match frame.header.kind {
                Kind::Message => held[usize::from(frame.header.group)] -= 1,
                Kind::Record => outcomes_held -= 1,
                _ => {}
            }
        }
        let (arrived, sent) = (self.arrived.clone(), self.sent.clone());
        Progress { arrived, sent, held, outcomes: self.outcomes, outcomes_held, ..Progress::default() }
    }

    /// How far this rank is, with nothing that only its memory holds but what the relay has.
    pub(super) fn whole_progress(&self) -> Result<Progress, Error> {
        if !self.inbox.is_empty() || self.partial.iter().any(Option::is_some) {
            return Err(Error::Usage("messages have come that are not received".into()));
        }
        let (arrived, sent, outcomes) = (self.arrived.clone(), self.sent.clone(), self.outcomes);
        let held = sent.clone();
        Ok(Progress { arrived, sent, held, outcomes, outcomes_held: outcomes, ..Progress::default() })
    }

    /// Sends one part of a message: to the relay what it does not know, or only its fingerprint.
    pub(super) fn send(&mut self, to: usize, envelope: &Envelope, part: &[u8], rest: usize) -> Result<(), Error> {
        let Some(sent) = self.sent.get_mut(to) else { return Err(Error::Usage(format!("rank {to} is none"))) };
        *sent += 1;
        let number = *sent;
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..ENVELOPE_BYTES].copy_from_slice(&envelope.encode());
        prefix[ENVELOPE_BYTES..].copy_from_slice(&xxh3_64(part).to_le_bytes());
        let rest = u32::try_from(rest).unwrap_or(MORE);
        let known = number <= self.known[to];
        let mut frame = if known {
            let print = Print::of(&prefix, part.len(), rest);
            Frame::new(Kind::Again, to, 0, number, &print.encode()[..])
        } else {
            let mut body = Buffer::new(PREFIX_BYTES + part.len());
            body[..PREFIX_BYTES].copy_from_slice(&prefix);
            body[PREFIX_BYTES..].copy_from_slice(part);
            Frame::new(Kind::Message, to, 0, number, body)
        };
        frame.header.rest = rest;
        // The relay counts both.
        self.keep(frame);
        Ok(())
    }

    /// Keeps an outcome.
    pub(super) fn record(&mut self, outcome: Outcome) -> Result<(), Error> {
        if !self.repeat.is_empty() {
            return Err(Error::Repeating(self.repeat.len()));
        }
        self.outcomes += 1;
        self.keep(Frame::new(Kind::Record, 0, 0, self.outcomes, &outcome.encode()[..]));
        Ok(())
    }

    pub(super) fn next_repeated(&mut self) -> Option<Outcome> {
        let next = self.repeat.pop_front()?;
        self.outcomes += 1;
        Some(next)
    }

    /// Sends a frame, and holds it until it is logged.
    fn keep(&mut self, frame: Frame) {
        self.unlogged_bytes += frame.body.len();
        self.unlogged.push_back(frame.clone());
        self.push(frame);
    }

    fn push(&mut self, frame: Frame) {
        if let Some(link) = &mut self.link {
            link.push(frame);
        }
    }

    /// The relay takes in all that was said before it says that this rank has left: it compares what was sent again.
    pub(super) fn has_left(&mut self) {
        let again = self.unlogged.iter_mut().filter(|frame| frame.header.kind == Kind::Again);
        again.for_each(|frame| frame.header.tag = COMPARED);
    }

    pub(super) fn say_abort(&mut self, code: i32) {
        self.aborting = Some(code);
        self.push(abort(self.rank, code));
    }

    /// Says goodbye now, and again whenever the relay is reached anew.
    pub(super) fn say_goodbye(&mut self) -> Result<(), Error> {
        self.leaving_for_good = true;
        let frame = Frame::json(Kind::Bye, 0, &self.progress())?;
        self.push(frame);
        self.write();
        Ok(())
    }

    /// Writes what the socket takes; a connection that broke is noticed when it is read.
    pub(super) fn write(&mut self) {
        if let Some(link) = &mut self.link {
            let _ = link.flush();
        }
    }

    /// Takes in what has come.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let open = link.receive().unwrap_or(false);
        self.take_all()?;
        if !open && self.sleepers == 0 {
            // The keeper sees the same, and calls the relay again.
            self.link = None;
        }
        Ok(())
    }

    /// Tells, now and whenever it has come back, that what the rank does depends on when messages come.
    pub(super) fn vary(&mut self) {
        self.varies = true;
        if self.link.is_some() {
            self.push(Frame::number(Kind::Varies, 0));
        }
    }

    /// The relay has logged so many frames of this connection.
    pub(super) fn logged(&mut self, frames: u64) {
        while self.told < frames {
            self.told += 1;
            let logged = self.unlogged.pop_front();
            self.unlogged_bytes -= logged.map_or(0, |f| f.body.len());
        }
    }

    /// Takes in the frames that were read.
    pub(super) fn take_all(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.link.as_mut().map(Link::next_frame).transpose()?.flatten() {
            if let Err(e) = self.take_in(frame) {
                self.ended = Some(e.clone());
                return Err(e);
            }
        }
        Ok(())
    }

    fn take_in(&mut self, frame: Frame) -> Result<(), Error> {
        let header = frame.header;
        match header.kind {
            Kind::Message => return self.arrive(frame),
            Kind::Logged => self.logged(header.number),
            Kind::Trouble => {
                return Err(Error::told(header.tag, String::from_utf8_lossy(&frame.body).into_owned()));
            }
            Kind::Abort => return Err(Error::Aborted { rank: u32::from(header.group), code: header.tag }),
            Kind::Bye => self.finished = true,
            kind => return Err(Error::Garbage(format!("{kind:?}"))),
        }
        Ok(())
    }

    fn arrive(&mut self, frame: Frame) -> Result<(), Error> {
        let (from, number, rest) = (usize::from(frame.header.group), frame.header.number, frame.header.rest as usize);
        match self.arrived.get_mut(from) {
            Some(arrived) if number == *arrived + 1 => *arrived = number,
            _ => return Err(Error::Garbage(format!("message {number} of rank {from} out of turn"))),
        }
        let envelope = Envelope::decode(&frame.body)?;
        let Some(length) = frame.body.len().checked_sub(PREFIX_BYTES) else {
            return Err(Error::Garbage(format!("a message of {} bytes", frame.body.len())));
        };
        let (envelope, body) = match self.partial[from].take() {
            Some((_, _, missing)) if missing != length + rest && missing < MORE as usize => {
                return Err(Error::Garbage(format!("a part of a message of rank {from} that does not fit")));
            }
            Some((envelope, mut body, _)) => {
                body.extend(frame.body);
                (envelope, body)
            }
            None => (envelope, Body::begin(frame.body)),
        };
        if rest > 0 {
            self.partial[from] = Some((envelope, body, rest));
        } else {
            self.inbox.push_back((envelope, body));
        }
        Ok(())
    }

    /// A relay is reached and says what it has: goes on from there.
    pub(super) fn joined(&mut self, link: Link, welcome: Welcome) -> Result<(), Error> {
        let Welcome { known, outcomes, repeat } = welcome;
        if known.len() != self.sent.len() {
            return Err(Error::Garbage(format!("counters of {} ranks", known.len())));
        }
        self.link = Some(link);
        self.told = 0;
        self.unlogged.retain(|frame| frame.header.kind != Kind::Record || frame.header.number > outcomes);
        self.unlogged_bytes = self.unlogged.iter().map(|f| f.body.len()).sum();
        (self.known, self.repeat) = (known, repeat.into());
        for frame in self.unlogged.clone() {
            // What was made again while the rank was away is compared as anything else. It is held until it is told that it
            // is logged, since the next relay may know less.
            let Header { kind, group, number, rest, .. } = frame.header;
            let is_known = kind == Kind::Message && number <= self.known[usize::from(group)];
            let print = Print::of_body(&frame.body, rest).filter(|_| is_known);
            self.push(match print {
                Some(print) => Frame::new(Kind::Again, usize::from(group), 0, number, &print.encode()[..]),
                None => frame,
            });
        }
        if self.varies {
            self.vary();
        }
        if let Some(code) = self.aborting {
            self.say_abort(code);
        }
        if self.leaving_for_good {
            self.say_goodbye()?;
        }
        self.write();
        self.take_all()
    }
}
