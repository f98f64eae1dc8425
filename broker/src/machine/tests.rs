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
    Some(job(7, 1000, "RUNNING", nodes, "TimeLimit=00:10:00 Restarts=0 Requeue=1"))
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
    (stuck.reservation, stuck.borrowers) = (reservation(1000.0, "root"), Vec::new());
    assert_eq!(next(1025.0, &late, &stuck, PATIENCE_S), Next::Do(Act::Admit));
    assert!(becomes(&next(1031.0, &late, &stuck, PATIENCE_S), Failing), "Slurm does not let the lender in");
}

#[test]
fn a_lender_that_slurm_does_not_requeue_is_told_so() {
    let failing = loan(LoanState::Failing);
    let mut w = world("n[1-2]");
    w.reservation = reservation(1000.0, "root alice");
    assert_eq!(next(1030.0, &failing, &w, PATIENCE_S), Next::Do(Act::Unreserve));
    assert!(becomes(&next(1031.0, &failing, &w, PATIENCE_S), LoanState::Failed), "whatever is left");
    w.reservation = None;
    assert_eq!(next(1030.0, &failing, &w, PATIENCE_S), Next::Do(Act::Requeue));
    assert!(becomes(&next(1031.0, &failing, &w, PATIENCE_S), LoanState::Failed), "Slurm refuses");
    w.lender = Some(job(7, 1000, "RUNNING", "n[1-2]", "Restarts=0 Requeue=0"));
    assert!(becomes(&next(1001.0, &failing, &w, PATIENCE_S), LoanState::Failed), "its owner forbids it");
    w.reservation = reservation(1000.0, "root alice");
    assert_eq!(next(1001.0, &failing, &w, PATIENCE_S), Next::Do(Act::Unreserve), "nothing is left behind");
}

#[test]
fn a_suspended_lender_is_waited_for_and_nothing_is_done() {
    use LoanState::*;
    let states = [Asked, Shrinking, Lent, Returning, Growing, Closing, Failing];
    let suspended = World {
        lender: Some(job(7, 1000, "SUSPENDED", "n[1-2]", "TimeLimit=00:10:00 Restarts=0 Requeue=1")),
        helper: helper("RUNNING", "n[3-4]"),
        ..World::default()
    };
    for state in states {
        assert_eq!(next(9000.0, &loan(state), &suspended, PATIENCE_S), Next::Wait, "{state:?}");
    }
    // As soon as it goes on, everything has its time again.
    let resumed = World { lender: lender("n[1-2]"), counts_from_s: 9000.0, ..suspended };
    let merge = Next::Do(Act::Merge { helper: 9 });
    assert_eq!(next(9030.0, &loan(Growing), &resumed, PATIENCE_S), merge);
    assert!(becomes(&next(9031.0, &loan(Growing), &resumed, PATIENCE_S), Failing));
}

#[test]
fn nobody_is_late_while_nobody_looks() {
    use LoanState::*;
    let mut w = World { counts_from_s: 1400.0, ..world("n[1-2]") };
    (w.reservation, w.helper) = (reservation(1000.0, "root alice"), helper("PENDING", ""));
    assert_eq!(next(1430.0, &loan(Returning), &w, PATIENCE_S), Next::Wait);
    assert!(becomes(&next(1431.0, &loan(Returning), &w, PATIENCE_S), Failing));
    w.lender = lender("n[1-4]");
    let first = |state| Loan { lent_s: None, return_s: 2000.0, ..loan(state) };
    assert_eq!(next(1430.0, &first(Shrinking), &w, PATIENCE_S), Next::Do(Act::Shrink));
    assert!(becomes(&next(1431.0, &first(Shrinking), &w, PATIENCE_S), Closing));
    w.reservation = None;
    assert_eq!(next(1430.0, &first(Asked), &w, PATIENCE_S), Next::Do(Act::Reserve));
    assert!(becomes(&next(1431.0, &first(Asked), &w, PATIENCE_S), Closing));
}

#[test]
fn what_was_not_lent_before_the_return_is_lent_no_more() {
    use LoanState::*;
    // Nobody has looked for long: whoever asked has the nodes for its own by now.
    let mut w = World { counts_from_s: 5000.0, ..world("n[1-4]") };
    let first = |state| Loan { lent_s: None, ..loan(state) };
    for reserved in [None, reservation(1100.0, "root")] {
        w.reservation = reserved;
        for state in [Asked, Shrinking] {
            assert!(becomes(&next(5000.0, &first(state), &w, PATIENCE_S), Closing), "{state:?}");
        }
    }
    assert_eq!(next(5000.0, &loan(Shrinking), &w, PATIENCE_S), Next::Do(Act::Shrink), "what Slurm has forgotten is");
    w.lender = lender("n[1-2]");
    assert!(becomes(&next(5000.0, &first(Shrinking), &w, PATIENCE_S), Lent), "they are away");
}

