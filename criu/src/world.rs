//! The relay of an MPI world whose ranks are on several nodes: one runs beside each sandbox, and ends with it.
//!
//! All sandboxes go back together, so that a relay that is lost is no loss of its own: its sandbox ends with it. What the
//! relays hold while all stand still is saved with the images, and the relays of the next life begin with that.

use crate::line::Sent;
use crate::temporary::Held;
use increments::Stop;
use mlog::frame::{Frame, Kind};
use mlog::{connect, exchange};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How the folder beside a task's dump ends that has what its relay held.
pub const SAVED: &str = ".relay";

/// Signals that are for the program.
const IGNORED: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// How long the ranks of a node that has failed wait for those of others, which hear of an abort through their relays.
pub(crate) const ABORT_LIMIT: Duration = Duration::from_secs(3);

/// Time between two looks at whether all ranks have left their relay.
const LOOK: Duration = Duration::from_millis(2);

/// Longest wait for all ranks to leave their relay.
const REST_LIMIT: Duration = Duration::from_secs(20);

/// Longest wait for a relay to say what it has counted: a program's end does not wait for it.
const STATUS_LIMIT: Duration = Duration::from_secs(2);

/// Why the relay of an MPI program does not do what is needed of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its folders cannot be made.
    #[error("the relay of an MPI program: {0}")]
    Folders(io::Error),
    /// It cannot be started.
    #[error("{program}: {1}", program = .0.display())]
    Start(PathBuf, #[source] io::Error),
    /// It cannot be asked.
    #[error("the relay of an MPI program: {0}")]
    Asked(mlog::Error),
    /// It does not say in time what it has counted.
    #[error("the relay of an MPI program does not answer")]
    Silent,
    /// What it says of itself is not understood.
    #[error("the relay of an MPI program says what nobody understands: {0}")]
    Status(serde_json::Error),
    /// A dump is in no checkpoint that has a number.
    #[error("{} is in no checkpoint that has a number", .0.display())]
    NoNumber(PathBuf),
    /// The dump is not wanted any more.
    #[error("given up")]
    GivenUp,
    /// A rank stays.
    #[error("an MPI rank does not leave its relay; it may be stopped")]
    Stays,
}

/// What one node has of an MPI world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// The relay's program.
    pub relay: PathBuf,
    /// Folder in which the relays of this life of the world find each other; all nodes see it.
    pub meeting: PathBuf,
    /// The relay's socket, at the same place on each node and in each life: images have it.
    pub socket: PathBuf,
    /// World ranks of each node, such as `0-1/2-3`.
    pub ranks: String,
    /// Which of these nodes this is, from 0.
    pub place: u32,
    /// Where the relays of other nodes reach this one; the host's name if absent.
    pub address: Option<String>,
}

/// The socket of the relay at a place; all of them begin alike.
pub fn socket(sockets: &Path, place: u32) -> PathBuf {
    // Ranks look for a file beside it, of the same name but for what follows the last dot.
    PathBuf::from(format!("{}.g{place}.socket", sockets.display()))
}

/// The folder with what the relay of a task held, beside the task's dump: that may be compressed.
pub fn saved(dump: &Path) -> PathBuf {
    PathBuf::from(format!("{}{SAVED}", dump.display()))
}

