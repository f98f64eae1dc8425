//! Which checkpoint engines the nodes have: each looks at itself, and they are counted here.

use crate::watching::Watching;
use axum::Json;
use axum::extract::State;
use config::Site;
use listener::now_s;
use parking_lot::Mutex;
use protocol::Capabilities;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The nodes are counted at most so often: each heartbeat is answered with the count.
const COUNT: Duration = Duration::from_secs(2);

/// The engines of the nodes, as each has reported them, and the last count.
#[derive(Default)]
pub(crate) struct Engines {
    nodes: Mutex<BTreeMap<String, BTreeSet<String>>>,
    counted: Mutex<Option<(Instant, Capabilities)>>,
}

impl Engines {
    /// A node reports what it has.
    pub(crate) fn report(&self, node: &str, engines: &BTreeSet<String>) {
        let mut nodes = self.nodes.lock();
        if nodes.get(node) != Some(engines) {
            nodes.insert(node.to_string(), engines.clone());
        }
    }

    /// What those nodes have that are heard.
    fn count(&self, heard: &[String]) -> Capabilities {
        let nodes = self.nodes.lock();
        let reported: Vec<&BTreeSet<String>> = heard.iter().filter_map(|node| nodes.get(node)).collect();
        let mut engines = BTreeMap::new();
        for engine in reported.iter().copied().flatten() {
            *engines.entry(engine.clone()).or_insert(0) += 1;
        }
        Capabilities { at_s: now_s(), nodes: reported.len(), engines, site_wide: false }
    }
}

/// Whether a site has said how jobs make checkpoints that do not say it themselves.
fn says_how(site: &Site) -> bool {
    const DEFAULTS: [&str; 3] = ["ft-energy-engine", "ft-energy-done", "ft-energy-signal"];
    site.hook.checkpoint.is_some() || DEFAULTS.iter().any(|name| site.defaults.contains_key(*name))
}

/// What the nodes of a site have.
pub(crate) struct Counter {
    pub engines: Engines,
    pub site: Arc<Site>,
    pub watching: Arc<Watching>,
}

impl Counter {
    /// What the nodes have, counted a moment ago at most.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut counted = self.engines.counted.lock();
        match counted.as_ref() {
            Some((at, count)) if at.elapsed() < COUNT => count.clone(),
            _ => {
                let count = self.engines.count(&self.watching.heard_names());
                let count = Capabilities { site_wide: says_how(&self.site), ..count };
                *counted = Some((Instant::now(), count.clone()));
                count
            }
        }
    }
}

/// `GET /v1/capabilities`: what the nodes have.
pub(crate) async fn tell(State(counter): State<Arc<Counter>>) -> Json<Capabilities> {
    Json(counter.capabilities())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_are_heard_and_have_looked_are_counted() {
        let engines = Engines::default();
        engines.report("n1", &["criu".to_string()].into());
        engines.report("n2", &BTreeSet::new());
        engines.report("n3", &["criu".to_string()].into());
        let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let count = engines.count(&names(&["n1", "n2", "n4"]));
        assert_eq!((count.nodes, count.having("criu"), count.having("dmtcp")), (2, 1, 0));
        assert_eq!(engines.count(&[]).nodes, 0);
    }
}
