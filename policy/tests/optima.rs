//! Each optimum beats a thousand neighbours by brute force, each bound holds, and each fit recovers its data.

use policy::bounds::ElSayed;
use policy::calibration::{self, Curve, Method};
use policy::frequency::{PUBLISHED_POWER, PUBLISHED_TIME, PowerModel, TimeModel, best_frequency_hz, predict};
use policy::interval::{Costs, expected_at};
use policy::memoryless;
use policy::periods::{Aupy, Meneses, young_daly};
use policy::shadow::Shadow;
use policy::special::ei_scaled;
use policy::waste::{Bouteiller, Scope, Storage, Waste, lending};
use proptest::prelude::*;

/// A thousand numbers between `low` and `high`, closer together towards `low`, the same for the same seed.
fn neighbours(seed: u64, low: f64, high: f64) -> impl Iterator<Item = f64> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let u = (state >> 11) as f64 / (1_u64 << 53) as f64;
        low * (high / low).powf(u)
    })
    .take(1_000)
}

fn platform() -> impl Strategy<Value = Aupy> {
    (600.0_f64..1e7, 1.0_f64..1_200.0, 0.0_f64..1_200.0, 0.0_f64..300.0, 0.0_f64..=1.0, 0.0_f64..3.0, 0.0_f64..200.0)
        .prop_map(|(mtbf_s, checkpoint_s, restart_s, down_s, overlap, compute, io)| Aupy {
            mtbf_s,
            checkpoint_s,
            restart_s,
            down_s,
            overlap,
            static_w: 10.0,
            compute_w: 10.0 * compute,
            io_w: 10.0 * io,
            down_w: 1.0,
            base_s: 1e6,
        })
}

