//! Neighbourhood collectives: with the neighbours of a topology, in its order.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use mpi_ranks::Neighbours;

impl Comm {
    /// The neighbours of this rank, and how many there are of each kind.
    pub(super) fn neighbours(&self) -> Res<Neighbours> {
        match &self.topology {
            Some(topology) => Ok(topology.neighbours(self.rank)),
            None => fail(MPI_ERR_TOPOLOGY),
        }
    }
}

/// Sends a part to each neighbour, and receives one from each.
pub(super) async fn alltoall(world: W, at: Rc<Comm>, from: Vec<Part>, into: Vec<Part>) -> Res {
    let turn = turn(at.clone()).await;
    let Neighbours { sources, destinations } = at.neighbours()?;
    let mut messages = Vec::new();
    for (part, (peer, tag)) in into.into_iter().zip(sources) {
        if let Some(peer) = peer.filter(|peer| *peer != MPI_PROC_NULL) {
            messages.push(turn.message(world, Role::Receive, part, peer as usize, tag)?);
        }
    }
    for (part, (peer, tag)) in from.into_iter().zip(destinations) {
        if let Some(peer) = peer.filter(|peer| *peer != MPI_PROC_NULL) {
            messages.push(turn.message(world, Role::Send(Mode::Standard), part, peer as usize, tag)?);
        }
    }
    all(world, messages).await
}

/// Sends the same part to each neighbour.
pub(super) async fn allgather(world: W, at: Rc<Comm>, own: Part, into: Vec<Part>) -> Res {
    let to = at.neighbours()?.destinations.len();
    alltoall(world, at, vec![own; to], into).await
}
