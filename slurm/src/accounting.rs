//! Asks accounting, and reads `sacct -P` and `sacctmgr -P show event`: facts in one answer, a user's text alone.

use crate::fields::time;
use crate::job::{Exit, JobState};
use crate::nodelist::expand_nodelist;
use crate::{Error, Slurm};
use std::collections::BTreeMap;

/// How many jobs one `sacct` is asked for: their ids fit into one argument.
const MOST_ASKED: usize = 10_000;

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
    /// Seconds for which it had its nodes and was not suspended; absent if it was not asked for.
    pub elapsed_s: Option<f64>,
    /// User id.
    pub uid: u32,
    /// User name, as accounting knows it.
    pub user: String,
    /// Nodes.
    pub nodes: Vec<String>,
    /// Energy of its steps as Slurm measured it, J; absent without Slurm's own energy accounting.
    pub consumed_j: Option<f64>,
    /// What Slurm's commands call the job: `12`, `9_2`, `9+1`; empty if it was not asked for.
    pub name: String,
    /// Quality of service; empty if it was not asked for.
    pub qos: String,
}

impl Accounted {
    /// The columns that [`parse_accounting`] reads: none that a user writes.
    pub const FIELDS: &str =
        "JobIDRaw,State,ExitCode,Submit,Start,End,UID,User,NodeList,ConsumedEnergyRaw,JobID,QOS,ElapsedRaw";
}

impl Slurm {
    /// What accounting knows of a job, each of its requeued lives by itself, oldest first.
    pub fn accounted(&self, job: u32) -> Result<Vec<Accounted>, Error> {
        self.accounted_jobs(&[job])
    }

    /// The same of many jobs, with one `sacct` for ten thousand of them.
    pub fn accounted_jobs(&self, jobs: &[u32]) -> Result<Vec<Accounted>, Error> {
        let fields = format!("--format={}", Accounted::FIELDS);
        let mut lives = Vec::new();
        for jobs in jobs.chunks(MOST_ASKED) {
            let ids = jobs.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let text = self.output("sacct", &["-n", "-P", "-X", "-D", "-j", &ids, &fields])?;
            // By the id of an array all of its tasks are meant.
            lives.extend(parse_accounting(&text)?.into_iter().filter(|life| jobs.contains(&life.job)));
        }
        Ok(lives)
    }

    /// Energy of all jobs that had nodes between two moments (s since the epoch), J, as far as Slurm lets its caller see
    /// them; of a job that began before or ends later, all of it. Absent where Slurm measures none.
    pub fn consumed(&self, start_s: f64, end_s: f64) -> Result<Consumed, Error> {
        let (start, end) = (format!("uts{:.0}", start_s.floor()), format!("uts{:.0}", end_s.ceil()));
        let args = ["-n", "-P", "-X", "-D", "-a", "-S", &start, "-E", &end, "--format", Consumed::FIELDS];
        Ok(parse_consumed(&self.output("sacct", &args)?))
    }

    /// The command line by which a job was submitted, as accounting keeps it; none if it does not know the job.
    pub fn submit_line(&self, job: u32) -> Result<Option<String>, Error> {
        let text = self.output("sacct", &["-n", "-P", "-X", "-j", &job.to_string(), "--format=JobIDRaw,SubmitLine"])?;
        // A line break in a user's command begins no record of another job: only the first line counts.
        let line = text.lines().next().and_then(|l| l.strip_prefix(&format!("{job}|")));
        Ok(line.filter(|l| !l.is_empty()).map(str::to_string))
    }

    /// The account of a job, as accounting keeps it: a text that stands alone in the answer.
    pub fn accounted_account(&self, job: u32) -> Result<Option<String>, Error> {
        let text = self.output("sacct", &["-n", "-P", "-X", "-j", &self.number(job)?, "--format=Account"])?;
        Ok(text.lines().next().filter(|l| !l.is_empty()).map(str::to_string))
    }

    /// Accounting's word for a step such as `12.0`, for instance `CANCELLED by 1000`; none if it does not know it yet.
    /// The life of its job goes on after `since_s`: an earlier one has steps of the same numbers.
    pub fn step_state(&self, step: &str, since_s: f64) -> Result<Option<String>, Error> {
        let since = format!("--starttime=uts{:.0}", since_s.floor());
        let text = self.output("sacct", &["-n", "-P", "-j", step, &since, "--format=State"])?;
        Ok(text.lines().map(str::trim).find(|state| !state.is_empty()).map(str::to_string))
    }

    /// The same for the newest step of that name which began at `since_s` or later, of a job of one's own: a name with
    /// a line break could say anything of the other steps of its job.
    pub fn named_step_state(&self, job: u32, name: &str, since_s: f64) -> Result<Option<String>, Error> {
        let (job, since) = (self.number(job)?, format!("--starttime=uts{:.0}", since_s.floor()));
        let text = self.output("sacct", &["-n", "-P", "-j", &job, &since, "--format=Start,State,JobName"])?;
        parse_named_step(&text, name, since_s)
    }

    /// What accounting knows of the nodes' times out of service in the last `seconds`.
    pub fn node_events(&self, seconds: u64) -> Result<NodeHistory, Error> {
        let (start, fields) = (format!("Start=now-{seconds}seconds"), format!("format={}", NodeEvent::FIELDS));
        parse_events(&self.output("sacctmgr", &["-n", "-P", "show", "event", &start, &fields])?)
    }

    /// The lives of jobs that ended by the failure of a node since `start` (a time as sacct takes it), a heading first;
    /// the text, as sites keep such records in files. Without an end sacct finds no failure at all, and neither does it
    /// from 1970-01-01 on, which it takes for no start.
    pub fn node_failures(&self, start: &str) -> Result<String, Error> {
        self.output(
            "sacct",
            &["-a", "-X", "-D", "-P", "-s", "NF", "-S", start, "-E", "now", "--format=JobID,End,NodeList"],
        )
    }

