//! Why a request is not served, and what a handler answers.

use crate::users::TooMuch;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

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
