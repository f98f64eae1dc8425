//! The relay's side of the connection to its group's program.

use crate::frame::{Frame, Kind, LONGEST_BYTES};
use crate::inbox::Counters;
use crate::link::Link;
use crate::peer::Peer;
use crate::relay::{Relay, now_s};
use crate::status::{Counts, Loss, PeerStatus, Status};
use crate::{Error, absent, system};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// After so many logged bytes the program is told of it at once.
const UNTOLD_BYTES: u64 = 256 << 10;

/// Bytes that a frame counts in addition to its body, so that empty ones count too.
const FRAME_BYTES: u64 = 256;

/// While so much waits for the program, no more is read from other relays, bytes.
const ENOUGH_BYTES: usize = 8 << 20;

/// A relay's answer to a program: its group, and the counters to resume from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Its group.
    pub group: usize,
    /// Groups of the run.
    pub groups: usize,
    /// Counters of the checkpoint from which it resumes.
    pub counters: Option<Counters>,
    /// The file whose existence keeps the program away; empty from a relay of an earlier version.
    #[serde(default)]
    pub rest: PathBuf,
}

/// A joining program's position.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    /// From each group: messages that it has.
    pub arrived: Vec<u64>,
    /// To each group: number up to which it cannot send its messages again by itself.
    pub held: Vec<u64>,
}

/// A connected program.
#[derive(Debug)]
pub struct Program {
    /// The connection.
    pub link: Link,
    /// Whether it has joined, with its position.
    pub joined: bool,
    /// It was told of a fatal error: nothing it sends counts any more.
    condemned: bool,
    /// It has announced its end.
    ending: bool,
    logged: u64,
    untold_bytes: u64,
}

impl Program {
    /// A program on a new connection.
    pub fn new(link: Link) -> Program {
        Program { link, joined: false, condemned: false, ending: false, logged: 0, untold_bytes: 0 }
    }

    /// A message of it is logged.
    pub fn count(&mut self, bytes: usize) {
        self.logged += 1;
        self.untold_bytes += FRAME_BYTES + bytes as u64;
    }

    /// Whether so much is queued for it that no more is read from other relays.
    pub fn is_behind(&self) -> bool {
        self.link.out_bytes() >= ENOUGH_BYTES
    }

    /// Writes what waits. That its messages are logged is told along with others, or when it is much.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self) -> std::io::Result<()> {
        let worth = self.link.out_bytes() > 0 || self.untold_bytes >= UNTOLD_BYTES;
        if worth && self.untold_bytes > 0 {
            self.link.push(Frame::number(Kind::Logged, self.logged));
            self.untold_bytes = 0;
        }
        self.link.flush()
    }
}

impl Relay {
    /// A program opens, or a command asks.
    pub(crate) fn welcome_local(&mut self, mut link: Link, frame: &Frame) -> Result<(), Error> {
        let answer = match frame.header.kind {
            Kind::Open => return self.open_program(link, frame),
            Kind::Status => Frame::json(Kind::Status, 0, &self.status()),
            Kind::Handover => self.hand_over(frame),
            Kind::Rest => self.send_away(),
            Kind::Wake => {
                self.rests = false;
                absent(&self.rest).map(|()| Frame::number(Kind::Wake, 0))
            }
            Kind::Stop => {
                self.ending = true;
                Ok(Frame::number(Kind::Stop, 0))
            }
            kind => return Err(Error::Garbage(format!("{kind:?} for a beginning"))),
        };
        link.push(answer.unwrap_or_else(|e| trouble(&e)));
        link.flush().map_err(system("a command"))
    }

    /// Makes the program close its connection, and keeps programs away. Returns whether it has: a program that has
    /// not joined, or has announced its end, does not call the relay and would not stand still.
    fn send_away(&mut self) -> Result<Frame, Error> {
        if let Some(program) = self.program.as_mut().filter(|p| p.joined && !p.ending)
            && !self.rest.exists()
        {
            std::fs::write(&self.rest, "").map_err(system(self.rest.display()))?;
            program.link.push(Frame::number(Kind::Rest, 0));
        }
        Ok(Frame::number(Kind::Rest, u64::from(self.rests)))
    }

