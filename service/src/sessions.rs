//! Opens sessions for nodes, so that munge signs one request an hour of theirs and not each heartbeat.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use config::Site;
use listener::{Answer, Document, OfSession, Refusal, Sessions, blocking, forbidden, version};
use protocol::Beat;
use std::sync::Arc;
use wire::session::{SessionReply, SessionRequest};
use wire::{Munge, Peer};

pub(crate) async fn open(
    State(sessions): State<Arc<Sessions>>,
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<SessionRequest>,
) -> Answer<SessionReply> {
    if peer.uid != 0 {
        return Err(forbidden(peer, "open a node's session"));
    }
    version(request.version)?;
    let unavailable = |e: String| Refusal(StatusCode::SERVICE_UNAVAILABLE, e);
    let key = sessions.open(peer, &request.node, &request.boot_id);
    let key = key.map_err(|e| Refusal(StatusCode::BAD_REQUEST, e.to_string()))?;
    let munge = Munge::new(site.munge_socket.clone());
    let sealed = blocking(move || key.sealed(&munge, peer.uid, &request.node, &request.boot_id)).await?;
    Ok(Json(SessionReply { key: sealed.map_err(|e| unavailable(e.to_string()))? }))
}

/// Holds a heartbeat against the session in which it came: a node speaks for itself, in the boot that opened it.
pub(crate) fn is_of(session: Option<&OfSession>, beat: &Beat) -> bool {
    session.is_none_or(|of| of.node == beat.node && of.boot_id == beat.boot_id)
}
