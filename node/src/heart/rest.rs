//! When this node's service may be silent for a while, and how it is woken.
//!
//! A pause is announced in a heartbeat and begins when that is answered. It ends early when something protected begins here,
//! and when the controller asks.

use axum::extract::State;
use axum::{Extension, Json};
use listener::{Answer, Document, forbidden, version};
use parking_lot::{Condvar, Mutex};
use protocol::{WakeReply, WakeRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Peer;

/// The rest of a node.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    state: Mutex<Resting>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Resting {
    until: Option<Instant>,
    is_woken: bool,
}

impl Rest {
    /// Rests until a moment, unless something ends it.
    pub(crate) fn begin(&self, until: Instant) {
        self.state.lock().until = Some(until);
    }

    /// Ends the rest; whether there was one.
    pub(crate) fn end(&self) -> bool {
        self.state.lock().until.take().is_some()
    }

    /// Whether the node may still be silent.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        let state = self.state.lock();
        !state.is_woken && state.until.is_some_and(|until| now < until)
    }

    /// Sleeps for a period, or until the rest ends, or the controller asks for a heartbeat.
    pub(crate) fn sleep(&self, period: Duration) {
        let mut state = self.state.lock();
        let next = Instant::now() + period;
        let next = state.until.map_or(next, |until| next.min(until));
        while !state.is_woken && !self.bell.wait_until(&mut state, next).timed_out() {}
    }

    /// A heartbeat is about to be sent: whoever asks from now on asks for the next one.
    pub(crate) fn heard(&self) {
        self.state.lock().is_woken = false;
    }

    /// Asks for a heartbeat; whether the node rested.
    fn wake(&self) -> bool {
        let mut state = self.state.lock();
        state.is_woken = true;
        self.bell.notify_all();
        state.until.is_some()
    }
}

pub(crate) async fn wake(
    State(rest): State<Arc<Rest>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<WakeRequest>,
) -> Answer<WakeReply> {
    if peer.uid != 0 {
        return Err(forbidden(peer, "wake a node's service"));
    }
    version(request.version)?;
    Ok(Json(WakeReply { rested: rest.wake() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_when_its_time_is_over_or_somebody_asks() {
        let rest = Arc::new(Rest::default());
        assert!(!rest.lasts(Instant::now()) && !rest.wake(), "none has begun");
        rest.heard();
        let hour = Duration::from_secs(3600);
        rest.begin(Instant::now() + hour);
        assert!(rest.lasts(Instant::now()) && !rest.lasts(Instant::now() + hour));
        let waking = rest.clone();
        let woken = std::thread::spawn(move || waking.wake());
        rest.sleep(hour);
        assert!(woken.join().expect("no panic") && !rest.lasts(Instant::now()));
        rest.heard();
        assert!(rest.end() && !rest.end());
        rest.begin(Instant::now() + Duration::from_millis(5));
        rest.sleep(hour);
        assert!(!rest.lasts(Instant::now()));
    }
}
