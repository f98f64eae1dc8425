//! How many nodes each recovery group gets, whether there are enough, and what cannot be done with so many.

use options::{Engine, Settings};

/// The decision of a run that all its groups go back together, from then on.
pub const TOGETHER: &str = "go back together";

/// Why, if the program is the reason.
pub const NOT_ALONE: &str = "the program does not repeat itself, and no group of it can go back alone";

/// The nodes of a job, divided among groups and spares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Number of nodes of each group, as even as possible.
    pub groups: Vec<usize>,
    /// Number of spare nodes.
    pub spares: usize,
}

/// Divides `nodes` among groups; spares are what is left over.
///
/// # Errors
/// A sentence: there are fewer nodes than groups.
pub fn deal(nodes: usize, groups: usize, spares: usize) -> Result<Shares, String> {
    if nodes < groups || groups == 0 {
        let cure = "ask for more nodes (-N), or for fewer groups (--ft-energy-groups)";
        return Err(format!("{groups} groups need as many nodes, and the job has {nodes}; {cure}"));
    }
    let spares = spares.min(nodes - groups);
    let (each, more) = ((nodes - spares) / groups, (nodes - spares) % groups);
    Ok(Shares { groups: (0..groups).map(|g| each + usize::from(g < more)).collect(), spares })
}

/// What a user must know of the groups that were asked for, on so many nodes with so many tasks.
///
/// # Errors
/// A sentence: groups cannot be made, and the run is coordinated.
pub(crate) fn remarks(settings: &Settings, nodes: usize, tasks: Option<u32>) -> Result<Vec<String>, String> {
    let (count, wanted) = (settings.groups as usize, settings.spare as usize);
    let Shares { groups, spares } = deal(nodes, count, wanted)?;
    let (most, least) = (groups.first().copied().unwrap_or(0), groups.last().copied().unwrap_or(0));
    let each = if most == least { format!("{most}") } else { format!("{most} or {least}") };
    let mut remarks = vec![format!("each of {count} groups has {each} of {nodes} nodes, {spares} are spares")];
    match spares {
        0 => remarks.push("no spare: when a node is lost, the whole run goes back to the queue".to_string()),
        _ if spares < wanted => {
            remarks
                .push(format!("{wanted} spares were asked for, and {count} groups leave {spares}; ask for more nodes"));
        }
        _ if spares < most => {
            remarks.push(format!(
                "a group that loses more than {spares} of its nodes sends the whole run back to the queue"
            ));
        }
        _ => {}
    }
    if let Some(tasks) = tasks.filter(|t| (*t as usize) < count) {
        remarks.push(format!("{tasks} tasks are too few for all: the last groups have nothing to do"));
    }
    // The job's number of tasks includes those of spares, which the script does not see.
    let is_larger = most > 1 || tasks.is_some_and(|t| t as usize > nodes);
    if settings.lend && is_larger && settings.engine != Some(Engine::Criu) {
        remarks.push(
            "nothing will be lent unless the engine is criu: only a group of one task on one node can be put aside"
                .to_string(),
        );
    }
    Ok(remarks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Request, Setting, Source};

    fn said(groups: &str, spare: &str, nodes: usize, tasks: Option<u32>) -> String {
        let pairs = [
            ("ft-energy", ""),
            ("ft-energy-protocol", "uncoordinated"),
            ("ft-energy-groups", groups),
            ("ft-energy-spare", spare),
            ("ft-energy-log", "disk"),
            ("ft-energy-lend", "yes"),
        ];
        let set = |(name, value): (&str, &str)| {
            (name.to_string(), Setting { value: value.to_string(), source: Source::Option })
        };
        let request = Request { settings: pairs.map(set).into() };
        let settings = options::resolve(&request, &Default::default()).unwrap();
        remarks(&settings, nodes, tasks).map_or_else(|refused| format!("refused: {refused}"), |all| all.join("; "))
    }

    #[test]
    fn a_plan_says_what_so_many_nodes_are_good_for() {
        for (groups, spare, nodes, tasks, expected) in [
            ("2", "1", 5, Some(2), "each of 2 groups has 2 of 5 nodes, 1 are spares; a group that loses more than 1"),
            ("3", "2", 4, Some(3), "each of 3 groups has 1 of 4 nodes, 1 are spares; 2 spares were asked for"),
            ("3", "0", 4, None, "each of 3 groups has 2 or 1 of 4 nodes, 0 are spares; no spare"),
            ("5", "0", 4, None, "refused: 5 groups need as many nodes, and the job has 4"),
            (
                "3",
                "0",
                3,
                Some(2),
                "each of 3 groups has 1 of 3 nodes, 0 are spares; no spare: when a node is lost, the whole run goes back to the queue; 2 tasks are too few",
            ),
        ] {
            let said = said(groups, spare, nodes, tasks);
            assert!(said.starts_with(expected), "{said}");
        }
        assert!(said("2", "2", 6, Some(2)).contains("nothing will be lent"));
        assert!(said("2", "1", 3, Some(4)).contains("nothing will be lent"));
        for tasks in [2, 3] {
            assert_eq!(said("2", "1", 3, Some(tasks)), "each of 2 groups has 1 of 3 nodes, 1 are spares");
        }
    }
}
