//! One message or collective under way: how it starts, how it is matched, and when it is complete.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::{Fault, Res, check, untold};
use crate::communicator::{Comm, Lane, Message};
use crate::datatype::{Held, Part};
use crate::probe::Source;
use crate::world::{self, World};
use mpi_relay::Envelope;
use mpi_relay::transport::{ACK, DATA};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `MPI_Send`.
    Standard,
    /// `MPI_Ssend`: complete when the receiver has begun.
    Synchronous,
    /// `MPI_Rsend`.
    Ready,
    /// `MPI_Bsend`.
    Buffered,
}

/// A collective that is carried out step by step.
pub type Task = Pin<Box<dyn Future<Output = Res>>>;

/// What kind of operation.
pub enum Role {
    /// A message to `peer`.
    Send(Mode),
    /// A message from `peer`, or from anybody.
    Receive,
    /// A collective.
    Task(RefCell<Option<Task>>),
}

/// One operation, also one that the program starts again and again.
pub struct Operation {
    /// What kind.
    pub role: Role,
    /// Where; `None` for what has no communicator.
    pub comm: Option<Rc<Comm>>,
    /// Which lane of it.
    pub lane: Lane,
    part: Part,
    /// Keeps the type of `part` alive.
    _held: Held,
    /// The rank that the program gave, or `MPI_ANY_SOURCE`.
    pub peer: Int,
    /// The tag that the program gave.
    pub tag: Int,
    /// Whether it stays after it is complete.
    pub persistent: bool,
    /// Whether it has been started and its end not been handed out.
    pub active: Cell<bool>,
    done: Cell<bool>,
    /// The native request under it.
    native: Cell<Option<MPI_Request>>,
    /// The source that it takes now: `peer`, or the one that a restored rank must repeat.
    source: Cell<Int>,
    /// Its number, if it is a receive from anybody.
    number: Cell<Option<u64>>,
    status: Cell<MPI_Status>,
    error: Cell<Int>,
    /// Whether the error handler has heard of it: from the native library.
    told: Cell<bool>,
    cancelled: Cell<bool>,
    /// Under which number the program holds it.
    pub slot: Cell<Option<u32>>,
}

/// A status that says nothing.
pub fn empty_status() -> MPI_Status {
    status(MPI_ANY_SOURCE, MPI_ANY_TAG, 0, false)
}

impl Operation {
    /// An operation that has not been started.
    pub fn new(
        role: Role,
        comm: Option<Rc<Comm>>,
        lane: Lane,
        part: Part,
        held: Held,
        peer: Int,
        tag: Int,
    ) -> Operation {
        Operation {
            role,
            comm,
            lane,
            part: Part { datatype: held.get(), ..part },
            _held: held,
            peer,
            tag,
            persistent: false,
            active: Cell::new(false),
            done: Cell::new(false),
            native: Cell::new(None),
            source: Cell::new(peer),
            number: Cell::new(None),
            status: Cell::new(empty_status()),
            error: Cell::new(MPI_SUCCESS),
            told: Cell::new(false),
            cancelled: Cell::new(false),
            slot: Cell::new(None),
        }
    }

    /// A collective that has been started.
    pub fn task(comm: Rc<Comm>, task: Task) -> Rc<Operation> {
        let nothing = Part::new(std::ptr::null(), 0, handles().byte);
        let role = Role::Task(RefCell::new(Some(task)));
        let held = Held::borrowed(nothing.datatype);
        let operation = Operation::new(role, Some(comm), Lane::Collective, nothing, held, 0, 0);
        operation.active.set(true);
        Rc::new(operation)
    }

    fn comm(&self) -> &Rc<Comm> {
        self.comm.as_ref().expect("a message has a communicator")
    }

    /// What a native function returned: the program's handler has heard of it, unless it was of a communicator of ours.
    fn heard(&self, code: Int) -> Res {
        if self.lane == Lane::Program { check(code) } else { untold(code) }
    }

    /// Starts it.
    pub fn start(self: &Rc<Self>, world: &World) -> Res {
        self.active.set(true);
        self.done.set(false);
        self.cancelled.set(false);
        self.error.set(MPI_SUCCESS);
        self.told.set(false);
        self.status.set(empty_status());
        match self.role {
            Role::Send(mode) => self.start_send(world, mode),
            Role::Receive => self.start_receive(world),
            Role::Task(_) => Ok(()),
        }
    }

    fn start_send(self: &Rc<Self>, world: &World, mode: Mode) -> Res {
        if self.peer == MPI_PROC_NULL {
            self.done.set(true);
            return Ok(());
        }
        world.outcomes.flush(world);
        let comm = self.comm();
        if let Some(to) = comm.native_rank(self.peer) {
            let mut request = handles().no_request;
            let handle = comm.native_handle(self.lane);
            self.heard(send_native(mode, self.part, to, self.tag, handle, &mut request))?;
            self.native.set(Some(request));
            return Ok(());
        }
        let (sync, done) = match mode {
            Mode::Synchronous => self.await_receiver(world),
            _ => (0, true),
        };
        let envelope = Envelope {
            source: world.rank,
            context: comm.context | self.lane as u64,
            tag: self.tag,
            comm_source: comm.rank as u32,
            kind: DATA,
            sync,
        };
        world.send(comm.peers()[self.peer as usize], envelope, &self.part.contents());
        self.done.set(done);
        Ok(())
    }

