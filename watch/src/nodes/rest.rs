//! Nodes that rest: those without anything protected beat rarely, and are asked to beat when it matters.
//!
//! Nobody misses a node for as long as it said that it would be silent. It is asked to beat when it has to hear something (a
//! protected job holds it, or something has to end there), and when others are silent: some of those that rest then stand
//! for all, so that a crowd of silent nodes is seen as soon as if all beat each second.

use super::{Action, Node, Nodes, State};
use crate::Limits;

/// In a cluster of at least this many nodes, half of them count as a crowd; in a smaller one, more than half.
const CROWD: usize = 4;

/// Most nodes that rest and are asked to beat, so that it is seen which part of those that rest is silent, too.
const SAMPLE: usize = 32;

/// Time after which such a node is asked again, s. What it has shown counts for twice as long: until the next answer is there.
const SAMPLE_S: f64 = 5.0;

/// Time in which a node has the answer to its heartbeat, s.
const TOLD_S: f64 = 1.0;

/// Part of `detect_s` after which a node counts among the silent ones when a crowd of them is looked for.
const MISSED: f64 = 0.6;

impl Node {
    /// For how long it has been silent though it was to be heard, s; below zero while it rests.
    pub(super) fn overdue_s(&self, now_s: f64) -> f64 {
        now_s - self.heard_s - self.pause_s
    }

    pub(super) fn is_missed(&self, now_s: f64, limits: &Limits) -> bool {
        let is_open = matches!(self.state, State::Well | State::Suspected { .. });
        is_open && self.overdue_s(now_s) > limits.detect_s * MISSED
    }

    pub(super) fn is_resting(&self, now_s: f64, limits: &Limits) -> bool {
        self.state == State::Well && self.pause_s > 0.0 && !self.is_missed(now_s, limits)
    }

    /// Whether it answered when it was asked to beat lately; one that was heard not long before is taken to, until it is
    /// missed. None while that is not known.
    pub(super) fn has_woken(&self, now_s: f64, limits: &Limits) -> Option<bool> {
        let is_lately = |at_s: f64| now_s - at_s < 2.0 * SAMPLE_S;
        let woken_s = self.woken_s.filter(|at_s| is_lately(*at_s))?;
        match self.heard_s >= woken_s {
            true => Some(true),
            false if self.is_missed(now_s, limits) => Some(false),
            false => is_lately(self.heard_s).then_some(true),
        }
    }
}

impl Nodes {
    /// The same where nodes may just be resting for so long, s.
    pub fn resting(mut self, pause_s: f64) -> Nodes {
        self.nodes.values_mut().for_each(|n| (n.pause_s, n.has_rested) = (pause_s, pause_s > 0.0));
        self
    }

    /// Whether so many nodes are silent that it is rather this host, or a switch, that is away.
    pub fn is_crowd(&self, now_s: f64) -> bool {
        let limits = &self.limits;
        let expected = || self.nodes.values().filter(|n| !n.is_out && !matches!(n.state, State::Dead(_)));
        let silent = expected().filter(|n| n.is_missed(now_s, limits)).count();
        if silent == 0 {
            return false;
        }
        // Of those that rest nothing is known, but of some that were asked to beat lately: they stand for the others.
        let unknown =
            expected().filter(|n| n.is_resting(now_s, limits) && n.has_woken(now_s, limits) != Some(true)).count();
        let woken: Vec<bool> = expected().filter_map(|n| n.has_woken(now_s, limits)).collect();
        let silent_part = woken.iter().filter(|answers| !**answers).count() as f64 / woken.len().max(1) as f64;
        let (all, silent) = (expected().count() as f64, silent as f64 + unknown as f64 * silent_part);
        silent * 2.0 > all || (all >= CROWD as f64 && silent * 2.0 == all)
    }

    /// Asks nodes that rest to beat: those that have to hear or to say something, and, while somebody is silent, some that
    /// show how many are.
    pub(super) fn wake(&mut self, now_s: f64) -> Vec<Action> {
        let limits = self.limits;
        if !self.nodes.values().any(|n| n.is_missed(now_s, &limits)) {
            self.nodes.values_mut().filter(|n| n.heard_s >= n.woken_s.unwrap_or(now_s)).for_each(|n| n.woken_s = None);
        }
        let is_waking = |n: &Node| n.woken_s.is_some_and(|at_s| at_s > n.heard_s);
        let rests = |n: &Node| n.is_resting(now_s, &limits) && !is_waking(n);
        let has_news = |name: &String, n: &Node| self.held.contains_key(name) || !n.known.ended.is_empty();
        // One that has not said yet that it knows its witnesses needs a majority of those before, too, to be found dead. It is
        // asked once it has heard of them, and is missed no earlier for that.
        let is_to_say = |n: &Node| n.known.named.len() > 1 && rests(n) && now_s - n.heard_s > TOLD_S;
        let unsaid: Vec<String> =
            self.nodes.iter().filter(|(_, n)| is_to_say(n)).map(|(name, _)| name.clone()).collect();
        let mut names: Vec<String> =
            self.nodes.iter().filter(|(name, n)| rests(n) && has_news(name, n)).map(|(name, _)| name.clone()).collect();
        if self.nodes.values().any(|n| n.is_missed(now_s, &limits)) {
            let is_fresh = |n: &Node| n.woken_s.is_some_and(|at_s| now_s - at_s < SAMPLE_S);
            let wanted = SAMPLE.saturating_sub(self.nodes.values().filter(|n| is_fresh(n)).count());
            let others: Vec<&String> =
                self.nodes.iter().filter(|(_, n)| rests(n) && !is_fresh(n)).map(|(name, _)| name).collect();
            // Neighbours in name are often neighbours on a switch.
            let apart = others.len().div_ceil(wanted.max(1)).max(1);
            names.extend(others.into_iter().step_by(apart).take(wanted).cloned());
        }
        for name in &names {
            if let Some(node) = self.nodes.get_mut(name) {
                (node.woken_s, node.pause_s) = (Some(now_s), now_s - node.heard_s);
            }
        }
        for name in &unsaid {
            if let Some(node) = self.nodes.get_mut(name) {
                node.woken_s = Some(now_s);
            }
        }
        // Some may be in both.
        names.extend(unsaid);
        names.sort();
        names.dedup();
        names.into_iter().map(|node| Action::Wake { node }).collect()
    }
}
