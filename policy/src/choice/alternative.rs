//! Estimates one protocol for a run: its best interval, what it spends, and how sure that is.

use super::whole::{Spent, Whole};
use super::{BreakEven, Costs, Outcome, Protocol, Run};
use crate::estimate::Estimate;
use crate::interval::{self, Bounds, Expectation, Limit, Objective, choose_on};
use crate::invalid::{Invalid, non_negative, positive, require};

/// What is expected of one protocol, or why that cannot be said.
pub(super) fn estimate(
    protocol: Protocol,
    objective: Objective,
    run: &Run,
    costs: &Costs,
    bounds: &Bounds,
) -> Result<Result<Outcome, String>, Invalid> {
    let whole = match whole(protocol, run, costs) {
        Ok(whole) => whole,
        Err(why) => return Ok(Err(why)),
    };
    let (interval_s, limited_by) = interval(protocol, objective, &whole, run, bounds)?;
    let spend = |whole: &Whole| match interval_s {
        Some(x) => whole.spend(x),
        None => whole.spend_shadowed(run.nodes, run.laxity),
    };
    let spent = spend(&whole);
    // What a bound counts from; where the interval is not free, the run is as good as it can be.
    let free = |best_s: f64| if run.interval_s.is_some() || interval_s.is_none() { spent } else { whole.spend(best_s) };
    let effects = effects(protocol, run, costs, &spend);
    let spread = |axis: usize| effects.iter().map(|e: &[f64; 2]| e[axis].powi(2)).sum::<f64>().sqrt();
    let around = |value: f64, half: f64| Estimate { value, low: (value - half).max(0.0), high: value + half };
    let (time, energy) = (spent.time.total(), spent.energy.total());
    let outcome = Outcome {
        interval_s,
        limited_by,
        checkpoints: spent.checkpoints,
        failures: spent.failures,
        time_s: around(time, spread(0)),
        energy_j: around(energy, spread(1)),
        time_parts: spent.time,
        energy_parts: spent.energy,
        break_even: (whole.groups > 1.0).then(|| break_even(&whole, run, costs)),
        least_wasted_s: bounds.runtime.map_or(0.0, |_| free(whole.time_optimum()).time.total() - run.work_s),
        least_energy_j: bounds.energy.map_or(0.0, |_| free(whole.energy_optimum()).energy.total()),
        effects,
    };
    let known = |e: &Estimate| e.value.is_finite() && e.high.is_finite();
    Ok(if known(&outcome.time_s) && known(&outcome.energy_j) {
        Ok(outcome)
    } else {
        Err("so many failures are expected that the run would not end".to_string())
    })
}

/// The best interval under the bounds; coordinated runs have that of [`interval::choose_interval`].
fn interval(
    protocol: Protocol,
    objective: Objective,
    whole: &Whole,
    run: &Run,
    bounds: &Bounds,
) -> Result<(Option<f64>, Option<Limit>), Invalid> {
    if protocol == Protocol::Shadow {
        return Ok((None, None));
    }
    if run.interval_s.is_some() {
        return Ok((run.interval_s, None));
    }
    let choice = match protocol {
        Protocol::Coordinated => interval::choose_interval(objective, run.mtbf_s, &coordinated_costs(whole), bounds)?,
        _ => choose_on(whole, objective, None, bounds),
    };
    Ok((Some(choice.interval_s), choice.limited_by))
}

/// A coordinated run as [`interval`] sees it: coordination is a part of the checkpoint.
fn coordinated_costs(whole: &Whole) -> interval::Costs {
    interval::Costs {
        checkpoint_s: whole.checkpoint_s + whole.coordination_s,
        restart_s: whole.restart_s,
        down_s: whole.down_s,
        overlap: 0.0,
        static_w: whole.static_w,
        compute_w: whole.compute_w,
        checkpoint_w: whole.pause_w(),
        down_w: 0.0,
    }
}

/// The figures of one protocol, or why there are none.
fn whole(protocol: Protocol, run: &Run, costs: &Costs) -> Result<Whole, String> {
    let n = run.nodes;
    // A dead node takes all groups that it holds.
    let groups = run.groups.min(n);
    let log = match protocol {
        Protocol::Coordinated | Protocol::Shadow => None,
        _ if groups <= 1.0 => return Err("one group recovers like a coordinated run".to_string()),
        Protocol::DiskLog | Protocol::DiskLogLent => Some(costs.disk_log.ok_or("logging to disk is not known")?),
        Protocol::MemoryLog | Protocol::MemoryLogLent => {
            Some(costs.memory_log.ok_or("logging to memory is not known")?)
        }
    };
    let coordination = if log.is_some() { &costs.group_coordination } else { &costs.coordination };
    let carries = matches!(protocol, Protocol::MemoryLog | Protocol::MemoryLogLent);
    Ok(Whole {
        work_s: run.work_s,
        mtbf_s: run.mtbf_s,
        groups: if log.is_some() { groups } else { 1.0 },
        static_w: costs.static_w,
        compute_w: n * costs.compute_w.value,
        checkpoint_s: costs.checkpoint.time_s.value,
        checkpoint_w: n * costs.checkpoint.delta_w.value,
        coordination_s: coordination.time_s.value,
        coordination_w: n * coordination.delta_w.value,
        restart_s: costs.restart.time_s.value,
        restart_w: n * costs.restart.delta_w.value,
        down_s: 0.0,
        logging_s: log.map_or(0.0, |l| l.time_s.value),
        logging_w: n * log.map_or(0.0, |l| l.delta_w.value),
        growth_per_s: if carries { run.growth_per_s } else { 0.0 },
        load_save_s: protocol.is_lent().then_some(run.load_save_s),
    })
}

