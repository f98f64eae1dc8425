//! New communicators: duplicates, splits, subsets; and their end.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W, engine};
use crate::communicator::Comm;
use crate::group::with_native;
use crate::world::{World, aside};
use mpi_ranks::Topology;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How long duplicates may keep up who makes another communicator.
const SETTLING: Duration = Duration::from_secs(1);

/// The context of a new communicator: from its parent's and from what tells it from its siblings. The same at all
/// members and in a replay, without a message.
pub fn context(parent: u64, what: &[u64]) -> u64 {
    let bytes: Vec<u8> = what.iter().flat_map(|word| word.to_le_bytes()).collect();
    (xxh3_64_with_seed(&bytes, parent) & !1).max(4)
}

impl Comm {
    /// The context of the next communicator that all members create of it; `which` tells simultaneous ones apart.
    pub fn next_context(&self, which: u64) -> u64 {
        self.created.set(self.created.get() + 1);
        context(self.context, &[self.created.get(), which])
    }
}

/// Makes a native communicator one of ours, unless all of its members are in this group: then it stays native.
pub fn adopt(
    world: &World,
    handle: MPI_Comm,
    context: u64,
    members: Vec<u32>,
    topology: Option<Topology>,
) -> Res<MPI_Comm> {
    if !world.spans(&members) {
        return match topology {
            Some(topology) => crate::topology::natively(&topology, handle),
            None => Ok(handle),
        };
    }
    let mut comm = Comm::new(world, (handle, engine(handle)), context, members, None);
    comm.topology = topology;
    world.register(comm);
    Ok(handle)
}

/// A split, with the topology that a color's communicator gets.
pub fn split(world: W, at: &Rc<Comm>, color: Int, key: Int, topology: Option<Topology>) -> Res<MPI_Comm> {
    if at.remote.is_some() {
        return crate::intercommunicator::split(world, at, color, key);
    }
    let all = collective::gather_words(world, at, &[color, key])?;
    let mut handle = handles().no_comm;
    settle(world);
    check(aside(|| native().MPI_Comm_split(at.handle, color, key, &mut handle)))?;
    let context = at.next_context(color as u32 as u64);
    if color == MPI_UNDEFINED {
        return Ok(handle);
    }
    let mut chosen: Vec<(Int, usize)> =
        (0..at.size()).filter(|rank| all[2 * rank] == color).map(|rank| (all[2 * rank + 1], rank)).collect();
    chosen.sort_unstable();
    let members = chosen.into_iter().map(|(_, rank)| at.members[rank]).collect();
    adopt(world, handle, context, members, topology)
}

/// All members of a communicator in this group come, to make another one natively.
fn meet(world: W, comm: MPI_Comm) -> Res {
    match world.find(comm) {
        Some(at) => world.carry_out(collective::gather(at))?,
        None => collective::meet(world, comm),
    }
    settle(world);
    Ok(())
}

fn duplicate(world: W, at: &Rc<Comm>, handle: MPI_Comm) -> Res {
    let context = at.next_context(0);
    let mut comm = Comm::new(world, (handle, engine(handle)), context, at.members.clone(), at.remote.clone());
    comm.topology = at.topology.clone();
    world.register(comm);
    Ok(())
}

/// A duplicate that is made while the program goes on.
async fn duplicate_later(world: W, at: Rc<Comm>, newcomm: *mut MPI_Comm, context: u64) -> Res {
    let _turn = collective::turn(at.clone()).await;
    let (mut request, mut second) = (handles().no_request, handles().no_request);
    // Both are begun before either is waited for; the second place stays while the task lives.
    let engine: Box<std::cell::Cell<MPI_Comm>> = Box::new(std::cell::Cell::new(handles().no_comm));
    check(native().MPI_Comm_idup(at.handle, newcomm, &mut request))?;
    untold(native().MPI_Comm_idup(at.engine, engine.as_ptr(), &mut second))?;
    crate::progress::complete_native(request).await?;
    crate::progress::complete_native(second).await?;
    let pair = (take(newcomm), collective::returning(engine.get()));
    let mut comm = Comm::new(world, pair, context, at.members.clone(), at.remote.clone());
    comm.topology = at.topology.clone();
    world.register(comm);
    Ok(())
}

/// Before a native communicator is made of those who have met: duplicates that were begun before it are made first, since the
/// native library numbers communicators in an order of its own, and a rank that waits in it carries nothing of ours on. A
/// duplicate whose other members come later is not waited for.
pub fn settle(world: W) {
    let begun = Instant::now();
    world.wait_until(|| world.duplicates.get() == 0 || begun.elapsed() > SETTLING);
}

fn create(world: W, at: &Rc<Comm>, ranks: &[u32], newcomm: *mut MPI_Comm) -> Res {
    if at.remote.is_some() {
        put(newcomm, crate::intercommunicator::create(world, at, ranks)?);
        return Ok(());
    }
    if ranks.iter().any(|rank| !at.members.contains(rank)) {
        return fail(MPI_ERR_GROUP);
    }
    meet(world, at.handle)?;
    with_native(world, ranks, |group| native().MPI_Comm_create(at.handle, group, newcomm))?;
    let context = at.next_context(1 << 40 | ranks.first().map_or(0, |rank| u64::from(*rank)));
    if ranks.contains(&world.rank) {
        put(newcomm, adopt(world, take(newcomm), context, ranks.to_vec(), None)?);
    }
    Ok(())
}

