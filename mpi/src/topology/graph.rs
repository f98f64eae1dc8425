//! Graphs, known to all ranks or distributed.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::communicator::Comm;
use crate::create::split;
use mpi_ranks::Topology;
use mpi_ranks::graph::{Distributed, Graph};
use std::rc::Rc;

/// `MPI_UNWEIGHTED`, an address in either ABI: an array that says so rather than weights.
fn weights(at: *const Int, n: Int) -> Option<Vec<Int>> {
    (!unweighted(at)).then(|| if empty_weights(at) { Vec::new() } else { slice(at, n).to_vec() })
}

#[cfg(not(feature = "mpich"))]
fn unweighted(at: *const Int) -> bool {
    at as usize == crate::abi::UNWEIGHTED
}
#[cfg(not(feature = "mpich"))]
fn empty_weights(at: *const Int) -> bool {
    at as usize == crate::abi::UNWEIGHTED + 1
}
#[cfg(feature = "mpich")]
fn unweighted(at: *const Int) -> bool {
    at == crate::abi::marker(c"MPI_UNWEIGHTED")
}
#[cfg(feature = "mpich")]
fn empty_weights(at: *const Int) -> bool {
    at == crate::abi::marker(c"MPI_WEIGHTS_EMPTY")
}

/// The communicator of a distributed graph: all members, in their order.
fn distributed(world: W, at: &Rc<Comm>, graph: Distributed) -> Res<MPI_Comm> {
    split(world, at, 0, 0, Some(Topology::Distributed(graph)))
}

/// What each rank has said of edges, told to those at their ends.
fn tell(world: W, at: &Rc<Comm>, own: &[[Int; 3]], weighted: bool) -> Res<Distributed> {
    let counts = collective::gather_words(world, at, &[own.len() as Int])?;
    let most = counts.iter().copied().max().unwrap_or(0) as usize;
    // As many words from each rank, so that one allgather tells all.
    let mut words = vec![-1; most * 3];
    words[..own.len() * 3].copy_from_slice(own.as_flattened());
    let told = collective::gather_words(world, at, &words)?;
    let mut graph = Distributed { weighted, ..Distributed::default() };
    for (rank, edges) in told.chunks(most.max(1) * 3).enumerate().take(at.size()) {
        for edge in edges.chunks_exact(3).take(counts[rank] as usize) {
            if edge[1] == at.rank as Int {
                graph.sources.push(edge[0]);
                graph.source_weights.push(edge[2]);
            }
            if edge[0] == at.rank as Int {
                graph.destinations.push(edge[1]);
                graph.destination_weights.push(edge[2]);
            }
        }
    }
    Ok(graph)
}

fn asked(nodes: Int, index: *const Int, edges: *const Int) -> Res<Graph> {
    let index = slice(index, nodes);
    let count = index.last().copied().unwrap_or(0);
    Graph::new(index, slice(edges, count)).map_or_else(|| fail(MPI_ERR_ARG), Ok)
}

fn graph(at: &Comm) -> Res<&Graph> {
    match &at.topology {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => fail(MPI_ERR_TOPOLOGY),
    }
}

fn known_part(at: &Comm) -> Res<&Distributed> {
    match &at.topology {
        Some(Topology::Distributed(graph)) => Ok(graph),
        _ => fail(MPI_ERR_TOPOLOGY),
    }
}

fn fill(array: *mut Int, room: Int, values: &[Int]) {
    for (place, value) in slice_mut(array, room).iter_mut().zip(values) {
        *place = *value;
    }
}

fn neighbours(at: &Comm, rank: Int) -> Res<&[Int]> {
    let graph = graph(at)?;
    if (0..graph.index.len() as Int).contains(&rank) { Ok(graph.neighbours(rank as usize)) } else { fail(MPI_ERR_RANK) }
}

