//! The relay of one group of ranks: one thread that owns its logs and all its connections, and does what its heart says.

use crate::Error;
use crate::heart::{Act, Heart, Rules};
use crate::layout::Layout;
use crate::line::{OUTCOMES, go_back, read_marks, write_marks};
use crate::logs::Logs;
use crate::outcomes::Outcomes;
use crate::ranks::Ends;
use crate::recorder::Recorder;
use crate::trim::Trim;
use fencing::{LOOK, Placement};
use mlog::book::{Address, Book};
use mlog::door::{self, is_ours};
use mlog::frame::{Frame, Kind, LONGEST_BYTES};
use mlog::peer::{Peer, dial};
use mlog::proof::Token;
use mlog::unproven::{Callers, Unproven};
use mlog::{Link, Medium, Stream, absent, system};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Queued on one connection before the log is asked for more, bytes.
const QUEUE_BYTES: usize = 1 << 20;

/// What a relay is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run's folder, which all groups see.
    pub run: PathBuf,
    /// The group it serves.
    pub group: usize,
    /// Which rank is in which group.
    pub layout: Layout,
    /// How it decides.
    pub rules: Rules,
    /// Where the logs are kept.
    pub medium: Medium,
    /// Folder of logs, marks and outcomes; `relays/GROUP.ranks` in the run's folder if absent.
    pub log_dir: Option<PathBuf>,
    /// The folder of a saved log from which it goes on.
    pub line: Option<PathBuf>,
    /// The most the logs may take together, bytes: at it those who send wait.
    pub limit_bytes: u64,
    /// All groups go back together, to what their relays have saved.
    pub together: bool,
    /// Committed checkpoints to which the group must be able to go back.
    pub keep: usize,
    /// Until when it is wanted: nobody may be able to end it otherwise.
    pub placement: Option<Placement>,
    /// Address and port to listen on.
    pub listen: String,
    /// Host name for other relays; the one listened on if absent.
    pub advertise: Option<String>,
    /// Unix socket for the ranks; `relays/GROUP.sock` in the run's folder if absent.
    pub socket: Option<PathBuf>,
}

/// A relay at work.
pub struct Relay {
    pub(crate) group: usize,
    pub(crate) heart: Heart<Logs>,
    pub(crate) ends: Vec<Ends>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) callers: Callers,
    pub(crate) token: Token,
    pub(crate) ending: bool,
    pub(crate) connections: u64,
    pub(crate) joined_s: f64,
    /// A rank has said that what it does depends on when messages come.
    pub(crate) varies: bool,
    pub(crate) limit_bytes: u64,
    /// Since when the log has been full, and how long it was before.
    pub(crate) full: Option<Instant>,
    pub(crate) waited: Duration,
    /// The file that keeps ranks away while a dump is under way. A file, because who waits must not hold a socket.
    pub(crate) rest: PathBuf,
    /// All ranks have left, and how far they were is marked.
    pub(crate) rested: bool,
    /// When logs are trimmed, if all groups go back together.
    pub(crate) trim: Option<Trim>,
    pub(crate) folder: PathBuf,
    /// Readings that still may be made though the log is full.
    spare_readings: u8,
    recorder: Recorder,
    placement: Option<(Placement, Instant)>,
    book: Book,
    tcp: TcpListener,
    unix: UnixListener,
    dialed: (mpsc::Sender<Dialed>, mpsc::Receiver<Dialed>),
    wake: (UnixStream, UnixStream),
}

/// The outcome of a call to another relay.
type Dialed = (usize, Result<TcpStream, mlog::Error>);

/// What may happen at a connection.
#[derive(Clone, Copy)]
enum Who {
    Wake,
    Tcp,
    Unix,
    Rank(usize),
    Questions(usize),
    Peer(usize),
    Caller(usize),
}

