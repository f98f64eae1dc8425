//! Splits the node's joules among the jobs on it, so that the jobs and the rest always add up to the node.
//!
//! Whole microjoules are split, so the sum is exact. The rule is in `docs/energy.md`: the idle part by
//! allocated share, the part above idle by CPU time; a lone job gets all; what no job was there for is
//! unallocated. An interval lasts until the counter moves, since some counters move only now and then.

use std::collections::BTreeMap;

use crate::counter::Monotone;
use crate::ledger::{Ledger, joules};
use crate::split::split;
use crate::{BySource, JobEnergy, Load, Meter, Processes, Sample, SourceKind};

/// How long the figure of a job that has left is kept.
pub const RETENTION_S: f64 = 3600.0;

/// The books of one node.
pub struct Accounts {
    cpus: u32,
    idle_w: f64,
    retention_s: f64,
    jobs: BTreeMap<u32, Ledger>,
    held: Vec<u32>,
    node_cpu: Monotone,
    last_s: Option<f64>,
    open_s: f64,
    open_nobody_s: f64,
    node_uj: BySource<u64>,
    unallocated_uj: u64,
    retired_uj: u64,
    source: SourceKind,
}

impl Accounts {
    /// Books of a node with so many CPUs that draws `idle_w` when nothing runs.
    pub fn new(cpus: u32, idle_w: f64) -> Accounts {
        Accounts {
            cpus,
            idle_w: if idle_w.is_finite() { idle_w.max(0.0) } else { 0.0 },
            retention_s: RETENTION_S,
            jobs: BTreeMap::new(),
            held: Vec::new(),
            node_cpu: Monotone::default(),
            last_s: None,
            open_s: 0.0,
            open_nobody_s: 0.0,
            node_uj: BySource::default(),
            unallocated_uj: 0,
            retired_uj: 0,
            source: SourceKind::Model,
        }
    }

    /// Keeps the figures of jobs that have left for so long.
    pub fn with_retention(mut self, retention_s: f64) -> Accounts {
        self.retention_s = retention_s.max(0.0);
        self
    }

    /// Says how many CPUs of this node the job has; a job that is not here is not noted.
    pub fn set_share(&mut self, job_id: u32, cpus: u32) {
        if let Some(ledger) = self.jobs.get_mut(&job_id) {
            ledger.share_cpus = Some(f64::from(cpus.max(1)));
        }
    }

    /// Says which jobs hold this node, with their restart counts: they are here also between their steps.
    pub fn hold(&mut self, now_s: f64, jobs: &[(u32, u32)]) {
        self.held = jobs.iter().map(|(job_id, _)| *job_id).collect();
        for (job_id, record) in jobs {
            self.jobs.entry(*job_id).or_insert_with(|| Ledger::held(now_s));
            self.belongs(*job_id, *record);
        }
    }

    /// Says which restart of a job is here. A later one begins its own figure, with what has been used since its
    /// processes came; the earlier one's is retired.
    pub fn belongs(&mut self, job_id: u32, record: u32) {
        if let Some(ledger) = self.jobs.get_mut(&job_id) {
            self.retired_uj += ledger.restart(record, self.last_s);
        }
    }

    /// Reads the meter and books what has been used since the call before; the sample carries the marks.
    pub fn sample(&mut self, now_s: f64, meter: &mut Meter, procs: &Processes) -> Sample {
        let load = Load { cpu_s: self.node_cpu.advance(procs.node_cpu_s), cpus: self.cpus };
        let sample = meter.sample(now_s, &load);
        self.book(now_s, &sample.by_source_j, sample.source, procs);
        sample
    }

    /// Books the node's cumulative joules as they stand at `now_s`.
    fn book(&mut self, now_s: f64, by_source_j: &BySource<f64>, source: SourceKind, procs: &Processes) {
        let now_s = self.last_s.map_or(now_s, |last_s| last_s.max(now_s));
        let dt_s = now_s - self.last_s.unwrap_or(now_s);
        self.last_s = Some(now_s);
        self.source = source;
        self.weigh(dt_s);
        self.follow(now_s, procs);
        // Saturates; a negative or absent figure books nothing.
        let total_uj = by_source_j.map(|j| (j * 1e6).round() as u64);
        let mut delta_uj = BySource::default();
        for (i, delta_uj) in delta_uj.iter_mut().enumerate() {
            *delta_uj = total_uj[i].saturating_sub(self.node_uj[i]);
            self.node_uj[i] += *delta_uj;
        }
        if delta_uj.iter().any(|uj| *uj > 0) {
            self.close(&delta_uj);
        }
        self.retire(now_s);
    }

    /// Those who were here when the interval began share its idle part.
    fn weigh(&mut self, dt_s: f64) {
        self.open_s += dt_s;
        let present = || self.jobs.values().filter(|l| l.ended_s.is_none());
        let known: Vec<f64> = present().filter_map(|l| l.share_cpus).collect();
        let usual = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let all: f64 = present().map(|l| l.share_cpus.unwrap_or(usual)).sum();
        if all <= 0.0 {
            self.open_nobody_s += dt_s;
        }
        for ledger in self.jobs.values_mut().filter(|l| l.ended_s.is_none()) {
            ledger.open_idle += dt_s * ledger.share_cpus.unwrap_or(usual) / all;
        }
    }

