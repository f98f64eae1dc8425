//! What a job's driver does: checkpoints and lines, failures and what becomes of them, and what relays' findings call for.

use crate::log::PlainLog;
use crate::program::Rank;
use crate::world::{Group, World};
use mpi_relay::decide::{Decision, Why, decide, is_line, vouch};
use mpi_relay::marks::Marks;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A checkpoint of a group: number, ranks.
type Image = (u64, Vec<Rank>);

/// Whether a checkpoint will do.
type Accepts<'a> = &'a dyn Fn(&[Rank]) -> bool;

/// A checkpoint of all groups, with logs, marks and outcomes.
struct Line {
    number: u64,
    groups: Vec<(Vec<Rank>, PlainLog, Marks, Vec<u8>)>,
}

pub struct Driver {
    images: Vec<Vec<Image>>,
    /// Checkpoints that are made and not yet safe.
    pending: Vec<Option<Image>>,
    marks: Vec<Marks>,
    line: Option<Line>,
    next: u64,
    failures: u32,
    /// All groups go back together from now on.
    coordinated: bool,
    pub outcomes_lost: bool,
    /// What relays that ended left on disk.
    disks: Vec<Option<PlainLog>>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "failures left {}, coordinated {}, next {}", self.failures, self.coordinated, self.next)
    }
}

impl Driver {
    pub fn new(groups: &[Group], random: &mut ChaCha8Rng) -> Driver {
        Driver {
            images: groups.iter().map(|g| vec![(0, g.ranks.clone())]).collect(),
            pending: groups.iter().map(|_| None).collect(),
            marks: groups.iter().map(|_| Marks::new(1)).collect(),
            line: None,
            next: 1,
            failures: random.random_range(1..6),
            coordinated: false,
            outcomes_lost: false,
            disks: groups.iter().map(|_| None).collect(),
        }
    }
}

impl World {
    /// One look of the driver.
    pub fn drive(&mut self) -> Result<(), String> {
        for group in 0..self.groups.len() {
            if self.groups[group].heart.is_none() && self.random.random_ratio(1, 20) {
                self.start_relay(group);
            }
            if !self.groups[group].alive && self.random.random_ratio(1, 30) {
                self.restore(group, None);
            }
        }
        self.repair()?;
        if self.random.random_ratio(1, 150) {
            let group = self.random.random_range(0..self.groups.len());
            self.checkpoint(group)?;
        }
        if self.random.random_ratio(1, 60) {
            let group = self.random.random_range(0..self.groups.len());
            self.commit(group);
        }
        if self.random.random_ratio(1, 1000) {
            self.draw_line()?;
        }
        if self.driver.failures > 0 && self.random.random_ratio(1, 250) {
            self.driver.failures -= 1;
            self.fail();
        }
        Ok(())
    }

    fn start_relay(&mut self, group: usize) {
        crate::world::trace(|| format!("start_relay {}", group));
        let log = PlainLog::new(self.groups[group].ranks.len(), self.plan.layout.world());
        let log = self.driver.disk_of(group).unwrap_or(log);
        let marks = self.driver.marks[group].clone();
        self.open(group, log, marks);
    }

    fn fail(&mut self) {
        let group = self.random.random_range(0..self.groups.len());
        match self.random.random_range(0..4) {
            0 => self.kill_ranks(group),
            1 => self.kill_relay(group),
            2 => self.kill_node(group),
            _ => (0..self.groups.len()).for_each(|group| {
                if self.random.random() {
                    self.kill_node(group);
                }
            }),
        }
    }

    fn kill_ranks(&mut self, group: usize) {
        crate::world::trace(|| format!("kill_ranks {}", group));
        self.seen.kills += 1;
        let one = &mut self.groups[group];
        one.alive = false;
        for (place, rank) in one.ranks.iter_mut().enumerate() {
            rank.up = None;
            one.heart.iter_mut().for_each(|heart| heart.leave(place, None));
        }
        self.do_acts(group);
        if self.driver.coordinated {
            self.all_back();
        }
    }

