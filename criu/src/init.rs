//! The first process of a sandbox: starts or restores the program, carries its output on, reaps, and has it dumped.
//!
//! One loop waits for everything: signals, output, requests, CRIU. CRIU has to run within the sandbox, since it
//! refuses to dump the processes of another pid namespace.

use crate::client::{self, Answer, Ask};
use crate::dumping::{Dumping, Outcome, Progress};
use crate::frozen::{self, Frozen};
use crate::line::{Line, Order, Said};
use crate::relay::{self, Relay};
use crate::sandbox::{self, Names};
use crate::warden::Task;
use crate::{EXIT_KILLED, NOT_RESTORED, settle, tool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait in one round, so that limits are kept, ms.
const ROUND_MS: u16 = 200;

/// Longest wait for the text of a request; who may connect is the user's own wrapper.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// How often a restore is tried.
const RESTORES: u32 = 2;

struct Init<'a> {
    task: &'a Task,
    signals: SignalFd,
    listener: Option<UnixListener>,
    line: Option<Line>,
    relays: Vec<Relay>,
    tmp: Option<PathBuf>,
    program: i32,
    may_restore: bool,
    /// Nobody wants the program any more.
    is_unwanted: bool,
    runs: bool,
    ended: Option<Ended>,
    /// A dump on its way, and who wants it.
    dumping: Option<(Dumping, Asker)>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// By itself, with an exit code.
    Code(i32),
    /// By a signal.
    Signal(Signal),
}

impl Ended {
    fn exit_code(self) -> i32 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => 128 + signal as i32,
        }
    }
}

/// Who asked for a dump: the wrapper of a whole script, or the driver of a job, which tells each phase.
enum Asker {
    Socket(UnixStream),
    Line,
}

impl Asker {
    /// Whether the dump is still wanted; the driver of a job says so itself.
    fn waits(&self) -> bool {
        match self {
            Asker::Socket(stream) => !hung_up(stream),
            Asker::Line => true,
        }
    }
}

/// Why a program is not back.
struct NotBack {
    reason: String,
    /// Whether the checkpoint is to blame: not if others were missing.
    of_checkpoint: bool,
}

impl NotBack {
    fn alone(reason: &str) -> NotBack {
        NotBack { reason: reason.to_string(), of_checkpoint: false }
    }
}

impl From<String> for NotBack {
    fn from(reason: String) -> NotBack {
        NotBack { reason, of_checkpoint: true }
    }
}

/// Runs the sandbox to its end; the exit code of the program.
pub fn run(task: &Task, line: Option<Line>, names: &Names, signals: &SigSet) -> i32 {
    let told = |reason: String, code: i32| {
        eprintln!("joulepoint: {reason}");
        code
    };
    let mut init = match Init::open(task, line, names, signals) {
        Ok(init) => init,
        Err(reason) => return told(reason, 126),
    };
    let begun = match &task.restore {
        Some(folder) => init.restore(folder).map_err(|NotBack { reason, of_checkpoint }| {
            // The line of a whole step is set aside, not one task of it.
            let line = if task.member.is_some() { folder.parent().unwrap_or(folder) } else { folder };
            if of_checkpoint {
                let _ = fs::write(line.join(NOT_RESTORED), &reason);
            }
            (format!("{} could not be restored: {reason}", folder.display()), EXIT_KILLED)
        }),
        None => init.start(),
    };
    match begun.and_then(|()| init.follow().map_err(|e| (format!("the sandbox has failed: {e}"), 126))) {
        Ok(code) => {
            let carried_bytes = init.carried_bytes();
            init.line.into_iter().for_each(|line| line.leave(&Said::Ended { code, carried_bytes }));
            code
        }
        Err((reason, code)) => told(reason, code),
    }
}