    /// Notes who is here now and how much CPU time each has used.
    fn follow(&mut self, now_s: f64, procs: &Processes) {
        for (job_id, ledger) in &mut self.jobs {
            let here = procs.jobs.iter().any(|j| j.job_id == *job_id);
            ledger.note_here(here);
            if !here && self.held.contains(job_id) {
                ledger.ended_s = None;
            } else if !here && ledger.ended_s.is_none() {
                ledger.ended_s = Some(now_s);
            }
        }
        for job in &procs.jobs {
            let ledger = self.jobs.entry(job.job_id).or_insert_with(|| Ledger::first(now_s, job));
            ledger.ended_s = None;
            let before_s = ledger.cpu_s();
            ledger.note_cpu(job);
            ledger.open_cpu_s += ledger.cpu_s() - before_s;
        }
    }

    /// Splits what the counters have moved by. The idle power is the node's without its GPUs.
    fn close(&mut self, delta_uj: &BySource<u64>) {
        let mut idle: Vec<f64> = self.jobs.values().map(|l| l.open_idle).collect();
        let mut busy: Vec<f64> = self.jobs.values().map(|l| l.open_cpu_s).collect();
        // Last in both: nobody.
        idle.push(self.open_nobody_s);
        busy.push(0.0);
        let busy = if busy.iter().any(|w| *w > 0.0) { &busy } else { &idle };
        let mut idle_left_uj = (self.idle_w * self.open_s * 1e6).round() as u64;
        for kind in SourceKind::ALL {
            let delta_uj = delta_uj[kind.index()];
            let idle_uj = if kind == SourceKind::Nvml { 0 } else { idle_left_uj.min(delta_uj) };
            idle_left_uj -= idle_uj;
            let mut parts = split(idle_uj, &idle).into_iter().zip(split(delta_uj - idle_uj, busy)).map(|(i, b)| i + b);
            for (ledger, part_uj) in self.jobs.values_mut().zip(&mut parts) {
                ledger.by_source_uj[kind.index()] += part_uj;
            }
            self.unallocated_uj += parts.sum::<u64>();
        }
        for ledger in self.jobs.values_mut() {
            (ledger.open_idle, ledger.open_cpu_s) = (0.0, 0.0);
        }
        (self.open_s, self.open_nobody_s) = (0.0, 0.0);
    }

    fn retire(&mut self, now_s: f64) {
        let (retention_s, retired_uj) = (self.retention_s, &mut self.retired_uj);
        self.jobs.retain(|_, ledger| {
            let waits = ledger.open_idle > 0.0 || ledger.open_cpu_s > 0.0;
            let keep = waits || ledger.ended_s.is_none_or(|ended_s| now_s - ended_s < retention_s);
            if !keep {
                *retired_uj += ledger.uj();
            }
            keep
        });
    }

    /// Every job here or lately here, by rising number.
    pub fn jobs(&self) -> Vec<JobEnergy> {
        self.jobs.iter().map(|(job_id, ledger)| ledger.report(*job_id, self.source)).collect()
    }

    /// One job's figure.
    pub fn job(&self, job_id: u32) -> Option<JobEnergy> {
        self.jobs.get(&job_id).map(|l| l.report(job_id, self.source))
    }

    /// The node's joules: those of all jobs, retired ones too, and the unallocated.
    pub fn node_joules(&self) -> f64 {
        joules(self.node_uj.iter().sum())
    }

    /// Joules used while no job was here.
    pub fn unallocated_joules(&self) -> f64 {
        joules(self.unallocated_uj)
    }

    /// Joules of jobs whose figures are no longer kept.
    pub fn retired_joules(&self) -> f64 {
        joules(self.retired_uj)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{JobCpu, StepCpu};

    /// A scan with these jobs and CPU seconds, one step each.
    fn scan(jobs: &[(u32, f64)]) -> Processes {
        let job = |(job_id, cpu_s): &(u32, f64)| {
            let step = StepCpu { name: "0".into(), stepd_pid: 10, stepd_start_ticks: 5, cpu_s: *cpu_s };
            JobCpu { job_id: *job_id, cpu_s: *cpu_s, steps: vec![step], pids: vec![] }
        };
        Processes { jobs: jobs.iter().map(job).collect(), ..Processes::default() }
    }

    impl Accounts {
        /// Books a node whose figure stands at `joules`; what was added comes from `kind`.
        fn book_one(&mut self, now_s: f64, joules: f64, kind: SourceKind, procs: &Processes) {
            let mut by_source_j = self.node_uj.map(super::joules);
            by_source_j[kind.index()] += joules - self.node_joules();
            self.book(now_s, &by_source_j, kind, procs);
        }
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
        two.jobs[0].steps.push(StepCpu { name: "1".into(), stepd_pid: 20, stepd_start_ticks: 6, cpu_s: 7.0 });
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
        a.book(0.0, &BySource::default(), SourceKind::Rapl, &scan(&[(1, 0.0), (2, 0.0)]));
        let mut by_source_j = BySource::default();
        by_source_j[SourceKind::Rapl.index()] = 300.0;
        by_source_j[SourceKind::Nvml.index()] = 400.0;
        a.book(1.0, &by_source_j, SourceKind::Rapl, &scan(&[(1, 3.0), (2, 1.0)]));
        let parts = |j| a.job(j).unwrap().by_source;
        assert_eq!(parts(1), [(SourceKind::Rapl, 200.0), (SourceKind::Nvml, 300.0)]);
        assert_eq!(parts(2), [(SourceKind::Rapl, 100.0), (SourceKind::Nvml, 100.0)]);
        assert_eq!(a.node_joules(), 700.0);
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
                by_source_j[SourceKind::Nvml.index()] += gpu_j;
                let jobs: Vec<(u32, f64)> = jobs.into_iter().collect();
                a.book(now_s, &by_source_j, SourceKind::ALL[kind], &scan(&jobs));
                a.set_share(share % 6, share);
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
}