    /// The relay ends. What it had given to be written may be written, in part.
    fn kill_relay(&mut self, group: usize) {
        crate::world::trace(|| format!("kill_relay {}", group));
        self.seen.relays += 1;
        self.stop_relay(group);
    }

    fn stop_relay(&mut self, group: usize) {
        (0..self.groups.len()).filter(|g| *g != group).for_each(|other| self.part(group, other));
        let one = &mut self.groups[group];
        if let Some(mut heart) = one.heart.take() {
            self.driver.marks[group] = heart.marks.clone();
            if self.disk {
                self.driver.disks[group] = Some(heart.log.copy());
            }
        }
        one.ranks.iter_mut().for_each(|rank| rank.up = None);
        one.writing.clear();
    }

    fn kill_node(&mut self, group: usize) {
        crate::world::trace(|| format!("kill_node {}", group));
        self.seen.nodes += 1;
        self.stop_relay(group);
        self.groups[group].alive = false;
        if self.driver.coordinated {
            self.all_back();
        }
    }

    /// A group's ranks start from a checkpoint: the newest that is safe, or one that the test accepts, or the beginning.
    fn restore(&mut self, group: usize, before: Option<Accepts<'_>>) {
        let images = &mut self.driver.images[group];
        while images.len() > 1 && images.last().is_some_and(|(_, ranks)| before.is_some_and(|fits| !fits(ranks))) {
            images.pop();
        }
        crate::world::trace(|| format!("restore {group} to {}", images.last().expect("one").0));
        let (_, ranks) = images.last().expect("the beginning").clone();
        self.driver.pending[group] = None;
        let one = &mut self.groups[group];
        (one.ranks, one.alive) = (ranks, true);
        self.seen.replayed += 1;
    }

    /// A checkpoint of one group: its ranks leave, are copied, and come again.
    fn checkpoint(&mut self, group: usize) -> Result<(), String> {
        let one = &mut self.groups[group];
        let all_here = one.ranks.iter().all(|rank| rank.up.is_some());
        let Some(heart) = &one.heart else { return Ok(()) };
        let well = heart.differences.is_empty() && heart.losses.is_empty();
        if !one.alive || !all_here || !well || self.driver.pending[group].is_some() || self.driver.coordinated {
            return Ok(());
        }
        one.take_last_words()?;
        let number = self.driver.next;
        self.driver.next += 1;
        if let Some(heart) = &mut one.heart
            && heart.differences.is_empty()
            && heart.mark(number)
        {
            crate::world::trace(|| format!("checkpoint {number} of {group}"));
            self.driver.pending[group] = Some((number, one.ranks.clone()));
            self.seen.checkpoints += 1;
        }
        self.do_acts(group);
        Ok(())
    }

    fn commit(&mut self, group: usize) {
        let Some(heart) = &mut self.groups[group].heart else { return };
        let Some((number, ranks)) = self.driver.pending[group].take() else { return };
        if heart.commit(number) {
            crate::world::trace(|| format!("commit {number} of {group}"));
            let images = &mut self.driver.images[group];
            images.truncate(1);
            images.push((number, ranks));
        }
        self.do_acts(group);
    }

    /// A checkpoint of all groups at once.
    fn draw_line(&mut self) -> Result<(), String> {
        let well = |g: &Group| {
            let found = g.heart.as_ref().map(|h| h.differences.is_empty() && h.losses.is_empty());
            g.alive && found == Some(true) && g.ranks.iter().all(|rank| rank.up.is_some())
        };
        if !self.groups.iter().all(well) {
            return Ok(());
        }
        let number = self.driver.next;
        self.driver.next += 1;
        let mut marks = Vec::new();
        for one in &mut self.groups {
            one.take_last_words()?;
            let heart = one.heart.as_mut().expect("well");
            if heart.mark(number) {
                marks.push(heart.marks.get(number).expect("marked").clone());
            }
        }
        let marks: Vec<&[_]> = marks.iter().map(Vec::as_slice).collect();
        if !is_line(&self.plan.layout, &marks) {
            (0..self.groups.len()).for_each(|group| self.do_acts(group));
            return Ok(());
        }
        let mut groups = Vec::new();
        for one in &mut self.groups {
            let heart = one.heart.as_mut().expect("well");
            groups.push((one.ranks.clone(), heart.log.copy(), heart.marks.clone(), heart.outcomes.encode()));
        }
        self.driver.line = Some(Line { number, groups });
        self.seen.lines += 1;
        (0..self.groups.len()).for_each(|group| self.do_acts(group));
        Ok(())
    }

