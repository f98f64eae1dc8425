//! Says what a chosen borrower goes through next, from its state on disk and what Slurm shows: pure, as `machine.rs`.
//!
//! It is called into a reservation of its own, taken out of it as soon as it runs, and told to checkpoint and to go when
//! the lender needs the nodes. Only jobs under Joulepoint are ever told to go.

use crate::machine::{Act, Next, World};
use protocol::{Chosen, ChosenState, Loan, LoanState, OrderState};
use slurm::{Job, JobState};

/// How long nodes are kept for a borrower that was called, s.
const CALLED_S: f64 = 30.0;

/// What is done to a chosen borrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reserve its nodes for it.
    Call,
    /// Put it into that reservation.
    CallIn,
    /// Take it out of there.
    CallOut,
    /// Remove that reservation.
    Dismiss,
    /// Order it to checkpoint and to go back into the queue.
    Preempt,
    /// Put it back into the queue as it is.
    PutBack,
}

impl Action {
    /// What the audit calls it.
    pub fn audited(self) -> audit::Act {
        match self {
            Action::Call | Action::CallIn | Action::CallOut | Action::Dismiss => audit::Act::Reservation,
            Action::Preempt => audit::Act::Order,
            Action::PutBack => audit::Act::Requeue,
        }
    }
}

/// What is seen of a chosen borrower.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Its job.
    pub job: Option<Job>,
    /// Its reservation is there.
    pub is_reserved: bool,
    /// Its wrapper has told the controller of this life of the job.
    pub is_protected: bool,
    /// What came of the order to checkpoint and to go.
    pub order: Option<OrderState>,
}

impl Observation {
    /// The job, if it is still the life of it that was chosen.
    fn life(&self, chosen: &Chosen) -> Option<&Job> {
        self.job.as_ref().filter(|j| j.uid == chosen.uid && j.restarts == chosen.restart_count)
    }

    /// Whether it is on the nodes that it was chosen for.
    fn is_there(&self, chosen: &Chosen) -> bool {
        self.life(chosen).is_some_and(|job| {
            let runs = matches!(job.state, JobState::Running | JobState::Suspended | JobState::Completing);
            runs && job.nodes.iter().any(|n| chosen.nodes.contains(n))
        })
    }

    /// What is left to remove of what was made for it; a life that was requeued may still be in the reservation.
    fn leftover(&self, chosen: &Chosen) -> Option<Action> {
        let job = self.job.as_ref().filter(|j| j.uid == chosen.uid && !j.state.is_over());
        match job.filter(|j| j.reservation == chosen.name) {
            Some(_) => Some(Action::CallOut),
            None => self.is_reserved.then_some(Action::Dismiss),
        }
    }
}

/// What the first chosen borrower with something to do goes through next.
pub fn next(now_s: f64, loan: &Loan, world: &World, patience_s: f64) -> Option<Next> {
    let nobody = Observation::default();
    let open = loan.chosen.iter().filter(|c| c.state != ChosenState::Over);
    let mut steps = open.map(|c| {
        let late = now_s - c.state_s.max(world.counts_from_s) > patience_s;
        step(now_s, loan, c, world.chosen.get(&c.job).unwrap_or(&nobody), late)
    });
    steps.find_map(|next| Some(next).filter(|n| *n != Next::Wait))
}

/// When the last borrower that was told to go has gone, or has had its time to, s.
pub fn gone_s(loan: &Loan, world: &World, patience_s: f64) -> f64 {
    let is_going = |c: &Chosen| {
        let has_wrapper = |s: &Observation| s.is_protected || s.order.is_some();
        world.chosen.get(&c.job).is_some_and(|seen| has_wrapper(seen) && seen.is_there(c))
    };
    let gone_s = |c: &Chosen| match c.state {
        ChosenState::Leaving if is_going(c) => Some(c.state_s.max(world.counts_from_s) + patience_s),
        // Slurm takes its time until it gives a node away that somebody has left.
        ChosenState::Over => Some(c.state_s),
        _ => None,
    };
    loan.chosen.iter().filter_map(gone_s).fold(f64::NEG_INFINITY, f64::max)
}

