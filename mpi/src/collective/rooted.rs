//! Barrier, broadcast, gather, scatter.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::datatype::copy;

/// All members have come.
pub async fn barrier(world: W, at: Rc<Comm>) -> Res {
    if at.remote.is_some() {
        return inter::barrier(world, at).await;
    }
    let turn = turn(at.clone()).await;
    native_barrier(&at).await?;
    if at.own_group()[0] == at.rank {
        let nothing = Part::new(std::ptr::null(), 0, handles().byte);
        let first = at.by_group[0][0];
        if at.rank == first {
            let others = || at.leaders().filter(|leader| *leader != first);
            let come = others().map(|leader| turn.receive(world, nothing, leader)).collect::<Res<_>>()?;
            all(world, come).await?;
            let told = others().map(|leader| turn.send(world, nothing, leader)).collect::<Res<_>>()?;
            all(world, told).await?;
        } else {
            complete(world, turn.send(world, nothing, first)?).await?;
            complete(world, turn.receive(world, nothing, first)?).await?;
        }
    }
    native_barrier(&at).await
}

pub(super) async fn bcast(world: W, at: Rc<Comm>, part: Part, root: Int) -> Res {
    check_root(&at, root)?;
    if at.remote.is_some() {
        return inter::bcast(world, at, part, root).await;
    }
    let turn = turn(at.clone()).await;
    bcast_in(world, &turn, part, root as usize).await
}

/// A broadcast as a part of a collective.
pub(super) async fn bcast_in(world: W, turn: &Turn, part: Part, root: usize) -> Res {
    let at = &turn.comm;
    let own = at.own_group();
    let mut sent = Vec::new();
    if at.rank == root {
        for leader in at.leaders().filter(|leader| !own.contains(leader)) {
            sent.push(turn.send(world, part, leader)?);
        }
    }
    let from = if own.contains(&root) { root } else { own[0] };
    if at.rank == from && from != root {
        complete(world, turn.receive(world, part, root)?).await?;
    }
    native_bcast(at, part, at.native_rank(from as Int).expect("of this group")).await?;
    all(world, sent).await
}

pub(super) async fn gather(world: W, at: Rc<Comm>, own: Part, into: Vec<Part>, root: Int) -> Res {
    check_root(&at, root)?;
    if at.remote.is_some() {
        return inter::gather(world, at, own, into, root).await;
    }
    let turn = turn(at.clone()).await;
    let root = root as usize;
    if at.rank != root {
        return complete(world, turn.send(world, own, root)?).await;
    }
    let others = (0..at.size()).filter(|rank| *rank != root);
    let coming = others.map(|rank| turn.receive(world, into[rank], rank)).collect::<Res<_>>()?;
    if !in_place(&own) {
        copy(own, into[root]);
    }
    all(world, coming).await
}

pub(super) async fn scatter(world: W, at: Rc<Comm>, from: Vec<Part>, own: Part, root: Int) -> Res {
    check_root(&at, root)?;
    if at.remote.is_some() {
        return inter::scatter(world, at, from, own, root).await;
    }
    let turn = turn(at.clone()).await;
    scatter_in(world, &turn, from, own, root as usize).await
}

/// A scatter as a part of a collective.
pub(super) async fn scatter_in(world: W, turn: &Turn, from: Vec<Part>, own: Part, root: usize) -> Res {
    let at = &turn.comm;
    if at.rank != root {
        return complete(world, turn.receive(world, own, root)?).await;
    }
    let others = (0..at.size()).filter(|rank| *rank != root);
    let going = others.map(|rank| turn.send(world, from[rank], rank)).collect::<Res<_>>()?;
    if !in_place(&own) {
        copy(from[root], own);
    }
    all(world, going).await
}
