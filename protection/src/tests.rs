//! What a user is told of the protection of a run, as it changes.

use super::*;

fn guard(on_demand: bool, groups: usize) -> Guard {
    let cure = "say --ft-energy-done=FILES".into();
    let protection = Protection { engine: "app".into(), cure, ..Protection::default() };
    let prospect = Prospect { protection, looks_for: "'*.cpt' in /job".into(), ..Prospect::default() };
    Guard::new(&prospect, on_demand, groups, 0.0, 100.0)
}

fn committed(group: usize, number: u64, begun_s: f64) -> Committed {
    Committed { group, number, begun_s, interval_s: 100.0, checkpoint_s: 5.0 }
}

#[test]
fn a_run_is_protected_from_its_first_checkpoint_on_and_groups_from_that_of_the_last() {
    let mut one = guard(true, 1);
    one.begins(100.0, 5.0);
    assert_eq!((one.protection.state, one.protection.largest_loss_s), (ProtectionState::Unproven, Some(105.0)));
    assert!(one.committed(committed(0, 1, 100.0)).is_some());
    assert!(one.committed(committed(0, 2, 200.0)).is_none(), "nothing new");
    let longer = Committed { interval_s: 200.0, ..committed(0, 3, 400.0) };
    assert!(one.committed(longer).is_some(), "what a failure costs is another");
    let mut three = guard(true, 3);
    let events = [0, 2, 0, 1].map(|group| three.committed(committed(group, 1, 100.0)).is_some());
    assert_eq!(events, [true, false, false, true], "the largest loss, and the state");
    assert_eq!(three.protection.state, ProtectionState::Protected);
}

#[test]
fn a_checkpoint_that_grows_old_without_another_is_said_each_time_that_its_loss_has_doubled() {
    let mut guard = guard(true, 1);
    guard.committed(committed(0, 1, 0.0));
    let told: Vec<i32> = (0..2000).filter(|now_s| guard.overdue(f64::from(*now_s)).is_some()).collect();
    assert_eq!(told, [271, 603, 1267], "105 s were promised");
    assert_eq!(guard.protection.largest_loss_s, Some(1267.0));
    assert!(line(&guard.protection).ends_with(": more until one is made"), "{}", line(&guard.protection));
    assert!(guard.switched(None).is_none(), "nobody has disabled them");
    assert!(guard.committed(committed(0, 2, 2000.0)).is_some());
    assert!(line(&guard.protection).ends_with("1 min 45 s of work at most"), "{}", line(&guard.protection));
}

#[test]
fn work_beside_what_checkpoints_hold_is_said_once() {
    let mut guard = guard(true, 1);
    assert!(guard.works_beside(Some("python3".into())).is_none(), "nothing is protected yet");
    guard.committed(committed(0, 1, 100.0));
    assert!(guard.works_beside(Some("python3".into())).is_some());
    assert!(guard.works_beside(Some("python3".into())).is_none());
    let said = line(&guard.protection);
    assert!(said.ends_with(", but what the script does by itself (python3) is done again"), "{said}");
    assert!(guard.works_beside(None).is_some() && line(&guard.protection).ends_with("of work at most"));
}

#[test]
fn without_further_checkpoints_nothing_bounds_what_a_failure_costs() {
    let mut guard = guard(true, 1);
    assert!(guard.switched(Some("alice")).is_none(), "there is none yet");
    guard.committed(committed(0, 1, 100.0));
    assert!(guard.switched(Some("alice")).is_some() && guard.switched(Some("alice")).is_none());
    let said = line(&guard.protection);
    assert!(said.ends_with(
        "since the program's last checkpoint, but alice has disabled further ones, until 'joulepoint enable'"
    ));
    assert!(guard.switched(None).is_some() && guard.switched(None).is_none());
    assert!(guard.committed(committed(0, 2, 200.0)).is_some());
    assert_eq!(guard.protection.largest_loss_s, Some(105.0));
}

#[test]
fn what_no_checkpoint_helps_against_is_said_with_the_protection() {
    let mut guard = Guard { but: "the loss of its node ends the job".into(), ..guard(true, 1) };
    guard.committed(committed(0, 1, 100.0));
    let said = line(&guard.protection);
    assert!(said.starts_with("protected by") && said.ends_with(", but the loss of its node ends the job"), "{said}");
}

