//! Collectives of intercommunicators: each rank of one group with each rank of the other.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::reduce::{Reduction, cut};
use super::*;
use crate::datatype::{Scratch, copy};

fn remote(at: &Comm) -> std::ops::Range<usize> {
    0..at.peers().len()
}

pub(super) async fn barrier(world: W, at: Rc<Comm>) -> Res {
    let turn = turn(at.clone()).await;
    let nothing = Part::new(std::ptr::null(), 0, handles().byte);
    let mut messages = remote(&at).map(|peer| turn.receive(world, nothing, peer)).collect::<Res<Vec<_>>>()?;
    for peer in remote(&at) {
        messages.push(turn.send(world, nothing, peer)?);
    }
    all(world, messages).await
}

pub(super) async fn bcast(world: W, at: Rc<Comm>, part: Part, root: Int) -> Res {
    let turn = turn(at.clone()).await;
    match root {
        MPI_PROC_NULL => Ok(()),
        MPI_ROOT => all(world, remote(&at).map(|peer| turn.send(world, part, peer)).collect::<Res<_>>()?).await,
        root => complete(world, turn.receive(world, part, root as usize)?).await,
    }
}

pub(super) async fn gather(world: W, at: Rc<Comm>, own: Part, into: Vec<Part>, root: Int) -> Res {
    let turn = turn(at.clone()).await;
    match root {
        MPI_PROC_NULL => Ok(()),
        MPI_ROOT => {
            let coming = remote(&at).map(|peer| turn.receive(world, into[peer], peer)).collect::<Res<_>>()?;
            all(world, coming).await
        }
        root => complete(world, turn.send(world, own, root as usize)?).await,
    }
}

pub(super) async fn scatter(world: W, at: Rc<Comm>, from: Vec<Part>, own: Part, root: Int) -> Res {
    let turn = turn(at.clone()).await;
    match root {
        MPI_PROC_NULL => Ok(()),
        MPI_ROOT => {
            let going = remote(&at).map(|peer| turn.send(world, from[peer], peer)).collect::<Res<_>>()?;
            all(world, going).await
        }
        root => complete(world, turn.receive(world, own, root as usize)?).await,
    }
}

/// Receives the elements of all remote ranks, and reduces them in rank order.
async fn reduced(world: W, turn: &Turn, what: Reduction) -> Res<Scratch> {
    let parts: Vec<Scratch> = remote(&turn.comm).map(|_| Scratch::new(what.count, what.datatype)).collect();
    let coming =
        parts.iter().enumerate().map(|(peer, part)| turn.receive(world, part.part(), peer)).collect::<Res<_>>()?;
    all(world, coming).await?;
    Ok(super::reduce::fold(what, parts))
}

pub(super) async fn reduce(world: W, at: Rc<Comm>, what: Reduction, root: Int) -> Res {
    let turn = turn(at.clone()).await;
    match root {
        MPI_PROC_NULL => Ok(()),
        MPI_ROOT => {
            let result = reduced(world, &turn, what).await?;
            copy(result.part(), Part::new(what.into, what.count, what.datatype));
            Ok(())
        }
        root => {
            let own = Part::new(what.own, what.count, what.datatype);
            complete(world, turn.send(world, own, root as usize)?).await
        }
    }
}

/// Each side gets the reduction of the other.
async fn exchanged(world: W, turn: &Turn, what: Reduction) -> Res<Scratch> {
    let own = Part::new(what.own, what.count, what.datatype);
    let going = remote(&turn.comm).map(|peer| turn.send(world, own, peer)).collect::<Res<_>>()?;
    let result = reduced(world, turn, what).await?;
    all(world, going).await?;
    Ok(result)
}

pub(super) async fn allreduce(world: W, at: Rc<Comm>, what: Reduction) -> Res {
    let turn = turn(at.clone()).await;
    let result = exchanged(world, &turn, what).await?;
    copy(result.part(), Part::new(what.into, what.count, what.datatype));
    Ok(())
}

pub(super) async fn reduce_scatter(world: W, at: Rc<Comm>, what: Reduction, counts: Vec<Int>) -> Res {
    let turn = turn(at.clone()).await;
    let result = exchanged(world, &turn, what).await?;
    copy(cut(result.part(), &counts)[at.rank], Part::new(what.into, counts[at.rank], what.datatype));
    Ok(())
}
