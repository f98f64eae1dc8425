//! The collectives as MPI names them: each blocking, and nonblocking.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::reduce::Reduction;
use super::*;
use std::ffi::c_void;

type In = *const c_void;
type Out = *mut c_void;
type Counts = *const Int;
type Types = *const MPI_Datatype;

/// Exports a collective under both of its names.
macro_rules! collectives {
    ($($blocking:ident $nonblocking:ident($($arg:ident: $type:ty),*) |$w:ident, $at:ident| $task:expr;)*) => {
        export! {
            $(
                fn $blocking($($arg: $type,)* comm: MPI_Comm) collective comm => |$w, $at| {
                    $w.outcomes.flush($w);
                    $w.carry_out($task)
                };
                fn $nonblocking($($arg: $type,)* comm: MPI_Comm, request: *mut MPI_Request) for comm => |$w, $at| {
                    let task = $task;
                    put(request, start($w, $at.clone(), task));
                    Ok(())
                };
            )*
        }
    };
}

/// Members of the group that a rooted collective gathers from or scatters to, at its root; nobody elsewhere.
fn at_root(at: &Comm, root: Int) -> usize {
    let is_root = if at.remote.is_some() { root == MPI_ROOT } else { root == at.rank as Int };
    if is_root { at.peers().len() } else { 0 }
}

/// The part at the root that a rooted collective does not use, or in an intercommunicator has no meaning.
fn own(at: In, count: Int, datatype: MPI_Datatype) -> Part {
    Part::new(at, count, datatype)
}

/// `from`, or `None` for `MPI_IN_PLACE`.
fn unless_in_place(base: In, blocks: impl FnOnce() -> Vec<Part>) -> Option<Vec<Part>> {
    (base != IN_PLACE).then(blocks)
}

fn places(at: &Comm) -> (usize, usize) {
    at.neighbours().map_or((0, 0), |neighbours| (neighbours.sources.len(), neighbours.destinations.len()))
}

fn same(count: Int, at: &Comm) -> Vec<Int> {
    vec![count; at.size()]
}

/// A broadcast for other modules.
pub async fn broadcast(world: W, at: Rc<Comm>, part: Part, root: Int) -> Res {
    rooted::bcast(world, at, part, root).await
}

/// An allgather for other modules.
pub async fn gathered(world: W, at: Rc<Comm>, own: Part, into: Vec<Part>) -> Res {
    exchange::allgather(world, at, own, into).await
}

/// In an intercommunicator: what the first rank of the other side has heard from this one.
pub fn reflected(world: W, at: Rc<Comm>, heard: &[Int], words: usize) -> Res<Vec<Int>> {
    let mut told = vec![0; words];
    let bytes = |at: In, words: usize| Part::new(at, (words * size_of::<Int>()) as Int, handles().byte);
    let own = bytes(heard.as_ptr().cast(), heard.len());
    let into = bytes(told.as_mut_ptr().cast(), words);
    world.carry_out(async {
        let turn = turn(at.clone()).await;
        let mut messages = vec![turn.receive(world, into, 0)?];
        if at.rank == 0 {
            for peer in 0..at.peers().len() {
                messages.push(turn.send(world, own, peer)?);
            }
        }
        all(world, messages).await
    })?;
    Ok(told)
}

/// A message on a communicator, native or ours, that does not meet the program's where it is ours.
pub fn direct(world: W, comm: MPI_Comm, part: Part, peer: Int, tag: Int, send: bool) -> Res<Rc<Operation>> {
    let Some(at) = world.find_any(comm) else { return fail(MPI_ERR_COMM) };
    if !(0..at.peers().len() as Int).contains(&peer) {
        return fail(MPI_ERR_RANK);
    }
    let lane = if at.engine == handles().no_comm { Lane::Program } else { Lane::Collective };
    let role = if send { Role::Send(Mode::Standard) } else { Role::Receive };
    // Tags of collectives are below this one.
    let tag = if lane == Lane::Collective { 65_536 + tag % 65_536 } else { tag };
    let operation = Rc::new(Operation::new(role, Some(at), lane, part, Held::borrowed(part.datatype), peer, tag));
    operation.start(world)?;
    Ok(operation)
}

