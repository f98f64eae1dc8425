//! Topologies of communicators.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::graph::{Distributed, Graph};
use crate::grid::Cartesian;

/// The topology of a communicator.
#[derive(Clone)]
pub enum Topology {
    /// A grid.
    Cartesian(Cartesian),
    /// A graph that all ranks know.
    Graph(Graph),
    /// A graph of which each rank knows its own neighbours.
    Distributed(Distributed),
}

/// With whom a rank exchanges in neighbourhood collectives, in order: a rank, if there is one, and the part's tag.
pub struct Neighbours {
    /// From whom parts come.
    pub sources: Vec<(Option<i32>, i32)>,
    /// To whom parts go.
    pub destinations: Vec<(Option<i32>, i32)>,
}

impl Topology {
    /// The neighbours of a rank.
    #[must_use]
    pub fn neighbours(&self, rank: usize) -> Neighbours {
        let same = |ranks: &[i32]| ranks.iter().map(|rank| (Some(*rank), 0)).collect();
        match self {
            Topology::Cartesian(grid) => grid.neighbours(rank),
            Topology::Graph(graph) => {
                let neighbours = graph.neighbours(rank);
                Neighbours { sources: same(neighbours), destinations: same(neighbours) }
            }
            Topology::Distributed(graph) => {
                Neighbours { sources: same(&graph.sources), destinations: same(&graph.destinations) }
            }
        }
    }
}
