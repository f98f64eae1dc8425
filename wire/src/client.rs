//! Asks a service, and tells "nobody there" from "refused" from "not understood".

use crate::local::Socket;
use crate::place::{Place, Places, is_unsent};
use crate::proof::{answer_payload, request_payload};
use crate::{CONTROLLER, Distrust, Munge, PROOF, node_audience};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::TcpConnector;

/// The largest answer that is read, bytes: a report of a hundred thousand runs fits.
const LARGEST_ANSWER: u64 = 512 << 20;

/// How long a place may take to take a connection, where there is another one.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// Why a request brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answered in time, or munged of this host is away: trying again later makes sense.
    #[error("{url} cannot be reached: {text}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        text: String,
    },
    /// The service answered, and refused.
    #[error("refused ({status}): {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The service's words.
        text: String,
    },
    /// Somebody refused who does not prove to be the service, or the service before it knew who asked: nothing is known
    /// of what it would say.
    #[error("{url} is refused without a proof of the service (status {status}): {text}")]
    Unproven {
        /// Where.
        url: String,
        /// HTTP status.
        status: u16,
        /// The words.
        text: String,
    },
    /// The answer is not what this version understands, or does not come from the service.
    #[error("the answer of {url} is not accepted: {text}")]
    Invalid {
        /// Where.
        url: String,
        /// Why.
        text: String,
    },
}

impl Error {
    /// Whether the service itself said no, and would say it again. Whatever else happened, what was to be delivered is
    /// kept: nobody has refused it.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::Refused { status: 400 | 403..=407 | 409..=424 | 426..=428 | 430..=499, .. })
    }
}

/// How a client shows who it is.
#[derive(Clone, Debug)]
enum Identity {
    /// A credential in every request, for one audience.
    Munge { munge: Munge, audience: String },
    /// The kernel tells, on a unix socket.
    Kernel,
}

/// A blocking client of one service; cheap to clone, its connections and where the service is are kept and shared.
#[derive(Clone, Debug)]
pub struct Client {
    places: Arc<Places>,
    identity: Identity,
    timeout: Duration,
    /// What the service is known by where one that is silent is not asked again at once; none: it is.
    known_as: Option<Arc<str>>,
}

/// How long a service that has not answered in time is not asked again by who minds that.
const SILENCE: Duration = Duration::from_secs(10);

/// Since when services are silent.
static SILENT: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// What became of a request.
type Sent = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// The settings of an agent; `has_others`: whether the service has other places.
fn settings(has_others: bool) -> ureq::config::Config {
    ureq::Agent::config_builder()
        .timeout_connect(has_others.then_some(CONNECT_LIMIT))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent("joulepoint")
        .build()
}

impl Client {
    /// A client of the controller at `base_url` (`http://host:port`); each request ends within `timeout`.
    ///
    /// Several places are separated by commas: one that takes no connection within a second is left for the next.
    pub fn new(base_url: &str, munge_socket: Option<PathBuf>, timeout: Duration) -> Self {
        Client::signing(base_url, CONTROLLER.to_owned(), munge_socket, timeout)
    }

    /// A client of the service of `node`.
    pub fn of_node(base_url: &str, node: &str, munge_socket: Option<PathBuf>, timeout: Duration) -> Self {
        Client::signing(base_url, node_audience(node), munge_socket, timeout)
    }

    /// A client of a service on this host, by its socket; the kernel says who asks and who answers.
    pub fn on_socket(path: &Path, timeout: Duration) -> Self {
        // The address is never connected to; a number needs no name service.
        let place =
            Place::new("http://127.0.0.1", settings(false), Socket(path.to_owned()), DefaultResolver::default());
        Client::at(vec![place], Identity::Kernel, timeout)
    }

    fn signing(base_url: &str, audience: String, munge_socket: Option<PathBuf>, timeout: Duration) -> Self {
        let urls: Vec<&str> = base_url.split(',').map(str::trim).collect();
        let place =
            |url: &&str| Place::new(url, settings(urls.len() > 1), TcpConnector::default(), DefaultResolver::default());
        let identity = Identity::Munge { munge: Munge::new(munge_socket), audience };
        Client::at(urls.iter().map(place).collect(), identity, timeout)
    }

    fn at(places: Vec<Place>, identity: Identity, timeout: Duration) -> Self {
        Client { places: Arc::new(Places::new(places)), identity, timeout, known_as: None }
    }

    /// Where the service is, as far as is known.
    pub fn base_url(&self) -> &str {
        &self.places.current().base_url
    }

