//! What learning may cost, and what a job gains that is handed the failures of before.

use policy::interval::Objective;
use simulator::grid::Policy;
use simulator::jobs::{Jobs, Start};
use simulator::regret::Contest;
use simulator::schedule::Schedule;
use simulator::trace::Trace;

const DAY_S: f64 = 86_400.0;

fn contest(shape: f64) -> Contest {
    Contest { shape, mean_s: DAY_S, failures: 1000, runs: 20, seed: 1, checkpoint_s: 600.0, ratio: 3.0 }
}

#[test]
fn with_the_right_mean_little_is_lost_to_those_who_know_the_distribution() {
    let auto = Policy::all(&["auto"], &[Objective::Time, Objective::Energy]).expect("a policy");
    for regret in contest(1.0).regrets(&auto).expect("valid") {
        assert!(regret.to_young.mean < 0.005, "{regret:?}");
    }
    for (shape, most) in [(1.5, 0.02), (3.0, 0.05)] {
        for regret in contest(shape).regrets(&auto).expect("valid") {
            assert!(regret.to_best.mean < most, "{regret:?}");
        }
    }
}

#[test]
fn no_constant_interval_beats_the_best_schedule() {
    for shape in [0.7, 1.0, 3.0] {
        let best = Schedule::best(shape, DAY_S, 600.0, 3.0, Objective::Time).expect("valid");
        let constant = |interval_s: f64| Schedule::by_age(2e6, 600.0, |_| interval_s).expect("valid");
        let gap_s = |i: u32| DAY_S * (-((f64::from(i) + 0.5) / 4000.0).ln()).powf(1.0 / shape);
        // The mean of a Weibull of unit scale is Gamma(1 + 1 / shape).
        let scale = 1.0 / policy::special::gamma(1.0 + 1.0 / shape);
        let trace = Trace::from_gaps("even", (0..4000).map(|i| scale * gap_s(i))).expect("valid");
        let least_s = best.replay(&trace).wasted_s();
        for interval_s in [2_000.0, 6_000.0, 9_000.0, 10_000.0, 12_000.0, 20_000.0] {
            let waste_s = constant(interval_s).replay(&trace).wasted_s();
            assert!(least_s < 1.003 * waste_s, "{shape}: {least_s} s, and {waste_s} s at {interval_s} s");
        }
    }
}

#[test]
fn a_job_that_is_handed_the_failures_of_before_paces_as_one_that_lived_through_them() {
    for (name, text) in [
        ("system-3", include_str!("../../tests/data/lanl/system-3.csv")),
        ("system-20", include_str!("../../tests/data/lanl/system-20.csv")),
        ("system-21", include_str!("../../tests/data/lanl/system-21.csv")),
    ] {
        let trace = Trace::parse(name, text).expect("a trace");
        for objective in [Objective::Time, Objective::Energy] {
            let jobs = Jobs { job_s: DAY_S, checkpoint_s: 600.0, ratio: 3.0, objective };
            let rows = jobs.rows(&trace);
            let of = |start: Start| rows.iter().find(|row| row.start == start).expect("a row");
            let (handed, lived) = (of(Start::Warm), of(Start::Lived));
            assert!(handed.time < lived.time + 0.01 && handed.energy < lived.energy + 0.01, "{handed:?} {lived:?}");
        }
    }
}
