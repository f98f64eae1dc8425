//! Messages: send in all modes, receive, persistent requests, sendrecv.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::communicator::{Comm, Lane};
use crate::datatype::{Held, Part};
use crate::operation::{Mode, Operation, Role, send_native};
use crate::world::World;
use std::ffi::c_void;
use std::rc::Rc;

fn check_part(part: Part) -> Res {
    match part {
        Part { count, .. } if count < 0 => fail(MPI_ERR_COUNT),
        Part { datatype, .. } if datatype == handles().no_type => fail(MPI_ERR_TYPE),
        _ => Ok(()),
    }
}

fn check_rank(comm: &Comm, rank: Int) -> Res {
    let known = rank == MPI_PROC_NULL || (0..comm.peers().len() as Int).contains(&rank);
    if known { Ok(()) } else { fail(MPI_ERR_RANK) }
}

fn check_destination(comm: &Comm, rank: Int, tag: Int) -> Res {
    if tag < 0 {
        return fail(MPI_ERR_TAG);
    }
    check_rank(comm, rank)
}

/// Whether a receive or probe may ask for such messages.
pub fn check_source(comm: &Comm, rank: Int, tag: Int) -> Res {
    if tag < 0 && tag != MPI_ANY_TAG {
        return fail(MPI_ERR_TAG);
    }
    if rank == MPI_ANY_SOURCE { Ok(()) } else { check_rank(comm, rank) }
}

fn sending(comm: &Rc<Comm>, mode: Mode, part: Part, held: Held, to: Int, tag: Int) -> Res<Operation> {
    check_part(part)?;
    check_destination(comm, to, tag)?;
    Ok(Operation::new(Role::Send(mode), Some(comm.clone()), Lane::Program, part, held, to, tag))
}

fn receiving(comm: &Rc<Comm>, part: Part, held: Held, from: Int, tag: Int) -> Res<Operation> {
    check_part(part)?;
    check_source(comm, from, tag)?;
    Ok(Operation::new(Role::Receive, Some(comm.clone()), Lane::Program, part, held, from, tag))
}

/// The rank in the native communicator to which a message goes that stays in this group.
fn within(world: &World, comm: MPI_Comm, to: Int) -> Option<Int> {
    match world.find(comm) {
        None => Some(to),
        Some(at) if (0..at.peers().len() as Int).contains(&to) => at.native_rank(to),
        Some(_) => None,
    }
}

fn send(world: &World, mode: Mode, part: Part, to: Int, tag: Int, comm: MPI_Comm) -> Res {
    if let Some(to) = within(world, comm, to) {
        world.outcomes.flush(world);
        let mut request = handles().no_request;
        check(send_native(mode, part, to, tag, comm, &mut request))?;
        return check(world.wait_native(&mut request, no_status()));
    }
    let at = world.find(comm).expect("only a communicator of ours has ranks in other groups");
    let operation = Rc::new(sending(&at, mode, part, Held::of_call(world, part.datatype), to, tag)?);
    operation.start(world)?;
    world.wait_for_all(&[&operation]);
    world.finish(&operation, no_status())
}

fn isend(world: &World, mode: Mode, part: Part, to: Int, tag: Int, comm: MPI_Comm, request: *mut MPI_Request) -> Res {
    if let Some(to) = within(world, comm, to) {
        world.outcomes.flush(world);
        return check(send_native(mode, part, to, tag, comm, &mut slice_mut(request, 1)[0]));
    }
    let at = world.find(comm).expect("only a communicator of ours has ranks in other groups");
    let operation = Rc::new(sending(&at, mode, part, Held::new(part.datatype), to, tag)?);
    operation.start(world)?;
    put(request, world.hold(operation));
    Ok(())
}

fn send_init(
    world: &World,
    at: &Rc<Comm>,
    mode: Mode,
    part: Part,
    to: Int,
    tag: Int,
    request: *mut MPI_Request,
) -> Res {
    let mut operation = sending(at, mode, part, Held::new(part.datatype), to, tag)?;
    operation.persistent = true;
    put(request, world.hold(Rc::new(operation)));
    Ok(())
}

/// The communicator, native ones too: persistent requests are all ours.
fn any(world: &World, comm: MPI_Comm) -> Res<Rc<Comm>> {
    world.find_any(comm).map_or_else(|| fail(MPI_ERR_COMM), Ok)
}

/// The communicator, if a receive in it is ours: it is one of ours, or the receive is from anybody.
fn ours(world: &World, comm: MPI_Comm, from: Int) -> Option<Rc<Comm>> {
    if from == MPI_ANY_SOURCE { world.find_any(comm) } else { world.find(comm) }
}

