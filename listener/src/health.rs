//! How a service is, for probes and people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use protocol::{Health, Part};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a look at a part showed.
pub fn part<E: std::fmt::Display>(seen: Result<String, E>) -> Part {
    match seen {
        Ok(text) => Part { ok: true, text },
        Err(e) => Part { ok: false, text: format!("{e:#}") },
    }
}

/// What a service has seen of itself last: no word counts for longer than a while, since a look may hang.
pub struct SelfLook {
    /// For how long one counts.
    limit: Duration,
    began: Instant,
    last: Mutex<Option<(Health, Instant)>>,
}

impl SelfLook {
    /// Nothing has been seen yet.
    pub fn new(limit: Duration) -> SelfLook {
        SelfLook { limit, began: Instant::now(), last: Mutex::default() }
    }

    /// What a look has shown.
    pub fn keep(&self, health: Health) {
        *self.last.lock() = Some((health, Instant::now()));
    }

    fn health(&self, now: Instant) -> Health {
        let (mut health, at) = match self.last.lock().clone() {
            Some(seen) => seen,
            None => (Health { ok: false, parts: BTreeMap::new() }, self.began),
        };
        let age = now.saturating_duration_since(at);
        if age > self.limit || health.parts.is_empty() {
            let text = format!("this service has not finished a look at itself for {} s", age.as_secs());
            health.ok = false;
            health.parts.insert("look".to_string(), Part { ok: false, text });
        }
        health
    }

    /// The answer to a probe, with the status that says the same.
    pub fn tell(&self) -> Response {
        let health = self.health(Instant::now());
        let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json(health)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_hangs_is_no_health() {
        let looks = SelfLook::new(Duration::from_secs(30));
        let after = |s| looks.began + Duration::from_secs(s);
        assert!(!looks.health(after(0)).ok, "nothing was seen yet");
        looks
            .keep(Health { ok: true, parts: [("store".to_string(), part(Ok::<_, String>("writable".into())))].into() });
        assert!(looks.health(after(20)).ok);
        let old = looks.health(after(60));
        assert!(!old.ok && old.parts["store"].ok && !old.parts["look"].ok, "{old:?}");
    }
}
