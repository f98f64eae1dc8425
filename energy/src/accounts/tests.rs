//! The books of a node add up, whatever comes and goes.

use proptest::prelude::*;

use super::*;
use crate::{JobCpu, StepCpu};

/// A scan with these jobs and CPU seconds, one step each.
fn scan(jobs: &[(u32, f64)]) -> Processes {
    let job = |(job_id, cpu_s): &(u32, f64)| {
        let step = StepCpu { name: "0".into(), stepd_pid: 10, stepd_start_ticks: 5, cpu_s: *cpu_s, pids: vec![] };
        JobCpu { job_id: *job_id, cpu_s: *cpu_s, steps: vec![step], pids: vec![] }
    };
    Processes { jobs: jobs.iter().map(job).collect(), ..Processes::default() }
}

impl Accounts {
    /// Books a node whose figure stands at `joules`; what was added comes from `kind`.
    fn book_one(&mut self, now_s: f64, joules: f64, kind: SourceKind, procs: &Processes) {
        let mut by_source_j = self.node_uj.map(super::joules);
        by_source_j[kind.index()] += joules - self.node_joules();
        self.book(now_s, &figure(by_source_j, kind, &[]), procs);
    }
}

fn figure(by_source_j: BySource<f64>, source: SourceKind, gpus_j: &[f64]) -> Sample {
    Sample { joules: by_source_j.iter().sum(), by_source_j, gpus_j: gpus_j.to_vec(), source, marks: vec![] }
}

fn of(a: &Accounts, job_id: u32) -> f64 {
    a.job(job_id).unwrap().joules
}

#[test]
fn a_lone_job_gets_all_and_an_empty_node_keeps_its_own() {
    let mut a = Accounts::new(4, 100.0);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[]));
    a.book_one(1.0, 100.0, SourceKind::Rapl, &scan(&[(7, 1.0)]));
    a.book_one(2.0, 350.0, SourceKind::Rapl, &scan(&[(7, 2.0)]));
    a.book_one(3.0, 450.0, SourceKind::Rapl, &scan(&[(7, 2.0)]));
    assert_eq!((a.unallocated_joules(), of(&a, 7), a.node_joules()), (100.0, 350.0, 450.0));
    assert_eq!(a.job(7).unwrap().since_s, 1.0);
}

#[test]
fn idle_by_share_and_the_rest_by_cpu_time() {
    let mut a = Accounts::new(4, 100.0);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 500.0), (2, 0.0)]));
    a.book_one(1.0, 300.0, SourceKind::Rapl, &scan(&[(1, 503.0), (2, 1.0)]));
    assert_eq!((of(&a, 1), of(&a, 2)), (200.0, 100.0));
    a.set_share(1, 1);
    a.set_share(2, 3);
    a.book_one(2.0, 400.0, SourceKind::Rapl, &scan(&[(1, 503.0), (2, 1.0)]));
    assert_eq!((of(&a, 1), of(&a, 2)), (225.0, 175.0));
}

#[test]
fn a_counter_that_moves_in_bursts_is_split_over_the_whole_burst() {
    let mut a = Accounts::new(4, 0.0);
    a.book_one(0.0, 0.0, SourceKind::Slurm, &scan(&[(1, 0.0), (2, 0.0)]));
    a.book_one(1.0, 0.0, SourceKind::Slurm, &scan(&[(1, 3.0), (2, 0.0)]));
    a.book_one(2.0, 400.0, SourceKind::Slurm, &scan(&[(1, 3.0), (2, 1.0)]));
    assert_eq!((of(&a, 1), of(&a, 2)), (300.0, 100.0));
}