/// Half the change of time and energy as each figure goes through its interval, at the interval that was chosen.
fn effects(protocol: Protocol, run: &Run, costs: &Costs, spend: &dyn Fn(&Whole) -> Spent) -> Vec<[f64; 2]> {
    let at = |i: usize, end: fn(&Estimate) -> f64| {
        let mut moved = *costs;
        if let Some(Some(figure)) = figures(&mut moved).get_mut(i) {
            figure.value = end(figure);
        }
        whole(protocol, run, &moved).map(|w| spend(&w)).unwrap_or_default()
    };
    let half = |i: usize| {
        let (high, low) = (at(i, |e| e.high), at(i, |e| e.low));
        [(high.time.total() - low.time.total()) / 2.0, (high.energy.total() - low.energy.total()) / 2.0]
    };
    let exact: Vec<bool> =
        figures(&mut costs.clone()).iter().map(|f| f.as_ref().is_none_or(|f| f.low == f.high)).collect();
    (0..exact.len()).map(|i| if exact[i] { [0.0; 2] } else { half(i) }).collect()
}

/// Every uncertain figure, in a fixed order.
fn figures(costs: &mut Costs) -> [Option<&mut Estimate>; 13] {
    let Costs { checkpoint: a, coordination: b, group_coordination: c, restart: d, disk_log, memory_log, .. } = costs;
    let (disk_s, disk_w) = disk_log.as_mut().map(|l| (&mut l.time_s, &mut l.delta_w)).unzip();
    let (memory_s, memory_w) = memory_log.as_mut().map(|l| (&mut l.time_s, &mut l.delta_w)).unzip();
    [
        Some(&mut a.time_s),
        Some(&mut a.delta_w),
        Some(&mut b.time_s),
        Some(&mut b.delta_w),
        Some(&mut c.time_s),
        Some(&mut c.delta_w),
        Some(&mut d.time_s),
        Some(&mut d.delta_w),
        disk_s,
        disk_w,
        memory_s,
        memory_w,
        Some(&mut costs.compute_w),
    ]
}

/// n* and its time twin. Coordination within the groups is paid either way and is taken off; what the checkpoints
/// carry of a memory log is the same for any number of them, and counts as logging.
fn break_even(whole: &Whole, run: &Run, costs: &Costs) -> BreakEven {
    let (n, all) = (run.nodes, &costs.coordination);
    let saved_s = all.time_s.value - whole.coordination_s;
    let saved_j = all.time_s.value * (whole.static_w + n * all.delta_w.value)
        - whole.coordination_s * (whole.static_w + whole.coordination_w);
    let carried_s = whole.carried_s();
    let log_j =
        whole.logging_s * (whole.static_w + whole.logging_w) + carried_s * (whole.static_w + whole.checkpoint_w);
    let even = |log: f64, saved: f64| (saved > 0.0).then(|| log / saved);
    BreakEven { energy: even(log_j, saved_j), time: even(whole.logging_s + carried_s, saved_s) }
}

pub(super) fn check(run: &Run, costs: &Costs) -> Result<(), Invalid> {
    require((1.0..=1e9).contains(&run.nodes), "nodes", run.nodes, "1 to 1e9")?;
    require((1.0..=1e12).contains(&run.groups), "groups", run.groups, "1 to 1e12")?;
    require((1e-3..=3.2e13).contains(&run.mtbf_s), "mtbf_s", run.mtbf_s, "0.001 to 3.2e13 s")?;
    require(run.work_s > 0.0 && run.work_s <= 3.2e9, "work_s", run.work_s, "above 0, to 3.2e9 s")?;
    require((0.0..=1e6).contains(&run.growth_per_s), "growth_per_s", run.growth_per_s, "0 to 1e6 /s")?;
    non_negative("load_save_s", run.load_save_s)?;
    require((1.0..=1e6).contains(&run.laxity), "laxity", run.laxity, "1 to 1e6")?;
    if let Some(x) = run.interval_s {
        require((1e-6..=3.2e9).contains(&x), "interval_s", x, "1e-6 to 3.2e9 s")?;
    }
    positive("static_w", costs.static_w)?;
    let least_s = costs.checkpoint.time_s.value;
    require(least_s >= 1e-6, "checkpoint_s", least_s, "1e-6 to 3.2e7 s")?;
    let most_w = 1e6 * costs.static_w / run.nodes;
    let mut copy = *costs;
    for (i, figure) in figures(&mut copy).into_iter().enumerate() {
        let Some(e) = figure else { continue };
        require(
            e.low >= 0.0 && e.low <= e.value && e.value <= e.high,
            FIGURES[i],
            e.value,
            "0 <= low <= value <= high",
        )?;
        let most = if FIGURES[i].ends_with("_w") { most_w } else { 3.2e7 };
        require(e.high <= most, FIGURES[i], e.high, "at most 3.2e7 s, or 1e6 times the idle power")?;
    }
    Ok(())
}

/// Names of [`figures`].
const FIGURES: [&str; 13] = [
    "checkpoint_s",
    "checkpoint_w",
    "coordination_s",
    "coordination_w",
    "group coordination_s",
    "group coordination_w",
    "restart_s",
    "restart_w",
    "disk log_s",
    "disk log_w",
    "memory log_s",
    "memory log_w",
    "compute_w",
];