fn groups() -> impl Strategy<Value = Bouteiller> {
    let growth = prop_oneof![Just(0.0), 1e-6_f64..2e-3];
    let overlap = prop_oneof![Just(0.0), Just(1.0), 0.0_f64..1.0];
    let places = prop::sample::select(vec![Storage::Local, Storage::Remote]);
    (30.0_f64..1e6, 1.0_f64..1e5, 0.1_f64..500.0, 0.0_f64..60.0, overlap, 0.8_f64..=1.0, 0.9_f64..3.0, growth, places)
        .prop_map(|(mtbf_s, groups, c0, down_s, alpha, lambda, rho, beta, storage)| Bouteiller {
            mtbf_s,
            groups,
            checkpoint_s: c0,
            down_s,
            restart_s: c0,
            alpha,
            lambda,
            rho,
            beta,
            load_s: 0.5 * c0,
            save_s: 2.0 * c0,
            cap_s: 1e9,
            storage,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn blocking_periods_beat_their_neighbours(m in platform(), seed in any::<u64>()) {
        let meneses = Meneses::new(m).unwrap();
        let limit_s = meneses.parameters().upper_limit_s();
        let least_s = 2.0 * m.checkpoint_s;
        prop_assume!(meneses.parameters().feasible() && limit_s > least_s);
        let Some(best_s) = meneses.energy_period_s() else { return Ok(()) };
        prop_assume!(best_s >= least_s);
        let best = meneses.evaluate(best_s);
        for period_s in neighbours(seed, least_s, limit_s * (1.0 - 1e-9)) {
            let other = meneses.evaluate(period_s);
            prop_assert!(!other.valid || other.energy_j >= best.energy_j * (1.0 - 1e-12), "{period_s} beats {best_s}");
        }
    }

    #[test]
    fn periods_lie_in_their_domain(m in platform()) {
        prop_assume!(m.feasible());
        for period_s in [m.time_period_s().unwrap(), m.energy_period_s().unwrap()] {
            prop_assert!(period_s >= m.checkpoint_s && period_s < m.upper_limit_s());
        }
        let rarer = Aupy { mtbf_s: 2.0 * m.mtbf_s, ..m };
        prop_assert!(rarer.time_period_s() >= m.time_period_s());
        let dearer = Aupy { io_w: 2.0 * m.io_w, ..m };
        prop_assert!(dearer.energy_period_s().unwrap() >= m.energy_period_s().unwrap() * (1.0 - 1e-12));
    }

    #[test]
    fn intervals_beat_their_neighbours_and_keep_their_bounds(
        checkpoint_s in 1.0_f64..4_000.0, mttf_s in 1e3_f64..1e7, ratio in 0.1_f64..20.0, seed in any::<u64>(),
        runtime in 0.0_f64..1.0, io in 0.001_f64..=1.0,
    ) {
        let m = ElSayed { checkpoint_s, mttf_s, ratio };
        let (time_s, energy_s) = (m.time_interval_s(), m.energy_interval_s());
        let (least_time, least_energy) = (m.waste(time_s).time, m.waste(energy_s).energy);
        let bounded_s = m.energy_interval_bounded_s(runtime).unwrap();
        let bounded = m.waste(bounded_s);
        let allowed = (1.0 + runtime) * least_time * (1.0 + 1e-12);
        prop_assert!(bounded.time <= allowed || (ratio < 1.0 && bounded_s == energy_s));
        for end_s in [m.bound_interval_s(runtime).unwrap(), m.bound_upper_interval_s(runtime).unwrap()] {
            prop_assert!((m.waste(end_s).time / ((1.0 + runtime) * least_time) - 1.0).abs() < 1e-12);
        }
        let cut_s = m.energy_interval_io_s(io).unwrap();
        prop_assert!(m.waste(cut_s).io <= io * (1.0 + 1e-12));
        for interval_s in neighbours(seed, 1e-3 * time_s, 1e3 * time_s) {
            let other = m.waste(interval_s);
            prop_assert!(other.time >= least_time * (1.0 - 1e-14) && other.energy >= least_energy * (1.0 - 1e-14));
            if other.time <= (1.0 + runtime) * least_time && ratio >= 1.0 {
                prop_assert!(other.energy >= bounded.energy * (1.0 - 1e-12), "{interval_s} beats {bounded_s}");
            }
            if other.io <= io {
                prop_assert!(other.energy >= m.waste(cut_s).energy * (1.0 - 1e-12), "{interval_s} beats {cut_s}");
            }
        }
    }

    #[test]
    fn periods_of_groups_beat_their_neighbours(m in groups(), seed in any::<u64>()) {
        let app = m.app_period_s().map(|t| (t, false));
        for (scope, best) in [(Scope::App, app), (Scope::Plat, m.plat_period_s())] {
            let Some((best_s, unbounded)) = best else { continue };
            let (least_s, best) = (m.shortest_period_s(scope), m.waste(scope, best_s));
            prop_assert!(best_s >= least_s && (!unbounded || best_s == m.cap_s));
            let usable = |w: &Waste| w.failures < 1.0 && w.failure_free < 1.0;
            if !usable(&best) {
                continue;
            }
            let searched = m.period_by_search_s(scope, 100.0 * best_s).unwrap();
            let agrees = (searched / best_s - 1.0).abs() < 1e-6 || m.waste(scope, searched).waste <= best.waste + 1e-13;
            prop_assert!(agrees || unbounded, "{scope:?}: {searched} found, {best_s} computed");
            for period_s in neighbours(seed, least_s, m.cap_s) {
                let other = m.waste(scope, period_s);
                prop_assert!(!usable(&other) || other.waste >= best.waste - 1e-13, "{scope:?}: {period_s} beats {best_s}");
            }
        }
    }

    #[test]
    fn overlapping_failures_cost_less_than_the_closed_form_says(m in groups(), seed in any::<u64>()) {
        let Some(best_s) = m.overlap_period_s() else { return Ok(()) };
        let best = m.overlap_waste(best_s);
        for period_s in neighbours(seed, m.shortest_period_s(Scope::App), 1e3 * m.mtbf_s) {
            prop_assert!(m.overlap_waste(period_s) >= best - 1e-12, "{period_s} beats {best_s}");
            prop_assert!(m.overlap_waste(period_s) <= m.waste(Scope::App, period_s).waste + 1e-12 || m.waste(Scope::App, period_s).failures >= 1.0);
        }
    }

    #[test]
    fn a_shadow_beats_its_neighbours(
        work in 1e2_f64..1e7, laxity in 1.0_f64..10.0, mtbf_s in 1e4_f64..1e9, seed in any::<u64>(),
    ) {
        let m = Shadow { work, speed_max: 1.0, laxity, mtbf_s };
        let best = m.energy(m.speed_optimal()).total();
        let low = m.speed_work_bound().max(1e-12);
        prop_assert!(m.speed_optimal() <= 1.0 + 1e-12);
        for speed in neighbours(seed, low, 1.0) {
            prop_assert!(m.energy(speed).total() >= best * (1.0 - 1e-12), "{speed} beats {}", m.speed_optimal());
        }
        let (rarer, laxer) = (Shadow { mtbf_s: 2.0 * mtbf_s, ..m }, Shadow { laxity: laxity + 1.0, ..m });
        prop_assert!(rarer.speed_optimal() <= m.speed_optimal() * (1.0 + 1e-9));
        prop_assert!(laxer.speed_optimal() <= m.speed_optimal() * (1.0 + 1e-9));
    }

    #[test]
    fn a_shadows_energy_is_the_integral_over_its_failures(
        laxity in 1.05_f64..5.0, mtbf in 0.2_f64..100.0, speed in 0.0_f64..1.0,
    ) {
        let m = Shadow { work: 1.0, speed_max: 1.0, laxity, mtbf_s: mtbf };
        let rate = 1.0 / mtbf;
        let at = |t: f64| {
            let after = (1.0 - speed * t).powi(2) / (laxity - t);
            rate * (-rate * t).exp() * (t + speed * speed * t + after)
        };
        let survived = (-rate).exp() * (1.0 + speed * speed);
        let expected = simpson(at, 0.0, 1.0) + survived;
        prop_assert!((m.energy(speed).total() / expected - 1.0).abs() < 1e-8);
    }

    #[test]
    fn renewal_optima_beat_their_neighbours(m in platform(), seed in any::<u64>()) {
        let costs = Costs {
            checkpoint_s: m.checkpoint_s, restart_s: m.restart_s, down_s: m.down_s, overlap: 0.0,
            static_w: m.static_w, compute_w: m.compute_w, checkpoint_w: m.io_w, down_w: m.down_w,
        };
        let evaluate = |work_s| memoryless::evaluate(m.mtbf_s, &costs, work_s);
        let time_s = memoryless::time_work_s(m.mtbf_s, m.checkpoint_s);
        let (time, energy) = (evaluate(time_s).time, evaluate(memoryless::energy_work_s(m.mtbf_s, &costs)).energy_j);
        for work_s in neighbours(seed, 1e-2 * time_s, 1e2 * time_s) {
            let other = evaluate(work_s);
            prop_assert!(other.time >= time * (1.0 - 1e-9) && other.energy_j >= energy * (1.0 - 1e-9), "at {work_s}");
        }
    }

    #[test]
    fn a_fit_beats_its_neighbours(noise in prop::collection::vec(-0.05_f64..0.05, 5), slope in 0.1_f64..5.0, seed in any::<u64>()) {
        let x = [1.0, 4.0, 6.0, 9.0, 12.0];
        let y: Vec<f64> = x.iter().zip(&noise).map(|(x, e): (&f64, &f64)| (2.0 + slope * x) * (1.0 + e)).collect();
        let all = calibration::best_of(&x, &y, Method::LeastSquares, true).unwrap();
        prop_assert_eq!(all.fits.len(), 5);
        for fit in &all.fits {
            prop_assert!(fit.r2 <= all.best.r2);
            for (u, v) in neighbours(seed, 0.9, 1.1).zip(neighbours(!seed, 0.9, 1.1)) {
                let other = calibration::Fit { alpha: fit.alpha * u, beta: fit.beta * v, ..*fit };
                let sse: f64 = x.iter().zip(&y).map(|(x, y)| (y - other.at(*x)).powi(2)).sum();
                prop_assert!(sse >= fit.sse * (1.0 - 1e-9), "{:?}: {other:?} beats {fit:?}", fit.curve);
            }
        }
    }

    #[test]
    fn fits_recover_the_model_that_made_the_data(p0 in 50.0_f64..100.0, p1 in -20.0_f64..20.0, p2 in 0.5_f64..8.0) {
        let frequencies_hz = [1.2e9, 1.6e9, 2.0e9, 2.4e9, 2.67e9];
        let power = PowerModel([p0, p1, p2]);
        let watts = frequencies_hz.map(|f| power.power_w(f));
        let fit = PowerModel::fit(&frequencies_hz, &watts).unwrap();
        for (found, made) in fit.coefficients.iter().zip(power.0) {
            prop_assert!((found - made).abs() < 1e-9 * p0);
        }
        let time = TimeModel([p0, p2 * 1e-7, p1, p1 * 1e-9]);
        let points: Vec<(f64, f64)> = [1e6, 3.6e7, 1.44e8].iter().flat_map(|s| frequencies_hz.map(|f| (*s, f))).collect();
        let (sizes, at): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
        let seconds: Vec<f64> = points.iter().map(|(s, f)| time.time_s(*s, *f)).collect();
        let fit = TimeModel::fit(&sizes, &at, &seconds).unwrap();
        for ((found, made), unit) in fit.coefficients.iter().zip(time.0).zip([1.0, 1e-8, 1.0, 1e-8]) {
            prop_assert!((found - made).abs() < 1e-8 * p0 * unit, "{fit:?} from {time:?}");
        }
    }

    #[test]
    fn the_chosen_frequency_is_the_least_energy_within_its_bound(size in 0.0_f64..3e8, slowdown in 0.0_f64..0.5) {
        let all: Vec<f64> = (12..=27).map(|f| f64::from(f) * 1e8).collect();
        let energy = |f: f64| predict(&PUBLISHED_POWER, &PUBLISHED_TIME, size, f).unwrap();
        let best_hz = best_frequency_hz(&PUBLISHED_POWER, &PUBLISHED_TIME, size, &all, slowdown).unwrap();
        let shortest_s = all.iter().map(|f| energy(*f).time_s).fold(f64::INFINITY, f64::min);
        prop_assert!(energy(best_hz).time_s <= (1.0 + slowdown) * shortest_s);
        for f in all {
            prop_assert!(energy(f).time_s > (1.0 + slowdown) * shortest_s || energy(f).energy_j >= energy(best_hz).energy_j);
        }
    }

    #[test]
    fn lending_pays_from_the_break_even_on(t1 in 0.0_f64..1e5, c in 0.0_f64..1e3, alpha in 0.0_f64..=1.0, rho in 0.5_f64..3.0) {
        let decision = lending(t1, c, alpha, rho, c, 10.0).unwrap();
        prop_assert_eq!(decision.lend, (alpha * c + t1) / rho >= 2.0 * c + 10.0);
        prop_assert!(lending(t1 + 1e6, c, alpha, rho, c, 10.0).unwrap().lend);
    }
}

fn simpson(f: impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    const STEPS: usize = 4_000;
    let step = (high - low) / STEPS as f64;
    let weight = |i: usize| match i {
        0 | STEPS => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=STEPS).map(|i| weight(i) * f(low + step * i as f64)).sum::<f64>() * step / 3.0
}

#[test]
fn five_points_of_one_to_twenty() {
    let expected: [[f64; 5]; 20] = [
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0, 2.0, 2.0],
        [1.0, 2.0, 2.0, 2.0, 3.0],
        [1.0, 2.0, 2.0, 3.0, 4.0],
        [1.0, 2.0, 2.0, 4.0, 5.0],
        [1.0, 2.0, 3.0, 4.0, 6.0],
        [1.0, 2.0, 4.0, 6.0, 7.0],
        [1.0, 2.0, 4.0, 6.0, 8.0],
        [1.0, 2.0, 4.0, 6.0, 9.0],
        [1.0, 3.0, 5.0, 8.0, 10.0],
        [1.0, 4.0, 6.0, 8.0, 11.0],
        [1.0, 4.0, 6.0, 9.0, 12.0],
        [1.0, 4.0, 6.0, 10.0, 13.0],
        [1.0, 4.0, 7.0, 10.0, 14.0],
        [1.0, 4.0, 8.0, 12.0, 15.0],
        [1.0, 4.0, 8.0, 12.0, 16.0],
        [1.0, 4.0, 8.0, 12.0, 17.0],
        [1.0, 5.0, 9.0, 14.0, 18.0],
        [1.0, 6.0, 10.0, 14.0, 19.0],
        [1.0, 6.0, 10.0, 15.0, 20.0],
    ];
    for (max, expected) in (1..=20).zip(expected) {
        assert_eq!(calibration::points(f64::from(max)).unwrap(), expected, "max {max}");
    }
}

#[test]
fn each_curve_is_chosen_for_its_own_data() {
    let x = [1.0_f64, 4.0, 6.0, 9.0, 12.0];
    type Form = fn(f64) -> f64;
    let curves: [(Curve, Form); 5] = [
        (Curve::Linear, |x| 3.0 * x + 10.0),
        (Curve::Logarithmic, |x| 2.0 * x.ln() + 5.0),
        (Curve::Power, |x| 3.0 * x.powf(0.7)),
        (Curve::Exponential, |x| 1.3_f64.powf(x) + 7.0),
        (Curve::ExponentialMult, |x| 2.0 * 1.1_f64.powf(x)),
    ];
    for (curve, made) in curves {
        let best = calibration::best_of(&x, &x.map(made), Method::LeastSquares, true).unwrap().best;
        assert_eq!(best.curve, curve);
        assert!((best.at(16.0) / made(16.0) - 1.0).abs() < 1e-8, "{best:?}");
    }
}

#[test]
fn a_constant_is_linear_and_degenerate_whatever_its_digits() {
    for (y, count) in [(0.1, 6), (1.1, 6), (0.3, 7), (17.0, 5), (0.0, 3), (-2.7, 9)] {
        let x: Vec<f64> = (1..=count).map(f64::from).collect();
        let all = calibration::best_of(&x, &vec![y; x.len()], Method::LeastSquares, true).unwrap();
        assert!(all.degenerate);
        assert_eq!((all.best.curve, all.best.r2, all.best.at(100.0)), (Curve::Linear, 1.0, y), "{y} {count} times");
    }
}

#[test]
fn the_exponential_integral_has_its_tabulated_values() {
    for (x, ei) in [(0.1, -1.622_812_813_969_279), (1.0, 1.895_117_816_355_936_8), (10.0, 2_492.228_976_241_877_8)] {
        assert!((ei_scaled(x) / (ei * f64::exp(-x)) - 1.0).abs() < 1e-13, "Ei({x})");
    }
    let (below, above) = (ei_scaled(40.0 - 1e-9), ei_scaled(40.0));
    assert!((below / above - 1.0).abs() < 1e-9, "the series and the expansion meet");
}

#[test]
fn dalys_higher_order_is_the_mtbf_from_twice_it_on() {
    assert_eq!(young_daly(100.0, 200.0, 0.0, 0.0).unwrap().daly_higher_order_interval_s, 100.0);
    let below = young_daly(100.0, 199.999, 0.0, 0.0).unwrap().daly_higher_order_interval_s;
    assert!(below > 80.0 && below < 100.0, "{below}");
}

#[test]
fn a_platform_that_has_time_for_its_checkpoint_alone_is_infeasible_whatever_the_rounding() {
    for scale in [1.0, 3.0, 7.0, 1e3, 1e7] {
        for thirds in [1.0, 2.0, 5.0] {
            let (checkpoint_s, restart_s) = (0.2 * scale, 0.1 * thirds * scale);
            let platform = policy::periods::Aupy {
                mtbf_s: restart_s + checkpoint_s / 2.0,
                checkpoint_s,
                restart_s,
                down_s: 0.0,
                overlap: 0.0,
                static_w: 1.0,
                compute_w: 1.0,
                io_w: 10.0,
                down_w: 0.0,
                base_s: 1.0,
            };
            assert!(!platform.feasible(), "{platform:?}");
        }
    }
}

#[test]
fn an_interval_far_beyond_the_mtbf_is_expected_to_cost_more_and_never_less_than_nothing() {
    let costs = Costs {
        checkpoint_s: 0.2,
        restart_s: 2.0,
        down_s: 1.0,
        overlap: 0.0,
        static_w: 100.0,
        compute_w: 200.0,
        checkpoint_w: 50.0,
        down_w: 0.0,
    };
    let mut before = 0.0;
    for interval_s in [30.0, 60.0, 600.0, 3600.0, 86_400.0] {
        let expected = expected_at(interval_s, 60.0, &costs).expect("an interval");
        assert!(expected.time_overhead > before, "{interval_s} s: {expected:?}");
        before = expected.time_overhead;
    }
}
