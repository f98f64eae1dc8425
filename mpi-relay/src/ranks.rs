//! The relay's side of the connections to its group's ranks: one for messages, one for what is asked of a rank.

use crate::heart::Taken;
use crate::prints::Print;
use crate::relay::Relay;
use crate::words::{COMPARED, Progress, trouble};
use crate::{Error, Outcome};
use mlog::Link;
use mlog::frame::{Frame, Kind, LONGEST_BYTES};

/// A rank is told at the latest after so many bytes that they are logged.
const UNTOLD_BYTES: u64 = 256 << 10;

/// Bytes that a frame counts beside its body, so that empty ones count too.
const FRAME_BYTES: u64 = 256;

/// While so much waits for a rank, what comes for it is left in its senders' logs, bytes.
const ENOUGH_BYTES: usize = 8 << 20;

/// Read from one rank in one reading, at least all that its socket can hold, bytes.
const READING_BYTES: usize = 4 << 20;

/// What a rank asks with when it enters: the connection for messages, or that for questions.
pub(crate) const MESSAGES: i32 = 0;
pub(crate) const QUESTIONS: i32 = 1;

/// The connections of a rank.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// For messages.
    pub(crate) messages: Option<Link>,
    /// For questions.
    pub(crate) questions: Option<Link>,
    joined: bool,
    /// It was asked to leave.
    asked: bool,
    /// What it was told need not be held any more.
    told: Taken,
}

impl Ends {
    /// Writes what waits. What need not be held any more is told along with others, or when it is much.
    fn flush(&mut self, kept: Taken) -> std::io::Result<()> {
        let waits = self.messages.as_ref().is_some_and(|link| link.out_bytes() > 0);
        self.tell_kept(kept, if waits { 0 } else { UNTOLD_BYTES });
        self.messages.as_mut().map_or(Ok(()), Link::flush)
    }

    /// Tells a rank what it need not hold any more, if that is so much.
    fn tell_kept(&mut self, kept: Taken, least_bytes: u64) {
        let Some(link) = self.messages.as_mut().filter(|_| self.joined) else { return };
        let (frames, bytes) = (kept.frames - self.told.frames, kept.bytes - self.told.bytes);
        if frames > 0 && bytes + FRAME_BYTES * frames >= least_bytes {
            link.push(Frame::number(Kind::Logged, kept.frames));
            self.told = kept;
        }
    }
}

impl Relay {
    /// A rank enters; the one before in its place is dead, or will be told by its socket.
    pub(crate) fn enter(&mut self, link: Link, frame: &Frame) -> Result<(), Error> {
        if self.rest.exists() {
            // It began to call before it could know.
            return Ok(());
        }
        let rank = usize::try_from(frame.header.number).unwrap_or(usize::MAX);
        let place = self.heart.layout().place_in(self.group, rank);
        let place = place.ok_or_else(|| Error::Usage(format!("rank {rank} is not of group {}", self.group)));
        let mut link = link;
        let place = match place {
            Ok(place) => place,
            Err(e) => {
                link.push(trouble(&e));
                let _ = link.flush();
                return Err(e);
            }
        };
        link.push(Frame::number(Kind::Opened, self.heart.layout().world() as u64));
        link.flush().map_err(mlog::system("a rank"))?;
        if frame.header.tag == QUESTIONS {
            self.ends[place].questions = Some(link);
            self.ends[place].asked = false;
            return Ok(());
        }
        self.gone(place, None);
        link.trust(LONGEST_BYTES);
        let questions = self.ends[place].questions.take();
        self.ends[place] = Ends { messages: Some(link), questions, ..Ends::default() };
        // More may have come together with its first words.
        self.read_rank(place);
        Ok(())
    }

    /// A rank's connection for messages is no more.
    fn gone(&mut self, place: usize, progress: Option<Progress>) {
        self.ends[place].messages = None;
        self.ends[place].joined = false;
        self.heart.leave(place, progress);
    }

    /// Notices that a rank has closed the connection for questions: nothing else comes on it.
    pub(crate) fn read_questions(&mut self, place: usize) {
        let Some(link) = &mut self.ends[place].questions else { return };
        if !link.receive().unwrap_or(false) || !matches!(link.next_frame(), Ok(None)) {
            self.ends[place].questions = None;
        }
    }

