//! What others ask about nodes: how each stands, and for how long.

use super::{Fence, Node, Nodes, State};

/// Clocks that tell when something began are taken to be right to this, s.
const BOOT_SLACK_S: f64 = 3.0;

impl Nodes {
    /// Whether a node is dead.
    pub fn is_dead(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| matches!(n.state, State::Dead(_)))
    }

    /// Whether a node is dead because it has no power.
    pub fn is_off(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| n.state == State::Dead(Fence::PoweredOff))
    }

    /// Whether a node is dead, and nothing but the loss of its power would show that it runs nothing any more.
    pub fn is_unfenced(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| n.state == State::Dead(Fence::None))
    }

    /// Whether a node is dead and runs nothing that is protected any more.
    pub fn is_fenced(&self, now_s: f64, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| match n.state {
            State::Dead(Fence::PoweredOff) => true,
            State::Dead(Fence::Lease { over_s }) => now_s >= over_s,
            _ => false,
        })
    }

    /// Nodes that are silent, and how they stand.
    pub fn silent(&self, now_s: f64) -> impl Iterator<Item = (&str, &'static str)> {
        let limits = self.limits;
        let stands = move |n: &Node| match n.state {
            State::Well if n.overdue_s(now_s) <= limits.detect_s => None,
            State::Well | State::Suspected { .. } => Some("suspected"),
            State::Reached { .. } => Some("reached, but not heard"),
            State::Dead(_) => Some("dead"),
        };
        self.nodes.iter().filter_map(move |(name, n)| Some((name.as_str(), stands(n)?)))
    }

    /// For how long a node has been dead since it was heard last, s.
    pub fn dead_for_s(&self, now_s: f64, name: &str) -> Option<f64> {
        self.nodes.get(name).filter(|n| matches!(n.state, State::Dead(_))).map(|n| now_s - n.heard_s)
    }

    /// How long ago a node was found dead last, s.
    pub fn found_dead_s(&self, now_s: f64, name: &str) -> Option<f64> {
        self.nodes.get(name).filter(|n| matches!(n.state, State::Dead(_))).map(|n| now_s - n.death.found_s)
    }

    /// What began longer ago than this ran in an earlier boot of a node, s, and for how long this boot has been heard, s.
    /// Absent if the node does not tell when it booted and was not seen to boot.
    pub fn booted_for_s(&self, now_s: f64, name: &str) -> Option<(f64, f64)> {
        let node = self.nodes.get(name)?;
        let told = node.boot_s.zip(node.first_s);
        let told = told.map(|(boot_s, first_s)| (now_s - boot_s + BOOT_SLACK_S, now_s - boot_s.max(first_s)));
        told.or_else(|| node.booted.map(|(before_s, since_s)| (now_s - before_s, now_s - since_s)))
    }

    /// How long ago a node was heard last in the boot before this one, s; absent if it was not seen to boot.
    pub fn seen_to_boot_s(&self, now_s: f64, name: &str) -> Option<f64> {
        self.nodes.get(name)?.booted.map(|(before_s, _)| now_s - before_s)
    }

    /// Whether a node is heard, has its slurmd, and nothing speaks against it.
    pub fn is_well(&self, now_s: f64, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| n.slurmd_up && n.is_well(now_s, &self.limits))
    }

    /// For how long a node was not heard though it was to be, s; absent if it was not heard in this life of the controller.
    pub fn silent_s(&self, now_s: f64, name: &str) -> Option<f64> {
        self.nodes.get(name).filter(|n| n.is_heard).map(|n| n.overdue_s(now_s).max(0.0))
    }

    /// Nodes that are heard.
    pub fn heard_now(&self, now_s: f64) -> impl Iterator<Item = &str> {
        let limits = self.limits;
        self.nodes.iter().filter(move |(_, n)| n.is_well(now_s, &limits)).map(|(name, _)| name.as_str())
    }
}
