//! Takes a person's word that a silent node has no power, where no power controller tells it.

use super::looks::Looks;
use crate::access::Access;
use audit::{Act, By};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use listener::{Answer, Document, Refusal, blocking, forbidden, version};
use protocol::{OffReply, OffRequest};
use std::sync::Arc;
use watch::nodes::NotOff;
use wire::Peer;

/// `POST /v1/nodes/{node}/off`: a silent node has no power; for operators.
pub(crate) async fn off(
    State(looks): State<Arc<Looks>>,
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    node: Result<Path<String>, PathRejection>,
    Document(request): Document<OffRequest>,
) -> Answer<OffReply> {
    let Path(node) = node?;
    version(request.version)?;
    if !access.is_operator(peer.uid) {
        return Err(forbidden(peer, "say that a node has no power"));
    }
    let (asked, name) = (looks.clone(), node.clone());
    let reached = blocking(move || asked.reached_by(&name)).await?;
    let confirmed = match reached {
        Some(by) => Err(NotOff::Reached { by }),
        None => looks.watching.confirm_off(&node),
    };
    let confirmed = audit::note(By::User(peer), Act::ConfirmOff, (0, &node), "a person says so", confirmed);
    let is_new = confirmed.map_err(|why| {
        let status = if why == NotOff::Unknown { StatusCode::NOT_FOUND } else { StatusCode::CONFLICT };
        Refusal(status, format!("node {node:?} is not taken to be off: {why}"))
    })?;
    Ok(Json(OffReply { is_new }))
}
