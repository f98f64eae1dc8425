//! Splits the node's joules among the jobs on it, so that the jobs and the rest always add up to the node.
//!
//! Whole microjoules are split, so the sum is exact. The rule is in `docs/energy.md`: the idle part by
//! allocated share, the part above idle by CPU time, a GPU's by who holds it; a lone job gets all; what no job was
//! there for is unallocated. An interval lasts until the counter moves, since some counters move only now and then.

use std::collections::BTreeMap;

use crate::counter::Monotone;
use crate::gpus::{Gpus, OpenGpus};
use crate::ledger::{Ledger, joules};
use crate::split::split;
use crate::{BySource, JobEnergy, Load, Meter, Processes, Sample, SourceKind};

/// How long the figure of a job that has left is kept.
pub const RETENTION_S: f64 = 3600.0;

/// The energy accounts of one node's jobs.
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
    open_gpus: OpenGpus,
    node_uj: BySource<u64>,
    unallocated_uj: u64,
    retired_uj: u64,
    source: SourceKind,
}

impl Accounts {
    /// Accounts of a node with `cpus` CPUs that draws `idle_w` when idle.
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
            open_gpus: OpenGpus::default(),
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

    /// Says which GPUs of this node the job holds; a job that is not here is not noted.
    pub fn set_gpus(&mut self, job_id: u32, gpus: Gpus) {
        if let Some(ledger) = self.jobs.get_mut(&job_id) {
            ledger.gpus = gpus;
        }
    }

    /// The jobs here whose GPUs nobody has said.
    pub fn without_gpus(&self) -> Vec<u32> {
        let unasked = self.jobs.iter().filter(|(_, l)| l.ended_s.is_none() && l.gpus == Gpus::NotAsked);
        unasked.map(|(job_id, _)| *job_id).collect()
    }

    /// Says which jobs hold this node, with their restart counts: they are here also between their steps.
    pub fn hold(&mut self, now_s: f64, jobs: &[(u32, u32)]) {
        self.held = jobs.iter().map(|(job_id, _)| *job_id).collect();
        for (job_id, record) in jobs {
            self.jobs.entry(*job_id).or_insert_with(|| Ledger::held(now_s));
            self.has_begun(*job_id, *record);
        }
    }

    /// Says which restart of a job is here, to be told its figure. A later one begins its own, with what has been used
    /// since its processes came; the earlier one's is retired.
    pub fn belongs(&mut self, job_id: u32, record: u32) {
        self.has_begun(job_id, record);
        if let Some(ledger) = self.jobs.get_mut(&job_id) {
            ledger.note_told();
        }
    }

    fn has_begun(&mut self, job_id: u32, record: u32) {
        if let Some(ledger) = self.jobs.get_mut(&job_id) {
            self.retired_uj += ledger.restart(record, self.last_s);
        }
    }

    /// Reads the meter and books what has been used since the call before; the sample carries the marks.
    pub fn sample(&mut self, now_s: f64, meter: &mut Meter, procs: &Processes) -> Sample {
        let load = Load { cpu_s: self.node_cpu.advance(procs.node_cpu_s), cpus: self.cpus };
        let sample = meter.sample(now_s, &load);
        self.book(now_s, &sample, procs);
        sample
    }

    /// Books the node's cumulative joules as they stand at `now_s`.
    fn book(&mut self, now_s: f64, sample: &Sample, procs: &Processes) {
        let now_s = self.last_s.map_or(now_s, |last_s| last_s.max(now_s));
        let dt_s = now_s - self.last_s.unwrap_or(now_s);
        self.last_s = Some(now_s);
        self.source = sample.source;
        self.weigh(dt_s);
        self.open_gpus.note(&sample.gpus_j, &mut self.jobs);
        self.follow(now_s, procs);
        // Saturates; a negative or absent figure books nothing.
        let total_uj = sample.by_source_j.map(|j| (j * 1e6).round() as u64);
        let mut delta_uj = BySource::default();
        for (i, delta_uj) in delta_uj.iter_mut().enumerate() {
            *delta_uj = total_uj[i].saturating_sub(self.node_uj[i]);
            self.node_uj[i] += *delta_uj;
        }
        if delta_uj[SourceKind::Nvml.index()] == 0 {
            self.open_gpus.within_j += sample.gpus_j.iter().sum::<f64>();
        }
        if delta_uj.iter().any(|uj| *uj > 0) {
            self.close(&delta_uj);
        }
        self.retire(now_s);
    }

    /// Jobs that were here when the interval began share its idle part.
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
            ledger.note_present();
            let before_s = ledger.cpu_s();
            ledger.note_cpu(job);
            ledger.open_cpu_s += ledger.cpu_s() - before_s;
        }
    }

    /// Splits what the counters have moved by: first what the GPUs used, then the idle part, then the rest.
    fn close(&mut self, delta_uj: &BySource<u64>) {
        let mut idle: Vec<f64> = self.jobs.values().map(|l| l.open_idle).collect();
        let mut busy: Vec<f64> = self.jobs.values().map(|l| l.open_cpu_s).collect();
        // The last weight in both is that of nobody.
        idle.push(self.open_nobody_s);
        busy.push(0.0);
        let busy = if busy.iter().any(|w| *w > 0.0) { &busy } else { &idle };
        let gpus = self.open_gpus.weights(&self.jobs, &idle, busy);
        let gpus = if gpus.iter().any(|w| *w > 0.0) { &gpus } else { busy };
        let mut within_left_uj = (self.open_gpus.within_j * 1e6).round() as u64;
        let mut idle_left_uj = (self.idle_w * self.open_s * 1e6).round() as u64;
        for kind in SourceKind::ALL {
            let delta_uj = delta_uj[kind.index()];
            let (gpus_uj, idle_uj) = if kind == SourceKind::Nvml {
                (delta_uj, 0)
            } else {
                let gpus_uj = within_left_uj.min(delta_uj);
                (gpus_uj, idle_left_uj.min(delta_uj - gpus_uj))
            };
            within_left_uj = within_left_uj.saturating_sub(gpus_uj);
            idle_left_uj -= idle_uj;
            let mut parts = split(gpus_uj, gpus);
            for (uj, weights) in [(idle_uj, &idle), (delta_uj - gpus_uj - idle_uj, busy)] {
                parts.iter_mut().zip(split(uj, weights)).for_each(|(part_uj, more_uj)| *part_uj += more_uj);
            }
            let mut parts = parts.into_iter();
            for (ledger, part_uj) in self.jobs.values_mut().zip(&mut parts) {
                ledger.by_source_uj[kind.index()] += part_uj;
            }
            self.unallocated_uj += parts.sum::<u64>();
        }
        for ledger in self.jobs.values_mut() {
            (ledger.open_idle, ledger.open_cpu_s, ledger.open_gpu_j) = (0.0, 0.0, 0.0);
        }
        (self.open_s, self.open_nobody_s, self.open_gpus) = (0.0, 0.0, OpenGpus::default());
    }

    fn retire(&mut self, now_s: f64) {
        let (retention_s, retired_uj) = (self.retention_s, &mut self.retired_uj);
        self.jobs.retain(|_, ledger| {
            let waits = ledger.open_idle > 0.0 || ledger.open_cpu_s > 0.0 || ledger.open_gpu_j > 0.0;
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
mod tests;
