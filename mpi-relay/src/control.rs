//! What is asked of a relay by commands: its state, rests, checkpoints, its log, its end.

use crate::Error;
use crate::layout::Layout;
use crate::line::{OUTCOMES, write_marks};
use crate::relay::Relay;
use crate::status::{RankStatus, Status};
use crate::words::trouble;
use mlog::book::replace;
use mlog::frame::{Frame, Kind};
use mlog::{Counts, Link, PeerStatus, absent, system};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Relay {
    /// A rank enters, or a command asks.
    pub(crate) fn welcome_local(&mut self, mut link: Link, frame: &Frame) -> Result<(), Error> {
        let number = frame.header.number;
        let answer = match frame.header.kind {
            Kind::Enter => return self.enter(link, frame),
            Kind::Status => Frame::json(Kind::Status, 0, &self.status()).map_err(Error::from),
            Kind::Rest => {
                self.end_trim();
                self.send_away(number).map(|away| Frame::number(Kind::Rest, u64::from(away)))
            }
            Kind::Wake => {
                self.rested = false;
                absent(&self.rest).map(|()| Frame::number(Kind::Wake, 0)).map_err(Error::from)
            }
            Kind::Commit => match self.heart.commit(number) {
                true => Ok(Frame::number(Kind::Commit, number)),
                false => Err(Error::Usage(format!("checkpoint {number} has no mark: the ranks did not rest for it"))),
            },
            Kind::Save => self.save(frame).map(|()| Frame::number(Kind::Save, 0)),
            Kind::Handover => self.save(frame).map(|()| {
                self.ending = true;
                Frame::number(Kind::Handover, 0)
            }),
            Kind::Stop => {
                self.ending = true;
                Ok(Frame::number(Kind::Stop, 0))
            }
            kind => return Err(Error::Garbage(format!("{kind:?} for a beginning"))),
        };
        link.push(answer.unwrap_or_else(|e| trouble(&e)));
        Ok(link.flush().map_err(system("a command"))?)
    }

    /// Writes logs, marks and outcomes into a folder.
    fn save(&mut self, frame: &Frame) -> Result<(), Error> {
        let folder = Path::new(OsStr::from_bytes(&frame.body));
        self.heart.log.save(folder)?;
        if folder != self.folder {
            write_marks(folder, &self.heart.marks)?;
            replace(&folder.join(OUTCOMES), &self.heart.outcomes.encode())?;
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let layout = self.heart.layout();
        let (me, tally) = (self.group, self.heart.tally);
        let place_of = |rank: usize| layout.group_of(rank).unwrap_or(me);
        let losses = self.heart.losses.iter();
        let lost = losses.map(|l| mlog::Loss { from: place_of(l.from), to: place_of(l.to), number: l.number });
        let (logging_s, sync_s) = self.heart.log.seconds();
        let log_bytes = self.heart.log.bytes();
        let ranks: Vec<RankStatus> =
            layout.ranks(me).iter().enumerate().map(|(p, r)| self.rank_status(p, *r)).collect();
        let relay = mlog::Status {
            version: protocol::VERSION,
            group: me,
            log: self.heart.log.medium().name().into(),
            log_bytes,
            log_limit_bytes: self.limit_bytes,
            logging_s,
            sync_s,
            counts: Counts {
                messages: tally.messages,
                bytes: tally.bytes,
                delivered: tally.delivered,
                duplicates: tally.duplicates,
                repeated: tally.repeated,
                connections: self.connections,
                refused: self.callers.refused(),
                ..Counts::default()
            },
            program: ranks.iter().all(|rank| rank.here),
            joined_s: self.joined_s,
            behind: self.heart.log.behind(),
            checkpoints: self.heart.marks.checkpoints(),
            peers: (0..layout.groups()).filter(|g| *g != me).map(|g| self.peer_status(layout, g)).collect(),
            lost: lost.collect(),
        };
        Status {
            relay,
            ranks,
            tally,
            full_permille: log_bytes.saturating_mul(1000) / self.limit_bytes.max(1),
            waited_s: (self.waited + self.full.map(|since| since.elapsed()).unwrap_or_default()).as_secs_f64(),
            differences: self.heart.differences.clone(),
            varies: self.varies,
            uncompared: self.heart.uncompared(),
            lost_messages: self.heart.losses.clone(),
            outcomes_waiting: self.heart.outcomes.recorded() - self.heart.outcomes.durable(),
            outcomes_lost: self.heart.outcomes.lost,
            aborted: self.heart.aborted,
        }
    }

    fn rank_status(&self, place: usize, rank: u32) -> RankStatus {
        let waiting = self.ends[place].messages.as_ref();
        RankStatus {
            rank,
            here: self.heart.is_here(place),
            finished: self.heart.has_finished(place),
            waiting_bytes: waiting.map_or(0, Link::out_bytes),
            outcomes: self.heart.outcomes.end(place),
        }
    }

    fn peer_status(&self, layout: &Layout, group: usize) -> PeerStatus {
        let (logged, collected) = self.heart.log.numbers(layout.ranks(group));
        PeerStatus { group, connected: self.peers[group].link.is_some(), logged, collected }
    }
}
