//! Holds a run back until nothing of its earlier lives goes on: each node that it had says so itself, or the controller
//! knows it of those that cannot be asked.

use crate::cluster::Controller;
use crate::identity::Identity;
use crate::nodes::clients;
use driver::ports::{Clock, Happening};
use host::mail::{MailClock, now_s};
use host::parallel;
use protocol::{
    BeginReply, BeginRequest, EndReply, EndRequest, Event, FormerNode, Incarnation, Record, Unsure, WaitsFor,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Client, Error};

/// Time between two questions, s.
const AGAIN_S: f64 = 0.5;

/// A wait that is shorter is not worth a word, s.
const SAID_AFTER_S: f64 = 3.0;

/// Time between two words about the same wait, s.
const SAID_EVERY_S: f64 = 60.0;

/// For how long no service may have answered until there is only Slurm's word: services that are started again are away
/// for less.
const ALONE: Duration = Duration::from_secs(20);

/// What ends a wait that may last.
const CURE: &str =
    "it goes on when the node is heard again, or an operator has cut its power and says so (joulepoint confirm-off)";

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// Nothing of the run goes on elsewhere; it was waited for so long, s.
    Free {
        /// How long, s.
        after_s: f64,
    },
    /// Somebody asked the job to end meanwhile.
    Terminated,
}

/// What one node says of a job's earlier lives.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// Nothing is left.
    Ended,
    /// Something is being ended.
    Ending,
    /// It cannot be asked.
    Silent,
}

/// What has to be known before a run begins again.
pub struct Releasing {
    /// Where earlier lives were.
    pub former: BTreeSet<FormerNode>,
    /// The way to the controller.
    pub controller: Arc<Controller>,
    /// Port of node services that the controller has not heard of.
    pub port: u16,
    /// Socket of munged.
    pub munge_socket: Option<PathBuf>,
    /// The node that this process is on.
    pub node: Option<String>,
    /// The same, and the socket of its service.
    pub here: Option<(String, PathBuf)>,
}

/// What has answered those who wait.
#[derive(Debug, Default)]
enum Heard {
    /// Nothing was asked yet.
    #[default]
    Unasked,
    /// No service, since then.
    Nothing(Instant),
    /// One.
    Service,
}

impl Heard {
    /// Takes up whether a service has answered `now`; whether it is certain that there is none.
    fn is_alone(&mut self, has_answered: bool, now: Instant) -> bool {
        match *self {
            _ if has_answered => *self = Heard::Service,
            Heard::Unasked => *self = Heard::Nothing(now),
            Heard::Nothing(since) => return now.duration_since(since) >= ALONE,
            Heard::Service => {}
        }
        false
    }
}

/// Where the life before this one was, by the run's journal; of this very life, what another driver of it may have left on
/// other nodes.
pub fn former(records: &[Record], me: &Identity) -> BTreeSet<FormerNode> {
    let last = records.iter().rev().find_map(|r| match &r.event {
        Event::Started { job, restart_count, nodes, .. } => {
            Some((Incarnation { job: *job, restart_count: *restart_count }, nodes))
        }
        _ => None,
    });
    let Some((of, nodes)) = last else { return BTreeSet::new() };
    let is_this = Some(of.job) == me.job && of.restart_count == me.restart_count;
    let counts = |node: &&String| !is_this || Some(*node) != me.node.as_ref();
    nodes.iter().filter(counts).map(|node| FormerNode { node: node.clone(), of }).collect()
}

impl Releasing {
    /// Waits until nothing of the earlier lives is left, and says for what it waits.
    pub fn wait(mut self, clock: &mut MailClock) -> Release {
        let begun_s = now_s();
        let mut said_s = begun_s + SAID_AFTER_S - SAID_EVERY_S;
        let mut heard = Heard::default();
        loop {
            let waits = self.ask(&mut heard);
            if waits.is_empty() {
                return Release::Free { after_s: now_s() - begun_s };
            }
            if now_s() - said_s >= SAID_EVERY_S {
                said_s = now_s();
                say(&waits);
            }
            if let Some(Happening::Terminate) = clock.wait(now_s() + AGAIN_S) {
                return Release::Terminated;
            }
        }
    }

    /// Asks all nodes, then the controller about those that do not answer; what is still waited for.
    fn ask(&mut self, heard: &mut Heard) -> Vec<WaitsFor> {
        let former: Vec<FormerNode> = self.former.iter().cloned().collect();
        let mut silent = Vec::new();
        let mut waits = Vec::new();
        let words = parallel::each(&former, |former| self.ask_node(former));
        for (former, word) in former.iter().cloned().zip(words) {
            match word.unwrap_or(Word::Silent) {
                Word::Ended => drop(self.former.remove(&former)),
                Word::Ending => waits.push(WaitsFor { former, because: Unsure::Ending }),
                Word::Silent => silent.push(former),
            }
        }
        if silent.is_empty() {
            return waits;
        }
        let left = self.ask_controller(&silent);
        let has_answered = silent.len() < former.len() || left.is_some() || self.has_service_here();
        let is_alone = heard.is_alone(has_answered, Instant::now());
        match left {
            Some(left) => {
                self.former.retain(|f| !silent.contains(f) || left.iter().any(|w| w.former == *f));
                waits.extend(left);
            }
            // Where nobody of ours answers, not even here, there is only Slurm's word, and the job was given nodes.
            None if is_alone => self.former.retain(|f| !silent.contains(f)),
            None => waits.extend(silent.into_iter().map(|former| WaitsFor { former, because: Unsure::Suspected })),
        }
        waits
    }

