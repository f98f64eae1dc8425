//! Cuts each node's energy counter into phases, so that the phases of a node add up to its counter.

use crate::ports::NodeCounter;
use protocol::{Event, JobReading, Phase};
use std::collections::BTreeMap;

/// The open interval of one node.
#[derive(Clone, Debug)]
struct Open {
    start_s: f64,
    reading: Option<JobReading>,
    /// When the counters before the one of the reading began, s.
    former_s: Vec<f64>,
}

impl Open {
    fn at(start_s: f64, reading: Option<JobReading>) -> Open {
        Open { start_s, reading, former_s: Vec::new() }
    }

    /// Whether a counter has gone on since, or begun anew. One that shows nothing has not been filled yet, and one of before is
    /// what a controller that was away remembers of a node.
    fn is_newer(&self, now: &JobReading) -> bool {
        !self.former_s.contains(&now.since_s) && since(self.reading.as_ref(), now) > 0.0
    }

    fn take(&mut self, reading: JobReading) {
        let former_s = self.reading.as_ref().map(|before| before.since_s).filter(|since_s| *since_s != reading.since_s);
        self.former_s.extend(former_s);
        self.reading = Some(reading);
    }
}

/// Energy and time by phase, node by node, since a wrapper took the run up.
#[derive(Debug)]
pub struct Ledger {
    phase: Phase,
    nodes: BTreeMap<String, Open>,
}

/// What one cut brought: events for the journal, and sums over the nodes.
#[derive(Debug, Default)]
pub struct Cut {
    /// One [`Event::Phase`] and one [`Event::Reading`] for each node.
    pub events: Vec<Event>,
    /// Energy of all nodes; absent if no node could be read.
    pub joules: Option<f64>,
    /// Node-seconds.
    pub node_s: f64,
}

/// What several cuts have brought together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    joules: Option<f64>,
    node_s: f64,
    /// Whether the last cut could not be read: the counters tell of that time at the next one.
    is_behind: bool,
}

impl Used {
    /// With one cut more.
    pub fn and(self, cut: &Cut) -> Used {
        let joules = [self.joules, cut.joules].into_iter().flatten().reduce(|sum, joules| sum + joules);
        let is_behind = if cut.node_s > 0.0 { cut.joules.is_none() } else { self.is_behind };
        Used { joules, node_s: self.node_s + cut.node_s, is_behind }
    }

    /// Energy of all nodes, J; absent if no node could be read, or not to the end.
    pub fn joules(self) -> Option<f64> {
        self.joules.filter(|_| !self.is_behind)
    }

    /// Mean power of a node, W.
    pub fn power_w(self) -> Option<f64> {
        self.joules().filter(|_| self.node_s > 0.0).map(|j| j / self.node_s)
    }
}

impl Ledger {
    /// Opens the account of `nodes` in a phase; `accounted` are counters that earlier wrappers have dealt with.
    pub fn open(now_s: f64, phase: Phase, nodes: &[String], accounted: &[NodeCounter]) -> Ledger {
        let reading = |n: &str| accounted.iter().find(|c| c.node == n).and_then(|c| c.reading.clone());
        let open = |n: &String| (n.clone(), Open::at(now_s, reading(n)));
        Ledger { phase, nodes: nodes.iter().map(open).collect() }
    }

    /// The phase that is running.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Closes the running phase at `now_s` with the counters read then, and opens `next`.
    pub fn cut(&mut self, now_s: f64, next: Phase, counters: &[NodeCounter]) -> Cut {
        let mut cut = Cut::default();
        for (node, open) in &mut self.nodes {
            let reading = counters.iter().find(|c| c.node == *node).and_then(|c| c.reading.clone());
            // What shows no more than before was read before: a heartbeat's last word of a node that does not answer.
            let reading = reading.filter(|now| open.is_newer(now));
            let end_s = now_s.max(open.start_s);
            // A counter that could not be read for a while gives the interval after it all that it shows since.
            let (joules, source) = match &reading {
                Some(r) => (Some(since(open.reading.as_ref(), r)), r.source.clone()),
                None => (None, String::new()),
            };
            cut.events.push(Event::Phase {
                phase: self.phase,
                node: node.clone(),
                start_s: open.start_s,
                end_s,
                joules,
                source,
            });
            if let Some(j) = joules {
                cut.joules = Some(cut.joules.unwrap_or(0.0) + j);
            }
            cut.node_s += end_s - open.start_s;
            open.start_s = end_s;
            if let Some(reading) = reading {
                cut.events.push(Event::Reading { node: node.clone(), reading: reading.clone() });
                open.take(reading);
            }
        }
        self.phase = next;
        cut
    }

