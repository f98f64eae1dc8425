//! The replay agrees with the closed forms, exactly for exponential gaps and with ElSayed14's as failures become rare;
//! it is reproducible by seed.

use policy::bounds::ElSayed;
use policy::interval::Objective;
use simulator::comparison::{against_young, leave_one_out};
use simulator::replay::{Rule, Setting, replay};
use simulator::trace::{Distribution, Trace};

const SETTING: Setting = Setting { checkpoint_s: 60.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };

#[test]
fn waste_approaches_the_closed_form_as_failures_become_rare() {
    let mut last = f64::INFINITY;
    for mttf_s in [2e4, 2e5, 2e6] {
        let trace = Trace::synthetic(Distribution::Exponential, mttf_s, 200_000, 11).unwrap();
        let model = ElSayed { checkpoint_s: 60.0, mttf_s: trace.mean_s(), ratio: 1.0 };
        let outcome = replay(&trace, Rule::Constant(model.time_interval_s()), Objective::Time, &SETTING).unwrap();
        let found = outcome.wasted_s() / outcome.total_s;
        let off = (found / model.waste(model.time_interval_s()).time - 1.0).abs();
        assert!(off < last && off < 4.0 * (60.0 / mttf_s).sqrt(), "MTTF {mttf_s}: off by {off}");
        last = off;
    }
}

#[test]
fn a_seed_reproduces_its_trace() {
    let draw = |seed| Trace::synthetic(Distribution::Lognormal(1.2), 1e4, 100, seed).unwrap();
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
    let mean_s = Trace::synthetic(Distribution::Weibull(0.7), 1e4, 200_000, 5).unwrap().mean_s();
    assert!((mean_s / 1e4 - 1.0).abs() < 0.02, "{mean_s}");
}

#[test]
fn time_passes_once_whatever_the_policy() {
    let trace = Trace::synthetic(Distribution::Weibull(0.7), 5e4, 2_000, 9).unwrap();
    let total_s: f64 = trace.gaps_s.iter().sum();
    for name in Rule::NAMES {
        let row = against_young(&trace, name, Rule::named(name).unwrap(), Objective::Energy, &SETTING).unwrap();
        assert!((row.outcome.total_s / total_s - 1.0).abs() < 1e-9, "{name}");
        assert!(row.outcome.wasted_s() > 0.0 && row.outcome.wasted_s() < total_s, "{name}");
    }
}

#[test]
fn auto_never_sees_the_future() {
    let trace = Trace::synthetic(Distribution::Weibull(0.7), 5e4, 200, 9).unwrap();
    let setting = Setting { prior_s: Some(4e4), ..SETTING };
    let auto = Rule::named("auto").unwrap();
    let first = replay(&trace, auto, Objective::Energy, &setting).unwrap();
    // Gaps too short for a checkpoint cost just themselves; whatever follows, the first 200 cost the same.
    for (count, gap_s) in [(1, 0.5), (300, 0.25)] {
        let mut longer = trace.clone();
        longer.gaps_s.extend(std::iter::repeat_n(gap_s, count));
        let outcome = replay(&longer, auto, Objective::Energy, &setting).unwrap();
        assert_eq!(outcome.checkpoints, first.checkpoints);
        assert!((outcome.lost_s - first.lost_s - gap_s * count as f64).abs() < 1e-6 * first.lost_s);
    }
}

#[test]
fn a_comparison_needs_other_traces() {
    let trace = Trace::synthetic(Distribution::Exponential, 5e4, 50, 1).unwrap();
    assert!(leave_one_out(&[trace], Objective::Time, &SETTING).is_err());
}

#[test]
fn exponential_gaps_cost_what_renewal_theory_says_however_frequent() {
    for (mttf_s, interval_s) in [(1e6, 1e4), (1e4, 1e3), (1e3, 200.0), (300.0, 600.0)] {
        let trace = Trace::synthetic(Distribution::Exponential, mttf_s, 400_000, 17).unwrap();
        let outcome = replay(&trace, Rule::Constant(interval_s), Objective::Time, &SETTING).unwrap();
        let period = (interval_s + SETTING.checkpoint_s) / mttf_s;
        // Without memory, each interval and each checkpoint is reached and survived with an exponential chance.
        let checkpoints = 1.0 / period.exp_m1();
        let checkpoint_s =
            mttf_s * (-interval_s / mttf_s).exp() * -(-SETTING.checkpoint_s / mttf_s).exp_m1() / -(-period).exp_m1();
        let lost_s = mttf_s - checkpoints * interval_s - checkpoint_s;
        let close = |what: &str, found: f64, expected: f64| {
            let off = (found / outcome.failures / expected - 1.0).abs();
            assert!(off < 0.01, "MTTF {mttf_s}: {what} off by {off}");
        };
        close("checkpoints", outcome.checkpoints, checkpoints);
        close("checkpoint time", outcome.checkpoint_s, checkpoint_s);
        close("lost work", outcome.lost_s, lost_s);
    }
}

#[test]
fn a_runtime_bound_holds_where_failures_are_rare() {
    let trace = Trace::synthetic(Distribution::Exponential, 2e6, 200_000, 23).unwrap();
    for bound in [0.01, 0.03, 0.1, 0.3] {
        for ratio in [1.5, 3.0, 20.0] {
            let setting = Setting { ratio, runtime_bound: Some(bound), ..SETTING };
            let row = against_young(&trace, "young", Rule::named("young").unwrap(), Objective::Energy, &setting);
            let time = row.unwrap().time;
            assert!(time <= bound + 0.01, "bound {bound}, ratio {ratio}: {time}");
        }
    }
}
