//! Drives everything that is under way: takes messages in, matches them, carries collectives on, and waits.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::Res;
use crate::communicator::Message;
use crate::operation::Operation;
use crate::world::{self, World};
use mpi_relay::Envelope;
use mpi_relay::transport::ACK;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use threads::{Inside, Reentrant};

/// Frees something.
type Free = Box<dyn FnOnce()>;

/// What is under way, and whether it is being looked at.
#[derive(Default)]
pub struct Progress {
    /// Collectives that the program has started and does not wait for now, in this order and with their numbers.
    tasks: RefCell<VecDeque<(u64, Rc<Operation>)>>,
    /// How many have been started.
    started: Cell<u64>,
    /// What is to be freed when the collectives below a number are over.
    later: RefCell<VecDeque<(u64, Free)>>,
    busy: Cell<bool>,
    /// Held by the thread that is in MPI and does not wait.
    threads: Reentrant,
    /// Whether the relay knows that several threads are in MPI.
    is_told: Cell<bool>,
}

/// What came of a call that waits.
pub enum Answer<T> {
    /// It is seen now.
    New(T),
    /// It was kept before the rank was restored.
    Repeated(i64),
}

/// What a waiting loop turns for: how often it looks at the transport, in turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// For a native request alone, which takes less time than a look at the transport.
    Native = 256,
    /// For a message of another group, perhaps.
    Transport = 8,
}

/// Turns after which a waiting rank begins to let others have its core.
const PATIENCE: u32 = 400;
/// Turns after which it sleeps for [`NAP`] at a time.
const TIRED: u32 = 20_000;
/// A tag that is allowed everywhere and, to itself, used by no program.
const UNUSED_TAG: Int = 32_767;
/// How long a rank sleeps at most that has found nothing to do for a while.
const NAP: Duration = Duration::from_micros(50);

impl Progress {
    /// Does something that may take long; other threads come in meanwhile, if they may.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.threads.outside(work)
    }
}