fn step(now_s: f64, loan: &Loan, chosen: &Chosen, seen: &Observation, late: bool) -> Next {
    let turn = |state, why: &str| Next::Turn { job: chosen.job, state, reason: why.to_string() };
    let act = |action| Next::Do(Act::Borrower { job: chosen.job, action });
    let is_there = seen.is_there(chosen);
    let leftover = seen.leftover(chosen);
    let is_wanted = matches!(loan.state, LoanState::Returning | LoanState::Growing);
    // What people may do to its reservation meanwhile does not keep it from being told to go.
    let is_leaving = chosen.state == ChosenState::Leaving && is_wanted && is_there && seen.is_protected;
    let goes = is_leaving.then(|| leaving(chosen, seen, late)).flatten();
    match chosen.state {
        ChosenState::Over => Next::Wait,
        ChosenState::Called if is_there => turn(ChosenState::Running, "it has begun"),
        ChosenState::Called if may_begin(now_s, loan, chosen, seen) => calling(chosen, seen).map_or(Next::Wait, act),
        ChosenState::Called => turn(ChosenState::Leaving, "it did not begin on the nodes"),
        ChosenState::Running if is_wanted && is_there => turn(ChosenState::Leaving, "the lender needs its nodes"),
        _ if goes.or(leftover).is_some() => goes.or(leftover).map_or(Next::Wait, act),
        _ if !is_there => turn(ChosenState::Over, "it is not on the nodes"),
        _ if matches!(loan.state, LoanState::Closing | LoanState::Failing) => {
            turn(ChosenState::Over, "it runs on: nobody takes the nodes back")
        }
        ChosenState::Leaving if !is_wanted => turn(ChosenState::Running, "it has begun after all"),
        ChosenState::Running | ChosenState::Leaving => Next::Wait,
    }
}

/// Whether a borrower that was called waits and may still begin.
fn may_begin(now_s: f64, loan: &Loan, chosen: &Chosen, seen: &Observation) -> bool {
    let waits = seen.life(chosen).is_some_and(|j| j.state == JobState::Pending);
    waits && loan.state == LoanState::Lent && now_s - chosen.state_s <= CALLED_S
}

/// What it needs to begin.
fn calling(chosen: &Chosen, seen: &Observation) -> Option<Action> {
    let is_in = seen.job.as_ref().is_some_and(|j| j.reservation == chosen.name);
    match seen.is_reserved {
        false => Some(Action::Call),
        true => (!is_in).then_some(Action::CallIn),
    }
}