    /// The same client with another limit for each request, for answers that the service holds back.
    pub fn within(&self, timeout: Duration) -> Self {
        Client { timeout, ..self.clone() }
    }

    /// The same client, of a service known by a name of its host. One that has not answered a request in time is not waited for
    /// again for a while: a service that hangs, and takes connections, must not hold up whoever has other ways.
    pub fn impatient(self, name: &str) -> Self {
        Client { known_as: Some(name.into()), ..self }
    }

    /// The same client, which asks whatever was silent before: where silence would be taken for something.
    pub fn patient(self) -> Self {
        Client { known_as: None, ..self }
    }

    fn silence(&self, place: &Place) -> Option<String> {
        Some(format!("{} {}", self.known_as.as_ref()?, place.base_url))
    }

    /// `GET path`; the path includes the query ([`query`]).
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.ask(path, |place, url| {
            let authorization = self.sign("GET", path, b"")?;
            let mut request = place.agent.get(url).config().timeout_global(Some(self.timeout)).build();
            if let Some(authorization) = &authorization {
                request = request.header("authorization", authorization);
            }
            Ok((request.call(), authorization))
        })
    }

    /// `POST path` with a JSON body.
    pub fn post<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Error> {
        let body = self.own(path, body)?;
        self.ask(path, |place, url| {
            let authorization = self.sign("POST", path, &body)?;
            let mut request = place.agent.post(url).header("content-type", "application/json");
            if let Some(authorization) = &authorization {
                request = request.header("authorization", authorization);
            }
            let request = request.config().timeout_global(Some(self.timeout)).build();
            Ok((request.send(&body), authorization))
        })
    }

    /// Asks the service where it was last; where nobody takes the connection, at its next place. After anything but an answer
    /// it may be elsewhere.
    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        send: impl Fn(&Place, &str) -> Result<(Sent, Option<String>), Error>,
    ) -> Result<T, Error> {
        let check = |proof: Option<&str>, authorization: &str, status, body: &[u8]| match &self.identity {
            Identity::Munge { munge, .. } => check(munge, proof, authorization, status, body),
            Identity::Kernel => Ok(()),
        };
        self.ask_with(path, send, check)
    }

    fn ask_with<T: DeserializeOwned>(
        &self,
        path: &str,
        send: impl Fn(&Place, &str) -> Result<(Sent, Option<String>), Error>,
        check: impl Fn(Option<&str>, &str, u16, &[u8]) -> Result<(), Distrust>,
    ) -> Result<T, Error> {
        let mut left = self.places.count();
        loop {
            let place = self.places.current();
            let url = format!("{}{path}", place.base_url);
            let silence = self.silence(place);
            if silence.as_ref().is_some_and(|name| is_silent(name)) {
                left -= 1;
                self.places.leave(place);
                if left > 0 {
                    continue;
                }
                let text = format!("it did not answer less than {} s ago", SILENCE.as_secs());
                return Err(Error::Unreachable { url, text });
            }
            let (sent, authorization) = send(place, &url)?;
            if let Some(name) = silence {
                note(name, matches!(sent, Err(ureq::Error::Timeout(_))));
            }
            left -= 1;
            if left > 0 && sent.as_ref().is_err_and(is_unsent) {
                self.places.leave(place);
                continue;
            }
            let check = |proof: Option<&str>, status, body: &[u8]| {
                check(proof, authorization.as_deref().unwrap_or_default(), status, body)
            };
            return self.accept(sent, &url, check).inspect_err(|e| {
                // A service that refuses is there, and one that knows no such session most likely is.
                if !matches!(e, Error::Refused { .. } | Error::Unproven { status: 401, .. }) {
                    self.places.leave(place);
                }
            });
        }
    }

    /// The same with a header that `sign` makes for the audience and the body, and an answer that `check` accepts by its
    /// proof, the header, the status and the body.
    pub(crate) fn post_signed<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        sign: impl Fn(&str, &[u8]) -> String,
        check: impl Fn(Option<&str>, &str, u16, &[u8]) -> Result<(), Distrust>,
    ) -> Result<T, Error> {
        let body = self.own(path, body)?;
        let Identity::Munge { audience, .. } = &self.identity else {
            let url = format!("{}{path}", self.base_url());
            return Err(Error::Invalid { url, text: "a session is for what goes over TCP".into() });
        };
        let authorization = sign(audience, &body);
        let send = |place: &Place, url: &str| {
            let request = place.agent.post(url).header("content-type", "application/json");
            let request = request.header("authorization", &authorization);
            let sent = request.config().timeout_global(Some(self.timeout)).build().send(&body);
            Ok((sent, Some(authorization.clone())))
        };
        self.ask_with(path, send, check)
    }

    fn sign(&self, method: &str, path: &str, body: &[u8]) -> Result<Option<String>, Error> {
        let Identity::Munge { munge, audience } = &self.identity else { return Ok(None) };
        let payload = request_payload(audience, method, path, body);
        let credential = munge.encode(payload.as_bytes()).map_err(|e| self.unreachable(e))?;
        Ok(Some(format!("MUNGE {credential}")))
    }

    fn unreachable(&self, why: impl ToString) -> Error {
        Error::Unreachable { url: self.places.in_words(), text: why.to_string() }
    }

    /// The body of a request.
    fn own<B: Serialize + ?Sized>(&self, path: &str, body: &B) -> Result<Vec<u8>, Error> {
        let url = || format!("{}{path}", self.base_url());
        serde_json::to_vec(body).map_err(|e| Error::Invalid { url: url(), text: format!("own request: {e}") })
    }

    fn accept<T: DeserializeOwned>(
        &self,
        answer: Sent,
        url: &str,
        check: impl Fn(Option<&str>, u16, &[u8]) -> Result<(), Distrust>,
    ) -> Result<T, Error> {
        let invalid = |text: String| Error::Invalid { url: url.to_owned(), text };
        let mut answer = answer.map_err(|e| match e {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => invalid(e.to_string()),
            _ => self.unreachable(e),
        })?;
        let status = answer.status().as_u16();
        let proof = answer.headers().get(PROOF).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let body = answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_vec();
        let body = body.map_err(|e| self.unreachable(e))?;
        let proven = check(proof.as_deref(), status, &body);
        if status >= 300 {
            let text = String::from_utf8_lossy(&body).chars().take(500).collect();
            return Err(match proven {
                Ok(()) => Error::Refused { status, text },
                Err(_) => Error::Unproven { url: url.to_owned(), status, text },
            });
        }
        proven.map_err(|why| invalid(why.to_string()))?;
        serde_json::from_slice(&body).map_err(|e| invalid(unreadable(&e)))
    }
}

