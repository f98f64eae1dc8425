//! Reads `sacct -P` and `sacctmgr -P show event`.

use crate::Error;
use crate::fields::time;
use crate::job::{Exit, JobState};
use crate::nodelist::expand_nodelist;

/// One life of a job as accounting knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounted {
    /// Job id.
    pub job: u32,
    /// How it ended, or what it is doing.
    pub state: JobState,
    /// Slurm's whole word, such as `CANCELLED by 1000` or `REQUEUED`.
    pub state_text: String,
    /// How its script ended.
    pub exit: Exit,
    /// When it was submitted.
    pub submit_s: Option<f64>,
    /// When it started.
    pub start_s: Option<f64>,
    /// When it ended.
    pub end_s: Option<f64>,
    /// User name.
    pub user: String,
    /// Account.
    pub account: String,
    /// Nodes.
    pub nodes: Vec<String>,
    /// Energy of its steps as Slurm measured it, J; absent without Slurm's own energy accounting.
    pub consumed_j: Option<f64>,
    /// Job name.
    pub name: String,
}

impl Accounted {
    /// The columns that [`parse_accounting`] reads; the free text comes last.
    pub const FIELDS: &str = "JobIDRaw,State,ExitCode,Submit,Start,End,User,Account,NodeList,\
                              ConsumedEnergyRaw,JobName";
}

/// The lines of `sacct -n -P -X -D --format=`[`Accounted::FIELDS`].
pub fn parse_accounting(text: &str) -> Result<Vec<Accounted>, Error> {
    text.lines().filter(|l| !l.trim().is_empty()).map(parse_line).collect()
}

/// The names in `sacctmgr -n -P show user format=User,AdminLevel` that stand beside a level.
pub fn parse_operators(text: &str) -> Vec<String> {
    let level = |l: &&str| matches!(*l, "Operator" | "Administrator");
    text.lines().filter_map(|l| l.split_once('|').filter(|(_, l)| level(l)).map(|(name, _)| name.to_owned())).collect()
}

/// The state of the newest step of a name which began at `since_s` or later, in the lines of
/// `sacct -n -P --format=Start,State,JobName`.
pub fn parse_named_step(text: &str, name: &str, since_s: f64) -> Result<Option<String>, Error> {
    let mut newest: Option<(f64, &str)> = None;
    for line in text.lines() {
        // The free text comes last.
        let [start, state, its_name] = line.splitn(3, '|').collect::<Vec<_>>()[..] else { continue };
        match time("Start", start)? {
            Some(at_s) if its_name == name && at_s >= newest.map_or(since_s.floor(), |(at_s, _)| at_s) => {
                newest = Some((at_s, state));
            }
            _ => {}
        }
    }
    Ok(newest.map(|(_, state)| state.to_string()))
}

fn parse_line(line: &str) -> Result<Accounted, Error> {
    let columns: Vec<&str> = line.splitn(11, '|').collect();
    let [job, state_text, exit, submit, start, end, user, account, nodes, consumed, name] = columns[..] else {
        return Err(Error::unreadable("accounting line", line));
    };
    let (state, _) = JobState::read(state_text)?;
    Ok(Accounted {
        job: job.parse().map_err(|_| Error::unreadable("JobIDRaw", job))?,
        state,
        state_text: state_text.to_owned(),
        exit: Exit::read(exit)?,
        submit_s: time("Submit", submit)?,
        start_s: time("Start", start)?,
        end_s: time("End", end)?,
        user: user.to_owned(),
        account: account.to_owned(),
        nodes: expand_nodelist(nodes)?,
        consumed_j: consumed.parse().ok().filter(|j: &f64| *j > 0.0),
        name: name.to_owned(),
    })
}

/// A time for which a node was out of service, as accounting knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEvent {
    /// Node name.
    pub node: String,
    /// Since when.
    pub start_s: f64,
    /// Until when; absent while it lasts.
    pub end_s: Option<f64>,
    /// Slurm's word, such as `DOWN*` or `DRAIN`.
    pub state: String,
    /// Why, in Slurm's or an operator's words.
    pub reason: String,
}

/// What Slurm's own reasons for a dead node begin with, and Joulepoint's.
const DEATHS: [&str; 3] = ["Not responding", "Node unexpectedly rebooted", "joulepoint:"];

impl NodeEvent {
    /// The columns that [`parse_events`] reads; the free text comes last.
    pub const FIELDS: &str = "NodeName,TimeStart,TimeEnd,State,Reason";

    /// Whether the node died: it was found down by a program, not set down or drained by an operator.
    pub fn is_failure(&self) -> bool {
        self.state.starts_with("DOWN") && DEATHS.iter().any(|d| self.reason.starts_with(d))
    }
}

/// What accounting knows of a cluster's nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHistory {
    /// From when on it knows anything; absent if it knows nothing.
    pub from_s: Option<f64>,
    /// Times out of service.
    pub events: Vec<NodeEvent>,
}

/// The lines of `sacctmgr -n -P show event format=`[`NodeEvent::FIELDS`]; a line without a node tells of the cluster.
pub fn parse_events(text: &str) -> Result<NodeHistory, Error> {
    let mut history = NodeHistory::default();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let columns: Vec<&str> = line.splitn(5, '|').collect();
        let [node, start, end, state, reason] = columns[..] else {
            return Err(Error::unreadable("event line", line));
        };
        let start_s = time("TimeStart", start)?.ok_or_else(|| Error::unreadable("TimeStart", line))?;
        history.from_s = Some(history.from_s.map_or(start_s, |from: f64| from.min(start_s)));
        if !node.is_empty() {
            history.events.push(NodeEvent {
                node: node.to_owned(),
                start_s,
                end_s: time("TimeEnd", end)?,
                state: state.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }
    Ok(history)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_with_a_level() {
        let text = "root|Administrator\nalice|None\nbob|Operator\nOperator|\n\n";
        assert_eq!(parse_operators(text), ["root", "bob"]);
    }

    #[test]
    fn a_steps_state_is_that_of_the_newest_of_its_name() {
        let text = "100|COMPLETED|job.sh\n100|CANCELLED by 7|a|b.0.g1\n160|RUNNING|a|b.0.g1\nUnknown|PENDING|a|b.0.g1\n\
                    170|FAILED|b.0.g1\n";
        let state = |name, since_s| parse_named_step(text, name, since_s).expect("parses");
        assert_eq!(state("a|b.0.g1", 90.5).as_deref(), Some("RUNNING"));
        assert_eq!(state("b.0.g1", 170.9).as_deref(), Some("FAILED"));
        assert_eq!((state("a|b.0.g1", 161.0), state("c", 0.0)), (None, None));
    }
}
