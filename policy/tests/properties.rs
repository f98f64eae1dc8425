//! Properties that every model and decision keeps, whatever the input.

use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::bounds::ElSayed;
use policy::decide::{Action, Situation, decide};
use policy::interval::{Bounds, Choice, Costs, Limit, Objective, choose_interval};
use policy::mtbf::{Estimator, EstimatorKind};
use policy::periods::Aupy;
use policy::shadow::Shadow;
use policy::waste::{Bouteiller, Scope, Storage};
use proptest::prelude::*;

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(f64::MAX),
        any::<f64>(),
        (-20.0_f64..20.0).prop_map(|x| 10_f64.powf(x)),
    ]
}

fn costs() -> impl Strategy<Value = Costs> {
    (
        1.0_f64..2_000.0,
        0.0_f64..2_000.0,
        0.0_f64..300.0,
        0.0_f64..1.0,
        10.0_f64..200.0,
        0.0_f64..3.0,
        0.0_f64..12.0,
        0.0_f64..2.0,
    )
        .prop_map(|(checkpoint_s, restart_s, down_s, overlap, static_w, compute, checkpoint, down)| Costs {
            checkpoint_s,
            restart_s,
            down_s,
            overlap,
            static_w,
            compute_w: compute * static_w,
            checkpoint_w: checkpoint * static_w,
            down_w: down * static_w,
        })
}

fn free(objective: Objective, mtbf_s: f64, costs: &Costs) -> Choice {
    choose_interval(objective, mtbf_s, costs, &Bounds::default()).unwrap()
}

