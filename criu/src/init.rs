//! The first process of a sandbox: starts or restores the program, carries its output on, reaps, and has it dumped.
//!
//! One loop waits for everything: signals, output, requests, CRIU. CRIU has to run within the sandbox, since it
//! refuses to dump the processes of another pid namespace.

mod ending;
mod orders;
mod program;

use crate::dumping::Dumping;
use crate::frozen::{self, Temporaries};
use crate::line::{LIMIT, Line, Said};
use crate::relay::{self, Relay};
use crate::sandbox;
use crate::supervisor::without_sandbox;
use crate::task::{Ended, Task};
use crate::world::{ABORT_LIMIT, World};
use crate::{EXIT_KILLED, client, marks};
use ending::ENDING;
use fencing::Placement;
use leftovers::Place;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use openfiles::Mounts;
use openfiles::by_size::is_of_job;
use openfiles::patiently::patiently;
use orders::Asker;
use program::NotBack;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Longest wait in one round of the loop, so that time limits are noticed, ms.
const ROUND_MS: u16 = 200;

/// Reason for ending a program whose placement is over.
const SUPERSEDED: &str = "another has taken the place of this program, or its run has ended; it ends";

struct Init<'a> {
    task: &'a Task,
    signals: SignalFd,
    listener: Option<UnixListener>,
    line: Option<Line>,
    relays: Vec<Relay>,
    /// The program's temporary folder, the user's or ours, and what it made elsewhere.
    temporaries: Temporaries,
    program: i32,
    may_restore: bool,
    /// The program is to end.
    is_unwanted: bool,
    runs: bool,
    /// Signals that arrived before the program was restored.
    early: Vec<(Signal, bool)>,
    /// Signals from outside that were given to the program, and when last.
    given: BTreeMap<i32, Instant>,
    /// Signals that somebody gave to this process by its number, as to all others, and when last.
    of_all: BTreeMap<i32, Instant>,
    /// The first of them that asks for an end; 0 if none has.
    asked: Arc<AtomicI32>,
    /// How many dumps in a row a stopped process has put off.
    put_off: u32,
    /// How the program has ended on another node, if that ends it here.
    ends_as: Option<i32>,
    ended: Option<Ended>,
    /// Why the program cannot be trusted to go on, if so.
    harm: Option<String>,
    /// The dump in progress, and who asked for it.
    dumping: Option<(Dumping, Asker)>,
}

/// Runs the sandbox to its end; tells how the program has ended. `tmp` is a temporary folder for a program whose user
/// names none.
pub fn run(task: &Task, line: Option<Line>, tmp: Option<&Path>, signals: &SigSet, teller: &Arc<File>) -> Ended {
    let told = |reason: String, code: i32| {
        protocol::say!("joulepoint: {reason}");
        Ended::Code(code)
    };
    let mut init = match Init::open(task, line.is_some(), tmp, signals) {
        Ok(init) => Init { line, ..init },
        Err(reason) => return without_sandbox(task, line, &reason),
    };
    // After waiting for storage, another placement may have taken over.
    if task.placement.as_ref().is_some_and(Placement::is_over) {
        return told(SUPERSEDED.to_string(), EXIT_KILLED);
    }
    task.placement.clone().into_iter().for_each(|placement| end_with(placement, teller.clone(), init.asked.clone()));
    if task.restore.is_none()
        && let Err(reason) = init.number()
    {
        return without_sandbox(task, init.line, &reason);
    }
    let begun = match &task.restore {
        Some(folder) => init.restore(folder).map_err(|NotBack { reason, of }| {
            if !init.is_unwanted {
                marks::leave(task, folder, of, &reason);
                init.tell(&Said::NotRestored);
            }
            let told = match init.is_unwanted {
                true => reason,
                false => format!("{} could not be restored: {reason}", folder.display()),
            };
            (told, EXIT_KILLED)
        }),
        None => init.start(),
    };
    match begun.and_then(|()| init.follow()) {
        Ok(ended) => {
            let (code, carried_bytes, asked) = (ended.exit_code(), init.carried_bytes(), init.is_asked(ended));
            // The relay beside it may still hold what other nodes need to come to their end.
            let limit = match (&task.world, code) {
                (None, _) => Some(LIMIT),
                (Some(_), 0) => None,
                (Some(_), _) => Some(ABORT_LIMIT),
            };
            let world = task.world.as_ref().filter(|_| code == 0);
            let sent = world.map(World::sent).and_then(|sent| {
                sent.inspect_err(|e| tracing::warn!(%e, "the messages of an MPI program are not counted")).ok()
            });
            let last = Said::Ended { code, carried_bytes, asked, sent };
            init.line.into_iter().for_each(|line| line.leave(&last, limit));
            ended
        }
        Err((reason, code)) => told(reason, code),
    }
}

