//! Measures the platform's events per second on one core, by protocol.

use criterion::{Criterion, Throughput, criterion_main};
use simulator::platform::{
    Costs, Failures, Machine, Period, Protocol, Scenario, ShadowSpeed, Shadowing, Task, Watts, Workload,
};
use simulator::trace::Distribution;

fn events(criterion: &mut Criterion) {
    let costs = Costs {
        checkpoint_s: 50.0,
        restart_s: 50.0,
        down_s: 60.0,
        alpha: 0.3,
        lambda: 0.98,
        rho: 1.5,
        beta: 2.86e-4,
        load_s: 50.0,
        save_s: 50.0,
        scheduler_s: 0.0,
    };
    let machine = Machine {
        nodes: 88_800,
        spares: 300,
        groups: 296,
        mtbf_s: 7_200.0,
        failures: Failures::Drawn(Distribution::Exponential),
        repair_s: 60.0,
        overlap: true,
        costs,
        watts: Watts::of(10.0, 10.0, 100.0, 0.0, 0.3),
    };
    let shadow = Protocol::Shadow(Shadowing { speed: 1.0, laxity: 1.5, shadow: ShadowSpeed::Optimal });
    let workload = Workload::Backlog(Task { work_s: 43_200.0, nodes: 300 });
    let mut group = criterion.benchmark_group("platform");
    for (name, protocol) in [
        ("coordinated", Protocol::Coordinated),
        ("uncoordinated", Protocol::Uncoordinated),
        ("lending", Protocol::Lending),
        ("shadow", shadow),
    ] {
        let (machine, workload) = (&machine, &workload);
        let scenario = Scenario { machine, protocol, period: Period::Application, workload, horizon_s: 1e8 };
        let run = || scenario.run(7).expect("valid machine");
        group.throughput(Throughput::Elements(run().events));
        group.bench_function(name, |b| b.iter(run));
    }
    group.finish();
}

#[allow(missing_docs, reason = "the macro writes an undocumented function")]
mod group {
    criterion::criterion_group!(benches, super::events);
}
criterion_main!(group::benches);