collectives! {
    MPI_Barrier MPI_Ibarrier() |w, at| rooted::barrier(w, at.clone());
    MPI_Bcast MPI_Ibcast(buffer: Out, count: Int, datatype: MPI_Datatype, root: Int) |w, at|
        rooted::bcast(w, at.clone(), Part::new(buffer, count, datatype), root);
    MPI_Gather MPI_Igather(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype, root: Int) |w, at|
        rooted::gather(w, at.clone(), own(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype, at_root(&at, root)), root);
    MPI_Gatherv MPI_Igatherv(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: Counts, displs: Counts, recvtype: MPI_Datatype, root: Int) |w, at|
        rooted::gather(w, at.clone(), own(sendbuf, sendcount, sendtype), varied(recvbuf, recvcounts, displs, recvtype, at_root(&at, root)), root);
    MPI_Scatter MPI_Iscatter(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype, root: Int) |w, at|
        rooted::scatter(w, at.clone(), uniform(sendbuf, sendcount, sendtype, at_root(&at, root)), own(recvbuf, recvcount, recvtype), root);
    MPI_Scatterv MPI_Iscatterv(sendbuf: In, sendcounts: Counts, displs: Counts, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype, root: Int) |w, at|
        rooted::scatter(w, at.clone(), varied(sendbuf, sendcounts, displs, sendtype, at_root(&at, root)), own(recvbuf, recvcount, recvtype), root);
    MPI_Allgather MPI_Iallgather(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype) |w, at|
        exchange::allgather(w, at.clone(), own(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype, at.peers().len()));
    MPI_Allgatherv MPI_Iallgatherv(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: Counts, displs: Counts, recvtype: MPI_Datatype) |w, at|
        exchange::allgather(w, at.clone(), own(sendbuf, sendcount, sendtype), varied(recvbuf, recvcounts, displs, recvtype, at.peers().len()));
    MPI_Alltoall MPI_Ialltoall(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype) |w, at|
        exchange::alltoall(w, at.clone(), unless_in_place(sendbuf, || uniform(sendbuf, sendcount, sendtype, at.peers().len())),
            uniform(recvbuf, recvcount, recvtype, at.peers().len()));
    MPI_Alltoallv MPI_Ialltoallv(sendbuf: In, sendcounts: Counts, sdispls: Counts, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: Counts, rdispls: Counts, recvtype: MPI_Datatype) |w, at|
        exchange::alltoall(w, at.clone(), unless_in_place(sendbuf, || varied(sendbuf, sendcounts, sdispls, sendtype, at.peers().len())),
            varied(recvbuf, recvcounts, rdispls, recvtype, at.peers().len()));
    MPI_Alltoallw MPI_Ialltoallw(sendbuf: In, sendcounts: Counts, sdispls: Counts, sendtypes: Types, recvbuf: Out, recvcounts: Counts, rdispls: Counts, recvtypes: Types) |w, at|
        exchange::alltoall(w, at.clone(), unless_in_place(sendbuf, || general(sendbuf, sendcounts, sdispls, sendtypes, at.peers().len())),
            general(recvbuf, recvcounts, rdispls, recvtypes, at.peers().len()));
    MPI_Reduce MPI_Ireduce(sendbuf: In, recvbuf: Out, count: Int, datatype: MPI_Datatype, op: MPI_Op, root: Int) |w, at|
        reduce::reduce(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op }, root);
    MPI_Allreduce MPI_Iallreduce(sendbuf: In, recvbuf: Out, count: Int, datatype: MPI_Datatype, op: MPI_Op) |w, at|
        reduce::allreduce(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op });
    MPI_Scan MPI_Iscan(sendbuf: In, recvbuf: Out, count: Int, datatype: MPI_Datatype, op: MPI_Op) |w, at|
        reduce::scan(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op }, true);
    MPI_Exscan MPI_Iexscan(sendbuf: In, recvbuf: Out, count: Int, datatype: MPI_Datatype, op: MPI_Op) |w, at|
        reduce::scan(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op }, false);
    MPI_Reduce_scatter MPI_Ireduce_scatter(sendbuf: In, recvbuf: Out, recvcounts: Counts, datatype: MPI_Datatype, op: MPI_Op) |w, at| {
        let counts = slice(recvcounts, at.size() as Int).to_vec();
        let count = in_all(&counts)?;
        reduce::reduce_scatter(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op }, counts)
    };
    MPI_Reduce_scatter_block MPI_Ireduce_scatter_block(sendbuf: In, recvbuf: Out, recvcount: Int, datatype: MPI_Datatype, op: MPI_Op) |w, at| {
        let counts = same(recvcount, &at);
        let count = in_all(&counts)?;
        reduce::reduce_scatter(w, at.clone(), Reduction { own: sendbuf, into: recvbuf, count, datatype, op }, counts)
    };
    MPI_Neighbor_allgather MPI_Ineighbor_allgather(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype) |w, at|
        neighbour::allgather(w, at.clone(), own(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype, places(&at).0));
    MPI_Neighbor_allgatherv MPI_Ineighbor_allgatherv(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: Counts, displs: Counts, recvtype: MPI_Datatype) |w, at|
        neighbour::allgather(w, at.clone(), own(sendbuf, sendcount, sendtype), varied(recvbuf, recvcounts, displs, recvtype, places(&at).0));
    MPI_Neighbor_alltoall MPI_Ineighbor_alltoall(sendbuf: In, sendcount: Int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: Int, recvtype: MPI_Datatype) |w, at|
        neighbour::alltoall(w, at.clone(), uniform(sendbuf, sendcount, sendtype, places(&at).1), uniform(recvbuf, recvcount, recvtype, places(&at).0));
    MPI_Neighbor_alltoallv MPI_Ineighbor_alltoallv(sendbuf: In, sendcounts: Counts, sdispls: Counts, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: Counts, rdispls: Counts, recvtype: MPI_Datatype) |w, at|
        neighbour::alltoall(w, at.clone(), varied(sendbuf, sendcounts, sdispls, sendtype, places(&at).1), varied(recvbuf, recvcounts, rdispls, recvtype, places(&at).0));
    MPI_Neighbor_alltoallw MPI_Ineighbor_alltoallw(sendbuf: In, sendcounts: Counts, sdispls: *const MPI_Aint, sendtypes: Types, recvbuf: Out, recvcounts: Counts, rdispls: *const MPI_Aint, recvtypes: Types) |w, at|
        neighbour::alltoall(w, at.clone(), general(sendbuf, sendcounts, sdispls, sendtypes, places(&at).1), general(recvbuf, recvcounts, rdispls, recvtypes, places(&at).0));
}

