//! Says what a chosen borrower goes through next, from its state on disk and what Slurm shows: pure, as `machine.rs`.
//!
//! It is called into a reservation of its own, taken out of it as soon as it runs, and told to checkpoint and to go when
//! the lender needs the nodes. Only jobs under Joulepoint are ever told to go.

use super::machine::{Act, Next, World};
use protocol::{Chosen, ChosenState, Loan, LoanState, OrderState};
use slurm::{Job, JobState};

/// How long nodes are kept for a borrower that was called, s.
const CALLED_S: f64 = 30.0;

/// What is done to a chosen borrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
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

/// What is seen of a chosen borrower.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Its job.
    pub job: Option<Job>,
    /// Its reservation is there.
    pub is_reserved: bool,
    /// Its wrapper has told the controller of this life of the job.
    pub is_protected: bool,
    /// What came of the order to checkpoint and to go.
    pub order: Option<OrderState>,
}

impl Sight {
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
    fn leftover(&self, chosen: &Chosen) -> Option<Deed> {
        let job = self.job.as_ref().filter(|j| j.uid == chosen.uid && !j.state.is_over());
        match job.filter(|j| j.reservation == chosen.name) {
            Some(_) => Some(Deed::CallOut),
            None => self.is_reserved.then_some(Deed::Dismiss),
        }
    }
}

/// What the first chosen borrower with something to do goes through next.
pub fn next(now_s: f64, loan: &Loan, world: &World, patience_s: f64) -> Option<Next> {
    let nobody = Sight::default();
    let open = loan.chosen.iter().filter(|c| c.state != ChosenState::Over);
    let mut steps = open.map(|c| step(now_s, loan, c, world.chosen.get(&c.job).unwrap_or(&nobody), patience_s));
    steps.find_map(|next| Some(next).filter(|n| *n != Next::Wait))
}

/// Until when borrowers that were told to go may take, s.
pub fn leaving_until_s(loan: &Loan, world: &World, patience_s: f64) -> f64 {
    let is_going = |c: &&Chosen| {
        let sight = world.chosen.get(&c.job);
        let is_told = |s: &Sight| s.is_protected || s.order.is_some();
        c.state == ChosenState::Leaving && sight.is_some_and(|s| is_told(s) && s.is_there(c))
    };
    loan.chosen.iter().filter(is_going).map(|c| c.state_s + patience_s).fold(f64::NEG_INFINITY, f64::max)
}

fn step(now_s: f64, loan: &Loan, chosen: &Chosen, sight: &Sight, patience_s: f64) -> Next {
    let turn = |state, why: &str| Next::Turn { job: chosen.job, state, reason: why.to_string() };
    let act = |deed| Next::Do(Act::Borrower { job: chosen.job, deed });
    let is_there = sight.is_there(chosen);
    let leftover = sight.leftover(chosen);
    let is_wanted = matches!(loan.state, LoanState::Returning | LoanState::Growing);
    match chosen.state {
        ChosenState::Over => Next::Wait,
        ChosenState::Called if is_there => turn(ChosenState::Running, "it has begun"),
        ChosenState::Called if may_begin(now_s, loan, chosen, sight) => calling(chosen, sight).map_or(Next::Wait, act),
        ChosenState::Called => turn(ChosenState::Leaving, "it did not begin on the nodes"),
        _ if leftover.is_some() => leftover.map_or(Next::Wait, act),
        _ if !is_there => turn(ChosenState::Over, "it is not on the nodes"),
        _ if matches!(loan.state, LoanState::Closing | LoanState::Failing) => {
            turn(ChosenState::Over, "it runs on: nobody takes the nodes back")
        }
        ChosenState::Running if is_wanted => turn(ChosenState::Leaving, "the lender needs its nodes"),
        ChosenState::Leaving if !is_wanted => turn(ChosenState::Running, "it has begun after all"),
        ChosenState::Leaving if sight.is_protected => leaving(now_s, chosen, sight, patience_s).map_or(Next::Wait, act),
        ChosenState::Running | ChosenState::Leaving => Next::Wait,
    }
}

/// Whether a borrower that was called waits and may still begin.
fn may_begin(now_s: f64, loan: &Loan, chosen: &Chosen, sight: &Sight) -> bool {
    let waits = sight.life(chosen).is_some_and(|j| j.state == JobState::Pending);
    waits && loan.state == LoanState::Lent && now_s - chosen.state_s <= CALLED_S
}

/// What it needs to begin.
fn calling(chosen: &Chosen, sight: &Sight) -> Option<Deed> {
    let is_in = sight.job.as_ref().is_some_and(|j| j.reservation == chosen.name);
    match sight.is_reserved {
        false => Some(Deed::Call),
        true => (!is_in).then_some(Deed::CallIn),
    }
}

/// First it is asked to checkpoint and to go by itself; if it cannot, or not in time, it is put back as it is.
fn leaving(now_s: f64, chosen: &Chosen, sight: &Sight, patience_s: f64) -> Option<Deed> {
    sight.life(chosen).filter(|j| matches!(j.state, JobState::Running | JobState::Suspended))?;
    match sight.order {
        Some(OrderState::Failed) => Some(Deed::PutBack),
        _ if now_s - chosen.state_s > patience_s => Some(Deed::PutBack),
        None => Some(Deed::Preempt),
        Some(_) => None,
    }
}
