//! Accepts connections, each bounded in time and header, and no stranger more of them than a fair share.

use super::Refusals;
use super::refusals::Refused;
use crate::now_s;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::Peer;

/// Pause after a connection that could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How long requests may go on after the service was told to stop.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Longest head of a request, bytes: a credential has at most 8 KiB.
const LONGEST_HEAD: usize = 16 << 10;

/// Most headers of a request.
const MOST_HEADERS: usize = 32;

/// Bounds of a service.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time. Each running wrapper keeps one.
    pub connections: usize,
    /// Those of one address, or of one user on the socket.
    pub of_one: usize,
    /// Time for the head of a request, and between two requests.
    pub head: Duration,
    /// Time for the body.
    pub body: Duration,
    /// Size of the body, bytes.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            of_one: 1024,
            head: Duration::from_secs(20),
            body: Duration::from_secs(20),
            body_bytes: super::LARGEST_BODY,
        }
    }
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The network.
    Tcp(SocketAddr),
    /// This host's socket, with who the kernel says it is.
    Local(Peer),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Tcp(address) => address.fmt(f),
            Origin::Local(peer) => write!(f, "socket, user {}", peer.uid),
        }
    }
}

/// What connections come in by.
pub enum Listener {
    /// The network.
    Tcp(TcpListener),
    /// A socket of this host.
    Local(UnixListener),
}

/// Whose share a connection counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    Address(IpAddr),
    User(u32),
}

impl From<&Origin> for Whose {
    fn from(origin: &Origin) -> Whose {
        match origin {
            Origin::Tcp(address) => Whose::Address(address.ip()),
            Origin::Local(peer) => Whose::User(peer.uid),
        }
    }
}

/// The connections that are open.
#[derive(Default)]
struct Shares(Mutex<HashMap<Whose, usize>>);

/// One of them, given back when dropped.
struct Share {
    shares: Arc<Shares>,
    whose: Whose,
}

impl Shares {
    fn take(self: &Arc<Self>, whose: Whose, limits: &Limits) -> Option<Share> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = open.get(&whose).copied().unwrap_or(0);
        if mine >= limits.of_one || open.values().sum::<usize>() >= limits.connections {
            return None;
        }
        open.insert(whose, mine + 1);
        Some(Share { shares: self.clone(), whose })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = open.get_mut(&self.whose) {
            *mine -= 1;
            if *mine == 0 {
                open.remove(&self.whose);
            }
        }
    }
}

/// Answers on all listeners until `stop` becomes true, then lets requests end for a moment.
pub async fn serve(
    listeners: Vec<Listener>,
    app: Router,
    limits: Limits,
    refusals: Arc<Refusals>,
    stop: watch::Receiver<bool>,
) {
    let shares = Arc::new(Shares::default());
    let mut serving = JoinSet::new();
    for listener in listeners {
        let door = Door { app: app.clone(), limits, refusals: refusals.clone(), shares: shares.clone() };
        serving.spawn(door.serve(listener, stop.clone()));
    }
    while serving.join_next().await.is_some() {}
}

async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One listener's.
struct Door {
    app: Router,
    limits: Limits,
    refusals: Arc<Refusals>,
    shares: Arc<Shares>,
}

impl Door {
    async fn serve(self, listener: Listener, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = told(&mut stop) => break,
            };
            let (origin, stream) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    tracing::warn!(%e, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            match self.shares.take(Whose::from(&origin), &self.limits) {
                Some(share) => {
                    let answering = self.answer(origin, stream, stop.clone());
                    connections.spawn(async move {
                        answering.await;
                        drop(share);
                    });
                }
                None => self.note(&origin, "a connection", "too many connections"),
            }
        }
        drop(listener);
        let _ = tokio::time::timeout(LAST_WORDS, async { while connections.join_next().await.is_some() {} }).await;
    }

    fn note(&self, origin: &Origin, what: &str, why: &str) {
        note(&self.refusals, origin, what, why);
    }

    /// Serves one connection to its end.
    fn answer(
        &self,
        origin: Origin,
        stream: Stream,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<> {
        let (app, from, refusals) = (TowerToHyperService::new(self.app.clone()), origin.clone(), self.refusals.clone());
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = has_asked.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(from.clone());
            app.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(MOST_HEADERS)
            .max_header_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = told(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            // Whoever goes away, or rests between requests, is not refused; whoever speaks no HTTP, or too slowly, is.
            if let Err(e) = ended
                && (e.is_parse() || (e.is_timeout() && !has_asked.load(Ordering::Relaxed)))
            {
                note(&refusals, &origin, "no request", &e.to_string());
            }
        }
    }
}

fn note(refusals: &Refusals, origin: &Origin, what: &str, why: &str) {
    let uid = if let Origin::Local(peer) = origin { Some(peer.uid) } else { None };
    refusals.note(now_s(), &Refused { uid, from: &origin.to_string(), what, status: 0, why });
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
type Stream = Box<dyn Duplex>;

impl Listener {
    async fn accept(&self) -> std::io::Result<(Origin, Stream)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                // Whoever does not take the answer is gone.
                let limit_ms = u32::try_from(Limits::default().body.as_millis()).unwrap_or(20_000);
                let _ =
                    nix::sys::socket::setsockopt(&stream.as_fd(), nix::sys::socket::sockopt::TcpUserTimeout, &limit_ms);
                Ok((Origin::Tcp(address), Box::new(stream)))
            }
            Listener::Local(listener) => {
                let (stream, _) = listener.accept().await?;
                let who = stream.peer_cred()?;
                Ok((Origin::Local(Peer { uid: who.uid(), gid: who.gid() }), Box::new(stream)))
            }
        }
    }
}
