//! The gate before every route: who asks, for what, with which body; and the signature on every answer.

use super::refusals::Refused;
use super::seen::Seen;
use super::{Limits, Origin, Refusal, Refusals, blocking};
use crate::{lock, now_s};
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::error::Error;
use std::sync::{Arc, Mutex};
use wire::{Munge, MungeError, Opened, Peer};

/// Longest path and query, bytes.
const LONGEST_PATH: usize = 2048;

/// Where 503 is the answer and no refusal.
const HEALTH: &str = "/healthz";

/// Bodies up to this size are hashed where they are read: handing them to another thread takes longer, bytes.
const HASHED_AT_ONCE: usize = 16 << 10;

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
    seen: Mutex<Seen>,
}

/// Marks an answer that hides something from who asked; it is logged as a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Hidden(pub &'static str);

/// How a caller showed who they are.
enum Known {
    /// By a credential, which also names the body.
    Munge(Opened),
    /// By the socket on which they ask.
    Kernel(Peer),
}

/// Lets in who is known, with the whole body read, and signs the answer.
pub async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let known = match gate.known(&parts).await {
        Ok(known) => known,
        Err(refusal) => return refusal.into_response(),
    };
    let (peer, is_signed) = match &known {
        Known::Munge(opened) => (opened.peer, true),
        Known::Kernel(peer) => (*peer, false),
    };
    let authorization = parts.headers.get(header::AUTHORIZATION).cloned();
    let mut response = match gate.whole(parts, body, known).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    // A refusal needs no proof: whoever holds the port can deny.
    if let Some(authorization) = authorization.filter(|_| is_signed && response.status().is_success()) {
        response = gate.sign(&authorization, response).await.unwrap_or_else(IntoResponse::into_response);
    }
    response.extensions_mut().insert(peer);
    response
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
    if path == HEALTH {
        return response;
    }
    let (status, uid) = (response.status().as_u16(), response.extensions().get::<Peer>().map(|p| p.uid));
    let (why, response) = reason(response).await;
    if let Some(why) = why {
        gate.refusals.note(now_s(), &Refused { uid, from: &from, what: &what, status, why: &why });
    }
    response
}

/// Why an answer is a refusal, if it is one; and the answer.
async fn reason(response: Response) -> (Option<String>, Response) {
    if let Some(Hidden(why)) = response.extensions().get::<Hidden>() {
        return (Some((*why).to_owned()), response);
    }
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return (None, response);
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, LARGEST_REFUSAL).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_WHY)]).into_owned();
    let why = if text.is_empty() { status.to_string() } else { text };
    (Some(why), Response::from_parts(parts, Body::from(body)))
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
    /// The gate of a service whose credentials must be made for `audience`.
    pub fn new(munge: Munge, audience: String, limits: Limits) -> Gate {
        Gate { munge, audience, refusals: Arc::default(), limits, seen: Mutex::default() }
    }

    /// Who asks, before anything of the body is read.
    async fn known(&self, parts: &Parts) -> Result<Known, Refusal> {
        if let Some(Origin::Local(peer)) = parts.extensions.get::<Origin>() {
            return Ok(Known::Kernel(*peer));
        }
        let credential = single_credential(&parts.headers)?;
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let (munge, audience, method) = (self.munge.clone(), self.audience.clone(), parts.method.clone());
        let shown = credential.clone().unwrap_or_default();
        let opened =
            blocking(move || Opened::read(&munge, &audience, credential.as_deref(), method.as_str(), &path)).await?;
        let opened = opened.map_err(refused)?;
        if !lock(&self.seen).is_first(now_s(), &shown) {
            return Err(refused(wire::Refused::Credential(MungeError::Replayed.to_string())));
        }
        Ok(Known::Munge(opened))
    }

    /// The request with its body read, and held against the credential.
    async fn whole(&self, mut parts: Parts, body: Body, known: Known) -> Result<Request, Refusal> {
        let body = self.body(body).await?;
        let peer = match known {
            Known::Kernel(peer) => peer,
            Known::Munge(opened) if body.len() <= HASHED_AT_ONCE => opened.over(&body).map_err(refused)?,
            Known::Munge(opened) => {
                let whole = body.clone();
                blocking(move || opened.over(&whole)).await?.map_err(refused)?
            }
        };
        parts.extensions.insert(peer);
        Ok(Request::from_parts(parts, Body::from(body)))
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