#[test]
fn a_job_that_holds_the_node_is_here_between_its_steps() {
    let mut a = Accounts::new(4, 100.0);
    a.hold(0.0, &[(7, 0)]);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[]));
    a.book_one(1.0, 100.0, SourceKind::Rapl, &scan(&[]));
    assert_eq!((of(&a, 7), a.job(7).unwrap().ended_s), (100.0, None));
    a.hold(1.0, &[]);
    a.book_one(2.0, 200.0, SourceKind::Rapl, &scan(&[]));
    a.book_one(3.0, 300.0, SourceKind::Rapl, &scan(&[]));
    assert_eq!((of(&a, 7), a.unallocated_joules()), (200.0, 100.0));
}

#[test]
fn a_requeued_job_begins_its_own_figure_with_what_it_used_since_it_came() {
    let mut a = Accounts::new(4, 100.0);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[(7, 0.0)]));
    a.belongs(7, 0);
    a.book_one(1.0, 100.0, SourceKind::Rapl, &scan(&[]));
    a.book_one(2.0, 150.0, SourceKind::Rapl, &scan(&[(7, 0.0)]));
    a.book_one(3.0, 250.0, SourceKind::Rapl, &scan(&[(7, 1.0)]));
    let before = a.job(7).unwrap();
    a.belongs(7, 1);
    let after = a.job(7).unwrap();
    assert_eq!((before.joules, after.joules, a.retired_joules()), (200.0, 100.0, 100.0));
    assert!(after.since_s > before.since_s);
    assert_eq!(after.joules + a.retired_joules() + a.unallocated_joules(), a.node_joules());
    a.belongs(7, 1);
    assert_eq!(a.job(7).unwrap().joules, 100.0);
    a.belongs(7, 0);
    a.belongs(7, 1);
    assert_eq!(a.job(7).unwrap().joules, 100.0, "nobody begins it anew by naming one that is over");
}

#[test]
fn a_job_that_left_keeps_its_last_figure_and_then_is_retired() {
    let mut a = Accounts::new(4, 100.0).with_retention(10.0);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
    a.book_one(1.0, 100.0, SourceKind::Rapl, &scan(&[(1, 1.0)]));
    a.book_one(2.0, 200.0, SourceKind::Rapl, &scan(&[]));
    a.book_one(3.0, 300.0, SourceKind::Rapl, &scan(&[]));
    let job = a.job(1).unwrap();
    assert_eq!(
        (job.joules, job.cpu_s, job.ended_s),
        (200.0, 1.0, Some(2.0)),
        "it was here when its last interval began"
    );
    a.book_one(12.0, 300.0, SourceKind::Rapl, &scan(&[]));
    assert_eq!((a.job(1), a.retired_joules(), a.unallocated_joules()), (None, 200.0, 100.0));
}

#[test]
fn a_step_that_left_keeps_its_cpu_time() {
    let mut a = Accounts::new(4, 0.0);
    let mut two = scan(&[(1, 5.0)]);
    two.jobs[0].steps.push(StepCpu { name: "1".into(), stepd_pid: 20, stepd_start_ticks: 6, cpu_s: 7.0, pids: vec![] });
    a.book_one(0.0, 0.0, SourceKind::Rapl, &two);
    a.book_one(1.0, 10.0, SourceKind::Rapl, &scan(&[(1, 6.0)]));
    assert_eq!(a.job(1).unwrap().cpu_s, 13.0);
}

