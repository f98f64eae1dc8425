//! Collectives over groups: natively within a group, then the groups' first members in a fixed order.
//!
//! Each is one `async` function over messages and native requests, which a blocking call waits for and a nonblocking
//! one leaves to [`crate::progress`]. The order of all operations follows from ranks alone, never from time, so that
//! the bits of a result repeat for one layout. Those of one communicator are carried out one after another, since
//! native collectives must begin in the same order everywhere.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod calls;
mod exchange;
mod inter;
mod neighbour;
mod reduce;
mod rooted;

use crate::abi::*;
use crate::border::*;
use crate::communicator::{Comm, Lane};
use crate::datatype::{Held, Part, extent};
use crate::operation::{Mode, Operation, Role};
use crate::progress::{complete, complete_native};
use crate::world::{World, aside};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

pub use rooted::barrier;

/// This rank's world, as a collective keeps it.
pub type W = &'static World;

/// A native communicator for collectives, of the same members; a split calls no attribute functions.
pub fn engine(handle: MPI_Comm) -> MPI_Comm {
    let mut engine = handles().no_comm;
    aside(|| native().MPI_Comm_split(handle, 0, 0, &mut engine));
    returning(engine)
}

/// Has a communicator of ours return its errors: they are for the handler of the program's own.
pub fn returning(engine: MPI_Comm) -> MPI_Comm {
    if engine != handles().no_comm {
        native().MPI_Comm_set_errhandler(engine, handles().errors_return);
    }
    engine
}

/// So many collectives of a communicator have tags of their own.
const TURNS: u64 = 1024;
/// So many tags has a collective.
const TAGS: Int = 64;
/// The first of so many tags of messages of those who meet: of no collective, and of no two leaders (`calls::direct`).
const MEETING_TAG: Int = 4 * TURNS as Int * TAGS;
const MEETINGS: u64 = 1 << 16;

/// A collective's place in the order of its communicator's.
pub struct Turn {
    comm: Rc<Comm>,
    /// Messages of this collective have this tag and the [`TAGS`] - 1 after it.
    tag: Int,
}

/// Waits until all earlier collectives of the communicator are over on this rank.
pub async fn turn(comm: Rc<Comm>) -> Turn {
    let (next, over) = comm.tickets.get();
    comm.tickets.set((next + 1, over));
    std::future::poll_fn(|_| if comm.tickets.get().1 == next { Poll::Ready(()) } else { Poll::Pending }).await;
    Turn { comm, tag: (next % TURNS) as Int * TAGS }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (next, over) = self.comm.tickets.get();
        self.comm.tickets.set((next, over + 1));
    }
}

impl Turn {
    fn message(&self, world: W, role: Role, part: Part, peer: usize, tag: Int) -> Res<Rc<Operation>> {
        let held = Held::borrowed(part.datatype);
        let comm = Some(self.comm.clone());
        let tag = self.tag + tag;
        let operation = Rc::new(Operation::new(role, comm, Lane::Collective, part, held, peer as Int, tag));
        operation.start(world)?;
        Ok(operation)
    }

    fn send(&self, world: W, part: Part, to: usize) -> Res<Rc<Operation>> {
        self.message(world, Role::Send(Mode::Standard), part, to, 0)
    }

    fn receive(&self, world: W, part: Part, from: usize) -> Res<Rc<Operation>> {
        self.message(world, Role::Receive, part, from, 0)
    }
}

/// Waits for all; the first error is the end's.
async fn all(world: W, operations: Vec<Rc<Operation>>) -> Res {
    let mut end = Ok(());
    for operation in operations {
        end = end.and(complete(world, operation).await);
    }
    end
}

/// Begins a collective that the program does not wait for.
pub fn start(world: W, comm: Rc<Comm>, task: impl Future<Output = Res> + 'static) -> MPI_Request {
    world.outcomes.flush(world);
    let operation = Operation::task(comm, Box::pin(task));
    world.drive(operation.clone());
    world.hold(operation)
}

/// Before a native collective of a communicator within this group: all of its members come, while messages of other
/// groups are taken in. Then none of them waits in the native call for one who is kept up by another group.
pub fn meet(world: W, comm: MPI_Comm) {
    world.outcomes.flush(world);
    let mut request = handles().no_request;
    if comm != handles().own && native().MPI_Ibarrier(comm, &mut request) == MPI_SUCCESS {
        world.wait_native(&mut request, no_status());
    }
}

/// The same of those of `ranks` that are in this group, of which each calls: a dissemination barrier of messages that no
/// receive of the program's can match. Threads may meet others at the same time: the call's own tag tells them apart.
pub fn meet_some(world: W, ranks: &[u32], tag: Int) -> Res {
    world.outcomes.flush(world);
    let mut members: Vec<Int> = ranks.iter().filter_map(|rank| world.layout.native(*rank)).collect();
    members.sort_unstable();
    let own = world.layout.native(world.rank);
    let (Some(at), Some(whole)) = (members.iter().position(|rank| Some(*rank) == own), world.find(handles().world))
    else {
        return Ok(());
    };
    let bytes: Vec<u8> = members.iter().flat_map(|rank| rank.to_le_bytes()).collect();
    let which = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, tag as u64) % MEETINGS;
    let (mut nothing, byte, tag) = ([0u8; 0], handles().byte, MEETING_TAG + which as Int);
    let mut step = 1;
    while step < members.len() {
        let (to, from) = (members[(at + step) % members.len()], members[(at + members.len() - step) % members.len()]);
        let (mut come, mut gone) = (handles().no_request, handles().no_request);
        untold(native().MPI_Irecv(nothing.as_mut_ptr().cast(), 0, byte, from, tag, whole.engine, &mut come))?;
        untold(native().MPI_Isend(nothing.as_ptr().cast(), 0, byte, to, tag, whole.engine, &mut gone))?;
        untold(world.wait_native(&mut come, no_status()))?;
        untold(world.wait_native(&mut gone, no_status()))?;
        step *= 2;
    }
    Ok(())
}

