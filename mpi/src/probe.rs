//! Probes: what has come and has not been received, natively and from other groups; and messages taken by one.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::communicator::{Comm, Lane, Message};
use crate::datatype::{Held, Part};
use crate::operation::{Operation, Role, empty_status};
use crate::outcome::PROBE;
use crate::progress::Answer;
use crate::world::World;
use mpi_relay::Envelope;
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

/// Which messages a receive or a probe asks for.
#[derive(Clone, Copy)]
pub struct Source {
    /// A rank, or `MPI_ANY_SOURCE`.
    pub rank: Int,
    /// A tag, or `MPI_ANY_TAG`.
    pub tag: Int,
}

impl Source {
    /// Whether a message is one of them.
    pub fn matches(&self, envelope: &Envelope) -> bool {
        (self.rank == MPI_ANY_SOURCE || self.rank == envelope.comm_source as Int)
            && (self.tag == MPI_ANY_TAG || self.tag == envelope.tag)
    }
}

/// A message that a matched probe took.
pub struct Taken {
    comm: Rc<Comm>,
    what: RefCell<Option<What>>,
}

enum What {
    Native(MPI_Message),
    Remote(Message),
}

/// Looks once. `take`: the message is taken, and given back.
fn look(comm: &Rc<Comm>, wanted: Source, take: bool) -> Res<Option<(MPI_Status, Option<What>)>> {
    let queue = &comm.lanes[Lane::Program as usize].unexpected;
    let found = queue.borrow().iter().position(|message| wanted.matches(&message.envelope));
    if let Some(at) = found {
        let mut queue = queue.borrow_mut();
        let Message { envelope, body } = &queue[at];
        let status = status(envelope.comm_source as Int, envelope.tag, body.len() as u64, false);
        let message = if take { queue.remove(at).map(What::Remote) } else { None };
        return Ok(Some((status, message)));
    }
    let native_rank = if wanted.rank == MPI_ANY_SOURCE { Some(wanted.rank) } else { comm.native_rank(wanted.rank) };
    let Some(from) = native_rank else { return Ok(None) };
    let (native, mut flag, mut status) = (native(), 0, empty_status());
    let mut message = handles().no_message;
    check(if take {
        native.MPI_Improbe(from, wanted.tag, comm.handle, &mut flag, &mut message, &mut status)
    } else {
        native.MPI_Iprobe(from, wanted.tag, comm.handle, &mut flag, &mut status)
    })?;
    let message = take.then_some(What::Native(message));
    Ok((flag != 0).then(|| (comm.translated(status), message)))
}

fn nobody() -> MPI_Status {
    status(MPI_PROC_NULL, MPI_ANY_TAG, 0, false)
}

type Found = Option<(MPI_Status, Option<What>)>;

/// One look whose outcome is kept, or repeated.
fn ask(world: &World, comm: &Rc<Comm>, wanted: Source, take: bool) -> Res<Found> {
    match world.outcomes.repeat(world, PROBE) {
        Some(-1) => Ok(None),
        Some(rank) => wait_for(world, comm, Source { rank: rank as Int, ..wanted }, take).map(Some),
        None => {
            world.look();
            let found = look(comm, wanted, take)?;
            let answer = found.as_ref().map_or(-1, |(status, _)| i64::from(status.MPI_SOURCE));
            world.outcomes.record(world, PROBE, answer, answer == -1);
            Ok(found)
        }
    }
}

/// Looks until something is there.
fn wait_for(world: &World, comm: &Rc<Comm>, wanted: Source, take: bool) -> Res<(MPI_Status, Option<What>)> {
    let mut end = Ok(None);
    world.wait_until(|| {
        end = look(comm, wanted, take);
        !matches!(end, Ok(None))
    });
    end.map(|found| found.expect("waited for"))
}

/// Waits for a message; the source of one from anybody is kept, or repeated.
fn wait(world: &World, comm: &Rc<Comm>, wanted: Source, take: bool) -> Res<(MPI_Status, Option<What>)> {
    if wanted.rank != MPI_ANY_SOURCE {
        return wait_for(world, comm, wanted, take);
    }
    match world.wait_or_repeat(PROBE, || look(comm, wanted, take).transpose()) {
        Answer::Repeated(rank) => wait_for(world, comm, Source { rank: rank as Int, ..wanted }, take),
        Answer::New(found) => {
            let found = found?;
            world.outcomes.record(world, PROBE, i64::from(found.0.MPI_SOURCE), false);
            Ok(found)
        }
    }
}