#[test]
fn the_nodes_are_called_back_before_the_lenders_time_is_up() {
    use LoanState::*;
    let ends = |end_s: u32, nodes: &str| {
        let more = format!("TimeLimit=00:10:00 Restarts=0 Requeue=1 EndTime={end_s}");
        World { lender: Some(job(7, 1000, "RUNNING", nodes, &more)), ..World::default() }
    };
    let mut w = ends(1068, "n[1-2]");
    assert_eq!(due_s(&loan(Lent), &w), 1050.0, "Slurm needs 18 s");
    w.reservation = reservation(1100.0, "root");
    assert_eq!(next(1010.0, &loan(Lent), &w, PATIENCE_S), Next::Do(Act::MoveWindow), "nobody is let in for longer");
    w.reservation = reservation(1050.0, "root");
    assert_eq!(next(1049.0, &loan(Lent), &w, PATIENCE_S), Next::Wait);
    assert!(becomes(&next(1050.0, &loan(Lent), &w, PATIENCE_S), Returning));
    assert_eq!(due_s(&loan(Lent), &ends(9000, "n[1-2]")), 1100.0);
    let asked = Loan { lent_s: None, ..loan(Asked) };
    assert!(becomes(&next(1010.0, &asked, &ends(1020, "n[1-4]"), PATIENCE_S), Closing));
}

#[test]
fn the_reservation_lasts_as_long_as_the_nodes_are_waited_for() {
    let returning = Loan { promised_s: 4000.0, ..loan(LoanState::Returning) };
    let mut w = world("n[1-2]");
    let minutes = |now_s: f64, from_s: f64, w: &World| kept_min(now_s, from_s, &returning, w, PATIENCE_S);
    assert_eq!(minutes(1000.0, 1000.0, &w), 7, "twice the patience, and five minutes");
    assert_eq!(minutes(1000.0, 1300.0, &w), 7, "from its beginning on");
    assert_eq!(minutes(1600.0, 1000.0, &w), 17, "it has begun ten minutes ago");
    w.borrowers = vec![job(8, 1001, "RUNNING", "n3", "EndTime=4000"), job(10, 1001, "RUNNING", "n4", "EndTime=9000")];
    assert_eq!(minutes(1000.0, 1000.0, &w), 51 + 7, "a borrower that fits has 50 minutes left");
    w.helper = helper("PENDING", "");
    for (end_s, expected) in [(1129.0, Next::Do(Act::Admit)), (1130.0, Next::Wait)] {
        w.reservation = reservation(1000.0, "root alice");
        w.reservation.iter_mut().for_each(|r| r.end_s = end_s);
        assert_eq!(next(1100.0, &returning, &w, PATIENCE_S), expected, "{end_s}");
    }
}

#[test]
fn a_helper_that_slurm_holds_for_want_of_its_reservation_is_ended() {
    let mut w = world("n[1-2]");
    (w.reservation, w.helper) = (reservation(1000.0, "root alice"), helper("RESV_DEL_HOLD", ""));
    assert_eq!(next(1001.0, &loan(LoanState::Returning), &w, PATIENCE_S), Next::Do(Act::EndHelper { helper: 9 }));
}

#[test]
fn the_time_limit_grows_by_the_time_away_and_no_further() {
    let with = |limit: &str, longest_limit_s: Option<u64>| {
        let more = format!("TimeLimit={limit} Restarts=0 Requeue=1");
        let lender = Some(job(7, 1000, "RUNNING", "n[1-4]", &more));
        next(1131.0, &back(), &World { lender, longest_limit_s, ..World::default() }, PATIENCE_S)
    };
    let lengthens = |minutes| Next::Do(Act::Lengthen { minutes });
    assert_eq!(with("00:10:00", None), lengthens(13));
    assert_eq!(with("00:11:00", None), lengthens(13), "somebody has raised it, by less");
    assert_eq!(with("00:09:00", None), Next::Wait, "somebody has lowered it");
    assert_eq!(with("00:20:00", None), Next::Wait);
    assert_eq!(with("UNLIMITED", None), Next::Wait);
    assert_eq!(with("00:10:00", Some(720)), lengthens(12), "its partition gives nobody more");
    assert_eq!(with("00:10:00", Some(600)), Next::Wait);
    assert_eq!(with("00:10:00", Some(0)), Next::Wait, "the partition's limit is not known now");
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