/// What each member says in as many words, in the order of ranks.
pub fn gather_words(world: W, at: &Rc<Comm>, own: &[Int]) -> Res<Vec<Int>> {
    let mut words = vec![0; own.len() * at.size()];
    let (bytes, byte) = (size_of_val(own) as Int, handles().byte);
    let into = uniform(words.as_mut_ptr().cast(), bytes, byte, at.size());
    let own = Part::new(own.as_ptr().cast(), bytes, byte);
    world.carry_out(exchange::allgather(world, at.clone(), own, into))?;
    Ok(words)
}

/// `n` blocks of `count` elements, one after another.
fn uniform(base: *const c_void, count: Int, datatype: MPI_Datatype, n: usize) -> Vec<Part> {
    let step = count as isize * if n > 1 { extent(datatype) } else { 0 };
    (0..n as isize).map(|at| Part::new(moved(base, at * step), count, datatype)).collect()
}

/// Blocks at `displacements`, in elements.
fn varied(
    base: *const c_void,
    counts: *const Int,
    displacements: *const Int,
    datatype: MPI_Datatype,
    n: usize,
) -> Vec<Part> {
    let step = if n > 0 { extent(datatype) } else { 0 };
    let places = slice(displacements, n as Int).iter().map(|at| *at as isize * step);
    slice(counts, n as Int).iter().zip(places).map(|(count, at)| Part::new(moved(base, at), *count, datatype)).collect()
}

/// Blocks at `displacements`, in bytes, each of a type of its own.
fn general<D: Copy + TryInto<isize>>(
    base: *const c_void,
    counts: *const Int,
    displacements: *const D,
    types: *const MPI_Datatype,
    n: usize,
) -> Vec<Part> {
    let n = n as Int;
    let places =
        slice(displacements, n).iter().map(|at| (*at).try_into().ok().expect("an int or an address fits an address"));
    let blocks = slice(counts, n).iter().zip(places).zip(slice(types, n));
    blocks.map(|((count, at), datatype)| Part::new(moved(base, at), *count, *datatype)).collect()
}

/// Whether a buffer is `MPI_IN_PLACE`.
fn in_place(part: &Part) -> bool {
    part.at.cast_const() == IN_PLACE
}

/// Broadcasts within this group from rank `root` of the native communicator.
async fn native_bcast(at: &Comm, part: Part, root: Int) -> Res {
    let mut request = handles().no_request;
    untold(native().MPI_Ibcast(part.at, part.count, part.datatype, root, at.engine, &mut request))?;
    complete_native(request).await
}

/// All members in this group come, after all that was begun before on the communicator.
pub async fn gather(at: Rc<Comm>) -> Res {
    let _turn = turn(at.clone()).await;
    native_barrier(&at).await
}

/// Waits for all members in this group.
async fn native_barrier(at: &Comm) -> Res {
    let mut request = handles().no_request;
    untold(native().MPI_Ibarrier(at.engine, &mut request))?;
    complete_native(request).await
}

fn check_root(at: &Comm, root: Int) -> Res {
    let members = 0..at.peers().len() as Int;
    let inter = at.remote.is_some() && (root == MPI_ROOT || root == MPI_PROC_NULL);
    if members.contains(&root) || inter { Ok(()) } else { fail(MPI_ERR_ROOT) }
}

/// Files, or windows, of ranks of this group alone, by their handle: native, with a communicator of ours on which those ranks meet.
#[derive(Default)]
pub struct Within(RefCell<HashMap<usize, MPI_Comm>>);

impl Within {
    /// Opens one natively, with those of `comm`; `handle` tells its handle then.
    pub fn open(&self, world: W, comm: MPI_Comm, call: impl FnOnce() -> Int, handle: impl FnOnce() -> usize) -> Res {
        meet(world, comm);
        // Before what may fail on some ranks only.
        let engine = (comm != handles().own).then(|| engine(comm));
        let code = call();
        match engine {
            Some(engine) if code == MPI_SUCCESS => drop(self.0.borrow_mut().insert(handle(), engine)),
            Some(mut engine) => {
                aside(|| native().MPI_Comm_free(&mut engine));
            }
            None => {}
        }
        check(code)
    }

    /// Its ranks come, so that none of them waits in a native call for one who is kept up by another group.
    pub fn meet(&self, world: W, handle: usize) {
        let engine = self.0.borrow().get(&handle).copied();
        engine.into_iter().for_each(|engine| meet(world, engine));
    }

    /// Forgets one that is about to be closed.
    pub fn close(&self, handle: usize) {
        let engine = self.0.borrow_mut().remove(&handle);
        if let Some(mut engine) = engine {
            aside(|| native().MPI_Comm_free(&mut engine));
        }
    }
}
