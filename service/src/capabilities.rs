//! Which checkpoint engines the nodes have: each looks at itself, and they are counted here.

use crate::controller::Controller;
use crate::routes::Shared;
use axum::Json;
use axum::extract::State;
use config::Site;
use listener::now_s;
use parking_lot::Mutex;
use protocol::Capabilities;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The nodes are counted at most so often: each heartbeat is answered with the count.
const COUNT: Duration = Duration::from_secs(2);

/// What the nodes told, and the last count of it.
#[derive(Default)]
pub(crate) struct Told {
    nodes: Mutex<BTreeMap<String, BTreeSet<String>>>,
    counted: Mutex<Option<(Instant, Capabilities)>>,
}

impl Told {
    /// A node tells what it has.
    pub(crate) fn tell(&self, node: &str, engines: &BTreeSet<String>) {
        let mut nodes = self.nodes.lock();
        if nodes.get(node) != Some(engines) {
            nodes.insert(node.to_string(), engines.clone());
        }
    }

    /// What those nodes have that are heard.
    fn count(&self, heard: &[String]) -> Capabilities {
        let nodes = self.nodes.lock();
        let told: Vec<&BTreeSet<String>> = heard.iter().filter_map(|node| nodes.get(node)).collect();
        let mut engines = BTreeMap::new();
        for engine in told.iter().copied().flatten() {
            *engines.entry(engine.clone()).or_insert(0) += 1;
        }
        Capabilities { at_s: now_s(), nodes: told.len(), engines, site_wide: false }
    }
}

/// Whether a site has said how jobs make checkpoints that do not say it themselves.
fn says_how(site: &Site) -> bool {
    const DEFAULTS: [&str; 3] = ["ft-energy-engine", "ft-energy-done", "ft-energy-signal"];
    site.hook.checkpoint.is_some() || DEFAULTS.iter().any(|name| site.defaults.contains_key(*name))
}

impl Controller {
    /// What the nodes have, counted a moment ago at most.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut counted = self.told.counted.lock();
        match counted.as_ref() {
            Some((at, count)) if at.elapsed() < COUNT => count.clone(),
            _ => {
                let count = self.told.count(&self.watching.heard_names());
                let count = Capabilities { site_wide: says_how(&self.site), ..count };
                *counted = Some((Instant::now(), count.clone()));
                count
            }
        }
    }
}

/// `GET /v1/capabilities`: what the nodes have.
pub(crate) async fn tell(State(c): Shared) -> Json<Capabilities> {
    Json(c.capabilities())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_are_heard_and_have_looked_are_counted() {
        let told = Told::default();
        told.tell("n1", &["criu".to_string()].into());
        told.tell("n2", &BTreeSet::new());
        told.tell("n3", &["criu".to_string()].into());
        let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let count = told.count(&names(&["n1", "n2", "n4"]));
        assert_eq!((count.nodes, count.having("criu"), count.having("dmtcp")), (2, 1, 0));
        assert_eq!(told.count(&[]).nodes, 0);
    }
}
