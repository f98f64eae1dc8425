//! Controller, nodes, witnesses, Slurm and drivers together, through seeded histories of power losses and partitions.
//!
//! `WATCH_HISTORIES=N WATCH_SEED=S cargo test -p watch --release --test histories -- --nocapture` plays more of them.

mod net;
mod node;
mod world;

use rand::Rng;
use world::{Job, STEP_S, World, name};

/// Part of what the controller cannot write to its disk, while nothing else is wrong.
const FORGETTING: f64 = 0.05;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Lets the world go on for a time, s.
fn run_for(world: &mut World, seconds: f64) {
    for _ in 0..(seconds / STEP_S) as u64 {
        world.step();
    }
}

/// What is wrong for a while.
fn trouble(world: &mut World) {
    let (all, controller, slurm) = (world.nodes.len(), world.controller_host(), world.slurm_host());
    let victim = world.rng.random_range(0..all);
    let kind = world.rng.random_range(0..16);
    let others = (0..all + 2).filter(|n| *n != victim);
    match kind {
        0 | 1 => world.cut_power(victim),
        2 => {
            // A rack.
            for node in (0..all).filter(|n| n % 4 == victim % 4).take(all / 3) {
                if world.nodes[node].is_on {
                    world.cut_power(node);
                }
            }
        }
        3 => world.net.cut_both(victim, controller),
        4 => {
            world.net.cut_both(victim, controller);
            world.net.cut_both(victim, slurm);
        }
        5 => others.for_each(|n| world.net.cut_both(victim, n)),
        6 => others.for_each(|n| world.net.cut(victim, n)),
        7 => others.for_each(|n| world.net.cut(n, victim)),
        8 => world.cut_from_nodes(controller),
        9 => [controller, slurm].into_iter().for_each(|host| world.cut_from_nodes(host)),
        10 => {
            let half = world.rng.random_range(1..all);
            let with = |n: usize| n < half;
            let sides = world.rng.random_bool(0.5);
            for a in 0..all {
                for b in 0..all + 2 {
                    let b_is_first = if b >= all { sides } else { with(b) };
                    if a != b && with(a) != b_is_first {
                        world.net.cut_both(a, b);
                    }
                }
            }
        }
        11 => world.cut_all(),
        12 => {
            let (loss, slow_s) = (world.rng.random_range(1..30), world.rng.random_range(0.0..0.6));
            world.net.degrade(loss, slow_s);
        }
        13 => {
            world.controller = None;
        }
        14 => world.forgetting = 1.0,
        _ => {
            // slurmds are stopped, as for an upgrade.
            world.nodes.iter_mut().for_each(|n| n.slurmd_is_up = false);
        }
    }
    world.note(format!("trouble {kind} with {}", name(victim)));
}

fn mend(world: &mut World) {
    world.note("all is mended".to_string());
    world.net.heal();
    if world.forgetting == 1.0 {
        // A controller that is started again knows what was written before.
        world.controller = None;
    }
    world.forgetting = FORGETTING;
    for node in 0..world.nodes.len() {
        world.nodes[node].slurmd_is_up = true;
        if !world.nodes[node].is_on {
            world.boot(node);
        }
    }
    if world.controller.is_none() {
        world.start_controller();
    }
}

/// Service restarts of moments, by upgrades and crashes, are part of every history.
fn restart_services(world: &mut World) {
    let now_s = world.now_s;
    for node in 0..world.nodes.len() {
        if world.rng.random_range(0..20_000) == 0 && world.nodes[node].service_is_up(now_s) {
            world.nodes[node].service_from_s = now_s + world.rng.random_range(0.2..1.5);
        }
    }
    if world.rng.random_range(0..10_000) == 0 && world.controller.is_some() {
        world.note("the controller restarts".to_string());
        world.start_controller();
    }
}

fn history(seed: u64) -> World {
    let runs = 1 + (seed % 4) as usize;
    let mut world = World::new(seed, 3 * runs + 2 + (seed % 7) as usize, runs);
    (world.failing, world.forgetting) = (0.2, FORGETTING);
    run_for(&mut world, 10.0);
    for _ in 0..3 {
        for node in 0..world.nodes.len() {
            let is_idle = !world.runs.iter().any(|r| r.nodes.contains(&node));
            world.nodes[node].bystander = is_idle && world.rng.random_bool(0.2);
        }
        let lasts_s = [3.0, 8.0, 20.0, 60.0, 400.0][world.rng.random_range(0..5)];
        trouble(&mut world);
        if world.rng.random_bool(0.3) {
            let pause_s = world.rng.random_range(0.0..6.0);
            run_for(&mut world, pause_s);
            trouble(&mut world);
        }
        for _ in 0..(lasts_s / STEP_S) as u64 {
            world.step();
            restart_services(&mut world);
        }
        mend(&mut world);
        run_for(&mut world, 30.0);
    }
    run_for(&mut world, 600.0);
    world
}

