//! What both roles need of HTTP: bodies of bounded size, credentials checked, answers signed.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use wire::{Munge, Peer};

/// Longest body of a request, bytes.
pub const LARGEST_BODY: usize = 4 << 20;

/// A request, held against its credential.
pub struct Asked {
    /// Who asks, as munge vouches.
    pub peer: Peer,
    authorization: String,
    munge: Munge,
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

/// Checks the credential of a request.
///
/// # Errors
/// The refusal, which is logged.
pub async fn asked(
    munge: &Munge,
    method: Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Asked, Refusal> {
    let authorization =
        headers.get(header::AUTHORIZATION).and_then(|h| h.to_str().ok()).unwrap_or_default().to_string();
    let path = uri.path_and_query().map_or_else(|| uri.path().to_string(), ToString::to_string);
    let (munge, again) = (munge.clone(), munge.clone());
    let (credential, said) = (authorization.clone(), path.clone());
    let checked = blocking(move || {
        let credential = (!credential.is_empty()).then_some(credential.as_str());
        wire::verify(&munge, credential, method.as_str(), &said, &body)
    })
    .await?;
    match checked {
        Ok(peer) => Ok(Asked { peer, authorization, munge: again }),
        Err(refused) => {
            tracing::warn!(path, %refused, "a request is refused");
            let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::UNAUTHORIZED);
            Err(Refusal(status, refused.to_string()))
        }
    }
}

impl Asked {
    /// A signed answer.
    ///
    /// # Errors
    /// When the answer cannot be written or signed.
    pub async fn answer<T: Serialize>(self, content: &T) -> Result<Response, Refusal> {
        let body = serde_json::to_vec(content).map_err(anyhow::Error::from)?;
        let Asked { authorization, munge, .. } = self;
        let (proof, body) = blocking(move || (wire::prove(&munge, &authorization, 200, &body), body)).await?;
        let proof = proof.map_err(|e| Refusal(StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
        Ok(([(header::CONTENT_TYPE.as_str(), "application/json"), (wire::PROOF, proof.as_str())], body).into_response())
    }

    /// A refusal for somebody who is known but may not.
    pub fn forbidden(&self, what: &str) -> Refusal {
        tracing::warn!(uid = self.peer.uid, what, "a request is refused");
        Refusal(StatusCode::FORBIDDEN, format!("user {} may not {what}", self.peer.uid))
    }
}

/// Reads a JSON body.
///
/// # Errors
/// What is wrong with it.
pub fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|e| Refusal(StatusCode::BAD_REQUEST, format!("the body is not understood: {e}")))
}

/// Does something that waits for a disk or another process, without holding the others up.
///
/// # Errors
/// When it panics.
pub async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(f).await.map_err(|e| Refusal(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}
