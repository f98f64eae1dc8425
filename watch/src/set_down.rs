//! Which dead nodes may be set down in Slurm, when, and what becomes of it.
//!
//! Setting a node down ends every job on it. So it is done only where all of them are protected and can be recovered, and
//! never to many in a short time. Everything else is left to Slurm, which comes to it in its own time.

use crate::Limits;
use std::collections::{BTreeMap, VecDeque};

/// The time in which [`Limits::set_down_per_minute`] counts, s.
const MINUTE_S: f64 = 60.0;

/// Time until what was left to Slurm is judged again, s; the longest until what failed is tried again.
const AGAIN_S: f64 = 5.0;

/// Time until what failed is tried again first, s; doubled each time.
const RETRY_S: f64 = 0.5;

/// Time between two comparisons of what is held to be down with Slurm's word, s.
const COMPARE_S: f64 = 30.0;

/// A job that holds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobOn {
    /// Slurm job id.
    pub job: u32,
    /// What would become of it if the node were set down.
    pub fate: Fate,
}

/// What would become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is protected: it goes on in place, or from the queue.
    Recovers,
    /// It asked for us, but Slurm would not bring it back whole: it may neither be requeued nor lose a node, or has several
    /// parts.
    Ends,
    /// It did not ask for us, as far as is known.
    Unprotected,
}

/// Why a dead node is left to Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSetDown {
    /// A job on it has no run that is known here: it did not ask for protection, or nobody could tell so far.
    Unprotected {
        /// Slurm job id.
        job: u32,
    },
    /// A protected job on it could not be recovered.
    Ends {
        /// Slurm job id.
        job: u32,
    },
    /// No protected job is on it.
    NotOurs,
}

impl std::fmt::Display for NotSetDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotSetDown::Unprotected { job } => write!(f, "job {job} on it is not known to be protected"),
            NotSetDown::Ends { job } => {
                write!(
                    f,
                    "job {job} on it may neither be requeued nor lose a node, or is one part of a heterogeneous job"
                )
            }
            NotSetDown::NotOurs => f.write_str("no protected job is on it"),
        }
    }
}

/// Whether a dead node may be set down while these jobs hold it. On one without power no job goes on, whoever's it is.
///
/// # Errors
/// Why it is left to Slurm.
pub fn judge(jobs: &[JobOn], is_off: bool) -> Result<(), NotSetDown> {
    let find = |fate| jobs.iter().find(|j| j.fate == fate).map(|j| j.job);
    match (find(Fate::Unprotected), find(Fate::Ends)) {
        _ if is_off && find(Fate::Recovers).is_some() => Ok(()),
        (Some(job), _) => Err(NotSetDown::Unprotected { job }),
        (None, Some(job)) => Err(NotSetDown::Ends { job }),
        (None, None) if jobs.is_empty() => Err(NotSetDown::NotOurs),
        (None, None) => Ok(()),
    }
}

/// A dead node on its way down.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// It is to be set down: from a moment on, s.
    Wanted {
        from_s: f64,
        retry_s: f64,
        left_to_slurm: Option<NotSetDown>,
        /// We have set it down after an earlier death, and nobody knows yet whether it still is.
        was_ours: bool,
    },
    /// It is down: by us, or by Slurm or a person.
    Down { by_us: bool },
}

/// The nodes that are dead, and which of them are set down.
#[derive(Clone, Debug, Default)]
pub struct SetDowns {
    nodes: BTreeMap<String, State>,
    /// When the last ones were set down, s.
    lately_s: VecDeque<f64>,
    /// When those that are down were compared with Slurm's word last, s.
    compared_s: f64,
}

impl SetDowns {
    /// Takes up the nodes that an earlier life has set down.
    pub fn new(down: impl IntoIterator<Item = String>) -> SetDowns {
        let down = down.into_iter().map(|node| (node, State::Down { by_us: true }));
        SetDowns { nodes: down.collect(), ..SetDowns::default() }
    }

