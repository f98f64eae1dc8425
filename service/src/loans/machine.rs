//! Says what a loan does next, from its state on disk and what Slurm shows: pure, so that any crash is only a pause.
//!
//! A state is on disk before anything of it is done, and everything done in a state is told from what Slurm shows:
//! after a crash at any point the same look leads to the same act, or finds it done.

use super::chosen::{self, Deed, Sight};
use protocol::{ChosenState, Loan, LoanState};
use slurm::{Job, JobState, Reservation, WRITTEN_S};
use std::collections::{BTreeMap, BTreeSet};

/// How far the reservation may begin from the expected return before it is moved, s.
const SAME_S: f64 = 2.0;

/// How long slurmctld, when it hears of a node again, takes to end the jobs there that it has forgotten, s. It drains a
/// node on which it begins such a job once more before that.
const STRAYS_S: f64 = 3.0;

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
    pub chosen: BTreeMap<u32, Sight>,
    /// Nodes that are out of service.
    pub down: BTreeSet<String>,
    /// Whether slurmctld has not heard of some of the lent nodes since it began.
    pub unheard: bool,
    /// When it began; looked up only while the nodes are merged.
    pub booted_s: f64,
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
        /// What.
        deed: Deed,
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
        /// Why.
        reason: String,
    },
    /// Look again later.
    Wait,
}

