//! Looks at silent nodes from here, and asks their witnesses what they see.

use super::marks::beside;
use super::power;
use super::state::Watching;
use node::reach::{Places, see};
use protocol::{Incarnation, Seen, Testimony, TestimonyRequest, WakeReply, WakeRequest};
use slurm::Slurm;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use watch::nodes::Action;
use watch::testimony::{is_reached, reaching};

/// Longest wait for a witness: it looks itself for more than a second.
const WITNESS_LIMIT: Duration = Duration::from_millis(2000);

/// Longest wait for a node that is asked to beat.
const WAKE_LIMIT: Duration = Duration::from_millis(500);

/// How many nodes are asked at the same time.
const WAKING: usize = 16;

/// What looks at nodes.
pub(crate) struct Looks {
    pub watching: Arc<Watching>,
    pub slurm: Slurm,
    pub munge_socket: Option<PathBuf>,
}

impl Looks {
    /// Looks at a silent node, from here and through its witnesses; what follows from it.
    pub(super) fn look(
        &self,
        node: &str,
        epoch: u64,
        witnesses: &BTreeSet<String>,
        ended: &BTreeSet<Incarnation>,
    ) -> Vec<Action> {
        let (here, testimonies) = self.see_from_all(node, epoch, witnesses, ended);
        tracing::info!(node, ?here, ?testimonies, "a silent node was looked at");
        let now_s = self.watching.now_s();
        let mut actions = self.watching.nodes.lock().looked(now_s, node, epoch, here, &testimonies);
        let is_reached = is_reached(here) || reaching(&testimonies).is_some();
        if let Some(power) = self.watching.power.as_ref().filter(|_| !is_reached) {
            actions.extend(self.ask_power(power, node, epoch));
        }
        actions
    }

    /// Who reaches anything of a node now: this host, or a witness.
    pub(super) fn reached_by(&self, node: &str) -> Option<String> {
        let (epoch, witnesses) = {
            let nodes = self.watching.nodes.lock();
            let known = nodes.known(node)?;
            (known.epoch, known.witnesses())
        };
        let (here, said) = self.see_from_all(node, epoch, &witnesses, &BTreeSet::new());
        is_reached(here).then(|| "the controller".to_string()).or_else(|| reaching(&said))
    }

    /// What is seen of a node from here, and what its witnesses say.
    fn see_from_all(
        &self,
        node: &str,
        epoch: u64,
        witnesses: &BTreeSet<String>,
        ended: &BTreeSet<Incarnation>,
    ) -> (Seen, BTreeMap<String, Testimony>) {
        let slurmd = self.slurmd(node);
        let url = self.watching.beats.lock().get(node).map(|b| b.url.clone()).unwrap_or_default();
        let places = Places { url, slurmd };
        std::thread::scope(|scope| {
            let here = scope.spawn(|| see(&places));
            let said = self.ask_witnesses(node, epoch, witnesses, ended, &places);
            match here.join() {
                Ok(here) => (here, said),
                // A look that could not be taken has not seen that nothing is there.
                Err(e) => std::panic::resume_unwind(e),
            }
        })
    }

    /// Asks nodes that rest to beat, a few at a time and beside everything else. One that does not hear of it is missed soon.
    pub(super) fn wake(&self, actions: Vec<Action>) {
        let beats = self.watching.beats.lock();
        let url = |node: &String| beats.get(node).map(|b| b.url.clone()).filter(|u| !u.is_empty());
        let named = actions.into_iter().filter_map(|a| if let Action::Wake { node } = a { Some(node) } else { None });
        let nodes: Vec<(String, String)> = named.filter_map(|node| Some((url(&node)?, node))).collect();
        drop(beats);
        for part in nodes.chunks(nodes.len().div_ceil(WAKING).max(1)).map(<[_]>::to_vec) {
            let munge_socket = self.munge_socket.clone();
            beside(move || {
                for (url, node) in part {
                    let client = wire::Client::of_node(&url, &node, munge_socket.clone(), WAKE_LIMIT);
                    let request = WakeRequest { version: protocol::VERSION };
                    if let Err(e) = client.post::<_, WakeReply>("/v1/wake", &request) {
                        tracing::debug!(node, %e, "a node that rests was not woken");
                    }
                }
            });
        }
    }

