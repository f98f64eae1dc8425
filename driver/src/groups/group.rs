//! One group: its nodes, its account, its checkpoints and its shares in the script's calls.

use super::pace::Pace;
use crate::adapt::Adaptation;
use crate::ledger::{Ledger, Used};
use crate::setup::Setup;
use protocol::{Manifest, Phase, Plan};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How a group's share of a call is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// It runs.
    Runs,
    /// It does not run, and is to be started (again); the exit code, if it ran before.
    Down(Option<i32>),
    /// It has ended for good.
    Ended(i32),
}

/// How a group is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// It works, or has nothing to do.
    Well,
    /// A share of it ended badly: a dead node, or the program itself?
    Doubtful {
        /// Since when.
        since_s: f64,
    },
    /// It failed; what is left of it is being ended.
    Stopping,
    /// It failed, and lacks a node.
    Short,
    /// It waits for another group, and is being dumped.
    Parking,
    /// It is an image; what ran of it is being ended, or has ended.
    Parked,
}

/// A checkpoint on its way.
pub struct Making {
    /// Its number.
    pub number: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// When the engine was asked.
    pub begun_s: f64,
    /// Whether its program works again.
    pub goes_on: bool,
    /// What was used until then.
    pub used: Used,
}

/// One group.
pub struct Group {
    /// Its number, from 0.
    pub number: usize,
    /// Its nodes that live.
    pub nodes: Vec<String>,
    /// How many it is to have.
    pub size: usize,
    /// Energy and time of its nodes.
    pub ledger: Ledger,
    /// What it costs and how often it fails.
    pub adaptation: Adaptation,
    /// Its checkpoint on the way.
    pub checkpointing: Option<Making>,
    /// When its newest line was complete or its program started: earlier at first, so that the groups take turns.
    pub paced_s: f64,
    /// No checkpoint before this moment, after one that failed.
    pub not_before_s: f64,
    /// The checkpoint before the end of the walltime is taken.
    pub final_line_taken: bool,
    /// How it is doing.
    pub state: State,
    /// Its shares in the calls that are open.
    pub shares: BTreeMap<u64, Share>,
    /// A person has cancelled one that ended badly, unless a node turns out to be dead.
    pub is_cancelled: bool,
    /// Crashes since its newest line.
    pub crashes: u32,
    /// How often Slurm has not begun a step of it since its newest line.
    pub refusals: u32,
    /// What its program is to see.
    pub environment: Vec<(String, String)>,
    /// Number of the line from which this wrapper took it up.
    pub resumed: Option<u64>,
    /// Number of the line from which its log in memory begins: 0 for the beginning, the highest if it was lost since.
    pub log_begins: u64,
    /// Number of its newest line, and for how long its program stood still for it, s, if that is known.
    pub stood_still: Option<(u64, f64)>,
    /// Since when it has computed without a pause.
    pub since_s: f64,
    /// Work that it lost last, s.
    pub lost_s: f64,
    /// It had done that without a pause, and no other group is behind meanwhile: how fast it does it again is its own.
    pub lost_alone: bool,
    /// When it will have done again what it lost; without end while it does not run.
    pub caught_up_s: f64,
    /// How fast it does that.
    pub pace: Pace,
    /// The line to which it goes back, or the beginning, from its failure until it starts again.
    pub back: Option<Option<Manifest>>,
    /// The image from which its share of a call goes on, until it has made a line.
    pub image: Option<(u64, PathBuf)>,
    /// It went on from an image, and has made no line since.
    pub of_image: bool,
    /// Its nodes are lent: what they do is none of the run's account.
    pub away: bool,
}

impl Group {
    /// A group that this wrapper takes up.
    pub fn new(number: usize, nodes: &[String], now_s: f64, local_s: f64, setup: &Setup) -> Group {
        let plan = plan_of(&setup.plan, nodes.len(), setup.started.nodes.len());
        Group {
            number,
            nodes: nodes.to_vec(),
            size: nodes.len(),
            ledger: Ledger::open(now_s, setup.first_phase(), nodes, &setup.accounted),
            adaptation: Adaptation::new(now_s, local_s, &setup.settings, &plan),
            checkpointing: None,
            paced_s: now_s,
            not_before_s: f64::NEG_INFINITY,
            final_line_taken: false,
            state: State::Well,
            shares: BTreeMap::new(),
            is_cancelled: false,
            crashes: 0,
            refusals: 0,
            environment: Vec::new(),
            resumed: None,
            log_begins: 0,
            stood_still: None,
            since_s: f64::NEG_INFINITY,
            lost_s: 0.0,
            lost_alone: false,
            caught_up_s: f64::NEG_INFINITY,
            pace: Pace::new(now_s),
            back: None,
            image: None,
            of_image: false,
            away: false,
        }
    }

    /// Whether its program is at work.
    pub fn works(&self) -> bool {
        self.state == State::Well && self.runs()
    }

    /// Whether a share of it runs.
    pub fn runs(&self) -> bool {
        self.shares.values().any(|s| *s == Share::Runs)
    }

    /// Calls whose share is to be started.
    pub fn down(&self) -> Vec<u64> {
        self.shares.iter().filter(|(_, s)| matches!(s, Share::Down(_))).map(|(c, _)| *c).collect()
    }

    /// What its nodes are doing now: without a share they compute between calls, and are idle while other groups work,
    /// or while it waits for one of them.
    pub fn phase(&self, waits: bool) -> Phase {
        match self.state {
            State::Stopping | State::Short => Phase::Restart,
            State::Parked => Phase::Idle,
            State::Parking if self.checkpointing.is_none() && self.back.is_none() => Phase::Checkpoint,
            _ if self.checkpointing.as_ref().is_some_and(|c| !c.goes_on) => Phase::Checkpoint,
            _ if waits && self.runs() => Phase::Idle,
            _ if self.shares.values().all(|s| matches!(s, Share::Ended(_))) && !self.shares.is_empty() => Phase::Idle,
            _ => Phase::Compute,
        }
    }
}

/// The plan of the run for one group of it: fewer nodes fail less often, and the interval grows with the root of that.
fn plan_of(plan: &Plan, nodes: usize, of: usize) -> Plan {
    let rarer = of.max(1) as f64 / nodes.max(1) as f64;
    let mut plan = plan.clone();
    plan.mtbf_s.value *= rarer;
    if let Some(past) = &mut plan.past {
        past.share /= rarer;
    }
    if !plan.interval_fixed {
        plan.interval_s *= rarer.sqrt();
    }
    plan
}

/// How much of its first interval a group has behind it when it starts, so that checkpoints come one by one.
pub fn head_start_s(group: usize, groups: usize, interval_s: f64) -> f64 {
    interval_s * (groups - 1 - group) as f64 / groups as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_checkpoints_are_spread_over_one_interval() {
        let first_s: Vec<f64> = (0..4).map(|g| 100.0 - head_start_s(g, 4, 100.0)).collect();
        assert_eq!(first_s, [25.0, 50.0, 75.0, 100.0]);
    }
}