    /// The number of a synchronous send, and whether its receiver has begun: after a restore its word may be there first.
    fn await_receiver(self: &Rc<Self>, world: &World) -> (u32, bool) {
        let sync = world.last_synchronous.get().wrapping_add(1).max(1);
        world.last_synchronous.set(sync);
        let mut sends = world.synchronous.borrow_mut();
        let early = sends.remove(&sync).is_some();
        if !early {
            sends.insert(sync, Some(self.clone()));
        }
        (sync, early)
    }

    fn start_receive(self: &Rc<Self>, world: &World) -> Res {
        self.source.set(self.peer);
        self.number.set(None);
        if self.peer == MPI_PROC_NULL {
            self.status.set(status(MPI_PROC_NULL, MPI_ANY_TAG, 0, false));
            self.done.set(true);
            return Ok(());
        }
        if self.peer == MPI_ANY_SOURCE && self.lane == Lane::Program {
            world.refresh_outcomes();
            let number = world.outcomes.number();
            self.number.set(Some(number));
            self.source.set(world.outcomes.source(number).unwrap_or(MPI_ANY_SOURCE));
        }
        self.post(world)
    }

    /// Posts a receive natively, in our queue, or in both.
    pub fn post(self: &Rc<Self>, world: &World) -> Res {
        let comm = self.comm().clone();
        let source = self.source.get();
        let native = if source == MPI_ANY_SOURCE { Some(source) } else { comm.native_rank(source) };
        let remote = comm.spans() && (source == MPI_ANY_SOURCE || native.is_none());
        if remote && let Some(message) = self.waiting(&comm) {
            self.receive(world, &message);
            return Ok(());
        }
        if let Some(from) = native {
            let mut request = handles().no_request;
            let Part { at, count, datatype } = self.part;
            let handle = comm.native_handle(self.lane);
            self.heard(crate::abi::native().MPI_Irecv(at, count, datatype, from, self.tag, handle, &mut request))?;
            self.native.set(Some(request));
        }
        if remote || source == MPI_ANY_SOURCE {
            comm.lanes[self.lane as usize].posted.borrow_mut().push_back(self.clone());
        }
        Ok(())
    }

    /// Takes the first message that waits for such a receive.
    fn waiting(&self, comm: &Comm) -> Option<Message> {
        let mut waiting = comm.lanes[self.lane as usize].unexpected.borrow_mut();
        let wanted = Source { rank: self.source.get(), tag: self.tag };
        let at = waiting.iter().position(|message| wanted.matches(&message.envelope))?;
        waiting.remove(at)
    }

    /// Whether a message of another group is for this receive.
    pub fn matches(&self, envelope: &Envelope) -> bool {
        Source { rank: self.source.get(), tag: self.tag }.matches(envelope)
    }

    /// Completes a receive with a message of another group.
    pub fn receive(self: &Rc<Self>, world: &World, message: &Message) {
        let taken = self.part.fill_from(&message.body);
        if message.body.len() as u64 > taken {
            self.error.set(MPI_ERR_TRUNCATE);
        }
        let source = message.envelope.comm_source as Int;
        self.status.set(status(source, message.envelope.tag, taken, false));
        self.complete(world);
        if message.envelope.sync != 0 {
            let Envelope { sync, source, .. } = message.envelope;
            world.send(source, Envelope { source: world.rank, kind: ACK, sync, ..Envelope::default() }, &[]);
        }
    }

    /// The end of a receive: it leaves the queue, and its source is kept.
    fn complete(self: &Rc<Self>, world: &World) {
        self.done.set(true);
        self.leave_queue();
        if let Some(number) = self.number.get()
            && !self.cancelled.get()
        {
            world.outcomes.record_source(world, number, self.status.get().MPI_SOURCE);
        }
    }

    fn leave_queue(self: &Rc<Self>) {
        if let Some(comm) = &self.comm {
            comm.lanes[self.lane as usize].posted.borrow_mut().retain(|other| !Rc::ptr_eq(self, other));
        }
    }

    /// Gives up the native half of a receive. Whether it is free for a message of another group: if not, a native
    /// message has matched it, and it is complete.
    pub fn withdraw(self: &Rc<Self>, world: &World) -> bool {
        let Some(mut request) = self.native.take() else { return true };
        let (mut found, mut cancelled) = (empty_status(), 0);
        let native = native();
        native.MPI_Cancel(&mut request);
        let code = native.MPI_Wait(&mut request, &mut found);
        native.MPI_Test_cancelled(&found, &mut cancelled);
        if cancelled == 0 {
            self.ended_natively(world, found, code);
        }
        cancelled != 0
    }

