//! Whether each node of an MPI program is a recovery group of its own where nobody has asked for groups: what earlier runs of
//! the same script have shown, and what the job has.

use crate::{History, NOT_ALONE};
use options::{Resume, Settings, counted, spoken};
use protocol::{Counted, Messages, PlanRequest};
use std::collections::BTreeMap;

/// Why the nodes of a run do not recover one by one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Together {
    /// Whoever asks for the plan says it, or a call of the script could not.
    #[error("{0}")]
    Said(String),
    /// How it resumes is for runs without groups.
    #[error("it says how it resumes (--ft-energy-resume)")]
    Resumes,
    /// The estimate is of other groups than one for each node.
    #[error("other groups are asked for than one for each node")]
    Groups,
    /// No run of its name is known that had several nodes and MPI.
    #[error("no earlier run of this name was an MPI program whose messages between nodes were counted")]
    Uncounted,
    /// Those of its name had another script, or were not counted.
    #[error("the messages of this script have not been counted")]
    Changed,
    /// The runs of its script had other nodes.
    #[error("its messages were counted on {}, and it has {has}", counted(*.on, "node"))]
    Nodes {
        /// How many the newest had.
        on: u32,
        /// How many this one has.
        has: u32,
    },
    /// A program of its name does not repeat itself.
    #[error("in run {0} of this name {NOT_ALONE}")]
    NotAlone(String),
    /// A node that is lost cannot be replaced.
    #[error(
        "no node is spare, and the loss of one sends the whole job back to the queue; --ft-energy-spare=1 --no-kill and a \
         node more"
    )]
    NoSpare,
    /// Nobody knows of earlier runs.
    #[error("the controller is away, and nobody knows of earlier runs")]
    Away,
}

/// Nodes that recover one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alone {
    /// How many groups there are, each of one node.
    pub groups: u32,
    /// What was seen of their messages, in a sentence.
    seen: String,
}

impl Alone {
    /// Whether and how, for a request with these settings.
    ///
    /// # Errors
    /// Why its nodes go back together.
    pub fn of(request: &PlanRequest, settings: &Settings, history: &History) -> Result<Alone, Together> {
        if let Some(why) = &request.together {
            return Err(Together::Said(why.clone()));
        }
        if settings.resume != Resume::default() {
            return Err(Together::Resumes);
        }
        let groups = request.nodes.saturating_sub(settings.spare);
        if request.groups.is_some_and(|asked| asked != groups) {
            return Err(Together::Groups);
        }
        let seen = seen(request, groups, history)?;
        if let Some(run) = &history.not_alone {
            return Err(Together::NotAlone(run.clone()));
        }
        if settings.spare == 0 {
            return Err(Together::NoSpare);
        }
        let over = spoken(seen.over_s);
        let seen = format!("{} of {} bytes between its nodes in {over}", counted(seen.count, "message"), seen.bytes);
        Ok(Alone { groups, seen })
    }

    /// The options that make them. The engine stays open: what stands against CRIU on the job's nodes counts.
    pub fn options(&self) -> BTreeMap<String, String> {
        let all = [
            ("protocol", "uncoordinated".to_string()),
            ("groups", self.groups.to_string()),
            ("log", "disk".to_string()),
        ];
        all.into_iter().map(|(name, value)| (format!("ft-energy-{name}"), value)).collect()
    }

    /// What is told of them.
    pub fn said(&self) -> String {
        let Alone { groups, seen } = self;
        format!("each of {groups} nodes is a recovery group: an earlier run of this script had {seen}")
    }
}

/// What the newest run of the same script on as many nodes had of messages.
///
/// # Errors
/// Nothing is known, or what is known speaks against groups.
fn seen(request: &PlanRequest, nodes: u32, history: &History) -> Result<Counted, Together> {
    if history.messages.is_empty() {
        return Err(Together::Uncounted);
    }
    let is_same = |m: &&Messages| request.script.as_ref().is_none_or(|script| *script == m.script);
    let same: Vec<&Messages> = history.messages.iter().filter(is_same).collect();
    // What stood against it once counts for as long as it is known.
    if let Some(why) = same.iter().find_map(|m| m.together.clone()) {
        return Err(Together::Said(why));
    }
    let counted = || same.iter().filter_map(|m| Some((m.nodes, m.counted.filter(|counted| counted.over_s > 0.0)?)));
    let (on, _) = counted().next().ok_or(Together::Changed)?;
    counted().find(|(on, _)| *on == nodes).map(|(_, counted)| counted).ok_or(Together::Nodes { on, has: nodes })
}

/// Number and bytes of all messages between the nodes of a run that works for so long, as far as earlier runs tell.
pub(crate) fn messages(
    request: &PlanRequest,
    settings: &Settings,
    history: &History,
    work_s: f64,
) -> Option<(u64, u64)> {
    let seen = seen(request, request.nodes.saturating_sub(settings.spare), history).ok()?;
    let all = |count: u64| (count as f64 / seen.over_s * work_s) as u64;
    Some((all(seen.count), all(seen.bytes)))
}