fn keep(world: &World, comm: &Rc<Comm>, what: Option<What>) -> MPI_Message {
    let taken = Taken { comm: comm.clone(), what: RefCell::new(what) };
    message_handle(world.messages.insert(Rc::new(taken)))
}

/// Begins to receive a message that was taken.
fn receive(world: &World, at: *mut MPI_Message, part: Part, held: Held) -> Res<Rc<Operation>> {
    let taken = message_index(take(at)).and_then(|index| world.messages.remove(index));
    let Some(taken) = taken else { return fail(MPI_ERR_REQUEST) };
    put(at, handles().no_message);
    let operation = Operation::new(Role::Receive, Some(taken.comm.clone()), Lane::Program, part, held, 0, 0);
    let operation = Rc::new(operation);
    match taken.what.take().expect("a message is taken once") {
        What::Remote(message) => {
            operation.active.set(true);
            operation.receive(world, &message);
        }
        What::Native(mut message) => {
            let mut request = handles().no_request;
            check(native().MPI_Imrecv(part.at, part.count, part.datatype, &mut message, &mut request))?;
            operation.adopt(request);
        }
    }
    Ok(operation)
}

fn sought(world: &World, comm: MPI_Comm, rank: Int, tag: Int) -> Res<(Rc<Comm>, Source)> {
    let Some(at) = world.find_any(comm) else { return fail(MPI_ERR_COMM) };
    crate::point_to_point::check_source(&at, rank, tag)?;
    Ok((at, Source { rank, tag }))
}

export! {
    fn MPI_Iprobe(source: Int, tag: Int, comm: MPI_Comm, flag: *mut Int, status: *mut MPI_Status) on comm => |w| {
        let (at, wanted) = sought(w, comm, source, tag)?;
        let found = if source == MPI_PROC_NULL { Some((nobody(), None)) } else { ask(w, &at, wanted, false)? };
        put(flag, found.is_some().into());
        if let Some((found, _)) = found {
            put_status(status, found);
        }
        Ok(())
    };
    fn MPI_Probe(source: Int, tag: Int, comm: MPI_Comm, status: *mut MPI_Status) on comm => |w| {
        let (at, wanted) = sought(w, comm, source, tag)?;
        let found = if source == MPI_PROC_NULL { nobody() } else { wait(w, &at, wanted, false)?.0 };
        put_status(status, found);
        Ok(())
    };
    fn MPI_Improbe(source: Int, tag: Int, comm: MPI_Comm, flag: *mut Int, message: *mut MPI_Message, status: *mut MPI_Status) on comm => |w| {
        let (at, wanted) = sought(w, comm, source, tag)?;
        if source == MPI_PROC_NULL {
            put(flag, 1);
            put(message, handles().no_process);
            put_status(status, nobody());
            return Ok(());
        }
        let found = ask(w, &at, wanted, true)?;
        put(flag, found.is_some().into());
        if let Some((found, what)) = found {
            put(message, keep(w, &at, what));
            put_status(status, found);
        }
        Ok(())
    };
    fn MPI_Mprobe(source: Int, tag: Int, comm: MPI_Comm, message: *mut MPI_Message, status: *mut MPI_Status) on comm => |w| {
        let (at, wanted) = sought(w, comm, source, tag)?;
        if source == MPI_PROC_NULL {
            put(message, handles().no_process);
            put_status(status, nobody());
            return Ok(());
        }
        let (found, what) = wait(w, &at, wanted, true)?;
        put(message, keep(w, &at, what));
        put_status(status, found);
        Ok(())
    };
    fn MPI_Imrecv(buf: *mut c_void, count: Int, datatype: MPI_Datatype, message: *mut MPI_Message, request: *mut MPI_Request) => |w| {
        if message_index(take(message)).is_none() {
            return check(native().MPI_Imrecv(buf, count, datatype, message, request));
        }
        let operation = receive(w, message, Part::new(buf, count, datatype), Held::new(datatype))?;
        put(request, w.hold(operation));
        Ok(())
    };
    fn MPI_Mrecv(buf: *mut c_void, count: Int, datatype: MPI_Datatype, message: *mut MPI_Message, status: *mut MPI_Status) => |w| {
        if message_index(take(message)).is_none() {
            return check(native().MPI_Mrecv(buf, count, datatype, message, status));
        }
        let operation = receive(w, message, Part::new(buf, count, datatype), Held::of_call(w, datatype))?;
        w.wait_until(|| operation.ready(w));
        w.finish(&operation, status)
    };
}
