//! Deaths of nodes that are not noted yet: each waits, as it was seen, until the store has it.

use std::collections::BTreeSet;

/// A death that is not noted yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Death {
    /// The node.
    pub node: String,
    /// When the node was heard last, s since the epoch.
    pub at_s: f64,
    /// When the death was seen, s since the epoch.
    pub detected_s: f64,
    /// What was seen.
    pub seen: String,
    is_failure: bool,
}

/// The deaths that are not noted yet.
#[derive(Clone, Debug, Default)]
pub struct Deaths(Vec<Death>);

impl Deaths {
    /// A node has died that was silent for so long, s.
    pub fn add(&mut self, now_s: f64, node: &str, silent_s: f64, seen: String) {
        let (node, at_s) = (node.to_string(), now_s - silent_s);
        self.0.push(Death { node, at_s, detected_s: now_s, seen, is_failure: false });
    }

    /// Nodes with a death that is not noted yet.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.0.iter().map(|d| d.node.clone()).collect()
    }

    /// Those that can be noted: a run was on the node, or they are judged to be failures.
    pub fn due(&self, used: &BTreeSet<String>) -> Vec<Death> {
        self.0.iter().filter(|d| d.is_failure || used.contains(&d.node)).cloned().collect()
    }

    /// One is noted.
    pub fn noted(&mut self, death: &Death) {
        self.0.retain(|d| d != death);
    }

    /// One could not be noted: the others come first.
    pub fn failed(&mut self, death: &Death) {
        self.0.sort_by_key(|d| d == death);
    }

    /// Nodes, none of a run, with a death of which it is not known whether it is a failure.
    pub fn unjudged(&self, used: &BTreeSet<String>) -> Vec<String> {
        let of_nobody = self.0.iter().filter(|d| !d.is_failure && !used.contains(&d.node));
        of_nobody.map(|d| d.node.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Says of the deaths of some nodes whether they are failures. Those that are none are dropped.
    pub fn judge(&mut self, nodes: &[String], is_failure: impl Fn(&Death) -> bool) {
        let nodes: BTreeSet<&String> = nodes.iter().collect();
        self.0.retain(|d| d.is_failure || !nodes.contains(&d.node) || is_failure(d));
        self.0.iter_mut().filter(|d| nodes.contains(&d.node)).for_each(|d| d.is_failure = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[&str]) -> BTreeSet<String> {
        nodes.iter().map(|n| (*n).to_string()).collect()
    }

    #[test]
    fn a_death_that_cannot_be_noted_waits_as_it_was_seen_behind_the_others() {
        let mut deaths = Deaths::default();
        ["n1", "n2", "n3"].iter().for_each(|n| deaths.add(100.0, n, 4.0, "silent".into()));
        let used = set(&["n1", "n2"]);
        let first = deaths.due(&used);
        deaths.failed(&first[0]);
        assert_eq!(deaths.due(&used), [first[1].clone(), first[0].clone()]);
        assert_eq!((first[0].at_s, first[0].detected_s), (96.0, 100.0));
        first.iter().for_each(|death| deaths.noted(death));
        assert!(deaths.due(&used).is_empty(), "once only");
        assert_eq!(deaths.nodes(), set(&["n3"]), "nobody has said yet whether it is a failure");
    }

    #[test]
    fn deaths_of_nodes_that_were_out_of_service_are_none_and_the_others_are_judged_once() {
        let mut deaths = Deaths::default();
        ["n1", "n2", "n3"].iter().for_each(|n| deaths.add(100.0, n, 4.0, "booted".into()));
        let asked = deaths.unjudged(&set(&["n3"]));
        assert_eq!(asked, ["n1", "n2"]);
        deaths.judge(&asked, |death| death.node == "n2");
        assert_eq!(deaths.nodes(), set(&["n2", "n3"]), "of n3 nobody was asked");
        assert_eq!(deaths.unjudged(&set(&[])), ["n3"]);
        assert_eq!(deaths.due(&set(&[])).len(), 1);
    }
}
