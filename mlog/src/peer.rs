//! The connection to another group's relay: made with proofs on both sides, made again whenever it breaks.

use crate::book::Book;
use crate::channel::Incoming;
use crate::frame::{Bytes, Frame, HEADER_BYTES, Header, Kind, UNPROVEN_BYTES};
use crate::link::Link;
use crate::proof::{DIALER, LISTENER, PROOF_BYTES, SECRET_BYTES, Token, Words, random};
use crate::{Error, system};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First pause after a failed attempt.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time limit of each step of an attempt.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a relay knows of another.
#[derive(Debug)]
pub struct Peer {
    /// The connection, while there is one.
    pub link: Option<Link>,
    /// The channel from it.
    pub incoming: Incoming,
    /// Highest number transmitted to it.
    pub peak: u64,
    /// Number of a message from it that this group wants and no log has any more.
    pub lost_here: Option<u64>,
    /// Number of a message to it that it wants and this log no longer has.
    pub lost_there: Option<u64>,
    /// Whether an attempt is under way.
    pub dialing: bool,
    retry_at: Instant,
    pause: Duration,
}

impl Default for Peer {
    fn default() -> Self {
        Peer::new()
    }
}

impl Peer {
    /// Not connected yet.
    pub fn new() -> Peer {
        Peer {
            link: None,
            incoming: Incoming::new(),
            peak: 0,
            lost_here: None,
            lost_there: None,
            dialing: false,
            retry_at: Instant::now(),
            pause: SHORTEST_PAUSE,
        }
    }

    /// True if it is time for another attempt.
    pub fn is_due(&self, now: Instant) -> bool {
        self.link.is_none() && !self.dialing && now >= self.retry_at
    }

    /// An attempt failed.
    pub fn failed(&mut self, now: Instant) {
        self.dialing = false;
        self.retry_at = now + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }

    /// The connection stands.
    pub fn connected(&mut self, link: Link) {
        self.dialing = false;
        self.pause = SHORTEST_PAUSE;
        self.link = Some(link);
    }
}

/// Calls the relay of `them`; the address is read anew each time.
///
/// # Errors
/// It is not there, or does not prove that it knows the token.
pub fn dial(book: &Book, token: &Token, me: usize, them: usize) -> Result<TcpStream, Error> {
    let address = book.read(them)?.address;
    let resolved = address.to_socket_addrs().map_err(system(&address))?.next();
    let resolved = resolved.ok_or_else(|| Error::Usage(format!("{address}: no such host")))?;
    let mut stream = TcpStream::connect_timeout(&resolved, PATIENCE).map_err(system(&address))?;
    let prepare = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    prepare.and_then(|()| stream.set_nodelay(true)).map_err(system(&address))?;

    let nonce = random()?;
    write(&mut stream, &Frame::new(Kind::Greet, me, 0, them as u64, nonce.to_vec())).map_err(system(&address))?;
    let challenge = read(&mut stream)?;
    let Some((theirs, proof)) = split_challenge(&challenge) else {
        return Err(Error::Garbage(format!("no challenge, at {address}")));
    };
    let words = Words {
        role: LISTENER,
        dialer: me as u16,
        listener: them as u16,
        dialer_nonce: &nonce,
        listener_nonce: theirs,
    };
    if !token.check(&words, proof) {
        return Err(Error::Garbage(format!("a wrong proof, at {address}")));
    }
    let proof = token.prove(&Words { role: DIALER, ..words });
    write(&mut stream, &Frame::new(Kind::Proof, me, 0, 0, proof.to_vec())).map_err(system(&address))?;
    Ok(stream)
}

/// A caller that has greeted: its group and both nonces.
#[derive(Debug)]
pub struct Greeted {
    /// The group that the caller says it is.
    pub group: usize,
    listener: usize,
    dialer_nonce: Bytes,
    listener_nonce: [u8; SECRET_BYTES],
}

impl Greeted {
    /// Answers a greeting with a challenge.
    ///
    /// # Errors
    /// [`Error::Garbage`] if the greeting is none, is for another group, or comes from one that must be called.
    pub fn answer(greet: &Frame, token: &Token, me: usize, groups: usize) -> Result<(Greeted, Frame), Error> {
        let Header { kind, group, number, .. } = greet.header;
        let group = usize::from(group);
        let fits = kind == Kind::Greet && number == me as u64 && (me + 1..groups).contains(&group);
        if !fits || greet.body.len() != SECRET_BYTES {
            return Err(Error::Garbage(format!("{kind:?} of group {group} to group {number} for a greeting")));
        }
        let greeted = Greeted { group, listener: me, dialer_nonce: greet.body.clone(), listener_nonce: random()? };
        let proof = token.prove(&greeted.words(LISTENER));
        let body = [&greeted.listener_nonce[..], &proof[..]].concat();
        Ok((greeted, Frame::new(Kind::Challenge, me, 0, 0, body)))
    }

    /// True if the caller's answer proves that it knows the token.
    pub fn is_proved(&self, proof: &Frame, token: &Token) -> bool {
        proof.header.kind == Kind::Proof && token.check(&self.words(DIALER), &proof.body)
    }

    fn words(&self, role: &'static [u8]) -> Words<'_> {
        let (dialer, listener) = (self.group as u16, self.listener as u16);
        let (dialer_nonce, listener_nonce) = (&self.dialer_nonce[..], &self.listener_nonce[..]);
        Words { role, dialer, listener, dialer_nonce, listener_nonce }
    }
}

fn split_challenge(frame: &Frame) -> Option<(&[u8], &[u8])> {
    let whole = frame.header.kind == Kind::Challenge && frame.body.len() == SECRET_BYTES + PROOF_BYTES;
    whole.then(|| frame.body.split_at(SECRET_BYTES))
}

fn write(stream: &mut TcpStream, frame: &Frame) -> std::io::Result<()> {
    stream.write_all(&[&frame.header.encode()[..], &frame.body[..]].concat())
}

fn read(stream: &mut TcpStream) -> Result<Frame, Error> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).map_err(system("a relay's challenge"))?;
    let header = Header::decode(&head, UNPROVEN_BYTES)?;
    let mut body = vec![0; header.length as usize];
    stream.read_exact(&mut body).map_err(system("a relay's challenge"))?;
    Ok(Frame { header, body: Arc::new(body.into()) })
}
