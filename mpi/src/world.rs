//! Everything that this rank keeps between two calls.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::communicator::{Comm, Message};
use crate::file::Files;
use crate::operation::Operation;
use crate::outcome::Outcomes;
use crate::probe::Taken;
use crate::progress::Progress;
use crate::window::Windows;
use mpi_ranks::{Place, Slots};
use mpi_relay::Error;
use mpi_relay::transport::Transport;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Everything that this rank keeps between two calls.
pub struct World {
    /// Who is where.
    pub layout: Place,
    /// This rank.
    pub rank: u32,
    /// The way to the other groups.
    pub transport: Box<dyn Transport>,
    /// Communicators of several groups, and those with a topology of ours, by their handle.
    comms: RefCell<HashMap<MPI_Comm, Rc<Comm>>>,
    /// Native communicators of which a receive from anybody must be known, by their handle.
    thin: RefCell<HashMap<MPI_Comm, Rc<Comm>>>,
    /// All communicators with messages of ours, by their context.
    pub contexts: RefCell<HashMap<u64, Weak<Comm>>>,
    /// Messages whose communicator this rank has yet to create.
    pub early: RefCell<HashMap<u64, VecDeque<Message>>>,
    /// Requests that the program holds.
    pub requests: Slots<Rc<Operation>>,
    /// Groups that the program holds.
    pub groups: Slots<Rc<Vec<u32>>>,
    /// Messages that a matched probe took.
    pub messages: Slots<Rc<Taken>>,
    /// Nonblocking duplicates that are not made yet.
    pub duplicates: Cell<usize>,
    /// How often a group of processes has created a communicator without their parent's others.
    pub created: RefCell<HashMap<u64, u64>>,
    /// Synchronous sends whose receiver has not begun, by number; `None` where it has, and the send has not been executed
    /// again since a restore.
    pub synchronous: RefCell<HashMap<u32, Option<Rc<Operation>>>>,
    /// The number of the last synchronous send.
    pub last_synchronous: Cell<u32>,
    /// What drives messages and collectives.
    pub progress: Progress,
    /// What came of calls that depend on time.
    pub outcomes: Outcomes,
    /// Files that are open.
    pub files: Files,
    /// Windows.
    pub windows: Windows,
    /// Whether the native library serves several threads at once.
    pub has_threads: Cell<bool>,
    /// The value of the attribute `MPI_UNIVERSE_SIZE`.
    pub universe: Box<Int>,
}

impl World {
    /// A world without communicators.
    pub fn new(layout: Place, rank: u32, transport: Box<dyn Transport>) -> World {
        let universe = Box::new(layout.size() as Int);
        World {
            layout,
            rank,
            transport,
            comms: RefCell::default(),
            thin: RefCell::default(),
            contexts: RefCell::default(),
            early: RefCell::default(),
            requests: Slots::default(),
            groups: Slots::default(),
            messages: Slots::default(),
            duplicates: Cell::default(),
            created: RefCell::default(),
            synchronous: RefCell::default(),
            last_synchronous: Cell::new(0),
            progress: Progress::default(),
            outcomes: Outcomes::default(),
            files: Files::default(),
            windows: Windows::default(),
            has_threads: Cell::default(),
            universe,
        }
    }

    /// The communicator of ours under a handle, or `None` if it is native.
    pub fn find(&self, handle: MPI_Comm) -> Option<Rc<Comm>> {
        self.comms.borrow().get(&handle).cloned()
    }

    /// The communicator under a handle, native ones too.
    pub fn find_any(&self, handle: MPI_Comm) -> Option<Rc<Comm>> {
        if let Some(found) = self.find(handle).or_else(|| self.thin.borrow().get(&handle).cloned()) {
            return Some(found);
        }
        let comm = Rc::new(Comm::thin(self, handle)?);
        self.thin.borrow_mut().insert(handle, comm.clone());
        Some(comm)
    }

    /// Makes a communicator known; messages that came before it are handed to it.
    pub fn register(&self, comm: Comm) -> Rc<Comm> {
        let comm = Rc::new(comm);
        self.keep(comm.clone());
        for lane in 0..2 {
            if let Some(messages) = self.early.borrow_mut().remove(&(comm.context | lane)) {
                comm.lanes[lane as usize].unexpected.borrow_mut().extend(messages);
            }
        }
        comm
    }

    /// Knows a communicator under its handle and its context.
    pub fn keep(&self, comm: Rc<Comm>) {
        self.contexts.borrow_mut().insert(comm.context, Rc::downgrade(&comm));
        self.comms.borrow_mut().insert(comm.handle, comm);
    }

    /// Forgets a communicator that its owner has freed: its handle may be that of another one by now, which a second thread made.
    pub fn forget(&self, gone: &Rc<Comm>) {
        let there = self.find(gone.handle);
        if there.is_some_and(|there| Rc::ptr_eq(&there, gone)) {
            self.comms.borrow_mut().remove(&gone.handle);
        }
        // Operations that are under way there come to their end.
        if Rc::strong_count(gone) == 1 {
            self.contexts.borrow_mut().remove(&gone.context);
        }
    }

    /// The same of a native one.
    pub fn forget_native(&self, handle: MPI_Comm) {
        self.thin.borrow_mut().remove(&handle);
    }

    /// Whether some of these ranks are in other groups.
    pub fn spans(&self, ranks: &[u32]) -> bool {
        ranks.iter().any(|rank| self.layout.native(*rank).is_none())
    }

    /// All communicators in which receives may be posted.
    pub fn all(&self) -> Vec<Rc<Comm>> {
        self.comms.borrow().values().chain(self.thin.borrow().values()).cloned().collect()
    }
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether a native function is at work in this thread that calls MPI itself, of this group alone.
    static BYPASSED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a native function that may wait for other ranks: other threads of this one come in meanwhile.
pub fn aside(call: impl FnOnce() -> Int) -> Int {
    match get() {
        Some(world) => world.progress.outside(call),
        None => call(),
    }
}

/// The same for one that calls MPI itself under its public names, as ROMIO does: those calls are native.
pub fn natively(call: impl FnOnce() -> Int) -> Int {
    aside(|| {
        let before = BYPASSED.replace(true);
        let code = call();
        BYPASSED.set(before);
        code
    })
}

/// This rank's world, or `None` if the program does not run over groups, before `MPI_Init` and after `MPI_Finalize`.
#[inline]
pub fn get() -> Option<&'static World> {
    if BYPASSED.get() {
        return None;
    }
    // SAFETY: set once from a leaked box and never freed. `World::enter` lets one thread at a time use it.
    unsafe { WORLD.load(Ordering::Acquire).as_ref() }
}

/// Begins to answer for the world; `None` ends it. It is never freed: requests of the program's may still name it.
pub fn set(world: Option<World>) {
    let at = world.map_or(std::ptr::null_mut(), |world| Box::into_raw(Box::new(world)));
    WORLD.store(at, Ordering::Release);
}

/// Ends this rank, since nothing goes on with the others: with the code of one that has aborted the program.
pub fn lost(what: &str, error: &Error) -> ! {
    let code = if let Error::Aborted { code, .. } = error { *code } else { 1 };
    end(code, &format!("{what}: {error}"))
}

/// Ends all ranks of all groups, with a word on why.
pub fn end(code: Int, why: &str) -> ! {
    match get() {
        Some(world) => {
            eprintln!("joulepoint: rank {}: {why}; the program ends", world.rank);
            world.transport.abort(code);
        }
        None => eprintln!("joulepoint: {why}; the program ends"),
    }
    native().MPI_Abort(handles().world, code);
    std::process::exit(code)
}
