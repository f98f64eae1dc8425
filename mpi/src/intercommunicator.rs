//! Intercommunicators: two groups of processes, either of which may lie in several recovery groups.
//!
//! The handle is a native communicator of those of both groups that are in this recovery group, in the order of their
//! world ranks; so native messages and attributes serve here, too.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W, engine};
use crate::communicator::Comm;
use crate::create::{adopt, context, native_subsets, settle};
use crate::datatype::Part;
use crate::world::aside;

use std::rc::Rc;

/// Exchanges words with the other side's leader over a communicator that has both.
fn between_leaders(world: W, peer_comm: MPI_Comm, leader: Int, tag: Int, own: &[Int]) -> Res<Vec<Int>> {
    let message = |words: &mut [Int], send: bool| {
        let part = Part::new(words.as_mut_ptr().cast(), size_of_val(words) as Int, handles().byte);
        collective::calls::direct(world, peer_comm, part, leader, tag, send)
    };
    let (mut own, mut count, mut length) = (own.to_vec(), [0], [own.len() as Int]);
    // Sends of few bytes first: the native ones do not wait, and those between groups are copied.
    let sent = message(&mut length, true)?;
    let come = message(&mut count, false)?;
    world.wait_until(|| sent.ready(world) & come.ready(world));
    let mut words = vec![0; count[0] as usize];
    let sent = message(&mut own, true)?;
    let come = message(&mut words, false)?;
    world.wait_until(|| sent.ready(world) & come.ready(world));
    Ok(words)
}

/// Tells all members of the leader's side what the leader has.
fn within(world: W, local: &Rc<Comm>, leader: Int, mut words: Vec<Int>) -> Res<Vec<Int>> {
    let mut length = [words.len() as Int];
    let bytes = |words: &mut [Int]| Part::new(words.as_mut_ptr().cast(), size_of_val(words) as Int, handles().byte);
    broadcast(world, local, bytes(&mut length), leader)?;
    words.resize(length[0] as usize, 0);
    broadcast(world, local, bytes(&mut words), leader)?;
    Ok(words)
}

fn broadcast(world: W, local: &Rc<Comm>, part: Part, leader: Int) -> Res {
    if local.engine == handles().no_comm {
        collective::meet(world, local.handle);
        return check(aside(|| native().MPI_Bcast(part.at, part.count, part.datatype, leader, local.handle)));
    }
    world.carry_out(collective::calls::broadcast(world, local.clone(), part, leader))
}

/// Native communicators, and for collectives, of those of `ranks` that are in this group, by world rank. All of them call.
fn bridge(world: W, ranks: &[u32], tag: Int) -> Res<(MPI_Comm, MPI_Comm)> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    collective::meet_some(world, &ranks, tag)?;
    settle(world);
    let mut made = [handles().no_comm; 2];
    native_subsets(world, handles().world, &ranks, tag, &mut made)?;
    Ok(made.into())
}

fn hash(one: &[u32], other: &[u32], more: u64) -> u64 {
    // The same for both sides.
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    let words: Vec<u64> = first.iter().chain(&[u32::MAX]).chain(second).map(|rank| u64::from(*rank)).collect();
    context(more, &words)
}

fn connected(world: W, made: (MPI_Comm, MPI_Comm), context: u64, local: Vec<u32>, remote: Vec<u32>) -> MPI_Comm {
    world.register(Comm::new(world, made, context, local, Some(remote)));
    made.0
}

fn as_words(ranks: &[u32]) -> Vec<Int> {
    ranks.iter().map(|rank| *rank as Int).collect()
}

fn as_ranks(words: &[Int]) -> Vec<u32> {
    words.iter().map(|word| *word as u32).collect()
}

fn create_between(
    world: W,
    local: &Rc<Comm>,
    leader: Int,
    peer_comm: MPI_Comm,
    remote_leader: Int,
    tag: Int,
) -> Res<MPI_Comm> {
    // How often these two have been connected tells this connection from the one before.
    let mut words = Vec::new();
    if local.rank as Int == leader {
        words = between_leaders(world, peer_comm, remote_leader, tag, &as_words(&local.members))?;
    }
    let remote = as_ranks(&within(world, local, leader, words)?);
    let who = hash(&local.members, &remote, tag as u64);
    let times = {
        let mut created = world.created.borrow_mut();
        let times = created.entry(who).or_default();
        *times += 1;
        *times
    };
    let all: Vec<u32> = local.members.iter().chain(&remote).copied().collect();
    let made = bridge(world, &all, (who >> 40) as Int & 0x7fff)?;
    Ok(connected(world, made, context(who, &[times]), local.members.clone(), remote))
}

