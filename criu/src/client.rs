//! Asks the supervisor of a sandbox for a dump, over its socket.

use crate::seconds;
use increments::Increments;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the socket in a run's folder.
const SOCKET: &str = "warden.socket";

/// Longest time that CRIU has to fail by itself after its dump was given up; then it is killed.
pub(crate) const LEAVE_LIMIT: Duration = Duration::from_secs(20);

/// Time between two looks at whether the dump is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// A request for a dump into a folder. A client that closes the connection before the answer gives the dump up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// An empty folder.
    pub folder: PathBuf,
    /// Time limit of the dump, s.
    pub limit_s: f64,
    /// Share of the free memory that may hold the dump until it is on disk; 0 for none.
    pub memory_share: f64,
    /// Whether its files are compressed by zstd.
    pub compress: bool,
    /// How its large files are stored, if not whole.
    #[serde(default)]
    pub increments: Option<Increments>,
    /// Largest file that is kept whole although it may be written over, bytes; 0 where programs that are not dumped with
    /// this one write to it.
    #[serde(default)]
    pub overwritten_bytes: u64,
    /// Whether this dump holds what was made where only the node has it: of the tasks of a step one on each node does.
    #[serde(default)]
    pub keeps_leftovers: bool,
    /// Whether the client wants [`Answer::GoesOn`] as soon as the program goes on, before the dump is flushed to
    /// disk.
    #[serde(default)]
    pub tells_going_on: bool,
}

/// What can be asked of a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Request {
    /// A dump.
    Dump(Ask),
    /// An answer as soon as the program is there: started, or back from a checkpoint.
    Presence {
        /// A field that [`Ask`] lacks, so that the two requests can be told apart in JSON.
        presence: bool,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The program runs.
    Present,
    /// The program goes on and the dump has succeeded so far; its outcome follows.
    GoesOn,
    /// The images are written, but not yet synced.
    Dumped {
        /// Time for which the program stood still, s.
        frozen_s: f64,
    },
    /// The program goes on; nothing of the folder counts.
    Failed(String),
}

/// Opens the socket in a run's folder.
///
/// # Errors
/// What the kernel says.
pub fn listen(run: &Path) -> io::Result<UnixListener> {
    let folder = File::open(run)?;
    let socket = short(&folder);
    match std::fs::remove_file(&socket) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixListener::bind(socket),
    }
}

/// A path of bounded length by way of `/proc`: the name of a unix socket has 108 bytes at most.
fn short(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Why there is no dump.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDumped {
    /// The program has ended.
    #[error("the sandbox of the program has ended")]
    Ended,
    /// A sentence.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for NotDumped {
    fn from(reason: String) -> NotDumped {
        NotDumped::Failed(reason)
    }
}

/// Asks the supervisor of a run for a dump and waits for the answer as long as it is `wanted`. Calls `goes_on` when
/// the program goes on, if `ask` wants that. Returns the time for which the program stood still, s.
///
/// # Errors
/// Why not.
pub fn dump(run: &Path, ask: &Ask, wanted: impl Fn() -> bool, goes_on: impl Fn()) -> Result<f64, NotDumped> {
    // The supervisor enforces the limit; this second limit is for a supervisor that hangs.
    let limit = Instant::now() + seconds(ask.limit_s) + 2 * LEAVE_LIMIT;
    let late = || (Instant::now() > limit).then(|| format!("no dump within {} s", ask.limit_s));
    let mut supervisor = call(run, &Request::Dump(ask.clone()))?;
    loop {
        match hear(&mut supervisor, &wanted, &late)? {
            Answer::GoesOn => goes_on(),
            Answer::Dumped { frozen_s } => return Ok(frozen_s),
            Answer::Failed(reason) => return Err(reason.into()),
            Answer::Present => {
                return Err("the sandbox of the program answers what it was not asked".to_string().into());
            }
        }
    }
}

/// Waits until the program of a run runs, started or restored, as long as that is `wanted`. Returns whether it does.
pub fn is_back(run: &Path, wanted: impl Fn() -> bool) -> bool {
    while wanted() {
        // Nobody answers before the supervisor listens. A supervisor of a version without `Presence` answers with an
        // error, but only once the program runs.
        let answer = call(run, &Request::Presence { presence: true }).and_then(|mut w| hear(&mut w, &wanted, &|| None));
        match answer {
            Ok(Answer::Present | Answer::Failed(_)) => return true,
            Ok(_) | Err(_) => std::thread::sleep(LOOK),
        }
    }
    false
}

/// Asks the supervisor of a run.
fn call(run: &Path, request: &Request) -> Result<BufReader<UnixStream>, NotDumped> {
    let folder = File::open(run).map_err(gone)?;
    // Nobody listens any more.
    let ended = |e: io::Error| if e.kind() == io::ErrorKind::ConnectionRefused { NotDumped::Ended } else { gone(e) };
    let mut stream = UnixStream::connect(short(&folder)).map_err(ended)?;
    stream.set_read_timeout(Some(LOOK)).map_err(gone)?;
    let mut line = serde_json::to_string(request).map_err(|e| e.to_string())?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(gone)?;
    Ok(BufReader::new(stream))
}

/// The next answer of a supervisor, awaited as long as it is `wanted` and not `late`.
fn hear(
    reader: &mut BufReader<UnixStream>,
    wanted: &dyn Fn() -> bool,
    late: &dyn Fn() -> Option<String>,
) -> Result<Answer, NotDumped> {
    let mut answer = String::new();
    loop {
        match reader.read_line(&mut answer) {
            Ok(0) => return Err(NotDumped::Ended),
            Ok(_) => break,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if !wanted() {
                    return Err("given up".to_string().into());
                }
                if let Some(reason) = late() {
                    return Err(reason.into());
                }
            }
            Err(e) => return Err(gone(e)),
        }
    }
    serde_json::from_str(&answer).map_err(|e| e.to_string().into())
}

fn gone(e: io::Error) -> NotDumped {
    format!("the sandbox of the program does not answer: {e}").into()
}
