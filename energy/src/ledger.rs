//! Keeps what one job has used on this node: its joules by source, and its CPU time by step.

use std::collections::BTreeMap;

use crate::counter::Monotone;
use crate::gpus::Gpus;
use crate::procs::{JobCpu, StepCpu};
use crate::{BySource, SourceKind};

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

/// The open account of one job.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) since_s: f64,
    /// SLURM_RESTART_COUNT, once somebody said it.
    record: Option<u32>,
    /// Whether it has processes here, and what it had used when they came.
    here: bool,
    at_arrival_uj: BySource<u64>,
    /// The figure that was reported for the present restart: no later restart gets it again.
    told_uj: BySource<u64>,
    pub(crate) ended_s: Option<f64>,
    pub(crate) share_cpus: Option<f64>,
    pub(crate) gpus: Gpus,
    steps: BTreeMap<StepKey, Monotone>,
    pub(crate) by_source_uj: BySource<u64>,
    /// Its weights in the idle part and in the rest since the counter last moved.
    pub(crate) open_idle: f64,
    pub(crate) open_cpu_s: f64,
    /// What its GPUs have used since then.
    pub(crate) open_gpu_j: f64,
}

impl Ledger {
    /// The ledger of a job that is here without processes.
    pub(crate) fn held(since_s: f64) -> Ledger {
        Ledger { since_s, ..Ledger::default() }
    }

    /// The ledger of a job first seen with this CPU time, which counts as its own but earns no energy.
    pub(crate) fn first(now_s: f64, job: &JobCpu) -> Ledger {
        let mut ledger = Ledger { here: true, ..Ledger::held(now_s) };
        ledger.note_cpu(job);
        ledger
    }

    /// Notes what the job's steps have used by now.
    pub(crate) fn note_cpu(&mut self, job: &JobCpu) {
        for step in &job.steps {
            self.steps.entry(key(step)).or_default().advance(step.cpu_s);
        }
    }

    /// Notes that the job is here; one that returns may hold other GPUs.
    pub(crate) fn note_present(&mut self) {
        if self.ended_s.take().is_some() {
            self.gpus = Gpus::NotAsked;
        }
    }

    /// Notes whether the job has processes here.
    pub(crate) fn note_here(&mut self, here: bool) {
        if here && !self.here {
            self.at_arrival_uj = self.by_source_uj;
        }
        self.here = here;
    }

    /// Says which restart of the job is here; a later one begins anew, with what was used since its processes
    /// came, and an earlier one never comes back. Gives the microjoules that were the earlier one's.
    pub(crate) fn restart(&mut self, record: u32, last_s: Option<f64>) -> u64 {
        let earlier = self.record;
        self.record = earlier.max(Some(record));
        if earlier.is_none_or(|earlier| earlier >= record) {
            return 0;
        }
        self.gpus = Gpus::NotAsked;
        let mut earlier_uj = std::mem::take(&mut self.at_arrival_uj);
        // Processes of the earlier one may have been here until those of the later came.
        for (earlier_uj, told_uj) in earlier_uj.iter_mut().zip(std::mem::take(&mut self.told_uj)) {
            *earlier_uj = told_uj.max(*earlier_uj);
        }
        for (part_uj, earlier_uj) in self.by_source_uj.iter_mut().zip(earlier_uj) {
            *part_uj -= earlier_uj;
        }
        self.since_s = last_s.unwrap_or(self.since_s).max(self.since_s.next_up());
        earlier_uj.iter().sum()
    }

    /// Notes that its figure was reported for the present restart.
    pub(crate) fn note_told(&mut self) {
        self.told_uj = self.by_source_uj;
    }

    pub(crate) fn cpu_s(&self) -> f64 {
        self.steps.values().map(Monotone::value).sum()
    }

    pub(crate) fn uj(&self) -> u64 {
        self.by_source_uj.iter().sum()
    }

    pub(crate) fn report(&self, job_id: u32, now_from: SourceKind) -> JobEnergy {
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

/// Microjoules as joules.
pub(crate) fn joules(uj: u64) -> f64 {
    uj as f64 / 1e6
}
