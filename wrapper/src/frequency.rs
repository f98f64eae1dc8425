//! Holds the CPU frequency of the checkpoint phase on the run's nodes, by asking their services again and again.

use protocol::{FrequencyRequest, FrequencyState, Phase};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wire::Client;

/// After which a node has its own frequency again if this process is gone, s.
const LEASE_S: f64 = 20.0;

/// Time between two requests while it is held.
const AGAIN: Duration = Duration::from_secs(5);

/// The ways to the services of all nodes.
pub type Services = Box<dyn Fn() -> Vec<Vec<Client>> + Send>;

/// A frequency that is held in every checkpoint phase.
pub struct Frequency {
    phases: Option<Sender<Phase>>,
    holder: Option<JoinHandle<()>>,
}

impl Frequency {
    /// Holds `hz` for a job on the nodes of `services`, from the first checkpoint phase on.
    pub fn new(job: u32, hz: f64, services: Services) -> Frequency {
        let (sender, phases) = channel();
        let holder = thread::spawn(move || follow(&phases, &mut |hold| ask(job, hold.then_some(hz), &services)));
        Frequency { phases: Some(sender), holder: Some(holder) }
    }

    /// A phase begins. It does not wait for the nodes.
    pub fn enter(&self, phase: Phase) {
        if let Some(phases) = &self.phases {
            let _ = phases.send(phase);
        }
    }
}

impl Drop for Frequency {
    fn drop(&mut self) {
        self.phases = None;
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

/// Asks at the beginning of each checkpoint phase, again and again within it, and gives back at its end.
fn follow(phases: &Receiver<Phase>, ask: &mut dyn FnMut(bool)) {
    let mut holds = false;
    loop {
        let next = match holds {
            true => phases.recv_timeout(AGAIN),
            false => phases.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let hold = match next {
            Ok(phase) => phase == Phase::Checkpoint,
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        };
        if hold || holds {
            ask(hold);
        }
        holds = hold;
        if next == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Asks all nodes at once; one that refuses goes on at its own frequency.
fn ask(job: u32, hz: Option<f64>, services: &Services) {
    let request = FrequencyRequest { version: protocol::VERSION, hz, lease_s: LEASE_S };
    let path = format!("/v1/jobs/{job}/frequency");
    thread::scope(|scope| {
        for clients in services() {
            let path = &path;
            scope.spawn(move || {
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
    fn it_is_held_in_checkpoint_phases_only_and_given_back_at_the_end() {
        for (phases, asked) in [
            (vec![Phase::Compute, Phase::Idle], vec![]),
            (vec![Phase::Checkpoint, Phase::Compute, Phase::Compute], vec![true, false]),
            (vec![Phase::Checkpoint, Phase::Restart, Phase::Checkpoint], vec![true, false, true, false]),
        ] {
            let (sender, receiver) = channel();
            phases.iter().for_each(|p| sender.send(*p).unwrap());
            drop(sender);
            let mut seen = Vec::new();
            follow(&receiver, &mut |hold| seen.push(hold));
            assert_eq!(seen, asked, "{phases:?}");
        }
    }
}
