//! What the cluster knows of this job: dead nodes from the controller, the reason of an end from Slurm.

use crate::mail::Post;
use crate::ports::{Cluster, Happening};
use protocol::{FailureKind, NodeHealth};
use slurm::{JobState, Slurm};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wire::Client;

/// Silence from which a node is suspected, s.
const SUSPECT_S: f64 = 2.0;

/// Time between two questions about the nodes.
const WATCH: Duration = Duration::from_secs(2);

/// This job.
pub struct Job {
    slurm: Arc<Slurm>,
    job: u32,
    controller: Arc<Controller>,
}

/// The controller service, and what it said last.
pub struct Controller {
    /// The connection.
    pub client: Client,
    /// Path of the run: `cluster/run`.
    pub run: String,
    last: Mutex<Vec<NodeHealth>>,
}

impl Controller {
    /// A controller that has not been asked yet.
    pub fn new(client: Client, run: String) -> Controller {
        Controller { client, run, last: Mutex::default() }
    }

    /// Health of the run's nodes; what was said last if the controller is away.
    pub fn health(&self) -> Vec<NodeHealth> {
        match self.client.get::<Vec<NodeHealth>>(&format!("/v1/runs/{}/health", self.run)) {
            Ok(health) => {
                if let Ok(mut last) = self.last.lock() {
                    last.clone_from(&health);
                }
                health
            }
            Err(e) => {
                tracing::debug!(%e, "the controller cannot be asked");
                self.last()
            }
        }
    }

    /// What the controller said last.
    pub fn last(&self) -> Vec<NodeHealth> {
        self.last.lock().map(|l| l.clone()).unwrap_or_default()
    }
}

impl Job {
    /// A job, its nodes watched from now on.
    pub fn new(slurm: Arc<Slurm>, job: u32, controller: Arc<Controller>) -> Job {
        Job { slurm, job, controller }
    }

    /// Tells the driver of every node that dies from now on.
    pub fn watch(&self, post: &Post) {
        let (controller, post) = (self.controller.clone(), post.clone());
        thread::spawn(move || {
            let mut told = Vec::new();
            loop {
                thread::sleep(WATCH);
                for (node, at_s) in dead(&controller.health()) {
                    if !told.contains(&node) {
                        told.push(node.clone());
                        post.tell(Happening::NodeLost { node, at_s });
                    }
                }
            }
        });
    }
}

fn dead(health: &[NodeHealth]) -> Vec<(String, f64)> {
    let now_s = crate::mail::now_s();
    health.iter().filter(|h| h.dead).map(|h| (h.node.clone(), now_s - h.silent_s.unwrap_or(0.0))).collect()
}

impl Cluster for Job {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        dead(&self.controller.health())
    }

    fn suspects(&mut self) -> bool {
        self.controller
            .health()
            .iter()
            .any(|h| !h.dead && (!h.slurmd_up || h.silent_s.is_some_and(|s| s > SUSPECT_S)))
    }

    fn cause(&mut self) -> Option<FailureKind> {
        let job = match self.slurm.job(self.job) {
            Ok(job) => job?,
            Err(e) => {
                tracing::warn!(%e, "Slurm cannot be asked about the job");
                return None;
            }
        };
        match job.state {
            JobState::Running if !job.has_flag("COMPLETING") => None,
            JobState::Cancelled => Some(FailureKind::Cancelled),
            JobState::Timeout | JobState::Deadline => Some(FailureKind::Timeout),
            JobState::Preempted => Some(FailureKind::Preempted),
            JobState::NodeFail | JobState::BootFail => Some(FailureKind::Node),
            JobState::Pending if !dead(&self.controller.health()).is_empty() => Some(FailureKind::Node),
            JobState::Pending => Some(FailureKind::Requeued),
            _ => None,
        }
    }

    fn requeue(&mut self) -> Result<(), String> {
        self.slurm.requeue(self.job).map_err(|e| e.to_string())
    }
}
