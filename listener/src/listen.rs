//! Accepts connections, each bounded in time and header; who stays when there are too many, `connections.rs` says.

use crate::clock::now_s;
use crate::connections::{Bounds, Connections};
use crate::refusals::{Refusals, Refused};
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{oneshot, watch};
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
    /// Those of one address, or of one user on the socket. When they are taken, who has not shown who they are makes room.
    pub of_one: usize,
    /// Those of who has not shown who they are.
    pub unknown: usize,
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
            unknown: 2048,
            head: Duration::from_secs(20),
            body: Duration::from_secs(20),
            body_bytes: wire::LARGEST_BODY,
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

/// The connections of a service; each can be told to end.
type Open = Mutex<Connections<Whose, oneshot::Sender<()>>>;

/// One of them: it notes who uses it, and is free for another when dropped.
#[derive(Debug)]
pub struct Slot {
    open: Arc<Open>,
    id: u64,
}

impl Slot {
    /// Takes a slot, and what says that it is needed for somebody else; none if nobody can go for it.
    fn take(open: &Arc<Open>, origin: &Origin) -> Option<(Arc<Slot>, oneshot::Receiver<()>)> {
        let (end, ended) = oneshot::channel();
        let uid = if let Origin::Local(peer) = origin { Some(peer.uid) } else { None };
        // Whoever goes hears so by the end of its channel.
        let (id, gone) = open.lock().enter(Whose::from(origin), uid, end)?;
        drop(gone);
        Some((Arc::new(Slot { open: open.clone(), id }), ended))
    }

    /// Notes that it is used; by whom, once that was shown.
    pub fn active(&self, uid: Option<u32>) {
        drop(self.open.lock().active(self.id, uid));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.open.lock().leave(self.id));
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
    let bounds = Bounds { all: limits.connections, of_one: limits.of_one, unknown: limits.unknown };
    let open = Arc::new(Mutex::new(Connections::new(bounds)));
    let mut serving = JoinSet::new();
    for listener in listeners {
        let acceptor = Acceptor { app: app.clone(), limits, refusals: refusals.clone(), open: open.clone() };
        serving.spawn(acceptor.serve(listener, stop.clone()));
    }
    while serving.join_next().await.is_some() {}
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One listener's.
struct Acceptor {
    app: Router,
    limits: Limits,
    refusals: Arc<Refusals>,
    open: Arc<Open>,
}

impl Acceptor {
    async fn serve(self, listener: Listener, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stopped(&mut stop) => break,
            };
            let (origin, stream) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    tracing::warn!(%e, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            match Slot::take(&self.open, &origin) {
                Some((slot, ended)) => {
                    let answering = self.answer(origin, stream, slot, stop.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            () = answering => {}
                            _ = ended => {}
                        }
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
        slot: Arc<Slot>,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<> {
        let (app, from, refusals) = (TowerToHyperService::new(self.app.clone()), origin.clone(), self.refusals.clone());
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = has_asked.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            slot.active(None);
            request.extensions_mut().insert(from.clone());
            request.extensions_mut().insert(slot.clone());
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
                () = stopped(&mut stop) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// A service with these limits, its address, and what ends it.
    async fn service(limits: Limits) -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = watch::channel(false);
        let app = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve(vec![Listener::Tcp(listener)], app, limits, Arc::default(), told));
        (address, stop)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn ask(mut stream: TcpStream) -> String {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        rest(stream)
    }

    /// What comes until the service closes.
    fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_clients_are_sent_away_and_stall_nobody() {
        // Who is quick must not be late for standing still a moment with the machine.
        let limits = Limits { head: Duration::from_secs(5), ..Limits::default() };
        let (address, _stop) = service(limits).await;
        let asked = tokio::task::spawn_blocking(move || {
            let slow: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
            for mut stream in &slow {
                stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
            }
            assert!(ask(connect(address)).ends_with("here"));
            slow.into_iter().map(rest).collect::<Vec<_>>()
        });
        for text in asked.await.unwrap() {
            assert!(!text.contains("200 OK"), "{text}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_has_not_shown_who_they_are_makes_room_for_the_next() {
        let (address, _stop) = service(Limits { of_one: 3, ..Limits::default() }).await;
        let asked = tokio::task::spawn_blocking(move || {
            let mut mine: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
            // The first three must have been accepted before the fourth comes: they are, in order.
            assert!(ask(connect(address)).ends_with("here"), "a fourth one was not served");
            assert_eq!(rest(mine.remove(0)), "", "the oldest has gone for it");
            assert!(ask(mine.remove(0)).ends_with("here"), "the others stay");
        });
        asked.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_service_that_is_told_to_stop_ends_in_spite_of_who_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = watch::channel(false);
        let entered = Arc::new(tokio::sync::Notify::new());
        let entering = entered.clone();
        let wait = async move || {
            entering.notify_one();
            std::future::pending::<&'static str>().await
        };
        let app = Router::new().route("/", get(wait));
        let serving = tokio::spawn(serve(vec![Listener::Tcp(listener)], app, Limits::default(), Arc::default(), told));
        let waiting = tokio::task::spawn_blocking(move || ask(connect(address)));
        entered.notified().await;
        stop.send_replace(true);
        serving.await.unwrap();
        assert_eq!(waiting.await.unwrap(), "");
    }
}