    fn ask_node(&self, former: &FormerNode) -> Word {
        let request = EndRequest { version: protocol::VERSION, restart_count: former.of.restart_count };
        let path = format!("/v1/jobs/{}/end", former.of.job);
        for client in self.clients(&former.node) {
            match client.post::<_, EndReply>(&path, &request) {
                Ok(EndReply { left: 0 }) => return Word::Ended,
                Ok(_) => return Word::Ending,
                Err(e) => tracing::debug!(node = former.node, %e, "a former node cannot be asked"),
            }
        }
        Word::Silent
    }

    fn clients(&self, node: &str) -> Vec<Client> {
        let all = clients(node, &self.controller.last(), self.port, self.munge_socket.as_ref(), self.here.as_ref());
        // Who is silent counts as away here, and a run must never run twice.
        all.into_iter().map(Client::patient).collect()
    }

    /// What the controller says is still to be waited for; none if it is away.
    fn ask_controller(&self, silent: &[FormerNode]) -> Option<Vec<WaitsFor>> {
        // Where services answer it says as well, for the next question to the nodes themselves.
        self.controller.health();
        let request = BeginRequest { version: protocol::VERSION, former: silent.to_vec() };
        let path = format!("/v1/runs/{}/begin", self.controller.run);
        match self.controller.client.clone().patient().post::<_, BeginReply>(&path, &request) {
            Ok(reply) => Some(reply.waits),
            Err(Error::Unreachable { .. }) => None,
            // It has not heard of the run yet: its records are on their way.
            Err(e) => {
                tracing::debug!(%e, "the controller does not say whether the run may begin");
                let wait = |former: &FormerNode| WaitsFor { former: former.clone(), because: Unsure::Suspected };
                Some(silent.iter().map(wait).collect())
            }
        }
    }

    /// Whether a service of this node answers.
    fn has_service_here(&self) -> bool {
        let Some(node) = &self.node else { return false };
        self.clients(node)
            .iter()
            .any(|c| !matches!(c.get::<protocol::Health>("/healthz"), Err(Error::Unreachable { .. })))
    }
}

/// Says in the job's output for which nodes it waits, and what would end the wait.
fn say(waits: &[WaitsFor]) {
    let Some(first) = waits.first() else { return };
    let more = if waits.len() > 1 { format!(" and {} more nodes", waits.len() - 1) } else { String::new() };
    let node = &first.former.node;
    let why = match &first.because {
        Unsure::Ending => format!("{node} is ending what it still ran of this job"),
        Unsure::Lease { for_s } => format!("{node} is dead or cut off, and certain to have stopped in {for_s:.0} s"),
        Unsure::Suspected => format!("{node} does not answer, and it is not known yet whether it is dead"),
        Unsure::Reached { by } => format!("{node} does not answer, but {by} reaches it: it may still run this job"),
        Unsure::NoMajority { answered, of } => {
            format!(
                "{node} does not answer, and only {answered} of the {of} nodes that could vouch for its death do; {CURE}"
            )
        }
        Unsure::Crowd => {
            format!("{node} and about half of all nodes are silent, so it is not known who is cut off; {CURE}")
        }
        Unsure::Unfenced => {
            format!("{node} is dead, but nothing shows that it was stopped; {CURE}")
        }
    };
    protocol::say!("joulepoint: this run waits before it goes on, so that it never runs twice: {why}{more}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(job: u32, restart_count: u32, nodes: &[&str]) -> Record {
        let event = Event::Started {
            job,
            restart_count,
            user: String::new(),
            account: String::new(),
            partition: String::new(),
            job_name: String::new(),
            nodes: nodes.iter().map(ToString::to_string).collect(),
            resumed_from: None,
            dir: String::new(),
        };
        Record { seq: 1, at_s: 0.0, event }
    }

    fn names(former: BTreeSet<FormerNode>) -> Vec<(String, u32)> {
        former.into_iter().map(|f| (f.node, f.of.restart_count)).collect()
    }

    #[test]
    fn only_the_life_before_is_asked_for_and_of_this_one_only_other_nodes() {
        let me = Identity { job: Some(7), restart_count: 2, node: Some("n1".into()), ..Identity::default() };
        let before = [started(7, 0, &["n8"]), started(7, 1, &["n1", "n2"])];
        assert_eq!(names(former(&before, &me)), [("n1".to_string(), 1), ("n2".to_string(), 1)]);
        let again = [started(7, 1, &["n8"]), started(7, 2, &["n1", "n2"])];
        assert_eq!(names(former(&again, &me)), [("n2".to_string(), 2)]);
        assert!(former(&[], &me).is_empty());
    }

    #[test]
    fn that_all_services_are_started_again_is_no_reason_to_begin() {
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        let mut heard = Heard::default();
        assert_eq!([0, 1, 19, 20].map(|s| heard.is_alone(false, at(s))), [false, false, false, true]);
        let mut heard = Heard::default();
        assert!(!heard.is_alone(true, at(0)));
        assert_eq!([1, 21, 600].map(|s| heard.is_alone(false, at(s))), [false; 3], "there are services");
    }
}
