//! Says which processes of a job on this node may still write to files that its wrapper is about to copy.

use crate::metering::Metering;
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use listener::{Document, Hidden, Refusal, blocking};
use openfiles::FileId;
use protocol::{FileWriter, Writers, WritersRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Peer;

/// Most files of one question.
const MOST_FILES: usize = 65_536;

/// Longest look at the processes of a job; those that are not reached count as not seen.
const LIMIT: Duration = Duration::from_secs(5);

/// `POST /v1/jobs/{job}/writers`: for a job of one's own. No path is opened; a job without processes here writes nothing.
pub(crate) async fn writers(
    State(metering): State<Arc<Metering>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    Document(asked): Document<WritersRequest>,
) -> Result<Response, Refusal> {
    let Path(job) = job?;
    listener::version(asked.version)?;
    if asked.files.len() > MOST_FILES {
        return Err(Refusal(StatusCode::BAD_REQUEST, format!("more than {MOST_FILES} files")));
    }
    let found = blocking(move || {
        let pids = metering.processes_of(peer.uid, job)?;
        let files: Vec<FileId> =
            asked.files.into_iter().map(|file| FileId { inode: file.inode, fs: file.fs }).collect();
        let look = openfiles::writers(&metering.proc_root, &pids, &files, Instant::now() + LIMIT);
        let writer = |w: openfiles::Writer| FileWriter {
            file: w.file as u32,
            pid: w.pid,
            process: w.process,
            is_mapped: w.is_mapped,
        };
        let writers = look.writers.into_iter().map(writer).collect();
        Some(Writers { node: metering.name.clone(), writers, unseen: look.unseen.len() as u32 })
    });
    Ok(found.await?.map_or_else(|| not_here(job), |writers| Json(writers).into_response()))
}

/// Somebody else's job looks like one that was never here.
pub(crate) fn not_here(job: u32) -> Response {
    let mut answer = Refusal(StatusCode::NOT_FOUND, format!("job {job} has no process here")).into_response();
    answer.extensions_mut().insert(Hidden("the job is somebody else's"));
    answer
}
