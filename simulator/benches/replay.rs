//! Measures replayed events (failures and checkpoints) per second on one core, and a grid on all of them.

use criterion::{Criterion, Throughput, criterion_main};
use policy::interval::Objective;
use simulator::grid::{Grid, Policy};
use simulator::replay::{Rule, Setting, replay};
use simulator::trace::{Distribution, Trace};

const SETTING: Setting =
    Setting { checkpoint_s: 300.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };

fn trace(gaps: usize, seed: u64) -> Trace {
    Trace::synthetic(Distribution::Weibull(0.7), 50_000.0, gaps, seed).expect("valid parameters")
}

fn events(criterion: &mut Criterion) {
    // As many gaps as the largest of the Los Alamos systems has.
    let trace = trace(5_000, 7);
    let mut group = criterion.benchmark_group("replay");
    for name in Rule::NAMES {
        let rule = Rule::named(name).expect("known name");
        let outcome = replay(&trace, rule, Objective::Energy, &SETTING).expect("valid setting");
        group.throughput(Throughput::Elements(outcome.events() as u64));
        group.bench_function(name, |b| b.iter(|| replay(&trace, rule, Objective::Energy, &SETTING)));
    }
    group.finish();
}

/// A tenth of 10 systems x 20 policies x 100 points.
fn grid(criterion: &mut Criterion) {
    let settings = (1..=10).map(|i| Setting { checkpoint_s: 60.0 * f64::from(i), ..SETTING }).collect();
    let objectives = [Objective::Time, Objective::Energy];
    let policies = Policy::all(&Rule::NAMES, &objectives).expect("known names");
    let grid = Grid { settings, traces: (1..=10).map(|seed| trace(2_000, seed)).collect(), policies };
    let mut group = criterion.benchmark_group("grid");
    group.sample_size(10).throughput(Throughput::Elements(grid.len() as u64));
    group.bench_function("10 systems, 20 policies, 10 points", |b| b.iter(|| grid.replay(|| ())));
    group.finish();
}

#[allow(missing_docs, reason = "the macro writes an undocumented function")]
mod group {
    criterion::criterion_group!(benches, super::events, super::grid);
}
criterion_main!(group::benches);
