//! Says what a loan does next, from its state on disk and what Slurm shows: pure, so that any crash is only a pause.
//!
//! A state is on disk before anything of it is done, and everything done in a state is told from what Slurm shows:
//! after a crash at any point the same look leads to the same act, or finds it done.

use crate::chosen::{self, Action, Observation};
use policy::lending::{SCHEDULER_S, WRITTEN_S};
use protocol::{ChosenState, Loan, LoanState};
use slurm::{Job, JobState, Reservation};
use std::collections::{BTreeMap, BTreeSet};

/// How far the reservation may begin from the expected return before it is moved, s.
const SAME_S: f64 = 2.0;

/// How long slurmctld, when it hears of a node again, takes to end the jobs there that it has forgotten, s. It drains a
/// node on which it begins such a job once more before that.
const STRAYS_S: f64 = 3.0;

/// How long before the end of the lender's job its nodes are called back at the latest, s: Slurm hands them over, and writes
/// that down.
pub const HANDING_S: f64 = SCHEDULER_S + WRITTEN_S;

/// Slurm's time limits and durations are whole minutes, s.
const MINUTE_S: f64 = 60.0;

/// Why nothing is lent any more.
const EXPIRED: &str = "the nodes are needed before anything was lent";

/// Slurm's flag of a job that it holds since the reservation is gone for which it waited.
const HELD_WITHOUT_RESERVATION: &str = "RESV_DEL_HOLD";

/// What Slurm shows of a loan.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The lender's job.
    pub lender: Option<Job>,
    /// The job by which the lender takes its nodes back, while it waits or runs.
    pub helper: Option<Job>,
    /// The loan's reservation.
    pub reservation: Option<Reservation>,
    /// Jobs of others that have lent nodes.
    pub borrowers: Vec<Job>,
    /// What is seen of chosen borrowers that are not over, by job.
    pub chosen: BTreeMap<u32, Observation>,
    /// Nodes that are out of service.
    pub down: BTreeSet<String>,
    /// Whether slurmctld has not heard of some of the lent nodes since it began.
    pub unheard: bool,
    /// When it began; looked up only while the nodes are merged.
    pub booted_s: f64,
    /// The longest time limit in the lender's partition, s; looked up only while the loan is closed, absent for none.
    pub longest_limit_s: Option<u64>,
    /// From when on others may be late, s since the epoch: what they did while nobody looked, or while the lender was
    /// suspended, is not known or not their fault.
    pub counts_from_s: f64,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Make the reservation that begins at the return.
    Reserve,
    /// Take the lent nodes out of the lender's job.
    Shrink,
    /// Let the reservation begin at the return that is expected now.
    MoveWindow,
    /// Let the reservation begin now, open to the lender.
    Admit,
    /// Give the helper's nodes to the lender.
    Merge {
        /// Its job id.
        helper: u32,
    },
    /// Raise the lender's time limit by the time without its nodes.
    Lengthen {
        /// The limit, min.
        minutes: u64,
    },
    /// End the helper.
    EndHelper {
        /// Its job id.
        helper: u32,
    },
    /// Remove the reservation.
    Unreserve,
    /// Put the lender's job back into the queue.
    Requeue,
    /// Do this to a chosen borrower.
    Borrower {
        /// Its job id.
        job: u32,
        /// What is done to it.
        action: Action,
    },
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Do this; the state stays.
    Do(Act),
    /// Go over to a state, with the reason.
    Become(LoanState, String),
    /// A chosen borrower goes over to a state, with the reason.
    Turn {
        /// Its job id.
        job: u32,
        /// Its state.
        state: ChosenState,
        /// The reason, for its owner.
        reason: String,
    },
    /// Look again later.
    Wait,
}

