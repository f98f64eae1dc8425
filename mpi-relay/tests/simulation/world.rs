//! Groups with their ranks and relays, and what is under way between them; one random happening after the other.

use crate::log::PlainLog;
use crate::program::{Plan, Rank, mix};
use mlog::frame::{Frame, Kind};
use mpi_relay::heart::{Act, Heart, Rules};
use mpi_relay::layout::Layout;
use mpi_relay::marks::Marks;
use mpi_relay::outcomes::Outcomes;
use mpi_relay::prints::Print;
use mpi_relay::words::{COMPARED, Welcome};
use mpi_relay::{Error, Outcome};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// Happenings after which a history waits without end.
const PATIENCE: u64 = 400_000;

/// Tells what happens, with `TRACE` set.
pub fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("TRACE").is_some() {
        println!("{}", text());
    }
}

/// What happened in histories.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub kills: u64,
    pub relays: u64,
    pub nodes: u64,
    pub checkpoints: u64,
    pub lines: u64,
    pub backs: u64,
    pub all_back: u64,
    pub replayed: u64,
    pub outcomes: u64,
    pub differences: u64,
    pub unproven: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.kills += other.kills;
        self.relays += other.relays;
        self.nodes += other.nodes;
        self.checkpoints += other.checkpoints;
        self.lines += other.lines;
        self.backs += other.backs;
        self.all_back += other.all_back;
        self.replayed += other.replayed;
        self.outcomes += other.outcomes;
        self.differences += other.differences;
        self.unproven += other.unproven;
    }
}

/// One group: its ranks, its relay, and what is on its way between them.
pub struct Group {
    pub ranks: Vec<Rank>,
    pub alive: bool,
    /// Its ranks have left for a checkpoint, or wait for a relay.
    pub heart: Option<Heart<PlainLog>>,
    pub down: Vec<VecDeque<Frame>>,
    /// Records in the file, and batches that are being written.
    pub file: Vec<u8>,
    pub writing: VecDeque<Act>,
    /// A reading: the next rank, and how much each had said at its beginning.
    reading: Option<(usize, Vec<usize>)>,
}