impl World {
    /// Starts the relay, which goes on from what was saved with a task's `dump`, and ends with this process. The folder of its
    /// socket is held with it.
    ///
    /// # Errors
    /// Why not.
    pub fn start(&self, dump: Option<&Path>) -> Result<(Child, Held), Error> {
        let held = self.prepare().map_err(Error::Folders)?;
        let path = |p: &Path| p.as_os_str().to_os_string();
        let count = self.ranks.split('/').count();
        let mut command = Command::new(&self.relay);
        command
            .args(["serve", "--together", "--log", "memory", "--lost", "wait", "--ranks", &self.ranks])
            .args(["--group", &self.place.to_string(), "--groups", &count.to_string()])
            .args([path("--run".as_ref()), path(&self.meeting), path("--socket".as_ref()), path(&self.socket)])
            .args(self.address.iter().flat_map(|address| ["--advertise", address]))
            .env_remove("JOULEPOINT_PLACEMENT")
            .env("JOULEPOINT_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(dump) = dump {
            command.arg("--line").arg(saved(dump));
        }
        let parent = nix::unistd::getpid();
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                // Slurm signals all processes of a step; this one ends with its sandbox.
                for ignored in IGNORED {
                    signal(ignored, SigHandler::SigIgn)?;
                }
                if nix::unistd::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
            });
        }
        let child = command.spawn().map_err(|e| Error::Start(self.relay.clone(), e))?;
        Ok((child, held))
    }

    /// Makes the folders; that of the socket must be this user's own, and goes with the last world of the run here.
    fn prepare(&self) -> io::Result<Held> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.meeting)?;
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        Held::hold(folder).map_err(|e| io::Error::other(format!("{}: {e}", folder.display())))
    }

    /// Has all ranks of this node leave the relay, for the dump in this folder; they come back when the result is dropped.
    ///
    /// # Errors
    /// Why not: they go on as before.
    pub fn rest(&self, dump: &Path, stop: &Stop) -> Result<Resting, Error> {
        let (resting, until) = (Resting(self.clone()), Instant::now() + REST_LIMIT);
        let checkpoint = number(dump)?;
        while self.ask(Frame::number(Kind::Rest, checkpoint), Kind::Rest)?.header.number == 0 {
            if stop.is_asked() {
                return Err(Error::GivenUp);
            }
            if Instant::now() > until {
                return Err(Error::Stays);
            }
            thread::sleep(LOOK);
        }
        Ok(resting)
    }

    /// Writes what the relay holds into the folder of a dump, while all ranks of all nodes stand still.
    ///
    /// # Errors
    /// Why not.
    pub fn save(&self, dump: &Path) -> Result<(), Error> {
        let to = saved(dump);
        self.ask(Frame::new(Kind::Save, 0, 0, 0, to.as_os_str().as_bytes().to_vec()), Kind::Save)?;
        // Who goes back goes on from such a folder: what this relay holds from before is wanted by nobody.
        self.ask(Frame::number(Kind::Commit, number(dump)?), Kind::Commit).map(drop)
    }

    /// What the ranks of this node have sent to others since the relay began.
    ///
    /// # Errors
    /// The relay does not say it in time.
    pub fn sent(&self) -> Result<Sent, Error> {
        let (teller, told) = channel();
        let of = self.clone();
        // Nobody waits for an answer that comes late.
        threads::start(move || teller.send(of.ask(Frame::number(Kind::Status, 0), Kind::Status)));
        let answer = told.recv_timeout(STATUS_LIMIT).map_err(|_| Error::Silent)??;
        let status: mlog::Status = serde_json::from_slice(&answer.body).map_err(Error::Status)?;
        Ok(Sent { messages: status.counts.messages, bytes: status.counts.bytes })
    }

    fn ask(&self, question: Frame, answer: Kind) -> Result<Frame, Error> {
        let asked = connect(&self.socket).and_then(|mut link| exchange(&mut link, question, answer));
        asked.map_err(Error::Asked)
    }
}

/// The number of the checkpoint to which the dump of a task belongs.
fn number(dump: &Path) -> Result<u64, Error> {
    let name = dump.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let number = name.and_then(|name| name.parse().ok());
    number.ok_or_else(|| Error::NoNumber(dump.to_path_buf()))
}

/// The ranks of a node hold no connection to their relay.
#[derive(Debug)]
pub struct Resting(World);

impl Drop for Resting {
    fn drop(&mut self) {
        if let Err(e) = self.0.ask(Frame::number(Kind::Wake, 0), Kind::Wake) {
            // A relay that is gone takes its sandbox with it.
            tracing::error!(%e, "MPI ranks wait for their relay");
        }
    }
}
