//! What of the nodes is on disk, and what is not yet: nobody may be told of that, nor act upon it.

use super::{Known, Nodes};

impl Nodes {
    /// What is to be kept of a node.
    pub fn known(&self, name: &str) -> Option<&Known> {
        self.nodes.get(name).map(|n| &n.known)
    }

    /// Whether something of a node is not kept yet. It stays so until [`Nodes::kept`], however often that is tried.
    pub fn is_unkept(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| n.known != n.kept)
    }

    /// All that is not kept yet.
    pub fn unkept(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.nodes.iter().filter(|(_, n)| n.known != n.kept).map(|(name, n)| (name, &n.known))
    }

    /// This of a node is on disk.
    pub fn kept(&mut self, name: &str, known: Known) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.kept = known;
        }
    }
}