    /// A node has died: however it stood after an earlier death, Slurm is asked how it stands now.
    pub fn want(&mut self, now_s: f64, node: &str) {
        let was_ours = self.is_down_by_us(node);
        let wanted = State::Wanted { from_s: now_s, retry_s: RETRY_S, left_to_slurm: None, was_ours };
        self.nodes.insert(node.to_string(), wanted);
    }

    /// Nodes that are to be judged now, and how many of them may be set down. Those on which nothing is ours are left to
    /// Slurm, about which nobody needs to ask.
    pub fn due(&mut self, now_s: f64, limits: &Limits, is_ours: impl Fn(&str) -> bool) -> (Vec<String>, usize) {
        while self.lately_s.front().is_some_and(|at_s| now_s - at_s >= MINUTE_S) {
            self.lately_s.pop_front();
        }
        let room = (limits.set_down_per_minute as usize).saturating_sub(self.lately_s.len());
        let mut due = Vec::new();
        for (node, state) in &mut self.nodes {
            if let State::Wanted { from_s, left_to_slurm, was_ours, .. } = state {
                if !is_ours(node) && !*was_ours {
                    *left_to_slurm = Some(NotSetDown::NotOurs);
                } else if now_s >= *from_s && room > 0 {
                    due.push(node.clone());
                }
            }
        }
        (due, room)
    }

    /// Nodes that are held to be down, whoever has set them down, when they are to be compared with Slurm's word: a slurmctld
    /// that is killed before it has written that down has them in service when it starts again, with their jobs. Those are to
    /// be judged as after a death.
    pub fn to_compare(&mut self, now_s: f64) -> Vec<String> {
        if now_s - self.compared_s < COMPARE_S {
            return Vec::new();
        }
        self.compared_s = now_s;
        let down = self.nodes.iter().filter(|(_, state)| matches!(state, State::Down { .. }));
        down.map(|(node, _)| node.clone()).collect()
    }

    /// It was left to Slurm, for now; whether that is news.
    pub fn left_to_slurm(&mut self, now_s: f64, node: &str, why: NotSetDown) -> bool {
        let Some(State::Wanted { from_s, left_to_slurm, was_ours, .. }) = self.nodes.get_mut(node) else {
            return false;
        };
        (*from_s, *was_ours) = (now_s + AGAIN_S, false);
        let is_news = left_to_slurm.as_ref() != Some(&why);
        *left_to_slurm = Some(why);
        is_news
    }

    /// Slurm did not take the order, or it is not written down that it is down: it is tried again.
    pub fn failed(&mut self, now_s: f64, node: &str) {
        let was_ours = self.is_down_by_us(node);
        match self.nodes.get_mut(node) {
            Some(State::Wanted { from_s, retry_s, .. }) => {
                *from_s = now_s + *retry_s;
                *retry_s = (*retry_s * 2.0).min(AGAIN_S);
            }
            Some(down) => {
                let from_s = now_s + AGAIN_S;
                *down = State::Wanted { from_s, retry_s: AGAIN_S, left_to_slurm: None, was_ours };
            }
            None => {}
        }
    }

    /// It is down.
    pub fn done(&mut self, now_s: f64, node: &str) {
        self.lately_s.push_back(now_s);
        self.nodes.insert(node.to_string(), State::Down { by_us: true });
    }

    /// Slurm or a person has set it down.
    pub fn others(&mut self, node: &str) {
        self.nodes.insert(node.to_string(), State::Down { by_us: false });
    }

    /// A node is heard again: it is not to be set down any more. Whether it is down by us.
    pub fn back(&mut self, node: &str) -> bool {
        match self.nodes.get(node) {
            Some(State::Down { by_us: true }) => true,
            Some(State::Wanted { was_ours: true, .. }) => {
                self.nodes.insert(node.to_string(), State::Down { by_us: true });
                true
            }
            Some(_) => {
                self.nodes.remove(node);
                false
            }
            None => false,
        }
    }

