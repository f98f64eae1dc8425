//! What `/metrics` of the controller says.

use crate::latency::Latency;
use crate::metrics::Ended;
use crate::watching::Watching;
use axum::extract::State;
use axum::response::Response;
use listener::Turns;
use listener::metrics::{self, Family};
use protocol::ProtectionState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::OpenRun;

/// What was received.
#[derive(Default)]
pub(crate) struct Counts {
    pub beats: AtomicU64,
    pub records: AtomicU64,
}

/// Plans in the making.
pub(crate) struct Planning {
    /// Each user's turns.
    pub turns: Turns,
    pub latency: Latency,
}

/// The runs that have not ended, by how far they are protected.
fn by_protection(open: &[OpenRun]) -> Family {
    let family =
        Family::gauge("joulepoint_runs_protection", "", "Runs that have not ended, by how far they are protected.");
    let known = ProtectionState::ALL.map(ProtectionState::as_str);
    let of = |state: &str| open.iter().filter(|run| run.protection == state).count();
    let unknown = open.len() - known.iter().map(|state| of(state)).sum::<usize>();
    let family = known.iter().fold(family, |family, state| family.sample(&[("state", state)], of(state) as f64));
    family.sample(&[("state", "unknown")], unknown as f64)
}

/// `GET /metrics`.
pub(crate) async fn metrics(
    State(watching): State<Arc<Watching>>,
    State(counts): State<Arc<Counts>>,
    State(planning): State<Arc<Planning>>,
    State(ended): State<Arc<Ended>>,
) -> Response {
    let nodes = watching.heard();
    let open = watching.open.lock().clone();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    let mut families = metrics::process("controller");
    families.extend([
        Family::gauge("joulepoint_nodes", "", "Nodes whose heartbeats arrive.").sample(&[], nodes as f64),
        Family::counter("joulepoint_slurm_questions", "", "Questions about jobs that Slurm was asked.")
            .sample(&[], count(&watching.asked)),
        Family::gauge("joulepoint_runs_open", "", "Runs that have not ended.").sample(&[], open.len() as f64),
        by_protection(&open),
        Family::counter("joulepoint_beats", "", "Heartbeats received.").sample(&[], count(&counts.beats)),
        Family::counter("joulepoint_records", "", "Records received.").sample(&[], count(&counts.records)),
    ]);
    families
        .push(planning.latency.family("joulepoint_plan_seconds", "Time for a plan, waiting for the store included."));
    families.extend(ended.families());
    metrics::exposition(families)
}
