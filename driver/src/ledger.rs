//! Cuts each node's energy counter into phases, so that the phases of a node add up to its counter.

use crate::ports::NodeCounter;
use protocol::{Event, JobReading, Phase, Record};
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

/// What earlier drivers of the same job record have accounted for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Earlier {
    /// The last counters that they have read.
    pub counters: Vec<NodeCounter>,
    /// The last of them, if it was killed.
    pub killed: Option<Killed>,
}

/// A driver that was killed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Killed {
    /// When it began, s since the epoch.
    pub began_s: f64,
    /// When it was killed, as far as is known.
    pub at_s: f64,
    /// When the last phase ended that it noted of each node.
    pub until_s: BTreeMap<String, f64>,
}

impl Earlier {
    /// What the journal of a run says of this record, whose next driver began at `next_s`.
    pub fn of(records: &[Record], job: u32, restart_count: u32, next_s: f64) -> Earlier {
        let mut of = Earlier::default();
        let mut is_own = false;
        for record in records {
            match (&record.event, &mut of.killed) {
                (Event::Started { job: j, restart_count: count, .. }, _) => {
                    is_own = (*j, *count) == (job, restart_count);
                    let killed = Killed { began_s: record.at_s, at_s: next_s, until_s: BTreeMap::new() };
                    of.killed = is_own.then_some(killed);
                }
                _ if !is_own => {}
                (Event::Ended { .. }, _) => of.killed = None,
                (Event::Phase { node, end_s, .. }, Some(killed)) => {
                    let until_s = killed.until_s.entry(node.clone()).or_insert(*end_s);
                    *until_s = until_s.max(*end_s);
                }
                (Event::Reading { node, reading }, _) => {
                    of.counters.retain(|c| c.node != *node);
                    of.counters.push(NodeCounter { node: node.clone(), reading: Some(reading.clone()) });
                }
                _ => {}
            }
        }
        of
    }

    /// From when on nobody has accounted for a node.
    fn open_s(&self, node: &str, now_s: f64) -> f64 {
        let killed = self.killed.as_ref();
        let open_s = killed.map(|killed| killed.until_s.get(node).copied().unwrap_or(killed.began_s));
        open_s.map_or(now_s, |open_s| open_s.min(now_s))
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
    /// Opens the account of `nodes` in a phase, from where earlier drivers have left it.
    pub fn open(now_s: f64, phase: Phase, nodes: &[String], accounted: &Earlier) -> Ledger {
        let reading = |n: &str| accounted.counters.iter().find(|c| c.node == n).and_then(|c| c.reading.clone());
        let open = |n: &String| (n.clone(), Open::at(accounted.open_s(n, now_s), reading(n)));
        Ledger { phase, nodes: nodes.iter().map(open).collect() }
    }

    /// The phase that is running.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Closes the phase of a driver that was killed at `killed_s`, and the one from then on, `next`, which goes on: the energy of
    /// both is parted by their time.
    pub fn cut_killed(&mut self, killed_s: f64, now_s: f64, next: Phase, counters: &[NodeCounter]) -> Cut {
        let mut cut = self.cut(now_s, next, counters);
        let mut after = Vec::new();
        for event in &mut cut.events {
            let Event::Phase { node, start_s, end_s, joules, source, .. } = event else { continue };
            let at_s = killed_s.clamp(*start_s, *end_s);
            let share = if *end_s > *start_s { (at_s - *start_s) / (*end_s - *start_s) } else { 1.0 };
            let (whole, end) = (*joules, std::mem::replace(end_s, at_s));
            *joules = whole.map(|joules| joules * share);
            if end > at_s {
                let (node, source) = (node.clone(), source.clone());
                let joules = whole.map(|joules| joules * (1.0 - share));
                after.push(Event::Phase { phase: next, node, start_s: at_s, end_s: end, joules, source });
            }
        }
        cut.events.append(&mut after);
        cut
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
