//! Estimates from generated points with noise come near the truth, and say how near.

use policy::calibration::{Fits, Method, VolumeModel, best_of, law, scatter, straight};
use policy::estimate::{At, Base, Sample, checkpoint_j, coordination_j, estimate, logging, logging_j, of_frequency};
use rand::{Rng, SeedableRng};

const NOISE: f64 = 0.02;

/// Points of a truth, each with up to `NOISE` of error.
fn points(
    grid: &[(f64, f64, f64)],
    seed: u64,
    time_s: impl Fn(f64, f64, f64) -> f64,
    delta_w: impl Fn(f64) -> f64,
) -> Vec<Sample> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut noisy = |x: f64| x * (1.0 + NOISE * rng.random_range(-1.0..1.0));
    let one = |&(nodes, processes, bytes): &(f64, f64, f64)| {
        let (t, d) = (noisy(time_s(nodes, processes, bytes)), noisy(delta_w(processes)));
        Sample {
            nodes,
            processes,
            bytes,
            frequency_hz: None,
            time_s: t,
            time_ci_s: NOISE * t,
            delta_w: d,
            delta_ci_w: NOISE * d,
        }
    };
    grid.iter().map(one).collect()
}

fn grid(nodes: &[f64], processes: &[f64], bytes: &[f64]) -> Vec<(f64, f64, f64)> {
    let of = |n: &f64| {
        processes
            .iter()
            .flat_map(move |p| bytes.iter().map(move |v| (*p, *v)))
            .map(|(p, v)| (*n, p, v))
            .collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of).collect()
}

const P: [f64; 5] = [1.0, 4.0, 8.0, 12.0, 16.0];
const V: [f64; 5] = [1e6, 2.5e8, 5e8, 7.5e8, 1e9];
const N: [f64; 5] = [1.0, 2.0, 4.0, 6.0, 8.0];

#[track_caller]
fn near(found: f64, truth: f64, fraction: f64) {
    assert!((found / truth - 1.0).abs() < fraction, "{found} against {truth}");
}

#[test]
fn a_checkpoint_between_the_points_is_estimated_within_the_noise() {
    let truth = |_: f64, p: f64, v: f64| 0.05 + 0.01 * p + v / 4e8;
    for seed in 0..20 {
        let samples = points(&grid(&[1.0], &P, &V), seed, truth, |p| 20.0 + 5.0 * p);
        let cost =
            estimate(&samples, At { nodes: 1.0, processes: 6.0, bytes: 6e8 }, VolumeModel::Law, &Fits::default())
                .unwrap();
        near(cost.time_s.value, truth(1.0, 6.0, 6e8), 0.049);
        near(cost.delta_w.value, 50.0, 0.049);
        assert!(!cost.extrapolated && cost.time_s.low < cost.time_s.value && cost.time_s.value < cost.time_s.high);
    }
}

#[test]
fn the_truth_lies_in_the_interval_nearly_always() {
    let truth = |_: f64, p: f64, v: f64| 0.05 + 0.01 * p + v / 4e8;
    let hit = |seed: u64| {
        let samples = points(&grid(&[1.0], &P, &V), seed, truth, |p| 20.0 + 5.0 * p);
        let at = At { nodes: 1.0, processes: 10.0, bytes: 3e8 };
        let cost = estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap();
        let t = truth(1.0, 10.0, 3e8);
        cost.time_s.low <= t && t <= cost.time_s.high
    };
    let hits = (0..100).filter(|seed| hit(*seed)).count();
    assert!(hits >= 90, "{hits} of 100");
}

#[test]
fn a_shared_file_system_slows_down_with_the_nodes() {
    let truth = |n: f64, _: f64, v: f64| 0.1 + n * v / 2e9;
    let samples = points(&grid(&N, &[1.0, 8.0, 16.0], &V), 3, truth, |_| 30.0);
    let at = At { nodes: 5.0, processes: 12.0, bytes: 6e8 };
    near(estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap().time_s.value, truth(5.0, 0.0, 6e8), 0.05);
}

#[test]
fn synchronisation_follows_the_logarithm_of_the_nodes() {
    let truth = |n: f64, p: f64, _: f64| 1e-3 * (1.0 + (n * p).ln());
    let samples = points(&grid(&[1.0, 4.0, 8.0, 12.0, 16.0], &[1.0, 2.0, 3.0, 4.0], &[0.0]), 5, truth, |_| 60.0);
    let at = At { nodes: 10.0, processes: 2.0, bytes: 0.0 };
    near(
        estimate(&samples, at, VolumeModel::BestOf, &Fits::default()).unwrap().time_s.value,
        truth(10.0, 2.0, 0.0),
        0.05,
    );
}

