//! The first process of a sandbox: starts or restores the program, carries its output on, reaps, and has it dumped.
//!
//! One loop waits for everything: signals, output, requests, CRIU. CRIU has to run within the sandbox, since it
//! refuses to dump the processes of another pid namespace.

use crate::client::{self, Answer, Ask};
use crate::dumping::{Dumping, Outcome};
use crate::frozen::{self, Frozen};
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

/// File in a run's folder that tells the sizes of its output files before it, bytes.
const BEGAN: &str = "output-began.json";

/// How often a restore is tried.
const RESTORES: u32 = 2;

struct Init<'a> {
    task: &'a Task,
    signals: SignalFd,
    listener: UnixListener,
    relays: Vec<Relay>,
    tmp: Option<PathBuf>,
    program: i32,
    ended: Option<Ended>,
    /// A dump on its way, and who wants it.
    dumping: Option<(Dumping, UnixStream)>,
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

/// Runs the sandbox to its end; the exit code of the program.
pub fn run(task: &Task, names: &Names, signals: &SigSet) -> i32 {
    let told = |reason: String, code: i32| {
        eprintln!("joulepoint: {reason}");
        code
    };
    let mut init = match Init::open(task, names, signals) {
        Ok(init) => init,
        Err(reason) => return told(reason, 126),
    };
    let begun = match &task.restore {
        Some(folder) => init.restore(folder).map_err(|reason| {
            let _ = fs::write(folder.join(NOT_RESTORED), &reason);
            (format!("{} could not be restored: {reason}", folder.display()), EXIT_KILLED)
        }),
        None => init.start(),
    };
    match begun.and_then(|()| init.follow().map_err(|e| (format!("the sandbox has failed: {e}"), 126))) {
        Ok(code) => code,
        Err((reason, code)) => told(reason, code),
    }
}

