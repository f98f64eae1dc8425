//! Communicators: who belongs to one, where its messages wait, and the calls that ask about it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::group::comparison;
use crate::operation::Operation;
use crate::world::World;
use mpi_ranks::Topology;
use mpi_relay::{Body, Envelope};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;

/// A message from another group, that nobody has received yet.
pub struct Message {
    /// What is known of it.
    pub envelope: Envelope,
    /// Its contents.
    pub body: Body,
}

/// Which of a communicator's two lanes: messages of the program do not meet those of collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// The program's own messages.
    Program = 0,
    /// Messages of collectives.
    Collective = 1,
}

/// Receives that wait for a message, and messages that wait for a receive.
#[derive(Default)]
pub struct Queues {
    /// Receives that a message of another group may match, in the order in which they were posted.
    pub posted: RefCell<VecDeque<Rc<Operation>>>,
    /// Messages in the order in which they came.
    pub unexpected: RefCell<VecDeque<Message>>,
}

/// A communicator whose members are in several groups, or that has a topology of ours.
pub struct Comm {
    /// The native communicator of the members in this group; the program's handle.
    pub handle: MPI_Comm,
    /// A native communicator of the same members, for collectives; the handle of none for a thin one.
    pub engine: MPI_Comm,
    /// Number of the communicator, the same at all of its members; even.
    pub context: u64,
    /// This rank in the communicator (in its local group).
    pub rank: usize,
    /// World ranks of the members (of the local group).
    pub members: Vec<u32>,
    /// Of an intercommunicator: world ranks of the remote group.
    pub remote: Option<Vec<u32>>,
    /// For each rank that a message may go to its rank in `handle`, or `None` if it is in another group.
    native: Vec<Option<Int>>,
    /// For each rank of `handle` the rank by which the program knows it.
    known: Vec<Int>,
    /// The members by group: the groups in the order of their first members, and the ranks of each.
    pub by_group: Vec<Vec<usize>>,
    /// How many communicators have been created from it.
    pub created: Cell<u64>,
    /// Collectives that have begun, and those that have ended: they are carried out one after another.
    pub tickets: Cell<(u64, u64)>,
    /// Whether its owner has freed it: who holds it last (a file, a collective) frees its engine.
    pub is_freed: Cell<bool>,
    /// Its topology, if it has one.
    pub topology: Option<Topology>,
    /// Where messages and receives wait.
    pub lanes: [Queues; 2],
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.is_freed.get() && self.engine != handles().no_comm {
            crate::world::aside(|| native().MPI_Comm_free(&mut self.engine));
        }
    }
}

impl Comm {
    /// A communicator of `members` (and of `remote`, if it is an intercommunicator) over native communicators.
    ///
    /// `order` says the world ranks in the order of the native communicator.
    pub fn new(
        world: &World,
        handles: (MPI_Comm, MPI_Comm),
        context: u64,
        members: Vec<u32>,
        remote: Option<Vec<u32>>,
    ) -> Comm {
        let layout = &world.layout;
        let peers = remote.as_ref().unwrap_or(&members);
        // The native order is the communicator's own, or that of world ranks where it serves both of its groups.
        let mut order: Vec<u32> = members.iter().copied().filter(|rank| layout.native(*rank).is_some()).collect();
        if let Some(remote) = &remote {
            order.extend(remote.iter().filter(|rank| layout.native(**rank).is_some()));
            order.sort_unstable();
        }
        let native =
            peers.iter().map(|rank| order.iter().position(|other| other == rank).map(|at| at as Int)).collect();
        let known = order
            .iter()
            .map(|rank| peers.iter().position(|peer| peer == rank).map_or(MPI_UNDEFINED, |at| at as Int))
            .collect();
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, rank) in members.iter().enumerate() {
            let group = layout.group_of(*rank);
            match groups.iter_mut().find(|(other, _)| *other == group) {
                Some((_, ranks)) => ranks.push(at),
                None => groups.push((group, vec![at])),
            }
        }
        Comm {
            handle: handles.0,
            engine: handles.1,
            context,
            rank: members.iter().position(|rank| *rank == world.rank).expect("this rank is a member"),
            native,
            known,
            by_group: groups.into_iter().map(|(_, ranks)| ranks).collect(),
            members,
            remote,
            created: Cell::new(0),
            tickets: Cell::new((0, 0)),
            is_freed: Cell::default(),
            topology: None,
            lanes: Default::default(),
        }
    }

    /// A native communicator, known only for the sake of its receives from anybody; `None` if it is none.
    pub fn thin(world: &World, handle: MPI_Comm) -> Option<Comm> {
        let members = crate::group::members(world, handle)?;
        let context = u64::MAX - 1;
        members.contains(&world.rank).then(|| Comm::new(world, (handle, handles().no_comm), context, members, None))
    }

    /// Whether messages of other groups may come.
    pub fn spans(&self) -> bool {
        self.native.iter().any(Option::is_none)
    }

    /// Members (of the local group).
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// World ranks to which messages go.
    pub fn peers(&self) -> &[u32] {
        self.remote.as_deref().unwrap_or(&self.members)
    }

    /// The rank in the native communicator of a peer in this group.
    pub fn native_rank(&self, peer: Int) -> Option<Int> {
        self.native[peer as usize]
    }

    /// The rank by which the program knows a rank of the native communicator.
    pub fn known_rank(&self, native: Int) -> Int {
        self.known.get(native as usize).copied().unwrap_or(native)
    }

    /// The native communicator of a lane.
    pub fn native_handle(&self, lane: Lane) -> MPI_Comm {
        if lane == Lane::Program { self.handle } else { self.engine }
    }

    /// Ranks of this group's members.
    pub fn own_group(&self) -> &[usize] {
        self.by_group.iter().find(|ranks| ranks.contains(&self.rank)).expect("this rank is in one of the groups")
    }

    /// The first member of each group.
    pub fn leaders(&self) -> impl Iterator<Item = usize> + '_ {
        self.by_group.iter().map(|ranks| ranks[0])
    }

    /// A status of the native communicator, with the rank that the program knows.
    pub fn translated(&self, mut status: MPI_Status) -> MPI_Status {
        if status.MPI_SOURCE >= 0 {
            status.MPI_SOURCE = self.known_rank(status.MPI_SOURCE);
        }
        status
    }
}