/// Only the members of the group call this: how often they have is counted by who they are.
fn create_group(world: W, comm: MPI_Comm, ranks: &[u32], tag: Int, newcomm: *mut MPI_Comm) -> Res {
    collective::meet_some(world, ranks, tag)?;
    settle(world);
    let mut made = [handles().no_comm; 2];
    // Where it stays native, one is enough.
    let made = if world.spans(ranks) { &mut made[..] } else { &mut made[..1] };
    native_subsets(world, comm, ranks, tag, made)?;
    put(newcomm, made[0]);
    let at = world.find(comm).filter(|_| ranks.contains(&world.rank));
    let (Some(at), &mut [handle, engine]) = (at, made) else { return Ok(()) };
    let words: Vec<u64> = ranks.iter().map(|rank| u64::from(*rank)).collect();
    let who = context(at.context, &[&[2 << 40 | tag as u64], words.as_slice()].concat());
    let times = {
        let mut created = world.created.borrow_mut();
        let times = created.entry(who).or_default();
        *times += 1;
        *times
    };
    let pair = (handle, collective::returning(engine));
    world.register(Comm::new(world, pair, context(who, &[times]), ranks.to_vec(), None));
    Ok(())
}

/// Native communicators of those of `ranks` that are in this group. All are of the same parent: one of a new communicator
/// would be made after duplicates of the parent that are under way, which may wait for those who call this.
///
/// # Errors
/// What the native library says.
pub fn native_subsets(world: W, parent: MPI_Comm, ranks: &[u32], tag: Int, made: &mut [MPI_Comm]) -> Res {
    with_native(world, ranks, |group| {
        let mut make = |new: &mut MPI_Comm| native().MPI_Comm_create_group(parent, group, tag, new);
        made.iter_mut().map(&mut make).find(|code| *code != MPI_SUCCESS).unwrap_or(MPI_SUCCESS)
    })
}

fn free(world: &World, comm: *mut MPI_Comm) -> Res {
    let Some(at) = world.find(take(comm)) else {
        world.forget_native(take(comm));
        return check(aside(|| native().MPI_Comm_free(comm)));
    };
    let (begun, ended) = at.tickets.get();
    if begun != ended {
        // Collectives that are under way come to their end.
        collective::calls::later(world, comm, handles().no_comm, |comm| native().MPI_Comm_free(comm));
    } else {
        // Callbacks that delete its attributes may use it.
        check(aside(|| native().MPI_Comm_free(comm)))?;
    }
    at.is_freed.set(true);
    world.forget(&at);
    Ok(())
}

export! {
    fn MPI_Comm_dup(comm: MPI_Comm, newcomm: *mut MPI_Comm) collective comm => |w, at| {
        meet(w, comm)?;
        check(aside(|| native().MPI_Comm_dup(comm, newcomm)))?;
        duplicate(w, &at, take(newcomm))
    };
    fn MPI_Comm_dup_with_info(comm: MPI_Comm, info: MPI_Info, newcomm: *mut MPI_Comm) collective comm => |w, at| {
        meet(w, comm)?;
        check(aside(|| native().MPI_Comm_dup_with_info(comm, info, newcomm)))?;
        duplicate(w, &at, take(newcomm))
    };
    fn MPI_Comm_idup(comm: MPI_Comm, newcomm: *mut MPI_Comm, request: *mut MPI_Request) for comm => |w, at| {
        let context = at.next_context(0);
        w.duplicates.set(w.duplicates.get() + 1);
        let task = duplicate_later(w, at.clone(), newcomm, context);
        put(request, collective::start(w, at, async move {
            let end = task.await;
            w.duplicates.set(w.duplicates.get() - 1);
            end
        }));
        Ok(())
    };
    fn MPI_Comm_split(comm: MPI_Comm, color: Int, key: Int, newcomm: *mut MPI_Comm) collective comm => |w, at| {
        if color < 0 && color != MPI_UNDEFINED {
            return fail(MPI_ERR_ARG);
        }
        put(newcomm, split(w, &at, color, key, None)?);
        Ok(())
    };
    // What shares memory, a cache or a core lies within one node, and so within one group.
    fn MPI_Comm_split_type(comm: MPI_Comm, split_type: Int, key: Int, info: MPI_Info, newcomm: *mut MPI_Comm) collective comm => |w, at| {
        if at.remote.is_some() || !(split_type == MPI_UNDEFINED || crate::refused::within_a_node(split_type)) {
            return refuse("MPI_Comm_split_type", "split by MPI_COMM_TYPE_SHARED, or by a color");
        }
        meet(w, comm)?;
        check(aside(|| native().MPI_Comm_split_type(comm, split_type, key, info, newcomm)))
    };
    fn MPI_Comm_create(comm: MPI_Comm, group: MPI_Group, newcomm: *mut MPI_Comm) on comm => |w| {
        let ranks = w.group(group)?;
        if let Some(at) = w.find(comm) {
            return create(w, &at, &ranks, newcomm);
        }
        meet(w, comm)?;
        with_native(w, &ranks, |group| native().MPI_Comm_create(comm, group, newcomm))
    };
    fn MPI_Comm_create_group(comm: MPI_Comm, group: MPI_Group, tag: Int, newcomm: *mut MPI_Comm) on comm => |w| {
        create_group(w, comm, &w.group(group)?.clone(), tag, newcomm)
    };
    fn MPI_Comm_free(comm: *mut MPI_Comm) => |w| free(w, comm);
    fn MPI_Comm_disconnect(comm: *mut MPI_Comm) => |w| match w.find(take(comm)) {
        Some(_) => free(w, comm),
        None => {
            w.forget_native(take(comm));
            check(aside(|| native().MPI_Comm_disconnect(comm)))
        }
    };
}
