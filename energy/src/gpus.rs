//! Says whose what the GPUs used is: each GPU's joules are its holder's.
//!
//! What a GPU used goes to the jobs that hold it; if none does, to those whose GPUs are not known, by CPU time; if all
//! are known, it is idle and goes by the idle part's rule (`docs/energy.md`).

use std::collections::BTreeMap;

use crate::ledger::Ledger;

/// Which GPUs of this node a job holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Gpus {
    /// Nobody has said yet.
    #[default]
    NotAsked,
    /// Slurm was asked and cannot say.
    NotKnown,
    /// These, counted from 0 in the order of their device files; none for a job without GPUs.
    Own(Vec<u32>),
}

impl Gpus {
    /// Whether the job holds the GPU; nothing where that is not known, or not of a node with so many.
    fn hold(&self, gpu: u32, count: usize) -> Option<bool> {
        match self {
            Gpus::Own(own) if own.iter().all(|gpu| (*gpu as usize) < count) => Some(own.contains(&gpu)),
            _ => None,
        }
    }
}

/// What GPUs used since the node's counters moved last, beside what their holders' ledgers have noted.
#[derive(Default)]
pub(crate) struct OpenGpus {
    /// How many there are.
    count: usize,
    /// Energy of GPUs whose holder is among the jobs with unknown GPUs, J.
    doubtful_j: f64,
    /// Energy of GPUs that no job holds, J.
    idle_j: f64,
    /// The part of it that the node's own figure contains, J.
    pub(crate) within_j: f64,
}

impl OpenGpus {
    /// Notes what each GPU has used; of one that several jobs hold, equal parts.
    pub(crate) fn note(&mut self, gpus_j: &[f64], jobs: &mut BTreeMap<u32, Ledger>) {
        self.count = gpus_j.len();
        for (gpu, joules) in (0..).zip(gpus_j) {
            let mut holders = Vec::new();
            let mut all_known = true;
            for ledger in jobs.values_mut().filter(|l| l.ended_s.is_none()) {
                match ledger.gpus.hold(gpu, self.count) {
                    Some(true) => holders.push(ledger),
                    Some(false) => {}
                    None => all_known = false,
                }
            }
            let parts = holders.len() as f64;
            match holders.is_empty() {
                false => holders.iter_mut().for_each(|ledger| ledger.open_gpu_j += joules / parts),
                true if all_known => self.idle_j += joules,
                true => self.doubtful_j += joules,
            }
        }
    }

    /// Weights for splitting the GPUs' joules: one for each job, the last for nobody; as `idle` and `busy`. None if
    /// single GPUs were not read.
    pub(crate) fn weights(&self, jobs: &BTreeMap<u32, Ledger>, idle: &[f64], busy: &[f64]) -> Vec<f64> {
        let mut weights: Vec<f64> = jobs.values().map(|l| l.open_gpu_j).chain([0.0]).collect();
        let doubtful: Vec<bool> = jobs.values().map(|l| l.gpus.hold(0, self.count).is_none()).chain([false]).collect();
        let only_doubtful = |by: &[f64]| by.iter().zip(&doubtful).map(|(w, d)| if *d { *w } else { 0.0 }).collect();
        let by: [Vec<f64>; 3] = [only_doubtful(busy), only_doubtful(idle), busy.to_vec()];
        let by = by.iter().find(|by| by.iter().any(|w| *w > 0.0));
        spread(&mut weights, self.doubtful_j, by.map_or(idle, Vec::as_slice));
        spread(&mut weights, self.idle_j, idle);
        weights
    }
}

/// Adds joules in the proportion of `by`.
fn spread(weights: &mut [f64], joules: f64, by: &[f64]) {
    let sum: f64 = by.iter().sum();
    if sum > 0.0 {
        weights.iter_mut().zip(by).for_each(|(weight, by)| *weight += joules * by / sum);
    }
}
