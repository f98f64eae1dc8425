//! Decides whether to checkpoint now, to wait, or to rest, from the situation alone.
//!
//! Order of the rules: the checkpoint before the walltime end; a finish that is near enough to make a checkpoint dearer than
//! what it saves; the interval. After the checkpoint before the end the interval alone counts, where one more is done by
//! then; and again when Slurm has let the end pass (`OverTimeLimit`).

use crate::phrase::{duration, percent};

/// A checkpoint before the end may take this many times its expected duration.
const COST_SAFETY: f64 = 1.5;

/// A job that runs so long after its end is not being ended (`OverTimeLimit`), s: longer than Slurm's KillWait and a look at limits.
const KILLED_S: f64 = 120.0;

/// The shortest wait that is ever asked for.
const SHORTEST_WAIT_S: f64 = 1e-3;

/// The longest wait before the situation is looked at again.
const LONGEST_WAIT_S: f64 = 7.0 * 86_400.0;

/// Everything a decision rests on. Times are seconds on one clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Now.
    pub now_s: f64,
    /// Commit time of the last recovery line, or the (re)start of computing.
    pub last_line_s: f64,
    /// Work between checkpoints.
    pub interval_s: f64,
    /// Expected duration of a checkpoint.
    pub checkpoint_s: f64,
    /// End of the walltime.
    pub end_s: Option<f64>,
    /// Safety kept before the end.
    pub margin_s: f64,
    /// Work that is left, where the application tells it.
    pub remaining_work_s: Option<f64>,
    /// Expected duration of a restart.
    pub restart_s: f64,
    /// Mean time between failures.
    pub mtbf_s: f64,
    /// Whether the checkpoint before the end has been taken.
    pub final_line_taken: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Checkpoint now.
    Checkpoint(Why),
    /// Decide again at `until_s`, which is finite and later than now.
    Wait {
        /// When to decide again.
        until_s: f64,
    },
    /// Nothing more to do until something changes.
    Rest,
}

/// What a checkpoint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The interval has passed.
    Interval,
    /// The walltime ends soon.
    BeforeEnd,
    /// Someone asked.
    Asked,
}

/// An action and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// One sentence with figures and units.
    pub reason: String,
}

/// Decides. Any input gives a decision; figures that are not finite or negative count as unknown or zero.
pub fn decide(s: &Situation) -> Decision {
    if !s.now_s.is_finite() {
        return rest("the time is unknown".to_owned());
    }
    let checkpoint_s = finite_or(s.checkpoint_s, 0.0);
    if let Some(end_s) = s.end_s.filter(|end_s| end_s.is_finite() && (s.final_line_taken || s.now_s >= *end_s)) {
        return at_the_end(s, checkpoint_s, end_s);
    }
    let latest_s =
        s.end_s.filter(|e| e.is_finite()).map(|e| e - finite_or(s.margin_s, 0.0) - COST_SAFETY * checkpoint_s);
    let remaining_s = s.remaining_work_s.filter(|r| r.is_finite()).map(|r| r.max(0.0));
    if let (Some(latest_s), Some(end_s)) = (latest_s, s.end_s)
        && remaining_s.is_none_or(|r| s.now_s + r > end_s - finite_or(s.margin_s, 0.0))
    {
        return with_end(s, checkpoint_s, latest_s, end_s);
    }
    match remaining_s {
        Some(remaining_s) => with_remaining(s, checkpoint_s, remaining_s),
        None => periodic(s),
    }
}

/// The checkpoint before the end has been taken, or the end has passed: a checkpoint that Slurm's end of the job would cut
/// short is not begun.
fn at_the_end(s: &Situation, checkpoint_s: f64, end_s: f64) -> Decision {
    let due_s = due(s).max(s.now_s);
    let runs_on_s = end_s + KILLED_S;
    if s.now_s >= runs_on_s || due_s + COST_SAFETY * checkpoint_s < end_s {
        return periodic(s);
    }
    wait(s, runs_on_s, "the walltime ends, or has ended: it is seen whether Slurm lets the job run on".to_string())
}

/// The walltime ends before the work does, or may do so.
fn with_end(s: &Situation, checkpoint_s: f64, latest_s: f64, end_s: f64) -> Decision {
    let left_s = end_s - s.now_s;
    if s.now_s >= latest_s {
        return if left_s > checkpoint_s {
            Decision {
                action: Action::Checkpoint(Why::BeforeEnd),
                reason: format!(
                    "the walltime ends in {} and a checkpoint takes {} (with margin {})",
                    duration(left_s),
                    duration(checkpoint_s),
                    duration(s.margin_s)
                ),
            }
        } else {
            rest(format!(
                "the walltime ends in {}, too soon for a checkpoint of {}",
                duration(left_s.max(0.0)),
                duration(checkpoint_s)
            ))
        };
    }
    let due_s = due(s);
    // A periodic checkpoint is skipped when the final one follows before it has paid for itself.
    let pays_from_s =
        latest_s - finite_or(s.interval_s, f64::INFINITY).min(break_even_s(s, checkpoint_s)).max(checkpoint_s);
    if due_s >= pays_from_s {
        return wait(
            s,
            latest_s,
            format!(
                "the checkpoint before the walltime end comes in {}; a periodic one shortly before it would not pay",
                duration(latest_s - s.now_s)
            ),
        );
    }
    periodic(s)
}