    fn hand_over(&mut self, frame: &Frame) -> Result<Frame, Error> {
        let folder = Path::new(OsStr::from_bytes(&frame.body));
        self.store.save(folder)?;
        self.marks.save(folder)?;
        self.ending = true;
        Ok(Frame::number(Kind::Handover, 0))
    }

    /// A new program takes the place of the one before, which is dead or will notice that its socket is closed.
    fn open_program(&mut self, mut link: Link, frame: &Frame) -> Result<(), Error> {
        self.leave();
        if self.rest.exists() {
            // It connected before it could know that programs are kept away.
            return Ok(());
        }
        let checkpoint = frame.header.number;
        let counters = match checkpoint {
            0 => Ok(None),
            _ => self.marks.go_back(checkpoint).map(Some),
        };
        let (group, groups, rest) = (self.group, self.groups, self.rest.clone());
        let opened = counters.map(|counters| Opened { group, groups, counters, rest });
        let answer = opened.and_then(|opened| Frame::json(Kind::Opened, 0, &opened));
        link.push(answer.unwrap_or_else(|e| trouble(&e)));
        link.trust(LONGEST_BYTES);
        let mut program = Program::new(link);
        program.flush().map_err(system("the program"))?;
        self.program = Some(program);
        Ok(())
    }

    /// The program is gone.
    fn leave(&mut self) {
        self.rests |= self.rest.exists() && self.program.as_ref().is_some_and(|p| p.joined && !p.ending);
        self.part();
        self.program = None;
    }

    /// The program reads nothing more: what arrives for it meanwhile must be sent again.
    fn part(&mut self) {
        if self.program.as_mut().is_some_and(|p| std::mem::take(&mut p.joined)) {
            for group in 0..self.groups {
                self.peers[group].incoming.leave();
                self.want(group);
            }
        }
    }

    pub(crate) fn tell_program(&mut self, error: &Error) {
        if let Some(program) = &mut self.program {
            program.link.push(trouble(error));
        }
    }

    pub(crate) fn flush_program(&mut self) {
        if self.program.as_mut().is_some_and(|p| p.flush().is_err()) {
            self.leave();
        }
    }

    /// Takes in what the program sent; its messages of one wakeup are logged in one go.
    pub(crate) fn read_program(&mut self) {
        let Some(program) = &mut self.program else { return };
        let open = program.link.receive();
        if let Err(e) = self.take_frames() {
            tracing::error!(group = self.group, "the program must end: {e}");
            self.tell_program(&e);
            self.flush_program();
            self.condemn();
        }
        if !matches!(open, Ok(true)) {
            self.leave();
        }
    }

    /// Keeps the connection open until the program closes it, so that it can read why it must end.
    fn condemn(&mut self) {
        self.part();
        if let Some(program) = &mut self.program {
            program.condemned = true;
        }
    }

    fn take_frames(&mut self) -> Result<(), Error> {
        let mut messages = Vec::new();
        while let Some(program) = &mut self.program {
            let Some(frame) = program.link.next_frame()? else { break };
            if program.condemned {
                continue;
            }
            if frame.header.kind == Kind::Message && program.joined {
                program.count(frame.body.len());
                messages.push(frame);
            } else {
                self.log(std::mem::take(&mut messages))?;
                self.obey_program(&frame)?;
            }
        }
        self.log(messages)
    }

    fn log(&mut self, messages: Vec<Frame>) -> Result<(), Error> {
        let logged = self.store.log(messages)?;
        self.counts.messages += logged.messages;
        self.counts.bytes += logged.bytes;
        self.counts.repeated += logged.known;
        Ok(())
    }