/// What a loan does next. `patience_s`: how late others may be.
pub fn next(now_s: f64, loan: &Loan, world: &World, patience_s: f64) -> Next {
    if is_suspended(loan, world) {
        return Next::Wait;
    }
    let late = now_s - loan.state_s.max(world.counts_from_s) > patience_s;
    let lender = world.lender.as_ref().filter(|j| is_lender(j, loan));
    let borrowers = chosen::next(now_s, loan, world, patience_s);
    match (loan.state, lender) {
        (LoanState::Closed | LoanState::Failed, _) => Next::Wait,
        (LoanState::Closing, lender) => borrowers.unwrap_or_else(|| closing(now_s, loan, lender, world)),
        // What is left of the loan then is swept up, as after a crash: the lender does not stand still for it.
        (LoanState::Failing, Some(_)) if late => {
            become_(LoanState::Failed, "the nodes did not come back, and Slurm did not requeue the lender's job")
        }
        (LoanState::Failing, lender) => borrowers.unwrap_or_else(|| failing(lender, world)),
        (_, None) => become_(LoanState::Closing, "the lender's job is gone"),
        (LoanState::Asked, _) if late => become_(LoanState::Closing, "Slurm did not make the reservation"),
        // Who asked may have got no answer, and takes the nodes for its own from then on.
        (LoanState::Asked, _) if now_s >= due_s(loan, world) => become_(LoanState::Closing, EXPIRED),
        (LoanState::Asked, _) if world.reservation.is_some() => become_(LoanState::Shrinking, "the return is reserved"),
        (LoanState::Asked, _) => Next::Do(Act::Reserve),
        (LoanState::Shrinking, Some(job)) => shrinking(now_s, loan, job, world, late),
        (LoanState::Lent, Some(job)) => or(lent(now_s, loan, job, world), borrowers),
        // Nobody is told to go before the nodes are kept for the lender.
        (LoanState::Returning, Some(job)) => or(returning(now_s, loan, job, world, patience_s), borrowers),
        (LoanState::Growing, Some(job)) => or(growing(loan, job, world, late), borrowers),
    }
}

/// What is next, or else what is next for the borrowers.
fn or(next: Next, borrowers: Option<Next>) -> Next {
    if next == Next::Wait { borrowers.unwrap_or(Next::Wait) } else { next }
}

/// Whether a job is still the life of it that lent.
fn is_lender(job: &Job, loan: &Loan) -> bool {
    job.is_life(loan.uid, loan.restart_count)
}

/// Whether the lender stands still for now, by an operator or for another job: it can do nothing for its return, and
/// Slurm neither shrinks nor expands it.
pub fn is_suspended(loan: &Loan, world: &World) -> bool {
    world.lender.as_ref().is_some_and(|j| is_lender(j, loan) && j.state == JobState::Suspended)
}

/// When the nodes are called back, s since the epoch: as the lender expects, and before its time is up.
pub fn due_s(loan: &Loan, world: &World) -> f64 {
    let end_s = world.lender.as_ref().and_then(|j| j.end_s);
    end_s.map_or(loan.return_s, |end_s| loan.return_s.min(end_s - HANDING_S))
}

/// The lent nodes that can come back: neither dead nor drained.
pub fn alive(loan: &Loan, world: &World) -> Vec<String> {
    loan.nodes.iter().filter(|n| !world.down.contains(*n)).cloned().collect()
}

/// Those of them that the lender has not: what its helper asks for. One that was dead may be back after the others.
pub fn missing(loan: &Loan, world: &World) -> Vec<String> {
    let has = |n: &String| world.lender.as_ref().is_some_and(|j| j.nodes.contains(n));
    alive(loan, world).into_iter().filter(|n| !has(n)).collect()
}

/// What the lender's job has beside the nodes that it lends.
pub fn kept(loan: &Loan, world: &World) -> Vec<String> {
    let nodes = world.lender.iter().flat_map(|j| &j.nodes);
    nodes.filter(|n| !loan.nodes.contains(n)).cloned().collect()
}

fn become_(state: LoanState, why: &str) -> Next {
    Next::Become(state, why.to_string())
}

fn holds(job: &Job, nodes: &[String]) -> bool {
    nodes.iter().all(|n| job.nodes.contains(n))
}

