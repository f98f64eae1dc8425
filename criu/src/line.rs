//! The connection between the tasks of a step and the driver of their job: who is there, and the phases of a common
//! dump.
//!
//! The driver listens; its address and a secret are in a folder that only the user may enter. Both sides prove that
//! they know the secret and mean the same port ([`mlog::proof`]): who has taken the port of a driver that is gone can
//! not pass the proofs on to the next one. What follows is one JSON value on each line.

use crate::client::Ask;
use mlog::proof::{DIALER, LISTENER, PROOF_BYTES, PROOF_LIMIT, SECRET_BYTES, Token, Words, random};
pub use mlog::proof::{MOST_UNPROVEN, UNPROVEN_UNDISTURBED};
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// For so long a signal from outside explains an end: a program may have much to save before it.
pub const EXPLAINS: Duration = Duration::from_secs(600);

/// Folder of a run with the address and the secret.
pub const FOLDER: &str = "wardens";

/// File with `host:port` of the driver.
pub const ADDRESS: &str = "address";

/// File with the secret.
const SECRET: &str = "secret";

/// Longest wait for the other side to connect, to prove itself, or to read a message.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Pause before the next call of a task that was sent away.
const AGAIN: Duration = Duration::from_millis(50);

/// The first message of a caller: who it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hello {
    /// The supervisor of the sandbox of one task.
    Task(Member),
    /// A step begins; it ends when the connection is closed.
    Step {
        /// Name of the `srun` call, as its tasks know it.
        call: String,
        /// Its command line, for people.
        words: String,
        /// Why its tasks have no sandbox; absent if they have.
        outside: Option<String>,
        /// Why they could not go back one by one; absent if they could.
        #[serde(default)]
        together: Option<String>,
        /// Whether the recovery line has it, so that its tasks go on from there.
        #[serde(default = "unless_said")]
        goes_on: bool,
    },
}

/// A stand-in that says nothing of it may go on.
fn unless_said() -> bool {
    true
}

/// One task of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Name of the `srun` call within the script.
    pub call: String,
    /// Rank among the tasks of the call.
    pub rank: u32,
    /// Number of tasks that its `srun` has started.
    pub tasks: u32,
    /// Its node.
    pub node: String,
    /// Number of the step for Slurm.
    pub step: Option<u32>,
    /// If it has ranks of an MPI program: those of each task, such as `0-1/2-3`.
    #[serde(default)]
    pub ranks: Option<String>,
}

impl Member {
    /// Name of its folder within a checkpoint.
    pub fn folder(&self) -> String {
        format!("{}.{}", self.call, self.rank)
    }

    /// What `srun --label` writes before each line of the task.
    pub fn label(&self) -> String {
        let width = self.tasks.saturating_sub(1).to_string().len();
        format!("{:0width$}: ", self.rank)
    }
}

/// An order of the driver to a task's supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Stand still and write the images of the processes into an empty folder.
    Freeze(Ask),
    /// All tasks stand still: save what the images lack.
    Save,
    /// All tasks have put their files back: restore the processes.
    Restore,
    /// Let the program go on.
    Thaw {
        /// Whether the dump is kept.
        keep: bool,
    },
    /// End the program.
    End,
    /// Another task has ended with this code, and its program with it: end the ranks here, and tell the same.
    EndAs {
        /// The exit code.
        code: i32,
    },
}

/// What the ranks of a task have sent to those of others, as its relay has counted since the task began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Messages; of a long one each part counts.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A message of a task's supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The program's files are put back; its processes are not restored yet.
    Ready,
    /// The user is to read this in the job's output.
    Remark(String),
    /// The program stands still; its images are written.
    Frozen,
    /// All else is saved, and all output so far is passed on.
    Saved {
        /// Bytes of standard output and standard error that this supervisor has passed on since it began.
        carried_bytes: [u64; 2],
    },
    /// The program goes on, and the dump has succeeded so far; sent if [`Ask::tells_going_on`].
    GoesOn,
    /// The program goes on, and the dump has succeeded, but is not synced yet.
    Dumped {
        /// Time for which it stood still, s.
        frozen_s: f64,
    },
    /// The program goes on; nothing of the dump counts.
    Failed(String),
    /// The program has ended with this exit code, or 128 + signal.
    Ended {
        /// The exit code.
        code: i32,
        /// How much this supervisor has carried on of standard output and standard error since it began, bytes.
        carried_bytes: [u64; 2],
        /// Whether a signal from outside has ended it: somebody wanted that.
        #[serde(default)]
        asked: bool,
        /// What its ranks have sent, if it has some of an MPI program over several nodes, and that ended well.
        #[serde(default)]
        sent: Option<Sent>,
    },
    /// No sandbox can hold the task, whose program has not begun: its step is started again without.
    Unheld,
    /// Of a step: it will be told to end, so that the end of its tasks is no loss.
    Ending,
    /// Of a step: a signal has killed its `srun`. Slurm ends the tasks then as if their owner had cancelled the step.
    Killed,
    /// Of a step: its `srun` says that all has gone well, as it does of a task that died with its node, too. The driver says the
    /// same as soon as all tasks have told it how they ended.
    EndedWell,
    /// The program could not be restored; it has not crashed.
    NotRestored,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    read: Vec<u8>,
}

/// The secret of a run, made if it is not there.
///
/// # Errors
/// A sentence: it cannot be made or read, or others may read it.
pub fn secret(run: &Path) -> Result<Token, String> {
    Token::open(&run.join(FOLDER).join(SECRET)).map_err(|e| e.to_string())
}

