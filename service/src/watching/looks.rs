//! Looks at silent nodes from here, and asks their witnesses what they see.

use super::power;
use crate::controller::Controller;
use node::reach::{Places, see};
use protocol::{Incarnation, Testimony, TestimonyRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a witness: it looks itself for more than a second.
const WITNESS_LIMIT: Duration = Duration::from_millis(2000);

impl Controller {
    /// Looks at a silent node beside everything else; what is seen goes to the watch.
    pub(super) fn look_at(
        self: &Arc<Self>,
        node: String,
        epoch: u64,
        witnesses: BTreeSet<String>,
        ended: BTreeSet<Incarnation>,
    ) {
        if !self.watching.looking.lock().insert(node.clone()) {
            return;
        }
        let controller = self.clone();
        std::thread::spawn(move || {
            let known = controller.watching.slurmds.lock().get(&node).cloned();
            // A slurmctld that is away, too, must not hold a look up: it is asked afterwards whether this has changed.
            let slurmd = known.clone().or_else(|| controller.ask_slurmd(&node));
            let url = controller.watching.beats.lock().get(&node).map(|b| b.url.clone()).unwrap_or_default();
            let places = Places { url, slurmd };
            let (here, testimonies) = std::thread::scope(|scope| {
                let here = scope.spawn(|| see(&places));
                let asked = controller.ask_witnesses(&node, epoch, &witnesses, &ended, &places);
                (here.join().unwrap_or_default(), asked)
            });
            tracing::info!(node, ?here, ?testimonies, "a silent node was looked at");
            let now_s = controller.watching.now_s();
            let mut actions = controller.watching.nodes.lock().looked(now_s, &node, epoch, here, &testimonies);
            if let Some(power) = &controller.watching.power {
                actions.extend(controller.ask_power(power, &node));
            }
            controller.watching.looking.lock().remove(&node);
            controller.act_on_nodes(actions);
            if known.is_some() && controller.watching.asking.lock().insert(node.clone()) {
                controller.ask_slurmd(&node);
                controller.watching.asking.lock().remove(&node);
            }
        });
    }

    /// What a power controller says of a node.
    fn ask_power(&self, power: &power::Controller, node: &str) -> Vec<watch::nodes::Action> {
        match power.status(node) {
            Ok(power::Status::Off) => self.watching.nodes.lock().powered_off(self.watching.now_s(), node),
            Ok(power::Status::On) => Vec::new(),
            Err(e) => {
                tracing::warn!(node, %e, "the power controller gives no answer");
                Vec::new()
            }
        }
    }

    /// Where Slurm reaches a node's slurmd; kept for the next look.
    fn ask_slurmd(&self, node: &str) -> Option<String> {
        let known = self.slurm.node(node).ok().flatten()?;
        let slurmd = format!("{}:{}", known.addr, known.port.unwrap_or_else(|| self.slurm.slurmd_port()));
        self.watching.slurmds.lock().insert(node.to_string(), slurmd.clone());
        Some(slurmd)
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
                    let client = wire::Client::of_node(&url?, &witness, self.site.munge_socket.clone(), WITNESS_LIMIT);
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
