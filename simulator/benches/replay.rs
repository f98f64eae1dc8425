//! Measures replayed events (failures and checkpoints) per second on one core.

use criterion::{Criterion, Throughput, criterion_main};
use policy::interval::Objective;
use simulator::replay::{Rule, Setting, replay};
use simulator::trace::{Distribution, Trace};

fn events(criterion: &mut Criterion) {
    let trace = Trace::synthetic(Distribution::Weibull(0.7), 50_000.0, 20_000, 7).expect("valid parameters");
    let setting = Setting { checkpoint_s: 300.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };
    let mut group = criterion.benchmark_group("replay");
    for name in ["young", "sma", "ema", "ar", "hazard-shape", "auto"] {
        let rule = Rule::named(name).expect("known name");
        let outcome = replay(&trace, rule, Objective::Energy, &setting).expect("valid setting");
        group.throughput(Throughput::Elements(outcome.events() as u64));
        group.bench_function(name, |b| b.iter(|| replay(&trace, rule, Objective::Energy, &setting)));
    }
    group.finish();
}

#[allow(missing_docs, reason = "the macro writes an undocumented function")]
mod group {
    criterion::criterion_group!(benches, super::events);
}
criterion_main!(group::benches);