#[test]
fn what_is_missing_is_said_once_with_where_it_was_looked_for() {
    let mut guard = guard(false, 1);
    guard.begins(100.0, 5.0);
    assert_eq!((guard.due_s(), guard.overdue(159.0)), (160.0, None));
    assert!(guard.overdue(160.0).is_some() && guard.overdue(200.0).is_none());
    let said = line(&guard.protection);
    for word in ["NOT PROTECTED", "'*.cpt' in /job", "--ft-energy-done"] {
        assert!(said.contains(word), "{said}");
    }
    guard.committed(committed(0, 1, 300.0));
    let said = line(&guard.protection);
    assert!(said.contains("since the program's last checkpoint"), "nobody knows when the next comes: {said}");
    guard.committed(committed(0, 2, 360.0));
    assert_eq!(guard.protection.largest_loss_s, Some(60.0), "as was seen");
}

#[test]
fn what_stands_in_the_way_is_said_before_the_first_checkpoint_and_its_success_takes_that_back() {
    let mut guard = guard(true, 1);
    guard.begins(100.0, 5.0);
    assert!(guard.hindered("a TCP connection; use --ft-energy-network=own").is_some());
    assert!(guard.hindered("a TCP connection; use --ft-energy-network=own").is_none(), "it was said");
    assert_eq!(guard.protection.state, ProtectionState::NotProtected);
    guard.committed(committed(0, 1, 100.0));
    assert_eq!(guard.protection.state, ProtectionState::Protected);
    assert!(guard.hindered("another").is_none(), "there is a checkpoint");
}

const FULL: &str = "the disk is full";

#[test]
fn a_checkpoint_that_fails_takes_no_protection_away_that_there_is() {
    let mut guard = guard(true, 1);
    let ended = "the step has ended meanwhile";
    assert!(guard.failed(40.0, None, ended, true).is_none(), "that is no failure");
    assert_eq!(guard.protection.state, ProtectionState::Unproven);
    assert!(guard.failed(50.0, None, FULL, false).is_some());
    assert!(guard.failed(55.0, None, ended, true).is_none());
    assert_eq!(guard.protection.state, ProtectionState::NotProtected);
    assert!(guard.failed(60.0, None, FULL, false).is_none(), "it was said");
    assert_eq!(guard.said[&0].times, 2, "in a row");
    guard.committed(committed(0, 1, 100.0));
    assert!(guard.failed(101.0, None, FULL, false).is_none());
    assert_eq!(guard.protection.state, ProtectionState::Protected);
    assert!(guard.has_one());
    assert!(guard.vanished(FULL).is_some());
    assert!(!guard.has_one() && guard.protection.state == ProtectionState::NotProtected);
    assert!(guard.protection.reason.contains("not there any more"), "{:?}", guard.protection);
}

#[test]
fn while_checkpoints_fail_the_loss_that_is_told_grows() {
    let mut guard = guard(true, 1);
    guard.committed(committed(0, 1, 100.0));
    let first_s = guard.protection.largest_loss_s.unwrap();
    assert!(guard.failed(100.0 + first_s, None, FULL, false).is_none(), "no more than was told");
    for lost_s in [first_s * 1.5, first_s * 4.0] {
        assert!(guard.failed(100.0 + lost_s, None, FULL, false).is_some(), "told again");
        assert_eq!(guard.protection.largest_loss_s, Some(lost_s));
    }
    guard.committed(committed(0, 2, 5000.0));
    assert_eq!(guard.protection.largest_loss_s, Some(first_s));
}

#[test]
fn a_line_that_is_gone_on_from_protects() {
    let mut guard = guard(true, 1);
    let line = Manifest { number: 7, begun_s: 1e9, ..Manifest::default() };
    assert!(guard.goes_back(400.0, None, Some(&line), false, Some(240.0)).is_some());
    assert!(guard.goes_back(400.0, None, Some(&line), false, None).is_none());
    assert_eq!(guard.protection.state, ProtectionState::Protected);
    // All of them are damaged.
    assert!(guard.goes_back(400.0, None, None, false, Some(240.0)).is_some());
    assert_eq!(guard.protection.state, ProtectionState::Unproven);
}
