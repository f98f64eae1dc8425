//! Which nodes are whose: the batch host is a spare first, since it can be neither lost nor released in silence.

use planner::TOGETHER;
use protocol::Event;

/// The decision to hand a run back since no relay can begin.
pub const UNSERVED: &str = "requeue without a relay";

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

/// What wrappers before have left, as the journal of the run tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// The nodes that each group had last; empty if it had none.
    pub groups: Vec<Vec<String>>,
    /// How often in a row, without a line in between, the run was handed back since no relay could begin.
    pub unserved: u32,
    /// The program does not repeat itself: all groups go back together.
    pub together: bool,
}

/// Reads it.
pub fn before<'a>(events: impl Iterator<Item = &'a Event>) -> Before {
    let (mut before, mut is_unserved) = (Before::default(), false);
    for event in events {
        match event {
            Event::Started { .. } if !std::mem::take(&mut is_unserved) => before.unserved = 0,
            Event::Decided { action, .. } if action == UNSERVED => {
                before.unserved += u32::from(!std::mem::replace(&mut is_unserved, true));
            }
            Event::Decided { action, .. } if action == TOGETHER => before.together = true,
            Event::InGroup { group, nodes, of } => {
                if matches!(**of, Event::Committed { .. }) {
                    before.unserved = 0;
                }
                let (group, places) = (*group as usize, &mut before.groups);
                places.resize_with(places.len().max(group + 1), Vec::new);
                places[group].clone_from(nodes);
            }
            _ => {}
        }
    }
    before
}