impl Init<'_> {
    fn open<'a>(task: &'a Task, names: &Names, signals: &SigSet) -> Result<Init<'a>, String> {
        // Nothing of the sandbox outlives its warden.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string())?;
        sandbox::furnish(&task.run, names)?;
        if task.own_network {
            sandbox::raise_loopback()?;
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Init {
            task,
            signals: SignalFd::with_flags(signals, flags).map_err(|e| e.to_string())?,
            listener: client::listen(&task.run).map_err(|e| format!("{}: {e}", task.run.display()))?,
            relays: relay::standard().map_err(|e| e.to_string())?,
            tmp: std::env::var_os("TMPDIR").map(PathBuf::from),
            program: 0,
            ended: None,
            dumping: None,
        })
    }

    /// Starts the program; an error comes with the exit code that a shell would give.
    fn start(&mut self) -> Result<(), (String, i32)> {
        let own = |e: io::Error| (e.to_string(), 126);
        sandbox::set_last_pid(sandbox::FIRST_PID - 1).map_err(|e| (e, 126))?;
        self.begin_output().map_err(own)?;
        let (name, arguments) = self.task.command.split_first().ok_or(("there is no command".to_string(), 126))?;
        let end = |relay: &Relay| relay.write_end().try_clone_to_owned().map_err(own);
        let (Some(out), Some(err)) = (self.relays.first(), self.relays.last()) else {
            return Err(("there is no output".to_string(), 126));
        };
        let mut command = Command::new(name);
        command
            .args(arguments)
            .stdin(standard_input().map_err(own)?)
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

    /// Remembers how much was in the output before the run; a program that begins anew later on goes back to it.
    fn begin_output(&mut self) -> io::Result<()> {
        let record = self.task.run.join(BEGAN);
        match fs::read(&record) {
            Ok(text) => {
                let began: Vec<Option<u64>> = serde_json::from_slice(&text)?;
                let both = self.relays.iter_mut().zip(began);
                both.filter_map(|(relay, bytes)| Some((relay, bytes?))).try_for_each(|(r, bytes)| r.go_back(bytes))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let began: Vec<Option<u64>> = self.relays.iter().map(Relay::kept_bytes).collect();
                let beside = record.with_extension("partial");
                fs::write(&beside, serde_json::to_vec(&began)?)?;
                fs::rename(beside, record)
            }
            Err(e) => Err(e),
        }
    }

    /// Brings the program back from a checkpoint.
    fn restore(&mut self, folder: &Path) -> Result<(), String> {
        let unpacked = settle::unpacked(folder, &self.task.run)?;
        let mut restored = Ok(());
        for _ in 0..RESTORES {
            restored = self.restore_once(&unpacked);
            if restored.is_ok() {
                break;
            }
            self.end_all();
        }
        settle::forget_unpacked(&self.task.run);
        restored
    }

    fn restore_once(&mut self, folder: &Path) -> Result<(), String> {
        let Frozen { program, last_pid, pipes, .. } = frozen::put_back(folder)?;
        let mut ends = Vec::new();
        for (i, pipe) in pipes.iter().enumerate() {
            // A job that had one output and has two now goes on with the first.
            let relay = self.relays.get_mut(i).ok_or("standard error has gone where standard output goes")?;
            if let Some(bytes) = pipe.kept_bytes {
                relay.go_back(bytes).map_err(|e| format!("the output: {e}"))?;
            }
            ends.push((pipe.inode, relay::inheritable(relay.write_end()).map_err(|e| e.to_string())?));
        }
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
                return Err(format!("criu took longer than {} s", self.task.limit_s));
            }
            self.wait().map_err(|e| e.to_string())?;
        };
        if status != Ended::Code(0) {
            return Err(tool::reason(folder, "restore.log"));
        }
        // New processes must not take numbers that belong to images to come.
        sandbox::set_last_pid(last_pid)
    }

    /// Ends whatever a failed restore has left.
    fn end_all(&mut self) {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        while waitpid(None, None).is_ok() {}
    }

    /// Goes on until the program has ended.
    fn follow(&mut self) -> io::Result<i32> {
        loop {
            let criu = self.dumping.as_ref().map_or(0, |(d, _)| d.criu());
            if let Some(status) = self.reap(criu) {
                let outcome = self.dumping.as_mut().and_then(|(d, _)| d.criu_ended(status));
                self.dumped(outcome);
            }
            if let Some(code) = self.ended.map(Ended::exit_code) {
                self.relays.iter_mut().try_for_each(Relay::drain)?;
                return Ok(code);
            }
            let outcome = self.dumping.as_mut().and_then(|(d, asker)| d.look_after(!hung_up(asker)));
            self.dumped(outcome);
            self.wait()?;
        }
    }

    /// Waits for anything to happen, and deals with all of it but ended processes.
    fn wait(&mut self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd> = vec![self.signals.as_fd(), self.listener.as_fd()];
        fds.extend(self.relays.iter().map(Relay::read_end));
        fds.extend(self.dumping.iter().map(|(d, _)| d.wakes()));
        let mut polled: Vec<PollFd> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::from(ROUND_MS)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.any().unwrap_or(false)).collect();
        while let Ok(Some(info)) = self.signals.read_signal() {
            self.signalled(info.ssi_signo as i32);
        }
        for (relay, _) in self.relays.iter_mut().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            relay.drain()?;
        }
        if ready[1] {
            self.asked();
        }
        if ready.get(2 + self.relays.len()).is_some_and(|r| *r)
            && let Some((dumping, _)) = &mut self.dumping
        {
            let outcome = dumping.woken(self.program, &mut self.relays, self.tmp.as_deref());
            self.dumped(outcome);
        }
        Ok(())
    }

    /// Passes a signal to the program.
    fn signalled(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number)
            && signal != Signal::SIGCHLD
            && self.program > 0
            && self.ended.is_none()
        {
            let _ = kill(Pid::from_raw(self.program), signal);
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
        let Ok((mut stream, _)) = self.listener.accept() else { return };
        let begun = match &self.dumping {
            Some(_) => Err("another dump is on its way".to_string()),
            None => read(&stream).and_then(|ask| self.begin(ask)),
        };
        match begun {
            Ok(dumping) => self.dumping = Some((dumping, stream)),
            Err(reason) => answer(&mut stream, &Answer::Failed(reason)),
        }
    }

    fn begin(&self, ask: Ask) -> Result<Dumping, String> {
        Dumping::begin(self.task, self.program, ask)
    }

    /// Answers if the dump has ended; one for which memory was too small begins again without.
    fn dumped(&mut self, outcome: Option<Outcome>) {
        let Some(mut outcome) = outcome else { return };
        let Some((dumping, mut stream)) = self.dumping.take() else { return };
        let again = outcome.as_ref().err().and_then(|_| dumping.without_memory());
        drop(dumping);
        if let Some(ask) = again {
            match self.begin(ask) {
                Ok(dumping) => return self.dumping = Some((dumping, stream)),
                Err(reason) => outcome = Err(reason),
            }
        }
        let said = match outcome {
            Ok(frozen_s) => Answer::Dumped { frozen_s },
            Err(reason) => Answer::Failed(reason),
        };
        answer(&mut stream, &said);
    }
}

/// Standard input as the program can keep it over a restore: a file, or nothing.
fn standard_input() -> io::Result<File> {
    let path = fs::read_link("/proc/self/fd/0").unwrap_or_default();
    match fs::metadata("/proc/self/fd/0").map(|m| m.file_type()) {
        Ok(kind) if kind.is_file() => File::open(path),
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
