//! The process between the wrapper and the sandbox: makes the namespaces, passes signals in and the exit code out.

use crate::frozen::Frozen;
use crate::line::{self, Hello, LIMIT, Line, Member, Said};
use crate::marks::{self, Of};
use crate::sandbox::Numbers;
use crate::task::{Ended, Task};
use crate::temporary::Temporary;
use crate::{EXIT_KILLED, fallback, frozen, init, network, sandbox};
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SignalFd, siginfo};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid};
use openfiles::held::COMMON;
use openfiles::patiently::patiently;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Exit code of a task that has no sandbox: trying again is useless.
pub const EXIT_NO_SANDBOX: i32 = 126;

/// So soon after a signal to many processes has the parent passed it on that came to itself.
const PASSED_ON: Duration = Duration::from_secs(1);

/// Who kills the relay beside a sandbox may kill all processes of the step, one after another, such as `scancel`: with an exit
/// code of this one Slurm would take the step for failed.
const ALL_KILLED: Duration = Duration::from_millis(500);

/// How a task ends that counts as killed, since its program has done nothing wrong.
const KILLED: Ended = Ended::Code(EXIT_KILLED);

/// File in a task's dump with the exit code of a task that had already ended.
pub const ENDED: &str = "ended";

/// Runs a task in a sandbox of its own, and tells how the program has ended.
///
/// Only for a process with one thread: it leaves its user namespace.
pub fn run(task: &Task) -> Ended {
    match &task.member {
        Some(member) => of_step(task, member),
        None => sandboxed(task, None),
    }
}

/// Runs a task of a step: tells the driver of its job, and uses a folder of its own. If the driver cannot be reached,
/// the task counts as killed, since its program has done nothing wrong.
fn of_step(task: &Task, member: &Member) -> Ended {
    let own = || -> Result<(Line, Task), String> {
        let line = line::call(&task.run, &Hello::Task(member.clone()))?;
        line.says_for_us();
        let run = task.run.join("tasks").join(member.folder());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&run);
        made.map_err(|e| format!("{}: {e}", run.display()))?;
        let restore = task.restore.as_ref().map(|folder| folder.join(member.folder()));
        let fallback = Some(fallback::file(&task.run, &member.call));
        Ok((line, Task { run, restore, fallback, ..task.clone() }))
    };
    let (line, task) = match own() {
        Ok(own) => own,
        Err(reason) => {
            protocol::say!("joulepoint: {reason}");
            return KILLED;
        }
    };
    // A task that had ended before the dump ends at once with its exit code.
    let ended = match task.restore.as_ref().map(|folder| patiently(|| fs::read_to_string(folder.join(ENDED)))) {
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => {
            protocol::say!("joulepoint: whether this task has ended cannot be read: {e}");
            return KILLED;
        }
        read => read.and_then(Result::ok),
    };
    match ended.and_then(|text| text.trim().parse().ok()) {
        Some(code) => {
            line.leave(&Said::Ended { code, carried_bytes: [0, 0], asked: false, sent: None }, Some(LIMIT));
            Ended::Code(code)
        }
        None => sandboxed(&task, Some(line)),
    }
}

