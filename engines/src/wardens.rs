//! Has all tasks of a job's running steps dumped as one: freeze all, dump all, and one recovery line or none.
//!
//! Each task runs below a warden ([`::criu::supervisor`]), which calls the driver when it begins. A dump has three phases,
//! and each waits for all tasks: they stand still and write their images; while all stand still the rest is saved; they
//! go on. So there is a moment at which all stood still, and the line is the state of that moment. A warden that hears
//! no more of the driver lets its program go on; nothing of the dump counts then.

mod dump;
mod tasks;
#[cfg(test)]
mod tests;
mod unproven;

use ::criu::line::{self, ADDRESS, FOLDER, Hello, Line, Member, Order, Said, Sent};
use ::criu::supervisor::EXIT_NO_SANDBOX;

use driver::ports::by_signal;
pub use dump::{Dump, Standing};
use run::write_durably;
use std::fs::DirBuilder;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tasks::{State, Step, Task};
use unproven::Unproven;

/// How long a task that could be restored waits for another one of its step that has not called yet: its warden was
/// killed before it could.
const MEETING_LIMIT: Duration = Duration::from_secs(30);

/// Pause after a caller that could not be let in, as without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a task was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is gone and nobody knows how it ended: it, its warden, or its node was killed.
    Gone,
    /// It could not be restored, and the checkpoint has a mark for that.
    NotRestored,
}

/// What is told when a task is lost, with a question: whether the `srun` of its step was killed, which Slurm cannot tell from a
/// step that was cancelled. Says whether somebody wanted that.
pub type Lost = dyn Fn(&Member, Loss, &dyn Fn() -> bool) -> bool + Send + Sync;

/// Is told the exit code of each task that a signal from outside has ended, and tells whether that is what somebody wants.
pub type AskedToEnd = dyn Fn(&Member, i32) -> bool + Send + Sync;

/// What the driver does with what it hears.
pub struct Callbacks {
    /// Is told of each task that goes without a word.
    pub lost: Box<Lost>,
    /// Is told of each task that somebody has ended.
    pub asked: Box<AskedToEnd>,
    /// Takes what a task's supervisor or the stand-in of `srun` has to say to the user.
    pub says: Box<dyn Fn(&str) + Send + Sync>,
}

impl Callbacks {
    /// Says it in the output of the job.
    pub fn new(
        lost: impl Fn(&Member, Loss, &dyn Fn() -> bool) -> bool + Send + Sync + 'static,
        asked: impl Fn(&Member, i32) -> bool + Send + Sync + 'static,
    ) -> Callbacks {
        Callbacks { lost: Box::new(lost), asked: Box::new(asked), says: Box::new(|text| protocol::say!("{text}")) }
    }
}

/// The driver's end of the lines to all wardens of a job.
#[derive(Clone)]
pub struct Wardens(Arc<Shared>);

struct Shared {
    /// Held by the dump that is on its way.
    dump: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    callbacks: Callbacks,
}

