//! Tells accounts whose figures are numbers from those that no reader could take, so that one does not spoil the others.

use super::{Totals, phases};
use protocol::RunAccount;

/// More than this is no energy of a run, J, and no time, s: a power station's of thirty years.
const MOST: f64 = 1e18;

/// The account as it is; without its figures, and with the reason, if one of them is no number.
pub fn or_empty(run: RunAccount) -> RunAccount {
    let Some(field) = unsound(&run) else { return run };
    RunAccount {
        total: Totals::default(),
        phases: phases(&[], false),
        records: Vec::new(),
        failures: Vec::new(),
        checkpoints: Vec::new(),
        spans: Vec::new(),
        decisions: Vec::new(),
        loans: Vec::new(),
        plan: None,
        start_s: if run.start_s.is_finite() { run.start_s } else { 0.0 },
        end_s: run.end_s.filter(|s| s.is_finite()),
        trouble: format!("{field} of its records is not a number that can be added up"),
        ..run
    }
}

/// The first figure that cannot be.
fn unsound(run: &RunAccount) -> Option<&'static str> {
    let t = &run.total;
    let known = |figure: Option<f64>| figure.unwrap_or(0.0);
    let whole = [
        ("the beginning", run.start_s),
        ("the end", run.end_s.unwrap_or(0.0)),
        ("the energy", known(t.joules) + known(t.resilience_j) + known(t.recomputed_j) + known(t.metered_j)),
        ("the time", t.elapsed_s + t.held_s + t.recomputed_node_s),
        ("the energy overhead", t.energy_overhead.unwrap_or(0.0) + t.expected_energy_overhead.unwrap_or(0.0)),
        ("the time overhead", t.time_overhead.unwrap_or(0.0)),
        ("the saving", t.expected_saving_j.unwrap_or(0.0)),
    ];
    let phases = run.phases.iter().map(|p| ("a phase", known(p.joules) + p.node_seconds));
    let records = run.records.iter().map(|r| ("a record", r.start_s + r.end_s.unwrap_or(0.0)));
    let failures = run.failures.iter().map(|f| ("a failure", f.at_s + f.detection_s));
    let checkpoints = run
        .checkpoints
        .iter()
        .map(|c| ("a checkpoint", c.begun_s + c.seconds + c.joules.unwrap_or(0.0) + c.still_s.unwrap_or(0.0)));
    let spans = run.spans.iter().map(|s| ("a span", s.start_s + s.end_s + s.joules.unwrap_or(0.0)));
    // An interval may be as good as endless, but is a number.
    let decisions = run.decisions.iter().map(|d| ("a decision", d.at_s + 0.0 * d.interval_s));
    let loans = run.loans.iter().map(|l| ("a loan", l.start_s + l.end_s.unwrap_or(0.0) + l.joules.unwrap_or(0.0)));
    let lists = phases.chain(records).chain(failures).chain(checkpoints).chain(spans).chain(decisions).chain(loans);
    whole.into_iter().chain(lists).find(|(_, value)| !(-MOST..=MOST).contains(value)).map(|(field, _)| field)
}
