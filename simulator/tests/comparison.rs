//! What `auto` is held to on the failure logs: parameters from other systems, and no look at the future.

use policy::interval::Objective;
use simulator::comparison::{Verdict, compare};
use simulator::fitting::{Fitted, fit};
use simulator::replay::{Rule, Setting, replay};
use simulator::trace::{Distribution, Trace};

fn lanl() -> Vec<Trace> {
    [
        ("2", include_str!("../../tests/data/lanl/system-2.csv")),
        ("3", include_str!("../../tests/data/lanl/system-3.csv")),
        ("12", include_str!("../../tests/data/lanl/system-12.csv")),
        ("18", include_str!("../../tests/data/lanl/system-18.csv")),
        ("20", include_str!("../../tests/data/lanl/system-20.csv")),
        ("21", include_str!("../../tests/data/lanl/system-21.csv")),
    ]
    .map(|(name, text)| Trace::parse(name, text).expect("a trace"))
    .to_vec()
}

fn setting(checkpoint_s: f64) -> Setting {
    Setting { checkpoint_s, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None }
}

#[test]
fn fitted_elsewhere_auto_beats_the_best_published_policy_on_most_systems() {
    let settings = [setting(600.0), setting(300.0)];
    for objective in [Objective::Time, Objective::Energy] {
        let verdicts = compare(&lanl(), &[], objective, &settings).expect("valid");
        for setting in settings {
            let at: Vec<&Verdict> = verdicts.iter().filter(|v| v.setting == setting).collect();
            let beaten = at.iter().filter(|v| v.beats(&v.chosen)).count();
            assert!(beaten >= 5, "{objective:?}, C {} s: {beaten} of {}", setting.checkpoint_s, at.len());
        }
    }
}

#[test]
fn what_is_fitted_on_does_not_depend_on_what_is_reported() {
    let traces = lanl();
    let (others, reported) = traces.split_at(4);
    let alone = compare(&reported[..1], others, Objective::Energy, &[setting(600.0)]).expect("valid");
    let both = compare(reported, others, Objective::Energy, &[setting(600.0)]).expect("valid");
    assert_eq!(alone[0], both[0]);
}

#[test]
fn what_comes_later_does_not_change_what_auto_spent_before() {
    let whole = lanl().remove(4);
    let followed_by = |seconds: usize| {
        let gaps_s = [&whole.gaps_s[..1000], &vec![1.0; seconds]].concat();
        let trace = Trace { gaps_s, ..whole.clone() };
        replay(&trace, Rule::Auto(None), Objective::Energy, &setting(600.0)).expect("valid")
    };
    // A gap of a second is shorter than any interval: it loses a second, and moves the mean of the trace.
    let (alone, calm, stormy) = (followed_by(0), followed_by(1), followed_by(500));
    for (later, seconds) in [(calm, 1.0), (stormy, 500.0)] {
        assert_eq!(later.checkpoint_s, alone.checkpoint_s);
        assert!((later.lost_s - alone.lost_s - seconds).abs() < 1e-3, "{} after {}", later.lost_s, alone.lost_s);
    }
}

#[test]
fn the_built_in_parameters_are_those_fitted_on_all_six() {
    let traces = lanl();
    let fitted: Vec<Fitted> = traces.iter().map(Fitted::new).collect();
    for objective in [Objective::Time, Objective::Energy] {
        let found = fit(&fitted.iter().collect::<Vec<_>>(), objective);
        let built_in = policy::adaptive::AdaptiveParameters::for_objective(objective);
        assert_eq!((found.weights, found.lean), (built_in.weights, built_in.lean));
        assert!((found.day - built_in.day).abs() < 0.005, "{}", found.day);
        assert!((found.weekend - built_in.weekend).abs() < 0.005, "{}", found.weekend);
    }
}

#[test]
fn a_weekly_rhythm_is_found_and_none_is_invented() {
    // Failures without memory; then the same, thinned to a half at weekends.
    let steady = Trace::synthetic(Distribution::Exponential, 20_000.0, 6_000, 3).expect("valid");
    let start_s = 1e9;
    let mut times_s = vec![start_s];
    for (i, gap_s) in steady.gaps_s.iter().enumerate() {
        let at_s = times_s[i] + gap_s;
        times_s.push(at_s);
    }
    let dated = Trace { first_s: start_s, ..steady };
    let mut odd = false;
    times_s.retain(|t| {
        let weekend = policy::adaptive::calendar(*t)[1] < 0.0;
        odd ^= weekend;
        !(weekend && odd)
    });
    let gaps_s = times_s.windows(2).map(|w| w[1] - w[0]).collect();
    let thinned = Trace { first_s: times_s[0], gaps_s, ..dated.clone() };
    let found = |trace: &Trace| fit(&[&Fitted::new(trace)], Objective::Energy);
    let (none, half) = (found(&dated), found(&thinned));
    assert!(none.weekend.abs() < 0.1 && none.day.abs() < 0.1, "{none:?}");
    assert!((half.weekend - 0.69).abs() < 0.15, "{half:?}");
}
