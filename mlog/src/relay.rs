//! The relay of one group: one thread that owns its log and all its connections.

use crate::book::{Address, Book};
use crate::channel::Arrived;
use crate::door::{self, is_ours};
use crate::frame::{Frame, Kind, LONGEST_BYTES};
use crate::link::{Link, Stream};
use crate::marks::Marks;
use crate::peer::{Peer, dial};
use crate::program::Program;
use crate::proof::Token;
use crate::status::Counts;
use crate::store::{Medium, Store};
use crate::unproven::{Callers, Unproven};
use crate::{Error, absent, system};
use fencing::{LOOK, Placement};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Queued on one connection before the log is asked for more, bytes.
const QUEUE_BYTES: usize = 1 << 20;

/// Configuration of a relay.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run's folder, which all groups see.
    pub run: PathBuf,
    /// The group it serves.
    pub group: usize,
    /// Groups of the run.
    pub groups: usize,
    /// Where the log is kept.
    pub medium: Medium,
    /// Folder of the log and the marks; `relays/GROUP.log` in the run's folder if absent.
    pub log_dir: Option<PathBuf>,
    /// The most the log may take, bytes.
    pub limit_bytes: u64,
    /// Committed checkpoints to which the group must be able to go back.
    pub keep: usize,
    /// A program whose messages are lost waits for a sender that goes back, instead of being told.
    pub patient: bool,
    /// Its placement: it ends when that is over, since nobody else may be able to end it. A relay before it that
    /// still holds the log is about to end.
    pub placement: Option<Placement>,
    /// Address and port to listen on.
    pub listen: String,
    /// Host name for other relays; the one listened on if absent.
    pub advertise: Option<String>,
    /// Unix socket for the program, a path or `@NAME`; `relays/GROUP.sock` in the run's folder if absent.
    pub socket: Option<PathBuf>,
}

/// A running relay.
pub struct Relay {
    pub(crate) group: usize,
    pub(crate) groups: usize,
    pub(crate) medium: Medium,
    pub(crate) joined_s: f64,
    patient: bool,
    pub(crate) store: Store,
    pub(crate) marks: Marks,
    pub(crate) counts: Counts,
    pub(crate) peers: Vec<Peer>,
    pub(crate) program: Option<Program>,
    pub(crate) ending: bool,
    pub(crate) token: Token,
    pub(crate) callers: Callers,
    /// The file that keeps a program away that has joined, while a dump is under way. A file, because a program that
    /// waits must not hold a socket.
    pub(crate) rest: PathBuf,
    /// Its placement, and the time of the last check.
    placement: Option<(Placement, Instant)>,
    /// Whether the program was asked to leave for a dump.
    pub(crate) rests: bool,
    book: Book,
    tcp: TcpListener,
    unix: UnixListener,
    dialed: (mpsc::Sender<Dialed>, mpsc::Receiver<Dialed>),
    wake: (UnixStream, UnixStream),
}

/// The outcome of a call to another relay.
type Dialed = (usize, Result<TcpStream, Error>);

/// Which connection an event belongs to.
#[derive(Clone, Copy)]
enum Who {
    Wake,
    Tcp,
    Unix,
    Program,
    Peer(usize),
    Caller(usize),
}

