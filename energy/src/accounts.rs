//! Splits the node's joules among the jobs on it, so that the jobs and the rest always add up to the node.
//!
//! Whole microjoules are split, so the sum is exact. The rule is in `docs/energy.md`: the idle part by
//! allocated share, the part above idle by CPU time; a lone job gets all; what no job was there for is
//! unallocated. An interval lasts until the counter moves, since some counters move only now and then.

use std::collections::BTreeMap;

use crate::counter::Monotone;
use crate::procs::{JobCpu, Processes, StepCpu};
use crate::{Load, Meter, Sample, SourceKind};

/// How long the figure of a job that has left is kept.
pub const RETENTION_S: f64 = 3600.0;

/// A job's part of this node's energy.
#[derive(Clone, PartialEq, Debug)]
pub struct JobEnergy {
    /// Slurm's number of the job.
    pub job_id: u32,
    /// Joules since the job was first seen here; never falls.
    pub joules: f64,
    /// CPU seconds of all its steps here; never falls.
    pub cpu_s: f64,
    /// Where most of the joules come from.
    pub source: SourceKind,
    /// Where the joules come from, in parts.
    pub by_source: Vec<(SourceKind, f64)>,
    /// When the job was first seen.
    pub since_s: f64,
    /// When it was first missed, if it is no longer here.
    pub ended_s: Option<f64>,
}

type StepKey = (String, i32, u64);

