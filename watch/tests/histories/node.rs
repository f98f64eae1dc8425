//! A simulated node: its power, its service with its lease, its slurmd, and the programs of runs.

use protocol::Incarnation;
use std::collections::BTreeMap;
use watch::{Lease, Testimonies};

/// How long a node without anything protected rests, s.
pub const REST_S: f64 = 10.0;

/// Longest time that a controller takes to answer whom a program has ended the rest of, s.
const SEES_AFTER_S: f64 = 2.0;

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
    /// When its service looks next whether it has to beat, s.
    pub looks_s: f64,
    /// Until when it rests unless something protected begins, s.
    pub rests_until_s: f64,
    /// From when its lease knows of what began while it rested, s: the controller is asked first.
    pub sees_from_s: f64,
}

impl Node {
    pub fn new(looks_s: f64) -> Node {
        Node {
            is_on: true,
            boot: 1,
            service_from_s: 0.0,
            slurmd_is_up: true,
            lease: Lease::default(),
            witness: Testimonies::default(),
            programs: BTreeMap::new(),
            bystander: false,
            looks_s,
            rests_until_s: 0.0,
            sees_from_s: 0.0,
        }
    }

    /// Whether a protected program is here, or was when the lease was looked at.
    pub fn is_needed(&self) -> bool {
        !self.programs.is_empty() || self.lease.held().next().is_some()
    }

    /// Looks whether it is time to beat; the pause that the heartbeat announces, s.
    pub fn beats(&mut self, now_s: f64) -> Option<f64> {
        if now_s < self.looks_s {
            return None;
        }
        self.looks_s = now_s + 1.0;
        let was_resting = now_s < self.rests_until_s;
        if was_resting && !self.is_needed() {
            return None;
        }
        if was_resting {
            (self.rests_until_s, self.sees_from_s) = (0.0, now_s + SEES_AFTER_S);
        }
        if now_s >= self.sees_from_s {
            self.lease.seen(&self.programs.keys().map(|g| g.of).collect());
        }
        Some(if self.is_needed() { 0.0 } else { REST_S })
    }

    /// The controller asks for a heartbeat now.
    pub fn wake(&mut self, now_s: f64) {
        (self.looks_s, self.rests_until_s) = (now_s, 0.0);
    }

    /// The controller has answered a heartbeat that announced a pause.
    pub fn may_rest(&mut self, sent_s: f64, pause_s: f64) {
        if pause_s > 0.0 && !self.is_needed() {
            self.lease.rest(pause_s);
            self.rests_until_s = sent_s + pause_s;
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
        (self.looks_s, self.rests_until_s, self.sees_from_s) = (self.service_from_s, 0.0, 0.0);
    }

    /// Ends what there is of a job up to one of its lives.
    pub fn end(&mut self, of: Incarnation) {
        self.programs.retain(|g, _| g.of.job != of.job || g.of.restart_count > of.restart_count);
    }

    pub fn set(&mut self, of: Incarnation, program: Program) {
        self.programs.iter_mut().filter(|(g, _)| g.of == of).for_each(|(_, p)| *p = program);
    }
}
