//! Says which nodes of a job have no slurmd at the moment, so that a step that could not be launched there waits for it, and
//! which have booted under a step.

use host::mail::now_s;
use host::parallel;
use slurm::{Node, Slurm};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A step that has taken less has outlived no boot, s.
const SHORTEST_BOOT_S: f64 = 3.0;

/// So far may clocks of two hosts be apart, s.
const CLOCKS_S: f64 = 2.0;

/// Exit codes of an `srun` that could not launch its step: a slurmd that cannot be reached, one that does not answer.
const NOT_LAUNCHED: [i32; 2] = [233, 140];

/// Longest wait for one slurmd to take a connection.
const LIMIT: Duration = Duration::from_secs(2);

/// Whether an exit code of `srun` may mean that its step was not launched.
pub fn may_mean_not_launched(code: i32) -> bool {
    NOT_LAUNCHED.contains(&code)
}

/// Whether nodes have lived through a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Lived {
    /// All of them.
    Yes,
    /// This one was started since.
    Booted(String),
    /// On these no slurmd takes connections.
    Silent(Vec<String>),
}

/// Whether these nodes have lived through a step that began at `since_s`. Of a step that has just begun nobody is asked.
///
/// # Errors
/// slurmctld does not tell.
pub fn lived(slurm: &Slurm, nodes: &[String], since_s: f64) -> Result<Lived, slurm::Error> {
    if now_s() - since_s < SHORTEST_BOOT_S {
        return Ok(Lived::Yes);
    }
    let known = slurm.nodes_of(nodes)?;
    // slurmctld's clock, by which a node's start is told, is another than ours.
    if let Some(node) = booted(&known, since_s + CLOCKS_S) {
        return Ok(Lived::Booted(node.to_string()));
    }
    let silent = silent(&known, slurm.slurmd_port());
    Ok(if silent.is_empty() { Lived::Yes } else { Lived::Silent(silent) })
}

/// Those of the nodes on which no slurmd takes connections; none of which Slurm does not tell where they are.
pub fn away(slurm: &Slurm, nodes: &[String]) -> Vec<String> {
    silent(&slurm.nodes_of(nodes).unwrap_or_default(), slurm.slurmd_port())
}

/// The nodes of the job in whose script this process runs.
pub fn nodes_of_job() -> Vec<String> {
    let nodes = std::env::var("SLURM_JOB_NODELIST").ok().and_then(|list| slurm::expand_nodelist(&list).ok());
    nodes.unwrap_or_default()
}

/// A node that was started after a step on it began, by slurmctld's word. Of a step that has just begun it is not asked, so
/// that scripts of many short steps cost slurmctld no more.
pub fn has_booted(slurm: &Slurm, nodes: &[String], since_s: f64) -> Option<String> {
    if now_s() - since_s < SHORTEST_BOOT_S {
        return None;
    }
    booted(&slurm.nodes_of(nodes).unwrap_or_default(), since_s).map(str::to_string)
}

fn booted(nodes: &[Node], since_s: f64) -> Option<&str> {
    nodes.iter().find(|node| node.boot_s.is_some_and(|boot_s| boot_s > since_s)).map(|node| node.name.as_str())
}

fn silent(nodes: &[Node], usual: u16) -> Vec<String> {
    let tries = parallel::each(nodes, |node| answers(node, usual));
    let failed = nodes.iter().zip(tries).filter(|(_, answers)| *answers == Some(false));
    failed.map(|(node, _)| node.name.clone()).collect()
}

fn answers(node: &Node, usual: u16) -> bool {
    // Of a name that is not known here nothing can be said.
    let Ok(mut addresses) = (node.addr.as_str(), node.port.unwrap_or(usual)).to_socket_addrs() else { return true };
    addresses.any(|address| TcpStream::connect_timeout(&address, LIMIT).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn node(name: &str, port: u16) -> Node {
        let line = format!("NodeName={name} NodeAddr=127.0.0.1 NodeHostName={name} Port={port} State=IDLE CPUTot=1");
        slurm::parse_node(&line).unwrap()
    }

    #[test]
    fn a_node_that_was_started_after_a_step_has_lost_it() {
        let started = |name: &str, boot_s| Node { boot_s, ..node(name, 1) };
        let nodes = [started("n1", Some(50.0)), started("n2", Some(150.0)), started("n3", None)];
        assert_eq!(booted(&nodes, 100.0), Some("n2"));
        assert_eq!(booted(&nodes, 200.0), None);
    }

    #[test]
    fn a_slurmd_that_takes_no_connection_is_away() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let nodes = [node("n1", here.local_addr().unwrap().port()), node("n2", gone)];
        assert_eq!(silent(&nodes, 6818), ["n2"]);
    }
}
