//! The gate before every route: who asks, for what, with which body; and the signature on every answer.

use crate::bodies::{Bodies, Held};
use crate::clock::now_s;
use crate::listen::{Limits, Origin, Slot};
use crate::refusal::Refusal;
use crate::refusals::{Refusals, Refused};
use crate::seen::Seen;
use crate::sessions::{OfSession, Sessions};
use crate::turns::{Turns, blocking, in_turn};
use crate::users::Users;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use std::sync::Arc;
use wire::session::{Claim, Key};
use wire::{Munge, MungeError, Opened, Peer};

/// Longest path and query, bytes.
const LONGEST_PATH: usize = 2048;

/// Where 503 is the answer and no refusal.
const HEALTH: &str = "/healthz";

/// Bodies up to this size are hashed where they are read: handing them to another thread takes longer, bytes.
const HASHED_AT_ONCE: usize = 16 << 10;

/// Requests of one user that are worked on at the same time; the rest of theirs wait.
const TURNS_OF_ONE: usize = 16;

/// Room that is made for a body before any of it has come, bytes.
const FIRST_PART: u64 = 16 << 10;

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
    users: Arc<Users>,
    bodies: Arc<Bodies>,
    turns: Turns,
    seen: Mutex<Seen>,
    sessions: Option<Arc<Sessions>>,
}

/// Marks an answer that hides something from who asked; it is logged as a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Hidden(pub &'static str);

/// How long the body of a request was, bytes.
#[derive(Clone, Copy, Debug)]
pub struct BodyBytes(pub usize);

/// How a caller showed who they are.
enum Known {
    /// By a credential, which also names the body.
    Munge(Opened),
    /// By the key of a session, which signs the answer as well.
    Session(Opened, Key, OfSession),
    /// By the socket on which they ask.
    Kernel(Peer),
}

/// What signs the answer.
enum Signer {
    Munge,
    Session(Key),
    /// The kernel says who answers.
    Nobody,
}

impl Known {
    fn peer(&self) -> Peer {
        match self {
            Known::Munge(opened) | Known::Session(opened, _, _) => opened.peer,
            Known::Kernel(peer) => *peer,
        }
    }

    fn signer(&self) -> Signer {
        match self {
            Known::Munge(_) => Signer::Munge,
            Known::Session(_, key, _) => Signer::Session(key.clone()),
            Known::Kernel(_) => Signer::Nobody,
        }
    }
}

