//! Landmarks of the interval and of the decision.

use policy::decide::{Action, Situation, Why, decide};
use policy::interval::{Bounds, Costs, Limit, Objective, choose_interval};
use policy::waste::lending;

/// Aupy15's setting at rho = 5.5: C = R = 10 min, D = 1 min, omega = 1/2.
const AUPY: Costs = Costs {
    checkpoint_s: 600.0,
    restart_s: 600.0,
    down_s: 60.0,
    overlap: 0.5,
    static_w: 10.0,
    compute_w: 10.0,
    checkpoint_w: 100.0,
    down_w: 0.0,
};

#[test]
fn the_published_periods_are_chosen() {
    let time = choose_interval(Objective::Time, 18_000.0, &AUPY, &Bounds::default()).unwrap();
    let energy = choose_interval(Objective::Energy, 18_000.0, &AUPY, &Bounds::default()).unwrap();
    assert!((time.interval_s / 60.0 + 10.0 - 53.2917).abs() < 1e-3, "{}", time.reason);
    assert!((energy.interval_s / 60.0 + 10.0 - 128.0673).abs() < 1e-3, "{}", energy.reason);
    assert_eq!(time.expected_alternative, energy.expected);
}

#[test]
fn bounds_in_conflict_keep_the_runtime_and_say_so() {
    let bounds = Bounds { runtime: Some(0.0), io: Some(0.01), ..Bounds::default() };
    let choice = choose_interval(Objective::Energy, 18_000.0, &AUPY, &bounds).unwrap();
    let time = choose_interval(Objective::Time, 18_000.0, &AUPY, &Bounds::default()).unwrap();
    assert_eq!(choice.limited_by, Some(Limit::Conflict));
    assert!((choice.interval_s - time.interval_s).abs() < 1e-3 * time.interval_s);
    assert!(choice.reason.contains("exclude each other"), "{}", choice.reason);
}

#[test]
fn an_mtbf_shorter_than_a_checkpoint_still_gives_an_interval_and_says_so() {
    let choice = choose_interval(Objective::Energy, 300.0, &AUPY, &Bounds::default()).unwrap();
    assert!(choice.interval_s > 0.0 && choice.interval_s.is_finite());
    assert!(choice.reason.contains("too short for the first-order model"), "{}", choice.reason);
}

fn situation() -> Situation {
    Situation {
        now_s: 1_000.0,
        last_line_s: 0.0,
        interval_s: 3_600.0,
        checkpoint_s: 100.0,
        end_s: None,
        margin_s: 50.0,
        remaining_work_s: None,
        restart_s: 60.0,
        mtbf_s: 36_000.0,
        final_line_taken: false,
    }
}

#[test]
fn a_checkpoint_comes_when_the_interval_ends() {
    assert_eq!(decide(&situation()).action, Action::Wait { until_s: 3_600.0 });
    let due = Situation { now_s: 3_600.0, ..situation() };
    assert_eq!(decide(&due).action, Action::Checkpoint(Why::Interval));
}

#[test]
fn the_checkpoint_before_the_end_leaves_one_and_a_half_times_its_cost() {
    let s = Situation { end_s: Some(4_000.0), ..situation() };
    assert_eq!(decide(&s).action, Action::Wait { until_s: 3_800.0 }, "the periodic one at 3600 s is skipped");
    assert_eq!(decide(&Situation { now_s: 3_700.0, ..s }).action, Action::Wait { until_s: 3_800.0 });
    assert_eq!(decide(&Situation { now_s: 3_800.0, ..s }).action, Action::Checkpoint(Why::BeforeEnd));
    assert_eq!(decide(&Situation { now_s: 3_950.0, ..s }).action, Action::Rest);
    let taken = Situation { now_s: 3_900.0, last_line_s: 3_850.0, final_line_taken: true, ..s };
    assert_eq!(decide(&taken).action, Action::Wait { until_s: 4_120.0 }, "Slurm may let it run on");
    assert_eq!(decide(&Situation { now_s: 4_120.0, ..taken }).action, Action::Wait { until_s: 7_450.0 });
    assert_eq!(decide(&Situation { now_s: 7_450.0, ..taken }).action, Action::Checkpoint(Why::Interval));
    let missed = Situation { now_s: 4_001.0, last_line_s: 0.0, ..s };
    assert_eq!(decide(&missed).action, Action::Wait { until_s: 4_120.0 }, "it may be being ended");
    assert_eq!(decide(&Situation { now_s: 4_120.0, ..missed }).action, Action::Checkpoint(Why::Interval));
    assert_eq!(decide(&Situation { end_s: Some(40_000.0), ..s }).action, Action::Wait { until_s: 3_600.0 });
}

#[test]
fn no_checkpoint_that_costs_more_than_it_can_save() {
    let s = Situation { remaining_work_s: Some(3_000.0), ..situation() };
    let decision = decide(&s);
    assert_eq!(decision.action, Action::Rest);
    assert!(decision.reason.contains("can be expected to save only"), "{}", decision.reason);
    let long = Situation { remaining_work_s: Some(100_000.0), ..situation() };
    assert_eq!(decide(&long).action, Action::Wait { until_s: 3_600.0 });
}

#[test]
fn lending_pays_from_the_break_even_on() {
    assert!(!lending(300.0, 100.0, 0.3, 1.5, 150.0, 30.0).unwrap().lend);
    assert!(lending(500.0, 100.0, 0.3, 1.5, 150.0, 30.0).unwrap().lend);
}
