//! What both roles need of HTTP: routes behind one gate, bounded in everything that a stranger can send.

mod bodies;
mod gate;
mod listen;
mod refusals;
mod room;
mod seen;
mod turns;

pub use gate::{BodyBytes, Gate, Hidden};
pub use listen::{Limits, Listener, Origin, Seat, serve};
pub use turns::Turns;

use refusals::Refusals;
use turns::Own;

use crate::users::TooMuch;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Json, Router};
use std::sync::Arc;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a credential: what a probe or a scraper reads.
    Open,
    /// Whoever shows who they are; the route itself decides what they see.
    Known,
}

/// One row of a service's route table.
pub struct Route<S> {
    /// The only method.
    pub method: &'static str,
    /// The path, with `{names}`.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// What answers.
    pub answer: MethodRouter<S>,
}

impl<S> Route<S> {
    /// A row.
    pub fn new(method: &'static str, path: &'static str, access: Access, answer: MethodRouter<S>) -> Self {
        Route { method, path, access, answer }
    }
}

/// The router of a table: every known caller passes the gate, and every refusal is noted.
pub fn router<S: Clone + Send + Sync + 'static>(table: Vec<Route<S>>, gate: Arc<Gate>, state: S) -> Router {
    let (mut open, mut known) = (Router::new(), Router::new());
    for route in table {
        match route.access {
            Access::Open => open = open.route(route.path, route.answer),
            Access::Known => known = known.route(route.path, route.answer),
        }
    }
    known
        .route_layer(from_fn_with_state(gate.clone(), gate::admit))
        .merge(open)
        .fallback(unknown)
        // The gate's own limit is the one that is promised.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(gate, gate::note))
        .with_state(state)
}

async fn unknown() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no such path; this service speaks /v{}", protocol::VERSION))
}

/// Why a request is not served.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(e: anyhow::Error) -> Refusal {
        tracing::error!(error = format!("{e:#}"), "a request failed");
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the store failed; the service's log says why".into())
    }
}

impl From<store::Error> for Refusal {
    fn from(e: store::Error) -> Refusal {
        Refusal::from(anyhow::Error::from(e))
    }
}

impl From<TooMuch> for Refusal {
    fn from(e: TooMuch) -> Refusal {
        Refusal(StatusCode::TOO_MANY_REQUESTS, e.to_string())
    }
}

/// What a handler answers.
pub type Answer<T> = Result<Json<T>, Refusal>;

/// Refuses what is of another version.
///
/// # Errors
/// It is.
pub fn version(version: u32) -> Result<(), Refusal> {
    if version == protocol::VERSION {
        return Ok(());
    }
    Err(Refusal(StatusCode::BAD_REQUEST, format!("version {version} is not known here")))
}

impl From<PathRejection> for Refusal {
    fn from(e: PathRejection) -> Refusal {
        Refusal(e.status(), e.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(e: QueryRejection) -> Refusal {
        Refusal(e.status(), e.body_text())
    }
}

/// A refusal for somebody who is known but may not.
pub fn forbidden(peer: wire::Peer, what: &str) -> Refusal {
    Refusal(StatusCode::FORBIDDEN, format!("user {} may not {what}", peer.uid))
}

/// The answer to a question about something that is not there, or not the caller's: nobody learns which.
pub fn absent(what: impl std::fmt::Display) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("no {what} of yours is known here"))
}

/// A JSON body.
pub struct Document<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bad = |e: String| Refusal(StatusCode::BAD_REQUEST, format!("the body is not understood: {e}"));
        let body = Bytes::from_request(request, state).await.map_err(|e| bad(e.to_string()))?;
        serde_json::from_slice(&body).map(Document).map_err(|e| bad(e.to_string()))
    }
}

tokio::task_local! {
    /// The turns of who asks, while a request is answered.
    static OWN: Option<Own>;
}

/// Answers a request as one of a user's turns.
pub async fn in_turn<T>(own: Option<Own>, answer: impl Future<Output = T>) -> T {
    OWN.scope(own, answer).await
}

/// Does something that waits for a disk or another process, without holding the others up: as one of the turns of who
/// asks.
///
/// # Errors
/// When it panics.
pub async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let own = OWN.try_with(Clone::clone).ok().flatten();
    let _turn = match own {
        Some(own) => own.acquire_owned().await.ok(),
        None => None,
    };
    tokio::task::spawn_blocking(f).await.map_err(|e| Refusal(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}
