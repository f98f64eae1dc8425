//! Holds the jobs of a simulation, and which of them wait.

use std::collections::BTreeSet;

use crate::Error;

use super::{sacct, swf};

/// A rigid job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// When it is submitted.
    pub submit_s: f64,
    /// Nodes that it needs.
    pub nodes: u32,
    /// How long it computes without failures and checkpoints.
    pub work_s: f64,
    /// How long its user says that it takes; infinite if unlimited. It tells the scheduler, and ends no job.
    pub limit_s: f64,
}

/// What the machine has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// One application without end on all nodes in service, and always another job to lend nodes to; under shadow
    /// replication, as many of these tasks as fit with their shadows, and each followed by another.
    Backlog(Task),
    /// These jobs, by time of submission; the simulation ends with the last.
    Jobs(Vec<Job>),
}

/// What a main process and its shadow have to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Work at speed 1, W.
    pub work_s: f64,
    /// Nodes of the main process; its shadow takes as many.
    pub nodes: u32,
}

impl Task {
    /// How many tasks fit into `nodes` with their shadows.
    pub(super) fn fitting(&self, nodes: u32) -> u32 {
        nodes / self.nodes.saturating_mul(2).max(1)
    }
}

/// A queue as read.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueFile {
    /// The jobs, the first of which is submitted at 0.
    pub jobs: Vec<Job>,
    /// Records of jobs that did not run, or not known for how long or on how many nodes.
    pub skipped: usize,
    /// Nodes of the machine, if the file tells.
    pub nodes: Option<u32>,
}

impl QueueFile {
    pub(super) fn of(mut jobs: Vec<Job>, skipped: usize, nodes: Option<u32>) -> QueueFile {
        jobs.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s));
        let first_s = jobs.first().map_or(0.0, |j| j.submit_s);
        jobs.iter_mut().for_each(|j| j.submit_s -= first_s);
        QueueFile { jobs, skipped, nodes }
    }
}

/// Reads a queue: `sacct -P` if its first line is a header with bars, the Standard Workload Format otherwise, whose
/// processors are nodes of `processors_per_node` processors; if absent, the file's own header tells, or each is a node.
pub fn parse_queue(text: &str, processors_per_node: Option<u32>) -> Result<QueueFile, Error> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    if first.contains('|') { sacct::parse(text) } else { swf::parse(text, processors_per_node) }
}

/// The jobs of a run: what is left of each, which of them wait, and when they began and ended.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) jobs: Vec<Job>,
    /// Work that is left.
    pub(super) left_s: Vec<f64>,
    pub(super) began_s: Vec<Option<f64>>,
    pub(super) ended_s: Vec<Option<f64>>,
    /// Jobs are numbered by submission, so that their order is that of the queue.
    pub(super) waiting: BTreeSet<usize>,
    pub(super) finished: usize,
}

impl Queue {
    pub(super) fn new(jobs: Vec<Job>) -> Queue {
        Queue {
            left_s: jobs.iter().map(|j| j.work_s).collect(),
            began_s: vec![None; jobs.len()],
            ended_s: vec![None; jobs.len()],
            waiting: BTreeSet::new(),
            finished: 0,
            jobs,
        }
    }

    pub(super) fn begin(&mut self, job: usize, now_s: f64) {
        self.waiting.remove(&job);
        self.began_s[job].get_or_insert(now_s);
    }

    /// Takes work off a job that waits or runs; at none left it has ended, and otherwise it waits again.
    pub(super) fn give_back(&mut self, job: usize, done_s: f64, now_s: f64) {
        self.left_s[job] -= done_s;
        if self.left_s[job] <= 1e-9 * self.jobs[job].work_s {
            self.finish(job, now_s);
        } else {
            self.waiting.insert(job);
        }
    }

    pub(super) fn finish(&mut self, job: usize, now_s: f64) {
        self.left_s[job] = 0.0;
        self.ended_s[job] = Some(now_s);
        self.finished += 1;
    }

    /// Takes the waiting jobs that fit into `nodes`, in order.
    pub(super) fn take_fitting(&mut self, nodes: f64, now_s: f64) -> Vec<usize> {
        let mut free = nodes;
        let mut taken = Vec::new();
        for &job in &self.waiting {
            if free < 1.0 {
                break;
            }
            let needed = f64::from(self.jobs[job].nodes);
            if needed <= free {
                free -= needed;
                taken.push(job);
            }
        }
        taken.iter().for_each(|job| self.begin(*job, now_s));
        taken
    }

    /// Means over the jobs that ended: the time in the queue, and the slowdown with runs of at least ten seconds.
    pub(super) fn wait_and_slowdown(&self) -> (f64, f64) {
        let mut sums = (0.0, 0.0);
        for (job, (began_s, ended_s)) in self.jobs.iter().zip(self.began_s.iter().zip(&self.ended_s)) {
            if let (Some(began_s), Some(ended_s)) = (began_s, ended_s) {
                sums.0 += began_s - job.submit_s;
                sums.1 += ((ended_s - job.submit_s) / job.work_s.max(10.0)).max(1.0);
            }
        }
        let count = self.finished.max(1) as f64;
        (sums.0 / count, sums.1 / count)
    }
}