/// What a loan does next. `patience_s`: how late others may be.
pub fn next(now_s: f64, loan: &Loan, world: &World, patience_s: f64) -> Next {
    let late = now_s - loan.state_s > patience_s;
    let lender = world.lender.as_ref().filter(|j| is_lender(j, loan));
    let borrowers = chosen::next(now_s, loan, world, patience_s);
    match (loan.state, lender) {
        (LoanState::Closed | LoanState::Failed, _) => Next::Wait,
        (LoanState::Closing, lender) => borrowers.unwrap_or_else(|| closing(now_s, loan, lender, world)),
        (LoanState::Failing, lender) => borrowers.unwrap_or_else(|| failing(lender, world)),
        (_, None) => become_(LoanState::Closing, "the lender's job is gone"),
        (LoanState::Asked, _) if late => become_(LoanState::Closing, "Slurm did not make the reservation"),
        (LoanState::Asked, _) if world.reservation.is_some() => become_(LoanState::Shrinking, "the return is reserved"),
        (LoanState::Asked, _) => Next::Do(Act::Reserve),
        (LoanState::Shrinking, Some(job)) => shrinking(now_s, loan, job, late),
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
    job.uid == loan.uid && job.restarts == loan.restart_count && job.state == JobState::Running
}

/// The lent nodes that can come back.
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

fn shrinking(now_s: f64, loan: &Loan, lender: &Job, late: bool) -> Next {
    if !has_some(lender, loan) {
        return become_(LoanState::Lent, "the lender has given its nodes up");
    }
    if late {
        return become_(LoanState::Closing, "Slurm did not shrink the lender's job");
    }
    let is_again = loan.lent_s.is_some();
    if is_again && now_s < loan.state_s + STRAYS_S { Next::Wait } else { Next::Do(Act::Shrink) }
}

fn lent(now_s: f64, loan: &Loan, lender: &Job, world: &World) -> Next {
    // A slurmctld that was killed before it wrote the shrink down. It counts the steps on the nodes as running, too,
    // until they leave the job once more.
    let has_forgotten = has_some(lender, loan);
    if now_s >= loan.return_s && (!has_forgotten || world.unheard) {
        return become_(LoanState::Returning, "the lender needs its nodes");
    }
    if alive(loan, world).is_empty() {
        return become_(LoanState::Closing, "every lent node is out of service");
    }
    match &world.reservation {
        None => Next::Do(Act::Reserve),
        Some(_) if has_forgotten && world.unheard => Next::Wait,
        Some(_) if has_forgotten => become_(LoanState::Shrinking, "Slurm has forgotten that the nodes are lent"),
        Some(r) if (r.start_s - loan.return_s).abs() > SAME_S => Next::Do(Act::MoveWindow),
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
    let open = |r: &&Reservation| r.users.contains(&loan.user) && r.start_s <= now_s + SAME_S;
    if world.reservation.as_ref().filter(open).is_none() {
        let act = if world.reservation.is_some() { Act::Admit } else { Act::Reserve };
        return Next::Do(act);
    }
    if world.helper.as_ref().is_some_and(|h| h.state == JobState::Running && holds(h, &missing(loan, world))) {
        return become_(LoanState::Growing, "the helper has the nodes");
    }
    // Whoever was let in for the window may stay until its time limit, also when the lender is early.
    let ends_s = world.borrowers.iter().filter_map(|j| j.end_s.filter(|_| fits(j, loan)));
    let until_s = ends_s.fold(loan.state_s, f64::max).max(chosen::gone_s(loan, world, patience_s));
    if now_s > until_s + patience_s {
        return become_(LoanState::Failing, &format!("{} did not come back in time", alive.join(",")));
    }
    Next::Wait
}

/// Whether a borrower's time limit ends when the nodes were promised, to Slurm's minute.
fn fits(job: &Job, loan: &Loan) -> bool {
    job.end_s.is_some_and(|end_s| end_s <= loan.promised_s + 60.0)
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
        if let Some(minutes) = longer_limit_min(loan, lender) {
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

/// The lender's time limit with the time without its nodes added, if it has not that much.
fn longer_limit_min(loan: &Loan, lender: &Job) -> Option<u64> {
    let away_s = loan.back_s? - loan.lent_s?;
    let minutes = (loan.time_limit_s? as f64 + away_s).max(0.0) / 60.0;
    let minutes = minutes.ceil() as u64;
    (lender.time_limit_s? < minutes * 60).then_some(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{LoanMode, RunKey};

    const PATIENCE_S: f64 = 30.0;

    fn names(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    fn loan(state: LoanState) -> Loan {
        Loan {
            id: "a".into(),
            name: "joulepoint_a".into(),
            key: RunKey { cluster: "c".into(), run: "7.1".into() },
            job: 7,
            restart_count: 0,
            uid: 1000,
            user: "alice".into(),
            account: "physics".into(),
            mode: LoanMode::Window,
            state,
            state_s: 1000.0,
            reason: "it pays".into(),
            nodes: names("n3 n4"),
            kept: names("n1 n2"),
            asked_s: 990.0,
            return_s: 1100.0,
            promised_s: 1100.0,
            lent_s: Some(1000.0),
            back_s: None,
            back: Vec::new(),
            time_limit_s: Some(600),
            idle_w: 100.0,
            stays: Vec::new(),
            chosen: Vec::new(),
        }
    }

    fn job(id: u32, uid: u32, state: &str, nodes: &str, more: &str) -> Job {
        let line =
            format!("JobId={id} JobName=j UserId=u({uid}) GroupId=g(1) JobState={state} NodeList={nodes} {more}");
        slurm::parse_job(&line, id).unwrap().unwrap()
    }

    fn lender(nodes: &str) -> Option<Job> {
        Some(job(7, 1000, "RUNNING", nodes, "TimeLimit=00:10:00 Restarts=0"))
    }

    fn helper(state: &str, nodes: &str) -> Option<Job> {
        Some(job(9, 1000, state, nodes, ""))
    }

    fn reservation(start_s: f64, users: &str) -> Option<Reservation> {
        Some(Reservation { name: "r".into(), nodes: names("n3 n4"), start_s, end_s: 1e9, users: names(users) })
    }

    fn world(nodes: &str) -> World {
        World { lender: lender(nodes), ..World::default() }
    }

    /// One whose nodes are the lender's again.
    fn back() -> Loan {
        Loan { back_s: Some(1130.0), back: names("n3 n4"), ..loan(LoanState::Closing) }
    }

    fn becomes(next: &Next, state: LoanState) -> bool {
        matches!(next, Next::Become(s, why) if *s == state && !why.is_empty())
    }

    #[test]
    fn a_loan_goes_its_whole_way() {
        use LoanState::*;
        let mut w = world("n[1-4]");
        let at = |now_s: f64, state, w: &World| next(now_s, &loan(state), w, PATIENCE_S);
        assert_eq!(at(1001.0, Asked, &w), Next::Do(Act::Reserve));
        w.reservation = reservation(1100.0, "root");
        assert!(becomes(&at(1001.0, Asked, &w), Shrinking));
        let first = Loan { lent_s: None, ..loan(Shrinking) };
        assert_eq!(next(1001.0, &first, &w, PATIENCE_S), Next::Do(Act::Shrink));
        w.lender = lender("n[1-2]");
        assert!(becomes(&at(1001.0, Shrinking, &w), Lent));
        assert_eq!(at(1050.0, Lent, &w), Next::Wait);
        w.reservation = reservation(1200.0, "root");
        assert_eq!(at(1050.0, Lent, &w), Next::Do(Act::MoveWindow));
        assert!(becomes(&at(1100.0, Lent, &w), Returning));
        assert_eq!(at(1001.0, Returning, &w), Next::Do(Act::Admit));
        w.reservation = reservation(1000.0, "root alice");
        assert_eq!(at(1001.0, Returning, &w), Next::Wait);
        w.helper = helper("PENDING", "");
        assert_eq!(at(1001.0, Returning, &w), Next::Wait);
        w.helper = helper("RUNNING", "n[3-4]");
        assert!(becomes(&at(1001.0, Returning, &w), Growing));
        assert_eq!(at(1001.0, Growing, &w), Next::Do(Act::Merge { helper: 9 }));
        (w.lender, w.helper) = (lender("n[1-4]"), None);
        assert!(becomes(&at(1001.0, Growing, &w), Closing));
        let at = |now_s: f64, w: &World| next(now_s, &back(), w, PATIENCE_S);
        assert_eq!(at(1131.0, &w), Next::Do(Act::Lengthen { minutes: 13 }), "10 min and 130 s");
        w.lender = Some(job(7, 1000, "RUNNING", "n[1-4]", "TimeLimit=00:13:00 Restarts=0"));
        assert_eq!(at(1130.0 + WRITTEN_S - 0.1, &w), Next::Wait, "Slurm may forget it all");
        assert_eq!(at(1130.0 + WRITTEN_S, &w), Next::Do(Act::Unreserve));
        w.reservation = None;
        assert!(becomes(&at(1130.0 + WRITTEN_S, &w), Closed));
    }

    #[test]
    fn every_state_has_a_way_out_when_the_lender_is_gone() {
        use LoanState::*;
        let gone = [
            None,
            Some(job(7, 1000, "CANCELLED", "n[1-2]", "Restarts=0")),
            Some(job(7, 1000, "RUNNING", "n[1-2]", "Restarts=1")),
            Some(job(7, 1001, "RUNNING", "n[1-2]", "Restarts=0")),
        ];
        for lender in gone {
            for state in [Asked, Shrinking, Lent, Returning, Growing] {
                let w = World { lender: lender.clone(), ..World::default() };
                assert!(becomes(&next(1001.0, &loan(state), &w, PATIENCE_S), Closing), "{state:?}");
            }
            let mut w = World { lender, helper: helper("PENDING", ""), ..World::default() };
            w.reservation = reservation(1000.0, "root alice");
            for (state, end) in [(Closing, Closed), (Failing, Failed)] {
                let mut left = w.clone();
                assert_eq!(next(1e9, &loan(state), &left, PATIENCE_S), Next::Do(Act::EndHelper { helper: 9 }));
                left.helper = None;
                assert_eq!(next(1e9, &loan(state), &left, PATIENCE_S), Next::Do(Act::Unreserve));
                left.reservation = None;
                assert!(becomes(&next(1e9, &loan(state), &left, PATIENCE_S), end));
            }
        }
    }

    #[test]
    fn no_state_waits_for_ever() {
        use LoanState::*;
        let mut stuck = world("n[1-4]");
        assert!(becomes(&next(1031.0, &loan(Asked), &stuck, PATIENCE_S), Closing));
        assert!(becomes(&next(1031.0, &loan(Shrinking), &stuck, PATIENCE_S), Closing), "nothing was lent");
        stuck.lender = lender("n[1-2]");
        stuck.reservation = reservation(1000.0, "root alice");
        stuck.helper = helper("RUNNING", "n[3-4]");
        assert!(becomes(&next(1031.0, &loan(Growing), &stuck, PATIENCE_S), Failing));
        stuck.helper = helper("PENDING", "");
        let late = Loan { return_s: 1000.0, promised_s: 1000.0, ..loan(Returning) };
        assert!(becomes(&next(1031.0, &late, &stuck, PATIENCE_S), Failing), "nobody is there, and yet no nodes");
        stuck.borrowers = vec![job(8, 1001, "RUNNING", "n3", "EndTime=9000")];
        assert_eq!(next(1025.0, &late, &stuck, PATIENCE_S), Next::Wait);
        assert!(becomes(&next(1031.0, &late, &stuck, PATIENCE_S), Failing), "its limit was raised");
        stuck.borrowers = vec![job(8, 1001, "RUNNING", "n3", "EndTime=1040")];
        assert_eq!(next(1045.0, &late, &stuck, PATIENCE_S), Next::Wait, "a borrower that fits ends by itself");
        assert!(becomes(&next(1071.0, &late, &stuck, PATIENCE_S), Failing), "a borrower that will not stop");
        (stuck.helper, stuck.reservation) = (None, None);
        assert_eq!(next(1.0, &loan(Failing), &stuck, PATIENCE_S), Next::Do(Act::Requeue));
    }

    #[test]
    fn a_shrink_that_slurm_has_forgotten_is_done_again_before_anything_else() {
        let mut w = world("n[1-4]");
        for now_s in [1050.0, 1150.0] {
            w.reservation = None;
            assert_eq!(next(now_s, &loan(LoanState::Lent), &w, PATIENCE_S), Next::Do(Act::Reserve));
            w.reservation = reservation(1100.0, "root");
            assert!(becomes(&next(now_s, &loan(LoanState::Lent), &w, PATIENCE_S), LoanState::Shrinking));
        }
        assert_eq!(next(1001.0, &loan(LoanState::Shrinking), &w, PATIENCE_S), Next::Wait, "strays are being ended");
        assert_eq!(next(1004.0, &loan(LoanState::Shrinking), &w, PATIENCE_S), Next::Do(Act::Shrink));
        w.unheard = true;
        assert_eq!(next(1050.0, &loan(LoanState::Lent), &w, PATIENCE_S), Next::Wait);
        assert!(becomes(&next(1150.0, &loan(LoanState::Lent), &w, PATIENCE_S), LoanState::Returning));
    }

    #[test]
    fn a_merge_that_slurm_has_forgotten_is_done_again() {
        let mut w = world("n[1-2]");
        (w.reservation, w.helper) = (reservation(1000.0, "root alice"), helper("RUNNING", "n[3-4]"));
        for now_s in [1131.0, 1231.0] {
            assert!(becomes(&next(now_s, &back(), &w, PATIENCE_S), LoanState::Returning), "before anything is removed");
        }
        assert!(becomes(&next(1131.0, &loan(LoanState::Returning), &w, PATIENCE_S), LoanState::Growing));
        w.helper.as_mut().unwrap().submit_s = Some(1010.0);
        for (booted_s, act) in [(1009.0, Act::Merge { helper: 9 }), (1010.0, Act::EndHelper { helper: 9 })] {
            w.booted_s = booted_s;
            assert_eq!(next(1020.0, &loan(LoanState::Growing), &w, PATIENCE_S), Next::Do(act), "{booted_s}");
        }
        w.down = names("n3 n4").into_iter().collect();
        w.lender = Some(job(7, 1000, "RUNNING", "n[1-2]", "TimeLimit=01:00:00 Restarts=0"));
        assert_eq!(next(1231.0, &back(), &w, PATIENCE_S), Next::Do(Act::EndHelper { helper: 9 }), "they have died");
    }

    #[test]
    fn a_dead_node_is_not_waited_for() {
        let mut w = world("n[1-2]");
        w.reservation = reservation(1000.0, "root alice");
        w.down = names("n4").into_iter().collect();
        w.helper = helper("RUNNING", "n3");
        assert!(becomes(&next(1001.0, &loan(LoanState::Returning), &w, PATIENCE_S), LoanState::Growing));
        w.lender = lender("n[1-3]");
        assert!(becomes(&next(1001.0, &loan(LoanState::Growing), &w, PATIENCE_S), LoanState::Closing));
        w.down = names("n3 n4").into_iter().collect();
        w.lender = lender("n[1-2]");
        for state in [LoanState::Lent, LoanState::Returning] {
            assert!(becomes(&next(1001.0, &loan(state), &w, PATIENCE_S), LoanState::Closing), "{state:?}");
        }
    }

    #[test]
    fn a_node_that_is_back_after_the_others_is_asked_for_alone() {
        let mut w = world("n[1-3]");
        w.reservation = reservation(1000.0, "root alice");
        assert!(becomes(&next(1001.0, &loan(LoanState::Growing), &w, PATIENCE_S), LoanState::Returning));
        assert_eq!(missing(&loan(LoanState::Returning), &w), ["n4"]);
        w.helper = helper("RUNNING", "n4");
        assert!(becomes(&next(1001.0, &loan(LoanState::Returning), &w, PATIENCE_S), LoanState::Growing));
    }

    #[test]
    fn a_reservation_that_somebody_removed_is_made_again() {
        for state in [LoanState::Lent, LoanState::Returning] {
            assert_eq!(next(1001.0, &loan(state), &world("n[1-2]"), PATIENCE_S), Next::Do(Act::Reserve));
        }
    }
}
