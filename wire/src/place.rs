//! Where a service is: its places, in case it is at another one now, and the address that each name stands for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, NextTimeout};
use ureq::{Agent, Timeout};

/// One place of a service.
#[derive(Debug)]
pub(crate) struct Place {
    /// `http://host:port`.
    pub base_url: String,
    /// Its connections.
    pub agent: Agent,
    address: Address,
}

impl Place {
    pub(crate) fn new(base_url: &str, config: Config, connector: impl Connector, names: impl Resolver) -> Place {
        let address = Address::default();
        let agent = Agent::with_parts(config, connector, Keeping { address: address.clone(), names });
        Place { base_url: base_url.trim_end_matches('/').to_owned(), agent, address }
    }
}

/// All places of a service, of which one answers; the one that did so last is asked.
#[derive(Debug)]
pub(crate) struct Places {
    all: Vec<Place>,
    at: AtomicUsize,
}

impl Places {
    pub(crate) fn new(all: Vec<Place>) -> Places {
        Places { all, at: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The one that is asked.
    pub(crate) fn current(&self) -> &Place {
        &self.all[self.at.load(Ordering::Relaxed) % self.all.len()]
    }

    /// The service may be at another place, or its name stand for another address.
    pub(crate) fn leave(&self, place: &Place) {
        place.address.forget();
        let at = self.at.load(Ordering::Relaxed);
        if std::ptr::eq(place, &raw const self.all[at % self.all.len()]) {
            // Of several that have failed here one goes on.
            let _ = self.at.compare_exchange(at, at + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// All of them, as the site file has them.
    pub(crate) fn in_words(&self) -> String {
        self.all.iter().map(|place| place.base_url.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// Whether nothing can have been sent: nobody took the connection.
pub(crate) fn is_unsent(e: &ureq::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match e {
        ureq::Error::Io(e) => matches!(e.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable),
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
        ureq::Error::Timeout(during) => matches!(during, Timeout::Connect | Timeout::Resolve),
        _ => false,
    }
}

/// What the name of one service stood for last; clones share it.
#[derive(Clone, Debug, Default)]
struct Address(Arc<Mutex<Option<ResolvedSocketAddrs>>>);

impl Address {
    /// Lets the next request resolve the name anew.
    fn forget(&self) {
        self.keep(None);
    }

    fn keep(&self, found: Option<ResolvedSocketAddrs>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn kept(&self) -> Option<ResolvedSocketAddrs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Asks `names` only while no address is kept.
#[derive(Debug)]
struct Keeping<R> {
    address: Address,
    names: R,
}

impl<R: Resolver> Resolver for Keeping<R> {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if let Some(kept) = self.address.kept() {
            return Ok(kept);
        }
        let found = self.names.resolve(uri, config, timeout)?;
        self.address.keep(Some(found.clone()));
        Ok(found)
    }
}