    /// Names of users whom accounting knows as operators or administrators.
    pub fn operators(&self) -> Result<Vec<String>, Error> {
        Ok(parse_operators(&self.output("sacctmgr", &["-n", "-P", "show", "user", "format=User,AdminLevel"])?))
    }
}

/// The lines of `sacct -n -P -X -D --format=`[`Accounted::FIELDS`].
pub fn parse_accounting(text: &str) -> Result<Vec<Accounted>, Error> {
    text.lines().filter(|l| !l.trim().is_empty()).map(parse_line).collect()
}

/// Energy of one job, with what it may be summed by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfJob {
    /// Energy of all its lives, J.
    pub joules: f64,
    /// What Slurm's commands call the job.
    pub name: String,
    /// User name.
    pub user: String,
    /// Slurm account.
    pub account: String,
    /// Partition.
    pub partition: String,
    /// Quality of service.
    pub qos: String,
    /// When it first began, s since the epoch.
    pub start_s: Option<f64>,
}

/// Energy of many jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumed {
    /// By job id: those of which Slurm has measured any energy.
    pub by_job: BTreeMap<u32, OfJob>,
    /// Jobs of which it has measured none.
    pub unmeasured: u32,
}

impl Consumed {
    /// The columns that [`parse_consumed`] reads: none that a user writes.
    pub const FIELDS: &str = "JobIDRaw,ConsumedEnergyRaw,JobID,User,Account,Partition,QOS,Start";
}

/// The lines of `sacct -n -P -X --format=`[`Consumed::FIELDS`]; a job that was requeued has several.
pub fn parse_consumed(text: &str) -> Consumed {
    let mut all = Consumed::default();
    for line in text.lines() {
        let [job, consumed, name, user, account, partition, qos, start] = line.split('|').collect::<Vec<_>>()[..]
        else {
            continue;
        };
        match (job.parse(), energy(consumed)) {
            (Ok(job), Some(joules)) => {
                let of_job = all.by_job.entry(job).or_insert_with(|| OfJob {
                    joules: 0.0,
                    name: name.to_owned(),
                    user: user.to_owned(),
                    account: account.to_owned(),
                    partition: partition.to_owned(),
                    qos: qos.to_owned(),
                    start_s: time("Start", start).ok().flatten(),
                });
                of_job.joules += joules;
            }
            (Ok(_), None) => all.unmeasured += 1,
            (Err(_), _) => {}
        }
    }
    all
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
    let columns: Vec<&str> = line.split('|').collect();
    // Older recordings end before the last three.
    let (name, qos, elapsed_s) = match columns[..] {
        [.., name, qos, elapsed] if columns.len() == 13 => (name, qos, elapsed.parse().ok()),
        _ => ("", "", None),
    };
    let [job, state_text, exit, submit, start, end, uid, user, nodes, consumed] = columns[..columns.len().min(10)]
    else {
        return Err(Error::unreadable("accounting line", line));
    };
    if !matches!(columns.len(), 10 | 13) {
        return Err(Error::unreadable("accounting line", line));
    }
    let (state, _) = JobState::read(state_text)?;
    Ok(Accounted {
        job: job.parse().map_err(|_| Error::unreadable("JobIDRaw", job))?,
        state,
        state_text: state_text.to_owned(),
        exit: Exit::read(exit)?,
        submit_s: time("Submit", submit)?,
        start_s: time("Start", start)?,
        end_s: time("End", end)?,
        elapsed_s,
        uid: crate::fields::uid("UID", uid)?,
        user: user.to_owned(),
        nodes: expand_nodelist(nodes)?,
        consumed_j: energy(consumed),
        name: name.to_owned(),
        qos: qos.to_owned(),
    })
}

/// Energy as accounting tells it, J; without a plugin that measures it tells 0.
fn energy(text: &str) -> Option<f64> {
    text.parse().ok().filter(|j: &f64| *j > 0.0)
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
    fn a_life_is_read_with_its_name_and_quality_of_service_and_without_as_older_recordings_have_it() {
        let old = "11|COMPLETED|0:0|1|2|3|1000|alice|n1|";
        let lives = parse_accounting(&format!("{old}\n{old}5|9_2|long|60\n")).expect("two lives");
        assert_eq!((lives[0].name.as_str(), lives[0].consumed_j), ("", None));
        let [_, life] = &lives[..] else { panic!("{lives:?}") };
        assert_eq!((life.name.as_str(), life.qos.as_str()), ("9_2", "long"));
        assert_eq!((life.consumed_j, life.elapsed_s), (Some(5.0), Some(60.0)));
        assert!(parse_accounting(&format!("{old}|9_2\n")).is_err(), "no other number of columns");
    }

    #[test]
    fn energy_of_all_jobs_is_summed_by_job_and_what_was_not_measured_is_counted() {
        let text = "7|100|5_1|alice|physics|all|long|1000\n7|50|5_1|alice|physics|all|long|2000\n8||8|b|c|d|e|1\n\
                    9|0|9|b|c|d|e|1\nx|3|9|b|c|d|e|1\n10|3\n";
        let all = parse_consumed(text);
        let [name, user, account, partition, qos] = ["5_1", "alice", "physics", "all", "long"].map(String::from);
        let job = OfJob { joules: 150.0, name, user, account, partition, qos, start_s: Some(1000.0) };
        assert_eq!((all.by_job, all.unmeasured), (BTreeMap::from([(7, job)]), 2));
    }

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