/// Carries a future on by one step.
pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl World {
    /// What a thread holds during a call: several of the program's may be in MPI at once.
    pub fn enter(&self) -> Inside<'_> {
        let inside = self.progress.threads.enter();
        if self.progress.threads.had_several() && !self.progress.is_told.replace(true) {
            // Which thread comes first is different each time.
            self.vary();
        }
        inside
    }

    /// The relay learns that this rank does not do the same again: no group goes back alone from then on.
    pub fn vary(&self) {
        if let Err(error) = self.transport.varies() {
            world::lost("the relay cannot be told that this program varies", &error);
        }
    }

    /// Sends a message to a rank of another group.
    pub fn send(&self, to: u32, envelope: Envelope, body: &[u8]) {
        self.outcomes.flush(self);
        if let Err(error) = self.transport.send(to, envelope, body) {
            world::lost(&format!("a message to rank {to} could not be sent"), &error);
        }
    }

    /// Takes in what has come, and carries collectives on.
    pub fn progress(&self) {
        if self.progress.busy.replace(true) {
            return;
        }
        self.refresh_outcomes();
        loop {
            match self.transport.receive() {
                Ok(Some((envelope, body))) => self.deliver(Message { envelope, body }),
                Ok(None) => break,
                Err(error) => world::lost("the messages of other groups cannot be received", &error),
            }
        }
        self.windows.serve(self);
        let tasks = self.progress.tasks.take();
        let still: VecDeque<_> = tasks.into_iter().filter(|(_, task)| !task.ready(self)).collect();
        let mut tasks = self.progress.tasks.borrow_mut();
        let started = std::mem::replace(&mut *tasks, still);
        tasks.extend(started);
        let oldest = tasks.front().map_or(u64::MAX, |(number, _)| *number);
        drop(tasks);
        self.progress.busy.set(false);
        self.free_deferred(oldest);
    }

    /// Whether a collective is under way that the program does not wait for, or at work just now.
    pub fn collectives_pending(&self) -> bool {
        self.progress.busy.get() || !self.progress.tasks.borrow().is_empty()
    }

    /// Frees something when none of the collectives that are under way can use it any more.
    pub fn defer(&self, free: Free) {
        self.progress.later.borrow_mut().push_back((self.progress.started.get(), free));
    }

    /// Frees what waits only for collectives before this one.
    pub fn free_deferred(&self, oldest: u64) {
        let due = || self.progress.later.borrow_mut().pop_front_if(|(number, _)| *number <= oldest);
        while let Some((_, free)) = due() {
            free();
        }
    }

    /// Takes over what a restored rank has to repeat, also for receives that have been posted already.
    pub fn refresh_outcomes(&self) {
        if self.outcomes.refresh(self) {
            for comm in self.all() {
                let posted: Vec<_> = comm.lanes[0].posted.borrow().iter().cloned().collect();
                for receive in posted {
                    receive.repeat_source(self);
                }
            }
        }
    }

    fn deliver(&self, message: Message) {
        let envelope = message.envelope;
        if envelope.kind == ACK {
            let mut sends = self.synchronous.borrow_mut();
            match sends.remove(&envelope.sync).flatten() {
                Some(send) => send.acknowledged(),
                None => drop(sends.insert(envelope.sync, None)),
            }
            return;
        }
        let found = self.contexts.borrow().get(&(envelope.context & !1)).cloned();
        let Some(comm) = found.and_then(|comm| comm.upgrade()) else {
            self.early.borrow_mut().entry(envelope.context).or_default().push_back(message);
            return;
        };
        let queues = &comm.lanes[(envelope.context & 1) as usize];
        loop {
            let first = queues.posted.borrow().iter().find(|receive| receive.matches(&envelope)).cloned();
            match first {
                // A native message may have matched it meanwhile: then it has left the queue, and the next is asked.
                Some(receive) if receive.withdraw(self) => return receive.receive(self, &message),
                Some(_) => {}
                None => return queues.unexpected.borrow_mut().push_back(message),
            }
        }
    }

    /// Carries a collective on at every progress, until it is complete.
    pub fn drive(&self, task: Rc<Operation>) {
        let number = self.progress.started.get();
        self.progress.started.set(number + 1);
        if !task.ready(self) {
            self.progress.tasks.borrow_mut().push_back((number, task));
        }
    }

    /// Waits until `done` says so, and drives everything meanwhile.
    pub fn wait_until(&self, done: impl FnMut() -> bool) {
        self.wait_at(Pace::Transport, done);
    }

    /// Waits until these are complete.
    pub fn wait_for_all(&self, operations: &[&Rc<Operation>]) {
        let natively = operations.iter().all(|operation| operation.is_native());
        let pace = if natively { Pace::Native } else { Pace::Transport };
        self.wait_at(pace, || operations.iter().fold(true, |all, operation| operation.ready(self) & all));
    }

    /// Waits until `done` says so, of what a native request completes.
    pub fn wait_natively(&self, done: impl FnMut() -> bool) {
        self.wait_at(Pace::Native, done);
    }

    fn wait_at(&self, pace: Pace, mut done: impl FnMut() -> bool) {
        let mut turns = 0_u32;
        while !done() {
            turns = turns.saturating_add(1);
            self.turn(pace, turns);
        }
    }

    /// Waits until `look` finds something. A rank that is restored meanwhile repeats what came of the call before.
    pub fn wait_or_repeat<T>(&self, call: u32, mut look: impl FnMut() -> Option<T>) -> Answer<T> {
        let mut answer = None;
        self.wait_until(|| {
            answer = match self.outcomes.repeat(self, call) {
                Some(value) => Some(Answer::Repeated(value)),
                None => look().map(Answer::New),
            };
            answer.is_some()
        });
        answer.expect("waited for")
    }

    /// One turn of a wait that has had so many.
    fn turn(&self, pace: Pace, turns: u32) {
        // What is native may be there within a microsecond: it is not kept waiting by a look, but for others' words of windows.
        let pace = if self.windows.are_open() { Pace::Transport } else { pace };
        let looks = turns > PATIENCE || turns % pace as u32 == if pace == Pace::Native { 0 } else { 1 };
        if looks && pace == Pace::Transport {
            self.look();
        } else if looks {
            self.progress();
        }
        // Threads that wait keep others of their rank from the cores.
        let tired = if self.progress.threads.had_several() { TIRED / 10 } else { TIRED };
        if turns > tired {
            if let Err(error) = self.progress.threads.outside(|| self.transport.wait(NAP)) {
                world::lost("the messages of other groups cannot be waited for", &error);
            }
        } else if turns > PATIENCE || looks {
            self.progress.threads.step_aside();
            std::thread::yield_now();
        }
    }

    /// Takes in what has come, and has the native library carry its messages on: what is looked for may hang on one of this
    /// rank's that is under way.
    pub fn look(&self) {
        self.progress();
        let (mut flag, own) = (0, handles().own);
        // One that finds something does nothing else: so it asks for what nobody sends.
        native().MPI_Iprobe(0, UNUSED_TAG, own, &mut flag, no_status());
    }

    /// Carries a collective out, and waits for its end.
    pub fn carry_out(&self, task: impl Future<Output = Res>) -> Res {
        let mut task = std::pin::pin!(task);
        let mut end = None;
        self.wait_until(|| {
            end = poll(task.as_mut());
            end.is_some()
        });
        end.expect("waited for")
    }

    /// Waits for a native request.
    pub fn wait_native(&self, request: &mut MPI_Request, status: *mut MPI_Status) -> Int {
        let (mut flag, mut code) = (0, MPI_SUCCESS);
        self.wait_at(Pace::Native, || {
            code = native().MPI_Test(request, &mut flag, status);
            flag != 0 || code != MPI_SUCCESS
        });
        code
    }
}

/// Waits for an operation of a collective.
pub async fn complete(world: &World, operation: Rc<Operation>) -> Res {
    std::future::poll_fn(|_| if operation.ready(world) { Poll::Ready(()) } else { Poll::Pending }).await;
    operation.fault()
}

/// Waits for a native request of a collective.
pub async fn complete_native(mut request: MPI_Request) -> Res {
    let code = std::future::poll_fn(|_| {
        let mut flag = 0;
        let code = native().MPI_Test(&mut request, &mut flag, no_status());
        if flag != 0 || code != MPI_SUCCESS { Poll::Ready(code) } else { Poll::Pending }
    })
    .await;
    crate::border::untold(code)
}