fn compare(world: &World, one: MPI_Comm, other: MPI_Comm) -> Res<Int> {
    let none = handles().no_comm;
    if one == none || other == none {
        return fail(MPI_ERR_COMM);
    }
    if one == other {
        return Ok(MPI_IDENT as Int);
    }
    let congruent = |found| if found == MPI_IDENT as Int { MPI_CONGRUENT as Int } else { found };
    match (world.find_any(one), world.find_any(other)) {
        (Some(one), Some(other)) => match (&one.remote, &other.remote) {
            (None, None) => Ok(congruent(comparison(&one.members, &other.members))),
            (Some(a), Some(b)) => {
                let found = [comparison(&one.members, &other.members), comparison(a, b)];
                Ok(match found {
                    [a, b] if a == MPI_UNEQUAL as Int || b == MPI_UNEQUAL as Int => MPI_UNEQUAL as Int,
                    [a, b] if a == b => congruent(a),
                    _ => MPI_SIMILAR as Int,
                })
            }
            _ => Ok(MPI_UNEQUAL as Int),
        },
        _ => Ok(MPI_UNEQUAL as Int),
    }
}

export! {
    fn MPI_Comm_size(comm: MPI_Comm, size: *mut Int) for comm => |_w, at| {
        put(size, at.size() as Int);
        Ok(())
    };
    fn MPI_Comm_rank(comm: MPI_Comm, rank: *mut Int) for comm => |_w, at| {
        put(rank, at.rank as Int);
        Ok(())
    };
    fn MPI_Comm_test_inter(comm: MPI_Comm, flag: *mut Int) for comm => |_w, at| {
        put(flag, at.remote.is_some().into());
        Ok(())
    };
    fn MPI_Comm_remote_size(comm: MPI_Comm, size: *mut Int) for comm => |_w, at| match &at.remote {
        Some(remote) => {
            put(size, remote.len() as Int);
            Ok(())
        }
        None => fail(MPI_ERR_COMM),
    };
    fn MPI_Comm_compare(comm1: MPI_Comm, comm2: MPI_Comm, result: *mut Int) => |w| {
        put(result, compare(w, comm1, comm2)?);
        Ok(())
    };
    fn MPI_Comm_get_attr(comm: MPI_Comm, comm_keyval: Int, attribute_val: *mut c_void, flag: *mut Int) for comm => |w, _at| {
        check(native().MPI_Comm_get_attr(comm, comm_keyval, attribute_val, flag))?;
        if comm_keyval == MPI_UNIVERSE_SIZE as Int && take(flag) != 0 {
            put(attribute_val.cast::<*const Int>(), &raw const *w.universe);
        }
        Ok(())
    };
    fn MPI_Attr_get(comm: MPI_Comm, keyval: Int, attribute_val: *mut c_void, flag: *mut Int) for comm => |w, _at| {
        check(native().MPI_Attr_get(comm, keyval, attribute_val, flag))?;
        if keyval == MPI_UNIVERSE_SIZE as Int && take(flag) != 0 {
            put(attribute_val.cast::<*const Int>(), &raw const *w.universe);
        }
        Ok(())
    };
}
