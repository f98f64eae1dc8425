//! Begin and end: `MPI_Init`, the thread level, `MPI_Finalize`, `MPI_Abort`.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::communicator::Comm;
use crate::world::{self, World};
use mpi_abi::fallback;
use mpi_ranks::Place;
use mpi_relay::Error;
use mpi_relay::transport::Transport;
use std::env;
use std::ffi::{c_char, c_void};
use std::path::Path;

/// Context of `MPI_COMM_WORLD`.
const WORLD_CONTEXT: u64 = 2;

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What the launcher says of the groups; `None` if there are none.
fn layout() -> Option<Place> {
    let ranks = variable("JOULEPOINT_MPI_RANKS")?;
    let group = variable("JOULEPOINT_MPI_GROUP").or_else(|| variable("FT_ENERGY_GROUP")).unwrap_or_default();
    Some(Place::parse(&ranks, &group).unwrap_or_else(|error| world::end(1, &error.to_string())))
}

fn connect(rank: u32, ranks: usize) -> Result<Box<dyn Transport>, Error> {
    let unset = || Error::Usage("JOULEPOINT_MPI_RELAY is not set".to_owned());
    let socket = variable("JOULEPOINT_MPI_RELAY").ok_or_else(unset)?;
    Ok(Box::new(mpi_relay::Client::connect(Path::new(&socket), rank, ranks)?))
}

/// Joins the other groups, after the native library has begun.
fn join(layout: Place) {
    let (mut own, mut size) = (0, 0);
    native().MPI_Comm_rank(handles().world, &mut own);
    native().MPI_Comm_size(handles().world, &mut size);
    let expected = layout.own().len();
    if size as usize != expected {
        let differs = format!("group {} has {size} ranks, and JOULEPOINT_MPI_RANKS says {expected}", layout.group);
        fallback::note(&differs);
        world::end(1, &differs);
    }
    let rank = layout.world_rank(own);
    let ranks = layout.size();
    let transport = connect(rank, ranks)
        .unwrap_or_else(|error| world::end(1, &format!("rank {rank} cannot reach its relay: {error}")));
    // Handlers of error, attributes and the like are native: so is the communicator under the program's handle.
    let engine = crate::collective::engine(handles().world);
    world::set(Some(World::new(layout, rank, transport)));
    let world = world::get().expect("set above");
    let members = (0..ranks as u32).collect();
    let comm = world.register(Comm::new(world, (handles().world, engine), WORLD_CONTEXT, members, None));
    if world.carry_out(crate::collective::barrier(world, comm)).is_err() {
        world::end(1, "the groups could not meet");
    }
    leave_at_the_end();
}

/// MPI ends with what attributes of `MPI_COMM_SELF` ask for, the last one set first. Ours is the first one: while the program's
/// are asked, MPI is still at work over all groups.
fn leave_at_the_end() {
    let (mut keyval, nothing) = (0, std::ptr::null_mut());
    native().MPI_Comm_create_keyval(Some(not_copied), Some(leave), &mut keyval, nothing);
    native().MPI_Comm_set_attr(handles().own, keyval, nothing);
}

/// Keeps the attribute from duplicates.
extern "C" fn not_copied(_: MPI_Comm, _: Int, _: *mut c_void, _: *mut c_void, _: *mut c_void, flag: *mut Int) -> Int {
    put(flag, 0);
    MPI_SUCCESS
}

/// All ranks have come to the end: each leaves its relay.
extern "C" fn leave(_: MPI_Comm, _: Int, _: *mut c_void, _: *mut c_void) -> Int {
    let Some(w) = world::get() else { return MPI_SUCCESS };
    enter("MPI_Finalize", None, || {
        let comm = w.find(handles().world).expect("the world lives to the end");
        w.carry_out(crate::collective::barrier(w, comm.clone()))?;
        w.outcomes.flush(w);
        if let Err(error) = w.transport.finish() {
            world::lost("the relay could not be left", &error);
        }
        w.free_deferred(u64::MAX);
        world::aside(|| native().MPI_Comm_free(&mut { comm.engine }));
        world::set(None);
        Ok(())
    })
}

export! {
    fn MPI_Init(argc: *mut Int, argv: *mut *mut *mut c_char) always => |_none| {
        check(native().MPI_Init(argc, argv))?;
        layout().into_iter().for_each(join);
        Ok(())
    };
    fn MPI_Init_thread(argc: *mut Int, argv: *mut *mut *mut c_char, required: Int, provided: *mut Int) always => |_none| {
        let Some(layout) = layout() else {
            return check(native().MPI_Init_thread(argc, argv, required, provided));
        };
        check(native().MPI_Init_thread(argc, argv, required, provided))?;
        join(layout);
        world::get().expect("joined").has_threads.set(take(provided) == MPI_THREAD_MULTIPLE as Int);
        Ok(())
    };
    fn MPI_Finalize() => |_w| check(native().MPI_Finalize());
    fn MPI_Abort(comm: MPI_Comm, errorcode: Int) => |w| {
        // What was aborted has not ended well, whatever number it gives.
        let code = if errorcode == 0 { 1 } else { errorcode };
        w.transport.abort(code);
        check(native().MPI_Abort(comm, code))
    };
    fn MPI_Buffer_detach(buffer_addr: *mut c_void, size: *mut Int) => |w| {
        w.progress();
        check(world::aside(|| native().MPI_Buffer_detach(buffer_addr, size)))
    };
}
