//! Finds out what steps that have ended have left on the storage of single nodes, by asking the services of those nodes.

use crate::frequency::Services;
use crate::nodes::ask_all;
use host::mail::now_s;
use protocol::{Leavings, LeavingsRequest, StepSpan};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use steps::calls::{Call, Calls, NodeLeft};

/// Time between two looks for steps that have ended.
const LOOK: Duration = Duration::from_secs(2);

/// So much longer than a node's look is the pause after it.
const PAUSES: f64 = 20.0;

/// Larger jobs are not asked for: their steps may have left something.
const MOST_NODES: usize = 128;

/// Most steps in one question.
const MOST_STEPS: usize = 1000;

/// How often nodes are asked for a step before it stays unknown what it has left.
const TRIES: u32 = 10;

/// Who asks.
pub struct Asker {
    /// Slurm job id.
    pub job: u32,
    /// The record of the job's steps.
    pub calls: Calls,
    /// Names of the job's nodes that are not known to be dead.
    pub nodes: Box<dyn Fn() -> Vec<String> + Send>,
    /// The ways to their services.
    pub services: Services,
}

impl Asker {
    /// Asks from now on, in the background.
    pub fn start(self) {
        threads::start(move || {
            let mut tries = BTreeMap::new();
            let mut pause = LOOK;
            loop {
                thread::sleep(pause);
                let took_s = self.look(&mut tries);
                pause = LOOK.max(Duration::from_secs_f64(took_s * PAUSES));
            }
        });
    }

    /// Asks for all steps of which it is not known yet; the longest that a node has looked, s.
    fn look(&self, tries: &mut BTreeMap<String, u32>) -> f64 {
        let names = self.calls.unsettled().unwrap_or_default();
        let ended = |name: String| {
            let call = self.calls.read(&name).ok()??;
            let span = span(&call)?;
            Some((name, span))
        };
        let steps: Vec<(String, StepSpan)> = names.into_iter().filter_map(ended).take(MOST_STEPS).collect();
        if steps.is_empty() {
            return 0.0;
        }
        let nodes = (self.nodes)();
        if nodes.len() > MOST_NODES {
            steps.iter().for_each(|(name, span)| self.keep(name, span, None));
            return 0.0;
        }
        let spans: Vec<StepSpan> = steps.iter().map(|(_, span)| *span).collect();
        let answers = asked(self.job, &nodes, &self.services, &spans);
        let took_s = answers.iter().flatten().map(|answer| answer.took_s).fold(0.0, f64::max);
        let whole: Option<Vec<Leavings>> =
            answers.into_iter().map(|a| a.filter(|a| a.steps.len() == spans.len())).collect();
        for (i, (name, span)) in steps.iter().enumerate() {
            let count = tries.entry(name.clone()).or_default();
            *count += 1;
            let known = whole.as_ref().and_then(|answers| left_by(i, answers));
            if known.is_some() || *count >= TRIES {
                tries.remove(name);
                self.keep(name, span, known);
            }
        }
        took_s
    }

    fn keep(&self, name: &str, span: &StepSpan, nodes: Option<Vec<NodeLeft>>) {
        if let Err(e) = self.calls.keep_left(name, span.ended_s, nodes) {
            tracing::warn!(%e, "what a step has left is not remembered; on other nodes it is run again");
        }
    }

    /// The boots of nodes, as far as they answer.
    pub fn boots(job: u32, nodes: &[String], services: &Services) -> BTreeMap<String, String> {
        let nodes = &nodes[..nodes.len().min(MOST_NODES)];
        let answers = asked(job, nodes, services, &[]);
        nodes.iter().zip(answers).filter_map(|(node, answer)| Some((node.clone(), answer?.boot_id))).collect()
    }
}

/// What each node says.
fn asked(job: u32, nodes: &[String], services: &Services, steps: &[StepSpan]) -> Vec<Option<Leavings>> {
    let nodes: Vec<&String> = nodes.iter().collect();
    let question = || LeavingsRequest { version: protocol::VERSION, now_s: now_s(), steps: steps.to_vec() };
    ask_all(services, &nodes, &format!("/v1/jobs/{job}/leavings"), question)
}

fn span(call: &Call) -> Option<StepSpan> {
    call.ended.as_ref().map(|end| StepSpan { begun_s: call.begun_s, ended_s: end.at_s })
}

/// On which nodes the i-th step has left something; none if a node has not looked through all that it has.
fn left_by(i: usize, answers: &[Leavings]) -> Option<Vec<NodeLeft>> {
    let mut nodes = Vec::new();
    for answer in answers {
        let left = answer.steps[i];
        if left.on_disk || left.in_memory {
            let Leavings { node, boot_id, .. } = answer.clone();
            nodes.push(NodeLeft { node, boot_id, in_memory: left.in_memory });
        } else if !answer.is_whole {
            return None;
        }
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Left;

    fn said(node: &str, is_whole: bool, on_disk: bool, in_memory: bool) -> Leavings {
        let steps = vec![Left { on_disk, in_memory }];
        Leavings { node: node.into(), boot_id: "b".into(), is_whole, took_s: 0.1, steps }
    }

    #[test]
    fn what_one_node_could_not_look_through_is_not_taken_for_nothing() {
        let left = |in_memory| NodeLeft { node: "n1".into(), boot_id: "b".into(), in_memory };
        assert_eq!(left_by(0, &[said("n1", true, false, false), said("n2", true, false, false)]), Some(vec![]));
        assert_eq!(
            left_by(0, &[said("n1", true, true, false), said("n2", true, false, false)]),
            Some(vec![left(false)])
        );
        assert_eq!(left_by(0, &[said("n1", true, true, true), said("n2", false, false, false)]), None);
        // What is found decides, whatever else is there.
        assert_eq!(left_by(0, &[said("n1", false, false, true)]), Some(vec![left(true)]));
    }
}
