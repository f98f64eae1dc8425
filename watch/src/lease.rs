//! A node's own lease: for how long it may still run what is protected, and what it must freeze or end.
//!
//! Proof that the rest of the cluster can reach the node is an answer of the controller, or grants of a majority of its
//! witnesses. A proof is as old as the question that it answers. Without proof for `freeze_s` all protected programs
//! are frozen. They go on as soon as the controller says that they still hold the node, or, as long as it says nothing at all,
//! when a majority of witnesses grants the lease again: then no majority has testified against the node, and nobody can
//! have begun their runs elsewhere.
//! A node without witnesses never freezes anything by itself: its run could begin nowhere else.

use crate::{Limits, life, witnesses};
use protocol::{Held, Incarnation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the controller says to a node in answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    /// The protected jobs that hold this node.
    pub held: Vec<Held>,
    /// Jobs that have begun again elsewhere: what is left of them here must end.
    pub ended: Vec<Incarnation>,
    /// The node's epoch, by which witnesses tell whether the controller has spoken to it since they testified.
    pub epoch: u64,
    /// Its witnesses.
    pub witnesses: BTreeSet<String>,
}

/// Whether a protected job may run here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs.
    #[default]
    Running,
    /// Its processes are stopped, until there is proof again.
    Frozen {
        /// Since when, s.
        since_s: f64,
    },
    /// It has begun elsewhere: its processes are being ended.
    Ending,
}

/// What is to be done on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop all processes of a protected job, and keep them stopped.
    Freeze {
        /// The job's life.
        of: Incarnation,
        /// Whether the slurmstepds of its scripts stand still as well: until the controller has answered, slurmd may hear
        /// before this service that the job has gone elsewhere. Afterwards it is slurmd's to end what it is asked to.
        and_stepds: bool,
    },
    /// Continue its processes.
    Thaw(Incarnation),
    /// End its processes.
    End(Incarnation),
    /// Ask these witnesses for the lease, in this epoch.
    Ask {
        /// Names of nodes.
        witnesses: BTreeSet<String>,
        /// The node's epoch.
        epoch: u64,
    },
}

/// The lease of a node, as it is kept on disk over restarts of its service; on one boot's monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    #[serde(with = "pairs")]
    held: BTreeMap<Incarnation, State>,
    /// The jobs that the controller named last.
    named: BTreeSet<Incarnation>,
    epoch: u64,
    witnesses: BTreeSet<String>,
    /// For how long the controller knows not to expect this node after it answered, s.
    #[serde(default)]
    pause_s: f64,
    /// When the last question was sent that the controller answered, s.
    answered_s: Option<f64>,
    /// The same of each witness, since the epoch began.
    granted_s: BTreeMap<String, f64>,
    #[serde(skip)]
    asked_s: Option<f64>,
}

impl Lease {
    /// The controller has answered the heartbeat that was sent at `sent_s`.
    pub fn answered(&mut self, sent_s: f64, word: Word) -> Vec<Action> {
        self.answered_s = Some(self.answered_s.map_or(sent_s, |at_s| at_s.max(sent_s)));
        self.pause_s = 0.0;
        if (word.epoch, &word.witnesses) != (self.epoch, &self.witnesses) {
            // What was granted in an earlier epoch is no proof in this one.
            (self.epoch, self.witnesses) = (word.epoch, word.witnesses);
            self.granted_s.clear();
        }
        let mut actions = Vec::new();
        let held: BTreeSet<Incarnation> = word.held.iter().map(life).collect();
        for of in word.ended {
            // Also for a job that this service has forgotten: it is ended by its number.
            self.held.insert(of, State::Ending);
            actions.push(Action::End(of));
        }
        self.named.clone_from(&held);
        for of in held {
            let state = self.held.entry(of).or_default();
            if matches!(state, State::Frozen { .. }) {
                *state = State::Running;
                actions.push(Action::Thaw(of));
            }
        }
        actions
    }

    /// Nothing protected is here, and the controller has been told that this node is silent for so long from its last answer
    /// on, s: until then no proof is missed.
    pub fn rest(&mut self, pause_s: f64) {
        self.pause_s = pause_s;
    }

    /// How old proof may be beyond the usual: while nothing protected is here, by the pause that was announced, s.
    fn rest_s(&self) -> f64 {
        if self.held.is_empty() { self.pause_s } else { 0.0 }
    }

