//! What holds for every trace and setting: bounds, one order whatever the cores, and the schedule that spares the walk.

use policy::interval::Objective;
use policy::mtbf::{Estimator, EstimatorKind};
use proptest::prelude::*;
use simulator::grid::{Estimate, Grid, Policy};
use simulator::replay::{Rule, Setting, replay};
use simulator::sweep::Sweep;
use simulator::trace::{Distribution, Trace};

fn traces() -> impl Strategy<Value = Trace> {
    prop::collection::vec(1.0..1e6_f64, 2..60).prop_map(|gaps_s| Trace::from_gaps("any", gaps_s).unwrap())
}

fn settings() -> impl Strategy<Value = Setting> {
    let bounds = (prop::option::of(0.0..1.0_f64), prop::option::of(0.001..1.0_f64));
    (1.0..5e3_f64, 1.0..20.0_f64, bounds).prop_map(|(checkpoint_s, ratio, (runtime_bound, io_bound))| Setting {
        checkpoint_s,
        ratio,
        runtime_bound,
        io_bound,
        prior_s: None,
    })
}

/// ElSayed14's simulation as it is told: one checkpoint after the other, through every gap.
fn walked(trace: &Trace, kind: EstimatorKind, setting: &Setting) -> (f64, f64, f64) {
    let estimator = Estimator::with_history(kind, trace.mean_s(), &trace.gaps_s);
    let (mut checkpoints, mut checkpoint_s, mut lost_s) = (0.0, 0.0, 0.0);
    for gap_s in &trace.gaps_s {
        let mut age_s = 0.0;
        let interval_s = loop {
            let estimate_s = estimator.estimate_s((age_s / 60.0_f64).round() * 60.0);
            let interval_s = (2.0 * setting.checkpoint_s * estimate_s / setting.ratio).sqrt();
            if age_s + interval_s + setting.checkpoint_s >= *gap_s {
                break interval_s;
            }
            age_s += interval_s + setting.checkpoint_s;
            checkpoints += 1.0;
            checkpoint_s += setting.checkpoint_s;
        };
        let part_s = (gap_s - age_s - interval_s).max(0.0);
        checkpoint_s += part_s;
        lost_s += gap_s - age_s - part_s;
    }
    (checkpoints, checkpoint_s, lost_s)
}

proptest! {
    #[test]
    fn no_policy_exceeds_the_io_bound(trace in traces(), setting in settings(), bound in 0.001..1.0_f64) {
        let setting = Setting { io_bound: Some(bound), ..setting };
        for policy in Policy::all(&Rule::NAMES, &[Objective::Time, Objective::Energy]).unwrap() {
            let outcome = replay(&trace, policy.rule, policy.objective, &setting).unwrap();
            prop_assert!(outcome.io_share() <= bound * (1.0 + 1e-9), "{}: {}", policy.name, outcome.io_share());
        }
    }

    #[test]
    fn every_second_is_useful_wasted_or_both_never_lost(trace in traces(), setting in settings()) {
        for policy in Policy::all(&Rule::NAMES, &[Objective::Energy]).unwrap() {
            let outcome = replay(&trace, policy.rule, policy.objective, &setting).unwrap();
            prop_assert!(outcome.checkpoint_s >= 0.0 && outcome.lost_s >= 0.0);
            prop_assert!(outcome.wasted_s() <= outcome.total_s * (1.0 + 1e-9), "{}", policy.name);
            prop_assert_eq!(outcome.failures, trace.gaps_s.len() as f64);
        }
    }

    #[test]
    fn the_schedule_spends_what_a_walk_spends(trace in traces(), setting in settings()) {
        let setting = Setting { runtime_bound: None, io_bound: None, ..setting };
        for kind in [EstimatorKind::Hazard, EstimatorKind::HazardShape] {
            let outcome = replay(&trace, Rule::Estimated(kind), Objective::Energy, &setting).unwrap();
            let (checkpoints, checkpoint_s, lost_s) = walked(&trace, kind, &setting);
            prop_assert_eq!(outcome.checkpoints, checkpoints);
            prop_assert!((outcome.checkpoint_s - checkpoint_s).abs() <= 1e-9 * trace.gaps_s.iter().sum::<f64>());
            prop_assert!((outcome.lost_s - lost_s).abs() <= 1e-9 * trace.gaps_s.iter().sum::<f64>());
        }
    }
}