#[derive(Default)]
struct Ledger {
    since_s: f64,
    /// SLURM_RESTART_COUNT, once somebody said it.
    record: Option<u32>,
    /// Whether it has processes here, and what it had used when they came.
    here: bool,
    at_arrival_uj: [u64; SourceKind::ALL.len()],
    ended_s: Option<f64>,
    share_cpus: Option<f64>,
    steps: BTreeMap<StepKey, Monotone>,
    by_source_uj: [u64; SourceKind::ALL.len()],
    /// What it did since the counter moved last: its weight in the idle part and in the rest.
    open_idle: f64,
    open_cpu_s: f64,
}

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
    node_uj: u64,
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
            node_uj: 0,
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
            self.jobs.entry(*job_id).or_insert_with(|| Ledger { since_s: now_s, ..Ledger::default() });
            self.belongs(*job_id, *record);
        }
    }

    /// Says which restart of a job is here. A later one begins its own figure, with what has been used since its
    /// processes came; the earlier one's is retired.
    pub fn belongs(&mut self, job_id: u32, record: u32) {
        let Some(ledger) = self.jobs.get_mut(&job_id) else { return };
        match ledger.record.replace(record) {
            Some(earlier) if earlier != record => {
                let mut later = [0; SourceKind::ALL.len()];
                for (i, part) in later.iter_mut().enumerate() {
                    *part = ledger.by_source_uj[i] - ledger.at_arrival_uj[i];
                }
                self.retired_uj += ledger.at_arrival_uj.iter().sum::<u64>();
                ledger.by_source_uj = later;
                ledger.at_arrival_uj = [0; SourceKind::ALL.len()];
                ledger.since_s = self.last_s.unwrap_or(ledger.since_s).max(ledger.since_s.next_up());
            }
            _ => {}
        }
    }

    /// Reads the meter and books what has been used since the call before; the sample carries the marks.
    pub fn sample(&mut self, now_s: f64, meter: &mut Meter, procs: &Processes) -> Sample {
        let load = Load { cpu_s: self.node_cpu.advance(procs.node_cpu_s), cpus: self.cpus };
        let sample = meter.sample(now_s, &load);
        self.book(now_s, sample.joules, sample.source, procs);
        sample
    }

    /// Books the node's cumulative joules as they stand at `now_s`.
    fn book(&mut self, now_s: f64, joules: f64, source: SourceKind, procs: &Processes) {
        let now_s = self.last_s.map_or(now_s, |last_s| last_s.max(now_s));
        let dt_s = now_s - self.last_s.unwrap_or(now_s);
        self.last_s = Some(now_s);
        self.source = source;
        self.weigh(dt_s);
        self.follow(now_s, procs);
        // Saturates; a negative or absent figure books nothing.
        let total_uj = (joules * 1e6).round() as u64;
        if total_uj > self.node_uj {
            self.close(total_uj - self.node_uj, source);
            self.node_uj = total_uj;
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
            if here && !ledger.here {
                ledger.at_arrival_uj = ledger.by_source_uj;
            }
            ledger.here = here;
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
            for step in &job.steps {
                ledger.steps.entry(key(step)).or_default().advance(step.cpu_s);
            }
            ledger.open_cpu_s += ledger.cpu_s() - before_s;
        }
    }

    /// Splits what the counter has moved by.
    fn close(&mut self, delta_uj: u64, source: SourceKind) {
        let idle_uj = ((self.idle_w * self.open_s * 1e6).round() as u64).min(delta_uj);
        let mut idle: Vec<f64> = self.jobs.values().map(|l| l.open_idle).collect();
        let mut busy: Vec<f64> = self.jobs.values().map(|l| l.open_cpu_s).collect();
        // Last in both: nobody.
        idle.push(self.open_nobody_s);
        busy.push(0.0);
        let idle_parts = split(idle_uj, &idle);
        let busy_parts = split(delta_uj - idle_uj, if busy.iter().any(|w| *w > 0.0) { &busy } else { &idle });
        let parts: Vec<u64> = idle_parts.into_iter().zip(busy_parts).map(|(i, b)| i + b).collect();
        for (ledger, part_uj) in self.jobs.values_mut().zip(&parts) {
            ledger.by_source_uj[source.index()] += part_uj;
            (ledger.open_idle, ledger.open_cpu_s) = (0.0, 0.0);
        }
        self.unallocated_uj += parts.last().copied().unwrap_or(delta_uj);
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
        joules(self.node_uj)
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

impl Ledger {
    /// A job's CPU time before it was first seen is its own, but earns it no energy.
    fn first(now_s: f64, job: &JobCpu) -> Ledger {
        let mut ledger = Ledger { since_s: now_s, here: true, ..Ledger::default() };
        for step in &job.steps {
            ledger.steps.entry(key(step)).or_default().advance(step.cpu_s);
        }
        ledger
    }

    fn cpu_s(&self) -> f64 {
        self.steps.values().map(Monotone::value).sum()
    }

    fn uj(&self) -> u64 {
        self.by_source_uj.iter().sum()
    }

    fn report(&self, job_id: u32, now_from: SourceKind) -> JobEnergy {
        let parts = || SourceKind::ALL.into_iter().map(|k| (k, self.by_source_uj[k.index()])).filter(|(_, uj)| *uj > 0);
        JobEnergy {
            job_id,
            joules: joules(self.uj()),
            cpu_s: self.cpu_s(),
            source: parts().max_by_key(|(_, uj)| *uj).map_or(now_from, |(k, _)| k),
            by_source: parts().map(|(k, uj)| (k, joules(uj))).collect(),
            since_s: self.since_s,
            ended_s: self.ended_s,
        }
    }
}

fn key(step: &StepCpu) -> StepKey {
    (step.name.clone(), step.stepd_pid, step.stepd_start_ticks)
}

fn joules(uj: u64) -> f64 {
    uj as f64 / 1e6
}

/// Parts of `total` by weight that add up to it exactly; the heaviest takes what rounding leaves. Without any
/// weight the last takes all.
fn split(total: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let mut parts = vec![0; weights.len()];
    let heaviest = (0..weights.len()).max_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    let mut left = total;
    if sum > 0.0 {
        for (part, weight) in parts.iter_mut().zip(weights) {
            *part = ((total as f64 * (weight / sum)) as u64).min(left);
            left -= *part;
        }
    }
    let taker = if sum > 0.0 { heaviest } else { weights.len().checked_sub(1) };
    if let Some(taker) = taker {
        parts[taker] += left;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A scan with these jobs and CPU seconds, one step each.
    fn scan(jobs: &[(u32, f64)]) -> Processes {
        let job = |(job_id, cpu_s): &(u32, f64)| {
            let step = StepCpu { name: "0".into(), stepd_pid: 10, stepd_start_ticks: 5, cpu_s: *cpu_s };
            JobCpu { job_id: *job_id, cpu_s: *cpu_s, steps: vec![step], pids: vec![] }
        };
        Processes { jobs: jobs.iter().map(job).collect(), ..Processes::default() }
    }

    fn of(a: &Accounts, job_id: u32) -> f64 {
        a.job(job_id).unwrap().joules
    }

    #[test]
    fn a_lone_job_gets_all_and_an_empty_node_keeps_its_own() {
        let mut a = Accounts::new(4, 100.0);
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[]));
        a.book(1.0, 100.0, SourceKind::Rapl, &scan(&[(7, 1.0)]));
        a.book(2.0, 350.0, SourceKind::Rapl, &scan(&[(7, 2.0)]));
        a.book(3.0, 450.0, SourceKind::Rapl, &scan(&[(7, 2.0)]));
        assert_eq!((a.unallocated_joules(), of(&a, 7), a.node_joules()), (100.0, 350.0, 450.0));
        assert_eq!(a.job(7).unwrap().since_s, 1.0);
    }

    #[test]
    fn idle_by_share_and_the_rest_by_cpu_time() {
        let mut a = Accounts::new(4, 100.0);
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 500.0), (2, 0.0)]));
        a.book(1.0, 300.0, SourceKind::Rapl, &scan(&[(1, 503.0), (2, 1.0)]));
        assert_eq!((of(&a, 1), of(&a, 2)), (200.0, 100.0));
        a.set_share(1, 1);
        a.set_share(2, 3);
        a.book(2.0, 400.0, SourceKind::Rapl, &scan(&[(1, 503.0), (2, 1.0)]));
        assert_eq!((of(&a, 1), of(&a, 2)), (225.0, 175.0));
    }

    #[test]
    fn a_counter_that_moves_in_bursts_is_split_over_the_whole_burst() {
        let mut a = Accounts::new(4, 0.0);
        a.book(0.0, 0.0, SourceKind::Slurm, &scan(&[(1, 0.0), (2, 0.0)]));
        a.book(1.0, 0.0, SourceKind::Slurm, &scan(&[(1, 3.0), (2, 0.0)]));
        a.book(2.0, 400.0, SourceKind::Slurm, &scan(&[(1, 3.0), (2, 1.0)]));
        assert_eq!((of(&a, 1), of(&a, 2)), (300.0, 100.0));
    }

    #[test]
    fn a_job_that_holds_the_node_is_here_between_its_steps() {
        let mut a = Accounts::new(4, 100.0);
        a.hold(0.0, &[(7, 0)]);
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[]));
        a.book(1.0, 100.0, SourceKind::Rapl, &scan(&[]));
        assert_eq!((of(&a, 7), a.job(7).unwrap().ended_s), (100.0, None));
        a.hold(1.0, &[]);
        a.book(2.0, 200.0, SourceKind::Rapl, &scan(&[]));
        a.book(3.0, 300.0, SourceKind::Rapl, &scan(&[]));
        assert_eq!((of(&a, 7), a.unallocated_joules()), (200.0, 100.0));
    }

    #[test]
    fn a_requeued_job_begins_its_own_figure_with_what_it_used_since_it_came() {
        let mut a = Accounts::new(4, 100.0);
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[(7, 0.0)]));
        a.belongs(7, 0);
        a.book(1.0, 100.0, SourceKind::Rapl, &scan(&[]));
        a.book(2.0, 150.0, SourceKind::Rapl, &scan(&[(7, 0.0)]));
        a.book(3.0, 250.0, SourceKind::Rapl, &scan(&[(7, 1.0)]));
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
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
        a.book(1.0, 100.0, SourceKind::Rapl, &scan(&[(1, 1.0)]));
        a.book(2.0, 200.0, SourceKind::Rapl, &scan(&[]));
        a.book(3.0, 300.0, SourceKind::Rapl, &scan(&[]));
        let job = a.job(1).unwrap();
        assert_eq!(
            (job.joules, job.cpu_s, job.ended_s),
            (200.0, 1.0, Some(2.0)),
            "it was here when its last interval began"
        );
        a.book(12.0, 300.0, SourceKind::Rapl, &scan(&[]));
        assert_eq!((a.job(1), a.retired_joules(), a.unallocated_joules()), (None, 200.0, 100.0));
    }

    #[test]
    fn a_step_that_left_keeps_its_cpu_time() {
        let mut a = Accounts::new(4, 0.0);
        let mut two = scan(&[(1, 5.0)]);
        two.jobs[0].steps.push(StepCpu { name: "1".into(), stepd_pid: 20, stepd_start_ticks: 6, cpu_s: 7.0 });
        a.book(0.0, 0.0, SourceKind::Rapl, &two);
        a.book(1.0, 10.0, SourceKind::Rapl, &scan(&[(1, 6.0)]));
        assert_eq!(a.job(1).unwrap().cpu_s, 13.0);
    }

    #[test]
    fn parts_of_sources_are_kept_apart() {
        let mut a = Accounts::new(4, 0.0);
        a.book(0.0, 0.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
        assert_eq!(a.job(1).unwrap().source, SourceKind::Rapl);
        a.book(1.0, 10.0, SourceKind::Rapl, &scan(&[(1, 0.0)]));
        a.book(2.0, 40.0, SourceKind::Model, &scan(&[(1, 0.0)]));
        let job = a.job(1).unwrap();
        assert_eq!(job.by_source, [(SourceKind::Rapl, 10.0), (SourceKind::Model, 30.0)]);
        assert_eq!(job.source, SourceKind::Model);
    }

    #[test]
    fn impossible_figures_book_nothing() {
        let mut a = Accounts::new(4, f64::NAN);
        a.book(0.0, 50.0, SourceKind::Rapl, &scan(&[]));
        for bad in [f64::NAN, -5.0, 3.0] {
            a.book(1.0, bad, SourceKind::Rapl, &scan(&[]));
        }
        assert_eq!((a.node_joules(), a.unallocated_joules()), (50.0, 50.0));
    }

    proptest! {
        #[test]
        fn jobs_and_the_rest_are_the_node(
            idle_w in 0.0..500.0_f64,
            steps in prop::collection::vec(
                (-1.0..10.0_f64, prop_oneof![Just(0.0), 0.0..5000.0_f64], 0_usize..7,
                 prop::collection::btree_map(1_u32..6, 0.0..100.0_f64, 0..5), 0_u32..20), 1..60),
        ) {
            let mut a = Accounts::new(8, idle_w).with_retention(15.0);
            let (mut now_s, mut joules) = (0.0, 0.0);
            let mut before = BTreeMap::new();
            for (dt_s, more_j, kind, jobs, share) in steps {
                now_s += dt_s;
                joules += more_j;
                let jobs: Vec<(u32, f64)> = jobs.into_iter().collect();
                a.book(now_s, joules, SourceKind::ALL[kind], &scan(&jobs));
                a.set_share(share % 6, share);
                let of_jobs: u64 = a.jobs.values().map(Ledger::uj).sum();
                prop_assert_eq!(of_jobs + a.unallocated_uj + a.retired_uj, a.node_uj);
                prop_assert_eq!(a.node_uj, (joules * 1e6).round() as u64);
                for job in a.jobs() {
                    let (j, c) = before.insert(job.job_id, (job.joules, job.cpu_s)).unwrap_or_default();
                    prop_assert!(job.joules >= j && job.cpu_s >= c);
                }
                before.retain(|id, _| a.jobs.contains_key(id));
            }
        }

        #[test]
        fn a_split_loses_nothing(total: u64, weights in prop::collection::vec(0.0..1e9_f64, 1..20)) {
            let parts = split(total, &weights);
            prop_assert_eq!(parts.iter().map(|p| u128::from(*p)).sum::<u128>(), u128::from(total));
        }
    }
}