    /// The nodes were away: what was between the last cut and then is not accounted.
    pub fn skip(&mut self, until_s: f64) {
        self.nodes.values_mut().for_each(|open| open.start_s = until_s);
    }

    /// A node joins; its account begins now.
    pub fn add_node(&mut self, node: &str, now_s: f64) {
        self.nodes.insert(node.to_string(), Open::at(now_s, None));
    }

    /// A node goes over to another ledger with its open account.
    pub fn hand_over(&mut self, node: &str, to: &mut Ledger) {
        if let Some(open) = self.nodes.remove(node) {
            to.nodes.insert(node.to_string(), open);
        }
    }

    /// A node is gone; its account ends with the interval that was cut last.
    pub fn drop_node(&mut self, node: &str) {
        self.nodes.remove(node);
    }
}

/// Joules since the last reading; a counter that began anew starts from zero, and none runs backwards.
fn since(before: Option<&JobReading>, now: &JobReading) -> f64 {
    let before_j = before.filter(|b| b.since_s == now.since_s).map_or(0.0, |b| b.joules);
    (now.joules - before_j).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(joules: f64, since_s: f64) -> Vec<NodeCounter> {
        let reading = JobReading { job: 1, joules, cpu_s: 0.0, source: "model".into(), since_s };
        vec![NodeCounter { node: "n1".into(), reading: Some(reading) }]
    }

    fn joules(cut: &Cut) -> Option<f64> {
        cut.joules
    }

    #[test]
    fn a_counter_that_shows_nothing_yet_is_no_figure() {
        let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".to_string()], &[]);
        assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(0.0, 0.0))), None);
        assert_eq!(joules(&ledger.cut(6.0, Phase::Compute, &counter(9.0, 0.0))), Some(9.0));
    }

    #[test]
    fn phases_add_up_to_the_counter() {
        let mut ledger = Ledger::open(0.0, Phase::Restart, &["n1".into()], &[]);
        let mut sum = 0.0;
        for (t, j, next) in [(1.0, 10.0, Phase::Compute), (5.0, 50.5, Phase::Checkpoint), (6.0, 61.25, Phase::Compute)]
        {
            sum += joules(&ledger.cut(t, next, &counter(j, 0.0))).unwrap();
        }
        assert_eq!(sum, 61.25);
    }

    #[test]
    fn an_unreadable_counter_is_no_zero_and_is_made_up_for() {
        let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &[]);
        ledger.cut(1.0, Phase::Compute, &counter(10.0, 0.0));
        assert_eq!(joules(&ledger.cut(2.0, Phase::Checkpoint, &[])), None);
        assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(30.0, 0.0))), Some(20.0));
    }

    #[test]
    fn an_older_reading_is_none_and_what_was_counted_since_is_not_counted_twice() {
        let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &[]);
        ledger.cut(1.0, Phase::Checkpoint, &counter(100.0, 0.0));
        // The node does not answer: these are of its last heartbeats.
        let old = ledger.cut(2.0, Phase::Compute, &counter(70.0, 0.0));
        assert_eq!((joules(&old), old.events.len()), (None, 1), "{old:?}");
        assert_eq!(joules(&ledger.cut(6.0, Phase::Compute, &counter(100.0, 0.0))), None);
        assert_eq!(joules(&ledger.cut(7.0, Phase::Compute, &counter(130.0, 0.0))), Some(30.0));
    }

    #[test]
    fn what_is_remembered_of_a_node_before_it_booted_is_no_counter_that_began_anew() {
        let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &counter(380.0, 5983.0));
        assert_eq!(joules(&ledger.cut(1.0, Phase::Compute, &counter(3000.0, 6010.0))), Some(3000.0));
        assert_eq!(joules(&ledger.cut(2.0, Phase::Compute, &counter(493.0, 5983.0))), None);
        assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(3700.0, 6010.0))), Some(700.0));
        // Its clock was set back before its service began anew.
        assert_eq!(joules(&ledger.cut(4.0, Phase::Compute, &counter(20.0, 5000.0))), Some(20.0));
    }

    #[test]
    fn a_counter_that_began_anew_is_never_negative() {
        let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &[]);
        ledger.cut(1.0, Phase::Compute, &counter(100.0, 0.0));
        assert_eq!(joules(&ledger.cut(2.0, Phase::Compute, &counter(3.0, 1.5))), Some(3.0));
    }
}