    fn obey_program(&mut self, frame: &Frame) -> Result<(), Error> {
        let number = frame.header.number;
        let joined = self.program.as_ref().is_some_and(|p| p.joined);
        match frame.header.kind {
            Kind::Join if !joined => return self.join(&frame.parse()?),
            Kind::Again if joined => {
                self.counts.repeated += 1;
                return self.store.compare(&frame.header, &frame.body);
            }
            Kind::Mark if joined => self.mark(number, frame.parse()?)?,
            Kind::Commit if joined => self.commit(number)?,
            Kind::Bye if joined => {
                self.marks.end(Some(self.store.logged()))?;
                self.program.iter_mut().for_each(|p| p.ending = true);
            }
            kind => return Err(Error::Garbage(format!("{kind:?} out of place"))),
        }
        if let Some(program) = &mut self.program {
            program.link.push(Frame::number(frame.header.kind, number));
        }
        Ok(())
    }

    fn join(&mut self, join: &Join) -> Result<(), Error> {
        if [join.arrived.len(), join.held.len()] != [self.groups; 2] {
            return Err(Error::Garbage(format!("counters of other than {} groups", self.groups)));
        }
        self.marks.end(None)?;
        if join.arrived.iter().chain(&join.held).all(|n| *n == 0) && self.marks.begin(self.groups)? {
            // Other relays may log again what they had collected for those checkpoints.
            self.peers.iter_mut().filter_map(|p| p.link.as_mut()).for_each(|l| l.push(Frame::number(Kind::Collect, 0)));
        }
        self.joined_s = now_s();
        for group in 0..self.groups {
            self.store.join(group, join.held[group])?;
            self.tell_loss(group);
            self.peers[group].incoming.join(join.arrived[group]);
        }
        if let Some(program) = &mut self.program {
            program.joined = true;
            program.link.push(Frame::json(Kind::Welcome, 0, &self.store.logged())?);
        }
        (0..self.groups).for_each(|group| self.want(group));
        Ok(())
    }

    /// What was sent before a checkpoint will not be sent again after it, and so must be durable first.
    fn mark(&mut self, checkpoint: u64, counters: Counters) -> Result<(), Error> {
        if checkpoint == 0 || !counters.fits(self.groups) {
            return Err(Error::Garbage(format!("a mark of checkpoint {checkpoint} that does not fit")));
        }
        self.store.sync()?;
        self.marks.mark(checkpoint, counters)
    }

    fn commit(&mut self, checkpoint: u64) -> Result<(), Error> {
        self.marks.commit(checkpoint)?;
        for (group, peer) in self.peers.iter_mut().enumerate() {
            if let Some(link) = &mut peer.link {
                link.push(Frame::number(Kind::Collect, self.marks.collected(group)));
            }
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let me = self.group;
        let peer = |(group, peer): (usize, &Peer)| {
            let channel = self.store.channel(group)?;
            let (connected, logged, collected) = (peer.link.is_some(), channel.logged, channel.collected);
            (group != me).then_some(PeerStatus { group, connected, logged, collected })
        };
        let to = |(to, peer): (usize, &Peer)| Some(Loss { from: me, to, number: peer.lost_there? });
        let from = |(from, peer): (usize, &Peer)| Some(Loss { from, to: me, number: peer.lost_here? });
        let lost_there = self.peers.iter().enumerate().filter_map(to);
        let lost_here = self.peers.iter().enumerate().filter_map(from);
        Status {
            version: protocol::VERSION,
            group: me,
            log: self.medium.name().into(),
            log_bytes: self.store.bytes(),
            log_limit_bytes: self.store.limit_bytes(),
            logging_s: self.store.logging.as_secs_f64(),
            sync_s: self.store.syncing.as_secs_f64(),
            counts: Counts { refused: self.callers.refused(), ..self.counts },
            program: self.program.is_some(),
            joined_s: self.joined_s,
            behind: self.store.behind(),
            checkpoints: self.marks.checkpoints(),
            peers: self.peers.iter().enumerate().filter_map(peer).collect(),
            lost: lost_there.chain(lost_here).collect(),
        }
    }
}

fn trouble(error: &Error) -> Frame {
    let number = if let Error::Unmarked(checkpoint) = error { *checkpoint } else { 0 };
    Frame::new(Kind::Trouble, 0, error.code(), number, error.text().into_bytes())
}