#[test]
fn outside_of_the_points_the_interval_widens_and_it_is_said() {
    let truth = |_: f64, _: f64, v: f64| 0.05 + v / 4e8;
    let samples = points(&grid(&[1.0], &[1.0], &V), 7, truth, |_| 30.0);
    let width = |bytes: f64| {
        let cost =
            estimate(&samples, At { nodes: 1.0, processes: 1.0, bytes }, VolumeModel::Law, &Fits::default()).unwrap();
        ((cost.time_s.high - cost.time_s.low) / cost.time_s.value, cost.extrapolated)
    };
    let (inside, outside) = (width(6e8), width(4e9));
    assert!(!inside.1 && outside.1 && outside.0 > 2.0 * inside.0, "{inside:?} {outside:?}");
}

#[test]
fn one_point_is_an_estimate_and_none_is_an_error() {
    let at = At { nodes: 3.0, processes: 2.0, bytes: 0.0 };
    let one = points(&[(2.0, 2.0, 0.0)], 1, |_, _, _| 0.5, |_| 10.0);
    assert_eq!(estimate(&one, at, VolumeModel::BestOf, &Fits::default()).unwrap().time_s.value, one[0].time_s);
    let e = estimate(&[], at, VolumeModel::BestOf, &Fits::default()).unwrap_err();
    assert_eq!(e.parameter, "samples");
}

#[test]
fn messages_pay_their_access_each() {
    let samples = points(&grid(&[1.0], &[1.0, 4.0], &[1e3, 1e5, 1e6]), 2, |_, _, v| 1e-5 + v / 1e9, |_| 40.0);
    let at = |bytes| At { nodes: 1.0, processes: 1.0, bytes };
    let cost = logging(&samples, 1e6, at(1e9), &Fits::default()).unwrap();
    near(cost.time_s.value, 10.0 + 1.0, 0.1);
}

#[test]
fn energies_are_those_of_the_paper() {
    let exact = |t: f64, d: f64| {
        let s = Sample {
            nodes: 4.0,
            processes: 2.0,
            bytes: 1e9,
            frequency_hz: None,
            time_s: t,
            time_ci_s: 0.0,
            delta_w: d,
            delta_ci_w: 0.0,
        };
        estimate(&[s], At { nodes: 4.0, processes: 2.0, bytes: 1e9 }, VolumeModel::Law, &Fits::default()).unwrap()
    };
    let base = Base { nodes: 4.0, idle_w: 400.0, switches_w: 100.0 };
    assert_eq!(checkpoint_j(&exact(2.0, 50.0), &base).value, 2.0 * (4.0 * 50.0 + 500.0));
    assert_eq!(coordination_j(&exact(1.0, 100.0), &exact(0.5, 20.0), &base).value, 900.0 + 290.0);
    assert_eq!(logging_j(&exact(3.0, 10.0), &base).value, 3.0 * 540.0);
}

#[test]
fn the_power_of_what_waits_first_and_works_then_rises_with_the_volume() {
    // 0.1 s of waiting at 5 W above idle, then 100 MB/s at 80 W.
    let truth = |_: f64, _: f64, v: f64| 0.1 + v / 1e8;
    let power = |v: f64| (0.1 * 5.0 + v / 1e8 * 80.0) / truth(1.0, 1.0, v);
    let mut samples = points(&grid(&[1.0], &[1.0, 2.0], &[1e6, 1.6e7, 3.2e7]), 4, truth, |_| 1.0);
    samples.iter_mut().for_each(|s| s.delta_w *= power(s.bytes));
    for bytes in [2e6, 8e6, 2.4e7] {
        let at = At { nodes: 1.0, processes: 1.0, bytes };
        near(estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap().delta_w.value, power(bytes), 0.1);
    }
}

/// A machine whose scatter grows with the volume, each point measured five times.
fn scattering(seed: u64, truth: impl Fn(f64) -> f64, processes: &[f64], volumes: &[f64]) -> Vec<Sample> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut one = |&(nodes, processes, bytes): &(f64, f64, f64)| {
        let scatter_s = 0.001 + 0.3 * bytes / 1e9;
        let times: Vec<f64> = (0..5).map(|_| truth(bytes) + scatter_s * normal(&mut rng)).collect();
        let s = policy::repeated::summarize(&times).unwrap();
        let (time_s, time_ci_s) = (s.mean, s.half_width);
        Sample { nodes, processes, bytes, frequency_hz: None, time_s, time_ci_s, delta_w: 10.0, delta_ci_w: 0.0 }
    };
    grid(&[1.0], processes, volumes).iter().map(&mut one).collect()
}