pub struct World {
    pub plan: Plan,
    pub random: ChaCha8Rng,
    pub groups: Vec<Group>,
    /// From, to: what is on its way; none while not connected.
    pub pipes: Vec<Vec<Option<VecDeque<Frame>>>>,
    pub driver: crate::driver::Driver,
    pub seen: Seen,
    /// The log is on disk and outlives a relay.
    pub disk: bool,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let text = ["0/1", "0-1/2", "0-1/2-3", "0/1/2", "0-1/2/3"][random.random_range(0..5)];
        let layout = Layout::parse(text).expect("a layout");
        let impure = random.random_ratio(1, 4);
        let plan = Plan { layout, rounds: random.random_range(3..9), seed: mix(seed, 1), impure };
        let count = plan.layout.groups();
        let groups: Vec<Group> = (0..count).map(|g| Group::new(&plan, g)).collect();
        let driver = crate::driver::Driver::new(&groups, &mut random);
        let pipes = vec![vec![None; count]; count];
        let disk = random.random();
        World { plan, random, groups, pipes, driver, seen: Seen::default(), disk }
    }

    /// Runs to the end. What is wrong, if anything.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            self.happen()?;
            self.drive()?;
            if self.is_over() {
                return self.judge();
            }
        }
        let rounds: Vec<_> = self.groups.iter().flat_map(|g| &g.ranks).map(|r| (r.me, r.round, r.finished)).collect();
        Err(format!("it waits without end: {rounds:?}, {:?}", self.driver))
    }

    /// Whether all have ended, and nothing that was sent again may be other than before.
    fn is_over(&mut self) -> bool {
        let ranks =
            |g: &Group| g.alive && g.ranks.iter().all(|r| r.finished && r.up.as_ref().is_some_and(Vec::is_empty));
        let quiet = self.groups.iter().all(|g| ranks(g) && g.heart.is_some() && g.reading.is_none());
        quiet
            && self.pipes.iter().enumerate().all(|(a, row)| {
                row.iter().enumerate().all(|(b, pipe)| a == b || pipe.as_ref().is_some_and(VecDeque::is_empty))
            })
            && self.vouched()
    }

    /// Every message that was received is the one that its sender sends in the history that was kept.
    fn judge(&self) -> Result<(), String> {
        let ranks: Vec<&Rank> = self.groups.iter().flat_map(|g| &g.ranks).collect();
        for from in &ranks {
            for to in &ranks {
                let (sent, got) = (&from.sent_words[to.me], &to.got_words[from.me]);
                if sent != got {
                    return Err(format!("a wrong result: {} sent {sent:?} and {} got {got:?}", from.me, to.me));
                }
            }
        }
        Ok(())
    }

    fn happen(&mut self) -> Result<(), String> {
        let group = self.random.random_range(0..self.groups.len());
        match self.random.random_range(0..12) {
            0..4 => self.step(group),
            4..6 => return self.read(group),
            6 => self.write(group),
            7..9 => self.give(group)?,
            9..11 => return self.carry(group),
            _ => self.connect(group),
        }
        Ok(())
    }

    fn step(&mut self, group: usize) {
        let one = &mut self.groups[group];
        if !one.alive {
            return;
        }
        let place = self.random.random_range(0..one.ranks.len());
        if one.ranks[place].up.is_none() && self.random.random_ratio(1, 3) {
            return self.join(group, place);
        }
        if let Some((to, letter)) = one.ranks[place].step(&self.plan, &mut self.random) {
            let place = self.plan.layout.place_in(group, to).expect("of this group");
            one.ranks[place].take_native(letter);
        }
    }

    fn join(&mut self, group: usize, place: usize) {
        let one = &mut self.groups[group];
        let Some(heart) = &mut one.heart else { return };
        one.down[place].clear();
        trace(|| format!("join {group} {place} {:?}", one.ranks[place].progress()));
        match heart.join(place, &one.ranks[place].progress()) {
            Ok(()) => {
                let mut acts: Vec<Act> = std::iter::from_fn(|| heart.act()).collect();
                let is_welcome = |act: &Act| matches!(act, Act::Rank(_, f) if f.header.kind == Kind::Welcome);
                let index = acts.iter().position(is_welcome).expect("a welcome");
                let Act::Rank(_, frame) = acts.remove(index) else { unreachable!("found as one") };
                let welcome: Welcome = frame.parse().expect("a welcome");
                self.seen.outcomes += welcome.repeat.len() as u64;
                one.ranks[place].joined(welcome);
                self.act(group, acts);
            }
            Err(Error::Lost(_)) => self.driver.outcomes_lost = true,
            Err(e) => panic!("{e}"),
        }
    }

    /// Goes on with a reading of all ranks, one after the other while they go on talking.
    fn read(&mut self, group: usize) -> Result<(), String> {
        let one = &mut self.groups[group];
        let Some(heart) = &mut one.heart else { return Ok(()) };
        let lengths = || one.ranks.iter().map(|r| r.up.as_ref().map_or(0, Vec::len)).collect();
        let (place, begun) = one.reading.take().unwrap_or_else(|| (0, lengths()));
        if place == one.ranks.len() {
            heart.read_all();
        } else {
            let rank = &mut one.ranks[place];
            let there = rank.up.as_ref().map_or(0, Vec::len);
            let count = self.random.random_range(begun[place].min(there)..=there);
            let frames: Vec<Frame> = rank.up.iter_mut().flat_map(|up| up.drain(..count)).collect();
            one.reading = Some((place + 1, begun));
            take(heart, place, rank, frames)?;
        }
        self.do_acts(group);
        Ok(())
    }

    pub fn do_acts(&mut self, group: usize) {
        let Some(heart) = &mut self.groups[group].heart else { return };
        let acts = std::iter::from_fn(|| heart.act()).collect();
        self.act(group, acts);
    }

    fn act(&mut self, group: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Rank(place, frame) => self.groups[group].down[place].push_back(frame),
                Act::Group(to, frame) => self.pipes[group][to].iter_mut().for_each(|p| p.push_back(frame.clone())),
                Act::Record(..) | Act::Rewrite(_) => self.groups[group].writing.push_back(act),
                Act::Marks => {}
            }
        }
    }

    /// A batch of outcomes is safe.
    fn write(&mut self, group: usize) {
        let one = &mut self.groups[group];
        let safe = match one.writing.pop_front() {
            Some(Act::Record(bytes, count)) => {
                one.file.extend(bytes);
                count
            }
            Some(Act::Rewrite(bytes)) => {
                one.file = bytes;
                0
            }
            _ => return,
        };
        one.heart.iter_mut().for_each(|heart| heart.safe(safe));
        self.do_acts(group);
    }

    /// A rank takes in what its relay has for it.
    fn give(&mut self, group: usize) -> Result<(), String> {
        let one = &mut self.groups[group];
        for (place, rank) in one.ranks.iter_mut().enumerate() {
            if rank.up.is_none() || !one.alive {
                one.down[place].clear();
                continue;
            }
            if let Some(heart) = &one.heart {
                rank.kept(heart.kept(place).frames);
            }
            if let Some(frame) = one.down[place].pop_front()
                && frame.header.kind == Kind::Message
            {
                rank.arrive(&frame)?;
            }
        }
        Ok(())
    }

    /// Something leaves for another group, or arrives there.
    fn carry(&mut self, from: usize) -> Result<(), String> {
        let to = self.random.random_range(0..self.groups.len());
        if let (Some(pipe), Some(heart)) = (&mut self.pipes[from][to], &mut self.groups[from].heart)
            && let Some(frame) = heart.next_for(to)
        {
            pipe.push_back(frame);
        }
        self.do_acts(from);
        for _ in 0..self.random.random_range(0..4) {
            let Some(frame) = self.pipes[from][to].as_mut().and_then(VecDeque::pop_front) else { break };
            let Some(heart) = &mut self.groups[to].heart else { return Ok(()) };
            trace(|| format!("{from} to {to}: {:?}", frame.header));
            heart.heard(from, frame).map_err(|e| format!("group {to} heard of {from}: {e}"))?;
            let behind = self.random.random_ratio(1, 6);
            let place = self.random.random_range(0..self.groups[to].ranks.len());
            if let Some(heart) = &mut self.groups[to].heart {
                heart.set_behind(place, behind);
            }
            self.do_acts(to);
        }
        let places = self.groups[to].ranks.len();
        if let Some(heart) = &mut self.groups[to].heart {
            (0..places).for_each(|place| heart.set_behind(place, false));
        }
        self.do_acts(to);
        Ok(())
    }

    fn connect(&mut self, from: usize) {
        let to = self.random.random_range(0..self.groups.len());
        let both = self.groups[from].heart.is_some() && self.groups[to].heart.is_some();
        if from == to || !both {
            return;
        }
        if self.pipes[from][to].is_some() {
            if self.random.random_ratio(1, 40) {
                self.part(from, to);
            }
            return;
        }
        (self.pipes[from][to], self.pipes[to][from]) = (Some(VecDeque::new()), Some(VecDeque::new()));
        for (one, other) in [(from, to), (to, from)] {
            self.groups[one].heart.iter_mut().for_each(|heart| heart.connected(other));
            self.do_acts(one);
        }
    }

    pub fn part(&mut self, from: usize, to: usize) {
        (self.pipes[from][to], self.pipes[to][from]) = (None, None);
        for (one, other) in [(from, to), (to, from)] {
            self.groups[one].heart.iter_mut().for_each(|heart| heart.parted(other));
            self.do_acts(one);
        }
    }

    /// A relay with what another one left.
    pub fn open(&mut self, group: usize, log: PlainLog, marks: Marks) {
        let one = &mut self.groups[group];
        let mut outcomes = Outcomes::new(one.ranks.len());
        outcomes.restore(&one.file);
        let rules = Rules { patient: true, deterministic: false };
        let heart = Heart::new(self.plan.layout.clone(), group, rules, log, marks, outcomes);
        one.heart = Some(heart.expect("a log in memory"));
        one.reading = None;
        one.writing.clear();
    }
}

