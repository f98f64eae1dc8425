//! What holds for the policy `auto` whatever the failures.

use policy::adaptive::{Adaptive, AdaptiveParameters, MOST_FAILURES, Past, calendar};
use policy::interval::Objective;
use proptest::prelude::*;

const DAY_S: f64 = 86_400.0;

fn gaps() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((4.0..15.0_f64).prop_map(f64::exp), 1..60)
}

/// Too few to tell of wear.
fn few_gaps() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((4.0..15.0_f64).prop_map(f64::exp), 0..1)
}

fn auto(local_s: Option<f64>) -> Adaptive {
    Adaptive::new(AdaptiveParameters::for_objective(Objective::Energy), DAY_S, local_s)
}

/// The intervals at a few ages after each failure.
fn intervals_s(policy: &mut Adaptive, gaps_s: &[f64]) -> Vec<f64> {
    let mut seen = Vec::new();
    for gap_s in gaps_s {
        seen.extend([0.0, 0.3, 0.9].map(|share| policy.interval_s(share * gap_s, 600.0, 3.0)));
        policy.observe_gap(*gap_s);
    }
    seen
}

proptest! {
    #[test]
    fn what_comes_later_changes_no_earlier_decision(past in gaps(), one in gaps(), other in gaps()) {
        let decisions = |future: &[f64]| {
            let all = [past.as_slice(), future].concat();
            intervals_s(&mut auto(Some(1e9)), &all)[..3 * past.len()].to_vec()
        };
        prop_assert_eq!(decisions(&one), decisions(&other));
    }

    #[test]
    fn the_hazard_falls_while_no_failure_comes_and_nothing_speaks_of_wear(past in few_gaps(), age_s in 0.0..1e7_f64, step_s in 1.0..1e6_f64) {
        let mut policy = auto(None);
        past.iter().for_each(|gap_s| policy.observe_gap(*gap_s));
        prop_assert!(policy.hazard_per_s(age_s + step_s) <= policy.hazard_per_s(age_s) * (1.0 + 1e-12));
    }

    #[test]
    fn a_failure_raises_the_hazard(past in few_gaps(), gap_s in 10.0..1e6_f64) {
        let mut policy = auto(None);
        past.iter().for_each(|gap_s| policy.observe_gap(*gap_s));
        let before = policy.hazard_per_s(gap_s);
        policy.observe_gap(gap_s);
        prop_assert!(policy.hazard_per_s(0.0) > before);
    }

    #[test]
    fn costlier_checkpoints_are_rarer_and_costlier_losses_bring_them_closer(
        past in gaps(), checkpoint_s in 10.0..3000.0_f64, ratio in 1.0..5.0_f64,
    ) {
        let mut policy = auto(None);
        past.iter().for_each(|gap_s| policy.observe_gap(*gap_s));
        // The cycle C + D, at an age when the hazard no longer moves within one.
        let cycle_s = |c: f64, r: f64| c + policy.interval_s(1e9, c, r);
        prop_assert!(cycle_s(1.1 * checkpoint_s, ratio) > cycle_s(checkpoint_s, ratio));
        prop_assert!(cycle_s(checkpoint_s, 1.1 * ratio) <= cycle_s(checkpoint_s, ratio));
    }

    #[test]
    fn the_week_repeats(hour in 0.0..168.0_f64, weeks in 0_u32..3000) {
        let at_s = hour * 3600.0;
        let later = calendar(at_s + f64::from(weeks) * 7.0 * DAY_S);
        let now = calendar(at_s);
        prop_assert!((now[0] - later[0]).abs() < 1e-6 && now[1] == later[1]);
    }
}

#[test]
fn the_mean_of_steady_failures_is_learnt() {
    let mut policy = auto(None);
    (0..20_000).for_each(|_| policy.observe_gap(7_000.0));
    // Over a gap the expected number of failures is one.
    let expected: f64 = (0..700).map(|i| 10.0 * policy.hazard_per_s(f64::from(10 * i + 5))).sum();
    assert!((expected - 1.0).abs() < 0.1, "{expected}");
}

#[test]
fn friday_noon_is_more_dangerous_than_sunday_midnight() {
    let noon_s = 1.5 * DAY_S;
    let (friday, sunday) = (auto(Some(noon_s)), auto(Some(noon_s + 1.5 * DAY_S)));
    assert!(friday.hazard_per_s(0.0) > 1.3 * sunday.hazard_per_s(0.0));
    assert!(friday.interval_s(0.0, 600.0, 3.0) < sunday.interval_s(0.0, 600.0, 3.0));
}

#[test]
fn with_rare_failures_the_interval_is_youngs_times_the_lean() {
    let policy = Adaptive::new(AdaptiveParameters::for_objective(Objective::Time), 1e9, None);
    let young_s = (2.0 * 600.0 / policy.hazard_per_s(1e6)).sqrt();
    let interval_s = policy.interval_s(1e6, 600.0, 1.0) + 600.0;
    assert!((interval_s / young_s / (-0.06_f64).exp() - 1.0).abs() < 0.01, "{interval_s} against {young_s}");
}

/// Waste of an exponential gap under intervals of `work` checkpoints' length, in checkpoints: lost work weighs `ratio`.
fn waste(work: f64, hazard: f64, ratio: f64) -> f64 {
    let (at_work, at_end) = ((-hazard * work).exp(), (-hazard * (work + 1.0)).exp());
    let in_work = ratio * ((1.0 - at_work) / hazard - work * at_work);
    let in_checkpoint = ratio * work * (at_work - at_end) + (at_work - at_end) / hazard - at_end;
    (in_work + in_checkpoint + at_end) / (1.0 - at_end)
}