fn is_silent(name: &str) -> bool {
    let silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.get(name).is_some_and(|since| since.elapsed() < SILENCE)
}

fn note(name: String, is_silent: bool) {
    let mut silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    match is_silent {
        true => drop(silent.insert(name, Instant::now())),
        false => drop(silent.remove(&name)),
    }
}

/// Why an answer cannot be read: what is well-formed and still not understood is another version's.
fn unreadable(e: &serde_json::Error) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match e.is_data() {
        true => format!(
            "{e}; the service is of another version than this one ({version}): if it is newer, upgrade this host"
        ),
        false => e.to_string(),
    }
}

/// Accepts an answer only from root or from a service of one's own.
fn check(munge: &Munge, proof: Option<&str>, authorization: &str, status: u16, body: &[u8]) -> Result<(), Distrust> {
    let (payload, peer) = munge.decode(proof.ok_or(Distrust::NoProof)?)?;
    if payload != answer_payload(authorization, status, body).as_bytes() {
        return Err(Distrust::OtherAnswer);
    }
    peer.of_a_service()
}

/// `?key=value&...` of the pairs that have a value, percent-encoded; empty if none has.
pub fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (key, value) in pairs.iter().filter_map(|(k, v)| v.map(|v| (k, v))) {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(byte.into());
                }
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
    use ureq::unversioned::transport::NextTimeout;

    /// A name service that knows one address, and how often it was asked.
    #[derive(Clone, Debug)]
    struct Names(Arc<(Mutex<SocketAddr>, AtomicUsize)>);

    impl Resolver for Names {
        fn resolve(
            &self,
            _: &ureq::http::Uri,
            _: &ureq::config::Config,
            _: NextTimeout,
        ) -> Result<ResolvedSocketAddrs, ureq::Error> {
            self.0.1.fetch_add(1, Ordering::Relaxed);
            let mut found = self.empty();
            found.push(*self.0.0.lock().unwrap());
            Ok(found)
        }
    }

    fn of(url: &str, names: Names) -> Client {
        let place = |url| Place::new(url, settings(url.contains(',')), TcpConnector::default(), names.clone());
        Client::at(url.split(',').map(place).collect(), Identity::Kernel, Duration::from_secs(60))
    }

    /// Answers with `text` as often as told, then is gone.
    fn service(address: &str, text: &'static str, times: usize) -> (SocketAddr, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            for _ in 0..times {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", text.len());
                stream.write_all((head + text).as_bytes()).unwrap();
            }
        };
        (address, std::thread::spawn(serve))
    }

    #[test]
    fn an_answer_that_this_version_does_not_understand_is_told_with_the_cure() {
        for (text, is_newer) in [("null", true), ("nul", false)] {
            let (here, served) = service("127.0.0.1:0", text, 1);
            let names = Names(Arc::new((Mutex::new(here), AtomicUsize::new(0))));
            let client = of("http://controller.example:6820", names);
            let said = client.get::<f64>("/").unwrap_err().to_string();
            assert_eq!(said.contains("if it is newer, upgrade this host"), is_newer, "{said}");
            served.join().unwrap();
        }
    }

    #[test]
    fn an_address_is_kept_while_the_service_answers_and_resolved_anew_when_it_moved() {
        let (here, first) = service("127.0.0.1:0", "1", 3);
        let names = Names(Arc::new((Mutex::new(here), AtomicUsize::new(0))));
        let asked = || names.0.1.load(Ordering::Relaxed);
        let limit = Duration::from_secs(60);
        let client = of("http://controller.example:6820", names.clone());
        for _ in 0..2 {
            assert_eq!(client.get::<u32>("/").unwrap(), 1);
        }
        assert_eq!(client.within(limit).get::<u32>("/").unwrap(), 1);
        assert_eq!(asked(), 1, "the name is resolved once for all clones");
        first.join().unwrap();
        let (there, second) = service("127.0.0.2:0", "2", 1);
        *names.0.0.lock().unwrap() = there;
        assert!(matches!(client.get::<u32>("/"), Err(Error::Unreachable { .. })));
        assert_eq!(client.get::<u32>("/").unwrap(), 2);
        assert_eq!(asked(), 2);
        second.join().unwrap();
    }

    #[test]
    fn a_service_that_hangs_is_not_waited_for_twice_by_who_has_other_ways() {
        // It takes connections, and never answers.
        let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = of(
            &format!("http://{}", hangs.local_addr().unwrap()),
            Names(Arc::new((Mutex::new(hangs.local_addr().unwrap()), AtomicUsize::new(0)))),
        );
        let client = client.within(Duration::from_millis(200));
        let lasts = |client: &Client| {
            let begun = Instant::now();
            assert!(matches!(client.get::<u32>("/"), Err(Error::Unreachable { .. })));
            begun.elapsed() >= Duration::from_millis(200)
        };
        let impatient = client.clone().impatient("a service that hangs");
        assert_eq!([lasts(&client), lasts(&client), lasts(&impatient)], [true; 3]);
        assert!(!lasts(&impatient) && !lasts(&client.clone().impatient("a service that hangs")));
        assert!(lasts(&impatient.patient()) && lasts(&client.impatient("another one")));
    }

    #[test]
    fn a_service_is_found_at_its_other_place_and_asked_there_from_then_on() {
        let (first, one) = service("127.0.0.1:0", "1", 1);
        let (second, two) = service("127.0.0.2:0", "2", 3);
        let place = |at: &SocketAddr| {
            Place::new(&format!("http://{at}"), settings(true), TcpConnector::default(), DefaultResolver::default())
        };
        let client = Client::at(vec![place(&first), place(&second)], Identity::Kernel, Duration::from_secs(60));
        assert_eq!(client.get::<u32>("/").unwrap(), 1);
        one.join().unwrap();
        for _ in 0..2 {
            assert_eq!(client.get::<u32>("/").unwrap(), 2);
            assert_eq!(client.base_url(), format!("http://{second}"));
        }
        // It is back where it was, and gone where it is.
        assert_eq!(client.clone().get::<u32>("/").unwrap(), 2);
        two.join().unwrap();
        let (_, again) = service(&first.to_string(), "3", 1);
        assert_eq!(client.get::<u32>("/").unwrap(), 3);
        again.join().unwrap();
        let said = client.get::<u32>("/").unwrap_err().to_string();
        assert!(said.contains(&format!("http://{first},http://{second} cannot be reached")), "{said}");
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(query(&[("job", Some("7")), ("user", None), ("a", Some("b c&d"))]), "?job=7&a=b%20c%26d");
        assert_eq!(query(&[("user", None)]), "");
    }

    #[test]
    fn without_munged_nobody_is_reached() {
        let client = Client::new("http://127.0.0.1:9/", Some("/nonexistent".into()), Duration::from_secs(1));
        let e = client.get::<u32>("/healthz").expect_err("no munged");
        assert!(matches!(e, Error::Unreachable { .. }), "{e}");
        assert_eq!(client.base_url(), "http://127.0.0.1:9");
    }
}