/// Nearly normal: the sum of twelve uniform numbers.
fn normal(rng: &mut rand_chacha::ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random_range(-0.5..0.5)).sum()
}

#[test]
fn small_volumes_are_not_spoilt_by_the_scatter_of_large_ones() {
    let truth = |v: f64| 0.1 + v / 2e8;
    let at = |bytes: f64| At { nodes: 1.0, processes: 1.0, bytes };
    let alike = |s: &Sample| Sample { time_ci_s: 0.0, ..*s };
    let (mut weighted, mut plain) = ([0.0; 2], [0.0; 2]);
    for seed in 0..40 {
        let samples = scattering(seed, truth, &[1.0, 2.0], &V);
        let unweighted: Vec<Sample> = samples.iter().map(alike).collect();
        for (i, bytes) in [2e6, 9e8].into_iter().enumerate() {
            let missed = |samples: &[Sample]| {
                let cost = estimate(samples, at(bytes), VolumeModel::Law, &Fits::default()).unwrap();
                (cost.time_s.value / truth(bytes) - 1.0).abs() / 40.0
            };
            weighted[i] += missed(&samples);
            plain[i] += missed(&unweighted);
        }
    }
    assert!(weighted[0] < 0.2 * plain[0], "2 MB: {weighted:?} against {plain:?}");
    assert!(weighted[1] < 1.2 * plain[1], "900 MB: {weighted:?} against {plain:?}");
}

#[test]
fn the_interval_of_a_volume_is_as_wide_as_volumes_of_its_size_scatter() {
    let truth = |v: f64| 0.1 + v / 2e8;
    for (processes, bytes, widest) in
        [(&[1.0][..], 2e6, 0.15), (&[1.0], 6e7, 0.25), (&[1.0], 6e8, 0.25), (&P, 2e6, 0.15), (&P, 6e8, 0.25)]
    {
        let (mut hits, mut half) = (0, 0.0);
        for seed in 0..200 {
            let samples = scattering(seed, truth, processes, &V);
            let at = At { nodes: 1.0, processes: processes[processes.len() / 2], bytes };
            let time_s = estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap().time_s;
            hits += usize::from(time_s.low <= truth(bytes) && truth(bytes) <= time_s.high);
            half += (time_s.high - time_s.value) / truth(bytes) / 200.0;
        }
        assert!(hits >= 190, "{processes:?} processes, {bytes} bytes: {hits} of 200");
        assert!(half < widest, "{processes:?} processes, {bytes} bytes: {half}");
    }
}

#[test]
fn points_that_are_equally_certain_are_fitted_as_without_weights() {
    let t = [0.11, 1.3, 2.7, 3.6, 5.2];
    let plain = best_of(&V, &t, Method::LeastSquares, false).unwrap().fits[0];
    for widths in [&[][..], &[0.3; 5]] {
        assert_eq!(straight(&V, &t, widths).unwrap(), plain);
        assert_eq!(scatter(&V, widths, 6e8), 1.0);
    }
    let widths = [0.1, 0.2, 0.3, 0.3, 0.5];
    for (bytes, times) in [(0.0, 1.0), (1e6, 1.0), (3.75e8, 2.5), (1e9, 5.0), (4e9, 5.0)] {
        near(scatter(&V, &widths, bytes), times, 1e-9);
    }
}

#[test]
fn one_point_that_is_narrow_by_luck_does_not_decide_the_line() {
    let mut samples = points(&grid(&[1.0], &P, &V), 9, |_, _, v| 0.1 + v / 2e8, |_| 10.0);
    let lucky = samples.iter_mut().find(|s| s.processes == 4.0 && s.bytes == 7.5e8).unwrap();
    (lucky.time_s, lucky.time_ci_s) = (1.1 * lucky.time_s, 1e-6);
    let at = At { nodes: 1.0, processes: 4.0, bytes: 9e8 };
    near(estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap().time_s.value, 4.6, 0.06);
}

#[test]
fn points_of_other_frequencies_are_kept_apart() {
    let mut samples = points(&grid(&[1.0], &[1.0], &[1e6, 1e9]), 1, |_, _, v| v / 1e9, |_| 10.0);
    let slow: Vec<Sample> = samples.iter().map(|s| Sample { frequency_hz: Some(1.2e9), ..*s }).collect();
    let fast: Vec<Sample> = samples.iter().map(|s| Sample { frequency_hz: Some(2.4e9), ..*s }).collect();
    let set: Vec<Sample> = [slow, fast].concat();
    assert_eq!(of_frequency(&set, None)[0].frequency_hz, Some(2.4e9));
    assert_eq!(of_frequency(&set, Some(1.2e9)).len(), 2);
    samples.extend(set);
    let own = of_frequency(&samples, None);
    assert!(own.len() == 2 && own.iter().all(|s| s.frequency_hz.is_none()));
    samples.retain(|s| s.frequency_hz.is_some() || s.bytes == 1e9);
    let mixed: Vec<Option<f64>> = of_frequency(&samples, None).iter().map(|s| s.frequency_hz).collect();
    assert_eq!(mixed, [None, Some(2.4e9)], "where the node's own was not measured, the highest stands for it");
}