impl Relay {
    /// Opens the log and the sockets, and enters the address into the run's book.
    ///
    /// # Errors
    /// What of this cannot be done.
    pub fn open(config: &Config) -> Result<Relay, Error> {
        let Config { group, groups, .. } = *config;
        if group >= groups || groups > usize::from(u16::MAX) {
            return Err(Error::Usage(format!("group {group} of {groups}: groups are numbered from 0")));
        }
        let run = std::path::absolute(&config.run).map_err(system(config.run.display()))?;
        let book = Book::open(&run)?;
        let log_dir = config.log_dir.clone().unwrap_or_else(|| book.path(&format!("{group}.log")));
        let (mut store, damage) =
            Store::open(&log_dir, groups, config.medium, config.limit_bytes, config.placement.is_some())?;
        let marks = Marks::open(&log_dir, config.keep)?;
        if let Some(damage) = damage {
            tracing::error!(
                damage,
                "the log was damaged at its end; what is missing will be reported when it is wanted"
            );
        }
        // A log in memory that was lost after its program had ended can be made again only by running that program
        // again.
        for (to, sent) in marks.ended().unwrap_or_default().iter().enumerate() {
            store.join(to, *sent)?;
        }
        let socket = config.socket.clone().unwrap_or_else(|| book.path(&format!("{group}.sock")));
        let rest = book.path(&format!("{group}.rest"));
        absent(&rest)?;
        let tcp = TcpListener::bind(&config.listen).map_err(system(&config.listen))?;
        let local = tcp.local_addr().map_err(system(&config.listen))?;
        let host = config.advertise.clone().unwrap_or_else(|| local.ip().to_string());
        let wake = UnixStream::pair().map_err(system("a pair of sockets"))?;
        let relay = Relay {
            group,
            groups,
            medium: config.medium,
            joined_s: now_s(),
            patient: config.patient,
            store,
            marks,
            counts: Counts::default(),
            peers: (0..groups).map(|_| Peer::new()).collect(),
            program: None,
            ending: false,
            token: Token::open(&book.path("token"))?,
            callers: Callers::new(group),
            rest,
            placement: config.placement.clone().map(|one| (one, Instant::now())),
            rests: false,
            unix: door::open(&socket)?,
            tcp,
            dialed: mpsc::channel(),
            wake,
            book,
        };
        relay.tcp.set_nonblocking(true).map_err(system(&config.listen))?;
        relay.wake.0.set_nonblocking(true).map_err(system("a pair of sockets"))?;
        let (version, address) = (protocol::VERSION, format!("{host}:{}", local.port()));
        relay.book.write(&Address { version, group, groups, address, socket, pid: std::process::id() })?;
        Ok(relay)
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// What the system says of waiting; broken connections are no error.
    pub fn run(&mut self) -> Result<(), Error> {
        while !self.ending {
            for (who, flags) in self.wait()? {
                self.happened(who, flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR));
            }
            self.callers.dismiss_late();
            self.call_peers();
            for group in 0..self.groups {
                self.pump(group);
            }
            self.flush_program();
            self.look_at_placement();
        }
        Ok(())
    }

    fn look_at_placement(&mut self) {
        let due = self.placement.as_mut().filter(|(_, looked)| looked.elapsed() >= LOOK);
        if let Some((placement, looked)) = due {
            *looked = Instant::now();
            self.ending |= placement.is_over();
        }
    }

