//! What ended steps have left on storage that only their nodes have: elsewhere they have not ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a step has left on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLeft {
    /// Node name.
    pub node: String,
    /// The boot of the node then.
    pub boot_id: String,
    /// Whether something of it does not outlive the boot.
    pub in_memory: bool,
}

/// What is known of one step: kept beside its record, since it is known later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    /// When the step ended, by its record: it may have run again since.
    pub at_s: f64,
    /// The nodes on which it has left something.
    pub nodes: Vec<NodeLeft>,
}

/// Where a script begins again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// Nodes of the job that live.
    pub nodes: Vec<String>,
    /// Their boots, as far as they are known.
    pub boots: BTreeMap<String, String>,
    /// Whether these are the nodes, in the same life of the job, on which all steps have run.
    pub is_unchanged: bool,
}

impl Present {
    /// Why what a step has left is not here; none if it is, or there was nothing.
    pub(super) fn lacks(&self, left: Option<&[NodeLeft]>) -> Option<String> {
        let Some(left) = left else {
            let why = "nobody knows what it has left on the nodes where it ran";
            return (!self.is_unchanged).then(|| why.to_string());
        };
        left.iter().find_map(|left| {
            let NodeLeft { node, boot_id, in_memory } = left;
            if !self.nodes.contains(node) {
                return Some(format!("it has left files on {node}, which is not there any more"));
            }
            let is_same_boot = self.boots.get(node).is_some_and(|now| now == boot_id);
            (*in_memory && !is_same_boot)
                .then(|| format!("it has left files in the memory of {node}, which may have booted since"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_as_ended_only_where_what_it_left_is() {
        let present = |nodes: &[&str], boot: &str, is_unchanged| Present {
            nodes: nodes.iter().map(|n| n.to_string()).collect(),
            boots: BTreeMap::from([("n1".to_string(), boot.to_string())]),
            is_unchanged,
        };
        let left = |in_memory| vec![NodeLeft { node: "n1".into(), boot_id: "b1".into(), in_memory }];
        for (present, left, lacks) in [
            (present(&["n2"], "b1", false), Some(vec![]), false),
            (present(&["n2"], "b1", false), Some(left(false)), true),
            (present(&["n1", "n2"], "b2", false), Some(left(false)), false),
            (present(&["n1"], "b1", false), Some(left(true)), false),
            (present(&["n1"], "b2", false), Some(left(true)), true),
            (present(&["n1"], "b1", false), None, true),
            (present(&["n1"], "b1", true), None, false),
        ] {
            assert_eq!(present.lacks(left.as_deref()).is_some(), lacks, "{present:?} {left:?}");
        }
        let unknown = Present { nodes: vec!["n1".into()], ..Present::default() };
        assert!(unknown.lacks(Some(&left(true))).is_some(), "nobody knows the boot");
    }
}
