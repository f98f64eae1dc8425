//! A process of its own that speaks with NVIDIA's driver: one that hangs or crashes there takes nobody with it.

use crate::suspension::{self, Error, Suspended};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The argument with which a program is started again to be that process: it calls [`run`] then, and nothing else.
pub const WORD: &str = "gpus";

/// What that process says first, as soon as it touches the program: with so many bytes to be copied.
const BEGINS: &[u8] = b"begins ";

/// How long what it has said may be on its way after it was killed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long NVIDIA's driver may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it begins, and, with the time for what it copies, until it has ended.
    pub shortest: Duration,
    /// So slow may it copy, bytes/s.
    pub slowest_bytes_s: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { shortest: Duration::from_secs(60), slowest_bytes_s: 100 << 20 }
    }
}

impl Patience {
    /// Time for so many bytes.
    fn of(self, bytes: u64) -> Duration {
        self.shortest + Duration::from_secs(bytes / self.slowest_bytes_s.max(1))
    }
}

/// Slurm sends a user's signals to all processes.
const UNHEEDED: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

#[derive(Serialize, Deserialize)]
enum Order {
    Suspend { library: PathBuf, pids: Vec<i32>, free_bytes: u64 },
    Resume(Suspended),
}

/// What has become of an order; one to resume has nothing to tell.
type Outcome = Result<Option<Suspended>, Error>;

/// Suspends the process among `pids` that uses GPUs, with this file of NVIDIA's library; none if none does. Its memory grows by
/// what the GPUs hold, for which `free_bytes` must be enough.
///
/// # Errors
/// Why not, and whether it goes on.
pub fn suspend(library: &Path, pids: &[i32], free_bytes: u64, patience: Patience) -> Outcome {
    ask(&Order::Suspend { library: library.to_path_buf(), pids: pids.to_vec(), free_bytes }, patience)
}

/// Resumes a program, here or where it was restored.
///
/// # Errors
/// Why not; a program that is refused can be resumed once that has been cured.
pub fn resume(suspended: &Suspended, patience: Patience) -> Result<(), Error> {
    ask(&Order::Resume(suspended.clone()), patience).map(drop)
}

fn ask(order: &Order, patience: Patience) -> Outcome {
    let refused = |e: io::Error| Error::Refused(format!("no process can be started for NVIDIA's driver: {e}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            SigSet::empty().thread_set_mask()?;
            Ok(UNHEEDED.iter().try_for_each(|unheeded| signal(*unheeded, SigHandler::SigIgn).map(drop))?)
        });
    }
    let mut child = command.spawn().map_err(refused)?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    let text = serde_json::to_vec(order).map_err(|e| refused(e.into()))?;
    let _ = to.map(|mut to| to.write_all(&text));
    let mut said = Vec::new();
    let mut is_late = false;
    if let Some(mut from) = from {
        is_late = hear(&mut from, &mut said, Instant::now() + patience.shortest, Some(patience));
        if is_late {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            // What it has done in the last moment counts. One that hangs within the driver may not even die.
            let _ = hear(&mut from, &mut said, Instant::now() + LAST_WORDS, None);
        }
    }
    if !is_late {
        // The first process of a namespace may have reaped it.
        let _ = child.wait();
    }
    let answer = said.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    serde_json::from_slice(answer).unwrap_or_else(|_| {
        let why = if is_late {
            "NVIDIA's driver does not answer"
        } else {
            "the process that asks NVIDIA's driver has crashed"
        };
        let begun = said.starts_with(BEGINS);
        Err(if begun { Error::Unanswered(why.to_string()) } else { Error::Refused(why.to_string()) })
    })
}

/// The bytes to be copied, if a process has said that it begins.
fn begun_bytes(said: &[u8]) -> Option<u64> {
    let line = said.strip_prefix(BEGINS)?.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// Adds all that a process says until it ends; whether that took too long. Once it has begun, it has time for what it copies.
fn hear(from: &mut (impl Read + AsFd), said: &mut Vec<u8>, mut until: Instant, mut patience: Option<Patience>) -> bool {
    let mut block = [0; 4096];
    loop {
        if let (Some(bytes), Some(given)) = (begun_bytes(said).filter(|_| said.contains(&b'\n')), patience) {
            (until, patience) = (Instant::now() + given.of(bytes), None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let wait = PollTimeout::try_from(left.as_millis().min(1000)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) | Err(nix::Error::EINTR) => continue,
            Ok(_) => {}
            Err(_) => return false,
        }
        match from.read(&mut block) {
            Ok(0) | Err(_) => return false,
            Ok(bytes) => said.extend(&block[..bytes]),
        }
    }
}

/// Does what it reads, and writes what has become of it.
///
/// # Errors
/// Nobody understands the order, or nobody hears the answer.
pub fn run() -> io::Result<()> {
    let mut out = io::stdout();
    let order = serde_json::from_reader(io::stdin())?;
    let mut heard = Ok(());
    let begins = |bytes: u64| {
        let line = [BEGINS, bytes.to_string().as_bytes(), b"\n"].concat();
        heard = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    };
    let outcome: Outcome = match &order {
        Order::Suspend { library, pids, free_bytes } => {
            suspension::suspend(Path::new("/proc"), library, pids, *free_bytes, begins)
        }
        Order::Resume(suspended) => suspension::resume(suspended, begins).map(|()| None),
    };
    heard?;
    out.write_all(&serde_json::to_vec(&outcome)?)?;
    out.flush()
}
