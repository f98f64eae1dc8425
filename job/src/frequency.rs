//! Holds a CPU frequency on nodes of the run, by asking their services again and again.

use protocol::{FrequencyRequest, FrequencyState};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wire::Client;

/// After which a node has its own frequency again if this process is gone, s.
const LEASE_S: f64 = 20.0;

/// Time between two requests while it is held.
const AGAIN: Duration = Duration::from_secs(5);

/// The ways to the service of a node, the best first.
pub type Services = Box<dyn Fn(&str) -> Vec<Client> + Send>;

/// A frequency that is held on the nodes that are to have it now.
pub struct Frequency {
    nodes: Option<Sender<BTreeSet<String>>>,
    holder: Option<JoinHandle<()>>,
}

impl Frequency {
    /// A frequency for nodes of a job: 0 for the lowest that each of them has.
    pub fn new(job: u32, hz: f64, services: Services) -> Frequency {
        let (sender, nodes) = channel();
        let holder = threads::start(move || {
            follow(&nodes, &mut |nodes, hold| {
                let ways: Vec<Vec<Client>> = nodes.iter().map(|node| services(node)).collect();
                ask(job, hold.then_some(hz), &ways);
            });
        });
        Frequency { nodes: Some(sender), holder: Some(holder) }
    }

    /// These nodes have it from now on, and no others. It does not wait for them.
    pub fn hold(&self, nodes: BTreeSet<String>) {
        if let Some(sender) = &self.nodes {
            let _ = sender.send(nodes);
        }
    }
}

impl Drop for Frequency {
    fn drop(&mut self) {
        self.nodes = None;
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

/// Asks nodes that are to have it, again and again, and those that are not to have it any more to give it back.
fn follow(wanted: &Receiver<BTreeSet<String>>, ask: &mut dyn FnMut(&BTreeSet<String>, bool)) {
    let mut held = BTreeSet::new();
    loop {
        let next = match held.is_empty() {
            true => wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => wanted.recv_timeout(AGAIN),
        };
        let gone = next == Err(RecvTimeoutError::Disconnected);
        let nodes = next.unwrap_or_else(|_| if gone { BTreeSet::new() } else { held.clone() });
        let back: BTreeSet<String> = held.difference(&nodes).cloned().collect();
        for (nodes, hold) in [(&back, false), (&nodes, true)] {
            if !nodes.is_empty() {
                ask(nodes, hold);
            }
        }
        held = nodes;
        if gone {
            return;
        }
    }
}

/// Asks all nodes at once; one that refuses goes on at its own frequency.
fn ask(job: u32, hz: Option<f64>, services: &[Vec<Client>]) {
    let request = FrequencyRequest { version: protocol::VERSION, hz, lease_s: LEASE_S };
    let path = format!("/v1/jobs/{job}/frequency");
    thread::scope(|scope| {
        for clients in services {
            let path = &path;
            threads::start_in(scope, move || {
                for client in clients {
                    match client.post::<FrequencyRequest, FrequencyState>(path, &request) {
                        Err(e @ wire::Error::Unreachable { .. }) => tracing::debug!(%e, "a node service is away"),
                        Err(e) => return tracing::info!(%e, "a node keeps its own CPU frequency"),
                        Ok(_) => return,
                    }
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_hold_it_while_they_are_to_have_it_and_give_it_back_at_the_end() {
        for (wanted, asked) in [
            (vec!["", ""], ""),
            (vec!["a b", "", ""], "+a b -a b"),
            (vec!["a b", "b c"], "+a b -a +b c -b c"),
            (vec!["a", "a"], "+a +a -a"),
        ] {
            let (sender, receiver) = channel();
            let set = |names: &str| names.split_whitespace().map(str::to_string).collect();
            wanted.iter().for_each(|names| sender.send(set(names)).unwrap());
            drop(sender);
            let mut seen = Vec::new();
            follow(&receiver, &mut |nodes, hold| {
                let names = nodes.iter().cloned().collect::<Vec<_>>().join(" ");
                seen.push(format!("{}{names}", if hold { '+' } else { '-' }));
            });
            assert_eq!(seen.join(" "), asked, "{wanted:?}");
        }
    }
}
