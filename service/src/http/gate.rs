//! The gate before every route: who asks, for what, with which body; and the signature on every answer.

use super::refusals::Refused;
use super::{Limits, Origin, Refusal, Refusals, blocking};
use crate::now_s;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::error::Error;
use std::sync::Arc;
use wire::{Munge, Opened, Peer};

/// Longest path and query, bytes.
const LONGEST_PATH: usize = 2048;

/// How much of a refusal's text is logged, bytes.
const LONGEST_WHY: usize = 300;

/// What a service holds requests against.
#[derive(Debug)]
pub struct Gate {
    /// The munged that reads credentials and signs answers.
    pub munge: Munge,
    /// For whom credentials must be made.
    pub audience: String,
    /// The log of what was refused.
    pub refusals: Arc<Refusals>,
    /// Bounds.
    pub limits: Limits,
}

/// Marks an answer that hides something from who asked; it is logged as a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Hidden(pub &'static str);

/// Lets in who is known, with the whole body read, and signs the answer.
pub async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    let origin = request.extensions().get::<Origin>().cloned();
    let (peer, request) = match gate.open(request).await {
        Ok(known) => known,
        Err(refusal) => return refusal.into_response(),
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(peer);
    match (origin, authorization) {
        // On a socket the kernel says who answers; a refusal needs no proof.
        (Some(Origin::Local(_)), _) => response,
        (_, Some(authorization)) if response.status().is_success() => {
            gate.sign(&authorization, response).await.unwrap_or_else(IntoResponse::into_response)
        }
        _ => response,
    }
}

/// Refuses what no route has to look at, and notes every refusal.
pub async fn note(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let path = request.uri().path_and_query().map_or_else(|| request.uri().to_string(), ToString::to_string);
    let shown: String = path.chars().take(200).collect();
    let what = format!("{} {shown}", request.method());
    let from = request.extensions().get::<Origin>().map_or_else(String::new, ToString::to_string);
    let response = match unfit(&request, &path) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    let hidden = response.extensions().get::<Hidden>().copied();
    let uid = response.extensions().get::<Peer>().map(|p| p.uid);
    let status = response.status();
    if let Some(Hidden(why)) = hidden {
        gate.refusals.note(now_s(), &Refused { uid, from: &from, what: &what, status: status.as_u16(), why });
        return response;
    }
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, LARGEST_REFUSAL).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_WHY)]);
    let why = if text.is_empty() { status.canonical_reason().unwrap_or_default() } else { &text };
    gate.refusals.note(now_s(), &Refused { uid, from: &from, what: &what, status: status.as_u16(), why });
    Response::from_parts(parts, Body::from(body))
}

/// Longest text of a refusal, bytes.
const LARGEST_REFUSAL: usize = 64 << 10;

fn unfit(request: &Request, path: &str) -> Option<Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD | Method::POST) {
        return Some(Refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are served".into()));
    }
    if path.len() > LONGEST_PATH {
        return Some(Refusal(StatusCode::URI_TOO_LONG, format!("a path may have {LONGEST_PATH} bytes")));
    }
    None
}

impl Gate {
    /// Who sent a request, and the request with its body read: only for those who showed who they are.
    async fn open(&self, request: Request) -> Result<(Peer, Request), Refusal> {
        let (mut parts, body) = request.into_parts();
        let peer = match parts.extensions.get::<Origin>() {
            Some(Origin::Local(peer)) => {
                let peer = *peer;
                let body = self.body(body).await?;
                parts.extensions.insert(peer);
                return Ok((peer, Request::from_parts(parts, Body::from(body))));
            }
            _ => {
                let credential = single_credential(&parts.headers)?;
                let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
                let (munge, audience, method) = (self.munge.clone(), self.audience.clone(), parts.method.clone());
                blocking(move || Opened::read(&munge, &audience, credential.as_deref(), method.as_str(), &path))
                    .await?
                    .map_err(refused)?
            }
        };
        let body = self.body(body).await?;
        let whole = body.clone();
        let peer = blocking(move || peer.over(&whole)).await?.map_err(refused)?;
        parts.extensions.insert(peer);
        Ok((peer, Request::from_parts(parts, Body::from(body))))
    }

    /// Reads a body of bounded size in bounded time.
    async fn body(&self, body: Body) -> Result<Bytes, Refusal> {
        let most = self.limits.body_bytes;
        let too_large = || Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {most} bytes"));
        if body.size_hint().lower() > most as u64 {
            return Err(too_large());
        }
        match tokio::time::timeout(self.limits.body, to_bytes(body, most)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(e)) if e.source().is_some_and(|e| e.to_string().contains("limit")) => Err(too_large()),
            Ok(Err(e)) => Err(Refusal(StatusCode::BAD_REQUEST, format!("the body is broken: {e}"))),
            Err(_) => Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body does not come".into())),
        }
    }

    async fn sign(&self, authorization: &HeaderValue, response: Response) -> Result<Response, Refusal> {
        let unsigned = |e: String| Refusal(StatusCode::SERVICE_UNAVAILABLE, e);
        let (mut parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|e| unsigned(e.to_string()))?;
        let (munge, status, whole) = (self.munge.clone(), parts.status.as_u16(), body.clone());
        let authorization = String::from_utf8_lossy(authorization.as_bytes()).into_owned();
        let proof = blocking(move || wire::prove(&munge, &authorization, status, &whole)).await?;
        let proof = proof.map_err(|e| unsigned(e.to_string()))?;
        let proof = HeaderValue::from_str(&proof).map_err(|e| unsigned(e.to_string()))?;
        parts.headers.insert(wire::PROOF, proof);
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

/// The one `Authorization` header; two of them could be read in two ways.
fn single_credential(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let bad = |text: &str| Refusal(StatusCode::BAD_REQUEST, text.into());
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let first = all.next().map(|h| h.to_str().map(str::to_owned));
    if all.next().is_some() {
        return Err(bad("more than one Authorization header"));
    }
    first.transpose().map_err(|_| bad("the Authorization header is not ASCII"))
}

fn refused(why: wire::Refused) -> Refusal {
    Refusal(StatusCode::from_u16(why.status()).unwrap_or(StatusCode::UNAUTHORIZED), why.to_string())
}