#[test]
fn neither_the_access_nor_the_rate_of_a_law_is_below_zero() {
    let v = [1e6, 1.6e7, 3.2e7];
    let falls = law(&v, &[0.3, 0.2, 0.1], &[]).unwrap();
    assert_eq!((falls.alpha, falls.at(1e12)), (0.0, falls.at(0.0)), "a large volume is not free");
    near(falls.at(1e12), 0.2, 1e-9);
    let steep = law(&v, &[0.001, 0.2, 0.5], &[]).unwrap();
    assert!(steep.beta == 0.0 && steep.at(1e4) > 0.0, "a small one takes its time: {steep:?}");
    for widths in [&[][..], &[0.01, 0.02, 0.05]] {
        let rises = [0.1, 0.2, 0.3];
        assert_eq!(law(&v, &rises, widths).unwrap(), straight(&v, &rises, widths).unwrap());
    }
    assert!(law(&[1e6], &[1.0], &[]).is_err() && law(&[1e6, 1e6], &[1.0, 2.0], &[]).is_err());
}

#[test]
fn a_disk_whose_noise_falls_with_the_volume_is_still_estimated_far_beyond_what_was_measured() {
    for seed in 0..50 {
        let mut samples = points(&grid(&[1.0], &[1.0, 2.0], &[1e6, 1.6e7, 3.2e7]), seed, |_, _, _| 0.1, |_| 10.0);
        samples.iter_mut().for_each(|s| s.time_s *= 1.1 - s.bytes / 1.6e8);
        for bytes in [1e3, 2e6, 1e9, 1e12] {
            let at = At { nodes: 1.0, processes: 1.0, bytes };
            let cost = estimate(&samples, at, VolumeModel::Law, &Fits::default()).unwrap();
            assert!((0.05..0.2).contains(&cost.time_s.value), "{bytes} bytes: {cost:?}");
            assert!((5.0..20.0).contains(&cost.delta_w.value), "{bytes} bytes: {cost:?}");
        }
    }
}

#[test]
fn a_barrier_of_many_more_nodes_than_were_measured_neither_runs_away_nor_becomes_free() {
    let truth = |n: f64, _: f64, _: f64| 1e-3 * (1.0 + n.ln());
    for seed in 0..200 {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut samples = points(&grid(&N, &[1.0, 4.0], &[0.0]), seed, truth, |_| 60.0);
        samples.iter_mut().for_each(|s| s.time_s *= 1.0 + 0.3 * rng.random_range(-1.0..1.0));
        let at = |nodes: f64| At { nodes, processes: 4.0, bytes: 0.0 };
        let cost = |nodes| estimate(&samples, at(nodes), VolumeModel::BestOf, &Fits::default()).unwrap();
        let (eight, many) = (cost(8.0).time_s.value, cost(1000.0));
        assert!(many.extrapolated && many.time_s.value >= 0.5 * eight, "seed {seed}: {eight} {many:?}");
        // The method may take noise for a power of N, but not for one that doubles with each node.
        assert!(many.time_s.value < 1000.0 * eight, "seed {seed}: {eight} {many:?}");
    }
}

#[test]
fn a_power_near_idle_does_not_make_the_others_uncertain() {
    let mut samples = points(&grid(&[1.0], &[1.0, 4.0, 8.0], &[0.0]), 1, |_, _, _| 1.0, |p| 10.0 * p);
    for (s, delta_w) in samples.iter_mut().zip([0.01, 40.0, 80.0]) {
        (s.delta_w, s.delta_ci_w) = (delta_w, 3.0);
    }
    let at = At { nodes: 1.0, processes: 6.0, bytes: 0.0 };
    let delta_w = estimate(&samples, at, VolumeModel::BestOf, &Fits::default()).unwrap().delta_w;
    assert!((40.0..80.0).contains(&delta_w.value) && delta_w.high - delta_w.value < 40.0, "{delta_w:?}");
    samples.iter_mut().for_each(|s| s.delta_w = -5.0);
    let below = estimate(&samples, at, VolumeModel::BestOf, &Fits::default()).unwrap().delta_w;
    assert!(below.value == 0.0 && below.low == 0.0 && below.high >= 3.0, "no node draws less than idle: {below:?}");
}