#[test]
fn no_run_ever_has_two_writers_and_every_run_ends() {
    let (first, count) = (setting("WATCH_SEED", 1), setting("WATCH_HISTORIES", 300));
    let (mut set_down, mut frozen) = (0, 0);
    for seed in first..first + count {
        let world = history(seed);
        for run in &world.runs {
            assert_eq!(run.job, Job::Done, "seed {seed}: job {} \n{}", run.of.job, world.history.join("\n"));
        }
        set_down += world.tally.set_down;
        frozen += u32::from(world.tally.frozen > 0);
        for at_s in &world.tally.set_down_s {
            let minute = world.tally.set_down_s.iter().filter(|s| (at_s - **s) >= 0.0 && at_s - **s < 60.0).count();
            assert!(minute <= 10, "seed {seed}");
        }
    }
    println!("{count} histories from seed {first}: {set_down} nodes set down, programs frozen in {frozen} histories");
    assert!(set_down > 0 && frozen > 0, "the histories are too tame");
}

#[test]
fn on_a_quiet_cluster_a_power_loss_is_noticed_within_five_seconds_and_the_run_goes_on_within_fifteen() {
    let (first, count) = (setting("WATCH_SEED", 1), setting("WATCH_HISTORIES", 300));
    let (mut detections_s, mut resumed_s) = (Vec::new(), Vec::new());
    for seed in first..first + count {
        let mut world = World::new(seed, 8, 1);
        world.runs[0].left_s = 1e6;
        let before_s = world.rng.random_range(20.0..21.0);
        run_for(&mut world, before_s);
        let victim = world.runs[0].nodes[0];
        let died_s = world.now_s;
        world.cut_power(victim);
        run_for(&mut world, 30.0);
        detections_s.extend(world.tally.detections_s.iter().copied());
        assert!(world.runs[0].started_s > died_s, "seed {seed}:\n{}", world.history.join("\n"));
        resumed_s.push(world.runs[0].started_s - died_s);
    }
    let median_and_most = |of: &mut Vec<f64>| {
        of.sort_by(f64::total_cmp);
        (of[of.len() / 2], of[of.len() * 99 / 100])
    };
    let (detected, resumed) = (median_and_most(&mut detections_s), median_and_most(&mut resumed_s));
    println!(
        "noticed after {:.1} s, 99 % within {:.1} s; goes on after {:.1} s, 99 % within {:.1} s",
        detected.0, detected.1, resumed.0, resumed.1
    );
    assert_eq!(detections_s.len() as u64, count);
    assert!(detected.1 <= 5.0 && resumed.1 <= 15.0, "{detected:?} {resumed:?}");
}

#[test]
fn a_run_on_a_dead_node_that_slurmctld_forgot_to_be_down_goes_on_long_before_slurm_sees_it() {
    for seed in 1..40 {
        let mut world = World::new(seed, 8, 1);
        world.set_slurmd_timeout(900.0);
        world.runs[0].left_s = 1e6;
        run_for(&mut world, 20.0);
        world.slurm_forgets = true;
        let died_s = world.now_s;
        world.cut_power(world.runs[0].nodes[0]);
        run_for(&mut world, 60.0);
        assert_eq!((world.slurm_forgets, world.tally.set_down), (false, 2), "seed {seed}");
        assert!(world.runs[0].started_s > died_s, "seed {seed}:\n{}", world.history.join("\n"));
    }
}

#[test]
fn maintenance_of_slurmds_a_cut_controller_and_a_switch_that_reboots_end_nothing() {
    for seed in 1..40 {
        for (kind, lasts_s) in
            [("slurmds", 600.0), ("controller", 600.0), ("controller and slurmctld", 250.0), ("switch", 60.0)]
        {
            let mut world = World::new(seed, 10, 3);
            world.runs.iter_mut().for_each(|r| r.left_s = 2000.0);
            run_for(&mut world, 20.0);
            match kind {
                "slurmds" => world.nodes.iter_mut().for_each(|n| n.slurmd_is_up = false),
                "switch" => world.cut_all(),
                _ => world.cut_from_nodes(world.controller_host()),
            }
            if kind == "controller and slurmctld" {
                world.cut_from_nodes(world.slurm_host());
            }
            // Slurm waits longer than the maintenance lasts, as its operators see to.
            world.set_slurmd_timeout(900.0);
            run_for(&mut world, lasts_s);
            mend(&mut world);
            run_for(&mut world, 60.0);
            assert_eq!(world.tally.set_down, 0, "{kind}, seed {seed}:\n{}", world.history.join("\n"));
            for run in &world.runs {
                assert_eq!((&run.job, run.of.restart_count, run.number), (&Job::Running, 0, 1), "{kind}, seed {seed}");
            }
            // All but the switch's minute was worked.
            let lost_s = if kind == "switch" { lasts_s + 10.0 } else { 5.0 };
            let worked_s = 2000.0 - world.runs[0].left_s;
            assert!(worked_s > 20.0 + lasts_s + 60.0 - lost_s - 5.0, "{kind}, seed {seed}: worked {worked_s} s");
        }
    }
}