#[test]
fn what_no_machine_has_or_would_take_hours_is_refused() {
    let long: &[f64] = &[1e12, 1e-6, 1e-6, 1e12];
    let short: &[f64] = &[1e-12, 2e-12, 1e-12];
    let many = vec![1e12; 20_000];
    for (gaps_s, checkpoint_s, ratio, policy, expected) in [
        (
            long,
            1e-3,
            20.0,
            "hazard",
            "C = 0.001 is outside its range: so long that the longest gap holds at most 1,000,000",
        ),
        (long, 1e-3, 20.0, "hazard-dynamic", "at most 1,000,000"),
        (long, 1e-3, 20.0, "auto", "at most 1,000,000"),
        (&many, 1e-3, 20.0, "auto", "so long that the trace holds at most 1e9"),
        (long, 1e-300, 3.0, "young", "C = 1e-300 is outside its range: 0.001 to 1e12 s"),
        (long, f64::NAN, 3.0, "young", "C = NaN"),
        (long, 600.0, 1e300, "young", "ratio = 1e300 is outside its range: 1e-6 to 1e6"),
        (long, 600.0, 0.0, "young", "ratio = 0 "),
        (short, 600.0, 3.0, "young", "mean gap = 1.333"),
    ] {
        let trace = Trace::from_gaps("any", gaps_s.to_vec()).unwrap();
        let setting = Setting { checkpoint_s, ratio, runtime_bound: None, io_bound: None, prior_s: None };
        let rule = Rule::named(policy).unwrap();
        let error = replay(&trace, rule, Objective::Energy, &setting).unwrap_err().to_string();
        assert!(error.contains(expected), "{policy}: {error}");
    }
}

fn grid() -> Grid {
    let base = Setting { checkpoint_s: 600.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };
    let bounds = [None, Some(0.03), Some(0.1)];
    Grid {
        settings: bounds.map(|runtime_bound| Setting { runtime_bound, ..base }).to_vec(),
        traces: (1..=4).map(|seed| Trace::synthetic(Distribution::Weibull(0.7), 5e4, 300, seed).unwrap()).collect(),
        policies: Policy::all(&Rule::NAMES, &[Objective::Time, Objective::Energy]).unwrap(),
    }
}

#[test]
fn a_grid_on_all_cores_is_the_grid_in_sequence() {
    let grid = grid();
    let seen = std::sync::atomic::AtomicUsize::new(0);
    let count = || {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let cells = grid.replay(count).unwrap();
    let in_sequence: Vec<_> = (0..grid.len()).map(|i| grid.cell(i).unwrap()).collect();
    assert_eq!(cells, in_sequence);
    assert_eq!(seen.into_inner(), grid.len());
    assert_eq!(cells.len(), 3 * 4 * 20);
}

#[test]
fn means_are_over_the_traces_of_one_setting_and_policy() {
    let grid = grid();
    let cells = grid.replay(|| ()).unwrap();
    let means = grid.means(&cells);
    assert_eq!(means.len(), 3 * 20);
    for mean in &means {
        let same = |c: &&simulator::grid::Cell| {
            c.setting == mean.setting && c.row.policy == mean.policy && c.row.objective == mean.objective
        };
        let values: Vec<f64> = cells.iter().filter(same).map(|c| c.row.energy).collect();
        assert_eq!(values.len(), 4);
        assert!((mean.energy.mean - values.iter().sum::<f64>() / 4.0).abs() < 1e-12);
    }
}

#[test]
fn confidence_intervals_are_students() {
    let estimate = Estimate::of([9.0, 10.0, 11.0].into_iter());
    // t = 4.303 with two degrees of freedom; the standard error is 1 / sqrt 3.
    assert_eq!(estimate.mean, 10.0);
    assert!((estimate.half_width.unwrap() / (4.303 / 3f64.sqrt()) - 1.0).abs() < 0.01);
    let ten = Estimate::of((0..10).map(f64::from)).half_width.unwrap();
    assert!((ten / (2.262 * (55.0 / 60.0_f64).sqrt()) - 1.0).abs() < 0.01, "{ten}");
    assert_eq!(Estimate::of([4.0].into_iter()), Estimate { mean: 4.0, half_width: None });
}

#[test]
fn a_sweep_is_least_at_youngs_interval_for_time_and_at_the_energy_optimal_for_energy() {
    let trace = Trace::synthetic(Distribution::Exponential, 1e6, 200_000, 5).unwrap();
    let setting = Setting { checkpoint_s: 60.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };
    let sweep = Sweep::of(&trace, &setting, 8.0, 61).unwrap();
    for point in &sweep.points {
        assert!(sweep.young.replayed.time <= point.replayed.time * 1.005);
        assert!(sweep.energy.replayed.energy <= point.replayed.energy * 1.005);
        assert!(point.interval_s > 0.0 && (point.replayed.time / point.model.time - 1.0).abs() < 0.1);
    }
    assert!(Sweep::of(&trace, &setting, 1.0, 61).is_err() && Sweep::of(&trace, &setting, 8.0, 1).is_err());
}
