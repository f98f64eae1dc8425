//! What a wrapper asks of its job's nodes: which of them live, who writes to files there, what steps have left, and who takes
//! records while the controller is away.

use config::Site;
use engines::equip::Live;
use job::cluster::Controller;
use job::deliver::Spool;
use job::identity::Identity;
use job::leavings::Asker;
use job::nodes::Nodes;
use job::run_folder::RunFolder;
use job::writers;
use options::Resume;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steps::calls::{Calls, Present};

/// Longest wait for an answer of the controller.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The job's nodes that are not known to be dead.
pub(crate) fn live(me: &Identity, controller: &Arc<Controller>) -> Live {
    let (names, controller) = (me.nodes.clone(), controller.clone());
    Arc::new(move || {
        let known = controller.last();
        let is_dead = |node: &&String| known.iter().any(|h| h.dead && h.node == **node);
        names.iter().filter(|node| !is_dead(node)).cloned().collect()
    })
}

/// Who says whether the program still writes to its files.
pub(crate) fn writers(me: &Identity, site: &Site, nodes: &Nodes, live: Live) -> writers::Ask {
    let Some(job) = me.job else { return writers::here() };
    let nodes = writers::Nodes {
        job,
        nodes: Box::new(move || live()),
        here: me.node.clone(),
        services: nodes.services(),
        runs: site.runs.clone(),
    };
    writers::of_job(nodes)
}

/// The record of the script's steps, if one is kept, and who finds out what they leave behind.
pub(crate) fn remembered(
    folder: &mut RunFolder,
    resume: Resume,
    argv: &[String],
    me: &Identity,
    nodes: &Nodes,
    live: Live,
) -> Option<Calls> {
    let Some(job) = me.job else { return folder.resume_by(resume, argv, None) };
    let (services, all, of) = (Mutex::new(nodes.services()), me.nodes.clone(), live.clone());
    let is_same_life = Arc::new(AtomicBool::new(false));
    let known = is_same_life.clone();
    let present = move || {
        let nodes = of();
        let boots = Asker::boots(job, &nodes, &services.lock().unwrap_or_else(PoisonError::into_inner));
        Present { is_unchanged: known.load(Ordering::SeqCst) && nodes == all, nodes, boots }
    };
    let calls = folder.resume_by(resume, argv, Some(Arc::new(present)))?;
    let life = format!("{job}.{} {}", me.restart_count, me.nodes.join(","));
    match calls.is_same_life(&life) {
        Ok(is_same) => is_same_life.store(is_same, Ordering::SeqCst),
        Err(e) => tracing::warn!(%e, "all steps of which nobody knows what they left are run again"),
    }
    let asker = Asker { job, calls: calls.clone(), nodes: Box::new(move || live()), services: nodes.services() };
    asker.start();
    Some(calls)
}

/// The node service of the node on which this wrapper runs: its socket, or where the controller said that it answers.
pub(crate) fn spool(site: &Site, me: &Identity, controller: &Arc<Controller>) -> Spool {
    let (controller, munge_socket, port) = (controller.clone(), site.munge_socket.clone(), port(&site.node.listen));
    let here = me.nodes.first().cloned();
    let socket = here.as_ref().and_then(|node| site.node.socket_of(node));
    Box::new(move || {
        if let Some(socket) = socket.as_ref().filter(|s| s.exists()) {
            return Some(wire::Client::on_socket(socket, ANSWER_LIMIT).impatient("the service of this node"));
        }
        let here = here.as_ref()?;
        let known = controller.health().nodes.into_iter().find(|h| h.node == *here && !h.url.is_empty());
        let url = known.map_or_else(|| format!("http://{here}:{port}"), |h| h.url);
        Some(wire::Client::of_node(&url, here, munge_socket.clone(), ANSWER_LIMIT).impatient(here))
    })
}

/// The port of an address to listen at.
pub(crate) fn port(listen: &str) -> u16 {
    listen.rsplit(':').next().and_then(|p| p.parse().ok()).unwrap_or(6821)
}
