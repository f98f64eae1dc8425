//! Reductions: natively within each group, then the groups in the order of their first members.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::datatype::{Scratch, copy};

/// What is reduced, and how.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    /// This rank's elements, or `MPI_IN_PLACE`.
    pub own: *const c_void,
    /// Where the result goes.
    pub into: *mut c_void,
    pub count: Int,
    pub datatype: MPI_Datatype,
    pub op: MPI_Op,
}

impl Reduction {
    fn checked(self) -> Res<Self> {
        match self {
            Reduction { count, .. } if count < 0 => fail(MPI_ERR_COUNT),
            Reduction { datatype, .. } if datatype == handles().no_type => fail(MPI_ERR_TYPE),
            Reduction { op, .. } if op == handles().no_op => fail(MPI_ERR_OP),
            _ => Ok(self),
        }
    }

    /// This rank's elements: in place, they lie where the result goes.
    fn own(&self) -> Part {
        Part::new(if self.own == IN_PLACE { self.into } else { self.own }, self.count, self.datatype)
    }

    fn place(&self) -> Part {
        Part::new(self.into, self.count, self.datatype)
    }

    fn scratch(&self) -> Scratch {
        Scratch::new(self.count, self.datatype)
    }

    /// `onto` becomes `first` op `onto`.
    pub fn apply(&self, first: Part, onto: Part) {
        native().MPI_Reduce_local(first.at, onto.at, self.count, self.datatype, self.op);
    }

    /// Whether groups may be reduced each by itself: the operation may change its order, or ranks of a group follow
    /// one another.
    fn by_group(&self, at: &Comm) -> bool {
        let mut commutes = 0;
        native().MPI_Op_commutative(self.op, &mut commutes);
        commutes != 0 || at.by_group.iter().all(|ranks| ranks.windows(2).all(|pair| pair[0] + 1 == pair[1]))
    }
}

pub(super) async fn reduce(world: W, at: Rc<Comm>, what: Reduction, root: Int) -> Res {
    check_root(&at, root)?;
    let what = what.checked()?;
    if at.remote.is_some() {
        return inter::reduce(world, at, what, root).await;
    }
    let turn = turn(at.clone()).await;
    let root = root as usize;
    match reduce_in(world, &turn, what).await? {
        // The first rank has the result.
        Some(result) if root == at.rank => copy(result.part(), what.place()),
        Some(result) => complete(world, turn.send(world, result.part(), root)?).await?,
        None if root == at.rank => complete(world, turn.receive(world, what.place(), 0)?).await?,
        None => {}
    }
    Ok(())
}

/// Reduces to the first rank of the communicator, which gets the result.
async fn reduce_in(world: W, turn: &Turn, what: Reduction) -> Res<Option<Scratch>> {
    let at = &turn.comm;
    if !what.by_group(at) {
        return in_rank_order(world, turn, what).await;
    }
    let own = what.scratch();
    let mut request = handles().no_request;
    let Reduction { count, datatype, op, .. } = what;
    untold(native().MPI_Ireduce(what.own().at, own.part().at, count, datatype, op, 0, at.engine, &mut request))?;
    complete_native(request).await?;
    if at.own_group()[0] != at.rank {
        return Ok(None);
    }
    if at.rank != 0 {
        complete(world, turn.send(world, own.part(), 0)?).await?;
        return Ok(None);
    }
    let mut parts = vec![own];
    let mut coming = Vec::new();
    for leader in at.leaders().filter(|leader| *leader != 0) {
        let part = what.scratch();
        coming.push(turn.receive(world, part.part(), leader)?);
        parts.push(part);
    }
    all(world, coming).await?;
    Ok(Some(fold(what, parts)))
}

/// Reduces parts in their order.
pub(super) fn fold(what: Reduction, mut parts: Vec<Scratch>) -> Scratch {
    let result = parts.pop().expect("at least one part");
    while let Some(part) = parts.pop() {
        what.apply(part.part(), result.part());
    }
    result
}

/// For operations that do not commute, over groups whose ranks lie between one another.
async fn in_rank_order(world: W, turn: &Turn, what: Reduction) -> Res<Option<Scratch>> {
    let at = &turn.comm;
    if at.rank != 0 {
        complete(world, turn.send(world, what.own(), 0)?).await?;
        return Ok(None);
    }
    let parts: Vec<Scratch> = (0..at.size()).map(|_| what.scratch()).collect();
    copy(what.own(), parts[0].part());
    let others = parts.iter().enumerate().skip(1);
    let coming = others.map(|(rank, part)| turn.receive(world, part.part(), rank)).collect::<Res<_>>()?;
    all(world, coming).await?;
    Ok(Some(fold(what, parts)))
}

pub(super) async fn allreduce(world: W, at: Rc<Comm>, what: Reduction) -> Res {
    let what = what.checked()?;
    if at.remote.is_some() {
        return inter::allreduce(world, at, what).await;
    }
    let turn = turn(at.clone()).await;
    if let Some(result) = reduce_in(world, &turn, what).await? {
        copy(result.part(), what.place());
    }
    rooted::bcast_in(world, &turn, what.place(), 0).await
}

/// `counts`: elements of the result at each rank.
pub(super) async fn reduce_scatter(world: W, at: Rc<Comm>, what: Reduction, counts: Vec<Int>) -> Res {
    let what = what.checked()?;
    if counts.iter().any(|count| *count < 0) {
        return fail(MPI_ERR_COUNT);
    }
    if at.remote.is_some() {
        return inter::reduce_scatter(world, at, what, counts).await;
    }
    let turn = turn(at.clone()).await;
    let result = reduce_in(world, &turn, what).await?;
    let own = Part::new(what.into, counts[at.rank], what.datatype);
    let blocks = result.as_ref().map_or_else(Vec::new, |result| cut(result.part(), &counts));
    rooted::scatter_in(world, &turn, blocks, own, 0).await
}

/// A part as blocks of `counts` elements.
pub(super) fn cut(part: Part, counts: &[Int]) -> Vec<Part> {
    let step = extent(part.datatype);
    let mut first = 0;
    counts
        .iter()
        .map(|count| {
            let block = Part::new(moved(part.at, first * step), *count, part.datatype);
            first += *count as isize;
            block
        })
        .collect()
}

/// Each rank gets the reduction of those before it, with or without itself: along the ranks.
pub(super) async fn scan(world: W, at: Rc<Comm>, what: Reduction, with_own: bool) -> Res {
    let what = what.checked()?;
    if at.remote.is_some() {
        return fail(MPI_ERR_COMM);
    }
    let turn = turn(at.clone()).await;
    let (before, sum) = (what.scratch(), what.scratch());
    copy(what.own(), sum.part());
    if at.rank > 0 {
        complete(world, turn.receive(world, before.part(), at.rank - 1)?).await?;
        what.apply(before.part(), sum.part());
    }
    if at.rank + 1 < at.size() {
        complete(world, turn.send(world, sum.part(), at.rank + 1)?).await?;
    }
    if with_own {
        copy(sum.part(), what.place());
    } else if at.rank > 0 {
        copy(before.part(), what.place());
    }
    Ok(())
}
