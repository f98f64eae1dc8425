//! What a relay decides, as pure state: channels between ranks, outcomes, comparisons, marks; no sockets, no clock.
//!
//! Happenings come in by calls, what is to be done goes out as [`Act`]s, and what is due to another group is fetched by
//! [`Heart::next_for`]. A message leaves its group only when every outcome that it may depend on is durable. Ranks of a
//! group depend on each other by their own MPI, which the relay does not see: so a message that came in one reading of
//! all ranks is logged after another reading of all of them, with the number of outcomes until then, and leaves when
//! these are durable. Its rank holds it so long, and a relay that begins drops from a log what never left.

mod groups;
mod readings;

use crate::decide::{Difference, Loss};
use crate::envelope::OUTCOME_BYTES;
use crate::layout::Layout;
use crate::marks::Marks;
use crate::outcomes::Outcomes;
use crate::prints::{Compared, Print, Prints};
use crate::words::{Progress, Welcome, abort, about, trouble};
use crate::{Error, Outcome};
use mlog::channel::Incoming;
use mlog::frame::{Frame, Header, Kind};
use std::collections::{BTreeMap, VecDeque};

/// The logs of a group's ranks, by place in the group and receiving world rank.
pub trait Log {
    /// The highest number logged to each rank of the world.
    fn logged(&self, place: usize) -> Vec<u64>;
    /// Messages up to this number are not in the log.
    fn gone(&self, place: usize, to: usize) -> u64;
    /// Logs messages, each of which is the next one; their tags are kept.
    ///
    /// # Errors
    /// What the disk says.
    fn append(&mut self, place: usize, messages: Vec<Frame>) -> Result<(), Error>;
    /// Drops messages from the end of a channel as long as the test says so, durably.
    ///
    /// # Errors
    /// What the disk says.
    fn cut(&mut self, place: usize, to: usize, goes: impl Fn(&Header) -> bool) -> Result<(), Error>;
    /// The rank (re)joins and can send again what follows `held`.
    ///
    /// # Errors
    /// What the disk says.
    fn join(&mut self, place: usize, to: usize, held: u64) -> Result<(), Error>;
    /// The receiver wants messages from a number on; 0: none.
    fn want(&mut self, place: usize, to: usize, from: u64);
    /// The next number due.
    fn due(&self, place: usize, to: usize) -> Option<u64>;
    /// Takes the message that is due.
    ///
    /// # Errors
    /// What the disk says.
    fn take_due(&mut self, place: usize, to: usize) -> Result<Option<Frame>, Error>;
    /// The number that is wanted and gone.
    fn lost(&self, place: usize, to: usize) -> Option<u64>;
    /// The receiver will never want messages up to this number again.
    ///
    /// # Errors
    /// What the disk says.
    fn collect(&mut self, place: usize, to: usize, upto: u64) -> Result<(), Error>;
    /// Fingerprints of what is logged, with their numbers, oldest first.
    ///
    /// # Errors
    /// What the disk says.
    fn prints(&mut self, place: usize, to: usize) -> Result<Vec<(u64, Print)>, Error>;
    /// True if a message is forgotten when it leaves.
    fn forgets(&self) -> bool;
}

/// What a fingerprint counts of what its rank holds: the whole message, perhaps, however long. So it is told at once that
/// it need not.
const HELD_FOR_PRINT_BYTES: usize = 256 << 10;

/// Something to be done.
#[derive(Debug)]
pub enum Act {
    /// Say this to a rank of the group, by its place.
    Rank(usize, Frame),
    /// Say this to another group's relay, if it is connected.
    Group(usize, Frame),
    /// Make these records durable, then call [`Heart::safe`] with the number.
    Record(Vec<u8>, u64),
    /// Replace the file of records by this.
    Rewrite(Vec<u8>),
    /// Keep the marks on disk.
    Marks,
}

/// What a relay is told at its start about how to decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// A rank that wants what is lost, or does not repeat itself, waits for those who take it back, instead of being told.
    pub patient: bool,
    /// Differences of contents are accepted.
    pub deterministic: bool,
}

