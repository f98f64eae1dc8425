//! Sorts nodes into those that one job can have: no job spans two partitions.

use slurm::{Node, Partition};

/// Nodes that one job can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// Their names.
    pub names: Vec<String>,
    /// The partition that holds all of them: of several, Slurm might start the job where it is soon ended.
    pub partition: String,
}

/// The largest lot of nodes first, then the largest of the rest, each in one partition that is up; all in one where a
/// partition is given, which holds them.
pub fn together(nodes: &[&Node], partitions: &[Partition], given: Option<&str>) -> Vec<Together> {
    let names = |nodes: &[&Node]| nodes.iter().map(|n| n.name.clone()).collect();
    if let Some(given) = given {
        return vec![Together { names: names(nodes), partition: given.to_string() }];
    }
    let mut rest = nodes.to_vec();
    let mut lots = Vec::new();
    loop {
        let held = |p: &Partition| rest.iter().filter(|n| n.partitions.contains(&p.name)).count();
        let open = partitions.iter().filter(|p| p.is_up && held(p) > 0);
        let Some(best) = open.max_by_key(|p| (held(p), p.is_default, lasting(p))) else { return lots };
        let (lot, others): (Vec<&Node>, Vec<&Node>) = rest.iter().partition(|n| n.partitions.contains(&best.name));
        lots.push(Together { names: names(&lot), partition: best.name.clone() });
        rest = others;
    }
}

/// Jobs that nobody pushes out last longer, then those with the longest limit.
fn lasting(partition: &Partition) -> (bool, u64) {
    (!partition.is_preemptible, partition.max_time_s.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, partitions: &[&str]) -> Node {
        Node { name: name.into(), partitions: partitions.iter().map(|p| p.to_string()).collect(), ..Node::default() }
    }

    fn partition(name: &str, max_time_s: Option<u64>) -> Partition {
        Partition { name: name.into(), is_up: true, max_time_s, ..Partition::default() }
    }

    fn lot(names: &[&str], partition: &str) -> Together {
        Together { names: names.iter().map(|n| n.to_string()).collect(), partition: partition.into() }
    }

    #[test]
    fn nodes_of_two_partitions_are_two_lots() {
        let all = [
            node("n1", &["cpu", "debug"]),
            node("n2", &["cpu"]),
            node("n3", &["cpu"]),
            node("g1", &["gpu"]),
            node("g2", &["gpu"]),
            node("x", &[]),
            node("y", &["hidden"]),
        ];
        let all: Vec<&Node> = all.iter().collect();
        let partitions = ["cpu", "debug", "gpu"].map(|name| partition(name, None));
        assert_eq!(together(&all, &partitions, None), [lot(&["n1", "n2", "n3"], "cpu"), lot(&["g1", "g2"], "gpu")]);
        assert_eq!(together(&all[..2], &partitions, Some("cpu")), [lot(&["n1", "n2"], "cpu")]);
        assert_eq!(together(&[], &partitions, None), []);
    }

    #[test]
    fn of_several_partitions_that_hold_a_lot_the_default_serves_or_else_the_one_where_a_job_lasts() {
        let nodes = [node("n1", &["debug", "main", "scavenger"]), node("n2", &["debug", "main", "scavenger"])];
        let nodes: Vec<&Node> = nodes.iter().collect();
        let [debug, main] = [partition("debug", Some(1800)), partition("main", Some(86_400))];
        let scavenger = Partition { is_preemptible: true, ..partition("scavenger", None) };
        let default = |p: &Partition| Partition { is_default: true, ..p.clone() };
        let down = |p: &Partition| Partition { is_up: false, ..p.clone() };
        let every_preemptible = [&debug, &main].map(|p| Partition { is_preemptible: true, ..p.clone() });
        for (partitions, wanted) in [
            (vec![default(&debug), main.clone(), scavenger.clone()], "debug"),
            (vec![debug.clone(), main.clone(), scavenger.clone()], "main"),
            (vec![down(&default(&debug)), main.clone()], "main"),
            (vec![debug.clone(), down(&main), scavenger.clone()], "debug"),
            (every_preemptible.to_vec(), "main"),
            (vec![debug, partition("main", None)], "main"),
            (vec![scavenger], "scavenger"),
        ] {
            assert_eq!(together(&nodes, &partitions, None), [lot(&["n1", "n2"], wanted)], "{partitions:?}");
        }
        assert_eq!(together(&nodes, &[down(&main)], None), [], "nothing is up");
    }
}
