//! Stands above the driver: passes signals on, takes orphans in, and starts a driver that was killed again.

use crate::processes;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often a killed driver is started again.
const RESTARTS: u32 = 5;

/// Longest wait for what a killed driver left.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// Signals that are passed on to the driver: all that somebody may send and a program may handle. None may end or stop this process
/// by its default action, as those of job control and limits would.
pub const PASSED_ON: [Signal; 19] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGABRT,
    Signal::SIGIO,
    Signal::SIGPROF,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGURG,
    Signal::SIGVTALRM,
    Signal::SIGWINCH,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];

/// Those by which a shell stops what runs in a terminal.
const OF_JOB_CONTROL: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// For so long after SIGTERM a driver that is killed is not followed by another: Slurm kills what does not end by it.
const ENDING: Duration = Duration::from_secs(330);

/// Blocks the signals that a thread waits for; to be called before any thread starts.
///
/// # Errors
/// What the kernel says.
pub fn block_signals() -> io::Result<SigSet> {
    let mut set = SigSet::empty();
    PASSED_ON.iter().for_each(|s| set.add(*s));
    set.add(Signal::SIGCHLD);
    // A shell that runs it stops and continues its whole process group.
    if io::stdin().is_terminal() {
        OF_JOB_CONTROL.iter().for_each(|s| set.remove(*s));
    }
    set.thread_block()?;
    Ok(set)
}

/// Takes back a signal that is blocked and waits for this process, if there is one.
pub fn take_pending(signal: Signal) {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both are read only, and nothing is written where there is no place for it.
    unsafe { libc::sigtimedwait(SigSet::from(signal).as_ref(), std::ptr::null_mut(), &at_once) };
}

/// The soft limit of descriptors that this process had, if it has taken more.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Lets this process have as many descriptors as it may: it holds two for each task of a step.
///
/// # Errors
/// What the kernel says.
pub fn take_descriptors() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    GIVEN.get_or_init(|| soft);
    Ok(())
}