/// First it is asked to checkpoint and to go by itself; if it cannot, or not in time, it is put back as it is.
fn leaving(chosen: &Chosen, seen: &Observation, late: bool) -> Option<Action> {
    // Its owner may have changed his mind since: what cannot be put back would end.
    let may_go = |j: &&Job| j.batch && j.requeue && matches!(j.state, JobState::Running | JobState::Suspended);
    seen.life(chosen).filter(may_go)?;
    match seen.order {
        Some(OrderState::Failed) => Some(Action::PutBack),
        _ if late => Some(Action::PutBack),
        None => Some(Action::Preempt),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_S: f64 = 30.0;

    fn loan(state: &str, chosen: &str) -> Loan {
        let chosen = serde_json::json!({
            "job": 18, "uid": 1002, "user": "carol", "restart_count": 0, "name": "joulepoint_a_18", "nodes": ["n3"],
            "state": chosen, "state_s": 100.0, "reason": "free"
        });
        let loan = serde_json::json!({
            "id": "a", "name": "joulepoint_a", "key": { "cluster": "c", "run": "7.1" }, "job": 7, "restart_count": 0,
            "uid": 1000, "user": "alice", "account": "physics", "mode": "preempt", "state": state, "state_s": 100.0,
            "reason": "it pays", "nodes": ["n2", "n3"], "kept": ["n1"], "asked_s": 0.0, "return_s": 1000.0,
            "promised_s": 1000.0, "lent_s": 1.0, "back_s": null, "back": [], "time_limit_s": 1800, "idle_w": 100.0,
            "stays": [], "chosen": [chosen]
        });
        serde_json::from_value(loan).unwrap()
    }

    fn seen(state: &str, more: &str) -> Observation {
        let usual = "JobId=18 JobName=j UserId=carol(1002) GroupId=g(1) BatchFlag=1";
        let requeue = if more.contains("Requeue=") { "" } else { "Requeue=1" };
        let line = format!("{usual} {requeue} JobState={state} {more}");
        Observation { job: slurm::parse_job(&line, 18).unwrap(), is_protected: true, ..Observation::default() }
    }

    fn at(now_s: f64, loan: &Loan, seen: &Observation) -> Option<Next> {
        let world = World { chosen: [(18, seen.clone())].into(), ..World::default() };
        next(now_s, loan, &world, PATIENCE_S)
    }

    fn does(action: Action) -> Option<Next> {
        Some(Next::Do(Act::Borrower { job: 18, action }))
    }

    fn turns(next: Option<Next>) -> Option<ChosenState> {
        match next? {
            Next::Turn { state, .. } => Some(state),
            _ => None,
        }
    }

    #[test]
    fn a_borrower_is_called_in_and_let_out_again() {
        let called = loan("lent", "called");
        let waits = seen("PENDING", "");
        let reserved = Observation { is_reserved: true, ..waits.clone() };
        let inside = Observation { is_reserved: true, ..seen("PENDING", "Reservation=joulepoint_a_18") };
        let there = Observation { is_reserved: true, ..seen("RUNNING", "NodeList=n3 Reservation=joulepoint_a_18") };
        assert_eq!(at(101.0, &called, &waits), does(Action::Call));
        assert_eq!(at(101.0, &called, &reserved), does(Action::CallIn));
        assert_eq!(at(101.0, &called, &inside), None);
        assert_eq!(turns(at(131.0, &called, &inside)), Some(ChosenState::Leaving), "it did not begin in time");
        assert_eq!(turns(at(101.0, &loan("returning", "called"), &inside)), Some(ChosenState::Leaving));
        assert_eq!(turns(at(101.0, &called, &there)), Some(ChosenState::Running));
        for (of, state) in [("lent", "running"), ("returning", "leaving")] {
            let open = loan(of, state);
            let there = Observation { order: Some(OrderState::Taken), ..there.clone() };
            assert_eq!(at(101.0, &open, &there), does(Action::CallOut));
            let out = Observation { job: seen("RUNNING", "NodeList=n3").job, ..there.clone() };
            assert_eq!(at(101.0, &open, &out), does(Action::Dismiss));
            let requeued = seen("PENDING", "Restarts=1 Reservation=joulepoint_a_18");
            assert_eq!(at(101.0, &open, &requeued), does(Action::CallOut), "also its next life");
            assert_eq!(turns(at(101.0, &open, &seen("PENDING", "Restarts=1"))), Some(ChosenState::Over));
        }
    }

    #[test]
    fn who_cannot_checkpoint_in_time_is_put_back_and_who_is_not_protected_never() {
        let leaving = loan("returning", "leaving");
        let there = seen("RUNNING", "NodeList=n3");
        let ordered = |state| Observation { order: Some(state), ..there.clone() };
        assert_eq!(turns(at(101.0, &loan("returning", "running"), &there)), Some(ChosenState::Leaving));
        assert_eq!(at(101.0, &leaving, &there), does(Action::Preempt));
        assert_eq!(at(130.0, &leaving, &ordered(OrderState::Taken)), None);
        assert_eq!(at(131.0, &leaving, &ordered(OrderState::Taken)), does(Action::PutBack));
        assert_eq!(at(101.0, &leaving, &ordered(OrderState::Failed)), does(Action::PutBack));
        let chosen = [(18, ordered(OrderState::Taken))].into();
        let unseen = World { chosen, counts_from_s: 500.0, ..World::default() };
        assert_eq!(next(530.0, &leaving, &unseen, PATIENCE_S), None, "nobody has looked until then");
        assert_eq!(next(531.0, &leaving, &unseen, PATIENCE_S), does(Action::PutBack));
        assert_eq!(gone_s(&leaving, &unseen, PATIENCE_S), 530.0);
        let inside = Observation { is_reserved: true, ..seen("RUNNING", "NodeList=n3 Reservation=joulepoint_a_18") };
        assert_eq!(at(101.0, &leaving, &inside), does(Action::Preempt), "whatever becomes of its reservation");
        assert_eq!(at(1e9, &leaving, &seen("RUNNING", "NodeList=n3 Requeue=0")), None, "it would end");
        let bare = Observation { is_protected: false, ..there.clone() };
        assert_eq!(at(1e9, &leaving, &bare), None);
        for state in ["closing", "failing"] {
            assert_eq!(turns(at(101.0, &loan(state, "leaving"), &there)), Some(ChosenState::Over), "it runs on");
        }
        let world = |seen: Observation| World { chosen: [(18, seen)].into(), ..World::default() };
        assert_eq!(gone_s(&leaving, &world(there), PATIENCE_S), 130.0);
        assert_eq!(gone_s(&leaving, &world(bare), PATIENCE_S), f64::NEG_INFINITY);
        assert_eq!(gone_s(&loan("returning", "over"), &World::default(), PATIENCE_S), 100.0);
    }
}