    /// Takes in what a rank sent, all that was there when this began; its messages are logged in one go.
    pub(crate) fn read_rank(&mut self, place: usize) {
        let (mut read, mut open, mut more) = (0, true, true);
        while more {
            let Some(link) = &mut self.ends[place].messages else { return };
            match link.receive_some() {
                Ok(Some(0)) | Err(_) => (open, more) = (false, false),
                Ok(Some(count)) => {
                    read += count;
                    more = !link.is_drained() && read < READING_BYTES;
                }
                Ok(None) => more = false,
            }
            if let Err(e) = self.take_frames(place) {
                tracing::error!(group = self.group, place, "a rank must end: {e}");
                let Some(link) = &mut self.ends[place].messages else { return };
                link.push(trouble(&e));
                let _ = link.flush();
                return self.gone(place, None);
            }
        }
        if !open {
            self.gone(place, None);
        }
    }

    fn take_frames(&mut self, place: usize) -> Result<(), Error> {
        let mut messages = Vec::new();
        while let Some(link) = &mut self.ends[place].messages {
            let Some(frame) = link.next_frame()? else { break };
            let ends = &self.ends[place];
            let kind = frame.header.kind;
            if kind == Kind::Message && ends.joined {
                messages.push(frame);
                continue;
            }
            self.heart.sent(place, std::mem::take(&mut messages))?;
            self.obey_rank(place, &frame)?;
        }
        self.heart.sent(place, messages)
    }

    fn obey_rank(&mut self, place: usize, frame: &Frame) -> Result<(), Error> {
        let header = frame.header;
        let (joined, to) = (self.ends[place].joined, usize::from(header.group));
        let garbage = || Error::Garbage(format!("{:?} out of place", header.kind));
        match header.kind {
            Kind::Join if !joined => {
                self.heart.join(place, &frame.parse()?)?;
                self.ends[place].joined = true;
                self.joined_s = mlog::relay::now_s();
            }
            Kind::Again if joined => {
                let print = Print::decode(&frame.body).ok_or_else(garbage)?;
                self.heart.sent_again(place, to, header.number, print, header.tag == COMPARED);
            }
            Kind::Record if joined => {
                let outcome = Outcome::decode(&frame.body).ok_or_else(garbage)?;
                self.heart.record(place, header.number, outcome)?;
            }
            Kind::Leave if joined => {
                let progress: Progress = frame.parse()?;
                if !progress.fits(self.heart.layout().world()) {
                    return Err(garbage());
                }
                self.gone(place, Some(progress));
            }
            Kind::Bye if joined => {
                let progress: Progress = frame.parse()?;
                if !progress.fits(self.heart.layout().world()) {
                    return Err(garbage());
                }
                self.heart.finish(place, progress);
            }
            Kind::Varies if joined => self.varies = true,
            Kind::Abort => {
                let rank = self.heart.layout().ranks(self.group)[place];
                self.heart.abort(rank, header.tag);
            }
            _ => return Err(garbage()),
        }
        Ok(())
    }

    /// Writes what waits for the ranks, and notes who takes nothing in.
    pub(crate) fn flush_ranks(&mut self) {
        for place in 0..self.ends.len() {
            // One that has closed is noticed when it is read: it may have said before how far it is.
            let _ = self.ends[place].flush(self.heart.kept(place));
            let waiting = self.ends[place].messages.as_ref().map_or(0, Link::out_bytes);
            self.heart.set_behind(place, waiting >= ENOUGH_BYTES);
        }
    }

    /// Has all ranks leave, and keeps them away. True when none is here any more and what they were is marked.
    pub(crate) fn send_away(&mut self, checkpoint: u64) -> Result<bool, Error> {
        if !self.rest.exists() {
            std::fs::write(&self.rest, "").map_err(mlog::system(self.rest.display()))?;
            self.rested = false;
        }
        for (place, ends) in self.ends.iter_mut().enumerate() {
            // What it need not hold is not dumped with it.
            ends.tell_kept(self.heart.kept(place), 0);
            let logged = ends.told.frames;
            let Some(link) = &mut ends.questions else { continue };
            if !std::mem::replace(&mut ends.asked, true) {
                link.push(Frame::number(Kind::Rest, logged));
            }
            // One that has closed is noticed when it is read.
            let _ = link.flush();
        }
        if self.ends.iter().any(|ends| ends.messages.is_some() || ends.questions.is_some()) {
            return Ok(false);
        }
        if !self.rested {
            // What was sent before a checkpoint is not sent again after it, and so must be durable with it.
            self.heart.log.sync()?;
            self.heart.mark(checkpoint);
            self.rested = true;
        }
        Ok(true)
    }
}
