//! Decides whether the survivors of a failure go to a queued job while the failed group works its lost time again.
//!
//! Bouteiller13's break-even ([`crate::waste::lending`]) with what a real platform adds: survivors that read their
//! checkpoint before they go on, the scheduler's delay, and a queue that may hold nothing for them.

use crate::invalid::{Invalid, non_negative};
use crate::phrase::{duration, energy};
use crate::waste::lending;

/// What Slurm needs to give nodes away and back, s: two of its scheduler's rounds.
pub const SCHEDULER_S: f64 = 10.0;

/// How long it takes until slurmctld has written down what it has done, s: it does so every five seconds, and one that is
/// killed before comes back without.
pub const WRITTEN_S: f64 = 8.0;

/// What a decision rests on. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Work lost with the failed group: the time since its last checkpoint (t1).
    pub since_line_s: f64,
    /// Saving the survivors (C).
    pub checkpoint_s: f64,
    /// Reading them back (R).
    pub restart_s: f64,
    /// Work speed during a checkpoint (alpha).
    pub alpha: f64,
    /// Replay speed against the first time (rho).
    pub rho: f64,
    /// Loading a borrower (L) and saving it (S); 0 for jobs that end by themselves.
    pub load_save_s: f64,
    /// What Slurm needs to give the nodes away and back.
    pub scheduler_s: f64,
    /// Time limit of the shortest job that waits and would fit these nodes; absent if none waits.
    pub shortest_queued_s: Option<f64>,
    /// Number of survivors' nodes.
    pub nodes: f64,
    /// Power of an idle node, W.
    pub idle_w: f64,
}

/// Whether to lend, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether lending pays.
    pub lend: bool,
    /// How long the survivors would idle.
    pub idle_s: f64,
    /// The shortest idle time that pays.
    pub break_even_s: f64,
    /// How long a borrower could have the nodes.
    pub window_s: f64,
    /// What the nodes would draw, idling, J.
    pub idle_j: f64,
    /// One sentence.
    pub reason: String,
}

/// Decides. Refuses negative times, alpha outside [0, 1] and rho <= 0.
pub fn lend(p: &Prospect) -> Result<Verdict, Invalid> {
    non_negative("R", p.restart_s)?;
    non_negative("nodes", p.nodes)?;
    non_negative("idle", p.idle_w)?;
    let even = lending(p.since_line_s, p.checkpoint_s, p.alpha, p.rho, p.load_save_s, p.scheduler_s + p.restart_s)?;
    let window_s = (even.idle_s - p.checkpoint_s - p.restart_s - p.scheduler_s).max(0.0);
    let idle_j = even.idle_s * p.nodes * p.idle_w;
    let fits = p.shortest_queued_s.is_some_and(|limit_s| limit_s <= window_s);
    let reason = match p.shortest_queued_s {
        _ if !even.lend => even.reason,
        Some(_) if fits => format!("{}; idling would cost {}", even.reason, energy(idle_j)),
        Some(limit_s) => {
            format!(
                "kept: the shortest job that waits may need {}, and the window is {}",
                duration(limit_s),
                duration(window_s)
            )
        }
        None => "kept: no job waits that could use the nodes".to_owned(),
    };
    Ok(Verdict {
        lend: even.lend && fits,
        idle_s: even.idle_s,
        break_even_s: even.break_even_s,
        window_s,
        idle_j,
        reason,
    })
}
