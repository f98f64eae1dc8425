//! Tells which part of a run is a restart (R in the models) and which is the wait before it.
//!
//! A restart lasts from the start of the driver that takes the run up to the program going on. The phase of that name
//! holds more: stopping the program after a failure, in place or on its way into the queue. The wait in the queue is no
//! phase, since the run has no nodes then.

use protocol::{Phase, PhaseSpan, RunAccount};

/// Whether a span of the phase restart is a restart: its record begins within it.
pub fn takes_up(record_s: f64, (start_s, end_s): (f64, f64)) -> bool {
    (start_s..=end_s).contains(&record_s)
}

/// Mean duration of a run's restarts on a node, s. Their energy is not told apart: the counters of a record begin with its
/// job, before the driver does.
pub fn restart_s(run: &RunAccount) -> Option<f64> {
    let of_record = |s: &&PhaseSpan| {
        s.phase == Phase::Restart && run.records.iter().any(|r| takes_up(r.start_s, (s.start_s, s.end_s)))
    };
    let (sum_s, count) =
        run.spans.iter().filter(of_record).fold((0.0, 0.0), |(sum, n), s| (sum + s.end_s - s.start_s, n + 1.0));
    (count > 0.0).then(|| sum_s / count)
}

/// Time that a run waited in the queue between its records, s.
pub fn requeued_s(run: &RunAccount) -> f64 {
    let gaps = run.records.windows(2).filter_map(|pair| Some((pair[1].start_s - pair[0].end_s?).max(0.0)));
    // A sum of nothing is -0.
    gaps.sum::<f64>() + 0.0
}