impl Group {
    fn new(plan: &Plan, group: usize) -> Group {
        let ranks: Vec<Rank> =
            plan.layout.ranks(group).iter().map(|rank| Rank::new(plan, *rank as usize, group)).collect();
        let down = ranks.iter().map(|_| VecDeque::new()).collect();
        Group { ranks, alive: true, heart: None, down, file: Vec::new(), writing: VecDeque::new(), reading: None }
    }

    /// Takes in all that a rank has said, as a relay does before it leaves for a dump.
    pub fn take_last_words(&mut self) -> Result<(), String> {
        let Some(heart) = &mut self.heart else { return Ok(()) };
        for (place, rank) in self.ranks.iter_mut().enumerate() {
            let rank_was_up = rank.up.is_some();
            let frames = rank.up.take().unwrap_or_default();
            let here = !frames.is_empty() || heart.is_here(place) || heart.has_finished(place);
            take(heart, place, rank, frames)?;
            if rank_was_up {
                rank.has_left();
            }
            heart.leave(place, here.then(|| rank.progress()));
        }
        self.reading = None;
        Ok(())
    }
}

/// Frames of a rank, as its relay obeys them.
fn take(heart: &mut Heart<PlainLog>, place: usize, rank: &mut Rank, frames: Vec<Frame>) -> Result<(), String> {
    for frame in frames {
        let header = frame.header;
        let done = match header.kind {
            Kind::Message => heart.sent(place, vec![frame]),
            Kind::Again => {
                let print = Print::decode(&frame.body).ok_or("no print")?;
                heart.sent_again(place, usize::from(header.group), header.number, print, header.tag == COMPARED);
                Ok(())
            }
            Kind::Record => heart.record(place, header.number, Outcome::decode(&frame.body).ok_or("no outcome")?),
            Kind::Bye => {
                heart.finish(place, rank.progress());
                Ok(())
            }
            kind => return Err(format!("{kind:?}")),
        };
        done.map_err(|e| format!("rank {}: {e}", rank.me))?;
    }
    Ok(())
}
