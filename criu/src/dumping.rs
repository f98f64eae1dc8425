//! One dump in progress. CRIU writes the images and we save the rest while the program stands still; then all of it
//! is flushed to disk while the program runs.

pub mod damage;
pub mod flush;
pub mod progress;
pub mod staging;

use crate::client::{Ask, LEAVE_LIMIT};
use crate::dumping::damage::LongRunning;
use crate::dumping::flush::flush;
use crate::dumping::staging::Stage;
use crate::frozen::{self, Temporaries};
use crate::relay::Relay;
use crate::task::{Ended, Task};
use crate::world::{self, Resting, World};
use crate::{peers, seconds, tool};
use increments::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Display;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
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
    Rests(JoinHandle<Result<Resting, world::Error>>),
    Saves(JoinHandle<Done>),
    Settles(JoinHandle<Done>),
}

type Done = Result<(), String>;

/// A dump in progress.
pub struct Dumping {
    ask: Ask,
    task: Task,
    program: i32,
    /// While MPI ranks hold no connection to their relay.
    resting: Option<Resting>,
    until: Instant,
    criu: i32,
    long_running: LongRunning,
    /// The program has a network of its own: a CRIU that is killed during the dump leaves its connections locked.
    has_network: bool,
    /// CRIU was killed and processes of the program died with it.
    is_harmed: bool,
    /// Where CRIU writes first; absent if it writes to the checkpoint's folder directly.
    stage: Option<Stage>,
    /// Written to by CRIU's hook and by work that has ended, to wake the loop.
    wake: Pipe,
    thaw: Pipe,
    work: Option<Work>,
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
        let tree = frozen::tree(program);
        let stage = (ask.memory_share > 0.0).then(|| Stage::for_dump(task, &tree, ask.memory_share)).flatten();
        let until = Instant::now() + seconds(ask.limit_s);
        let at = stage.as_ref().map_or(&*ask.folder, Stage::path);
        DirBuilder::new().mode(0o700).create(at.join(tool::IMAGES)).map_err(|e| format!("{}: {e}", at.display()))?;
        let (wake, thaw) = (Pipe::new()?, Pipe::new()?);
        let long_running = LongRunning::of(program);
        let (work, saved, given_up, stop) = (None, None, None, Stop::default());
        let mut dumping = Dumping {
            ask,
            task: task.clone(),
            program,
            resting: None,
            until,
            criu: 0,
            long_running,
            has_network: task.own_network,
            is_harmed: false,
            stage,
            wake,
            thaw,
            work,
            saved,
            frozen_s: 0.0,
            is_to_tell: false,
            given_up,
            stop,
            was_frozen: false,
        };
        match &task.world {
            None => dumping.freeze(),
            Some(world) => dumping.rest(world),
        }
        .map_err(|e| e.to_string())?;
        Ok(dumping)
    }

    /// Starts CRIU.
    fn freeze(&mut self) -> io::Result<()> {
        let (wake, thaw) = (self.wake.write.as_raw_fd(), self.thaw.read.as_raw_fd());
        let command = tool::dump(&self.task, self.program, self.at(), wake, thaw);
        let child = command.and_then(|mut command| command.spawn());
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.task.criu.display()));
        self.criu = child.map_err(failed)?.id() as i32;
        Ok(())
    }

    /// Has MPI ranks leave their relay first: CRIU dumps no connection to outside.
    fn rest(&mut self, world: &World) -> io::Result<()> {
        let (world, folder, stop) = (world.clone(), self.ask.folder.clone(), self.stop.clone());
        let work = self.work(move || world.rest(&folder, &stop))?;
        self.work = Some(Work::Rests(work));
        Ok(())
    }

    /// Ranks have left their relay, or not.
    fn rested(&mut self, resting: Result<Resting, impl Display>) -> Option<Progress> {
        self.resting = match (resting, &self.given_up) {
            (Err(reason), _) => return Some(Progress::Over(Err(reason.to_string()))),
            (Ok(_), Some(given_up)) => return Some(Progress::Over(Err(given_up.reason.to_string()))),
            (Ok(resting), None) => Some(resting),
        };
        self.freeze().err().map(|e| Progress::Over(Err(e.to_string())))
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
            return Some(Progress::Over(Err(e.to_string())));
        }
        match self.work.take() {
            Some(Work::Rests(work)) => self.rested(ended(work)),
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
        let (at, temporaries, stop) = (self.at().to_path_buf(), temporaries.clone(), self.stop.clone());
        let overwritten_bytes = self.ask.overwritten_bytes;
        let pipes = frozen::pipes(relays);
        // The relay is outside, and sees no memory of the sandbox.
        let (world, folder) = (self.task.world.clone(), self.ask.folder.clone());
        let is_patched = tool::is_patched(&self.task.criu);
        let save = move || {
            if !is_patched {
                peers::refuse_memory_files(&frozen::tree(program)).map_err(|e| e.to_string())?;
            }
            world.map_or(Ok(()), |world| world.save(&folder)).map_err(|e| e.to_string())?;
            frozen::save(program, pipes?, &temporaries, overwritten_bytes, &at, &stop)
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
        let mut wake = self.wake.write.try_clone()?;
        thread::Builder::new().spawn(move || {
            let done = act();
            let _ = wake.write_all(b"\n");
            done
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
        let late = Instant::now() > self.until;
        let reason = if late { "it took too long and was ended" } else { "given up" };
        if self.given_up.is_some() || wanted && !late {
            return None;
        }
        self.give_up(reason);
        (self.criu == 0).then(|| Err(reason.to_string()))
    }

    /// Why the program cannot be trusted to go on, if so.
    pub fn has_harmed(&self) -> Option<&'static str> {
        let is_stuck = |g: &GivenUp| self.criu != 0 && g.at.elapsed() > LEAVE_LIMIT + KILL_LIMIT;
        let harm = [
            (self.given_up.as_ref().is_some_and(is_stuck), "criu does not end, although it was killed"),
            (self.is_harmed, "criu was killed, and a part of the program with it"),
        ];
        harm.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
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
        (self.criu, self.resting) = (0, None);
        let is_killed = matches!(status, Ended::Signal(_));
        self.is_harmed = is_killed && (self.has_network || !self.was_frozen && self.long_running.has_losses());
        let _ = fs::remove_file(tool::hook(self.at()));
        let settling = self.verdict(status).and_then(|()| {
            self.frozen_s = tool::frozen_s(self.at());
            let (at, ask, stop) = (self.at().to_path_buf(), self.ask.clone(), self.stop.clone());
            let settle = move || flush(&at, &ask.folder, ask.compress, ask.increments.as_ref(), &stop);
            let settling = self.work(settle).map_err(|e| e.to_string())?;
            self.work = Some(Work::Settles(settling));
            self.is_to_tell = self.ask.tells_going_on;
            Ok(())
        });
        settling.err().map(Err)
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