fn sandboxed(task: &Task, line: Option<Line>) -> Ended {
    // Tasks of a step may meet in a TMPDIR that all share, and leave files there for the next step: no folder of
    // their own.
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let is_common = |named: &PathBuf| named.as_os_str().is_empty() || COMMON.iter().any(|c| named == Path::new(c));
    let has_own = task.member.is_none() && !task.own_network && named.as_ref().is_none_or(is_common);
    // One that cannot be read fails the restore.
    let from = task.restore.as_ref().and_then(|folder| frozen::read(folder).ok());
    // What is said here would be looked up by another thread, and nobody but a single one gets a sandbox.
    let mut unsaid = from.as_ref().map(Frozen::in_the_way).unwrap_or_default();
    let temporary = match has_own.then(|| Temporary::make(&task.run)).transpose() {
        // Without it later checkpoints would not have what is put back there.
        Err(reason) if task.restore.is_some() && from.as_ref().is_none_or(|from| from.has_tmp) => {
            return without_sandbox(task, line, &reason);
        }
        made => made.map_err(|reason| unsaid.push(reason)).unwrap_or_default(),
    };
    // Outside of the sandbox, whose images hold no connection to other nodes.
    let beside = task.world.as_ref().map(|world| world.start(task.restore.as_deref())).transpose();
    let (beside, _sockets) = match beside {
        Ok(beside) => beside.map(|(child, folder)| (Pid::from_raw(child.id() as i32), folder)).unzip(),
        Err(reason) if task.restore.is_some() => return without_sandbox(task, line, &reason.to_string()),
        Err(reason) => {
            protocol::say!("joulepoint: {reason}");
            return KILLED;
        }
    };
    // Ranks of steps reach those of other nodes by their relay alone.
    let named = task.own_network && task.member.is_none();
    let addresses = match named.then(|| network::addresses(&task.run)).transpose() {
        Ok(addresses) => addresses.unwrap_or_default(),
        Err(e) => {
            protocol::say!("joulepoint: the addresses that the program knows cannot be read: {e}");
            return KILLED;
        }
    };
    // Otherwise the kernel would name it "exe", after `/proc/self/exe` by which it was started.
    let _ = nix::sys::prctl::set_name(c"joulepoint");
    let signals = SigSet::all();
    let numbers = if from.as_ref().is_none_or(|from| from.own_numbers) { Numbers::Own } else { Numbers::Root };
    let blocked = signals.thread_block().map_err(|e| e.to_string());
    let prepared = blocked.and_then(|()| {
        sandbox::leave(task.own_network, numbers)?;
        if task.own_network { network::raise(&addresses) } else { Ok(()) }
    });
    if let Err(reason) = prepared {
        return without_sandbox(task, line, &reason);
    }
    let clocks = from.and_then(|from| from.clocks);
    if let Some(Err(e)) = clocks.map(|clocks| clocks.go_on()) {
        tracing::warn!(%e, "clocks that count from the node's start jump for the program");
    }
    let forked = nix::unistd::pipe2(OFlag::O_CLOEXEC).and_then(|(told, teller)| {
        // SAFETY: this process has one thread.
        Ok((unsafe { fork() }?, told, teller))
    });
    match forked {
        Ok((ForkResult::Child, _, teller)) => {
            unsaid.iter().for_each(|reason| protocol::say!("joulepoint: {reason}"));
            let tmp = temporary.as_ref().map(Temporary::path);
            let teller = Arc::new(File::from(teller));
            init::leave(&teller, init::run(task, line, tmp, &signals, &teller))
        }
        Ok((ForkResult::Parent { child }, told, teller)) => {
            // The connection ends with the sandbox, as does the pipe.
            drop((line, teller));
            protocol::say_instead(None);
            stand_by(child, beside, &signals, told)
        }
        Err(e) => {
            protocol::say!("joulepoint: no process can be started: {e}");
            KILLED
        }
    }
}

/// The end of a task that has no sandbox. One that was to go on from a checkpoint may do so elsewhere; one of a step whose
/// program has not begun is left to who has started the step.
pub(crate) fn without_sandbox(task: &Task, line: Option<Line>, reason: &str) -> Ended {
    protocol::say!("joulepoint: {reason}");
    if let Some(folder) = &task.restore {
        marks::leave(task, folder, Of::Node, reason);
        line.into_iter().for_each(|line| line.leave(&Said::NotRestored, Some(LIMIT)));
        return KILLED;
    }
    let is_noted = || {
        let new = task.fallback.as_deref().zip(task.member.as_ref());
        new.is_some_and(|(file, of)| {
            fallback::note_here(file, &format!("no sandbox holds it on {}: {reason}", of.node))
        })
    };
    if let Some(line) = line.filter(|_| is_noted()) {
        line.leave(&Said::Unheld, Some(LIMIT));
    }
    Ended::Code(EXIT_NO_SANDBOX)
}

/// Passes every signal on to the sandbox's first process until that has ended, and with it the whole sandbox; the process
/// `beside` it belongs to it. By `told` it says which signal has killed the program, if one has.
fn stand_by(init: Pid, beside: Option<Pid>, signals: &SigSet, told: OwnedFd) -> Ended {
    let ended = |pid: Pid| match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Some(Ended::Code(code)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ended::Signal(signal)),
        _ => None,
    };
    let mut told = File::from(told);
    let mut killed_by = move || {
        let mut number = [0];
        told.read_exact(&mut number).ok().and_then(|()| Signal::try_from(i32::from(number[0])).ok())
    };
    let Ok(heard) = SignalFd::new(signals) else { return KILLED };
    let mut senders = Senders::default();
    loop {
        let info = heard.read_signal();
        match info.as_ref().map(|info| info.map(|info| (info, Signal::try_from(info.ssi_signo as i32)))) {
            Ok(Some((_, Ok(Signal::SIGCHLD)))) => {
                if let Some(ended) = ended(init) {
                    return killed_by().map_or(ended, Ended::Signal);
                }
                if let Some(ended) = beside.and_then(ended) {
                    let code = ended.exit_code();
                    protocol::say!(
                        "joulepoint: the relay of an MPI program has ended with {code}; its ranks end with it"
                    );
                    let _ = kill(init, Signal::SIGKILL);
                    thread::sleep(ALL_KILLED);
                    return KILLED;
                }
            }
            Ok(Some((info, Ok(signal)))) => {
                if let Some(for_all) = senders.judge(getppid().as_raw(), &info, Instant::now()) {
                    pass_in(init, signal, for_all);
                }
            }
            _ => {}
        }
    }
}