fn in_all(counts: &[Int]) -> Res<Int> {
    Int::try_from(counts.iter().map(|count| i64::from(*count)).sum::<i64>()).or_else(|_| fail(MPI_ERR_COUNT))
}

/// Frees what nonblocking collectives may still use once they are over.
fn when_over<T: Copy + 'static>(world: W, at: *mut T, nothing: T, free: impl Fn(*mut T) -> Int + 'static) -> Res {
    if !world.collectives_pending() {
        return check(free(at));
    }
    later(world, at, nothing, free);
    Ok(())
}

/// Frees it when those that are under way are over.
pub fn later<T: Copy + 'static>(world: &World, at: *mut T, nothing: T, free: impl Fn(*mut T) -> Int + 'static) {
    let mut freed = take(at);
    put(at, nothing);
    world.defer(Box::new(move || _ = free(&raw mut freed)));
}

mod freed {
    use super::*;
    export! {
        fn MPI_Op_free(op: *mut MPI_Op) => |w| when_over(w, op, handles().no_op, |op| native().MPI_Op_free(op));
        fn MPI_Type_free(datatype: *mut MPI_Datatype) => |w|
            when_over(w, datatype, handles().no_type, |datatype| native().MPI_Type_free(datatype));
    }
}
pub use freed::EXPORTED as FREED;
