//! A node as witness of others: grants them their lease, or tells the controller that it does not reach them.
//!
//! What it has testified binds it: it grants nothing more to a node until that node shows that the controller has spoken to
//! it since (a higher epoch). So the ledger is written down before a testimony is given.

use protocol::{NotGranted, Seen, Testimony};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A node that was granted its lease so lately is reached, whatever a look shows, s.
const FRESH_S: f64 = 2.0;

/// Most nodes for which a witness keeps its word.
const MOST: usize = 4096;

/// Whether anything of a node is reached.
pub fn is_reached(seen: Seen) -> bool {
    seen.service || seen.slurmd || seen.host
}

/// A witness that reaches anything of a node.
pub fn reaching(said: &BTreeMap<String, Testimony>) -> Option<String> {
    said.iter().find(|(_, t)| is_reached(t.seen)).map(|(witness, _)| witness.clone())
}

/// What a witness has said, as it is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Testimonies {
    /// The epoch in which it testified against each node.
    against: BTreeMap<String, u64>,
    /// When it granted each node its lease last, s on this boot's monotonic clock.
    granted_s: BTreeMap<String, f64>,
    /// Whether it may grant: one that has lost its ledger says nothing until the controller has answered it.
    knows: bool,
}

impl Testimonies {
    /// The controller has answered this witness: whatever it said in an earlier life, the controller knows.
    pub fn controller_answered(&mut self) {
        self.knows = true;
    }

    /// A node asks for its lease in its epoch.
    ///
    /// # Errors
    /// Why it does not get it.
    pub fn grant(&mut self, now_s: f64, node: &str, epoch: u64) -> Result<(), NotGranted> {
        if !self.knows {
            return Err(NotGranted::Unsure);
        }
        if self.against.get(node).is_some_and(|at| epoch < *at) {
            return Err(NotGranted::Testified);
        }
        self.against.remove(node);
        if self.granted_s.len() >= MOST && !self.granted_s.contains_key(node) {
            return Err(NotGranted::Unsure);
        }
        self.granted_s.insert(node.to_string(), now_s);
        Ok(())
    }

    /// The controller asks about a node that this witness sees so. One that it does not reach is granted nothing below
    /// `epoch` from now on, which is to be kept on disk before the testimony is given.
    pub fn testify(&mut self, now_s: f64, node: &str, epoch: u64, seen: Seen) -> Testimony {
        let granted_age_s = self.granted_s.get(node).map(|last_s| now_s - last_s);
        let is_fresh = granted_age_s.is_some_and(|age_s| age_s < FRESH_S);
        let seen = Seen { service: seen.service || is_fresh, ..seen };
        if !is_reached(seen) {
            if self.against.len() >= MOST && !self.against.contains_key(node) {
                self.against.pop_first();
                // It must not grant to nodes that it has forgotten either.
                self.knows = false;
            }
            let at = self.against.entry(node.to_string()).or_default();
            *at = (*at).max(epoch);
        }
        Testimony { seen, granted_age_s, ended: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Seen = Seen { service: false, slurmd: false, host: false };

    #[test]
    fn whoever_has_testified_grants_nothing_until_the_controller_has_spoken_to_the_node() {
        let mut witness = Testimonies::default();
        assert_eq!(witness.grant(1.0, "n1", 7), Err(NotGranted::Unsure));
        witness.controller_answered();
        assert_eq!(witness.grant(2.0, "n1", 7), Ok(()));
        assert_eq!(witness.testify(5.0, "n1", 8, NOTHING).granted_age_s, Some(3.0));
        assert_eq!(witness.testify(5.0, "n2", 8, NOTHING), Testimony::default());
        assert_eq!(witness.grant(6.0, "n1", 7), Err(NotGranted::Testified));
        let kept = serde_json::to_string(&witness).unwrap();
        let mut again: Testimonies = serde_json::from_str(&kept).unwrap();
        assert_eq!(again.grant(7.0, "n1", 7), Err(NotGranted::Testified), "a restart changes nothing");
        assert_eq!(again.grant(8.0, "n1", 8), Ok(()));
    }

    #[test]
    fn whoever_reaches_a_node_is_bound_by_nothing() {
        let mut witness = Testimonies::default();
        witness.controller_answered();
        let slurmd = Seen { slurmd: true, ..NOTHING };
        assert_eq!(witness.testify(5.0, "n1", 8, slurmd).seen, slurmd);
        assert_eq!(witness.grant(6.0, "n1", 7), Ok(()));
        let fresh = witness.testify(7.5, "n1", 9, NOTHING);
        assert!(fresh.seen.service, "it has just asked for its lease: {fresh:?}");
        assert_eq!(witness.grant(8.0, "n1", 7), Ok(()));
    }

    #[test]
    fn a_ledger_that_is_full_grants_nothing_rather_than_what_it_may_have_denied() {
        let mut witness = Testimonies::default();
        witness.controller_answered();
        for i in 0..=MOST {
            witness.testify(1.0, &format!("n{i:05}"), 2, NOTHING);
        }
        assert_eq!(witness.grant(2.0, "n00000", 1), Err(NotGranted::Unsure));
    }
}