fn shrinking(now_s: f64, loan: &Loan, lender: &Job, world: &World, late: bool) -> Next {
    if !has_some(lender, loan) {
        return become_(LoanState::Lent, "the lender has given its nodes up");
    }
    if late {
        return become_(LoanState::Closing, "Slurm did not shrink the lender's job");
    }
    let is_again = loan.lent_s.is_some();
    if !is_again && now_s >= due_s(loan, world) {
        return become_(LoanState::Closing, EXPIRED);
    }
    if is_again && now_s < loan.state_s + STRAYS_S { Next::Wait } else { Next::Do(Act::Shrink) }
}

fn lent(now_s: f64, loan: &Loan, lender: &Job, world: &World) -> Next {
    // A slurmctld that was killed before it wrote the shrink down. It counts the steps on the nodes as running, too,
    // until they leave the job once more.
    let has_forgotten = has_some(lender, loan);
    if now_s >= due_s(loan, world) && (!has_forgotten || world.unheard) {
        return become_(LoanState::Returning, "the lender needs its nodes");
    }
    if alive(loan, world).is_empty() {
        return become_(LoanState::Closing, "every lent node is out of service");
    }
    match &world.reservation {
        None => Next::Do(Act::Reserve),
        Some(_) if has_forgotten && world.unheard => Next::Wait,
        Some(_) if has_forgotten => become_(LoanState::Shrinking, "Slurm has forgotten that the nodes are lent"),
        Some(r) if (r.start_s - due_s(loan, world)).abs() > SAME_S => Next::Do(Act::MoveWindow),
        Some(_) => Next::Wait,
    }
}

/// Whether the lender's job has any of the nodes that it lends.
fn has_some(lender: &Job, loan: &Loan) -> bool {
    lender.nodes.iter().any(|n| loan.nodes.contains(n))
}

fn returning(now_s: f64, loan: &Loan, lender: &Job, world: &World, patience_s: f64) -> Next {
    let alive = alive(loan, world);
    if alive.is_empty() {
        return become_(LoanState::Closing, "every lent node is out of service");
    }
    // Also merged by an earlier life of this service, or by hand.
    if holds(lender, &alive) {
        return become_(LoanState::Growing, "the lender has its nodes");
    }
    // Whoever was let in for the window may stay until its time limit, also when the lender is early.
    let since_s = latest_end_s(loan, world).max(loan.state_s).max(world.counts_from_s);
    let late = now_s > since_s.max(chosen::gone_s(loan, world, patience_s)) + patience_s;
    // One that ends while the nodes are waited for would let anybody in.
    let keeps =
        |r: &Reservation| r.users.contains(&loan.user) && r.start_s <= now_s + SAME_S && r.end_s >= now_s + patience_s;
    if !late && !world.reservation.as_ref().is_some_and(keeps) {
        let act = if world.reservation.is_some() { Act::Admit } else { Act::Reserve };
        return Next::Do(act);
    }
    if world.helper.as_ref().is_some_and(|h| h.state == JobState::Running && holds(h, &missing(loan, world))) {
        return become_(LoanState::Growing, "the helper has the nodes");
    }
    if late {
        return become_(LoanState::Failing, &format!("{} did not come back in time", alive.join(",")));
    }
    match world.helper.as_ref().filter(|h| h.has_flag(HELD_WITHOUT_RESERVATION)) {
        // Slurm would hold it for ever: the lender asks for another.
        Some(helper) => Next::Do(Act::EndHelper { helper: helper.id }),
        None => Next::Wait,
    }
}

/// When the last borrower that was let in for the window ends at the latest, s since the epoch.
fn latest_end_s(loan: &Loan, world: &World) -> f64 {
    let ends_s = world.borrowers.iter().filter_map(|j| j.end_s.filter(|_| fits(j, loan)));
    ends_s.fold(f64::NEG_INFINITY, f64::max)
}

/// Whether a borrower's time limit ends when the nodes were promised, to Slurm's minute.
fn fits(job: &Job, loan: &Loan) -> bool {
    job.end_s.is_some_and(|end_s| end_s <= loan.promised_s + MINUTE_S)
}

