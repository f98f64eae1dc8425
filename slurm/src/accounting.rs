//! Reads `sacct -P`.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_with_a_level() {
        let text = "root|Administrator\nalice|None\nbob|Operator\nOperator|\n\n";
        assert_eq!(parse_operators(text), ["root", "bob"]);
    }
}