/// Countable things since the relay's start; of a long message each part counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Messages logged.
    pub messages: u64,
    /// Their bytes, with envelopes.
    pub bytes: u64,
    /// Messages given to ranks.
    pub delivered: u64,
    /// Their bytes, with envelopes.
    #[serde(default)]
    pub delivered_bytes: u64,
    /// Messages that arrived twice, or for a rank that is away or far behind, and were dropped.
    pub duplicates: u64,
    /// Messages that a rank sent again.
    pub repeated: u64,
    /// Of those sent again, the ones with other contents, which were accepted.
    pub accepted: u64,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has never joined, or is gone.
    Away,
    /// It is here, and owes outcomes up to a number.
    Here(u64),
    /// It does not repeat itself: nothing it says counts any more.
    Condemned,
    /// It has said goodbye.
    Finished,
}

/// One channel from a rank of this group.
#[derive(Debug, Default)]
struct Sending {
    /// Of what was logged here.
    prints: Prints,
    /// Of what the receiver has got: its relay tells it to one that knows nothing of it any more.
    theirs: Prints,
    /// Of what was sent again while nothing was known of the first time.
    unproven: BTreeMap<u64, Print>,
    /// What this relay has sent, or a relay before it has logged.
    peak: u64,
    /// What the receiver has beyond that: a relay before this one sent it, and left no log of it.
    has: u64,
    /// The receiver's relay has told, on this connection, how much it has.
    learnt: bool,
    /// Messages up to this number may leave.
    released: u64,
    queued: bool,
}

/// So many frames of a rank, of those that it holds until they are kept here, since it joined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Frames.
    pub frames: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

#[derive(Debug)]
struct Rank {
    place: Place,
    /// Messages of this reading, and of those before: they are not logged yet.
    young: Vec<Frame>,
    old: Vec<Frame>,
    /// What was taken in, what of it when this reading began, and what it need not hold any more.
    taken: Taken,
    before: Taken,
    kept: Taken,
    /// It waits for the answer to its goodbye.
    parting: bool,
    /// So much waits for it that what comes is dropped, and wanted again later.
    behind: bool,
    /// How far it was when it left for a dump.
    left: Option<Progress>,
    sending: Vec<Sending>,
    receiving: Vec<Incoming>,
    /// From each rank: what this one has got, until no checkpoint of the sender would send it again.
    got: Vec<Prints>,
    /// From each rank: where to go on when it is not behind any more.
    resume: Vec<Option<u64>>,
}

/// The state of one group's relay.
#[derive(Debug)]
pub struct Heart<L> {
    layout: Layout,
    group: usize,
    rules: Rules,
    /// The logs.
    pub log: L,
    /// The outcomes.
    pub outcomes: Outcomes,
    /// The marks.
    pub marks: Marks,
    /// What was counted.
    pub tally: Tally,
    /// Differences found since the start.
    pub differences: Vec<Difference>,
    /// What is wanted of this group and in no log: it must go back.
    pub losses: Vec<Loss>,
    /// Who has aborted the program, and with which code.
    pub aborted: Option<(u32, i32)>,
    ranks: Vec<Rank>,
    /// By group: channels with something due.
    ready: Vec<VecDeque<(usize, usize)>>,
    connected: Vec<bool>,
    /// The reading that is under way, and the newest that brought a message.
    reading: u64,
    newest: u64,
    /// What was logged, and waits for outcomes to be durable.
    waiting: VecDeque<readings::Batch>,
    acts: VecDeque<Act>,
}

