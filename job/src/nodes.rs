//! Energy counters of the run's nodes, from their services; from this node's own files where there is none.

use crate::cluster::Controller;
use crate::frequency::{Frequency, Services};
use driver::ports::{Meter, NodeCounter};
use host::parallel;
use protocol::{JobReading, NodeHealth, NodeReading, Phase};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wire::Client;

/// Longest wait for one node's answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Reads the nodes of a run.
pub struct Nodes {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT, so that a requeued job's counters begin anew.
    pub restart_count: u32,
    /// Nodes of the allocation.
    pub nodes: Vec<String>,
    /// Port of node services that the controller has not heard of.
    pub port: u16,
    /// Socket of munged.
    pub munge_socket: Option<PathBuf>,
    /// The node that this process is on, and the socket of its service: no munge and no network.
    pub here: Option<(String, PathBuf)>,
    /// The controller, which knows where services answer and what dead nodes said last.
    pub controller: Arc<Controller>,
    /// What is read in place of a node service that this run has never reached.
    pub local: Option<Local>,
    /// The CPU frequency of the checkpoint phase, where the plan has one.
    pub frequency: Option<Frequency>,
}

impl Meter for Nodes {
    fn read(&mut self) -> Vec<NodeCounter> {
        let known = self.controller.health().nodes;
        let path = format!("/v1/jobs/{}/energy?restart={}", self.job, self.restart_count);
        let ways: Vec<Vec<Client>> = self.nodes.iter().map(|node| self.clients(node, &known)).collect();
        let answers = parallel::each(&ways, |clients| ask(clients, &path));
        let counter = |(node, answer): (&String, Option<Option<JobReading>>)| {
            let last = || known.iter().find(|h| h.node == *node).and_then(|h| h.job.clone());
            NodeCounter { node: node.clone(), reading: answer.flatten().or_else(last) }
        };
        let counters: Vec<NodeCounter> = self.nodes.iter().zip(answers).map(counter).collect();
        if counters.iter().all(|c| c.reading.is_none())
            && let (Some(local), [only]) = (&mut self.local, self.nodes.as_slice())
        {
            return vec![NodeCounter { node: only.clone(), reading: local.read(self.job) }];
        }
        self.local = None;
        counters
    }

    fn add(&mut self, node: &str) {
        self.nodes.push(node.to_string());
    }

    fn enter(&mut self, phase: Phase) {
        if let Some(frequency) = &self.frequency {
            let checkpoints = phase == Phase::Checkpoint;
            frequency.hold(self.nodes.iter().filter(|_| checkpoints).cloned().collect());
        }
    }
}

impl Nodes {
    /// The ways to the service of a node, as they are when it is asked.
    pub fn services(&self) -> Services {
        let (port, munge_socket) = (self.port, self.munge_socket.clone());
        let (here, controller) = (self.here.clone(), self.controller.clone());
        Box::new(move |node| clients(node, &controller.last(), port, munge_socket.as_ref(), here.as_ref()))
    }

    fn clients(&self, node: &str, known: &[NodeHealth]) -> Vec<Client> {
        clients(node, known, self.port, self.munge_socket.as_ref(), self.here.as_ref())
    }
}

/// The ways to a node's service, the best first; none to a node that is dead.
pub fn clients(
    node: &str,
    known: &[NodeHealth],
    port: u16,
    munge_socket: Option<&PathBuf>,
    here: Option<&(String, PathBuf)>,
) -> Vec<Client> {
    let url = match known.iter().find(|h| h.node == node) {
        Some(h) if h.dead => return Vec::new(),
        Some(h) if !h.url.is_empty() => h.url.clone(),
        _ => format!("http://{node}:{port}"),
    };
    let here = here.iter().filter(|(name, socket)| name == node && socket.exists());
    let here = here.map(|(_, socket)| Client::on_socket(socket, LIMIT).impatient("the service of this node"));
    here.chain([Client::of_node(&url, node, munge_socket.cloned(), LIMIT).impatient(node)]).collect()
}

/// Asks nodes the same at the same time; what the first service of each that answers says.
pub fn ask_all<Q: Serialize, A: DeserializeOwned + Send>(
    services: &Services,
    nodes: &[&String],
    path: &str,
    question: impl Fn() -> Q + Sync,
) -> Vec<Option<A>> {
    let answer = |clients: &Vec<Client>| {
        let asked = clients.iter().map(|client| client.post::<Q, A>(path, &question()));
        let told = |e: &wire::Error| tracing::debug!(%e, path, "a node service does not answer");
        asked.filter_map(|answer| answer.inspect_err(told).ok()).next()
    };
    let ways: Vec<Vec<Client>> = nodes.iter().map(|node| services(node)).collect();
    parallel::each(&ways, answer).into_iter().map(Option::flatten).collect()
}

/// What the first service that answers says.
fn ask(clients: &[Client], path: &str) -> Option<JobReading> {
    for client in clients {
        match client.get::<NodeReading>(path) {
            Ok(answer) => return answer.job,
            Err(e) => tracing::debug!(%e, "a node service cannot be asked"),
        }
    }
    None
}

/// This node's own sources, read as an ordinary user, for runs outside Slurm and sites without node services.
pub struct Local {
    meter: energy::Meter,
    root: i32,
    since_s: f64,
    tick_hz: f64,
    cpu_s: f64,
}

impl Local {
    /// Opens the sources that this user may read; `root` is the process below which the program runs.
    pub fn open(config: &energy::Config, root: i32) -> Local {
        let mut local = Local {
            meter: energy::open(config),
            root,
            since_s: host::mail::now_s(),
            tick_hz: f64::from(energy::tick_hz()),
            cpu_s: 0.0,
        };
        // A counter counts from its first reading on, and the run's first cut may be a minute away.
        local.read(0);
        local
    }

    fn read(&mut self, job: u32) -> Option<JobReading> {
        let below = host::processes::cpu_s(self.root, self.tick_hz);
        self.cpu_s = self.cpu_s.max(below);
        let cpus = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let sample = self.meter.sample(host::mail::now_s(), &energy::Load { cpu_s: self.cpu_s, cpus });
        Some(JobReading {
            job,
            joules: sample.joules,
            cpu_s: self.cpu_s,
            source: sample.source.as_str().to_string(),
            since_s: self.since_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_counts_from_the_opening_of_this_nodes_sources() {
        let config = energy::Config { precedence: vec![energy::SourceKind::Model], ..energy::Config::default() };
        let mut local = Local::open(&config, std::process::id() as i32);
        thread::sleep(Duration::from_millis(50));
        assert!(local.read(0).unwrap().joules > 0.0);
    }
}
