//! The platform agrees with the closed forms, keeps every node-second, and is reproducible by seed.

use policy::waste::Scope;
use simulator::platform::{
    Costs, Failures, Machine, Outcome, Period, Phase, Plan, Protocol, ShadowSpeed, Shadowing, Watts, Workload,
    expected, parse_queue, plan, simulate, simulate_runs,
};
use simulator::trace::Distribution;

const BACKLOG: Workload = Workload::Backlog { task_s: 43_200.0 };
const PROTOCOLS: [Protocol; 4] = [
    Protocol::Coordinated,
    Protocol::Uncoordinated,
    Protocol::Lending,
    Protocol::Shadow(Shadowing { speed: 1.0, laxity: 1.5, shadow: ShadowSpeed::Optimal }),
];

/// A machine like Bouteiller13's K computer, with remote checkpoints.
fn machine() -> Machine {
    Machine {
        nodes: 88_800,
        spares: 300,
        groups: 296,
        mtbf_s: 7_200.0,
        failures: Failures::Drawn(Distribution::Exponential),
        repair_s: 60.0,
        overlap: true,
        costs: Costs {
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
        },
        watts: Watts::of(10.0, 10.0, 100.0, 0.0, 0.3),
    }
}

/// Mean and half width of the 95 % confidence interval of a figure of each run.
fn figure(outcomes: &[Outcome], value: impl Fn(&Outcome) -> f64) -> (f64, f64) {
    let n = outcomes.len() as f64;
    let mean = outcomes.iter().map(&value).sum::<f64>() / n;
    let variance = outcomes.iter().map(|o| (value(o) - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, 2.1 * (variance / n).sqrt())
}

fn runs(machine: &Machine, protocol: Protocol, period: Period, failures: f64) -> Vec<Outcome> {
    simulate_runs(machine, protocol, period, &BACKLOG, failures * machine.mtbf_s, 1..21).unwrap()
}

/// Asserts that the mean lies within the confidence interval, widened to one error in some thousands.
fn assert_near(what: &str, found: (f64, f64), expected: f64) {
    let (mean, confidence) = found;
    assert!((mean - expected).abs() <= 1.8 * confidence + 1e-9, "{what}: {mean} ± {confidence}, expected {expected}");
}

#[test]
fn every_node_second_has_one_phase_and_its_energy() {
    for protocol in PROTOCOLS {
        for (overlap, mtbf_s, distribution) in [
            (true, 7_200.0, Distribution::Exponential),
            (false, 1_800.0, Distribution::Exponential),
            (true, 600.0, Distribution::Weibull(0.7)),
        ] {
            let failures = Failures::Drawn(distribution);
            let machine = Machine { overlap, mtbf_s, failures, nodes: 2_960, spares: 10, ..machine() };
            let o = simulate(&machine, protocol, Period::Application, &BACKLOG, 1e6, 7).unwrap();
            let all = 2_970.0 * o.elapsed_s;
            assert!(
                (o.ledger.total_node_s() / all - 1.0).abs() < 1e-9,
                "{protocol:?} {}",
                o.ledger.total_node_s() / all
            );
            for phase in Phase::ALL {
                assert!(o.ledger.node_s(phase) >= -1e-6 * all, "{protocol:?} {phase:?} {}", o.ledger.node_s(phase));
                let energy_j = o.ledger.node_s(phase) * machine.watts.at(phase);
                let found_j = o.ledger.energy_j(phase, &machine.watts);
                let slower = phase == Phase::Shadow && found_j < energy_j;
                assert!(slower || (found_j - energy_j).abs() <= 1e-9 * energy_j.abs(), "{protocol:?} {phase:?}");
            }
            let sum_j: f64 = Phase::ALL.iter().map(|p| o.ledger.energy_j(*p, &machine.watts)).sum();
            assert!((o.energy_j / sum_j - 1.0).abs() < 1e-12);
            assert!(o.failures > 100, "{}", o.failures);
        }
    }
}

#[test]
fn coordinated_waste_is_the_exact_renewal_where_checkpoints_block() {
    for mtbf_s in [400.0, 2_000.0, 20_000.0] {
        let mut machine = Machine { mtbf_s, ..machine() };
        machine.costs.alpha = 0.0;
        machine.costs.down_s = 0.0;
        let found =
            figure(&runs(&machine, Protocol::Coordinated, Period::Application, 2_000.0), Outcome::application_waste);
        let expected = expected(&machine, Protocol::Coordinated, Period::Application, 1.0).unwrap();
        assert_near(&format!("MTBF {mtbf_s}"), found, expected.application);
    }
}

#[test]
fn coordinated_waste_approaches_aupy_as_failures_become_rare() {
    let mut last = f64::INFINITY;
    for (mtbf_s, tolerance) in [(2e3, 0.1), (2e4, 0.02), (2e5, 0.005)] {
        let machine = Machine { mtbf_s, ..machine() };
        let found =
            figure(&runs(&machine, Protocol::Coordinated, Period::Application, 5_000.0), Outcome::application_waste);
        let form = expected(&machine, Protocol::Coordinated, Period::Application, 1.0).unwrap();
        let off = (form.application / found.0 - 1.0).abs();
        assert!(off < tolerance && off < last, "MTBF {mtbf_s}: {found:?}, {form:?}, off {off}");
        last = off;
    }
}
