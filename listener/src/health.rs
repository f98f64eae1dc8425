//! How a service is, for probes and people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::{Health, Part};

/// What a look at a part showed.
pub fn part<E: std::fmt::Display>(seen: Result<String, E>) -> Part {
    match seen {
        Ok(text) => Part { ok: true, text },
        Err(e) => Part { ok: false, text: format!("{e:#}") },
    }
}

/// A service's health, with the status that says the same.
pub fn tell(health: &Health) -> Response {
    let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health.clone())).into_response()
}