    fn ended_natively(self: &Rc<Self>, world: &World, found: MPI_Status, code: Int) {
        self.native.set(None);
        self.error.set(code);
        self.told.set(self.lane == Lane::Program);
        let mut cancelled = 0;
        native().MPI_Test_cancelled(&found, &mut cancelled);
        self.cancelled.set(cancelled != 0);
        if matches!(self.role, Role::Receive) {
            self.status.set(self.comm().translated(found));
            self.complete(world);
        } else {
            self.status.set(found);
            self.done.set(true);
        }
    }

    /// Whether only a native request can complete it.
    pub fn is_native(&self) -> bool {
        self.native.get().is_some() && self.source.get() != MPI_ANY_SOURCE
    }

    /// The receiver of a synchronous send has begun.
    pub fn acknowledged(&self) {
        self.done.set(true);
    }

    /// Whether it is complete. Looks at the native request, and carries a collective on.
    pub fn ready(self: &Rc<Self>, world: &World) -> bool {
        if self.done.get() {
            return true;
        }
        if let Role::Task(task) = &self.role {
            return self.carry_on(task);
        }
        let Some(mut request) = self.native.get() else { return false };
        let (mut flag, mut found) = (0, empty_status());
        let code = native().MPI_Test(&mut request, &mut flag, &mut found);
        if flag != 0 || code != MPI_SUCCESS {
            self.ended_natively(world, found, code);
        }
        self.done.get()
    }

    fn carry_on(&self, task: &RefCell<Option<Task>>) -> bool {
        // Taken out while it runs: it may call the program's own operations, and they MPI.
        let Some(mut running) = task.borrow_mut().take() else { return false };
        match crate::progress::poll(running.as_mut()) {
            Some(result) => {
                if let Err(fault) = result {
                    self.error.set(fault.code);
                    self.told.set(fault.told);
                }
                self.done.set(true);
            }
            None => *task.borrow_mut() = Some(running),
        }
        self.done.get()
    }

    /// How it ended: its status, and its error.
    pub fn end(&self) -> (MPI_Status, Int) {
        let mut found = self.status.get();
        if self.cancelled.get() {
            native().MPI_Status_set_cancelled(&mut found, 1);
        }
        (found, self.error.get())
    }

    /// Why it failed, if it has.
    pub fn fault(&self) -> Res {
        let (code, told) = (self.error.get(), self.told.get());
        if code == MPI_SUCCESS { Ok(()) } else { Err(Fault { code, told }) }
    }

    /// Its end has been handed out.
    pub fn rest(&self) {
        self.active.set(false);
    }

    /// Cancels what can be cancelled: a receive that nothing has matched, and what the native library can.
    pub fn cancel(self: &Rc<Self>, world: &World) {
        if self.done.get() || !self.active.get() {
            return;
        }
        match self.role {
            Role::Receive => {
                if self.withdraw(world) {
                    self.cancelled.set(true);
                    self.complete(world);
                }
            }
            Role::Send(_) => {
                if let Some(mut request) = self.native.get() {
                    native().MPI_Cancel(&mut request);
                    self.native.set(Some(request));
                }
            }
            Role::Task(_) => {}
        }
    }

    /// The program gives it up: what is only native is given up natively, the rest goes on by itself.
    pub fn release(&self) {
        let anybody = matches!(self.role, Role::Receive) && self.source.get() == MPI_ANY_SOURCE;
        if let Some(mut request) = self.native.get().filter(|_| !anybody) {
            native().MPI_Request_free(&mut request);
            self.native.set(None);
        }
    }

    /// After a restore: a receive from anybody takes the source that it had.
    pub fn repeat_source(self: &Rc<Self>, world: &World) {
        let Some(source) = self.number.get().and_then(|number| world.outcomes.source(number)) else { return };
        if self.source.get() != MPI_ANY_SOURCE || self.done.get() || !self.withdraw(world) {
            return;
        }
        self.source.set(source);
        self.leave_queue();
        if self.post(world).is_err() {
            world::end(1, "a receive could not be posted again after the restore");
        }
    }

    /// Adopts a native request, of a receive whose message was taken before.
    pub fn adopt(&self, request: MPI_Request) {
        self.active.set(true);
        self.native.set(Some(request));
    }
}

/// Sends a message within this group.
pub fn send_native(mode: Mode, part: Part, to: Int, tag: Int, comm: MPI_Comm, request: &mut MPI_Request) -> Int {
    let (native, Part { at, count, datatype }) = (native(), part);
    match mode {
        Mode::Standard => native.MPI_Isend(at, count, datatype, to, tag, comm, request),
        Mode::Synchronous => native.MPI_Issend(at, count, datatype, to, tag, comm, request),
        Mode::Ready => native.MPI_Irsend(at, count, datatype, to, tag, comm, request),
        Mode::Buffered => native.MPI_Ibsend(at, count, datatype, to, tag, comm, request),
    }
}
