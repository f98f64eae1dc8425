//! The choice of a protocol keeps to the models it rests on, to the bounds, and to the safer side.

use policy::calibration::ProtocolEnergy;
use policy::choice::{Costs, Decision, Hindrance, Outcome, Protocol, Run, choose};
use policy::estimate::{Cost, Estimate};
use policy::interval::{self, Bounds, Objective, choose_interval};
use policy::memoryless;
use policy::waste::{Bouteiller, Storage};
use proptest::prelude::*;

fn exactly(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

fn within(value: f64, share: f64) -> Estimate {
    Estimate { value, low: value * (1.0 - share), high: value * (1.0 + share) }
}

fn cost(time_s: f64, delta_w: f64) -> Cost {
    Cost { time_s: exactly(time_s), delta_w: exactly(delta_w), extrapolated: false }
}

fn run() -> Run {
    Run {
        nodes: 8.0,
        groups: 8.0,
        mtbf_s: 2e5,
        work_s: 86_400.0,
        growth_per_s: 0.0,
        load_save_s: 60.0,
        laxity: 2.0,
        interval_s: None,
    }
}

fn costs() -> Costs {
    Costs {
        checkpoint: cost(30.0, 60.0),
        coordination: cost(0.5, 40.0),
        group_coordination: cost(0.0, 0.0),
        restart: cost(45.0, 60.0),
        disk_log: Some(cost(300.0, 50.0)),
        memory_log: Some(cost(20.0, 90.0)),
        compute_w: exactly(200.0),
        static_w: 800.0,
    }
}

fn all(objective: Objective, run: &Run, costs: &Costs, bounds: &Bounds) -> Decision {
    choose(objective, run, costs, bounds, |_| None).unwrap()
}

fn unlent(protocol: Protocol) -> Option<Hindrance> {
    (protocol > Protocol::MemoryLog).then(|| Hindrance::NotAsked("not asked".into()))
}

fn outcome(decision: &Decision, protocol: Protocol) -> &Outcome {
    decision.rows.iter().find(|r| r.protocol == protocol).unwrap().outcome.as_ref().unwrap()
}

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * a.abs().max(b.abs())
}

#[test]
fn a_coordinated_run_is_that_of_the_interval_and_of_the_renewal_model() {
    const MEAN_W: f64 = (30.0 * 60.0 + 0.5 * 40.0) / 30.5;
    let (run, mut costs) = (run(), costs());
    costs.restart.delta_w = exactly(MEAN_W);
    let decision = all(Objective::Energy, &run, &costs, &Bounds::default());
    let found = outcome(&decision, Protocol::Coordinated);
    let as_interval = interval::Costs {
        checkpoint_s: 30.5,
        restart_s: 45.0,
        down_s: 0.0,
        overlap: 0.0,
        static_w: 800.0,
        compute_w: 1600.0,
        checkpoint_w: 8.0 * MEAN_W,
        down_w: 0.0,
    };
    let chosen = choose_interval(Objective::Energy, run.mtbf_s, &as_interval, &Bounds::default()).unwrap();
    assert!(close(found.interval_s.unwrap(), chosen.interval_s, 1e-9), "{found:?}");
    let exact = memoryless::evaluate(run.mtbf_s, &as_interval, chosen.interval_s);
    assert!(close(found.time_s.value, run.work_s * exact.time, 1e-9), "{found:?} {exact:?}");
    assert!(close(found.energy_j.value, run.work_s * exact.energy_j, 1e-9), "{found:?} {exact:?}");
}

#[test]
fn an_uncoordinated_run_wastes_what_bouteiller_says_with_overlapping_failures() {
    let run = Run { interval_s: Some(3000.0), growth_per_s: 1e-5, ..run() };
    let costs = costs();
    let decision = all(Objective::Time, &run, &costs, &Bounds::default());
    let found = outcome(&decision, Protocol::MemoryLog);
    let lambda = run.work_s / (run.work_s + 20.0);
    let paper = Bouteiller {
        mtbf_s: run.mtbf_s,
        groups: run.groups,
        checkpoint_s: 30.0,
        down_s: 0.0,
        restart_s: 45.0,
        alpha: 0.0,
        lambda,
        rho: 1.0,
        beta: 1e-5 / lambda,
        load_s: 0.0,
        save_s: 0.0,
        cap_s: 1e9,
        storage: Storage::Remote,
    };
    let period_s = 3000.0 + 30.0 * (1.0 + 1e-5 * 3000.0);
    let waste = 1.0 - run.work_s / found.time_s.value;
    // The log slows the checkpoint's share of a period too in Bouteiller's W = lambda (T - C).
    assert!(close(waste, paper.overlap_waste(period_s), 1e-6), "{waste} {}", paper.overlap_waste(period_s));
}