/// Lets a command get the signals that we block, and have the descriptors that we had: children inherit both.
pub fn unblocked(command: &mut Command) -> &mut Command {
    let given = GIVEN.get().copied();
    let as_given = move || {
        if let Some(soft) = given {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        Ok(SigSet::empty().thread_set_mask()?)
    };
    // SAFETY: these system calls are safe between fork and exec.
    unsafe { command.pre_exec(as_given) }
}

/// Names the descriptor by which a driver tells its supervisor which signal has killed its program: its exit code does
/// not say whether that was one.
pub const TOLD: &str = "JOULEPOINT_TOLD_FD";

/// What a driver tells whose place the program takes; no signal has this number.
const GIVEN_WAY: u8 = 0;

/// A driver's way to tell its supervisor.
#[derive(Debug)]
pub struct Teller(File);

impl Teller {
    /// What the supervisor has given; to be taken once, before anything is started that must not have it.
    pub fn take() -> Option<Teller> {
        let number = std::env::var(TOLD).ok()?.parse().ok()?;
        // SAFETY: the supervisor has opened it for this process alone, which takes it once.
        let given = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl(&given, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
        Some(Teller(File::from(given)))
    }

    /// Tells the supervisor that the program takes this process over: however it ends, no other driver follows.
    pub fn gives_way(mut self) {
        let _ = self.0.write_all(&[GIVEN_WAY]);
    }

    /// Has the supervisor end by this signal when the driver has ended with 128 + signal.
    pub fn tell(&mut self, signal: i32) {
        // A supervisor that is gone tells nobody either.
        let _ = self.0.write_all(&[u8::try_from(signal).unwrap_or(0)]);
    }
}

/// Ends this process by a signal, as the program has ended for which it stands, without a core of its own; only returns,
/// with the exit code that a shell would tell, if that signal ends nothing.
pub fn end_by(signal: Signal) -> i32 {
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the default action is no handler.
    let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    let _ = SigSet::from(signal).thread_unblock();
    let _ = nix::sys::signal::raise(signal);
    128 + signal as i32
}

/// A driver that runs, and where it tells.
struct Running {
    pid: i32,
    told: OwnedFd,
}

impl Running {
    fn start(mut driver: Command) -> io::Result<Running> {
        let (told, teller) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let number = teller.as_raw_fd();
        driver.env(TOLD, number.to_string());
        // SAFETY: fcntl is safe between fork and exec, and the descriptor is open there.
        unsafe {
            driver.pre_exec(move || {
                fcntl(BorrowedFd::borrow_raw(number), FcntlArg::F_SETFD(FdFlag::empty()))?;
                Ok(())
            });
        }
        Ok(Running { pid: driver.spawn()?.id() as i32, told })
    }

    /// How this process is to end after a driver that has ended with this code.
    fn ends(&self, code: i32) -> i32 {
        match self.told() {
            Some(signal) if code == 128 + i32::from(signal) => Signal::try_from(code - 128).map_or(code, end_by),
            _ => code,
        }
    }

    fn told(&self) -> Option<u8> {
        let mut number = [0];
        (nix::unistd::read(&self.told, &mut number) == Ok(1)).then_some(number[0])
    }
}

/// Runs `driver(attempt)` until it ends by itself; one that was killed is followed by another. If the driver's program was
/// killed by a signal, this process ends by it, too.
///
/// # Errors
/// What the kernel says when no driver can be started.
pub fn supervise(driver: impl Fn(u32) -> Command) -> io::Result<i32> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let signals = block_signals()?;
    let stepd = Some(getppid()).filter(|above| is_stepd(*above));
    let mut attempt = 0;
    let mut terminated: Option<Instant> = None;
    let mut child = Running::start(driver(attempt))?;
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                let Some(status) = reap(child.pid) else { continue };
                match status {
                    WaitStatus::Exited(_, code) => {
                        if stepd.is_some_and(|stepd| stepd != getppid()) {
                            tell_that_nobody_hears(code);
                        }
                        return Ok(child.ends(code));
                    }
                    WaitStatus::Signaled(_, signal, _) if child.told() == Some(GIVEN_WAY) => return Ok(end_by(signal)),
                    _ if attempt < RESTARTS && terminated.is_none_or(|at| at.elapsed() > ENDING) => {
                        attempt += 1;
                        protocol::say!("joulepoint: the wrapper was killed; it resumes from the last checkpoint");
                        clear();
                        child = Running::start(driver(attempt))?;
                    }
                    WaitStatus::Signaled(_, signal, _) => return Ok(end_by(signal)),
                    _ => return Ok(1),
                }
            }
            signal => {
                if signal == Signal::SIGTERM {
                    terminated = Some(Instant::now());
                }
                processes::signal(child.pid, signal as i32);
            }
        }
    }
}

fn is_stepd(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "slurmstepd")
}

/// With its slurmstepd dead, Slurm hears of no end of the job, and keeps it, and its nodes, until the time limit.
fn tell_that_nobody_hears(code: i32) {
    protocol::say!(
        "joulepoint: the script has ended ({code}), but its slurmstepd is gone, so that Slurm will not hear of it: it tells \
         TIMEOUT at the time limit, unless scancel ends the job before"
    );
}

/// Exit code of a process as a shell tells it: 128 + signal if it was killed.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Takes in every process that has ended; tells how the driver did, if it was among them.
fn reap(driver: i32) -> Option<WaitStatus> {
    let mut of_driver = None;
    while let Ok(status) = waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
        match status.pid() {
            Some(pid) if pid.as_raw() == driver => of_driver = Some(status),
            Some(_) => {}
            None => break,
        }
    }
    of_driver
}

/// Ends everything that a killed driver left running: its program must not go on beside the next one.
fn clear() {
    let us = std::process::id() as i32;
    let limit = Instant::now() + CLEAR_LIMIT;
    loop {
        let left = processes::below(us);
        if left.is_empty() || Instant::now() > limit {
            return;
        }
        left.iter().for_each(|p| processes::signal_seen(p, libc::SIGKILL));
        reap(0);
        std::thread::sleep(Duration::from_millis(20));
    }
}
