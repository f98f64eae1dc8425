//! Reads a job's energy on one node from the node's service, as the wrapper does.

use anyhow::{Context, Result, bail};
use config::Site;
use protocol::{JobReading, NodeReading};
use std::time::Duration;
use wire::Client;

/// Longest wait for the service.
const LIMIT: Duration = Duration::from_secs(5);

/// The counter of one job on one node.
pub struct Counter {
    client: Client,
    path: String,
}

/// What it stood at.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// When, s.
    pub at_s: f64,
    /// The job's counters.
    pub job: JobReading,
}

impl Counter {
    /// The counter of `job` on this node, by the service's socket where it is there.
    pub fn new(site: &Site, node: &str, job: u32) -> Counter {
        let port = site.node.listen.rsplit(':').next().unwrap_or("6821");
        let client = match site.node.socket_of(node).filter(|s| s.exists()) {
            Some(socket) => Client::on_socket(&socket, LIMIT),
            None => Client::of_node(&format!("http://{node}:{port}"), node, site.munge_socket.clone(), LIMIT),
        };
        Counter { client, path: format!("/v1/jobs/{job}/energy?restart=0") }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the service does not answer, or does not see the job.
    pub fn read(&self) -> Result<Reading> {
        let reading: NodeReading = self.client.get(&self.path).context("the node service must run to calibrate")?;
        let Some(job) = reading.job else { bail!("the node service of {} sees no process of this job", reading.node) };
        Ok(Reading { at_s: reading.at_s, job })
    }
}

/// Mean power between two readings, W; None where the counter began anew or no time passed.
pub fn power_w(before: &Reading, after: &Reading) -> Option<f64> {
    let (time_s, joules) = (after.at_s - before.at_s, after.job.joules - before.job.joules);
    (time_s > 0.0 && joules >= 0.0 && before.job.since_s == after.job.since_s).then(|| joules / time_s)
}