/// What all of the own and all of the remote side say, in as many words each.
fn tables(world: W, at: &Rc<Comm>, own: &[Int]) -> Res<(Vec<Int>, Vec<Int>)> {
    let byte = handles().byte;
    let part = |words: &mut [Int]| Part::new(words.as_mut_ptr().cast(), size_of_val(words) as Int, byte);
    let (remote_size, width) = (at.peers().len(), own.len());
    let gather = |mut from: Vec<Int>, width: usize| {
        let mut words = vec![0; width * remote_size];
        let into: Vec<Part> = words.chunks_mut(width.max(1)).map(&part).collect();
        world.carry_out(collective::calls::gathered(world, at.clone(), part(&mut from), into)).map(|()| words)
    };
    let remote = gather(own.to_vec(), width)?;
    // Each says back what it has heard; the first of the other side says what this side said.
    let heard = collective::calls::reflected(world, at.clone(), &remote, width * at.size())?;
    Ok((heard, remote))
}

/// Splits: those of both sides with one color are connected.
pub fn split(world: W, at: &Rc<Comm>, color: Int, key: Int) -> Res<MPI_Comm> {
    let (local, remote) = tables(world, at, &[color, key])?;
    let mut handle = handles().no_comm;
    let context = at.next_context(color as u32 as u64);
    let chosen = |table: &[Int], ranks: &[u32]| {
        let mut chosen: Vec<(Int, usize)> =
            (0..ranks.len()).filter(|at| table[2 * at] == color).map(|at| (table[2 * at + 1], at)).collect();
        chosen.sort_unstable();
        chosen.into_iter().map(|(_, at)| ranks[at]).collect::<Vec<_>>()
    };
    let (members, others) = (chosen(&local, &at.members), chosen(&remote, at.peers()));
    let alone = color == MPI_UNDEFINED || others.is_empty();
    settle(world);
    let color = if alone { MPI_UNDEFINED } else { color };
    check(aside(|| native().MPI_Comm_split(at.handle, color, world.rank as Int, &mut handle)))?;
    if alone {
        return Ok(handles().no_comm);
    }
    Ok(connected(world, (handle, engine(handle)), context, members, others))
}

/// Connects subsets of both sides.
pub fn create(world: W, at: &Rc<Comm>, ranks: &[u32]) -> Res<MPI_Comm> {
    // The place in the subset is the key; who is not in it has no color.
    let place = ranks.iter().position(|rank| *rank == world.rank);
    split(world, at, place.map_or(MPI_UNDEFINED, |_| 0), place.unwrap_or(0) as Int)
}

/// One communicator of both sides; `high` comes last.
fn merge(world: W, at: &Rc<Comm>, high: bool) -> Res<MPI_Comm> {
    let (_, remote) = tables(world, at, &[high.into()])?;
    let first = match (high, remote[0] != 0) {
        (false, true) => true,
        (true, false) => false,
        _ => at.members[0] < at.peers()[0],
    };
    let (one, other) = if first { (&at.members[..], at.peers()) } else { (at.peers(), &at.members[..]) };
    let members: Vec<u32> = one.iter().chain(other).copied().collect();
    let place = members.iter().position(|rank| *rank == world.rank).expect("this rank is on one of the sides");
    let mut handle = handles().no_comm;
    settle(world);
    check(aside(|| native().MPI_Comm_split(at.handle, 0, place as Int, &mut handle)))?;
    adopt(world, handle, at.next_context(3 << 40), members, None)
}

export! {
    fn MPI_Intercomm_create(local_comm: MPI_Comm, local_leader: Int, bridge_comm: MPI_Comm, remote_leader: Int, tag: Int, newintercomm: *mut MPI_Comm) on local_comm => |w| {
        match w.find_any(local_comm) {
            Some(local) if local.remote.is_none() => {
                if !(0..local.size() as Int).contains(&local_leader) {
                    return fail(MPI_ERR_RANK);
                }
                put(newintercomm, create_between(w, &local, local_leader, bridge_comm, remote_leader, tag)?);
                Ok(())
            }
            _ => fail(MPI_ERR_COMM),
        }
    };
    fn MPI_Intercomm_merge(intercomm: MPI_Comm, high: Int, newcomm: *mut MPI_Comm) for intercomm => |w, at| {
        if at.remote.is_none() {
            return fail(MPI_ERR_COMM);
        }
        put(newcomm, merge(w, &at, high != 0)?);
        Ok(())
    };
}