#[test]
fn without_a_lean_a_steady_hazard_gets_the_interval_of_least_waste() {
    for mean_checkpoints in [20.0, 100.0, 1000.0] {
        for ratio in [1.0, 2.0, 3.0 / 1.1, 5.0] {
            let steady = AdaptiveParameters { weights: [1e3; 3], lean: 0.0, ..AdaptiveParameters::default() };
            let policy = Adaptive::new(steady, 1e9 * mean_checkpoints, None);
            let (checkpoint_s, mean_s) = (1e9, 1.0 / policy.hazard_per_s(0.0));
            let chosen = policy.interval_s(0.0, checkpoint_s, ratio) / checkpoint_s;
            let hazard = checkpoint_s / mean_s;
            let least = (1..4000).map(|i| waste(0.01 * f64::from(i) * 0.03 / hazard.sqrt(), hazard, ratio));
            let least = least.fold(f64::INFINITY, f64::min);
            let found = waste(chosen, hazard, ratio);
            assert!(found < least * 1.002, "{mean_checkpoints} {ratio}: {found} at {chosen}, least {least}");
        }
    }
}

#[test]
fn a_silence_counts_once() {
    // Three failures in three days were thought of, and none came in a fourth.
    assert!((auto(None).hazard_per_s(DAY_S) * DAY_S - 0.75).abs() < 1e-12);
}

/// Gaps of that Weibull shape and a mean of about a day, evenly over the distribution and in a mixed order.
fn weibull(shape: f64, count: usize) -> Vec<f64> {
    let at = |i: usize| ((i * 89 % count) as f64 + 0.5) / count as f64;
    (0..count).map(|i| DAY_S * (-at(i).ln()).powf(1.0 / shape)).collect()
}

#[test]
fn each_way_of_failing_is_recognised() {
    let ways = |gaps_s: &[f64]| {
        let mut policy = auto(None);
        gaps_s.iter().for_each(|gap_s| policy.observe_gap(*gap_s));
        (policy.ways(), policy)
    };
    let ([steady, ..], _) = ways(&weibull(1.0, 300));
    assert!(steady > 0.9, "{steady}");
    let ([_, _, wear], policy) = ways(&weibull(3.0, 100));
    assert!(wear > 0.99, "{wear}");
    assert!(policy.hazard_per_s(0.2 * DAY_S) < 0.2 * policy.hazard_per_s(DAY_S));
    // Five at a time within an hour, and nothing for a week.
    let bursts: Vec<f64> = (0..100).map(|i| if i % 5 == 0 { 7.0 * DAY_S } else { 600.0 }).collect();
    let ([_, bursts, _], _) = ways(&bursts);
    assert!(bursts > 0.99, "{bursts}");
}

#[test]
fn wear_is_learnt_whatever_was_thought_before() {
    for prior_s in [0.01 * DAY_S, DAY_S, 100.0 * DAY_S] {
        let mut policy = Adaptive::new(AdaptiveParameters::default(), prior_s, None);
        weibull(5.0, 200).iter().for_each(|gap_s| policy.observe_gap(*gap_s));
        assert!(policy.ways()[2] > 0.99, "{prior_s}: {:?}", policy.ways());
    }
}

#[test]
fn a_policy_with_a_past_is_as_one_that_lived_through_it() {
    let gaps_s: Vec<f64> = weibull(0.6, MOST_FAILURES);
    let (from_s, silent_s) = (1.5e9, 5_000.0);
    let mut at_s = from_s;
    let failed_s: Vec<f64> = gaps_s
        .iter()
        .map(|gap_s| {
            at_s += gap_s;
            at_s
        })
        .collect();
    let mut lived = auto(Some(from_s));
    gaps_s.iter().for_each(|gap_s| lived.observe_gap(*gap_s));
    let parameters = AdaptiveParameters::for_objective(Objective::Energy);
    let now_s = at_s + silent_s;
    let handed = |share: f64| {
        let past = Past::watched(DAY_S, from_s, failed_s.iter().copied(), now_s, share);
        Adaptive::with_past(parameters, &past, now_s, Some(now_s))
    };
    let (own, since_s) = handed(1.0);
    for age_s in [0.0, silent_s, 1e6] {
        let (own, lived) = (own.hazard_per_s(now_s - since_s + age_s), lived.hazard_per_s(silent_s + age_s));
        assert!((own / lived - 1.0).abs() < 1e-9, "{own} {lived}");
    }
    // A tenth of the nodes has a tenth of the failures, after a burst too.
    let (tenth, since_s) = handed(0.1);
    assert_eq!(since_s, now_s);
    let (whole, part) = (lived.hazard_per_s(silent_s), tenth.hazard_per_s(0.0));
    assert!((part / whole - 0.1).abs() < 0.02, "{part} of {whole}");
}

#[test]
fn of_a_longer_past_the_newest_are_kept_and_the_rest_is_counted() {
    let failed_s = (0..1000).map(|i| 1e9 + f64::from(i) * 1000.0);
    let past = Past::watched(DAY_S, 1e9 - 500.0, failed_s, 1e9 + 1e6, 1.0);
    assert_eq!((past.failed_s.len(), past.failures()), (MOST_FAILURES, 1000));
    assert_eq!(past.earlier_s + 1e9 - 500.0, past.since_s);
    assert_eq!(past.failed_s[0], past.since_s + 1000.0);
}
