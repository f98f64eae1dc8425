//! A simulated node: its power, its service with its lease, its slurmd, and the programs of runs.

use protocol::Incarnation;
use std::collections::BTreeMap;
use watch::{Lease, Testimonies};

/// What a run's programs on a node do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Program {
    /// They run, and write.
    Running,
    /// They are stopped.
    Frozen,
}

/// One generation of a run: each start of its program is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation {
    /// The job's life.
    pub of: Incarnation,
    /// Counts starts of the run's program, in place or by requeue.
    pub number: u32,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    pub is_on: bool,
    pub boot: u32,
    /// From when its service is there again, s.
    pub service_from_s: f64,
    pub slurmd_is_up: bool,
    pub lease: Lease,
    pub witness: Testimonies,
    pub programs: BTreeMap<Generation, Program>,
    /// Somebody else's job that never asked for us.
    pub bystander: bool,
    /// When its service beats next, s.
    pub beats_s: f64,
}

impl Node {
    pub fn new(beats_s: f64) -> Node {
        Node {
            is_on: true,
            boot: 1,
            service_from_s: 0.0,
            slurmd_is_up: true,
            lease: Lease::default(),
            witness: Testimonies::default(),
            programs: BTreeMap::new(),
            bystander: false,
            beats_s,
        }
    }

    pub fn service_is_up(&self, now_s: f64) -> bool {
        self.is_on && now_s >= self.service_from_s
    }

    pub fn has_slurmd(&self) -> bool {
        self.is_on && self.slurmd_is_up
    }

    pub fn lose_power(&mut self) {
        self.is_on = false;
        self.programs.clear();
        (self.lease, self.witness) = (Lease::default(), Testimonies::default());
    }

    pub fn boot(&mut self, now_s: f64) {
        (self.is_on, self.slurmd_is_up) = (true, true);
        self.boot += 1;
        self.service_from_s = now_s + 0.5;
        self.beats_s = self.service_from_s;
    }

    /// Ends what there is of a job up to one of its lives.
    pub fn end(&mut self, of: Incarnation) {
        self.programs.retain(|g, _| g.of.job != of.job || g.of.restart_count > of.restart_count);
    }

    pub fn set(&mut self, of: Incarnation, program: Program) {
        self.programs.iter_mut().filter(|(g, _)| g.of == of).for_each(|(_, p)| *p = program);
    }
}
