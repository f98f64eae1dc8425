//! Asks the program of a job for a checkpoint: those processes of its steps on this node get the signal that have a handler
//! for it, and no other, since a signal without a handler kills.

use crate::metering::Metering;
use crate::open_files::not_here;
use axum::Extension;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use listener::{Document, Refusal, blocking};
use protocol::{SignalReply, SignalRequest};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::sync::Arc;
use wire::Peer;

/// `POST /v1/jobs/{job}/signal`: for a job of one's own.
pub(crate) async fn signal(
    State(metering): State<Arc<Metering>>,
    Extension(peer): Extension<Peer>,
    job: Result<Path<u32>, PathRejection>,
    Document(asked): Document<SignalRequest>,
) -> Result<Response, Refusal> {
    let Path(job) = job?;
    listener::version(asked.version)?;
    let Some(signal) = Signal::from_named_raw(asked.signal) else {
        return Err(Refusal(StatusCode::BAD_REQUEST, format!("there is no signal {}", asked.signal)));
    };
    let asked = blocking(move || {
        let (owner, pids) = metering.tasks_of(peer.uid, job)?;
        let root = &metering.proc_root;
        let asked = pids.into_iter().filter(|pid| ask(&root.join(pid.to_string()), *pid, owner, signal)).count();
        Some(SignalReply { node: metering.name.clone(), asked: asked as u32 })
    });
    Ok(asked.await?.map_or_else(|| not_here(job), |reply| Json(reply).into_response()))
}

/// What starts the processes of MPI programs: it would pass the signal on to those that get it from us.
const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "orted", "prted"];

/// Signals a process if it is its owner's and has a handler; whether it did. The descriptor is opened before the look, so that
/// what was looked at is what is signalled.
fn ask(folder: &std::path::Path, pid: i32, owner: u32, signal: Signal) -> bool {
    let Some(fd) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
    let Ok(status) = fs::read_to_string(folder.join("status")) else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // Real, effective, saved: whoever has changed one of them is no longer the user's to signal.
    let is_theirs = field("Uid:").is_some_and(|ids| ids.split_whitespace().take(3).all(|id| id.parse() == Ok(owner)));
    let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let has_handler = caught >> (signal.as_raw() - 1) & 1 == 1;
    let is_launcher = field("Name:").is_some_and(|name| LAUNCHERS.contains(&name));
    is_theirs && has_handler && !is_launcher && pidfd_send_signal(&fd, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::path::Path as FsPath;
    use std::process::{Command, Stdio};

    #[test]
    fn who_has_a_handler_is_asked_and_nobody_else_is_harmed() {
        let start = |script: &str| {
            let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            (child, lines)
        };
        let (mut hears, mut heard) = start("trap 'echo heard; exit 3' USR1; echo ready; while :; do sleep 0.05; done");
        let (mut deaf, _lines) = start("echo ready; exec sleep 600");
        let us = nix::unistd::geteuid().as_raw();
        let asked =
            |pid: u32, owner: u32| ask(&FsPath::new("/proc").join(pid.to_string()), pid as i32, owner, Signal::USR1);
        assert!(!asked(hears.id(), us + 1), "somebody else's");
        assert!(!asked(deaf.id(), us));
        assert!(asked(hears.id(), us));
        assert_eq!((heard.next().unwrap().unwrap().as_str(), hears.wait().unwrap().code()), ("heard", Some(3)));
        assert!(deaf.try_wait().unwrap().is_none(), "it lives on");
        deaf.kill().and_then(|()| deaf.wait()).unwrap();
    }
}