/// Who has sent which signal.
#[derive(Default)]
struct Senders {
    /// When each signal last came from somebody else than the parent.
    from_others: BTreeMap<u32, Instant>,
}

impl Senders {
    /// Whether a signal is for all processes of the program: one that comes past the parent was given to more than this
    /// process, such as by `scancel --full`. None if the parent only passes on what has come already.
    fn judge(&mut self, parent: i32, info: &siginfo, now: Instant) -> Option<bool> {
        if info.ssi_pid as i32 != parent {
            self.from_others.insert(info.ssi_signo, now);
            return Some(true);
        }
        let before = self.from_others.get(&info.ssi_signo);
        before.is_none_or(|before| now.duration_since(*before) > PASSED_ON).then_some(false)
    }
}

/// Tells the sandbox's first process of a signal, which may at the same time get the same one as all others of its process
/// group: by a real-time signal, since of two others of one number that wait the second is lost.
fn pass_in(init: Pid, signal: Signal, for_all: bool) {
    let word = 2 * signal as usize + usize::from(for_all);
    let value = libc::sigval { sival_ptr: word as *mut libc::c_void };
    // SAFETY: the value is a number, not a pointer that anybody follows.
    let told = unsafe { libc::sigqueue(init.as_raw(), libc::SIGRTMAX(), value) };
    if let Err(e) = nix::Error::result(told) {
        tracing::warn!(%e, %signal, "a signal does not reach the program");
    }
}

/// The signal of which the supervisor tells by this information, and whether it is for all processes of the program.
pub fn passed_in(info: &siginfo) -> Option<(i32, bool)> {
    let is_told = info.ssi_code == libc::SI_QUEUE && info.ssi_signo as i32 == libc::SIGRTMAX();
    is_told.then_some((info.ssi_int / 2, info.ssi_int % 2 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NOT_NOW;
    use crate::line::{ADDRESS, FOLDER};

    #[test]
    fn a_task_whose_driver_does_not_answer_counts_as_killed() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join(FOLDER)).unwrap();
        // An address where nobody listens.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::write(run.path().join(FOLDER).join(ADDRESS), format!("{gone}\n")).unwrap();
        let member = Member { call: "a.1".into(), rank: 0, tasks: 1, node: "n1".into(), step: None, ranks: None };
        let task = Task {
            run: run.path().to_path_buf(),
            member: Some(member),
            limit_s: 1.0,
            command: vec!["true".into()],
            ..Task::default()
        };
        assert_eq!(super::run(&task), KILLED);
    }
    #[test]
    fn a_task_without_a_sandbox_says_why_and_is_not_lost_unless_it_was_to_be_restored() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        fs::create_dir(run.join(FOLDER)).unwrap();
        let secret = line::secret(run).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        fs::write(run.join(FOLDER).join(ADDRESS), format!("{}\n", listener.local_addr().unwrap())).unwrap();
        let driver = thread::spawn(move || {
            let answered = || line::answer(listener.accept().unwrap().0, &secret).unwrap().1;
            [0, 1].map(|_| answered().words::<Said>().collect::<Vec<_>>())
        });
        let member = Member { call: "a.1".into(), rank: 0, tasks: 2, node: "n1".into(), step: None, ranks: None };
        let file = fallback::file(run, "a.1");
        fs::create_dir(run.join(fallback::FOLDER)).unwrap();
        let task = Task { member: Some(member.clone()), fallback: Some(file.clone()), ..Task::default() };
        let from = Task { restore: Some(run.join("a.1.0")), ..task.clone() };
        for (task, ended) in [(from, KILLED), (task, Ended::Code(EXIT_NO_SANDBOX))] {
            let line = line::call(run, &Hello::Task(member.clone())).unwrap();
            assert_eq!(without_sandbox(&task, Some(line), "no namespaces"), ended);
        }
        assert_eq!(fs::read_to_string(run.join(NOT_NOW)).unwrap(), "no namespaces");
        let noted = fs::read_to_string(file.with_added_extension(fallback::HERE)).unwrap();
        assert_eq!(noted, "no sandbox holds it on n1: no namespaces\n");
        assert_eq!(driver.join().unwrap(), [vec![Said::NotRestored], vec![Said::Unheld]]);
    }
}
