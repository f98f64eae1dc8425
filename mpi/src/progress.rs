//! Drives everything that is under way: takes messages in, matches them, carries collectives on, and waits.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::Res;
use crate::communicator::Message;
use crate::operation::Operation;
use crate::refused::fallback;
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
use threads::{Guard, Inside};

/// What is under way, and whether it is being looked at.
#[derive(Default)]
pub struct Progress {
    /// Collectives that the program has started and does not wait for now.
    tasks: RefCell<VecDeque<Rc<Operation>>>,
    /// What may be freed when none is under way.
    later: RefCell<Vec<Box<dyn FnOnce()>>>,
    busy: Cell<bool>,
    /// The thread that waits in MPI.
    threads: Guard,
    idle: Cell<u32>,
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

/// Carries a future on by one step.
pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl World {
    /// Lets this thread carry messages on. Where another one does, the program ends: nothing here is made for two at once.
    fn enter(&self) -> Inside<'_> {
        self.progress.threads.enter().unwrap_or_else(|| {
            let reason =
                "two of its threads are in MPI at once (MPI_THREAD_MULTIPLE), which is not served between nodes";
            fallback::note(reason);
            world::end(1, reason)
        })
    }

    /// Sends a message to a rank of another group.
    pub fn send(&self, to: u32, envelope: Envelope, body: &[u8]) {
        let _inside = self.enter();
        self.outcomes.flush(self);
        if let Err(error) = self.transport.send(to, envelope, body) {
            world::lost(&format!("a message to rank {to} could not be sent"), &error);
        }
    }

    /// Takes in what has come, and carries collectives on.
    pub fn progress(&self) {
        let _inside = self.enter();
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
        let still: VecDeque<_> = tasks.into_iter().filter(|task| !task.ready(self)).collect();
        let mut tasks = self.progress.tasks.borrow_mut();
        let started = std::mem::replace(&mut *tasks, still);
        tasks.extend(started);
        drop(tasks);
        self.progress.busy.set(false);
        if !self.progress.later.borrow().is_empty() && !self.collectives_pending() {
            self.progress.later.take().into_iter().for_each(|free| free());
        }
    }

    /// Whether a collective is under way that the program does not wait for.
    pub fn collectives_pending(&self) -> bool {
        !self.progress.tasks.borrow().is_empty()
    }

    /// Frees something when no collective uses it any more.
    pub fn defer(&self, free: Box<dyn FnOnce()>) {
        self.progress.later.borrow_mut().push(free);
    }

    /// Takes over what a restored rank has to repeat, also for receives that have been posted already.
    pub fn refresh_outcomes(&self) {
        if self.outcomes.refresh(&*self.transport) {
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
            if let Some(send) = self.synchronous.borrow_mut().remove(&envelope.sync) {
                send.acknowledged();
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
        if !task.ready(self) {
            self.progress.tasks.borrow_mut().push_back(task);
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
        let _inside = self.enter();
        self.progress.idle.set(0);
        while !done() {
            self.turn(pace);
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

    fn turn(&self, pace: Pace) {
        let turns = self.progress.idle.get().saturating_add(1);
        self.progress.idle.set(turns);
        // What is native may be there within a microsecond: it is not kept waiting by a look, but for others' words of windows.
        let pace = if self.windows.are_open() { Pace::Transport } else { pace };
        let looks = turns > PATIENCE || turns % pace as u32 == if pace == Pace::Native { 0 } else { 1 };
        if looks {
            self.progress();
            if pace == Pace::Transport {
                // What is waited for may hang on a native message of this rank's that is under way.
                self.progress_natively();
            }
        }
        if turns > TIRED {
            if let Err(error) = self.transport.wait(NAP) {
                world::lost("the messages of other groups cannot be waited for", &error);
            }
        } else if turns > PATIENCE || looks {
            std::thread::yield_now();
        }
    }

    /// Has the native library carry its messages on.
    fn progress_natively(&self) {
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
    crate::border::check(operation.end().1)
}

/// Waits for a native request of a collective.
pub async fn complete_native(mut request: MPI_Request) -> Res {
    let code = std::future::poll_fn(|_| {
        let mut flag = 0;
        let code = native().MPI_Test(&mut request, &mut flag, no_status());
        if flag != 0 || code != MPI_SUCCESS { Poll::Ready(code) } else { Poll::Pending }
    })
    .await;
    crate::border::check(code)
}
