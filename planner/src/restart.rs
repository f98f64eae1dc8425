//! Says what of a run is a restart, the R of the models, and what is the wait before it.
//!
//! A restart lasts from the start of the driver that takes the run up to the program going on. The phase of that name
//! holds more: stopping the program after a failure, in place or on its way into the queue. The wait in the queue is no
//! phase, since the run has no nodes then.

use protocol::{Phase, PhaseSpan, RunAccount};

/// Mean over the restarts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restarts {
    /// Duration, s.
    pub time_s: f64,
    /// Energy of all nodes, J; absent if nothing could be read.
    pub joules: Option<f64>,
}

/// Whether a span of the phase restart is a restart: its record begins within it.
pub fn takes_up(record_s: f64, (start_s, end_s): (f64, f64)) -> bool {
    (start_s..=end_s).contains(&record_s)
}

/// What the restarts of a run took, if there were any.
pub fn restarts(run: &RunAccount) -> Option<Restarts> {
    let of_record = |s: &&PhaseSpan| {
        s.phase == Phase::Restart && run.records.iter().any(|r| takes_up(r.start_s, (s.start_s, s.end_s)))
    };
    let nodes = run.records.first().map_or(1, |r| r.nodes.len().max(1)) as f64;
    let spans: Vec<&PhaseSpan> = run.spans.iter().filter(of_record).collect();
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let joules = mean(spans.iter().filter_map(|s| s.joules).collect());
    let time_s = mean(spans.iter().map(|s| s.end_s - s.start_s).collect())?;
    Some(Restarts { time_s, joules: joules.map(|j| j * nodes) })
}

/// Time that a run waited in the queue between its records, s.
pub fn requeued_s(run: &RunAccount) -> f64 {
    let gaps = run.records.windows(2).filter_map(|pair| Some((pair[1].start_s - pair[0].end_s?).max(0.0)));
    gaps.sum()
}
