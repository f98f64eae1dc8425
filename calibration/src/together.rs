//! Sorts nodes into those that one job can have: no job spans two partitions.

use slurm::Node;
use std::collections::BTreeMap;

/// Nodes that one job can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// Their names.
    pub names: Vec<String>,
    /// The partitions that hold all of them, as `--partition` takes them: Slurm takes the first that is open to the user.
    pub partitions: String,
}

/// The largest lot of nodes first, then the largest of the rest; all in one where a partition is given, which holds them.
pub fn together(nodes: &[&Node], partition: Option<&str>) -> Vec<Together> {
    let names = |nodes: &[&Node]| nodes.iter().map(|n| n.name.clone()).collect();
    if let Some(given) = partition {
        return vec![Together { names: names(nodes), partitions: given.to_string() }];
    }
    let mut rest = nodes.to_vec();
    let mut lots = Vec::new();
    while !rest.is_empty() {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        rest.iter().flat_map(|n| &n.partitions).for_each(|p| *sizes.entry(p).or_default() += 1);
        let Some(most) = sizes.values().copied().max() else { break };
        let Some(one) = sizes.iter().find(|(_, n)| **n == most).map(|(p, _)| p.to_string()) else { break };
        let (lot, others): (Vec<&Node>, Vec<&Node>) = rest.into_iter().partition(|n| n.partitions.contains(&one));
        let holds_all = |p: &&String| lot.iter().all(|n| n.partitions.contains(p));
        let partitions: Vec<&str> = lot[0].partitions.iter().filter(holds_all).map(String::as_str).collect();
        lots.push(Together { names: names(&lot), partitions: partitions.join(",") });
        rest = others;
    }
    lots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, partitions: &[&str]) -> Node {
        Node { name: name.into(), partitions: partitions.iter().map(|p| p.to_string()).collect(), ..Node::default() }
    }

    #[test]
    fn nodes_of_two_partitions_are_two_lots_and_every_partition_that_holds_a_lot_will_do() {
        let all = [
            node("n1", &["cpu", "debug"]),
            node("n2", &["cpu"]),
            node("n3", &["cpu"]),
            node("g1", &["gpu", "night"]),
            node("g2", &["gpu", "night"]),
            node("x", &[]),
        ];
        let all: Vec<&Node> = all.iter().collect();
        let lot = |names: &[&str], partitions: &str| Together {
            names: names.iter().map(|n| n.to_string()).collect(),
            partitions: partitions.into(),
        };
        assert_eq!(together(&all, None), [lot(&["n1", "n2", "n3"], "cpu"), lot(&["g1", "g2"], "gpu,night")]);
        assert_eq!(together(&all[..2], Some("cpu")), [lot(&["n1", "n2"], "cpu")]);
        assert_eq!(together(&[], None), []);
    }
}