#[test]
fn parts_of_sources_are_kept_apart() {
    let mut a = Accounts::new(4, 0.0);
    a.book_one(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
    assert_eq!(a.job(1).unwrap().source, SourceKind::Rapl);
    a.book_one(1.0, 10.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
    a.book_one(2.0, 40.0, SourceKind::Model, &scan(&[(1, 0.0)]));
    let job = a.job(1).unwrap();
    assert_eq!(job.by_source, [(SourceKind::Rapl, 10.0), (SourceKind::Model, 30.0)]);
    assert_eq!(job.source, SourceKind::Model);
}

#[test]
fn impossible_figures_book_nothing() {
    let mut a = Accounts::new(4, f64::NAN);
    a.book_one(0.0, 50.0, SourceKind::Rapl, &scan(&[]));
    for bad in [f64::NAN, -5.0, 3.0] {
        a.book_one(1.0, bad, SourceKind::Rapl, &scan(&[]));
    }
    assert_eq!((a.node_joules(), a.unallocated_joules()), (50.0, 50.0));
}

#[test]
fn what_gpus_use_goes_by_cpu_time_and_not_by_the_nodes_idle_power() {
    let mut a = Accounts::new(4, 100.0);
    a.book(0.0, &figure(BySource::default(), SourceKind::Rapl, &[]), &scan(&[(1, 0.0), (2, 0.0)]));
    let mut by_source_j = BySource::default();
    by_source_j[SourceKind::Rapl.index()] = 300.0;
    by_source_j[SourceKind::Nvml.index()] = 400.0;
    a.book(1.0, &figure(by_source_j, SourceKind::Rapl, &[]), &scan(&[(1, 3.0), (2, 1.0)]));
    let parts = |j| a.job(j).unwrap().by_source;
    assert_eq!(parts(1), [(SourceKind::Rapl, 200.0), (SourceKind::Nvml, 300.0)]);
    assert_eq!(parts(2), [(SourceKind::Rapl, 100.0), (SourceKind::Nvml, 100.0)]);
    assert_eq!(a.node_joules(), 700.0);
}

#[test]
fn a_gpu_is_its_holders_also_when_the_other_job_keeps_the_cpus_busy() {
    let nvml = |joules| {
        let mut by_source_j = BySource::default();
        by_source_j[SourceKind::Nvml.index()] = joules;
        by_source_j
    };
    let of_gpus = |a: &Accounts| [1, 2].map(|job| of(a, job));
    // What each job holds, and what is its of 300 J and 500 J by two GPUs: job 1 has 1 CPU second, job 2 has 3.
    let own = |gpus: &[u32]| Gpus::Own(gpus.to_vec());
    for (first, second, joules) in [
        (own(&[0]), own(&[1]), [300.0, 500.0]),
        (own(&[0, 1]), own(&[]), [800.0, 0.0]),
        (own(&[1]), own(&[1]), [250.0 + 150.0, 250.0 + 150.0]),
        (own(&[0]), own(&[]), [300.0 + 250.0, 250.0]),
        (own(&[0]), Gpus::NotAsked, [300.0, 500.0]),
        (own(&[0]), own(&[7]), [300.0, 500.0]),
        (Gpus::NotKnown, Gpus::NotKnown, [200.0, 600.0]),
    ] {
        let mut a = Accounts::new(4, 0.0);
        a.book(0.0, &figure(nvml(0.0), SourceKind::Rapl, &[0.0, 0.0]), &scan(&[(1, 0.0), (2, 0.0)]));
        a.set_gpus(1, first.clone());
        a.set_gpus(2, second.clone());
        a.book(1.0, &figure(nvml(800.0), SourceKind::Rapl, &[300.0, 500.0]), &scan(&[(1, 1.0), (2, 3.0)]));
        assert_eq!(of_gpus(&a), joules, "{first:?} and {second:?}");
        assert_eq!(a.node_joules(), 800.0);
    }
}

#[test]
fn gpus_within_the_nodes_own_figure_are_taken_from_it_before_it_is_shared() {
    let node = |joules| {
        let mut by_source_j = BySource::default();
        by_source_j[SourceKind::PmCounters.index()] = joules;
        by_source_j
    };
    let mut a = Accounts::new(4, 100.0);
    let scanned = scan(&[(1, 0.0), (2, 0.0)]);
    a.book(0.0, &figure(node(0.0), SourceKind::PmCounters, &[0.0]), &scanned);
    a.set_gpus(1, Gpus::Own(vec![0]));
    a.set_gpus(2, Gpus::Own(vec![]));
    // The board's counter moves every other second.
    a.book(1.0, &figure(node(0.0), SourceKind::PmCounters, &[400.0]), &scanned);
    a.book(2.0, &figure(node(1100.0), SourceKind::PmCounters, &[400.0]), &scan(&[(1, 0.0), (2, 1.0)]));
    assert_eq!((of(&a, 1), of(&a, 2), a.node_joules()), (900.0, 200.0, 1100.0));
}

#[test]
fn gpus_of_an_empty_node_are_nobodys_and_a_job_that_returns_is_asked_again() {
    let mut a = Accounts::new(4, 0.0);
    let gpus = |joules: f64| {
        let mut by_source_j = BySource::default();
        by_source_j[SourceKind::Nvml.index()] = joules;
        figure(by_source_j, SourceKind::Rapl, &[50.0])
    };
    a.book(0.0, &gpus(0.0), &scan(&[]));
    a.book(1.0, &gpus(50.0), &scan(&[(1, 0.0)]));
    assert_eq!((a.unallocated_joules(), a.without_gpus()), (100.0 - 50.0, vec![1]));
    a.set_gpus(1, Gpus::Own(vec![]));
    assert_eq!(a.without_gpus(), [0; 0]);
    a.book(2.0, &gpus(100.0), &scan(&[]));
    assert_eq!((of(&a, 1), a.without_gpus()), (50.0, vec![]), "a lone job has what nobody holds");
    a.book(3.0, &gpus(150.0), &scan(&[(1, 0.0)]));
    assert_eq!((a.unallocated_joules(), a.without_gpus()), (100.0, vec![1]));
}

proptest! {
    /// Jobs come, go and return, counters stand still, time may fall, and two sources may move at once.
    #[test]
    fn jobs_and_the_rest_are_the_node(
        idle_w in 0.0..500.0_f64,
        steps in prop::collection::vec(
            (-1.0..10.0_f64, prop_oneof![Just(0.0), 0.0..5000.0_f64], prop_oneof![Just(0.0), 0.0..5000.0_f64],
             0_usize..7, prop::collection::btree_map(1_u32..6, 0.0..100.0_f64, 0..5), 0_u32..20), 1..60),
    ) {
        let mut a = Accounts::new(8, idle_w).with_retention(15.0);
        let (mut now_s, mut by_source_j) = (0.0, BySource::default());
        let mut before = BTreeMap::new();
        let mut unallocated_j = 0.0;
        for (dt_s, more_j, gpu_j, kind, jobs, share) in steps {
            now_s += dt_s;
            by_source_j[kind] += more_j;
            // Read by itself, or a part of the node's figure.
            if share % 2 == 0 {
                by_source_j[SourceKind::Nvml.index()] += gpu_j;
            }
            let gpus_j = [0.25 * gpu_j, 0.75 * gpu_j];
            let gpus_j = if share % 7 == 0 { &gpus_j[..0] } else { &gpus_j[..] };
            let jobs: Vec<(u32, f64)> = jobs.into_iter().collect();
            a.book(now_s, &figure(by_source_j, SourceKind::ALL[kind], gpus_j), &scan(&jobs));
            a.set_share(share % 6, share);
            a.set_gpus(share % 5, [Gpus::NotKnown, Gpus::Own(vec![share % 3])][share as usize % 2].clone());
            let of_jobs: u64 = a.jobs.values().map(Ledger::uj).sum();
            let node_uj: u64 = by_source_j.iter().map(|j: &f64| (j * 1e6).round() as u64).sum();
            prop_assert_eq!(of_jobs + a.unallocated_uj + a.retired_uj, node_uj);
            prop_assert_eq!(a.node_joules(), node_uj as f64 / 1e6);
            prop_assert!(a.unallocated_joules() >= unallocated_j, "the remainder never falls");
            unallocated_j = a.unallocated_joules();
            for job in a.jobs() {
                let (j, c) = before.insert(job.job_id, (job.joules, job.cpu_s)).unwrap_or_default();
                prop_assert!(job.joules >= j && job.cpu_s >= c, "and so does no job, from 0");
            }
            before.retain(|id, _| a.jobs.contains_key(id));
        }
    }
}
