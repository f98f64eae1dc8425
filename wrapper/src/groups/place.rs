//! Which nodes are whose: the batch host is a spare first, since it can be neither lost nor released in silence.

use protocol::Event;

/// Nodes of the groups, and those kept for the day when one is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Nodes of each group.
    pub groups: Vec<Vec<String>>,
    /// Spare nodes.
    pub spares: Vec<String>,
}

impl Places {
    /// Deals `nodes`, of which the batch host is the first, out to so many groups, with so many spares.
    ///
    /// # Errors
    /// A sentence: there are fewer nodes than groups.
    pub fn deal(nodes: &[String], groups: usize, spare: usize) -> Result<Places, String> {
        let planner::groups::Shares { groups, spares } = planner::groups::deal(nodes.len(), groups, spare)?;
        let (spares, used) = nodes.split_at(spares);
        let mut rest = used.iter().cloned();
        let groups = groups.into_iter().map(|size| in_order(rest.by_ref().take(size).collect())).collect();
        Ok(Places { groups, spares: spares.to_vec() })
    }
}

/// Nodes as Slurm orders them, by name with numbers as numbers: the first task of a step is on the first of them.
pub fn in_order(mut nodes: Vec<String>) -> Vec<String> {
    nodes.sort_by_cached_key(|node| {
        let runs = node.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
        let runs = runs.map(|run| String::from_utf8_lossy(run).into_owned());
        runs.map(|run| (run.parse::<u64>().ok(), run)).collect::<Vec<_>>()
    });
    nodes
}

/// The nodes that each group had last, as the journal of the run tells it; empty if it had none.
pub fn before<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Vec<String>> {
    let mut places: Vec<Vec<String>> = Vec::new();
    for event in events {
        if let Event::InGroup { group, nodes, .. } = event {
            let group = *group as usize;
            places.resize_with(places.len().max(group + 1), Vec::new);
            places[group].clone_from(nodes);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_host_is_the_first_spare_and_no_group_is_empty() {
        let nodes: Vec<String> = (1..=6).map(|i| format!("n{i}")).collect();
        let shown = |groups, spare| {
            let places = Places::deal(&nodes, groups, spare).unwrap();
            let groups: Vec<String> = places.groups.iter().map(|g| g.join("+")).collect();
            format!("{} | {}", groups.join(" "), places.spares.join(" "))
        };
        assert_eq!(shown(5, 1), "n2 n3 n4 n5 n6 | n1");
        assert_eq!(shown(2, 1), "n2+n3+n4 n5+n6 | n1");
        assert_eq!(shown(6, 1), "n1 n2 n3 n4 n5 n6 | ");
        assert!(Places::deal(&nodes, 7, 0).unwrap_err().contains("7 groups"));
        let mixed = ["n10", "n9", "a2-7", "a2-11"].map(str::to_string);
        assert_eq!(in_order(mixed.into()), ["a2-7", "a2-11", "n9", "n10"]);
    }
}