#[test]
fn without_failures_the_choice_flips_at_aupy_s_break_even() {
    let costs = costs();
    let energy = |c: &Cost| c.time_s.value * (800.0 + 8.0 * c.delta_w.value);
    let paper = ProtocolEnergy {
        checkpoint_j: energy(&costs.checkpoint),
        coordination_j: energy(&costs.coordination),
        logging_j: energy(&costs.memory_log.unwrap()),
    };
    let n = paper.break_even();
    let with = |checkpoints: f64| {
        let run = Run { mtbf_s: 3e13, interval_s: Some(86_400.0 / checkpoints), ..run() };
        choose(Objective::Energy, &run, &costs, &Bounds::default(), unlent).unwrap()
    };
    assert_eq!(with(0.98 * n).protocol, Protocol::Coordinated);
    assert_eq!(with(1.02 * n).protocol, Protocol::MemoryLog);
    let found = outcome(&with(n), Protocol::MemoryLog).break_even.unwrap();
    assert!(close(found.energy.unwrap(), n, 1e-9), "{found:?} {n}");
    assert!(close(found.time.unwrap(), 40.0, 1e-9), "{found:?}");
}

#[test]
fn what_cannot_be_told_apart_goes_to_the_safer_and_says_so() {
    let run = Run { interval_s: Some(2000.0), ..run() };
    let mut costs = costs();
    let sure = all(Objective::Energy, &run, &costs, &Bounds::default());
    assert_ne!(sure.protocol, Protocol::Coordinated);
    costs.memory_log = Some(Cost { time_s: within(20.0, 0.01), ..costs.memory_log.unwrap() });
    assert_eq!(all(Objective::Energy, &run, &costs, &Bounds::default()).protocol, sure.protocol);
    // The checkpoint is common to all: not knowing it well does not make them alike.
    costs.checkpoint.time_s = within(30.0, 0.3);
    let decision = all(Objective::Energy, &run, &costs, &Bounds::default());
    let pair = (outcome(&decision, Protocol::Coordinated), outcome(&decision, Protocol::MemoryLog));
    assert!(pair.0.energy_j.overlaps(&pair.1.energy_j));
    assert_eq!(decision.protocol, sure.protocol, "{:?}", decision.reasons);
    assert!(decision.rows[0].refused.as_ref().unwrap().contains("only by what both share"), "{:?}", decision.rows[0]);
    costs.disk_log = Some(Cost { time_s: within(300.0, 0.99), ..costs.disk_log.unwrap() });
    costs.memory_log =
        Some(Cost { time_s: Estimate { value: 20.0, low: 1.0, high: 1e6 }, ..costs.memory_log.unwrap() });
    let decision = choose(Objective::Energy, &run, &costs, &Bounds::default(), unlent).unwrap();
    assert_eq!(decision.protocol, Protocol::Coordinated);
    assert!(decision.reasons[0].contains("the safer is taken"), "{:?}", decision.reasons);
}

#[test]
fn what_cannot_be_enacted_is_shown_with_figures_and_named_as_better() {
    let run = Run { interval_s: Some(2000.0), ..run() };
    let decision = choose(Objective::Energy, &run, &costs(), &Bounds::default(), |p| {
        (p != Protocol::Coordinated).then(|| Hindrance::NotEnacted("estimated only".into()))
    })
    .unwrap();
    assert_eq!(decision.protocol, Protocol::Coordinated);
    assert_ne!(decision.unhindered, Protocol::Coordinated);
    assert!(decision.rows.iter().all(|r| r.outcome.is_some()));
    assert!(decision.reasons.iter().any(|r| r.contains("less) would be taken, but: estimated only")));
}

#[test]
fn one_group_and_unknown_logs_are_refused_with_their_reason() {
    let alone = all(Objective::Energy, &Run { groups: 1.0, ..run() }, &costs(), &Bounds::default());
    assert!(alone.rows[1].refused.as_ref().unwrap().contains("one group"));
    let unknown = Costs { disk_log: None, ..costs() };
    let decision = all(Objective::Energy, &run(), &unknown, &Bounds::default());
    assert!(decision.rows[1].refused.as_ref().unwrap().contains("not known"));
}

#[test]
fn lending_saves_the_energy_of_those_who_wait_and_costs_no_time() {
    let run = Run { mtbf_s: 2e4, ..run() };
    let decision = all(Objective::Energy, &Run { interval_s: Some(3000.0), ..run }, &costs(), &Bounds::default());
    let (kept, lent) = (outcome(&decision, Protocol::DiskLog), outcome(&decision, Protocol::DiskLogLent));
    assert!(lent.energy_j.value < kept.energy_j.value);
    assert!(close(lent.time_s.value, kept.time_s.value, 1e-12));
    assert!(lent.time_parts.lent > 0.0 && lent.energy_parts.lent == 0.0);
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        any::<f64>(),
        (-9.0_f64..14.0).prop_map(|x| 10_f64.powf(x)),
    ]
}