    fn wait(&self) -> Result<Vec<(Who, PollFlags)>, Error> {
        let flags = |link: &Link, read: bool| {
            let write = if link.out_bytes() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
            write | if read { PollFlags::POLLIN } else { PollFlags::empty() }
        };
        let mut whom: Vec<(Who, BorrowedFd<'_>, PollFlags)> = vec![(Who::Wake, self.wake.0.as_fd(), PollFlags::POLLIN)];
        whom.extend(self.program.iter().map(|p| (Who::Program, p.link.fd(), flags(&p.link, true))));
        let room = !self.program.as_ref().is_some_and(Program::is_behind);
        let linked = self.peers.iter().enumerate().filter_map(|(g, p)| Some((g, p.link.as_ref()?)));
        whom.extend(linked.map(|(g, link)| (Who::Peer(g), link.fd(), flags(link, room))));
        // From the last to the first, since handling one may remove it.
        whom.extend(self.callers.links().map(|(i, link)| (Who::Caller(i), link.fd(), flags(link, true))));
        // Listeners come after connections, since a new caller may take the place of another.
        whom.push((Who::Tcp, self.tcp.as_fd(), PollFlags::POLLIN));
        whom.push((Who::Unix, self.unix.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = whom.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        let alone = self.peers[..self.group].iter().any(|p| p.link.is_none());
        let timeout = PollTimeout::from(if alone || !self.callers.is_empty() { 20u16 } else { 1000 });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(system("poll")(e.into())),
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
            Who::Program if readable => self.read_program(),
            Who::Peer(group) if readable => self.read_peer(group),
            Who::Caller(index) if readable => self.read_caller(index),
            _ => {}
        }
    }

    /// Reads from a caller: a program opens, a command asks, a relay greets and proves.
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
        let proved = self.callers.prove(caller, frame, &self.token, self.groups)?;
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
                // Nobody receives the answer only if the relay has ended.
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
                    if matches!(e, Error::Garbage(_)) {
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
        link.push(Frame::number(Kind::Collect, self.marks.collected(them)));
        self.store.want(them, 0);
        self.peers[them].connected(link);
        self.counts.connections += 1;
        self.want(them);
        // Its first messages may have arrived together with its proof.
        self.read_peer(them);
    }

    fn disconnected(&mut self, them: usize, why: &str) {
        tracing::info!(group = self.group, them, "connection lost: {why}");
        self.store.want(them, 0);
        self.peers[them].link = None;
        self.peers[them].failed(Instant::now());
    }

    /// Tells another relay from where on its messages are wanted.
    pub(crate) fn want(&mut self, them: usize) {
        let peer = &mut self.peers[them];
        let from = peer.incoming.want().unwrap_or(0);
        if from != 0 {
            peer.lost_here = None;
        }
        if let Some(link) = &mut peer.link {
            link.push(Frame::number(Kind::Want, from));
        }
    }

    fn read_peer(&mut self, them: usize) {
        let Some(link) = &mut self.peers[them].link else { return };
        let open = link.receive();
        loop {
            let Some(link) = &mut self.peers[them].link else { return };
            match link.next_frame().and_then(|f| f.map(|f| self.obey_peer(them, f)).transpose()) {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(e) => return self.disconnected(them, &e.to_string()),
            }
        }
        match open {
            Ok(true) => {}
            Ok(false) => self.disconnected(them, "closed"),
            Err(e) => self.disconnected(them, &e.to_string()),
        }
    }

    fn obey_peer(&mut self, them: usize, frame: Frame) -> Result<(), Error> {
        let number = frame.header.number;
        match frame.header.kind {
            Kind::Message => self.deliver(them, frame),
            Kind::Want => {
                self.store.want(them, number);
                if number != 0 {
                    self.tell_loss(them);
                }
                Ok(())
            }
            Kind::Collect => self.store.collect(them, number),
            Kind::Lost => {
                self.peers[them].lost_here = Some(number);
                if !self.patient {
                    self.tell_program(&Error::Lost(format!("message {number} of group {them} is in no log any more")));
                }
                Ok(())
            }
            kind => Err(Error::Garbage(format!("{kind:?} from a relay"))),
        }
    }

    fn deliver(&mut self, from: usize, mut frame: Frame) -> Result<(), Error> {
        match (self.peers[from].incoming.arrive(frame.header.number), &mut self.program) {
            (Arrived::Deliver, Some(program)) => {
                frame.header.group = from as u16;
                self.counts.delivered += u64::from(frame.header.rest == 0);
                program.link.push(frame);
            }
            (Arrived::Broken, _) => {
                return Err(Error::Garbage(format!("message {} too early", frame.header.number)));
            }
            _ => self.counts.duplicates += 1,
        }
        Ok(())
    }

    /// Tells the receiver that a wanted message is lost, if it is.
    pub(crate) fn tell_loss(&mut self, to: usize) {
        let lost = self.store.channel(to).and_then(|c| c.lost);
        self.peers[to].lost_there = lost;
        let Some(lost) = lost else { return };
        tracing::error!(from = self.group, to, message = lost, "wanted and in no log: the recovery line must go back");
        if let Some(link) = &mut self.peers[to].link {
            link.push(Frame::number(Kind::Lost, lost));
        }
    }

    /// Queues due messages from the log on the connection, as far as there is room.
    fn pump(&mut self, to: usize) {
        let peer = &mut self.peers[to];
        let Some(link) = &mut peer.link else { return };
        let mut outcome = Ok(());
        while link.out_bytes() < QUEUE_BYTES {
            match self.store.next_due(to, self.group) {
                Ok(Some(frame)) => {
                    let number = frame.header.number;
                    if number <= peer.peak {
                        self.counts.replayed += 1;
                        self.counts.replayed_bytes += u64::from(frame.header.length);
                    }
                    peer.peak = peer.peak.max(number);
                    link.push(frame);
                }
                Ok(None) => break,
                Err(e) => {
                    let number = self.store.channel(to).and_then(|c| c.due).unwrap_or(0);
                    tracing::error!(from = self.group, to, number, "the recovery line must go back: {e}");
                    link.push(Frame::number(Kind::Lost, number));
                    self.store.want(to, 0);
                }
            }
            if link.out_bytes() >= QUEUE_BYTES {
                outcome = link.flush();
            }
        }
        if let Err(e) = outcome.and_then(|()| link.flush()) {
            self.disconnected(to, &e.to_string());
        }
    }
}

/// Unix time, s.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
