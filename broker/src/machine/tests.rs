//! Each state's way out.

use super::*;

const PATIENCE_S: f64 = 30.0;

fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

fn loan(state: LoanState) -> Loan {
    Loan {
        state,
        state_s: 1000.0,
        nodes: names("n3 n4"),
        kept: names("n1 n2"),
        asked_s: 990.0,
        return_s: 1100.0,
        promised_s: 1100.0,
        lent_s: Some(1000.0),
        back_s: None,
        back: Vec::new(),
        time_limit_s: Some(600),
        stays: Vec::new(),
        ..example()
    }
}

fn job(id: u32, uid: u32, state: &str, nodes: &str, more: &str) -> Job {
    let line = format!("JobId={id} JobName=j UserId=u({uid}) GroupId=g(1) JobState={state} NodeList={nodes} {more}");
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