impl Wardens {
    /// Listens for the tasks of a run on this host, which other nodes know by the name or address `host`.
    ///
    /// # Errors
    /// What the file system or the network says.
    pub fn listen(run: &Path, host: &str, callbacks: Callbacks) -> io::Result<Wardens> {
        let folder = run.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let secret = line::secret(run).map_err(io::Error::other)?;
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let address = format!("{host}:{}\n", listener.local_addr()?.port());
        write_durably(&folder.join(ADDRESS), address.as_bytes())?;
        let (dump, state, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { dump, state, changed, callbacks });
        let wardens = Wardens(shared.clone());
        let unproven = Unproven::default();
        threads::start(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                let Some(place) = unproven.admit(&stream) else { continue };
                let (shared, secret, unproven) = (shared.clone(), secret.clone(), unproven.clone());
                threads::start(move || {
                    let answered = line::answer(stream, &secret);
                    drop(place);
                    match answered {
                        Ok((Hello::Task(member), line)) => shared.serve(member, line),
                        Ok((Hello::Step { call, words, outside, together, goes_on }, line)) => {
                            if let Ok(teller) = line.teller() {
                                shared.keep_together(&words, outside.as_ref().or(together.as_ref()));
                                let (is_ending, asks) = (false, false);
                                shared.hold(Step { call, words, outside, goes_on, teller, is_ending, asks }, line);
                            }
                        }
                        Err(e) => unproven.refuse(&e.to_string()),
                    }
                });
            }
        });
        Ok(wardens)
    }

    /// The tasks that run.
    pub fn tasks(&self) -> Vec<Member> {
        let state = self.0.state();
        state.tasks.values().filter(|t| t.ended.is_none()).map(|t| t.member.clone()).collect()
    }

    /// Forgets the tasks that have ended of calls that are over.
    pub fn forget_ended(&self, is_open: &dyn Fn(&str) -> bool) {
        self.0.state().tasks.retain(|_, t| t.ended.is_none() || is_open(&t.member.call));
    }

    /// What the ranks of the MPI programs that have ended since the script began have sent from node to node; none if none
    /// of them has several, or not all was counted.
    pub fn sent(&self) -> Option<Sent> {
        let sum = |a: Sent, b: Sent| Sent {
            messages: a.messages.saturating_add(b.messages),
            bytes: a.bytes.saturating_add(b.bytes),
        };
        let state = self.0.state();
        // A script that has begun again has skipped what had ended.
        let all: Option<Vec<Sent>> = state.sent.values().copied().collect();
        all.filter(|_| state.begun <= 1)?.into_iter().reduce(sum)
    }

    /// Why the nodes of the job's steps could not go back one by one, if one of them has said so.
    pub fn together(&self) -> Option<String> {
        self.0.state().together.clone()
    }

    /// Ends and forgets all tasks: the script begins anew, and what is left of the steps before must not run beside it.
    pub fn forget(&self) {
        let mut state = self.0.state();
        for task in state.tasks.values_mut() {
            let _ = task.teller.tell(&Order::End);
            task.teller.hang_up();
        }
        state.tasks.clear();
        state.steps.clear();
        state.broken.clear();
        state.unheld.clear();
        state.killed.clear();
        state.sent.clear();
        state.begun += 1;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what stands against going back one by one: the first call that has something tells it.
    fn keep_together(&self, words: &str, why: Option<&String>) {
        let Some(why) = why else { return };
        self.state().together.get_or_insert_with(|| format!("{words}: {why}"));
    }

    /// Hears a task until its line ends.
    fn serve(self: &Arc<Self>, member: Member, line: Line) {
        let Ok(teller) = line.teller() else { return };
        let mut state = self.state();
        let id = state.number();
        state.tasks.insert(id, Task::new(member.clone(), teller));
        state.end_unheld(&member.call);
        drop(state);
        for said in line.words::<Said>() {
            // Slurm is asked, or something is said, which may take a while: not under the lock.
            let said = match said {
                Said::Remark(remark) => {
                    let line = self.state().remark(&member.call, remark);
                    line.iter().for_each(|line| (self.callbacks.says)(line));
                    continue;
                }
                Said::Ended { code, carried_bytes, asked: true, sent } => {
                    let is_broken = self.state().broken.contains(&member.call);
                    Said::Ended {
                        code,
                        carried_bytes,
                        asked: !is_broken && (self.callbacks.asked)(&member, code),
                        sent,
                    }
                }
                said => said,
            };
            let mut state = self.state();
            let Some(task) = state.tasks.get_mut(&id) else { return };
            match said {
                // A launcher that tells of a rank that was killed: all go back, as for a task that was killed.
                Said::Ended { code, asked: false, .. } if by_signal(code).is_some() && member.ranks.is_some() => {
                    task.teller.hang_up();
                    state.broken.insert(member.call.clone());
                    state.end_ranks(&member, code);
                }
                Said::Ended { code, carried_bytes, asked, sent } => {
                    task.ended = Some(code);
                    task.carried_bytes = carried_bytes;
                    if member.ranks.is_some() && member.tasks > 1 {
                        state.sent.insert((member.call.clone(), member.rank), sent);
                    }
                    if asked {
                        state.tell_steps(&member.call);
                    } else if code != 0 {
                        state.broken.insert(member.call.clone());
                        state.end_ranks(&member, code);
                    }
                }
                Said::Ready => {
                    task.ready = true;
                    self.expect_others(id, &member);
                }
                Said::NotRestored => task.loss = Loss::NotRestored,
                Said::Unheld => {
                    task.ended = Some(EXIT_NO_SANDBOX);
                    state.unheld.insert(member.call.clone());
                    state.end_unheld(&member.call);
                }
                said => task.said = Some(said),
            }
            state.restore(&member);
            state.let_go(&member.call);
            state.answer(&member.call);
            drop(state);
            self.changed.notify_all();
        }
        let loss = {
            let mut state = self.state();
            let loss = state.gone(id);
            state.let_go(&member.call);
            loss
        };
        self.changed.notify_all();
        if loss.is_some_and(|loss| self.lose(&member, loss)) {
            self.state().tell_steps(&member.call);
        }
    }

    /// Tells that a task is lost; whether somebody wanted that.
    fn lose(&self, member: &Member, loss: Loss) -> bool {
        (self.callbacks.lost)(member, loss, &|| self.state().killed.contains(&member.call))
    }

    /// Tells that a step is lost if a task of it has not called in time.
    fn expect_others(self: &Arc<Self>, id: u64, member: &Member) {
        let (shared, member) = (self.clone(), member.clone());
        threads::start(move || {
            thread::sleep(MEETING_LIMIT);
            if shared.state().waits_in_vain(id) {
                shared.lose(&member, Loss::Gone);
            }
        });
    }

    /// Knows of a step until its line ends.
    fn hold(&self, step: Step, line: Line) {
        let call = step.call.clone();
        let mut state = self.state();
        let id = state.number();
        state.steps.insert(id, step);
        drop(state);
        for said in line.words::<Said>() {
            if let Said::Remark(text) = &said {
                (self.callbacks.says)(text);
                continue;
            }
            let mut state = self.state();
            match (said, state.steps.get_mut(&id)) {
                (Said::Ending, Some(step)) => step.is_ending = true,
                (Said::Killed, Some(_)) => drop(state.killed.insert(call.clone())),
                (Said::EndedWell, Some(step)) => step.asks = true,
                _ => {}
            }
            state.answer(&call);
        }
        let mut state = self.state();
        if state.steps.remove(&id).is_some() {
            state.tasks.retain(|_, t| t.member.call != call);
            state.unheld.remove(&call);
        }
    }
}