impl<L: Log> Heart<L> {
    /// A relay of a group; `marks` and `outcomes` as they were kept.
    ///
    /// # Errors
    /// What the disk says of the log.
    pub fn new(
        layout: Layout,
        group: usize,
        rules: Rules,
        mut log: L,
        marks: Marks,
        outcomes: Outcomes,
    ) -> Result<Heart<L>, Error> {
        let (world, groups, durable) = (layout.world(), layout.groups(), outcomes.durable());
        let mut ranks = Vec::new();
        for place in 0..layout.ranks(group).len() {
            let mut rank = Rank {
                place: Place::Away,
                young: Vec::new(),
                old: Vec::new(),
                taken: Taken::default(),
                before: Taken::default(),
                kept: Taken::default(),
                parting: false,
                behind: false,
                left: None,
                sending: (0..world).map(|_| Sending::default()).collect(),
                receiving: vec![Incoming::new(); world],
                got: (0..world).map(|_| Prints::default()).collect(),
                resume: vec![None; world],
            };
            for to in 0..world {
                log.cut(place, to, |header| readings::is_beyond(header, durable))?;
            }
            for (to, end) in log.logged(place).into_iter().enumerate() {
                let prints = &mut rank.sending[to].prints;
                log.prints(place, to)?.into_iter().for_each(|(number, print)| prints.put(number, print));
                if prints.end() != end {
                    prints.begin_after(end);
                }
                (rank.sending[to].peak, rank.sending[to].released) = (end, end);
            }
            ranks.push(rank);
        }
        let ready = (0..groups).map(|_| VecDeque::new()).collect();
        let (tally, differences, losses, waiting, acts) = Default::default();
        Ok(Heart {
            rules,
            log,
            outcomes,
            marks,
            tally,
            differences,
            losses,
            aborted: None,
            ranks,
            ready,
            connected: vec![false; groups],
            reading: 1,
            newest: 0,
            waiting,
            acts,
            layout,
            group,
        })
    }

    /// Takes the next thing to be done.
    pub fn act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether a rank has joined and is here.
    pub fn is_here(&self, place: usize) -> bool {
        matches!(self.ranks[place].place, Place::Here(_))
    }

    /// Whether a rank has said goodbye.
    pub fn has_finished(&self, place: usize) -> bool {
        self.ranks[place].place == Place::Finished
    }

    fn rank_of(&self, place: usize) -> usize {
        self.layout.ranks(self.group)[place] as usize
    }

    /// World ranks of other groups.
    fn others(&self) -> impl Iterator<Item = (usize, usize)> + use<L> {
        let (layout, own) = (self.layout.clone(), self.group);
        (0..layout.world()).filter_map(move |rank| Some((rank, layout.group_of(rank).filter(|g| *g != own)?)))
    }

    /// A rank joins: it begins, comes back, or was restored.
    ///
    /// # Errors
    /// It does not fit, outcomes that it would have to repeat are lost, or what the disk says.
    pub fn join(&mut self, place: usize, progress: &Progress) -> Result<(), Error> {
        if !progress.fits(self.layout.world()) {
            return Err(Error::Garbage(format!("counters of other than {} ranks", self.layout.world())));
        }
        let Progress { outcomes, outcomes_held, .. } = *progress;
        let Some(repeat) = self.outcomes.join(place, outcomes, outcomes_held) else {
            return Err(Error::Lost(format!("outcomes of rank {} after {outcomes}", self.rank_of(place))));
        };
        if self.marks.joined(place, progress) {
            self.acts.push_back(Act::Marks);
        }
        self.ranks[place].left = None;
        self.ranks[place].behind = false;
        self.begin_anew(place);
        for (other, group) in self.others() {
            self.log.join(place, other, progress.held[other])?;
            let end = self.log.logged(place)[other];
            let sending = &mut self.ranks[place].sending[other];
            sending.released = sending.released.min(end);
            sending.prints.end_with(end);
            self.queue(place, other);
            self.tell_loss(place, other);
            let rank = &mut self.ranks[place];
            rank.resume[other] = None;
            rank.receiving[other].join(progress.arrived[other]);
            rank.got[other].cut(progress.arrived[other]);
            self.want(place, other, group);
        }
        self.ranks[place].place = Place::Here(outcomes);
        // What has not left it still holds.
        let known = self.ranks[place].sending.iter().map(|sending| sending.released).collect();
        let welcome = Welcome { known, outcomes: self.outcomes.end(place), repeat };
        let frame = Frame::json(Kind::Welcome, 0, &welcome)?;
        self.acts.push_back(Act::Rank(place, frame));
        if let Some((rank, code)) = self.aborted {
            self.acts.push_back(Act::Rank(place, abort(rank, code)));
        }
        Ok(())
    }