/// Calls the driver of a run, again and again while it has too many unproven callers.
///
/// # Errors
/// A sentence.
pub fn call(run: &Path, hello: &Hello) -> Result<Line, String> {
    let file = run.join(FOLDER).join(ADDRESS);
    let secret = secret(run)?;
    let until = Instant::now() + LIMIT;
    loop {
        let address = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let address = address.trim();
        match introduced(address, &secret, hello) {
            Ok(Some(line)) => return Ok(line),
            Ok(None) => return Err(format!("what answers at {address} is not the wrapper of the job")),
            Err(e) if is_turned_away(&e) && Instant::now() < until => thread::sleep(AGAIN),
            Err(e) => return Err(format!("the wrapper of the job does not answer at {address}: {e}")),
        }
    }
}

/// Whether the other side closed the connection without an answer.
fn is_turned_away(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Sends `hello` once both sides have proved that they know the secret; none if the other side does not.
fn introduced(address: &str, secret: &Token, hello: &Hello) -> io::Result<Option<Line>> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(LIMIT))?;
    let until = Instant::now() + LIMIT;
    let mine = random().map_err(io::Error::other)?;
    stream.write_all(&mine)?;
    let theirs = take::<SECRET_BYTES>(&mut stream, until)?;
    let proof = take::<PROOF_BYTES>(&mut stream, until)?;
    let listener = stream.peer_addr()?.port();
    let words = |role| Words { role, dialer: 0, listener, dialer_nonce: &mine, listener_nonce: &theirs };
    if !secret.check(&words(LISTENER), &proof) {
        return Ok(None);
    }
    stream.write_all(&secret.prove(&words(DIALER)))?;
    let mut line = Line { stream, read: Vec::new() };
    line.tell(hello)?;
    Ok(Some(line))
}

/// Answers a caller: who it is, and the connection to it.
///
/// # Errors
/// What the kernel says, or that it knows no secret, or not in time.
pub fn answer(mut stream: TcpStream, secret: &Token) -> io::Result<(Hello, Line)> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(LIMIT))?;
    notice_boot(&stream)?;
    let until = Instant::now() + PROOF_LIMIT;
    let theirs = take::<SECRET_BYTES>(&mut stream, until)?;
    let mine = random().map_err(io::Error::other)?;
    let listener = stream.local_addr()?.port();
    let words = |role| Words { role, dialer: 0, listener, dialer_nonce: &theirs, listener_nonce: &mine };
    stream.write_all(&mine)?;
    stream.write_all(&secret.prove(&words(LISTENER)))?;
    if !secret.check(&words(DIALER), &take::<PROOF_BYTES>(&mut stream, until)?) {
        return Err(io::Error::other("it does not know the secret of the run"));
    }
    stream.set_read_timeout(Some(LIMIT))?;
    let mut text = String::new();
    // One byte at a time: what follows belongs to the reader of the connection.
    BufReader::with_capacity(1, &stream).read_line(&mut text)?;
    let hello = serde_json::from_str(&text)?;
    stream.set_read_timeout(None)?;
    Ok((hello, Line { stream, read: Vec::new() }))
}

/// A host that has lost its power closes no connection: it is asked now and then, and says once it is up again that it knows
/// none. One that cannot be reached for half an hour loses nothing.
fn notice_boot(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &10)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &15)?;
    Ok(setsockopt(stream, sockopt::TcpKeepCount, &120)?)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("no such host");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Reads N bytes before a deadline, which holds for all of them together: a slow sender cannot hold us up.
fn take<const N: usize>(stream: &mut TcpStream, until: Instant) -> io::Result<[u8; N]> {
    let (mut bytes, mut taken) = ([0; N], 0);
    while taken < N {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes[taken..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => taken += length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}

impl Line {
    /// Has the driver say in the job's output what this process says from now on: its standard error may be a file of results.
    pub fn says_for_us(&self) {
        if let Ok(mut teller) = self.teller() {
            let tells = move |text: &str| teller.tell(&Said::Remark(text.to_string())).is_ok();
            protocol::say_instead(Some(Box::new(tells)));
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn tell(&mut self, word: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(word)?;
        text.push(b'\n');
        self.stream.write_all(&text)
    }

    /// A message that has arrived, without waiting; an error if the other side has gone and nothing is left to read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let text: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&text)?));
            }
            let mut block = [0; 4096];
            match recv(self.stream.as_raw_fd(), &mut block, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.read.extend(&block[..length]),
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Sends a last message and waits until it is read: closing with unread data would destroy it. Without a `limit` until the
    /// other side closes.
    pub fn leave(mut self, word: &Said, limit: Option<Duration>) {
        let _ = self.tell(word).and_then(|()| self.stream.shutdown(Shutdown::Write));
        let _ = self.stream.set_read_timeout(limit);
        while matches!(self.stream.read(&mut [0; 4096]), Ok(length) if length > 0) {}
    }

    /// A second handle of the same connection, for sending only.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn teller(&self) -> io::Result<Line> {
        Ok(Line { stream: self.stream.try_clone()?, read: Vec::new() })
    }

    /// All messages until the other side has gone.
    pub fn words<T: DeserializeOwned>(self) -> impl Iterator<Item = T> {
        let lines = BufReader::new(self.stream).lines().map_while(Result::ok);
        lines.map_while(|text| serde_json::from_str(&text).ok())
    }

    /// Closes the connection, whatever other handles there are.
    pub fn hang_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Keeps the connection open in the program that this process executes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn outlive(self) -> io::Result<()> {
        use std::os::fd::IntoRawFd;
        nix::fcntl::fcntl(&self.stream, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        let _ = self.stream.into_raw_fd();
        Ok(())
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