    /// A witness has granted the lease that it was asked for at `sent_s` in `epoch`.
    pub fn granted(&mut self, sent_s: f64, witness: &str, epoch: u64) {
        if epoch == self.epoch && self.witnesses.contains(witness) {
            let last_s = self.granted_s.entry(witness.to_string()).or_insert(sent_s);
            *last_s = last_s.max(sent_s);
        }
    }

    /// The moment up to which there is proof, s; none if there never was.
    pub fn proven_s(&self) -> Option<f64> {
        self.answered_s.into_iter().chain(self.vouched_s()).reduce(f64::max)
    }

    /// The moment up to which a majority of the witnesses has granted the lease, s.
    fn vouched_s(&self) -> Option<f64> {
        witnesses::vouched_s(self.witnesses.len(), self.granted_s.values().copied())
    }

    /// What is to be done now.
    pub fn look(&mut self, now_s: f64, limits: &Limits) -> Vec<Action> {
        let mut actions = Vec::new();
        // Nobody has ever told this node anything: it holds no lease.
        let Some(proven_s) = self.proven_s() else { return actions };
        let age_s = now_s - proven_s;
        let wants_proof = self.answered_s.is_none_or(|at_s| now_s - at_s > limits.freeze_s / 3.0 + self.rest_s());
        let may_ask = self.asked_s.is_none_or(|at_s| now_s - at_s >= limits.freeze_s / 5.0);
        if wants_proof && may_ask && !self.witnesses.is_empty() {
            self.asked_s = Some(now_s);
            actions.push(Action::Ask { witnesses: self.witnesses.clone(), epoch: self.epoch });
        }
        let cut_off = age_s > limits.freeze_s && !self.witnesses.is_empty();
        let (answered_s, vouched_s) = (self.answered_s, self.vouched_s());
        // Renewed by the witnesses alone: the controller has not answered since.
        let renewed = |since_s: f64| vouched_s > Some(since_s) && answered_s < Some(since_s);
        for (of, state) in &mut self.held {
            match *state {
                State::Running if cut_off => {
                    *state = State::Frozen { since_s: now_s };
                    actions.push(Action::Freeze { of: *of, and_stepds: true });
                }
                State::Frozen { since_s } if !cut_off && renewed(since_s) => {
                    *state = State::Running;
                    actions.push(Action::Thaw(*of));
                }
                State::Frozen { since_s } => {
                    actions.push(Action::Freeze { of: *of, and_stepds: answered_s < Some(since_s) });
                }
                State::Ending => actions.push(Action::End(*of)),
                State::Running => {}
            }
        }
        actions
    }

    /// A job has no processes here any more.
    pub fn gone(&mut self, of: Incarnation) {
        self.held.remove(&of);
    }

    /// The protected jobs that have processes here: one that has just begun is known before the controller names it, and
    /// one that the controller no longer names is forgotten with its last process.
    pub fn seen(&mut self, here: &BTreeSet<Incarnation>) {
        for of in here {
            self.held.entry(*of).or_default();
        }
        let named = &self.named;
        self.held.retain(|of, state| here.contains(of) || named.contains(of) || *state == State::Ending);
    }

    /// The jobs that this node holds leases for, and whether they run.
    pub fn held(&self) -> impl Iterator<Item = (Incarnation, State)> {
        self.held.iter().map(|(of, state)| (*of, *state))
    }

    /// Whether a job is to stand still now: an action may be done after another thread has heard a later word.
    pub fn is_frozen(&self, of: Incarnation) -> bool {
        matches!(self.held.get(&of), Some(State::Frozen { .. }))
    }

    /// Whether what is protected is frozen for want of proof.
    pub fn is_cut_off(&self, now_s: f64, limits: &Limits) -> bool {
        !self.witnesses.is_empty() && self.proven_s().is_some_and(|at_s| now_s - at_s > limits.freeze_s + self.rest_s())
    }