/// How long a reservation that begins at `from_s` keeps the nodes, min: until whoever was let in for the window has
/// gone, and as long again as others may be late. Slurm removes it then by itself if this service never comes back.
pub fn kept_min(now_s: f64, from_s: f64, loan: &Loan, world: &World, patience_s: f64) -> u32 {
    let until_s = (latest_end_s(loan, world) + MINUTE_S).max(now_s).max(from_s);
    let late_min = (patience_s / MINUTE_S).ceil() * 2.0 + 5.0;
    (((until_s - from_s) / MINUTE_S).ceil() + late_min) as u32
}

fn growing(loan: &Loan, lender: &Job, world: &World, late: bool) -> Next {
    if holds(lender, &alive(loan, world)) {
        return become_(LoanState::Closing, "the lender has its nodes");
    }
    match world.helper.as_ref().filter(|h| h.state == JobState::Running && !h.nodes.is_empty()) {
        // It ended, or a node of it died: the lender asks for another.
        None => become_(LoanState::Returning, "the helper is gone"),
        // A slurmctld that began later has forgotten whose helper it is, and merges it into no job.
        Some(helper) if helper.submit_s.is_some_and(|s| s <= world.booted_s) => {
            Next::Do(Act::EndHelper { helper: helper.id })
        }
        Some(_) if late => become_(LoanState::Failing, "Slurm did not merge the helper into the lender's job"),
        Some(helper) => Next::Do(Act::Merge { helper: helper.id }),
    }
}

/// The reservation keeps the nodes for the lender until Slurm has written down that they are its own: a slurmctld that is
/// killed before that takes them from it again, and whatever runs there with them.
fn closing(now_s: f64, loan: &Loan, lender: Option<&Job>, world: &World) -> Next {
    if let Some(lender) = lender {
        if alive(loan, world).iter().any(|n| loan.back.contains(n) && !lender.nodes.contains(n)) {
            return become_(LoanState::Returning, "Slurm has forgotten that the nodes are back");
        }
        if let Some(minutes) = longer_limit_min(loan, lender, world.longest_limit_s) {
            return Next::Do(Act::Lengthen { minutes });
        }
        if loan.back_s.is_some_and(|back_s| now_s < back_s + WRITTEN_S) {
            return Next::Wait;
        }
    }
    match leftovers(world) {
        Some(act) => Next::Do(act),
        None => Next::Become(LoanState::Closed, loan.reason.clone()),
    }
}

fn failing(lender: Option<&Job>, world: &World) -> Next {
    if let Some(act) = leftovers(world) {
        return Next::Do(act);
    }
    match lender {
        // Its owner may have changed his mind since: Slurm would refuse for ever.
        Some(job) if !job.requeue => {
            become_(LoanState::Failed, "the nodes did not come back, and the lender's job may not be requeued any more")
        }
        Some(_) => Next::Do(Act::Requeue),
        None => become_(LoanState::Failed, "the nodes did not come back: the lender's job was requeued"),
    }
}

fn leftovers(world: &World) -> Option<Act> {
    match (&world.helper, &world.reservation) {
        (Some(helper), _) => Some(Act::EndHelper { helper: helper.id }),
        (None, Some(_)) => Some(Act::Unreserve),
        (None, None) => None,
    }
}

/// The lender's time limit of before the loan with the time without its nodes added, if it has not that much; at most
/// what its partition gives anybody. A limit that somebody has lowered meanwhile stays as it is.
fn longer_limit_min(loan: &Loan, lender: &Job, longest_limit_s: Option<u64>) -> Option<u64> {
    let (before_s, limit_s) = (loan.time_limit_s?, lender.time_limit_s?);
    let away_s = (loan.back_s? - loan.lent_s?).max(0.0);
    let minutes = ((before_s as f64 + away_s) / MINUTE_S).ceil() as u64;
    let minutes = longest_limit_s.map_or(minutes, |longest_s| minutes.min(longest_s / 60));
    (limit_s >= before_s && limit_s < minutes * 60).then_some(minutes)
}

/// The loan that tests of several rooms know.
#[cfg(test)]
pub(crate) fn example() -> Loan {
    serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap()
}

#[cfg(test)]
mod tests;
