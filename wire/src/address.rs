//! Keeps the address that a service's name stands for, for as long as the service answers there.

use std::sync::{Arc, Mutex, PoisonError};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// What the name of one service stood for last; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Address(Arc<Mutex<Option<ResolvedSocketAddrs>>>);

impl Address {
    /// Lets the next request resolve the name anew.
    pub(crate) fn forget(&self) {
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
pub(crate) struct Keeping<R> {
    pub address: Address,
    pub names: R,
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