    fn all_back(&mut self) {
        crate::world::trace(|| format!("all_back {}", 0));
        self.seen.all_back += 1;
        self.driver.coordinated = true;
        self.driver.outcomes_lost = false;
        (0..self.groups.len()).for_each(|group| self.stop_relay(group));
        for group in 0..self.groups.len() {
            let (ranks, log, marks, file) = match &mut self.driver.line {
                Some(line) => {
                    let (ranks, log, marks, file) = &mut line.groups[group];
                    (ranks.clone(), log.copy(), marks.clone(), file.clone())
                }
                None => {
                    let ranks = self.driver.images[group][0].1.clone();
                    let log = PlainLog::new(ranks.len(), self.plan.layout.world());
                    (ranks, log, Marks::new(1), Vec::new())
                }
            };
            self.driver.images[group].truncate(1);
            self.driver.pending[group] = None;
            let one = &mut self.groups[group];
            (one.ranks, one.alive, one.file) = (ranks, true, file);
            one.down.iter_mut().for_each(|down| down.clear());
            self.open(group, log, marks);
        }
    }

    /// Carries out what the relays' findings call for.
    fn repair(&mut self) -> Result<(), String> {
        let hearts = || self.groups.iter().filter_map(|g| g.heart.as_ref());
        let differences: Vec<_> = hearts().flat_map(|h| h.differences.clone()).collect();
        let losses: Vec<_> = hearts().flat_map(|h| h.losses.clone()).collect();
        let line = self.driver.line.as_ref().map(|line| line.number);
        let decision = match (self.driver.outcomes_lost, self.driver.coordinated) {
            (true, _) => Decision::AllBack { line, why: Why::Outcomes },
            (false, true) if !losses.is_empty() => Decision::AllBack { line, why: Why::Outcomes },
            _ => decide(&self.plan.layout, &differences, &losses, line),
        };
        match decision {
            Decision::GoOn => {}
            Decision::AllBack { why, .. } => {
                crate::world::trace(|| format!("all must go back: {why:?}, lost {losses:?}"));
                if let Why::Difference(difference) = why {
                    if !self.plan.impure {
                        return Err(format!("a program that repeats itself is said to differ: {difference:?}"));
                    }
                    self.seen.differences += 1;
                }
                self.all_back();
            }
            Decision::Back(groups) => {
                for group in groups {
                    if !self.groups[group].alive {
                        continue;
                    }
                    let wanted = losses.iter().filter(|l| self.plan.layout.group_of(l.from) == Some(group));
                    let wanted: Vec<_> = wanted.cloned().collect();
                    self.kill_ranks(group);
                    let sent_before = |ranks: &[Rank]| {
                        wanted.iter().all(|loss| {
                            ranks.iter().all(|r| r.me != loss.from || r.progress().held[loss.to] < loss.number)
                        })
                    };
                    self.seen.backs += 1;
                    self.restore(group, Some(&sent_before));
                }
            }
        }
        Ok(())
    }

    /// At the end: nothing that was sent again is unproved, or all go back.
    pub fn vouched(&mut self) -> bool {
        let uncompared = self.groups.iter().filter_map(|g| g.heart.as_ref()).map(|h| h.uncompared()).sum();
        let found = self.groups.iter().filter_map(|g| g.heart.as_ref());
        if found.clone().any(|h| !h.differences.is_empty() || !h.losses.is_empty()) {
            return false;
        }
        match vouch(uncompared, None, false) {
            Decision::GoOn => true,
            _ => {
                self.seen.unproven += 1;
                self.all_back();
                false
            }
        }
    }
}

impl Driver {
    fn disk_of(&mut self, group: usize) -> Option<PlainLog> {
        self.disks[group].take()
    }
}