/// The work ends by itself within the walltime.
fn with_remaining(s: &Situation, checkpoint_s: f64, remaining_s: f64) -> Decision {
    let due_s = due(s).max(s.now_s);
    let exposed_s = (due_s - s.last_line_s).max(0.0);
    let left_s = (remaining_s - (due_s - s.now_s)).max(0.0);
    let saved_s = expected_saving_s(s.mtbf_s, exposed_s, left_s);
    if saved_s < checkpoint_s {
        return rest(format!(
            "with {} of work left a checkpoint costs {} and can be expected to save only {}",
            duration(remaining_s),
            duration(checkpoint_s),
            duration(saved_s)
        ));
    }
    periodic(s)
}

fn periodic(s: &Situation) -> Decision {
    let due_s = due(s);
    if due_s <= s.now_s {
        return Decision {
            action: Action::Checkpoint(Why::Interval),
            reason: format!(
                "{} of work since the last recovery line, interval {}",
                duration((s.now_s - s.last_line_s).max(0.0)),
                duration(s.interval_s)
            ),
        };
    }
    wait(s, due_s, format!("the interval of {} ends in {}", duration(s.interval_s), duration(due_s - s.now_s)))
}

/// When the interval ends; if the last checkpoint is unknown, it counts from now.
fn due(s: &Situation) -> f64 {
    let from = if s.last_line_s.is_finite() { s.last_line_s.min(s.now_s) } else { s.now_s };
    from + finite_or(s.interval_s, LONGEST_WAIT_S)
}

/// Time that a checkpoint is expected to save: failures come with probability 1 - exp(-left / M), and each would cost
/// the work done before the checkpoint once more. The restart is paid either way, and does not count.
fn expected_saving_s(mtbf_s: f64, exposed_s: f64, left_s: f64) -> f64 {
    let probability = if mtbf_s > 0.0 { -(-left_s / mtbf_s).exp_m1() } else { 1.0 };
    if probability.is_finite() { probability * exposed_s } else { 0.0 }
}

/// How long before the final checkpoint a periodic one must be to save what it costs.
fn break_even_s(s: &Situation, checkpoint_s: f64) -> f64 {
    let exposed_s = (due(s) - s.last_line_s).max(0.0);
    let ratio = checkpoint_s / exposed_s;
    if ratio.is_finite() && ratio < 1.0 && s.mtbf_s > 0.0 { -s.mtbf_s * (-ratio).ln_1p() } else { f64::INFINITY }
}

fn finite_or(value: f64, otherwise: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { otherwise }
}

fn rest(reason: String) -> Decision {
    Decision { action: Action::Rest, reason }
}

fn wait(s: &Situation, until_s: f64, reason: String) -> Decision {
    // Large clocks swallow a millisecond: then the next representable moment is the earliest that is later.
    let earliest_s = (s.now_s + SHORTEST_WAIT_S).max(s.now_s.next_up());
    let latest_s = (s.now_s + LONGEST_WAIT_S).max(earliest_s);
    let until_s = if until_s.is_finite() { until_s.clamp(earliest_s, latest_s) } else { latest_s };
    if until_s.is_finite() {
        Decision { action: Action::Wait { until_s }, reason }
    } else {
        rest(format!("the time of {} is too large to wait from", percent(s.now_s / 100.0)))
    }
}

/// The chance that a restored program sends something else than before, as long as nothing is known of it; an assumption.
pub const CHANCE: f64 = 0.1;

/// One of so many rounds, in each of which every group makes a checkpoint, is a line of all `groups`.
///
/// Both follow Young. A group of one in n, that fails every n M and checkpoints in C, does so every `sqrt(2 C n M)`. In a line
/// all write at once, so that each stands still for (n - 1) C longer; it pays at the failures after which the program differs,
/// every M / chance: every `sqrt(2 (n - 1) C M / chance)`. Neither C nor M is left in how often the one goes into the other.
pub fn rounds(groups: usize, chance: f64) -> u32 {
    let n = groups.max(1) as f64;
    let rounds = ((n - 1.0) / (n * chance.clamp(1e-3, 1.0))).sqrt().round();
    rounds.max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_rarer_the_less_likely_it_is_needed() {
        let all = [2, 3, 8, 1000].map(|groups| rounds(groups, CHANCE));
        assert_eq!(all, [2, 3, 3, 3]);
        assert_eq!((rounds(8, 1.0), rounds(8, 0.001), rounds(1, CHANCE), rounds(0, 0.0)), (1, 30, 1, 1));
    }
}
