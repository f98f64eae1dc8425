//! The process between the wrapper and the sandbox: makes the namespaces, passes signals in and the exit code out.

use crate::sandbox::Names;
use crate::{init, sandbox};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit code of a warden that could not make its sandbox.
const EXIT_NO_SANDBOX: i32 = 126;

/// What a warden is to run.
#[derive(Clone, Debug)]
pub struct Task {
    /// CRIU's command.
    pub criu: PathBuf,
    /// Folder of the run, for its user only; the socket is here.
    pub run: PathBuf,
    /// The checkpoint to go on from.
    pub restore: Option<PathBuf>,
    /// Longest time of a restore, s.
    pub limit_s: f64,
    /// Whether the program has a network of its own, without a way outside.
    pub own_network: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Runs a task in a sandbox of its own; the exit code is the program's, or 128 + signal.
///
/// Only for a process with one thread: it leaves its user namespace.
pub fn run(task: &Task) -> i32 {
    let names = Names::of_user();
    // The kernel would call it "exe", after the way it was started.
    let _ = nix::sys::prctl::set_name(c"joulepoint");
    let signals = SigSet::all();
    let prepared = signals.thread_block().map_err(|e| e.to_string()).and_then(|()| sandbox::leave(task.own_network));
    if let Err(reason) = prepared {
        eprintln!("joulepoint: {reason}");
        return EXIT_NO_SANDBOX;
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => std::process::exit(init::run(task, &names, &signals)),
        Ok(ForkResult::Parent { child }) => stand_by(child, &signals),
        Err(e) => {
            eprintln!("joulepoint: no process can be started: {e}");
            EXIT_NO_SANDBOX
        }
    }
}

/// Passes every signal on until the first process of the sandbox has ended, and with it all others there.
fn stand_by(init: Pid, signals: &SigSet) -> i32 {
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => match waitpid(init, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, code)) => return code,
                Ok(WaitStatus::Signaled(_, signal, _)) => return 128 + signal as i32,
                _ => {}
            },
            Ok(signal) => {
                let _ = kill(init, signal);
            }
            Err(_) => {}
        }
    }
}