impl Init<'_> {
    fn open<'a>(task: &'a Task, line: Option<Line>, names: &Names, signals: &SigSet) -> Result<Init<'a>, String> {
        // Nothing of the sandbox outlives its warden.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string())?;
        sandbox::furnish(&task.run, names)?;
        if task.own_network {
            sandbox::raise_loopback()?;
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let mut relays = relay::standard().map_err(|e| e.to_string())?;
        if line.is_some() {
            relays.iter_mut().for_each(|relay| relay.by_lines(Vec::new()));
        }
        Ok(Init {
            task,
            signals: SignalFd::with_flags(signals, flags).map_err(|e| e.to_string())?,
            listener: match line {
                Some(_) => None,
                None => Some(client::listen(&task.run).map_err(|e| format!("{}: {e}", task.run.display()))?),
            },
            may_restore: line.is_none(),
            is_unwanted: false,
            line,
            relays,
            tmp: std::env::var_os("TMPDIR").map(PathBuf::from),
            program: 0,
            runs: false,
            ended: None,
            dumping: None,
        })
    }

    /// Starts the program; an error comes with the exit code that a shell would give.
    fn start(&mut self) -> Result<(), (String, i32)> {
        let own = |e: io::Error| (e.to_string(), 126);
        sandbox::set_last_pid(sandbox::FIRST_PID - 1).map_err(|e| (e, 126))?;
        relay::begin(&mut self.relays, &self.task.run.join(relay::BEGAN)).map_err(own)?;
        let (name, arguments) = self.task.command.split_first().ok_or(("there is no command".to_string(), 126))?;
        let end = |relay: &Relay| relay.write_end().try_clone_to_owned().map_err(own);
        let (Some(out), Some(err)) = (self.relays.first(), self.relays.last()) else {
            return Err(("there is no output".to_string(), 126));
        };
        let mut command = Command::new(name);
        command
            .args(arguments)
            .stdin(standard_input(self.line.is_some()).map_err(own)?)
            .stdout(Stdio::from(end(out)?))
            .stderr(Stdio::from(end(err)?))
            // The program is number 0 here; its descriptors and the wrapper's credentials stay outside.
            .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
            .env("PMIX_MCA_psec", "native")
            .env_remove("FT_ENERGY_DONE_FD");
        if self.task.own_network && !self.tmp.as_deref().is_some_and(frozen::is_own_folder) {
            // Where launchers put what all their processes map.
            command.env("TMPDIR", frozen::SHARED_MEMORY);
        }
        sandbox::confine(&mut command);
        let child = command.spawn().map_err(|e| {
            let code = if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (format!("{}: {e}", name.display()), code)
        })?;
        self.program = child.id() as i32;
        Ok(())
    }

    /// Brings the program back from a checkpoint.
    fn restore(&mut self, folder: &Path) -> Result<(), NotBack> {
        let unpacked = settle::unpacked(folder, &self.task.run)?;
        // Tasks of a step that are back already write to files that another try would cut.
        let tries = if self.line.is_some() { 1 } else { RESTORES };
        let mut restored = Ok(());
        for _ in 0..tries {
            restored = self.restore_once(&unpacked);
            if restored.is_ok() {
                break;
            }
            self.end_all();
        }
        settle::forget_unpacked(&self.task.run);
        restored
    }

    fn restore_once(&mut self, folder: &Path) -> Result<(), NotBack> {
        let Frozen { program, last_pid, pipes, .. } = frozen::put_back(folder)?;
        let mut ends = Vec::new();
        for (i, pipe) in pipes.iter().enumerate() {
            // A job that had one output and has two now goes on with the first.
            let gone = || "standard error has gone where standard output goes".to_string();
            let relay = self.relays.get_mut(i).ok_or_else(gone)?;
            if let Some(bytes) = pipe.kept_bytes {
                relay.go_back(bytes).map_err(|e| format!("the output: {e}"))?;
            }
            if self.line.is_some() {
                relay.by_lines(pipe.held.clone());
            }
            ends.push((pipe.inode, relay::inheritable(relay.write_end()).map_err(|e| e.to_string())?));
        }
        self.wait_for_others()?;
        let child = tool::restore(self.task, folder, &ends).spawn();
        let criu = child.map_err(|e| format!("{}: {e}", self.task.criu.display()))?.id() as i32;
        drop(ends);
        self.program = program;
        self.ended = None;
        let until = Instant::now() + seconds(self.task.limit_s);
        let status = loop {
            if let Some(status) = self.reap(criu) {
                break status;
            }
            if Instant::now() > until {
                return Err(format!("criu took longer than {} s", self.task.limit_s).into());
            }
            self.wait().map_err(|e| e.to_string())?;
        };
        if status != Ended::Code(0) {
            return Err(match status {
                _ if self.is_unwanted => NotBack::alone("it was ended"),
                // By somebody, or for want of memory: the images may be good.
                Ended::Signal(Signal::SIGKILL) => NotBack::alone("criu was killed"),
                _ => tool::reason(folder, "restore.log").into(),
            });
        }
        // New processes must not take numbers that belong to images to come.
        Ok(sandbox::set_last_pid(last_pid)?)
    }

    /// Waits until all tasks of the step have put their files back, since they may share some.
    fn wait_for_others(&mut self) -> Result<(), NotBack> {
        self.tell(&Said::Ready);
        let until = Instant::now() + seconds(self.task.limit_s);
        while !self.may_restore && !self.is_unwanted {
            if self.line.is_none() || Instant::now() > until {
                return Err(NotBack::alone("the other tasks of the step do not come back"));
            }
            self.wait().map_err(|e| NotBack::alone(&e.to_string()))?;
        }
        if self.is_unwanted { Err(NotBack::alone("it was ended")) } else { Ok(()) }
    }

    /// Ends whatever a failed restore has left.
    fn end_all(&mut self) {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        while waitpid(None, None).is_ok() {}
    }

    /// Goes on until the program has ended.
    fn follow(&mut self) -> io::Result<i32> {
        self.runs = true;
        loop {
            let criu = self.dumping.as_ref().map_or(0, |(d, _)| d.criu());
            if let Some(status) = self.reap(criu) {
                let outcome = self.dumping.as_mut().and_then(|(d, _)| d.criu_ended(status));
                self.dumped(outcome);
            }
            if let Some(code) = self.ended.map(Ended::exit_code) {
                self.relays.iter_mut().try_for_each(Relay::finish)?;
                return Ok(code);
            }
            let outcome = self.dumping.as_mut().and_then(|(d, asker)| d.look_after(asker.waits()));
            self.dumped(outcome);
            self.wait()?;
        }
    }

    /// Waits for anything to happen, and deals with all of it but ended processes.
    fn wait(&mut self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd> = vec![self.signals.as_fd()];
        fds.extend(self.relays.iter().map(Relay::read_end));
        let relays = 1..fds.len();
        fds.extend(self.dumping.as_ref().map(|(d, _)| d.wakes()));
        let woken = relays.end..fds.len();
        fds.extend(self.listener.as_ref().map(AsFd::as_fd));
        let asked = woken.end..fds.len();
        fds.extend(self.line.as_ref().map(AsFd::as_fd));
        let mut polled: Vec<PollFd> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::from(ROUND_MS)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.any().unwrap_or(false)).collect();
        while let Ok(Some(info)) = self.signals.read_signal() {
            self.signalled(info.ssi_signo as i32);
        }
        for (relay, _) in self.relays.iter_mut().zip(&ready[relays]).filter(|(_, ready)| **ready) {
            relay.drain()?;
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

    /// Passes a signal to the program, or heeds it if there is none yet.
    fn signalled(&mut self, number: i32) {
        match Signal::try_from(number) {
            Err(_) | Ok(Signal::SIGCHLD) => {}
            Ok(Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT) if self.program == 0 => {
                self.is_unwanted = true;
            }
            Ok(signal) if self.program > 0 && self.ended.is_none() => {
                let _ = kill(Pid::from_raw(self.program), signal);
            }
            Ok(_) => {}
        }
    }

    /// Takes in all ended processes; how `criu` ended if it is among them.
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

    /// Somebody asks for a dump.
    fn asked(&mut self) {
        let Some(Ok((mut stream, _))) = self.listener.as_ref().map(UnixListener::accept) else { return };
        let asker = || stream.try_clone().map(Asker::Socket).map_err(|e| e.to_string());
        let begun = read(&stream).and_then(|ask| self.begin(ask, asker()?));
        if let Err(reason) = begun {
            answer(&mut stream, &Answer::Failed(reason));
        }
    }

    /// Does what the driver of the job says; without it the program goes on, and no dump counts.
    fn obey(&mut self) {
        loop {
            let Some(line) = &mut self.line else { return };
            match line.hear() {
                Ok(Some(order)) => self.ordered(order),
                Ok(None) => return,
                Err(_) => {
                    self.line = None;
                    self.thaw(false);
                }
            }
        }
    }

    fn ordered(&mut self, order: Order) {
        match order {
            Order::Freeze(ask) => {
                if let Err(reason) = self.begin(ask, Asker::Line) {
                    self.tell(&Said::Failed(reason));
                }
            }
            // What failed before the driver knew of it.
            Order::Save | Order::Thaw { keep: true } if self.dumping.is_none() => {
                self.tell(&Said::Failed("no dump is on its way".to_string()));
            }
            Order::Save => self.save(),
            Order::Restore => self.may_restore = true,
            Order::Thaw { keep } => self.thaw(keep),
            Order::End => {
                self.is_unwanted = true;
                let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            }
        }
    }

    fn carried_bytes(&self) -> [u64; 2] {
        let carried = |relay: Option<&Relay>| relay.map_or(0, Relay::carried_bytes);
        [carried(self.relays.first()), carried(self.relays.get(1))]
    }

    fn tell(&mut self, said: &Said) {
        // A line that is broken is noticed when it is read.
        let _ = self.line.as_mut().map(|line| line.tell(said));
    }

    fn begin(&mut self, ask: Ask, asker: Asker) -> Result<(), String> {
        if !self.runs {
            return Err("the program is not back yet".to_string());
        }
        if self.dumping.is_some() {
            return Err("another dump is on its way".to_string());
        }
        self.dumping = Some((Dumping::begin(self.task, self.program, ask)?, asker));
        Ok(())
    }

    /// A dump has come a step further: a wrapper wants all of it at once, a driver tells each phase.
    fn woken(&mut self) {
        let Some((dumping, asker)) = &mut self.dumping else { return };
        match (dumping.woken(), &*asker) {
            (None, _) => {}
            (Some(Progress::Over(outcome)), _) => self.dumped(Some(outcome)),
            (Some(Progress::Frozen), Asker::Socket(_)) => self.save(),
            (Some(Progress::Saved(_)), Asker::Socket(_)) => self.thaw(true),
            (Some(_), Asker::Line) if self.line.is_none() => self.thaw(false),
            (Some(Progress::Frozen), Asker::Line) => self.tell(&Said::Frozen),
            (Some(Progress::Saved(Err(reason))), Asker::Line) => self.tell(&Said::Failed(reason)),
            (Some(Progress::Saved(Ok(()))), Asker::Line) => {
                let carried_bytes = self.carried_bytes();
                self.tell(&Said::Saved { carried_bytes });
            }
        }
    }

    fn save(&mut self) {
        if let Some((dumping, _)) = &mut self.dumping {
            dumping.save(self.program, &mut self.relays, self.tmp.as_deref());
        }
    }

    /// Lets the program go on; the dump counts if it is to be kept and everything is saved.
    fn thaw(&mut self, keep: bool) {
        if let Some((dumping, _)) = &mut self.dumping {
            dumping.thaw(keep);
        }
    }

    /// Answers if the dump has ended; one for which memory was too small begins again without, unless its driver has
    /// heard of its failure.
    fn dumped(&mut self, outcome: Option<Outcome>) {
        let Some(mut outcome) = outcome else { return };
        let Some((dumping, asker)) = self.dumping.take() else { return };
        let again = outcome.as_ref().err().and_then(|_| dumping.without_memory());
        let again = again.filter(|_| matches!(asker, Asker::Socket(_)) || !dumping.was_frozen());
        drop(dumping);
        if let Some(ask) = again {
            match Dumping::begin(self.task, self.program, ask) {
                Ok(dumping) => return self.dumping = Some((dumping, asker)),
                Err(reason) => outcome = Err(reason),
            }
        }
        match (asker, outcome) {
            (Asker::Socket(mut stream), Ok(frozen_s)) => answer(&mut stream, &Answer::Dumped { frozen_s }),
            (Asker::Socket(mut stream), Err(reason)) => answer(&mut stream, &Answer::Failed(reason)),
            (Asker::Line, Ok(frozen_s)) => self.tell(&Said::Dumped { frozen_s }),
            (Asker::Line, Err(reason)) => self.tell(&Said::Failed(reason)),
        }
    }
}

