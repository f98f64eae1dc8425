//! What the failures that the controller has seen tell of a run's nodes: of themselves, of their type, or of the cluster.

use crate::known;
use crate::{History, Wanted};
use config::Site;
use options::{counted, spoken};
use policy::adaptive::{Adaptive, Past};
use protocol::NodeFailure;
use std::collections::BTreeSet;

/// A few nodes speak for themselves from so many failures on: their rate is then known within about a third.
const ENOUGH_FAILURES: usize = 8;

/// The deaths of nodes as a controller hands them to a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailureLog {
    /// How many nodes are watched.
    pub nodes: u32,
    /// The newest deaths, newest first: all of [`History::node_failures`], or as many as are read for a plan.
    pub newest: Vec<NodeFailure>,
    /// When it was read, s since 1970.
    pub now_s: f64,
}

/// Some of the nodes, and what of the log is theirs.
struct Watched {
    of: String,
    nodes: u32,
    failed_s: Vec<f64>,
}

/// What is known of the failures of the narrowest set of nodes around a run that has seen enough of them; none where no
/// node has failed.
pub(crate) fn of(wanted: &Wanted<'_>, history: &History, site: &Site) -> Option<protocol::Past> {
    let log = &history.failures;
    let oldest_s = log.newest.last()?.at_s;
    if wanted.settings.policy != "auto" || log.nodes == 0 || log.now_s <= 0.0 {
        return None;
    }
    let unread = history.node_failures.saturating_sub(log.newest.len() as u32);
    // A node is taken to be watched for as long as they are on the mean, and not since after it failed.
    let from_s = (log.now_s - history.node_seconds / f64::from(log.nodes)).min(oldest_s);
    let narrow = own(wanted, log).into_iter().chain(of_type(wanted, history));
    let narrow = narrow.into_iter().find(|watched| watched.failed_s.len() >= ENOUGH_FAILURES);
    let (watched, prior_s, from_s) = match narrow {
        // What was not read is not known to be theirs.
        Some(watched) => {
            let mean_s = (history.node_seconds + site.estimates.node_mtbf_s) / f64::from(history.node_failures + 1);
            (watched, mean_s, if unread > 0 { oldest_s } else { from_s })
        }
        None => (cluster(wanted, log), site.estimates.node_mtbf_s, from_s),
    };
    let Watched { of, nodes, failed_s } = watched;
    let share = (f64::from(wanted.nodes) / f64::from(nodes)).min(1.0);
    let prior_s = policy::mtbf::combine_prior(prior_s, nodes);
    let past = Past::watched(prior_s, from_s, failed_s, log.now_s, share);
    let earlier = if of == CLUSTER { unread } else { 0 };
    Some(protocol::Past {
        of,
        nodes,
        share,
        prior_mtbf_s: past.prior_mtbf_s,
        earlier_failures: past.earlier_failures.saturating_add(earlier),
        earlier_s: past.earlier_s,
        since_s: past.since_s,
        failed_s: past.failed_s,
        until_s: past.until_s,
    })
}

const CLUSTER: &str = "the cluster";

fn moments(log: &FailureLog, is_of: impl Fn(&str) -> bool) -> Vec<f64> {
    log.newest.iter().filter(|failure| is_of(&failure.node)).map(|failure| failure.at_s).collect()
}

fn cluster(wanted: &Wanted<'_>, log: &FailureLog) -> Watched {
    Watched { of: CLUSTER.to_string(), nodes: log.nodes.max(wanted.nodes), failed_s: moments(log, |_| true) }
}

/// The run's own nodes, where they are known.
fn own(wanted: &Wanted<'_>, log: &FailureLog) -> Option<Watched> {
    let names: BTreeSet<&str> = wanted.node_names.iter().map(String::as_str).collect();
    let is_of = |node: &str| names.contains(node);
    (!names.is_empty()).then(|| Watched {
        of: "these nodes".to_string(),
        nodes: wanted.nodes,
        failed_s: moments(log, is_of),
    })
}

/// The nodes that were calibrated as the run's type.
fn of_type(wanted: &Wanted<'_>, history: &History) -> Option<Watched> {
    let calibration = &known::find(&history.calibrations, wanted).ok()?.stored.calibration;
    let measured = &calibration.power.idle_w;
    // Of fewer nodes than the run has, their failures tell too little of it.
    let nodes = u32::try_from(measured.len()).ok().filter(|measured| *measured >= wanted.nodes)?;
    Some(Watched {
        of: format!("node type {}", calibration.node_type),
        nodes,
        failed_s: moments(&history.failures, |node| measured.contains_key(node)),
    })
}

/// A past as the policy has it.
pub fn lived(past: &protocol::Past) -> Past {
    Past {
        prior_mtbf_s: past.prior_mtbf_s,
        earlier_failures: past.earlier_failures,
        earlier_s: past.earlier_s,
        since_s: past.since_s,
        failed_s: past.failed_s.clone(),
        until_s: past.until_s,
        share: past.share,
    }
}

/// From what a run starts, in a sentence.
pub(crate) fn said(past: &protocol::Past, policy: &Adaptive) -> String {
    let failures = past.earlier_failures.saturating_add(past.failed_s.len() as u32);
    let [steady, bursts, wear] = policy.ways().map(|share| format!("{:.0}%", 100.0 * share));
    let last = past.failed_s.last().map_or(0.0, |at_s| past.until_s - at_s);
    let seen_s = past.until_s - past.since_s + past.earlier_s;
    format!(
        "auto starts from {} of {} ({}) in {}, the last {} ago: at a steady rate with a probability of {steady}, in bursts \
         {bursts}, by wear {wear}",
        counted(failures, "failure"),
        counted(past.nodes, "node"),
        past.of,
        spoken(seen_s),
        spoken(last)
    )
}