    fn want(&mut self, place: usize, from: usize, group: usize) {
        let number = self.ranks[place].receiving[from].want().unwrap_or(0);
        let frame = about(Kind::Want, from, self.rank_of(place), number);
        self.acts.push_back(Act::Group(group, frame));
    }

    /// A rank is gone; `progress` is how far it was, if it left for a dump.
    pub fn leave(&mut self, place: usize, progress: Option<Progress>) {
        let was_here = self.ranks[place].place != Place::Away;
        if self.ranks[place].place != Place::Finished {
            self.ranks[place].place = Place::Away;
        }
        self.ranks[place].left = progress.or(self.ranks[place].left.take());
        if was_here {
            self.stop_receiving(place);
        }
    }

    fn stop_receiving(&mut self, place: usize) {
        for (other, group) in self.others() {
            let rank = &mut self.ranks[place];
            rank.receiving[other].leave();
            rank.resume[other] = None;
            self.want(place, other, group);
        }
    }

    /// A rank says goodbye: it sends and receives nothing more. It is answered when all that it sent may leave.
    pub fn finish(&mut self, place: usize, progress: Progress) {
        self.ranks[place].place = Place::Finished;
        self.ranks[place].left = Some(progress);
        self.ranks[place].parting = true;
        self.newest = self.reading;
        self.stop_receiving(place);
    }

    /// Messages of a rank, in order.
    ///
    /// # Errors
    /// They are not in order.
    pub fn sent(&mut self, place: usize, messages: Vec<Frame>) -> Result<(), Error> {
        if !self.is_here(place) {
            return Ok(());
        }
        for frame in messages {
            self.take(place, frame.body.len());
            let (to, number) = (usize::from(frame.header.group), frame.header.number);
            if self.layout.group_of(to).is_none_or(|group| group == self.group) {
                return Err(Error::Garbage(format!("a message to rank {to}, which is no rank of another group")));
            }
            let print = Print::of_body(&frame.body, frame.header.rest);
            let print = print.ok_or_else(|| Error::Garbage(format!("a message of {} bytes", frame.body.len())))?;
            let end = self.ranks[place].sending[to].prints.end();
            if number <= end {
                self.compare(place, to, number, print);
                if !self.is_here(place) {
                    break;
                }
                continue;
            }
            if number != end + 1 {
                return Err(Error::Garbage(format!("message {number} to rank {to} after {end}")));
            }
            let sending = &self.ranks[place].sending[to];
            let theirs = sending.theirs.compare(number, print);
            if sending.has >= number || theirs != Compared::Unknown {
                // Its receiver has it already, from before this relay, and may have ended since: it is sent again.
                self.tally.repeated += 1;
                self.judge(place, to, number, print, theirs);
                if !self.is_here(place) {
                    break;
                }
            }
            self.tally.messages += 1;
            self.tally.bytes += frame.body.len() as u64;
            self.ranks[place].sending[to].prints.push(print);
            self.ranks[place].young.push(frame);
        }
        Ok(())
    }

    /// A rank sent a message again, and tells only its fingerprint.
    ///
    /// `is_compared`: the rank had told it before it left for a dump, so that the relay of then has compared it.
    pub fn sent_again(&mut self, place: usize, to: usize, number: u64, print: Print, is_compared: bool) {
        self.take(place, HELD_FOR_PRINT_BYTES);
        let is_of_others = self.layout.group_of(to).is_some_and(|group| group != self.group);
        if !self.is_here(place) || !is_of_others {
            return;
        }
        if !is_compared || self.known(place, to, number, print) != Compared::Unknown {
            self.compare(place, to, number, print);
        }
    }