impl Relay {
    /// Opens the logs and the sockets, and enters the address into the run's book.
    ///
    /// # Errors
    /// What of this cannot be done.
    pub fn open(config: &Config) -> Result<Relay, Error> {
        let Config { group, ref layout, .. } = *config;
        let groups = layout.groups();
        if group >= groups {
            return Err(Error::Usage(format!("group {group} of {groups}: groups are numbered from 0")));
        }
        let run = std::path::absolute(&config.run).map_err(system(config.run.display()))?;
        let book = Book::open(&run)?;
        let folder = config.log_dir.clone().unwrap_or_else(|| book.path(&format!("{group}.ranks")));
        if let Some(line) = &config.line {
            go_back(&folder, line)?;
        }
        let (logs, damages) = Logs::open(&folder, layout, group, config.medium, config.placement.is_some())?;
        for damage in damages {
            tracing::error!(damage, "a log was damaged at its end; what is missing will be reported when it is wanted");
        }
        let marks = read_marks(&folder, layout, group, config.keep)?;
        let wake = UnixStream::pair().map_err(system("a pair of sockets"))?;
        wake.0.set_nonblocking(true).map_err(system("a pair of sockets"))?;
        let mut outcomes = Outcomes::new(layout.ranks(group).len());
        let waker = wake.1.try_clone().map_err(system("a pair of sockets"))?;
        let recorder = Recorder::open(folder.join(OUTCOMES), &mut outcomes, waker)?;
        let socket = config.socket.clone().unwrap_or_else(|| book.path(&format!("{group}.sock")));
        let rest = crate::client::rest_file(&socket);
        absent(&rest)?;
        let tcp = TcpListener::bind(&config.listen).map_err(system(&config.listen))?;
        tcp.set_nonblocking(true).map_err(system(&config.listen))?;
        let local = tcp.local_addr().map_err(system(&config.listen))?;
        let host = config.advertise.clone().unwrap_or_else(|| local.ip().to_string());
        let relay = Relay {
            group,
            ends: layout.ranks(group).iter().map(|_| Ends::default()).collect(),
            heart: Heart::new(layout.clone(), group, config.rules, logs, marks, outcomes)?,
            peers: (0..groups).map(|_| Peer::new()).collect(),
            callers: Callers::new(group),
            token: Token::open(&book.path("token"))?,
            ending: false,
            connections: 0,
            joined_s: mlog::relay::now_s(),
            varies: false,
            limit_bytes: config.limit_bytes,
            full: None,
            waited: Duration::ZERO,
            rest,
            rested: false,
            trim: config.together.then(|| Trim::new(config.limit_bytes, groups)),
            folder,
            spare_readings: 0,
            recorder,
            placement: config.placement.clone().map(|one| (one, Instant::now())),
            unix: door::open(&socket)?,
            tcp,
            dialed: mpsc::channel(),
            wake,
            book,
        };
        let (version, address) = (protocol::VERSION, format!("{host}:{}", local.port()));
        relay.book.write(&Address { version, group, groups, address, socket, pid: std::process::id() })?;
        Ok(relay)
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// What the system says of waiting, or of what must be kept; broken connections are no error.
    pub fn run(&mut self) -> Result<(), Error> {
        while !self.ending {
            let reads = self.may_read();
            for (who, flags) in self.wait(reads)? {
                self.happened(who, flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR));
            }
            self.callers.dismiss_late();
            self.call_peers();
            self.heart.safe(self.recorder.safe());
            if reads {
                self.heart.read_all();
            }
            self.act()?;
            self.pump();
            self.flush_ranks();
            self.look_at_placement();
            self.trim()?;
        }
        self.recorder.end();
        Ok(())
    }

    /// Whether ranks are read. When the log is full they are not, and wait, until others' checkpoints have made room; what
    /// was read is still let out by two more readings, and who is to leave for a dump is heard.
    fn may_read(&mut self) -> bool {
        if self.heart.log.bytes() < self.limit_bytes || self.rest.exists() {
            self.waited += self.full.take().map_or(Duration::ZERO, |since| since.elapsed());
            return true;
        }
        if self.full.is_none() {
            tracing::warn!(group = self.group, "the log is full: ranks that send wait for checkpoints of other groups");
            self.full = Some(Instant::now());
            self.spare_readings = 2;
        }
        let may = self.spare_readings > 0;
        self.spare_readings = self.spare_readings.saturating_sub(1);
        may
    }

