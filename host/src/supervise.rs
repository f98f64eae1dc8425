//! Stands above the driver: passes signals on, takes orphans in, and starts a driver that was killed again.

use crate::processes;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often a killed driver is started again.
const RESTARTS: u32 = 5;

/// Longest wait for what a killed driver left.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// Signals that are passed on to the driver.
pub const PASSED_ON: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
];

/// Blocks the signals that a thread waits for; to be called before any thread starts.
///
/// # Errors
/// What the kernel says.
pub fn block_signals() -> io::Result<SigSet> {
    let mut set = SigSet::empty();
    PASSED_ON.iter().for_each(|s| set.add(*s));
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(set)
}

/// Lets a command get the signals that we block: children inherit the mask.
pub fn unblocked(command: &mut Command) -> &mut Command {
    // SAFETY: sigprocmask is safe between fork and exec.
    unsafe { command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?)) }
}

/// Runs `driver(attempt)` until it ends by itself; one that was killed is followed by another.
///
/// # Errors
/// What the kernel says when no driver can be started.
pub fn supervise(driver: impl Fn(u32) -> Command) -> io::Result<i32> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let signals = block_signals()?;
    let stepd = Some(getppid()).filter(|above| is_stepd(*above));
    let mut attempt = 0;
    let mut terminated = false;
    let mut child = driver(attempt).spawn()?.id() as i32;
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                let Some(status) = reap(child) else { continue };
                match status {
                    WaitStatus::Exited(_, code) => {
                        if stepd.is_some_and(|stepd| stepd != getppid()) {
                            tell_that_nobody_hears(code);
                        }
                        return Ok(code);
                    }
                    _ if attempt < RESTARTS && !terminated => {
                        attempt += 1;
                        protocol::say!("joulepoint: the wrapper was killed; it resumes from the last checkpoint");
                        clear();
                        child = driver(attempt).spawn()?.id() as i32;
                    }
                    WaitStatus::Signaled(_, signal, _) => return Ok(128 + signal as i32),
                    _ => return Ok(1),
                }
            }
            signal => {
                terminated |= signal == Signal::SIGTERM;
                processes::signal(child, signal as i32);
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
