//! One dump in progress. CRIU writes the images and we save the rest while the program stands still; then all of it
//! is flushed to disk while the program runs.

pub mod damage;
pub mod flush;
pub mod progress;
pub mod release;
pub mod staging;

use crate::client::{Ask, LEAVE_LIMIT};
use crate::dumping::damage::LongRunning;
use crate::dumping::flush::flush;
use crate::dumping::release::{Holdings, Released};
use crate::dumping::staging::Stage;
use crate::frozen::{self, Temporaries};
use crate::relay::Relay;
use crate::task::{Ended, Task};
use crate::{seconds, tool};
use increments::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest time that the kernel may take to end a CRIU that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How a dump ended: the time for which the program stood still, s, or why it failed.
pub type Outcome = Result<f64, String>;

/// What a dump has reached.
pub enum Progress {
    /// CRIU has written its images, and the program stands still.
    Frozen,
    /// We have saved what CRIU's images lack, or failed to; the program still stands still.
    Saved(Done),
    /// The program goes on, and the dump has ended.
    Over(Outcome),
}

/// Work that a thread does for a dump.
enum Work {
    Releases(JoinHandle<Result<Released, release::Error>>),
    Saves(JoinHandle<Done>),
    Settles(JoinHandle<Done>),
}

type Done = Result<(), String>;

/// A dump in progress.
pub struct Dumping {
    ask: Ask,
    task: Task,
    program: i32,
    /// What the program has let go for CRIU.
    released: Released,
    until: Instant,
    criu: i32,
    long_running: LongRunning,
    /// The program has a network of its own: a CRIU that is killed during the dump leaves its connections locked.
    has_network: bool,
    /// Why the program cannot go on, if so.
    harm: Option<String>,
    /// Why it cannot go on as soon as its dump, which is good, is on disk.
    late_harm: Option<String>,
    /// Where CRIU writes first; absent if it writes to the checkpoint's folder directly.
    stage: Option<Stage>,
    /// Written to by CRIU's hook and by work that has ended, to wake the loop.
    wake: Pipe,
    thaw: Pipe,
    work: Option<Work>,
    /// While a driver gives the program its GPUs back: what it says, and how the dump has gone until then.
    regains: Option<(Receiver<Result<(), gpu::Error>>, Done)>,
    was_frozen: bool,
    saved: Option<Done>,
    frozen_s: f64,
    /// Whether the client still awaits the message that the program goes on.
    is_to_tell: bool,
    given_up: Option<GivenUp>,
    stop: Stop,
}

/// Why and since when a dump is no longer wanted.
struct GivenUp {
    reason: &'static str,
    at: Instant,
    /// Whether CRIU was killed for it.
    is_killed: bool,
}

/// Both ends of a pipe, kept open so that the other user may open and close it at will.
struct Pipe {
    read: File,
    write: File,
}

/// Wakes the loop when it is dropped, however the work has ended.
struct Wake(File);

impl Drop for Wake {
    fn drop(&mut self) {
        let _ = self.0.write_all(b"\n");
    }
}

impl Pipe {
    fn new() -> Result<Pipe, String> {
        let ends = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| e.to_string())?;
        Ok(Pipe { read: File::from(ends.0), write: File::from(ends.1) })
    }
}

/// What a thread has made, or that it has failed.
fn ended<T>(work: JoinHandle<Result<T, impl ToString>>) -> Result<T, String> {
    let made = work.join().map(|made| made.map_err(|e| e.to_string()));
    made.unwrap_or_else(|_| Err("the work on a dump has failed".to_string()))
}

