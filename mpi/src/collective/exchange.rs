//! Allgather and alltoall: each rank with each other.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::datatype::copy;

/// Sends to, and receives from, the others in the order of their distance.
async fn with_all(world: W, turn: &Turn, from: impl Fn(usize) -> Part, into: impl Fn(usize) -> Part) -> Res {
    let at = &turn.comm;
    let (size, rank) = (at.peers().len(), at.rank);
    // Of an intercommunicator all are others.
    let distances = if at.remote.is_some() { 0..size } else { 1..size };
    let mut messages = Vec::new();
    for distance in distances.clone() {
        let peer = (rank + size - distance % size) % size;
        messages.push(turn.receive(world, into(peer), peer)?);
    }
    for distance in distances {
        let peer = (rank + distance) % size;
        messages.push(turn.send(world, from(peer), peer)?);
    }
    all(world, messages).await
}

pub(super) async fn allgather(world: W, at: Rc<Comm>, own: Part, into: Vec<Part>) -> Res {
    let turn = turn(at.clone()).await;
    let inter = at.remote.is_some();
    let own = if in_place(&own) && !inter { into[at.rank] } else { own };
    if !inter {
        copy(own, into[at.rank]);
    }
    with_all(world, &turn, |_| own, |peer| into[peer]).await
}

/// With `from` in place, what goes lies where what comes will.
pub(super) async fn alltoall(world: W, at: Rc<Comm>, from: Option<Vec<Part>>, into: Vec<Part>) -> Res {
    let turn = turn(at.clone()).await;
    match from {
        Some(from) => {
            if at.remote.is_none() {
                copy(from[at.rank], into[at.rank]);
            }
            with_all(world, &turn, |peer| from[peer], |peer| into[peer]).await
        }
        None => {
            let copies: Vec<Vec<u8>> = into.iter().map(|part| part.contents().into_owned()).collect();
            let packed = copies.iter().map(|copy| Part::packed(copy)).collect::<Res<Vec<_>>>()?;
            with_all(world, &turn, |peer| packed[peer], |peer| into[peer]).await
        }
    }
}