export! {
    fn MPI_Graph_create(comm_old: MPI_Comm, nnodes: Int, index: *const Int, edges: *const Int, reorder: Int, comm_graph: *mut MPI_Comm) collective comm_old => |w, at| {
        let _ = reorder;
        let graph = asked(nnodes, index, edges)?;
        if nnodes < 0 || nnodes as usize > at.size() {
            return fail(MPI_ERR_ARG);
        }
        let color = if (at.rank as Int) < nnodes { 0 } else { MPI_UNDEFINED };
        put(comm_graph, split(w, &at, color, 0, Some(Topology::Graph(graph)))?);
        Ok(())
    };
    fn MPI_Graphdims_get(comm: MPI_Comm, nnodes: *mut Int, nedges: *mut Int) for comm => |_w, at| {
        put(nnodes, graph(&at)?.index.len() as Int);
        put(nedges, graph(&at)?.edges.len() as Int);
        Ok(())
    };
    fn MPI_Graph_get(comm: MPI_Comm, maxindex: Int, maxedges: Int, index: *mut Int, edges: *mut Int) for comm => |_w, at| {
        fill(index, maxindex, &graph(&at)?.index);
        fill(edges, maxedges, &graph(&at)?.edges);
        Ok(())
    };
    fn MPI_Graph_neighbors_count(comm: MPI_Comm, rank: Int, nneighbors: *mut Int) for comm => |_w, at| {
        put(nneighbors, neighbours(&at, rank)?.len() as Int);
        Ok(())
    };
    fn MPI_Graph_neighbors(comm: MPI_Comm, rank: Int, maxneighbors: Int, found: *mut Int) for comm => |_w, at| {
        fill(found, maxneighbors, neighbours(&at, rank)?);
        Ok(())
    };
    fn MPI_Graph_map(comm: MPI_Comm, nnodes: Int, index: *const Int, edges: *const Int, newrank: *mut Int) for comm => |_w, at| {
        asked(nnodes, index, edges)?;
        put(newrank, if (at.rank as Int) < nnodes { at.rank as Int } else { MPI_UNDEFINED });
        Ok(())
    };
    fn MPI_Dist_graph_create_adjacent(comm_old: MPI_Comm, indegree: Int, sources: *const Int, sourceweights: *const Int, outdegree: Int,
        destinations: *const Int, destweights: *const Int, info: MPI_Info, reorder: Int, comm_dist_graph: *mut MPI_Comm) collective comm_old => |w, at| {
        let _ = (info, reorder);
        let (source_weights, destination_weights) = (weights(sourceweights, indegree), weights(destweights, outdegree));
        let graph = Distributed {
            sources: slice(sources, indegree).to_vec(),
            destinations: slice(destinations, outdegree).to_vec(),
            weighted: source_weights.is_some(),
            source_weights: source_weights.unwrap_or_default(),
            destination_weights: destination_weights.unwrap_or_default(),
        };
        put(comm_dist_graph, distributed(w, &at, graph)?);
        Ok(())
    };
    fn MPI_Dist_graph_create(comm_old: MPI_Comm, n: Int, nodes: *const Int, degrees: *const Int, targets: *const Int,
        edge_weights: *const Int, info: MPI_Info, reorder: Int, newcomm: *mut MPI_Comm) collective comm_old => |w, at| {
        let _ = (info, reorder);
        let degrees = slice(degrees, n);
        let total = degrees.iter().sum();
        let weights = weights(edge_weights, total);
        let from = slice(nodes, n).iter().zip(degrees).flat_map(|(node, degree)| (0..*degree).map(move |_| *node));
        let edges: Vec<[Int; 3]> = from.zip(slice(targets, total)).enumerate().map(|(place, (from, to))| {
            let weight = weights.as_ref().and_then(|weights| weights.get(place)).copied().unwrap_or(1);
            [from, *to, weight]
        }).collect();
        let graph = tell(w, &at, &edges, weights.is_some())?;
        put(newcomm, distributed(w, &at, graph)?);
        Ok(())
    };
    fn MPI_Dist_graph_neighbors_count(comm: MPI_Comm, inneighbors: *mut Int, outneighbors: *mut Int, weighted: *mut Int) for comm => |_w, at| {
        let graph = known_part(&at)?;
        put(inneighbors, graph.sources.len() as Int);
        put(outneighbors, graph.destinations.len() as Int);
        put(weighted, graph.weighted.into());
        Ok(())
    };
    fn MPI_Dist_graph_neighbors(comm: MPI_Comm, maxindegree: Int, sources: *mut Int, sourceweights: *mut Int, maxoutdegree: Int,
        destinations: *mut Int, destweights: *mut Int) for comm => |_w, at| {
        let graph = known_part(&at)?;
        fill(sources, maxindegree, &graph.sources);
        fill(destinations, maxoutdegree, &graph.destinations);
        let wanted = |weights: *mut Int| graph.weighted && !unweighted(weights) && !empty_weights(weights);
        if wanted(sourceweights) {
            fill(sourceweights, maxindegree, &graph.source_weights);
        }
        if wanted(destweights) {
            fill(destweights, maxoutdegree, &graph.destination_weights);
        }
        Ok(())
    };
}