fn receive(world: &World, part: Part, from: Int, tag: Int, comm: MPI_Comm, status: *mut MPI_Status) -> Res {
    let Some(at) = ours(world, comm, from) else {
        let mut request = handles().no_request;
        check(native().MPI_Irecv(part.at, part.count, part.datatype, from, tag, comm, &mut request))?;
        return check(world.wait_native(&mut request, status));
    };
    let operation = Rc::new(receiving(&at, part, Held::of_call(world, part.datatype), from, tag)?);
    operation.start(world)?;
    world.wait_for_all(&[&operation]);
    world.finish(&operation, status)
}

fn exchange(
    world: &World,
    out: (Part, Int, Int),
    into: (Part, Int, Int),
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> Res {
    let at = any(world, comm)?;
    let (part, from, tag) = into;
    let incoming = Rc::new(receiving(&at, part, Held::of_call(world, part.datatype), from, tag)?);
    let (part, to, tag) = out;
    let outgoing = Rc::new(sending(&at, Mode::Standard, part, Held::of_call(world, part.datatype), to, tag)?);
    incoming.start(world)?;
    outgoing.start(world)?;
    world.wait_for_all(&[&outgoing, &incoming]);
    world.finish(&outgoing, no_status())?;
    world.finish(&incoming, status)
}

/// The three calls of a mode: blocking, nonblocking, persistent.
macro_rules! sends {
    ($($mode:ident $send:ident $isend:ident $init:ident;)*) => {
        export! {
            $(
                fn $send(buf: *const c_void, count: Int, datatype: MPI_Datatype, dest: Int, tag: Int, comm: MPI_Comm) on comm => |w| {
                    send(w, Mode::$mode, Part::new(buf, count, datatype), dest, tag, comm)
                };
                fn $isend(buf: *const c_void, count: Int, datatype: MPI_Datatype, dest: Int, tag: Int, comm: MPI_Comm, request: *mut MPI_Request) on comm => |w| {
                    isend(w, Mode::$mode, Part::new(buf, count, datatype), dest, tag, comm, request)
                };
                fn $init(buf: *const c_void, count: Int, datatype: MPI_Datatype, dest: Int, tag: Int, comm: MPI_Comm, request: *mut MPI_Request) on comm => |w| {
                    send_init(w, &any(w, comm)?, Mode::$mode, Part::new(buf, count, datatype), dest, tag, request)
                };
            )*
            fn MPI_Recv(buf: *mut c_void, count: Int, datatype: MPI_Datatype, source: Int, tag: Int, comm: MPI_Comm, status: *mut MPI_Status) on comm => |w| {
                receive(w, Part::new(buf, count, datatype), source, tag, comm, status)
            };
            fn MPI_Irecv(buf: *mut c_void, count: Int, datatype: MPI_Datatype, source: Int, tag: Int, comm: MPI_Comm, request: *mut MPI_Request) on comm => |w| {
                let Some(at) = ours(w, comm, source) else {
                    return check(native().MPI_Irecv(buf, count, datatype, source, tag, comm, request));
                };
                let operation = Rc::new(receiving(&at, Part::new(buf, count, datatype), Held::new(datatype), source, tag)?);
                operation.start(w)?;
                put(request, w.hold(operation));
                Ok(())
            };
            fn MPI_Recv_init(buf: *mut c_void, count: Int, datatype: MPI_Datatype, source: Int, tag: Int, comm: MPI_Comm, request: *mut MPI_Request) on comm => |w| {
                let mut operation = receiving(&any(w, comm)?, Part::new(buf, count, datatype), Held::new(datatype), source, tag)?;
                operation.persistent = true;
                put(request, w.hold(Rc::new(operation)));
                Ok(())
            };
            fn MPI_Sendrecv(sendbuf: *const c_void, sendcount: Int, sendtype: MPI_Datatype, dest: Int, sendtag: Int,
                recvbuf: *mut c_void, recvcount: Int, recvtype: MPI_Datatype, source: Int, recvtag: Int, comm: MPI_Comm, status: *mut MPI_Status) on comm => |w| {
                let out = (Part::new(sendbuf, sendcount, sendtype), dest, sendtag);
                exchange(w, out, (Part::new(recvbuf, recvcount, recvtype), source, recvtag), comm, status)
            };
            fn MPI_Sendrecv_replace(buf: *mut c_void, count: Int, datatype: MPI_Datatype, dest: Int, sendtag: Int, source: Int, recvtag: Int, comm: MPI_Comm, status: *mut MPI_Status) on comm => |w| {
                let part = Part::new(buf, count, datatype);
                check_part(part)?;
                let copy = part.contents().into_owned();
                let out = Part::packed(&copy)?;
                exchange(w, (out, dest, sendtag), (part, source, recvtag), comm, status)
            };
        }
    };
}
sends! {
    Standard MPI_Send MPI_Isend MPI_Send_init;
    Synchronous MPI_Ssend MPI_Issend MPI_Ssend_init;
    Ready MPI_Rsend MPI_Irsend MPI_Rsend_init;
    Buffered MPI_Bsend MPI_Ibsend MPI_Bsend_init;
}