    /// Asks Slurm again, by one question, where the slurmds of the nodes are that were looked at since.
    pub(super) fn ask_again(&self) {
        let mut moved = std::mem::take(&mut *self.watching.moved.lock());
        // A look at a node of a run is not to wait for slurmctld.
        let known: BTreeSet<String> = self.watching.slurmds.lock().keys().cloned().collect();
        moved.extend(self.watching.used().difference(&known).cloned());
        let moved = Vec::from_iter(moved);
        if let Err(e) = self.ask_slurmds(&self.slurm.when_idle(), &moved) {
            tracing::debug!(%e, "Slurm does not say where slurmds are");
            self.watching.moved.lock().extend(moved);
        }
    }

    /// What a power controller says of a node that was looked at in an epoch.
    fn ask_power(&self, power: &power::Controller, node: &str, epoch: u64) -> Vec<Action> {
        match power.status(node) {
            Ok(power::Status::Off) => self.watching.nodes.lock().powered_off(self.watching.now_s(), node, epoch),
            Ok(power::Status::On) => Vec::new(),
            Err(e) => {
                tracing::warn!(node, %e, "the power controller gives no answer");
                Vec::new()
            }
        }
    }

    /// Where Slurm reaches a node's slurmd. Of the looks that do not know it of theirs, one asks for all.
    fn slurmd(&self, node: &str) -> Option<String> {
        let known = || self.watching.slurmds.lock().get(node).cloned();
        if let Some(slurmd) = known() {
            // A slurmctld that is away, too, must not hold a look up: it is asked afterwards whether this has changed.
            self.watching.moved.lock().insert(node.to_string());
            return Some(slurmd);
        }
        let since_s = self.watching.now_s();
        let mut asked_s = self.watching.slurmds_asked_s.lock();
        let mut names = self.watching.looking.all();
        let is_looked_at = !names.insert(node.to_string());
        if *asked_s < since_s || !is_looked_at {
            *asked_s = self.watching.now_s();
            names.retain(|name| !self.watching.slurmds.lock().contains_key(name));
            if let Err(e) = self.ask_slurmds(&self.slurm, &Vec::from_iter(names)) {
                tracing::warn!(node, %e, "Slurm does not say where slurmds are");
            }
        }
        known()
    }

    /// Asks Slurm where it reaches the slurmds of some nodes; kept for the next looks.
    fn ask_slurmds(&self, slurm: &Slurm, names: &[String]) -> Result<(), slurm::Error> {
        let port = OnceCell::new();
        for known in slurm.known_nodes(names)? {
            let port = known.port.unwrap_or_else(|| *port.get_or_init(|| slurm.slurmd_port()));
            self.watching.slurmds.lock().insert(known.name, format!("{}:{port}", known.addr));
        }
        Ok(())
    }

    fn ask_witnesses(
        &self,
        node: &str,
        epoch: u64,
        witnesses: &BTreeSet<String>,
        ended: &BTreeSet<Incarnation>,
        places: &Places,
    ) -> BTreeMap<String, Testimony> {
        let request = TestimonyRequest {
            version: protocol::VERSION,
            node: node.to_string(),
            url: places.url.clone(),
            slurmd: places.slurmd.clone(),
            epoch,
            ended: ended.clone(),
        };
        std::thread::scope(|scope| {
            let ask = |witness: &String| {
                let url = self.watching.beats.lock().get(witness).map(|b| b.url.clone()).filter(|u| !u.is_empty());
                let (witness, request) = (witness.clone(), &request);
                scope.spawn(move || {
                    let client = wire::Client::of_node(&url?, &witness, self.munge_socket.clone(), WITNESS_LIMIT);
                    let said = client.post::<_, Testimony>("/v1/testimony", request);
                    let said = said.inspect_err(|e| tracing::debug!(witness, %e, "a witness does not answer"));
                    Some((witness, said.ok()?))
                })
            };
            let asked: Vec<_> = witnesses.iter().map(ask).collect();
            asked.into_iter().filter_map(|a| a.join().ok().flatten()).collect()
        })
    }
}
