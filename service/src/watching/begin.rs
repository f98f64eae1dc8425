//! Says to a wrapper whether its run may begin again, as far as nodes go that it cannot ask itself.

use super::state::Watching;
use crate::asked::named;
use crate::claim::Claims;
use crate::refusal::of_store;
use anyhow::Result;
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use listener::{Answer, Document, Refusal, absent, blocking, version};
use protocol::{BeginReply, BeginRequest, RunKey, WaitsFor};
use std::sync::Arc;
use watch::Released;
use wire::Peer;

/// Most nodes of one question.
const MOST: usize = 4096;

pub(crate) async fn begin(
    State(watching): State<Arc<Watching>>,
    State(claims): State<Arc<Claims>>,
    Extension(peer): Extension<Peer>,
    path: std::result::Result<Path<(String, String)>, PathRejection>,
    Document(question): Document<BeginRequest>,
) -> Answer<BeginReply> {
    let Path((cluster, run)) = path?;
    let key = named(&RunKey { cluster, run })?;
    version(question.version)?;
    if question.former.len() > MOST {
        let text = format!("{} former nodes are named, and one question may name {MOST}", question.former.len());
        return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let waits = blocking(move || -> Result<_, Refusal> {
        let ((uid, job), is_verified) = match claims.readers.free().run(&key).map_err(of_store)? {
            Some(run) if claims.access.may(peer.uid, run.uid) => ((run.uid, run.job), run.verified),
            Some(_) => return Err(absent("such run")),
            // Its records may wait elsewhere: Slurm knows whose the job is, and which nodes it had.
            None => ((peer.uid, question.former.first().map_or(0, |f| f.of.job)), false),
        };
        // Of this run's own job, and of nodes that it had.
        let former: Vec<_> = question.former.into_iter().filter(|f| f.of.job == job).collect();
        claims.had(&key, (uid, job), is_verified, former.iter().map(|f| &f.node).collect())?;
        let names: Vec<String> = former.iter().map(|f| f.node.clone()).collect();
        let mut waits = Vec::new();
        for former in former {
            let released = watching.nodes.lock().released(watching.now_s(), &former.node, former.of);
            if let Released::No(because) = released {
                waits.push(WaitsFor { former, because });
            }
        }
        // Whatever comes of it: the nodes are to end it when they are heard again.
        for node in &names {
            watching.keep(node).map_err(of_store)?;
        }
        Ok(waits)
    });
    Ok(Json(BeginReply { waits: waits.await?? }))
}
