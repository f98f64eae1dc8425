//! A rank's program, and its end of the connection, as a value that a checkpoint copies.
//!
//! In each round a rank sends to some ranks and receives as many messages as are sent to it, from any source, with a probe
//! now and then. What it sends depends on all that it has seen.

use mlog::frame::{Frame, Kind};
use mpi_relay::envelope::{ENVELOPE_BYTES, PREFIX_BYTES};
use mpi_relay::layout::Layout;
use mpi_relay::prints::Print;
use mpi_relay::words::{COMPARED, Progress, Welcome};
use mpi_relay::{Envelope, Outcome};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

pub fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 31)
}

/// What all ranks of a history share.
#[derive(Debug)]
pub struct Plan {
    pub layout: Layout,
    pub rounds: u32,
    pub seed: u64,
    /// Contents hang on a clock now and then.
    pub impure: bool,
}

impl Plan {
    pub fn sends(&self, round: u32, from: usize, to: usize) -> bool {
        from != to && !mix(self.seed, mix(u64::from(round), (from * 64 + to) as u64)).is_multiple_of(3)
    }

    fn expected(&self, round: u32, to: usize) -> usize {
        (0..self.layout.world()).filter(|from| self.sends(round, *from, to)).count()
    }
}

/// A message within or between groups: sender, round, contents.
pub type Letter = (usize, u32, u64);

#[derive(Clone, Debug)]
pub struct Rank {
    pub me: usize,
    pub group: usize,
    pub round: u32,
    next_to: usize,
    got: usize,
    probed: bool,
    state: u64,
    pub finished: bool,
    /// All that it sent to and got from each rank.
    pub sent_words: Vec<Vec<u64>>,
    pub got_words: Vec<Vec<u64>>,
    inbox: VecDeque<Letter>,
    // Its end of the connection.
    sent: Vec<u64>,
    arrived: Vec<u64>,
    known: Vec<u64>,
    unlogged: VecDeque<Frame>,
    /// Frames of which the relay has told on this connection that it keeps them.
    told: u64,
    outcomes: u64,
    repeat: VecDeque<Outcome>,
    /// Frames on the way to the relay; none while away.
    pub up: Option<Vec<Frame>>,
}

impl Rank {
    pub fn new(plan: &Plan, me: usize, group: usize) -> Rank {
        let world = plan.layout.world();
        Rank {
            me,
            group,
            round: 0,
            next_to: 0,
            got: 0,
            probed: false,
            state: mix(plan.seed, me as u64),
            finished: false,
            sent_words: vec![Vec::new(); world],
            got_words: vec![Vec::new(); world],
            inbox: VecDeque::new(),
            sent: vec![0; world],
            arrived: vec![0; world],
            known: vec![0; world],
            unlogged: VecDeque::new(),
            told: 0,
            outcomes: 0,
            repeat: VecDeque::new(),
            up: None,
        }
    }