    fn look_at_placement(&mut self) {
        let due = self.placement.as_mut().filter(|(_, looked)| looked.elapsed() >= LOOK);
        if let Some((placement, looked)) = due {
            *looked = Instant::now();
            self.ending |= placement.is_over();
        }
    }

    fn wait(&self, reads: bool) -> Result<Vec<(Who, PollFlags)>, Error> {
        let flags = |link: &Link, read: bool| {
            let write = if link.out_bytes() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
            write | if read { PollFlags::POLLIN } else { PollFlags::empty() }
        };
        let mut whom: Vec<(Who, BorrowedFd<'_>, PollFlags)> = vec![(Who::Wake, self.wake.0.as_fd(), PollFlags::POLLIN)];
        for (place, ends) in self.ends.iter().enumerate() {
            let (messages, questions) = (ends.messages.iter(), ends.questions.iter());
            whom.extend(messages.map(|link| (Who::Rank(place), link.fd(), flags(link, reads))));
            whom.extend(questions.map(|link| (Who::Questions(place), link.fd(), flags(link, true))));
        }
        let linked = self.peers.iter().enumerate().filter_map(|(g, p)| Some((g, p.link.as_ref()?)));
        whom.extend(linked.map(|(g, link)| (Who::Peer(g), link.fd(), flags(link, true))));
        // From the last to the first, since handling one may remove it.
        whom.extend(self.callers.links().map(|(i, link)| (Who::Caller(i), link.fd(), flags(link, true))));
        // After them, since one that comes may take the place of another.
        whom.push((Who::Tcp, self.tcp.as_fd(), PollFlags::POLLIN));
        whom.push((Who::Unix, self.unix.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = whom.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        let alone = self.peers[..self.group].iter().any(|p| p.link.is_none());
        let again = self.heart.wants_reading() && (reads || self.spare_readings > 0);
        let timeout = match (again, alone || !self.callers.is_empty() || self.full.is_some()) {
            (true, _) => PollTimeout::ZERO,
            (false, true) => PollTimeout::from(20u16),
            (false, false) => PollTimeout::from(1000u16),
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(system("poll")(e.into()).into()),
        }
        let seen = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        Ok(whom.iter().map(|(who, ..)| *who).zip(seen).filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn happened(&mut self, who: Who, readable: bool) {
        match who {
            Who::Wake => self.take_dialed(),
            Who::Tcp => {
                while let Ok((stream, _)) = self.tcp.accept() {
                    self.callers.admit(Stream::Tcp(stream));
                }
            }
            Who::Unix => {
                while let Ok((stream, _)) = self.unix.accept() {
                    if is_ours(&stream) {
                        self.callers.admit(Stream::Unix(stream));
                    } else {
                        self.callers.refuse("a program of another user");
                    }
                }
            }
            Who::Rank(place) if readable => self.read_rank(place),
            Who::Questions(place) if readable => self.read_questions(place),
            Who::Peer(group) if readable => self.read_peer(group),
            Who::Caller(index) if readable => self.read_caller(index),
            _ => {}
        }
    }

    /// Does what the heart says.
    fn act(&mut self) -> Result<(), Error> {
        while let Some(act) = self.heart.act() {
            match act {
                Act::Rank(place, frame) => {
                    if let Some(link) = &mut self.ends[place].messages {
                        link.push(frame);
                    }
                }
                Act::Group(group, frame) => {
                    if let Some(link) = &mut self.peers[group].link {
                        link.push(frame);
                    }
                }
                // Nobody repeats anything beyond what was saved.
                Act::Record(_, count) if self.trim.is_some() => self.heart.safe(count),
                Act::Rewrite(_) | Act::Marks if self.trim.is_some() => {}
                Act::Record(bytes, count) => self.recorder.append(bytes, count),
                Act::Rewrite(bytes) => self.recorder.rewrite(bytes),
                Act::Marks => write_marks(&self.folder, &self.heart.marks)?,
            }
        }
        Ok(())
    }

    /// Reads from a caller: a rank enters, a command asks, a relay greets and proves.
    fn read_caller(&mut self, index: usize) {
        let Some((caller, frame)) = self.callers.read(index) else { return };
        let outcome = match caller.link.stream() {
            Stream::Unix(_) => self.welcome_local(caller.link, &frame),
            Stream::Tcp(_) => self.welcome_relay(caller, &frame),
            Stream::Closed(_) => return,
        };
        if let Err(e) = outcome {
            self.callers.refuse(&e.to_string());
        }
    }

    fn welcome_relay(&mut self, caller: Unproven, frame: &Frame) -> Result<(), Error> {
        let proved = self.callers.prove(caller, frame, &self.token, self.peers.len())?;
        if let Some((group, link)) = proved {
            self.connected(group, link);
        }
        Ok(())
    }

    /// Calls the relays of lower groups that are not connected; each call has a thread, since it may hang.
    fn call_peers(&mut self) {
        let now = Instant::now();
        for them in 0..self.group {
            if !self.peers[them].is_due(now) {
                continue;
            }
            let (book, token, me) = (self.book.clone(), self.token.clone(), self.group);
            let (answers, wake) = (self.dialed.0.clone(), self.wake.1.try_clone());
            let call = move || {
                // Nobody listens any more only when the relay has ended.
                let _ = answers.send((them, dial(&book, &token, me, them)));
                let _ = wake.and_then(|mut w| w.write_all(&[1]));
            };
            self.peers[them].dialing = std::thread::Builder::new().spawn(call).is_ok();
        }
    }

    fn take_dialed(&mut self) {
        let mut bytes = [0; 64];
        while self.wake.0.read(&mut bytes).is_ok_and(|count| count > 0) {}
        while let Ok((them, outcome)) = self.dialed.1.try_recv() {
            let link = outcome.and_then(|s| Link::new(Stream::Tcp(s), LONGEST_BYTES).map_err(system("a relay")));
            match link {
                Ok(link) => self.connected(them, link),
                Err(e) => {
                    if matches!(e, mlog::Error::Garbage(_)) {
                        self.callers.refuse(&e.to_string());
                    }
                    tracing::debug!(group = self.group, them, "not reached: {e}");
                    self.peers[them].failed(Instant::now());
                }
            }
        }
    }

    pub(crate) fn connected(&mut self, them: usize, mut link: Link) {
        link.trust(LONGEST_BYTES);
        self.peers[them].connected(link);
        self.connections += 1;
        self.heart.connected(them);
        // Its first words may have come together with its proof.
        self.read_peer(them);
    }

    fn disconnected(&mut self, them: usize, why: &str) {
        tracing::info!(group = self.group, them, "connection lost: {why}");
        self.heart.parted(them);
        self.peers[them].link = None;
        self.peers[them].failed(Instant::now());
    }

    fn read_peer(&mut self, them: usize) {
        let Some(link) = &mut self.peers[them].link else { return };
        let open = link.receive();
        loop {
            let Some(link) = &mut self.peers[them].link else { return };
            let frame = match link.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(e) => return self.disconnected(them, &e.to_string()),
            };
            if frame.header.kind == Kind::Collect {
                // The log may be full of what the last reading brought, which leaves only after another.
                self.spare_readings = 2;
            }
            if let Err(e) = self.heart.heard(them, frame) {
                return self.disconnected(them, &e.to_string());
            }
        }
        match open {
            Ok(true) => {}
            Ok(false) => self.disconnected(them, "closed"),
            Err(e) => self.disconnected(them, &e.to_string()),
        }
    }

    /// Moves what is due from the logs to the connections, as far as there is room.
    fn pump(&mut self) {
        for group in 0..self.peers.len() {
            let Some(link) = &mut self.peers[group].link else { continue };
            let mut outcome = link.flush();
            while outcome.is_ok() && link.out_bytes() < QUEUE_BYTES {
                let Some(frame) = self.heart.next_for(group) else { break };
                link.push(frame);
                if link.out_bytes() >= QUEUE_BYTES {
                    outcome = link.flush();
                }
            }
            if let Err(e) = outcome.and_then(|()| link.flush()) {
                self.disconnected(group, &e.to_string());
            }
        }
    }
}