fn any_cost() -> impl Strategy<Value = Cost> {
    let estimate = || {
        prop_oneof![
            any_number().prop_map(exactly),
            (any_number(), any_number(), any_number()).prop_map(|(value, low, high)| Estimate { value, low, high })
        ]
    };
    (estimate(), estimate()).prop_map(|(time_s, delta_w)| Cost { time_s, delta_w, extrapolated: false })
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let bound = || proptest::option::of(0.001_f64..0.9);
    (bound(), bound(), bound()).prop_map(|(runtime, io, energy)| Bounds { runtime, io, energy, ..Bounds::default() })
}

fn any_run() -> impl Strategy<Value = (Run, Costs)> {
    let sure = |s: std::ops::Range<f64>| (s, 0.0_f64..0.3).prop_map(|(v, share)| within(v, share));
    let op = move |s: std::ops::Range<f64>| {
        (sure(s), sure(1.0..200.0)).prop_map(|(time_s, delta_w)| Cost { time_s, delta_w, extrapolated: false })
    };
    (
        (2.0_f64..64.0, 0.0_f64..1.0, 3.0_f64..8.0, 600.0_f64..1e6, 0.0_f64..1e-4),
        (op(0.1..200.0), op(0.001..5.0), op(1.0..200.0), op(0.1..2000.0), op(0.1..2000.0), sure(20.0..300.0)),
    )
        .prop_map(
            |((nodes, g, mtbf, work_s, growth_per_s), (checkpoint, coordination, restart, disk, memory, compute_w))| {
                let nodes = nodes.floor();
                let groups = (1.0 + g * (nodes - 1.0)).round().max(2.0);
                let run = Run {
                    nodes,
                    groups,
                    mtbf_s: 10_f64.powf(mtbf),
                    work_s,
                    growth_per_s,
                    load_save_s: 30.0,
                    laxity: 2.0,
                    interval_s: None,
                };
                let costs = Costs {
                    checkpoint,
                    coordination,
                    group_coordination: cost(0.0, 0.0),
                    restart,
                    disk_log: Some(disk),
                    memory_log: Some(memory),
                    compute_w,
                    static_w: 100.0 * nodes,
                };
                (run, costs)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_input_panics(
        figures in proptest::collection::vec(any_number(), 10),
        costs in proptest::collection::vec(any_cost(), 6),
        fixed in proptest::option::of(any_number()),
        bounds in (any_number(), any_number(), any_number()),
    ) {
        let run = Run { nodes: figures[0], groups: figures[1], mtbf_s: figures[2], work_s: figures[3],
            growth_per_s: figures[4], load_save_s: figures[5], laxity: figures[6], interval_s: fixed };
        let costs = Costs { checkpoint: costs[0], coordination: costs[1], group_coordination: costs[2],
            restart: costs[3], disk_log: Some(costs[4]), memory_log: Some(costs[5]),
            compute_w: exactly(figures[7]), static_w: figures[8] };
        let bounds = Bounds { runtime: Some(bounds.0), io: Some(bounds.1), energy: Some(bounds.2), ..Bounds::default() };
        if let Ok(decision) = choose(Objective::Energy, &run, &costs, &bounds, |_| None) {
            for outcome in decision.rows.iter().filter_map(|r| r.outcome.as_ref()) {
                prop_assert!(outcome.energy_j.value.is_finite() && outcome.time_s.value.is_finite());
            }
        }
    }

    #[test]
    fn the_parts_add_up_and_the_value_lies_in_its_interval((run, costs) in any_run(), bounds in any_bounds()) {
        for objective in [Objective::Energy, Objective::Time] {
            let decision = all(objective, &run, &costs, &bounds);
            prop_assert!(decision.rows.iter().filter(|r| r.refused.is_none()).count() <= 1);
            for o in decision.rows.iter().filter_map(|r| r.outcome.as_ref()) {
                prop_assert!(close(o.time_parts.total(), o.time_s.value, 1e-12));
                prop_assert!(close(o.energy_parts.total(), o.energy_j.value, 1e-12));
                prop_assert!(o.time_parts.named().iter().all(|(_, x)| *x >= 0.0));
                prop_assert!(o.energy_parts.named().iter().all(|(_, x)| *x >= 0.0));
                prop_assert!(o.energy_j.low <= o.energy_j.value && o.energy_j.value <= o.energy_j.high);
            }
        }
    }

    /// More messages never make logging better beside coordination.
    #[test]
    fn more_messages_never_help_a_log((run, costs) in any_run(), times in 1.0_f64..10.0) {
        let free = Bounds::default();
        let before = all(Objective::Energy, &run, &costs, &free);
        let more = Cost { time_s: within(costs.memory_log.unwrap().time_s.value * times, 0.0), ..costs.memory_log.unwrap() };
        let louder = Run { growth_per_s: run.growth_per_s * times, ..run };
        let after = all(Objective::Energy, &louder, &Costs { memory_log: Some(more), ..costs }, &free);
        let lead = |d: &Decision| outcome(d, Protocol::MemoryLog).energy_j.value - outcome(d, Protocol::Coordinated).energy_j.value;
        prop_assert!(lead(&after) >= lead(&before) - 1e-9 * outcome(&before, Protocol::Coordinated).energy_j.value);
    }

    /// Without failures: coordinated is cheaper below n*, and dearer above.
    #[test]
    fn the_break_even_parts_the_protocols((run, costs) in any_run(), times in 0.1_f64..10.0) {
        prop_assume!((times - 1.0).abs() > 0.01);
        let at = |interval_s: f64| {
            let run = Run { mtbf_s: 3e13, interval_s: Some(interval_s), ..run };
            all(Objective::Energy, &run, &costs, &Bounds::default())
        };
        let n = outcome(&at(1000.0), Protocol::MemoryLog).break_even.unwrap().energy.unwrap();
        // A logged run lasts longer, so that a fixed interval holds more checkpoints: n is what is compared.
        let decision = at(run.work_s / (n * times));
        let (c, u) = (outcome(&decision, Protocol::Coordinated), outcome(&decision, Protocol::MemoryLog));
        let each = c.energy_parts.checkpoint / c.checkpoints;
        let logged_more = (u.checkpoints - c.checkpoints) * each;
        let (coordinated, logged) = (c.energy_j.value, u.energy_j.value - logged_more);
        let failures = c.energy_parts.lost_work + u.energy_parts.lost_work + u.energy_parts.idle;
        prop_assume!((coordinated - logged).abs() > failures);
        prop_assert_eq!(coordinated < logged, times < 1.0, "{} {}", coordinated, logged);
    }

    #[test]
    fn the_chosen_one_keeps_the_runtime_and_the_io_bound((run, costs) in any_run(), t in 0.01_f64..0.5, b in 0.01_f64..0.5) {
        let decision = all(Objective::Energy, &run, &costs, &Bounds { runtime: Some(t), ..Bounds::default() });
        let taken = outcome(&decision, decision.protocol);
        let wasted = |o: &Outcome| o.time_parts.total() - o.time_parts.work;
        let fastest = all(Objective::Time, &run, &costs, &Bounds::default());
        let least = outcome(&fastest, fastest.protocol);
        if run.mtbf_s > 1e5 && decision.protocol != Protocol::Shadow && fastest.protocol != Protocol::Shadow {
            prop_assert!(wasted(taken) <= (1.0 + t) * wasted(least) * 1.02, "{} {}", wasted(taken), wasted(least));
        }
        let decision = all(Objective::Energy, &run, &costs, &Bounds { io: Some(b), ..Bounds::default() });
        let share = outcome(&decision, decision.protocol).io_share();
        prop_assert!(share <= b * (1.0 + 1e-6) || run.mtbf_s < 1e5, "{}", share);
    }

    #[test]
    fn the_chosen_one_keeps_the_energy_bound((run, costs) in any_run(), e in 0.001_f64..0.2) {
        prop_assume!(run.mtbf_s > 1e5);
        let bounds = Bounds { energy: Some(e), ..Bounds::default() };
        let decision = choose(Objective::Time, &run, &costs, &bounds, unlent).unwrap();
        let taken = outcome(&decision, decision.protocol).energy_j.value;
        let cheapest = choose(Objective::Energy, &run, &costs, &Bounds::default(), unlent).unwrap();
        let least = outcome(&cheapest, cheapest.unhindered).energy_j.value;
        prop_assert!(taken <= (1.0 + e) * least * 1.001, "{} {}", taken, least);
    }

    #[test]
    fn logs_that_cost_nothing_take_no_longer_and_no_more_energy((run, costs) in any_run()) {
        let two = Run { groups: 2.0, growth_per_s: 0.0, interval_s: Some(1000.0), ..run };
        let free = Costs { memory_log: Some(cost(0.0, 0.0)), group_coordination: costs.coordination, ..costs };
        let decision = all(Objective::Energy, &two, &free, &Bounds::default());
        let (c, u) = (outcome(&decision, Protocol::Coordinated), outcome(&decision, Protocol::MemoryLog));
        prop_assert!(close(c.time_s.value, u.time_s.value, 1e-9));
        prop_assert!(u.energy_j.value <= c.energy_j.value * (1.0 + 1e-9));
    }
}
