//! The watch through random histories of nodes and jobs in virtual time: what it must do in time, and never.

use super::tests::{beat, job, run};
use super::{Act, Watch};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slurm::Job;
use std::collections::BTreeMap;

const DETECT_S: f64 = 3.0;
const STEP_S: f64 = 0.5;
const NODES: usize = 8;

/// What a node truly is.
#[derive(Clone, Copy, Default)]
struct Node {
    machine_down_s: Option<f64>,
    slurmd_down_s: Option<f64>,
    service_down: bool,
    set_down: bool,
}

fn name(n: usize) -> String {
    format!("n{}", n + 1)
}

fn jobs(text: &str) -> BTreeMap<u32, Job> {
    job(&format!("{text} NodeList=n[1-2] BatchHost=n1 Requeue=1 Restarts=0 StartTime=500"))
}

#[test]
fn random_histories_of_nodes() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut nodes = [Node::default(); NODES];
        let (mut watch, mut watches_s) = (Watch::new(DETECT_S, 0.0), 1000.0);
        let running = jobs("JobState=RUNNING Reason=None");
        for tick in 0..600 {
            let now_s = 1000.0 + f64::from(tick) * STEP_S;
            if rng.random_bool(0.005) {
                (watch, watches_s) = (Watch::new(DETECT_S, now_s), now_s);
            }
            for (n, node) in nodes.iter_mut().enumerate() {
                change(&mut rng, node, now_s, n);
                if node.machine_down_s.is_none() && !node.service_down && tick % 2 == 0 {
                    watch.heard(now_s, beat(&name(n), node.slurmd_down_s.is_none()));
                }
            }
            for act in watch.look(now_s, &[run()], &running) {
                carry_out(&mut watch, &mut nodes, &act, now_s, seed);
            }
            for (n, node) in nodes.iter().enumerate() {
                let since_s = node.machine_down_s.into_iter().chain(node.slurmd_down_s).fold(f64::MAX, f64::min);
                let late = now_s - since_s.max(watches_s) > DETECT_S * 10.0 + 3.0;
                // A node whose service was gone before its slurmd died is seen when it was silent: at once. After a
                // restart those of the run are waited for, others when they beat.
                let is_known = heard_of(&watch, now_s, n) || (watches_s > 1000.0 && n < 2);
                assert!(!late || node.set_down || !is_known, "seed {seed}: {} at {now_s}", name(n));
            }
        }
    }
}

fn change(rng: &mut ChaCha8Rng, node: &mut Node, now_s: f64, n: usize) {
    // n8 never fails: something must stay to be right about.
    if n == NODES - 1 {
        return;
    }
    match rng.random_range(0..2000) {
        0..3 => node.machine_down_s = node.machine_down_s.or(Some(now_s)),
        3..6 => node.slurmd_down_s = node.slurmd_down_s.or(Some(now_s)),
        6..9 => node.service_down = true,
        9..25 => (node.machine_down_s, node.slurmd_down_s, node.service_down) = (None, None, false),
        _ => {}
    }
}

fn carry_out(watch: &mut Watch, nodes: &mut [Node], act: &Act, now_s: f64, seed: u64) {
    let number = |node: &str| node[1..].parse::<usize>().expect("a number") - 1;
    match act {
        Act::Verify { node } => {
            let n = number(node);
            assert_ne!(n, NODES - 1, "seed {seed}: a node in health is doubted");
            let slurmd_gone = nodes[n].machine_down_s.is_some() || nodes[n].slurmd_down_s.is_some();
            if slurmd_gone {
                nodes[n].set_down |= watch.dead(node).is_some();
            } else {
                watch.answers(node);
            }
        }
        Act::Resume { node } => {
            let n = number(node);
            assert!(nodes[n].set_down, "seed {seed}: {node} was not set down");
            // What broke a moment ago cannot be known yet; it is found anew.
            let broken_s = nodes[n].machine_down_s.into_iter().chain(nodes[n].slurmd_down_s).fold(f64::MAX, f64::min);
            assert!(now_s - broken_s <= DETECT_S, "seed {seed}: {node} is resumed, but broken since {broken_s}");
            nodes[n].set_down = false;
        }
        Act::Requeue { wrapper_killed, .. } => {
            assert!(!wrapper_killed && nodes[0].set_down, "seed {seed}: the batch host is not dead");
        }
        Act::StartNow { .. } | Act::Close { .. } => panic!("seed {seed}: the job runs"),
    }
}

fn heard_of(watch: &Watch, now_s: f64, n: usize) -> bool {
    watch.health(now_s, &[name(n)], 7)[0].silent_s.is_some()
}

#[test]
fn random_histories_of_a_job() {
    let states = [
        "JobState=RUNNING Reason=None",
        "JobState=COMPLETING Reason=None",
        "JobState=PENDING Reason=BeginTime",
        "JobState=PENDING Reason=Priority",
        "JobState=FAILED Reason=None ExitCode=0:9",
        "JobState=FAILED Reason=None ExitCode=1:0",
        "JobState=CANCELLED Reason=None ExitCode=0:15",
        "JobState=TIMEOUT Reason=None ExitCode=0:1",
        "JobState=COMPLETED Reason=None ExitCode=0:0",
    ];
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut watch = Watch::new(DETECT_S, 0.0);
        let hit = rng.random_bool(0.5);
        watch.heard(1000.0, beat("n1", true));
        if hit {
            watch.hit(1000.0, &[run()]);
        }
        let (mut state, mut since_s, mut helped_s) = (0, 1000.0, f64::NEG_INFINITY);
        for tick in 0..400 {
            let now_s = 1000.0 + f64::from(tick) * STEP_S;
            watch.heard(now_s, beat("n1", true));
            if rng.random_bool(0.03) {
                (state, since_s) = (rng.random_range(0..states.len()), now_s);
            }
            let acts = watch.look(now_s, &[run()], &jobs(states[state]));
            assert!(acts.len() <= 1, "seed {seed}: {acts:?}");
            match acts.first() {
                Some(Act::StartNow { .. }) => assert!(hit && state == 2, "seed {seed}: {}", states[state]),
                Some(Act::Requeue { wrapper_killed, .. }) => {
                    assert!(*wrapper_killed && state == 4, "seed {seed}: {}", states[state]);
                }
                Some(Act::Close { .. }) => assert!(state >= 5, "seed {seed}: {}", states[state]),
                Some(other) => panic!("seed {seed}: {other:?}"),
                None => {
                    let over = state >= 5 && now_s - since_s > 6.0;
                    assert!(!over, "seed {seed}: {} for {} s and nothing done", states[state], now_s - since_s);
                }
            }
            if matches!(acts.first(), Some(Act::StartNow { .. } | Act::Requeue { .. })) {
                assert!(now_s - helped_s >= 5.0, "seed {seed}: helped twice at once");
                helped_s = now_s;
            }
        }
    }
}