    /// A node that was down is in service again, or somebody else's to care for.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Nodes that are down by us.
    pub fn down(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(|(_, s)| **s == State::Down { by_us: true }).map(|(node, _)| node.as_str())
    }

    /// Whether a node is down by us.
    pub fn is_down_by_us(&self, node: &str) -> bool {
        matches!(self.nodes.get(node), Some(State::Down { by_us: true } | State::Wanted { was_ours: true, .. }))
    }

    /// Whether a dead node is down, whoever has set it down.
    pub fn is_down(&self, node: &str) -> bool {
        matches!(self.nodes.get(node), Some(State::Down { .. }))
    }

    /// How a dead node stands, in a word: `setting down`, `down`, or why it is left to Slurm.
    pub fn stands(&self, node: &str) -> Option<String> {
        Some(match self.nodes.get(node)? {
            State::Down { .. } => "down".to_string(),
            State::Wanted { left_to_slurm: None, .. } => "setting down".to_string(),
            State::Wanted { left_to_slurm: Some(why), .. } => format!("left to Slurm: {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { detect_s: 3.0, freeze_s: 5.0, lease_s: 8.0, set_down_per_minute: 2 };

    fn on(job: u32, fate: Fate) -> JobOn {
        JobOn { job, fate }
    }

    /// Those that are to be judged, where something of ours is on all of them.
    fn due(downs: &mut SetDowns, now_s: f64) -> Vec<String> {
        downs.due(now_s, &LIMITS, |_| true).0
    }

    #[test]
    fn nobody_is_asked_about_nodes_on_which_nothing_is_ours_and_none_of_ours_waits_behind_them() {
        let mut downs = SetDowns::default();
        (1..=500).for_each(|i| downs.want(0.0, &format!("n{i}")));
        let is_ours = |node: &str| node == "n7" || node == "n99";
        assert_eq!(downs.due(0.0, &LIMITS, is_ours), (vec!["n7".to_string(), "n99".to_string()], 2));
        assert_eq!(downs.stands("n8").as_deref(), Some("left to Slurm: no protected job is on it"));
        downs.done(0.0, "n7");
        downs.done(0.0, "n99");
        downs.want(0.0, "n501");
        assert_eq!(downs.due(0.2, &LIMITS, |_| true), (vec![], 0), "nor while none may be set down");
    }

    #[test]
    fn a_node_is_set_down_only_where_every_job_on_it_recovers() {
        let (ours, others) = (on(1, Fate::Recovers), on(2, Fate::Unprotected));
        assert_eq!(judge(&[ours, on(2, Fate::Recovers)], false), Ok(()));
        assert_eq!(judge(&[ours, others], false), Err(NotSetDown::Unprotected { job: 2 }));
        assert_eq!(judge(&[on(1, Fate::Ends), on(2, Fate::Recovers)], false), Err(NotSetDown::Ends { job: 1 }));
        assert_eq!(judge(&[], false), Err(NotSetDown::NotOurs));
        assert_eq!(judge(&[ours, others], true), Ok(()), "without power nobody's job goes on");
        assert_eq!(judge(&[others], true), Err(NotSetDown::Unprotected { job: 2 }), "nothing of ours waits for it");
    }

    #[test]
    fn never_more_than_the_bounded_number_a_minute_and_none_is_forgotten() {
        let mut downs = SetDowns::default();
        let nodes: Vec<String> = (1..=5).map(|i| format!("n{i}")).collect();
        nodes.iter().for_each(|n| downs.want(0.0, n));
        let mut moments = Vec::new();
        for tenth in 0..3000 {
            let now_s = f64::from(tenth) / 10.0;
            let (due, room) = downs.due(now_s, &LIMITS, |_| true);
            for node in due.iter().take(room) {
                downs.done(now_s, node);
                moments.push(now_s);
            }
        }
        assert_eq!(moments, [0.0, 0.0, 60.0, 60.0, 120.0]);
        assert_eq!(downs.down().count(), 5);
    }

    #[test]
    fn what_fails_is_tried_again_and_what_is_refused_is_judged_again() {
        let mut downs = SetDowns::default();
        downs.want(0.0, "n1");
        assert_eq!(due(&mut downs, 0.0), ["n1"]);
        downs.failed(0.0, "n1");
        assert!(due(&mut downs, 0.4).is_empty());
        assert_eq!(due(&mut downs, 0.5), ["n1"]);
        downs.failed(0.5, "n1");
        assert!(due(&mut downs, 1.4).is_empty());
        assert!(downs.left_to_slurm(5.0, "n1", NotSetDown::Unprotected { job: 7 }));
        assert!(!downs.left_to_slurm(10.0, "n1", NotSetDown::Unprotected { job: 7 }), "said once");
        assert_eq!(downs.stands("n1").as_deref(), Some("left to Slurm: job 7 on it is not known to be protected"));
        assert_eq!(due(&mut downs, 15.0), ["n1"]);
        assert!(!downs.back("n1"));
        assert!(due(&mut downs, 100.0).is_empty(), "it is heard again");
    }

    #[test]
    fn a_node_of_which_it_is_not_written_down_that_it_is_down_is_judged_again_and_stays_ours() {
        let mut downs = SetDowns::default();
        downs.want(0.0, "n1");
        downs.done(0.0, "n1");
        downs.failed(0.0, "n1");
        assert!(downs.is_down_by_us("n1") && !downs.is_down("n1"));
        assert!(due(&mut downs, 4.9).is_empty());
        assert_eq!(due(&mut downs, 5.0), ["n1"]);
        assert!(downs.back("n1"), "it is put back into service when it is heard");
    }

    #[test]
    fn what_is_held_to_be_down_is_compared_now_and_then_and_what_slurm_has_forgotten_is_judged_under_the_same_rules() {
        let mut downs = SetDowns::default();
        ["n1", "n2", "n3"].iter().for_each(|node| downs.want(0.0, node));
        downs.done(0.0, "n1");
        downs.others("n2");
        assert!(downs.to_compare(29.9).is_empty());
        assert_eq!(downs.to_compare(30.0), ["n1", "n2"], "n3 is not down yet");
        assert!(downs.to_compare(30.2).is_empty(), "rarely");
        downs.want(30.2, "n1");
        assert_eq!(downs.due(30.2, &LIMITS, |_| false).0, ["n1"]);
        downs.left_to_slurm(30.2, "n1", NotSetDown::NotOurs);
        assert!(!downs.is_down_by_us("n1"), "an operator has put it back into service, and no job of ours hangs there");
        assert_eq!(downs.to_compare(60.2), ["n2"]);
    }

    #[test]
    fn a_node_that_dies_again_before_it_was_put_back_into_service_is_set_down_again() {
        let mut downs = SetDowns::default();
        downs.want(0.0, "n1");
        downs.done(0.0, "n1");
        assert!(downs.back("n1"));
        downs.want(20.0, "n1");
        assert_eq!(due(&mut downs, 20.0), ["n1"]);
    }

    #[test]
    fn a_node_that_we_have_set_down_and_that_dies_again_without_a_job_of_ours_is_put_back_into_service_when_it_is_heard()
     {
        let mut downs = SetDowns::new(["n1".to_string()]);
        downs.want(0.0, "n1");
        assert!(downs.is_down_by_us("n1"), "as far as is known: so it is kept");
        assert_eq!(downs.due(0.0, &LIMITS, |_| false).0, ["n1"], "Slurm is asked how it stands");
        assert!(downs.back("n1"));
        assert_eq!(downs.down().collect::<Vec<_>>(), ["n1"]);
        downs.want(9.0, "n1");
        downs.left_to_slurm(9.0, "n1", NotSetDown::NotOurs);
        assert!(!downs.back("n1"), "Slurm has said that it was not down");
    }
}