/// Ends this process, and with it the whole sandbox, as soon as its placement is over: as somebody has asked the program to.
fn end_with(placement: Placement, teller: Arc<File>, asked: Arc<AtomicI32>) {
    threads::start(move || {
        while !placement.is_over() {
            thread::sleep(fencing::LOOK);
        }
        protocol::say!("joulepoint: {SUPERSEDED}");
        let signal = Signal::try_from(asked.load(Ordering::SeqCst));
        leave(&teller, signal.map_or(Ended::Code(EXIT_KILLED), Ended::Signal))
    });
}

/// Tasks of a step begin so long after one another at most; what the script has made just before it is put back with theirs.
const EARLIER: Duration = Duration::from_secs(5);

/// Where a program makes files that are lost with its node.
fn places(task: &Task, memory_is_shared: bool) -> Vec<Place> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let known = [Some(task.run.clone()), std::env::current_dir().ok(), named("HOME"), named("SLURM_SUBMIT_DIR")];
    let known: Vec<PathBuf> = known.into_iter().flatten().collect();
    let shared: Vec<&Path> = known.iter().map(PathBuf::as_path).collect();
    let mounts = Mounts::of(Path::new("/proc/self")).unwrap_or_default();
    leftovers::common(memory_is_shared).into_iter().chain(leftovers::scratch(&mounts, &shared)).collect()
}

/// Ends this process, and tells its supervisor by which signal: the first process of a namespace cannot end by one.
pub fn leave(mut teller: &File, ended: Ended) -> ! {
    if let Ended::Signal(signal) = ended {
        let _ = teller.write_all(&[signal as u8]);
    }
    std::process::exit(ended.exit_code())
}