/// Standard input as the program can keep it over a restore: a file, or nothing; a task of a step is known to have none.
fn standard_input(is_empty: bool) -> io::Result<File> {
    let path = fs::read_link("/proc/self/fd/0").unwrap_or_default();
    match fs::metadata("/proc/self/fd/0").map(|m| m.file_type()) {
        Ok(kind) if kind.is_file() => File::open(path),
        Ok(_) if is_empty => File::open("/dev/null"),
        Ok(kind) if kind.is_fifo() || kind.is_char_device() && path != Path::new("/dev/null") => {
            eprintln!("joulepoint: standard input is empty for a program under the engine criu; read a file instead");
            File::open("/dev/null")
        }
        _ => OpenOptions::new().read(true).open("/dev/null"),
    }
}

fn read(stream: &UnixStream) -> Result<Ask, String> {
    let own = |e: io::Error| e.to_string();
    stream.set_read_timeout(Some(ASK_LIMIT)).map_err(own)?;
    let mut line = String::new();
    BufReader::new(stream.take(1 << 16)).read_line(&mut line).map_err(own)?;
    stream.set_nonblocking(true).map_err(own)?;
    serde_json::from_str(&line).map_err(|e| e.to_string())
}

fn hung_up(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Who asked may have gone; the program goes on either way.
fn answer(stream: &mut UnixStream, said: &Answer) {
    if let Ok(text) = serde_json::to_string(said) {
        let _ = stream.write_all(format!("{text}\n").as_bytes());
    }
}

/// A limit that a clock can hold.
fn seconds(limit_s: f64) -> Duration {
    Duration::from_secs_f64(limit_s.clamp(0.0, 1e6))
}