    pub fn progress(&self) -> Progress {
        let (mut held, mut outcomes_held) = (self.sent.clone(), self.outcomes);
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

    pub fn joined(&mut self, welcome: Welcome) {
        for frame in &mut self.unlogged {
            let (kind, to, number) = (frame.header.kind, usize::from(frame.header.group), frame.header.number);
            if kind == Kind::Message && number <= welcome.known[to] {
                let print = Print::of_body(&frame.body, 0).expect("long enough");
                *frame = Frame::new(Kind::Again, to, 0, number, print.encode().to_vec());
            }
        }
        self.unlogged.retain(|frame| frame.header.kind != Kind::Record || frame.header.number > welcome.outcomes);
        (self.known, self.repeat) = (welcome.known, welcome.repeat.into());
        self.up = Some(self.unlogged.iter().cloned().collect());
        self.told = 0;
        if self.finished {
            self.push(Frame::number(Kind::Bye, 0));
        }
    }

    fn push(&mut self, frame: Frame) {
        self.up.iter_mut().for_each(|up| up.push(frame.clone()));
    }

    fn keep(&mut self, frame: Frame) {
        self.unlogged.push_back(frame.clone());
        self.push(frame);
    }

    /// All that it has said was taken in, before a checkpoint.
    pub fn has_left(&mut self) {
        let again = self.unlogged.iter_mut().filter(|frame| frame.header.kind == Kind::Again);
        again.for_each(|frame| frame.header.tag = COMPARED);
    }

    /// The relay keeps so many frames of this connection.
    pub fn kept(&mut self, frames: u64) {
        let count = usize::try_from(frames - self.told).expect("few");
        self.unlogged.drain(..count);
        self.told = frames;
    }

    /// A message has come from the relay. What is wrong, if anything.
    pub fn arrive(&mut self, frame: &Frame) -> Result<(), String> {
        let from = usize::from(frame.header.group);
        if frame.header.number != self.arrived[from] + 1 {
            return Err(format!("rank {} got {} of {from} after {}", self.me, frame.header.number, self.arrived[from]));
        }
        self.arrived[from] += 1;
        let envelope = Envelope::decode(&frame.body).map_err(|e| e.to_string())?;
        let word = frame.body[PREFIX_BYTES..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        crate::world::trace(|| format!("{} gets {} of {from}: {word}", self.me, frame.header.number));
        self.inbox.push_back((from, envelope.tag as u32, word));
        Ok(())
    }

    /// A message of the group's own MPI.
    pub fn take_native(&mut self, letter: Letter) {
        self.inbox.push_back(letter);
    }

    fn send(&mut self, to: usize, word: u64) {
        self.sent[to] += 1;
        let number = self.sent[to];
        crate::world::trace(|| format!("{} sends {number} to {to}: {word}, known {}", self.me, self.known[to]));
        let envelope = Envelope { source: self.me as u32, tag: self.round as i32, ..Envelope::default() };
        let mut body = vec![0; PREFIX_BYTES + 8];
        body[..ENVELOPE_BYTES].copy_from_slice(&envelope.encode());
        body[ENVELOPE_BYTES..PREFIX_BYTES].copy_from_slice(&word.to_le_bytes());
        body[PREFIX_BYTES..].copy_from_slice(&word.to_le_bytes());
        if number <= self.known[to] {
            let print = Print::of_body(&body, 0).expect("long enough");
            self.keep(Frame::new(Kind::Again, to, 0, number, print.encode().to_vec()));
        } else {
            self.keep(Frame::new(Kind::Message, to, 0, number, body));
        }
    }

    /// What happened by chance; the same as before after a restore.
    fn chance(&mut self, call: u32, seen: i64) -> i64 {
        if let Some(outcome) = self.repeat.pop_front() {
            self.outcomes += 1;
            return outcome.value;
        }
        self.outcomes += 1;
        let outcome = Outcome { call, value: seen, count: 1 };
        self.keep(Frame::new(Kind::Record, 0, 0, self.outcomes, outcome.encode().to_vec()));
        seen
    }

    /// One step; a message to another rank of the group, if it sent one.
    pub fn step(&mut self, plan: &Plan, random: &mut ChaCha8Rng) -> Option<(usize, Letter)> {
        if self.finished {
            return None;
        }
        if self.round == plan.rounds {
            self.finished = true;
            self.push(Frame::number(Kind::Bye, 0));
            return None;
        }
        while self.next_to < plan.layout.world() {
            let to = self.next_to;
            self.next_to += 1;
            if !plan.sends(self.round, self.me, to) {
                continue;
            }
            let clock = if plan.impure && random.random_ratio(1, 8) { random.random() } else { 0 };
            let word = mix(self.state, to as u64 ^ clock);
            self.sent_words[to].push(word);
            if plan.layout.group_of(to) == Some(self.group) {
                return Some((to, (self.me, self.round, word)));
            }
            self.send(to, word);
            return None;
        }
        // Outcomes are recorded only at the relay.
        self.up.as_ref()?;
        if !self.probed {
            self.probed = true;
            let seen = self.inbox.iter().filter(|(_, round, _)| *round == self.round).count();
            let seen = self.chance(1, seen as i64);
            self.state = mix(self.state, seen as u64);
            return None;
        }
        if self.got < plan.expected(self.round, self.me) {
            self.receive(random);
            return None;
        }
        (self.round, self.next_to, self.got, self.probed) = (self.round + 1, 0, 0, false);
        None
    }

    fn receive(&mut self, random: &mut ChaCha8Rng) {
        let source = match self.repeat.front() {
            Some(outcome) => outcome.value as usize,
            None => {
                let there: Vec<usize> =
                    self.inbox.iter().filter(|(_, round, _)| *round == self.round).map(|(from, ..)| *from).collect();
                match there.len() {
                    0 => return,
                    count => there[random.random_range(0..count)],
                }
            }
        };
        let fits = |(from, round, _): &Letter| *from == source && *round == self.round;
        let Some(index) = self.inbox.iter().position(fits) else { return };
        let (from, _, word) = self.inbox.remove(index).expect("there");
        self.chance(2, from as i64);
        self.got += 1;
        self.got_words[from].push(word);
        self.state = mix(self.state, mix(from as u64, word));
    }
}