    fn known(&self, place: usize, to: usize, number: u64, print: Print) -> Compared {
        let sending = &self.ranks[place].sending[to];
        match sending.prints.compare(number, print) {
            Compared::Unknown => sending.theirs.compare(number, print),
            what => what,
        }
    }

    fn compare(&mut self, place: usize, to: usize, number: u64, print: Print) {
        self.tally.repeated += 1;
        let what = self.known(place, to, number, print);
        self.judge(place, to, number, print, what);
    }

    /// Acts on how a message sent again compares with the one before.
    fn judge(&mut self, place: usize, to: usize, number: u64, print: Print, what: Compared) {
        let from = self.rank_of(place);
        let text = format!("message {number} from rank {from} to rank {to}");
        let error = match what {
            Compared::Same => return,
            Compared::Unknown => {
                self.ranks[place].sending[to].unproven.insert(number, print);
                return;
            }
            Compared::Contents if self.rules.deterministic => {
                self.tally.accepted += 1;
                return;
            }
            Compared::Contents => Error::Contents(text),
            Compared::Structure => Error::Structure(text),
        };
        self.differences.push(Difference { from, to, number, what });
        self.ranks[place].place = Place::Condemned;
        self.stop_receiving(place);
        if !self.rules.patient {
            self.acts.push_back(Act::Rank(place, trouble(&error)));
        }
    }

    /// A rank has seen something by chance.
    ///
    /// # Errors
    /// It is not its next outcome.
    pub fn record(&mut self, place: usize, number: u64, outcome: Outcome) -> Result<(), Error> {
        if !self.is_here(place) {
            return Ok(());
        }
        self.take(place, OUTCOME_BYTES);
        let end = self.outcomes.end(place);
        match self.outcomes.record(place, number, outcome) {
            true => Ok(()),
            false => Err(Error::Garbage(format!("outcome {number} after {end}"))),
        }
    }

    /// Notes that a channel may have something due.
    fn queue(&mut self, place: usize, to: usize) {
        let Some(group) = self.layout.group_of(to) else { return };
        let due = self.due(place, to).is_some();
        let sending = &mut self.ranks[place].sending[to];
        if due && !std::mem::replace(&mut sending.queued, true) {
            self.ready[group].push_back((place, to));
        }
    }

    fn due(&self, place: usize, to: usize) -> Option<u64> {
        self.log.due(place, to).filter(|due| *due <= self.ranks[place].sending[to].released)
    }

    /// Takes the next message that may leave for another group.
    pub fn next_for(&mut self, group: usize) -> Option<Frame> {
        while let Some((place, to)) = self.ready[group].pop_front() {
            self.ranks[place].sending[to].queued = false;
            if !self.connected[group] || self.due(place, to).is_none() {
                continue;
            }
            let taken = self.log.take_due(place, to);
            match taken {
                Ok(Some(mut frame)) => {
                    let sending = &mut self.ranks[place].sending[to];
                    sending.peak = sending.peak.max(frame.header.number);
                    (frame.header.group, frame.header.tag) = (self.rank_of(place) as u16, to as i32);
                    self.queue(place, to);
                    return Some(frame);
                }
                Ok(None) => {}
                Err(_) => {
                    let number = self.log.due(place, to).unwrap_or(0);
                    self.log.want(place, to, 0);
                    self.lose(place, to, number);
                }
            }
        }
        None
    }

    fn tell_loss(&mut self, place: usize, to: usize) {
        let from = self.rank_of(place);
        self.losses.retain(|loss| (loss.from, loss.to) != (from, to));
        if let Some(number) = self.log.lost(place, to) {
            self.lose(place, to, number);
        }
    }

    fn lose(&mut self, place: usize, to: usize, number: u64) {
        let from = self.rank_of(place);
        self.losses.push(Loss { from, to, number });
        let Some(group) = self.layout.group_of(to) else { return };
        self.acts.push_back(Act::Group(group, about(Kind::Lost, from, to, number)));
    }
}