fn aupy(costs: &Costs, mtbf_s: f64) -> Aupy {
    Aupy {
        mtbf_s,
        checkpoint_s: costs.checkpoint_s,
        restart_s: costs.restart_s,
        down_s: costs.down_s,
        overlap: costs.overlap,
        static_w: costs.static_w,
        compute_w: costs.compute_w,
        io_w: costs.checkpoint_w,
        down_w: costs.down_w,
        base_s: 1.0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_optimum_beats_a_thousand_neighbours(c in costs(), mtbf_h in 1.0_f64..2_000.0, seed in 0_u64..1_000_000) {
        let m = aupy(&c, mtbf_h * 3_600.0);
        prop_assume!(m.feasible());
        let (t, e) = (m.time_period_s().unwrap(), m.energy_period_s().unwrap());
        let (best_s, best_j) = (m.evaluate(t).final_s, m.evaluate(e).energy_j);
        let mut state = seed | 1;
        for _ in 0..1_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let u = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let period_s = c.checkpoint_s + u * u * (m.upper_limit_s() - c.checkpoint_s);
            let other = m.evaluate(period_s);
            if other.valid {
                prop_assert!(other.final_s >= best_s * (1.0 - 1e-12), "time at {period_s}");
                prop_assert!(other.energy_j >= best_j * (1.0 - 1e-12), "energy at {period_s}");
            }
        }
    }

    #[test]
    fn bounds_are_never_exceeded(
        c in costs(), mtbf_s in 600.0_f64..1e7, runtime in 0.0_f64..0.5, io in 0.01_f64..0.9, energy in 0.0_f64..0.5,
    ) {
        let time = free(Objective::Time, mtbf_s, &c);
        let least = free(Objective::Energy, mtbf_s, &c);
        let tolerance = 1e-9;
        let choice = choose_interval(Objective::Energy, mtbf_s, &c, &Bounds { runtime: Some(runtime), ..Bounds::default() }).unwrap();
        let allowed = (1.0 + runtime) * time.expected.time_overhead;
        prop_assert!(choice.expected.time_overhead <= allowed * (1.0 + tolerance) + tolerance);
        let choice = choose_interval(Objective::Energy, mtbf_s, &c, &Bounds { io: Some(io), ..Bounds::default() }).unwrap();
        let beyond_reach = choice.limited_by == Some(Limit::Conflict);
        prop_assert!(choice.expected.io_share <= io * (1.0 + tolerance) || beyond_reach);
        let choice = choose_interval(Objective::Time, mtbf_s, &c, &Bounds { energy: Some(energy), ..Bounds::default() }).unwrap();
        let allowed = (1.0 + energy) * (1.0 + least.expected.energy_overhead);
        prop_assert!(1.0 + choice.expected.energy_overhead <= allowed * (1.0 + tolerance));
        // All together: the runtime comes first, whatever becomes of the others.
        let all = Bounds { runtime: Some(runtime), io: Some(io), energy: Some(energy), ..Bounds::default() };
        let choice = choose_interval(Objective::Energy, mtbf_s, &c, &all).unwrap();
        prop_assert!(choice.expected.time_overhead <= (1.0 + runtime) * time.expected.time_overhead * (1.0 + tolerance) + tolerance);
        prop_assert!(choice.interval_s > 0.0 && choice.interval_s.is_finite());
        // What a failure may cost comes before all, and the site's longest interval after all.
        let loss_s = 4.0 * c.checkpoint_s;
        let choice = choose_interval(Objective::Energy, mtbf_s, &c, &Bounds { loss_s: Some(loss_s), ..all }).unwrap();
        prop_assert!(choice.interval_s + c.checkpoint_s <= loss_s * (1.0 + tolerance));
        let longest = Bounds { io: Some(io), longest_s: Some(c.checkpoint_s), ..Bounds::default() };
        let choice = choose_interval(Objective::Energy, mtbf_s, &c, &longest).unwrap();
        let (kept, conflict) = (choice.expected.io_share <= io * (1.0 + tolerance), choice.limited_by == Some(Limit::Conflict));
        prop_assert!(beyond_reach || kept && !conflict, "the site's longest interval came before a bound");
        let longest_s = 20.0 * c.checkpoint_s;
        let site = Bounds { longest_s: Some(longest_s), ..Bounds::default() };
        prop_assert!(choose_interval(Objective::Energy, mtbf_s, &c, &site).unwrap().interval_s <= longest_s * (1.0 + tolerance));
        let dear = Bounds { longest_s: Some(c.checkpoint_s), ..Bounds::default() };
        let rare = choose_interval(Objective::Time, 1e6 * c.checkpoint_s.max(1.0), &c, &dear).unwrap();
        prop_assert!(rare.expected.io_share < 0.12, "{rare:?}");
    }

    #[test]
    fn intervals_grow_with_mtbf_and_checkpoint_and_shrink_with_the_ratio(
        checkpoint_s in 1.0_f64..1_000.0, mttf_s in 1e4_f64..1e7, ratio in 0.2_f64..10.0, more in 1.01_f64..3.0,
    ) {
        let m = ElSayed { checkpoint_s, mttf_s, ratio };
        let rarer = ElSayed { mttf_s: more * mttf_s, ..m };
        let dearer = ElSayed { checkpoint_s: more * checkpoint_s, ..m };
        let steeper = ElSayed { ratio: more * ratio, ..m };
        prop_assert!(rarer.energy_interval_s() > m.energy_interval_s());
        prop_assert!(dearer.energy_interval_s() > m.energy_interval_s());
        prop_assert!(steeper.energy_interval_s() < m.energy_interval_s());
        let c = Costs {
            checkpoint_s, restart_s: 0.0, down_s: 0.0, overlap: 0.0,
            static_w: 100.0, compute_w: 100.0 * ratio, checkpoint_w: 50.0, down_w: 0.0,
        };
        let base = free(Objective::Time, mttf_s, &c).interval_s;
        prop_assert!(free(Objective::Time, more * mttf_s, &c).interval_s >= base);
        let energy = free(Objective::Energy, mttf_s, &c).interval_s;
        let hotter = Costs { checkpoint_w: 50.0 + 100.0 * more, ..c };
        prop_assert!(free(Objective::Energy, mttf_s, &hotter).interval_s >= energy);
    }

    #[test]
    fn nothing_panics_on_any_number(
        a in any_number(), b in any_number(), c in any_number(), d in any_number(), e in any_number(), f in any_number(),
    ) {
        let costs = Costs {
            checkpoint_s: a, restart_s: b, down_s: c, overlap: d, static_w: e, compute_w: f, checkpoint_w: a, down_w: b,
        };
        let bounds = Bounds { runtime: Some(c), io: Some(d), energy: Some(e), loss_s: Some(a), longest_s: Some(f) };
        for objective in [Objective::Time, Objective::Energy] {
            if let Ok(choice) = choose_interval(objective, f, &costs, &bounds) {
                prop_assert!(choice.interval_s.is_finite() && choice.interval_s > 0.0);
                prop_assert!(!choice.reason.is_empty());
            }
            let _ = choose_interval(objective, f, &costs, &Bounds::default());
        }
        let m = aupy(&costs, f);
        if m.check().is_ok() {
            let _ = (m.time_period_s(), m.energy_period_s(), m.energy_period_by_search_s(), m.evaluate(b));
        }
        let shadow = Shadow { work: a, speed_max: b, laxity: c, mtbf_s: d };
        if shadow.check().is_ok() {
            let _ = (shadow.speed_optimal(), shadow.energy(shadow.speed_optimal()));
        }
        for storage in [Storage::Local, Storage::Remote] {
            let m = Bouteiller {
                mtbf_s: a, groups: b, checkpoint_s: c, down_s: d, restart_s: e, alpha: f, lambda: d, rho: b,
                beta: c, load_s: e, save_s: a, cap_s: 1e9, storage,
            };
            if m.check().is_ok() {
                let _ = (m.app_period_s(), m.plat_period_s(), m.overlap_period_s(), m.waste(Scope::Plat, a));
            }
        }
        for kind in EstimatorKind::ALL {
            let mut estimator = Estimator::new(kind, a);
            for gap_s in [b, c, d, e] {
                estimator.observe_gap(gap_s);
            }
            let estimate_s = estimator.estimate_s(f);
            prop_assert!(estimate_s.is_finite() && estimate_s > 0.0, "{kind}: {estimate_s}");
        }
        let parameters = AdaptiveParameters { weights: [a, b, c], day: d, weekend: e, lean: f };
        let mut auto = Adaptive::new(parameters, a, Some(b));
        auto.observe_gap(d);
        auto.observe_gap(e);
        let interval_s = auto.interval_s(f, c, d);
        prop_assert!(interval_s.is_finite() && interval_s > 0.0, "{interval_s}");
        let hazard = auto.hazard_per_s(f);
        prop_assert!(hazard.is_finite() && hazard > 0.0, "{hazard}");
        let _ = policy::calibration::best_of(&[a, b, c], &[d, e, f], policy::calibration::Method::LeastSquares, true);
    }

    #[test]
    fn a_wait_ends_at_a_finite_later_time(
        now_s in any_number(), last_line_s in any_number(), interval_s in any_number(), checkpoint_s in any_number(),
        end_s in prop::option::of(any_number()), remaining_work_s in prop::option::of(any_number()),
        mtbf_s in any_number(), final_line_taken in any::<bool>(),
    ) {
        let decision = decide(&Situation {
            now_s, last_line_s, interval_s, checkpoint_s, end_s, margin_s: 10.0, remaining_work_s,
            restart_s: 10.0, mtbf_s, final_line_taken,
        });
        prop_assert!(!decision.reason.is_empty());
        if let Action::Wait { until_s } = decision.action {
            prop_assert!(until_s.is_finite() && until_s > now_s, "{until_s} after {now_s}");
        }
    }
}