    /// The node's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// A map whose keys are no text, as a list of pairs.
mod pairs {
    use super::{BTreeMap, Incarnation, State};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(held: &BTreeMap<Incarnation, State>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(held)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Incarnation, State>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Incarnation = Incarnation { job: 7, restart_count: 0 };
    const LIMITS: Limits = Limits { detect_s: 3.0, freeze_s: 5.0, lease_s: 8.0, set_down_per_minute: 10 };

    fn word(epoch: u64, witnesses: &[&str]) -> Word {
        Word {
            held: vec![Held { job: JOB.job, restart_count: JOB.restart_count, cpus: 1 }],
            ended: Vec::new(),
            epoch,
            witnesses: witnesses.iter().map(ToString::to_string).collect(),
        }
    }

    const FREEZE: Action = Action::Freeze { of: JOB, and_stepds: true };

    fn acts(lease: &mut Lease, now_s: f64) -> Vec<Action> {
        lease.look(now_s, &LIMITS).into_iter().filter(|a| !matches!(a, Action::Ask { .. })).collect()
    }

    #[test]
    fn a_node_that_nobody_answers_freezes_in_time_and_goes_on_when_the_controller_answers() {
        let mut lease = Lease::default();
        assert!(lease.look(0.0, &LIMITS).is_empty());
        assert!(lease.answered(10.0, word(1, &["a", "b", "c"])).is_empty());
        assert!(acts(&mut lease, 14.9).is_empty());
        assert_eq!(acts(&mut lease, 15.1), [FREEZE]);
        assert_eq!(acts(&mut lease, 15.3), [FREEZE], "it is kept frozen");
        assert!(lease.is_cut_off(15.3, &LIMITS));
        assert!(lease.is_frozen(JOB));
        assert_eq!(lease.answered(70.0, word(2, &["a", "b", "c"])), [Action::Thaw(JOB)]);
        assert!(!lease.is_frozen(JOB), "who freezes it by a look of before has to see that");
        assert!(acts(&mut lease, 71.0).is_empty());
    }

    #[test]
    fn witnesses_are_asked_before_it_is_too_late_and_a_majority_of_them_renews_the_lease() {
        let mut lease = Lease::default();
        lease.answered(10.0, word(4, &["a", "b", "c"]));
        let all = ["a", "b", "c"].map(String::from).into();
        assert_eq!(lease.look(12.0, &LIMITS), [Action::Ask { witnesses: all, epoch: 4 }]);
        assert!(lease.look(12.5, &LIMITS).is_empty(), "not again at once");
        lease.granted(12.0, "a", 4);
        assert_eq!(lease.proven_s(), Some(10.0), "one of three is no majority");
        lease.granted(12.1, "c", 4);
        lease.granted(12.9, "b", 3);
        lease.granted(12.9, "x", 4);
        assert_eq!(lease.proven_s(), Some(12.0));
        assert!(acts(&mut lease, 16.9).is_empty());
        assert_eq!(acts(&mut lease, 17.1), [FREEZE]);
        lease.granted(17.2, "a", 4);
        lease.granted(17.2, "b", 4);
        assert_eq!(acts(&mut lease, 17.3), [Action::Thaw(JOB)]);
    }

    #[test]
    fn what_has_begun_elsewhere_is_ended_until_nothing_is_left() {
        let mut lease = Lease::default();
        lease.answered(10.0, word(1, &["a"]));
        acts(&mut lease, 16.0);
        let moved = Word { held: Vec::new(), ended: vec![JOB], ..word(2, &["a"]) };
        assert_eq!(lease.answered(20.0, moved), [Action::End(JOB)]);
        assert_eq!(acts(&mut lease, 20.5), [Action::End(JOB)]);
        lease.gone(JOB);
        assert!(acts(&mut lease, 21.0).is_empty());
    }

    #[test]
    fn a_frozen_job_that_the_controller_does_not_name_stays_frozen_by_its_word_alone() {
        // A controller that has just begun names no jobs yet.
        let mut lease = Lease::default();
        lease.answered(10.0, word(1, &["a"]));
        acts(&mut lease, 16.0);
        let silent = Word { held: Vec::new(), ..word(1, &["a"]) };
        assert!(lease.answered(20.0, silent).is_empty());
        lease.granted(20.1, "a", 1);
        assert_eq!(
            acts(&mut lease, 20.2),
            [Action::Freeze { of: JOB, and_stepds: false }],
            "the witness knows of nothing that the controller knows"
        );
        assert_eq!(lease.answered(21.0, word(1, &["a"])), [Action::Thaw(JOB)]);
    }

    #[test]
    fn the_only_node_of_a_cluster_freezes_nothing() {
        let mut lease = Lease::default();
        lease.answered(10.0, word(1, &[]));
        assert!(lease.look(1e6, &LIMITS).is_empty());
    }

    #[test]
    fn a_restarted_service_knows_how_old_its_proof_is() {
        let mut lease = Lease::default();
        lease.answered(10.0, word(1, &["a"]));
        let kept = serde_json::to_string(&lease).unwrap();
        let mut again: Lease = serde_json::from_str(&kept).unwrap();
        assert_eq!(again, lease);
        assert_eq!(acts(&mut again, 15.1), [FREEZE]);
    }
}