impl Dumping {
    /// Starts a dump of a program, in memory if that may be used and it fits.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(task: &Task, program: i32, ask: Ask) -> Result<Dumping, String> {
        let until = Instant::now() + seconds(ask.limit_s);
        let mut dumping = Dumping {
            ask,
            task: task.clone(),
            program,
            released: Released::default(),
            until,
            criu: 0,
            long_running: LongRunning::default(),
            has_network: task.own_network,
            harm: None,
            late_harm: None,
            stage: None,
            wake: Pipe::new()?,
            thaw: Pipe::new()?,
            work: None,
            regains: None,
            saved: None,
            frozen_s: 0.0,
            is_to_tell: false,
            given_up: None,
            stop: Stop::default(),
            was_frozen: false,
        };
        let tree = frozen::tree(program);
        match Holdings::of(task, &tree) {
            None => dumping.freeze(),
            Some(holdings) => dumping.release(holdings, tree),
        }
        .map_err(|e| e.to_string())?;
        Ok(dumping)
    }

    /// Starts CRIU, which writes to memory if that may be used and is enough.
    fn freeze(&mut self) -> io::Result<()> {
        let share = Some(self.ask.memory_share).filter(|share| *share > 0.0);
        self.stage = share.and_then(|share| Stage::for_dump(&self.task, &frozen::tree(self.program), share));
        let images = self.at().join(tool::IMAGES);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", images.display()));
        DirBuilder::new().mode(0o700).create(&images).map_err(named)?;
        self.long_running = LongRunning::of(self.program);
        let (wake, thaw) = (self.wake.write.as_raw_fd(), self.thaw.read.as_raw_fd());
        let command = tool::dump(&self.task, self.program, self.at(), wake, thaw);
        let child = command.and_then(|mut command| command.spawn());
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.task.criu.display()));
        self.criu = child.map_err(failed)?.id() as i32;
        Ok(())
    }

    /// Has the program let go what CRIU cannot dump.
    fn release(&mut self, holdings: Holdings, tree: Vec<i32>) -> io::Result<()> {
        let (task, folder, stop) = (self.task.clone(), self.ask.folder.clone(), self.stop.clone());
        let work = self.work(move || holdings.release(&task, &tree, &folder, &stop))?;
        self.work = Some(Work::Releases(work));
        Ok(())
    }

    /// The program has let it go, or not.
    fn released(&mut self, work: JoinHandle<Result<Released, release::Error>>) -> Option<Progress> {
        match work.join() {
            Err(_) => self.harm = Some("the work on a dump has failed".to_string()),
            Ok(Err(e)) if e.is_harm() => self.harm = Some(e.to_string()),
            Ok(Err(e)) => return Some(Progress::Over(Err(e.to_string()))),
            Ok(Ok(released)) => {
                self.released = released;
                let begun = match &self.given_up {
                    Some(given_up) => Err(given_up.reason.to_string()),
                    None => self.freeze().map_err(|e| e.to_string()),
                };
                return begun.err().and_then(|reason| self.regain(Err(reason))).map(Progress::Over);
            }
        }
        None
    }

    /// Has the driver give the program its GPUs back, if it has let any go; the outcome if nothing is left to wait for.
    fn regain(&mut self, so_far: Done) -> Option<Outcome> {
        self.released.ranks = None;
        let Some(suspended) = self.released.gpus.take() else { return self.settle(so_far).err().map(Err) };
        let ((teller, told), run) = (channel(), self.task.run.clone());
        // What it saves meanwhile is not awaited: the dump has failed then.
        self.work = None;
        match self.work(move || teller.send(release::give_back(&run, &suspended))) {
            Ok(_) => self.regains = Some((told, so_far)),
            Err(e) => self.harm = Some(format!("its GPUs: {e}")),
        }
        None
    }

    /// The program has its GPUs back, if the driver has said so; the outcome if the whole dump has one.
    fn regained(&mut self) -> Option<Outcome> {
        // The work tells before it wakes the loop.
        let (told, so_far) = self.regains.take()?;
        let why = match told.try_recv() {
            Err(TryRecvError::Empty) => {
                self.regains = Some((told, so_far));
                return None;
            }
            Ok(Ok(())) => return self.settle(so_far).err().map(Err),
            Ok(Err(e)) => format!("its GPUs: {e}"),
            Err(TryRecvError::Disconnected) => "its GPUs: the work on a dump has failed".to_string(),
        };
        match self.settle(so_far) {
            Ok(()) => (self.late_harm, self.is_to_tell) = (Some(why), false),
            Err(_) => self.harm = Some(why),
        }
        None
    }

    /// Why the program cannot go on as soon as its dump, which is good, is on disk; if so.
    pub fn late_harm(&self) -> Option<&str> {
        self.late_harm.as_deref()
    }

    /// CRIU's process id; 0 if it has ended.
    pub fn criu(&self) -> i32 {
        self.criu
    }

    /// Readable when [`Dumping::woken`] has something to do.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.wake.read.as_fd()
    }

    fn at(&self) -> &Path {
        self.stage.as_ref().map_or(&self.ask.folder, Stage::path)
    }

    /// Handles a wake-up: CRIU has written its images, or a piece of work has ended.
    pub fn woken(&mut self) -> Option<Progress> {
        if let Err(e) = self.wake.read.read(&mut [0; 16]) {
            if self.released.gpus.is_none() && self.regains.is_none() {
                return Some(Progress::Over(Err(e.to_string())));
            }
            self.harm = Some(format!("its GPUs: {e}"));
            return None;
        }
        if self.regains.is_some() {
            return self.regained().map(Progress::Over);
        }
        match self.work.take() {
            Some(Work::Releases(work)) => self.released(work),
            // Work that nobody awaits any more has ended.
            None if self.criu == 0 => None,
            None => {
                self.was_frozen = true;
                // After `give_up` nobody wants to hear that the program stood still.
                self.given_up.is_none().then_some(Progress::Frozen)
            }
            Some(Work::Saves(_)) if self.given_up.is_some() => None,
            Some(Work::Saves(work)) => Some(Progress::Saved(self.saved.insert(ended(work)).clone())),
            Some(Work::Settles(work)) => Some(Progress::Over(ended(work).map(|()| self.frozen_s))),
        }
    }

    /// Saves what is not in the images, while the program stands still.
    pub fn save(&mut self, program: i32, relays: &mut [Relay], temporaries: &Temporaries) {
        let (at, stop) = (self.at().to_path_buf(), self.stop.clone());
        let temporaries = Temporaries { keeps: self.ask.keeps_leftovers, ..temporaries.clone() };
        let overwritten_bytes = self.ask.overwritten_bytes;
        let pipes = frozen::pipes(relays);
        // The relay is outside, and sees no memory of the sandbox.
        let (world, folder) = (self.task.world.clone(), self.ask.folder.clone());
        let (criu, gpus) = (self.task.criu.clone(), self.released.gpus.clone());
        let save = move || {
            tool::refuse_lost(&criu, || frozen::tree(program)).map_err(|e| e.to_string())?;
            world.map_or(Ok(()), |world| world.save(&folder)).map_err(|e| e.to_string())?;
            frozen::save(program, pipes?, gpus, &temporaries, overwritten_bytes, &at, &stop)
        };
        match self.work(save) {
            Ok(saving) => self.work = Some(Work::Saves(saving)),
            Err(_) => self.give_up("no thread could be started"),
        }
    }

    /// Lets the program go on; the dump counts if it is to be kept and everything is saved.
    pub fn thaw(&mut self, keep: bool) {
        match self.saved {
            Some(Ok(())) if keep => self.answer("go"),
            Some(Err(_)) if keep => self.answer("no"),
            _ => self.give_up("given up"),
        }
    }

    /// Answers CRIU's hook, now or when it asks.
    fn answer(&mut self, word: &str) {
        let _ = writeln!(self.thaw.write, "{word}");
    }

    /// Whether the program has stood still for it.
    pub fn was_frozen(&self) -> bool {
        self.was_frozen
    }

    /// In a thread, so that a hanging file system does not block the loop.
    fn work<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let wake = Wake(self.wake.write.try_clone()?);
        thread::Builder::new().spawn(move || {
            let _wake = wake;
            act()
        })
    }

    /// Ends a dump that takes too long or is no longer wanted, and kills a CRIU that does not stop by itself. Returns
    /// the outcome if nothing is left to wait for.
    pub fn look_after(&mut self, wanted: bool) -> Option<Outcome> {
        if let Some(given_up) = &mut self.given_up
            && self.criu != 0
            && !given_up.is_killed
            && given_up.at.elapsed() > LEAVE_LIMIT
        {
            given_up.is_killed = true;
            self.long_running.forget_ended();
            // The site's CRIU command may be a script around the real one: kill the whole tree.
            for pid in frozen::tree(self.criu) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if self.harm.is_some() {
            return None;
        }
        let late = Instant::now() > self.until;
        let reason = if late { "it took too long and was ended" } else { "given up" };
        if self.given_up.is_some() || wanted && !late {
            return None;
        }
        self.give_up(reason);
        // The program must have back what it has let go.
        let waits = self.criu != 0 || self.regains.is_some() || matches!(self.work, Some(Work::Releases(_)));
        (!waits).then(|| Err(reason.to_string()))
    }

    /// Why the program cannot be trusted to go on, if so.
    pub fn has_harmed(&self) -> Option<String> {
        let is_stuck = |g: &GivenUp| self.criu != 0 && g.at.elapsed() > LEAVE_LIMIT + KILL_LIMIT;
        let stuck = self.given_up.as_ref().is_some_and(is_stuck);
        self.harm.clone().or_else(|| stuck.then(|| "criu does not end, although it was killed".to_string()))
    }

    /// Makes CRIU fail by itself, which leaves the program intact. Killing CRIU does not always: in a trial, 15
    /// programs of 386 died.
    fn give_up(&mut self, reason: &'static str) {
        if self.given_up.is_some() {
            return;
        }
        self.given_up = Some(GivenUp { reason, at: Instant::now(), is_killed: false });
        self.stop.ask();
        self.answer("no");
        if self.criu != 0 && !self.was_frozen {
            tool::hinder(self.criu, self.at());
        }
    }

    /// Takes note that CRIU has ended; the outcome if the whole dump has.
    pub fn criu_ended(&mut self, status: Ended) -> Option<Outcome> {
        self.criu = 0;
        let is_killed = matches!(status, Ended::Signal(_));
        if is_killed && (self.has_network || !self.was_frozen && self.long_running.has_losses()) {
            self.harm = Some("criu was killed, and a part of the program with it".to_string());
        }
        let _ = fs::remove_file(tool::hook(self.at()));
        let verdict = self.verdict(status);
        self.regain(verdict)
    }

    /// The program goes on: brings a dump that has gone well so far to disk.
    fn settle(&mut self, so_far: Done) -> Done {
        so_far?;
        self.frozen_s =
            self.released.since.map_or_else(|| tool::frozen_s(self.at()), |since| since.elapsed().as_secs_f64());
        let (at, ask, stop) = (self.at().to_path_buf(), self.ask.clone(), self.stop.clone());
        let settle = move || flush(&at, &ask.folder, ask.compress, ask.increments.as_ref(), &stop);
        let settling = self.work(settle).map_err(|e| e.to_string())?;
        self.work = Some(Work::Settles(settling));
        self.is_to_tell = self.ask.tells_going_on;
        Ok(())
    }

    /// True once, when the program has gone on and the client wants to know.
    pub fn goes_on(&mut self) -> bool {
        std::mem::take(&mut self.is_to_tell)
    }

    fn verdict(&mut self, status: Ended) -> Result<(), String> {
        if let Some(GivenUp { reason, .. }) = self.given_up {
            return Err(reason.to_string());
        }
        match status {
            Ended::Code(0) => self.saved.clone().unwrap_or(Err("criu never stopped the program".to_string())),
            Ended::Code(_) => {
                // A failure of ours comes first: it is why CRIU was told to fail.
                let ours = self.saved.clone().and_then(Result::err);
                Err(ours.unwrap_or_else(|| tool::reason(self.at(), "dump.log")))
            }
            Ended::Signal(signal) => Err(format!("criu was ended by {signal}")),
        }
    }

    /// The request for the same dump straight to disk, if memory was too small for it.
    pub fn without_memory(&self) -> Option<Ask> {
        let full = self.given_up.is_none() && self.stage.as_ref().is_some_and(Stage::is_full);
        full.then(|| Ask { memory_share: 0.0, ..self.ask.clone() })
    }
}
