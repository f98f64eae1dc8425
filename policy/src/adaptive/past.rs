//! What is known of failures when a run begins.

use super::{Adaptive, AdaptiveParameters, BURSTS, LONGEST_S, STEADY};

/// The most failures of a past whose moments are kept: `auto` then paces as if it had lived through all of them.
pub const MOST_FAILURES: usize = 128;

/// Failures from before a run, on its own nodes or on more, by one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// What the MTBF of the watched nodes was thought to be before any of it.
    pub prior_mtbf_s: f64,
    /// Failures until `since_s` whose moments are not kept, and the time until then.
    pub earlier_failures: u32,
    /// That time.
    pub earlier_s: f64,
    /// From when on no failure is left out: that of the last earlier failure, or the beginning.
    pub since_s: f64,
    /// When nodes failed since, rising.
    pub failed_s: Vec<f64>,
    /// Until when they were watched.
    pub until_s: f64,
    /// The run's nodes over those watched; 1 if it has them all.
    pub share: f64,
}

impl Past {
    /// A past that was watched from a moment on; of all its failures the newest are kept by their moments.
    pub fn watched(
        prior_mtbf_s: f64,
        from_s: f64,
        failed_s: impl IntoIterator<Item = f64>,
        until_s: f64,
        share: f64,
    ) -> Past {
        let mut failed_s: Vec<f64> = failed_s.into_iter().filter(|t| (from_s..=until_s).contains(t)).collect();
        failed_s.sort_by(f64::total_cmp);
        failed_s.dedup();
        let earlier = failed_s.len().saturating_sub(MOST_FAILURES);
        let newest = failed_s.split_off(earlier);
        let since_s = failed_s.last().copied().unwrap_or(from_s);
        Past {
            prior_mtbf_s,
            earlier_failures: earlier as u32,
            earlier_s: since_s - from_s,
            since_s,
            failed_s: newest,
            until_s,
            share,
        }
    }

    /// How many failures there were.
    pub fn failures(&self) -> u32 {
        self.earlier_failures.saturating_add(self.failed_s.len() as u32)
    }
}

impl Adaptive {
    /// A policy that has lived through a past until `now_s`, and the moment from which its ages count. `local_s` is
    /// `now_s` in local seconds since 1970.
    pub fn with_past(parameters: AdaptiveParameters, past: &Past, now_s: f64, local_s: Option<f64>) -> (Adaptive, f64) {
        let share = if past.share > 0.0 && past.share < 1.0 { past.share } else { 1.0 };
        let since_s = past.since_s.min(now_s);
        let mut policy =
            Adaptive::new(parameters, past.prior_mtbf_s, local_s.map(|local_s| local_s - (now_s - since_s)));
        let earlier_s = if past.earlier_s.is_finite() { past.earlier_s.clamp(0.0, LONGEST_S) } else { 0.0 };
        policy.has_lived(earlier_s, past.earlier_failures);
        let mut last_s = since_s;
        for at_s in past.failed_s.iter().copied().filter(|at_s| *at_s <= now_s) {
            policy.observe_gap(at_s - last_s);
            last_s = last_s.max(at_s);
        }
        if share == 1.0 {
            return (policy, last_s);
        }
        policy.thin((now_s - last_s).max(0.0), share);
        (policy, now_s)
    }

    /// Takes over failures and the time in which they came.
    fn has_lived(&mut self, watched_s: f64, failures: u32) {
        let failures = f64::from(failures);
        self.renewals[STEADY].watch(watched_s, failures);
        self.watched_s += watched_s;
        self.failures += failures;
        self.has_failed = failures > 0.0;
        self.settled_s = self.memories.settled_s(self.base(0.0));
        self.weigh();
    }

    /// Goes over, after a silence, to a share of the nodes: what came by wear or in bursts of others is no age of theirs.
    fn thin(&mut self, silent_s: f64, share: f64) {
        self.memories.pass(silent_s, 0.0);
        self.memories.thin(share);
        self.renewals[STEADY].watch(silent_s, 0.0);
        self.renewals[STEADY].thin(share);
        self.watched_s = (self.watched_s + silent_s) / share;
        self.failed_at_s = self.failed_at_s.map(|t| t + silent_s);
        for way in (0..self.evidence.len()).filter(|way| ![STEADY, BURSTS].contains(way)) {
            self.evidence[way] = f64::NEG_INFINITY;
        }
        self.settled_s = self.memories.settled_s(self.base(0.0));
        self.weigh();
    }
}