impl Init<'_> {
    /// All but the line, if it has one.
    fn open<'a>(task: &'a Task, has_line: bool, tmp: Option<&Path>, signals: &SigSet) -> Result<Init<'a>, String> {
        // The sandbox ends with its supervisor.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string())?;
        // What is given to the supervisor's process group does not come here past it.
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(|e| e.to_string())?;
        // The script, other steps and other tasks of its step find what it has in `/dev/shm`; ranks of MPI have a world of their own.
        let from = task.restore.as_ref().and_then(|folder| frozen::read(folder).ok());
        let memory_is_shared = from.map_or(task.is_plain(), |from| from.memory_is_shared);
        sandbox::furnish(memory_is_shared)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let mut relays = relay::standard().map_err(|e| e.to_string())?;
        if has_line {
            relays.iter_mut().for_each(|relay| relay.by_lines(Vec::new()));
        }
        if let Some(member) = task.member.as_ref().filter(|_| task.labels) {
            relays.iter_mut().for_each(|relay| relay.label(member.label()));
        }
        Ok(Init {
            task,
            signals: SignalFd::with_flags(signals, flags).map_err(|e| e.to_string())?,
            listener: match has_line {
                true => None,
                false => {
                    Some(patiently(|| client::listen(&task.run)).map_err(|e| format!("{}: {e}", task.run.display()))?)
                }
            },
            may_restore: !has_line,
            is_unwanted: false,
            line: None,
            relays,
            temporaries: Temporaries {
                is_shared: tmp.is_none()
                    && std::env::var_os("TMPDIR").is_some_and(|named| !is_of_job(Path::new(&named))),
                own: tmp.map(PathBuf::from).or_else(|| {
                    let named = PathBuf::from(std::env::var_os("TMPDIR")?);
                    // A link to it is no part of it.
                    Some(fs::canonicalize(&named).unwrap_or(named))
                }),
                began: Some(SystemTime::now()),
                since: task.member.is_none().then(SystemTime::now),
                places: places(task, memory_is_shared),
                memory_is_shared,
                here_since: Some(SystemTime::now() - EARLIER),
                keeps: true,
                local: Vec::new(),
                for_all: frozen::for_all(task),
                others: [Some(task.run.clone()), std::env::current_dir().ok()].into_iter().flatten().collect(),
            },
            program: 0,
            runs: false,
            early: Vec::new(),
            given: BTreeMap::new(),
            of_all: BTreeMap::new(),
            put_off: 0,
            asked: Arc::default(),
            ends_as: None,
            ended: None,
            harm: None,
            dumping: None,
        })
    }

    /// Runs the loop until the program has ended; an error carries the sandbox's exit code.
    fn follow(&mut self) -> Result<Ended, (String, i32)> {
        let own = |e: io::Error| (format!("the sandbox has failed: {e}"), 126);
        self.runs = true;
        for (signal, for_all) in std::mem::take(&mut self.early) {
            self.signalled(signal as i32, for_all);
        }
        loop {
            let criu = self.dumping.as_ref().map_or(0, |(d, _)| d.criu());
            let status = self.reap(criu);
            let outcome = status.and_then(|status| self.dumping.as_mut()?.0.criu_ended(status));
            self.trust()?;
            self.goes_on();
            self.dumped(outcome);
            if let Some(ended) = self.ended {
                self.hear_signals();
                self.relays.iter_mut().try_for_each(Relay::finish).map_err(own)?;
                return Ok(self.of_program(ended));
            }
            let outcome = self.dumping.as_mut().and_then(|(d, asker)| d.look_after(asker.waits()));
            self.dumped(outcome);
            self.wait().map_err(own)?;
        }
    }

    /// Fails if a dump may have damaged the program.
    fn trust(&self) -> Result<(), (String, i32)> {
        let why = self.harm.clone().or_else(|| self.dumping.as_ref()?.0.has_harmed());
        why.map_or(Ok(()), |why| Err((format!("{why}; all of it goes back to its last checkpoint"), EXIT_KILLED)))
    }

    /// Waits for the next event and handles all but ended processes.
    fn wait(&mut self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd> = vec![self.signals.as_fd()];
        fds.extend(self.relays.iter().map(Relay::read_end));
        let relays = 1..fds.len();
        fds.extend(self.dumping.as_ref().map(|(d, _)| d.wakes()));
        let woken = relays.end..fds.len();
        // Requests wait while the program is being restored.
        fds.extend(self.listener.as_ref().filter(|_| self.runs).map(AsFd::as_fd));
        let asked = woken.end..fds.len();
        fds.extend(self.line.as_ref().map(AsFd::as_fd));
        let mut polled: Vec<PollFd> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::from(ROUND_MS)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.any().unwrap_or(false)).collect();
        self.hear_signals();
        for (relay, ready) in self.relays.iter_mut().zip(&ready[relays]) {
            if *ready { relay.drain()? } else { relay.rest() }
        }
        if ready[asked].contains(&true) {
            self.asked();
        }
        if ready[woken].contains(&true) {
            self.woken();
        }
        self.obey();
        Ok(())
    }

    /// Passes a signal to the program, or to all of its processes. While it is being restored a signal would kill it, and the
    /// checkpoint would be blamed.
    fn signalled(&mut self, number: i32, for_all: bool) {
        match Signal::try_from(number) {
            Err(_) | Ok(Signal::SIGCHLD) => {}
            Ok(signal) if !self.runs && ENDING.contains(&signal) => self.end(),
            Ok(signal) if !self.runs => self.early.push((signal, for_all)),
            Ok(signal) if self.ended.is_none() => self.give(signal, for_all),
            Ok(_) => {}
        }
    }

    /// Ends the program, and a CRIU that is restoring it.
    fn end(&mut self) {
        self.is_unwanted = true;
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    }

    /// Reaps all ended processes; how `criu` ended if it is among them.
    fn reap(&mut self, criu: i32) -> Option<Ended> {
        let mut of_criu = None;
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid.as_raw(), Ended::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid.as_raw(), Ended::Signal(signal)),
                Err(nix::Error::EINTR) => continue,
                _ => return of_criu,
            };
            if pid == criu {
                of_criu = Some(status);
            } else if pid == self.program {
                self.ended = Some(status);
            }
        }
    }
}
