//! Which witnesses each node has, and when others are named.
//!
//! The first nodes that a controller hears are often neighbours: a rack that was switched on first. Witnesses that were
//! chosen among few nodes are therefore chosen anew once twice as many are heard; so a node is named others a few times
//! as its cluster comes up, and never again while it stays as large.

use super::{Node, Nodes};
use crate::witnesses::{self, majority};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The witnesses that a node was named in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// Since which epoch.
    pub epoch: u64,
    /// Their nodes.
    pub witnesses: BTreeSet<String>,
    /// How many nodes were heard when these were last found to be spread over all of them; 0 from earlier versions.
    #[serde(default)]
    pub among: usize,
}

impl Nodes {
    /// Names others in place of witnesses that are no longer well, more of them as the cluster grows, and such that are
    /// spread over all of it.
    pub(super) fn name_witnesses(&mut self, now_s: f64, name: &str) {
        let Some(node) = self.nodes.get(name).filter(|n| n.known.fences_itself) else { return };
        let is_well = |n: &Node| n.known.fences_itself && n.is_well(now_s, &self.limits);
        let last = node.known.named.last().cloned().unwrap_or_default();
        // A new life of the controller takes none for gone that it has not heard yet.
        let is_left = |w: &String| self.nodes.get(w).is_some_and(|n| n.is_to_come() || is_well(n));
        let left = last.witnesses.iter().filter(|w| is_left(w)).count();
        // Of what an earlier version has named it is not known how many nodes were heard then.
        let is_full = last.witnesses.len() == witnesses::WITNESSES;
        let among = if last.among == 0 && is_full { self.nodes.len() } else { last.among };
        let spreads = self.heard >= 2 * among;
        if left == witnesses::WITNESSES && !spreads {
            return;
        }
        let well: Vec<&str> = self.nodes.iter().filter(|(_, n)| is_well(n)).map(|(name, _)| name.as_str()).collect();
        let (none, among) = (BTreeSet::new(), if spreads { self.heard } else { among });
        let chosen = witnesses::choose(name, if spreads { &none } else { &last.witnesses }, &well);
        // Fewer witnesses would be easier to lose all at once: those that may come back are kept, as long as the loss of one
        // more leaves a majority.
        let stays = chosen.len() < last.witnesses.len() && left > majority(last.witnesses.len());
        let Some(node) = self.nodes.get_mut(name).filter(|_| !chosen.is_empty() && !stays) else { return };
        if let Some(last) = node.known.named.last_mut().filter(|last| last.witnesses == chosen) {
            last.among = among;
            return;
        }
        node.known.epoch += 1;
        node.known.named.push(Named { epoch: node.known.epoch, witnesses: chosen, among });
    }
}