/// Lets in who is known, with the whole body read, and signs the answer.
pub async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let known = match gate.known(&parts).await {
        Ok(known) => known,
        Err(refusal) => return refusal.into_response(),
    };
    let peer = known.peer();
    if let Some(slot) = parts.extensions.get::<Arc<Slot>>() {
        slot.active(Some(peer.uid));
    }
    if let Err(too_much) = gate.users.request(now_s(), peer.uid) {
        let mut response = Refusal::from(too_much).into_response();
        response.extensions_mut().insert(peer);
        return response;
    }
    let authorization = parts.headers.get(header::AUTHORIZATION).cloned().unwrap_or(HeaderValue::from_static(""));
    let signer = known.signer();
    let mut response = match gate.whole(parts, body, known).await {
        Ok((request, held)) => {
            let response = in_turn(gate.turns.of(peer.uid), next.run(request)).await;
            drop(held);
            // Refusals are signed as answers are: else whoever holds the port while the service is away could say no in
            // its name, and records would be dropped.
            gate.sign(signer, &authorization, response).await.unwrap_or_else(IntoResponse::into_response)
        }
        // Not before the body is known to be the caller's: a refusal of something else that was sent with an overheard
        // credential would pass for one of the true request.
        Err(refusal) => refusal.into_response(),
    };
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
    pub fn new(munge: Munge, audience: String, limits: Limits, users: Arc<Users>) -> Gate {
        Gate {
            munge,
            audience,
            refusals: Arc::default(),
            limits,
            users,
            bodies: Arc::default(),
            turns: Turns::new(TURNS_OF_ONE),
            seen: Mutex::default(),
            sessions: None,
        }
    }

    /// The same for a service that also knows sessions.
    pub fn with_sessions(self, sessions: Arc<Sessions>) -> Gate {
        Gate { sessions: Some(sessions), ..self }
    }

    /// Who asks, before anything of the body is read.
    async fn known(&self, parts: &Parts) -> Result<Known, Refusal> {
        if let Some(Origin::Local(peer)) = parts.extensions.get::<Origin>() {
            return Ok(Known::Kernel(*peer));
        }
        let credential = single_credential(&parts.headers)?;
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        if let (Some(sessions), Some(claim)) = (&self.sessions, credential.as_deref().and_then(Claim::read)) {
            let request = [self.audience.as_str(), parts.method.as_str(), &path];
            let (opened, key, of) = sessions.admit(&claim, request).map_err(refused)?;
            return Ok(Known::Session(opened, key, of));
        }
        let (munge, audience, method) = (self.munge.clone(), self.audience.clone(), parts.method.clone());
        let shown = credential.clone().unwrap_or_default();
        let opened =
            blocking(move || Opened::read(&munge, &audience, credential.as_deref(), method.as_str(), &path)).await?;
        let opened = opened.map_err(refused)?;
        if !self.seen.lock().is_first(now_s(), &shown) {
            return Err(refused(wire::Refused::Credential(MungeError::Replayed.to_string())));
        }
        Ok(Known::Munge(opened))
    }

    /// The request with its body read, and held against the credential; and the room that the body takes.
    async fn whole(&self, mut parts: Parts, body: Body, known: Known) -> Result<(Request, Held), Refusal> {
        let mut held = self.bodies.hold(known.peer().uid);
        let body = self.body(body, &mut held).await?;
        let peer = match known {
            Known::Kernel(peer) => peer,
            Known::Session(opened, _, of) => {
                parts.extensions.insert(of);
                opened.over(&body).map_err(refused)?
            }
            Known::Munge(opened) if body.len() <= HASHED_AT_ONCE => opened.over(&body).map_err(refused)?,
            Known::Munge(opened) => {
                let whole = body.clone();
                blocking(move || opened.over(&whole)).await?.map_err(refused)?
            }
        };
        parts.extensions.insert(peer);
        parts.extensions.insert(BodyBytes(body.len()));
        Ok((Request::from_parts(parts, Body::from(body)), held))
    }

    /// Reads a body of bounded size in bounded time, as far as there is room for it.
    async fn body(&self, body: Body, held: &mut Held) -> Result<Bytes, Refusal> {
        let most = self.limits.body_bytes;
        let too_large = || {
            let text = format!("a body may have {most} bytes: send what you have in parts");
            Refusal(StatusCode::PAYLOAD_TOO_LARGE, text)
        };
        if body.size_hint().lower() > most as u64 {
            return Err(too_large());
        }
        let read = async {
            let mut whole = Vec::with_capacity(body.size_hint().lower().min(FIRST_PART) as usize);
            let mut body = std::pin::pin!(body);
            while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                let frame = frame.map_err(|e| Refusal(StatusCode::BAD_REQUEST, format!("the body is broken: {e}")))?;
                let Ok(data) = frame.into_data() else { continue };
                if whole.len() + data.len() > most {
                    return Err(too_large());
                }
                held.more(data.len()).map_err(|e| Refusal(StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
                whole.extend_from_slice(&data);
            }
            Ok(Bytes::from(whole))
        };
        tokio::time::timeout(self.limits.body, read)
            .await
            .unwrap_or_else(|_| Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body does not come".into())))
    }

    async fn sign(&self, signer: Signer, authorization: &HeaderValue, response: Response) -> Result<Response, Refusal> {
        if matches!(signer, Signer::Nobody) {
            return Ok(response);
        }
        let unsigned = |e: String| Refusal(StatusCode::SERVICE_UNAVAILABLE, e);
        let (mut parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|e| unsigned(e.to_string()))?;
        let status = parts.status.as_u16();
        let authorization = String::from_utf8_lossy(authorization.as_bytes()).into_owned();
        let proof = match signer {
            Signer::Session(key) => key.prove(&authorization, status, &body),
            _ => {
                let (munge, whole) = (self.munge.clone(), body.clone());
                let proof = blocking(move || wire::prove(&munge, &authorization, status, &whole)).await?;
                proof.map_err(|e| unsigned(e.to_string()))?
            }
        };
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
