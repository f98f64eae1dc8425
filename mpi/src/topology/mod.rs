//! Topologies of communicators of several groups. Those within one group are native.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod cartesian;
pub mod graph;

use crate::abi::*;
use crate::border::*;
use cartesian::Cartesian;
use graph::{Distributed, Graph};

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

/// With whom a rank exchanges in neighbourhood collectives, in order: a rank or `MPI_PROC_NULL`, and the part's tag.
pub struct Neighbours {
    /// From whom parts come.
    pub sources: Vec<(Int, Int)>,
    /// To whom parts go.
    pub destinations: Vec<(Int, Int)>,
}

impl Topology {
    /// Gives a native communicator this topology; the communicator without it is freed.
    pub fn natively(&self, mut plain: MPI_Comm) -> Res<MPI_Comm> {
        let mut shaped = handles().no_comm;
        let native = native();
        check(match self {
            Topology::Cartesian(Cartesian { dims, periods }) => {
                let (n, dims, periods) = (dims.len() as Int, dims.as_ptr(), periods.as_ptr());
                native.MPI_Cart_create(plain, n, dims, periods, 0, &mut shaped)
            }
            Topology::Graph(Graph { index, edges }) => {
                native.MPI_Graph_create(plain, index.len() as Int, index.as_ptr(), edges.as_ptr(), 0, &mut shaped)
            }
            // A distributed graph has all members of its parent, which is of several groups.
            Topology::Distributed(_) => return Ok(plain),
        })?;
        native.MPI_Comm_free(&mut plain);
        Ok(shaped)
    }

    /// The neighbours of a rank.
    pub fn neighbours(&self, rank: usize) -> Neighbours {
        let same = |ranks: &[Int]| ranks.iter().map(|rank| (*rank, 0)).collect();
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

export! {
    fn MPI_Topo_test(comm: MPI_Comm, status: *mut Int) for comm => |_w, at| {
        put(status, match at.topology {
            Some(Topology::Cartesian(_)) => MPI_CART as Int,
            Some(Topology::Graph(_)) => MPI_GRAPH as Int,
            Some(Topology::Distributed(_)) => MPI_DIST_GRAPH as Int,
            None => MPI_UNDEFINED,
        });
        Ok(())
    };
}
