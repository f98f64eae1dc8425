//! Topologies of communicators of several groups. Those within one group are native.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod cartesian;
pub mod graph;

use crate::abi::*;
use crate::border::*;
use crate::world::aside;
use mpi_ranks::Topology;
use mpi_ranks::graph::Graph;
use mpi_ranks::grid::Cartesian;

/// Gives a native communicator this topology; the communicator without it is freed.
pub fn natively(topology: &Topology, mut plain: MPI_Comm) -> Res<MPI_Comm> {
    // A distributed graph has all members of its parent, which is of several groups.
    if let Topology::Distributed(_) = topology {
        return Ok(plain);
    }
    let mut shaped = handles().no_comm;
    let native = native();
    check(aside(|| match topology {
        Topology::Cartesian(Cartesian { dims, periods }) => {
            let (n, dims, periods) = (dims.len() as Int, dims.as_ptr(), periods.as_ptr());
            native.MPI_Cart_create(plain, n, dims, periods, 0, &mut shaped)
        }
        Topology::Graph(Graph { index, edges }) => {
            native.MPI_Graph_create(plain, index.len() as Int, index.as_ptr(), edges.as_ptr(), 0, &mut shaped)
        }
        Topology::Distributed(_) => MPI_SUCCESS,
    }))?;
    native.MPI_Comm_free(&mut plain);
    Ok(shaped)
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
