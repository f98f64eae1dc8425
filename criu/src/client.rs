//! Asks a warden for a dump, over its socket.

use crate::seconds;
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

/// What is asked: a dump into a folder. Who hangs up before the answer does not want it any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// An empty folder.
    pub folder: PathBuf,
    /// Longest time, s.
    pub limit_s: f64,
    /// Share of the free memory that may hold the dump until it is on disk; 0 for none.
    pub memory_share: f64,
    /// Whether its files are compressed by zstd.
    pub compress: bool,
    /// Largest file that is kept whole although it may be written over, bytes; 0 where programs that are not dumped with
    /// this one write to it.
    #[serde(default)]
    pub overwritten_bytes: u64,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
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

/// A path of bounded length: names of sockets have 108 bytes at most.
fn short(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Asks the warden of a run for a dump and waits for the answer, as long as it is `wanted`; the time for which the
/// program stood still, s.
///
/// # Errors
/// A sentence.
pub fn dump(run: &Path, ask: &Ask, wanted: impl Fn() -> bool) -> Result<f64, String> {
    let gone = |e: io::Error| format!("the sandbox of the program does not answer: {e}");
    let folder = File::open(run).map_err(gone)?;
    let mut stream = UnixStream::connect(short(&folder)).map_err(gone)?;
    stream.set_read_timeout(Some(LOOK)).map_err(gone)?;
    let mut line = serde_json::to_string(ask).map_err(|e| e.to_string())?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(gone)?;
    // The warden keeps the limit itself; this one is for a warden that cannot.
    let limit = Instant::now() + seconds(ask.limit_s) + 2 * LEAVE_LIMIT;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    loop {
        match reader.read_line(&mut answer) {
            Ok(0) => return Err("the sandbox of the program has ended".to_string()),
            Ok(_) => break,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if !wanted() {
                    return Err("given up".to_string());
                }
                if Instant::now() > limit {
                    return Err(format!("no dump within {} s", ask.limit_s));
                }
            }
            Err(e) => return Err(gone(e)),
        }
    }
    match serde_json::from_str(&answer).map_err(|e| e.to_string())? {
        Answer::Dumped { frozen_s } => Ok(frozen_s),
        Answer::Failed(reason) => Err(reason),
    }
}
