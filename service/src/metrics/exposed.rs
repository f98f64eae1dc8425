//! What `/metrics` of the controller says.

use crate::metrics::Ended;
use crate::metrics::latency::Latency;
use crate::steering::Steering;
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

/// What slurmctld was asked, and what it can take.
fn asked(of: slurm::Usage) -> [Family; 5] {
    [
        Family::counter("joulepoint_slurm_calls", "", "Calls of slurmctld, by whether somebody waited for the answer.")
            .sample(&[("urgency", "awaited")], of.awaited as f64)
            .sample(&[("urgency", "can_wait")], of.could_wait as f64),
        Family::counter("joulepoint_slurm_postponed", "", "Calls of slurmctld that were put off by slurm.budget.")
            .sample(&[], of.postponed as f64),
        Family::counter("joulepoint_slurm_slow", "", "Calls that slurmctld answered slowly, or not at all.")
            .sample(&[], of.slow as f64),
        Family::gauge("joulepoint_slurm_allowance", "", "Calls a minute that are left to what can wait.")
            .sample(&[], of.per_minute),
        Family::gauge("joulepoint_slurm_answer_seconds", "seconds", "Time that slurmctld's last answer took.")
            .sample(&[], of.last_answer_s),
    ]
}

/// `GET /metrics`.
pub(crate) async fn metrics(
    State(watching): State<Arc<Watching>>,
    State(counts): State<Arc<Counts>>,
    State(planning): State<Arc<Planning>>,
    State(ended): State<Arc<Ended>>,
    State(steering): State<Arc<Steering>>,
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
    families.extend(asked(steering.slurm.usage()));
    families.extend(ended.families());
    metrics::exposition(families)
}
