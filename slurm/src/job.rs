//! Reads what `squeue -O` prints of a job: columns that no user writes.

use crate::Error;
use crate::fields::{duration, is_none, time};
use crate::nodelist::expand_nodelist;
use std::fmt;

/// The columns of a job's facts, in their order; each is asked for in full, with `|` behind it.
///
/// None of them holds a user's own words. Features stand last: they may hold a `|` of their own, and slurmctld has
/// checked them against those of the nodes.
const COLUMNS: [&str; 36] = [
    "JobID",
    "UserID",
    "UserName",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "Partition",
    "NodeList",
    "BatchHost",
    "BatchFlag",
    "Requeue",
    "RestartCnt",
    "exit_code",
    "PreemptTime",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumCPUs",
    "NumNodes",
    SHARING,
    "ReqNodes",
    "SchedNodes",
    "PriorityLong",
    "Reservation",
    "Contiguous",
    "ReqSwitch",
    "Licenses",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "Reason",
    "Feature",
];

/// Whether a job has its nodes for itself, in series that know no column [`EXCLUSIVE`].
const SHARING: &str = "OverSubscribe";

/// The same in later series, where [`SHARING`] says something else.
pub(crate) const EXCLUSIVE: &str = "Exclusive";

/// What stands behind its value, since `NO` means the opposite in each of the two.
const MARK: &str = "*";

/// What `squeue -O` is asked for; `has_exclusive` says whether this Slurm knows the column [`EXCLUSIVE`].
pub(crate) fn format(has_exclusive: bool) -> String {
    let all = whole(COLUMNS.into_iter());
    let marked = format!("{EXCLUSIVE}:0{MARK}|");
    if has_exclusive { all.replace(&format!("{SHARING}:0|"), &marked) } else { all }
}

/// The columns of a job's facts.
#[cfg(test)]
pub(crate) fn columns() -> [&'static str; COLUMNS.len()] {
    COLUMNS
}

/// Columns in full: a size of 0 cuts nothing.
pub(crate) fn whole<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    columns.map(|column| format!("{column}:0|")).collect::<Vec<_>>().join(",")
}

/// What a job is doing. Slurm's text shows a flag such as `COMPLETING` in place of the state below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// In the queue.
    Pending,
    /// Has nodes.
    Running,
    /// Has nodes, but its processes are stopped.
    Suspended,
    /// Its end is being cleaned up; what follows is not told yet: its end or the queue.
    Completing,
    /// Ended well.
    Completed,
    /// Cancelled by its user or an operator.
    Cancelled,
    /// Ended with an error.
    Failed,
    /// Reached its time limit.
    Timeout,
    /// Ended because a node failed.
    NodeFail,
    /// Ended because its nodes went to another job.
    Preempted,
    /// Ended because its nodes did not boot.
    BootFail,
    /// Reached its deadline.
    Deadline,
    /// Used more memory than it had.
    OutOfMemory,
}

impl JobState {
    /// Reads Slurm's word; the second value is the flag that hides or joins the state.
    pub(crate) fn read(text: &str) -> Result<(JobState, Option<&str>), Error> {
        // sacct writes "CANCELLED by 1000".
        let word = text.split_whitespace().next().unwrap_or_default();
        Ok(match word {
            "PENDING" => (JobState::Pending, None),
            "RUNNING" => (JobState::Running, None),
            "SUSPENDED" => (JobState::Suspended, None),
            "COMPLETED" => (JobState::Completed, None),
            "CANCELLED" => (JobState::Cancelled, None),
            "FAILED" => (JobState::Failed, None),
            "TIMEOUT" => (JobState::Timeout, None),
            "NODE_FAIL" => (JobState::NodeFail, None),
            "PREEMPTED" => (JobState::Preempted, None),
            "BOOT_FAIL" | "LAUNCH_FAILED" => (JobState::BootFail, None),
            "DEADLINE" => (JobState::Deadline, None),
            "OUT_OF_MEMORY" => (JobState::OutOfMemory, None),
            "COMPLETING" | "STAGE_OUT" | "RECONFIG_FAIL" | "POWER_UP_NODE" => (JobState::Completing, Some(word)),
            "CONFIGURING" | "RESIZING" | "SIGNALING" | "STOPPED" | "UPDATE_DB" | "EXPEDITING" => {
                (JobState::Running, Some(word))
            }
            "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => {
                (JobState::Pending, Some(word))
            }
            "REVOKED" => (JobState::Cancelled, Some(word)),
            _ => return Err(Error::unreadable("job state", text)),
        })
    }

    /// Whether the job will do nothing more.
    pub fn is_over(self) -> bool {
        use JobState::{Completing, Pending, Running, Suspended};
        !matches!(self, Pending | Running | Suspended | Completing)
    }

    /// Slurm's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Pending => "PENDING",
            JobState::Running => "RUNNING",
            JobState::Suspended => "SUSPENDED",
            JobState::Completing => "COMPLETING",
            JobState::Completed => "COMPLETED",
            JobState::Cancelled => "CANCELLED",
            JobState::Failed => "FAILED",
            JobState::Timeout => "TIMEOUT",
            JobState::NodeFail => "NODE_FAIL",
            JobState::Preempted => "PREEMPTED",
            JobState::BootFail => "BOOT_FAIL",
            JobState::Deadline => "DEADLINE",
            JobState::OutOfMemory => "OUT_OF_MEMORY",
        }
    }
}

/// How a job's script ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// Signal that ended it, or 0.
    pub signal: i32,
}

impl Exit {
    /// Reads `code:signal`, or the status of wait(2) as 22.05's squeue prints it.
    pub(crate) fn read(text: &str) -> Result<Exit, Error> {
        let number = |t: &str| t.parse::<i32>().map_err(|_| Error::unreadable("exit code", text));
        match text.split_once(':') {
            Some((code, signal)) => Ok(Exit { code: number(code)?, signal: number(signal)? }),
            None => number(text).map(|status| Exit { code: (status >> 8) & 0xff, signal: status & 0x7f }),
        }
    }
}

/// What Slurm's commands call a job: `12`, `9_2` in an array, `9+1` in a heterogeneous job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobName {
    /// Job id.
    pub job: u32,
    /// Number of the array and of the task in it, if it is one.
    pub array: Option<(u32, u32)>,
    /// Number of the heterogeneous job that it is a component of, if it is one; the numbers of components follow it.
    pub het: Option<u32>,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            JobName { array: Some((array, task)), .. } => write!(f, "{array}_{task}"),
            JobName { job, het: Some(leader), .. } => write!(f, "{leader}+{}", job.saturating_sub(leader)),
            JobName { job, .. } => write!(f, "{job}"),
        }
    }
}

/// A job as slurmctld knows it: what it is, and nothing of what its user wrote about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Job id.
    pub id: u32,
    /// User id.
    pub uid: u32,
    /// User name, by this host's name service.
    pub user: String,
    /// Number of the array and of the task in it, if it is one.
    pub array: Option<(u32, u32)>,
    /// Number of the heterogeneous job that it is a component of, if it is one.
    pub het: Option<u32>,
    /// Whether it is neither part of an array nor of a heterogeneous job.
    pub alone: bool,
    /// Slurm's priority: the higher starts first.
    pub priority: u64,
    /// Partition; several, separated by commas, while it waits.
    pub partition: String,
    /// What it is doing.
    pub state: JobState,
    /// Slurm's flag beside or instead of the state: `COMPLETING`, `REQUEUED`, `CONFIGURING`, ...
    pub flags: Vec<String>,
    /// Why it waits, or why it ended; empty if there is nothing to say.
    pub reason: String,
    /// Nodes it has, or had; empty while it waits.
    pub nodes: Vec<String>,
    /// Nodes on which backfill plans to start it; empty if it has no plan.
    pub planned_nodes: Vec<String>,
    /// Node of the batch script.
    pub batch_host: Option<String>,
    /// Whether it is a batch job.
    pub batch: bool,
    /// How often it was restarted.
    pub restarts: u32,
    /// Whether its nodes went to another job.
    pub preempted: bool,
    /// Whether Slurm may requeue it.
    pub requeue: bool,
    /// How its script ended, `0:0` before.
    pub exit: Exit,
    /// When it was submitted, or requeued, s since the epoch.
    pub submit_s: Option<f64>,
    /// From when it may start, s since the epoch.
    pub eligible_s: Option<f64>,
    /// When it started, or is expected to, s since the epoch.
    pub start_s: Option<f64>,
    /// When it ended, or will be ended, s since the epoch.
    pub end_s: Option<f64>,
    /// Time limit, s; absent for none.
    pub time_limit_s: Option<u64>,
    /// The reservation that it runs in or waits for; empty if none.
    pub reservation: String,
    /// Whether nobody else may be on its nodes.
    pub exclusive: bool,
    /// CPUs.
    pub num_cpus: u32,
    /// Nodes; of a waiting job: the least.
    pub num_nodes: u32,
    /// Nodes that it must have, as Slurm lists them; empty if any will do.
    pub required_nodes: String,
    /// Features that its nodes must have, as its user joined them; empty if none.
    pub features: String,
    /// Whether it asks for more than nodes, CPUs, memory and features: GRES, licenses, a place in the network.
    pub asks_more: bool,
}

impl Job {
    /// Whether Slurm holds it in the queue since its launch failed.
    pub fn launch_failed(&self) -> bool {
        self.reason.replace('_', " ").starts_with("launch failed")
    }

    /// Whether it is still the life after so many restarts of this user's job, on its nodes: running or suspended.
    pub fn is_life(&self, uid: u32, restarts: u32) -> bool {
        let has_nodes = matches!(self.state, JobState::Running | JobState::Suspended);
        has_nodes && self.uid == uid && self.restarts == restarts
    }

    /// Whether the job has used up its time limit.
    pub fn time_is_up(&self, now_s: f64) -> bool {
        match (self.start_s, self.time_limit_s) {
            (Some(start_s), Some(limit_s)) => now_s - start_s >= limit_s as f64,
            _ => false,
        }
    }

    /// Whether a flag such as `COMPLETING` is set.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// What Slurm's commands call it.
    pub fn name(&self) -> JobName {
        JobName { job: self.id, array: self.array, het: self.het }
    }

    /// The number by which Slurm's commands mean this job alone: that of an array's last task means all of them.
    pub(crate) fn own_number(&self) -> String {
        self.array.map_or_else(|| self.id.to_string(), |(array, task)| format!("{array}_{task}"))
    }

    /// Why the nodes of this job cannot be lent, whoever wants them; nothing if they can.
    pub fn cannot_lend(&self) -> Option<String> {
        let id = self.id;
        if !self.requeue {
            return Some(format!("job {id} may not be requeued, and would have to be if its nodes did not return"));
        }
        if !self.reservation.is_empty() {
            return Some(format!(
                "job {id} runs in reservation {}, whose nodes are not ours to lend",
                self.reservation
            ));
        }
        (!self.exclusive).then(|| format!("job {id} shares its nodes: only jobs with --exclusive lend"))
    }
}

/// Jobs that were listed together.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Those that were understood.
    pub jobs: Vec<Job>,
    /// Why a line was not; the others count all the same.
    pub unreadable: Vec<Error>,
}

/// The jobs in the output of `squeue -h -O` with the columns of a job's facts.
pub fn parse_jobs(text: &str) -> Jobs {
    let mut found = Jobs::default();
    for line in text.lines().filter(|l| !l.is_empty()) {
        match parse_line(line) {
            Ok(job) => found.jobs.push(job),
            Err(e) => found.unreadable.push(e),
        }
    }
    found
}

/// The one job of this id in such an output, in which other tasks of its array may stand.
pub(crate) fn parse_one(text: &str, id: u32) -> Result<Option<Job>, Error> {
    let begin = format!("{id}|");
    text.lines().find(|l| l.starts_with(&begin)).map(parse_line).transpose()
}

fn parse_line(line: &str) -> Result<Job, Error> {
    let wrong = || Error::unreadable("line of squeue", line);
    let columns: Vec<&str> = line.strip_suffix('|').ok_or_else(wrong)?.splitn(COLUMNS.len(), '|').collect();
    let column: &[&str; COLUMNS.len()] = columns[..].try_into().map_err(|_| wrong())?;
    let [id, uid, user, array, task, het, state, partition, nodes, batch_host, batch, requeue, restarts, exit, ..] =
        *column;
    let [
        ..,
        preempted,
        submit,
        eligible,
        start,
        end,
        limit,
        cpus,
        num_nodes,
        sharing,
        required,
        planned,
        priority,
        reservation,
        contiguous,
        switches,
        licenses,
        per_job,
        per_node,
        per_socket,
        per_task,
        reason,
        features,
    ] = *column;
    let (state, flag) = JobState::read(state)?;
    let task = number::<u32>("array task", task).ok();
    let more = [licenses, per_job, per_node, per_socket, per_task];
    Ok(Job {
        id: number("job id", id)?,
        uid: crate::fields::uid("user id", uid)?,
        user: text(user),
        array: task.map(|task| Ok::<_, Error>((number("array job id", array)?, task))).transpose()?,
        het: het.parse().ok().filter(|leader| *leader != 0),
        alone: is_none(column[4]) && (is_none(het) || het == "0"),
        priority: number("priority", priority)?,
        partition: text(partition),
        state,
        flags: flag.map(str::to_owned).into_iter().collect(),
        reason: text(reason),
        nodes: expand_nodelist(nodes)?,
        planned_nodes: expand_nodelist(planned)?,
        batch_host: Some(text(batch_host)).filter(|h| !h.is_empty()),
        batch: batch != "0",
        restarts: number("restart count", restarts)?,
        preempted: time("PreemptTime", preempted)?.is_some(),
        requeue: requeue == "1",
        exit: Exit::read(exit)?,
        submit_s: time("SubmitTime", submit)?,
        eligible_s: time("EligibleTime", eligible)?,
        start_s: time("StartTime", start)?,
        end_s: time("EndTime", end)?,
        time_limit_s: duration("TimeLimit", limit)?,
        reservation: text(reservation),
        exclusive: match sharing.strip_suffix(MARK) {
            Some(exclusive) => matches!(exclusive, "NODE" | "YES" | "EXCLUSIVE"),
            None => matches!(sharing, "NO" | "EXCLUSIVE"),
        },
        num_cpus: count("CPUs", cpus)?,
        num_nodes: count("nodes", num_nodes)?,
        required_nodes: text(required),
        features: text(features),
        // 23.11 shows `--cpus-per-task` as a TRES as well.
        asks_more: contiguous == "1"
            || !(is_none(switches) || switches == "0")
            || more.iter().flat_map(|list| list.split(',')).any(|t| !is_none(t) && !t.starts_with("cpu")),
    })
}

fn text(value: &str) -> String {
    if is_none(value) { String::new() } else { value.to_owned() }
}

fn number<T: std::str::FromStr>(what: &'static str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| Error::unreadable(what, value))
}

/// Reads a number of CPUs or nodes: `4`, `2-8` (of a waiting job: the least), `1K`.
fn count(what: &'static str, value: &str) -> Result<u32, Error> {
    let least = value.split('-').next().unwrap_or(value);
    let (number, factor) = match least.strip_suffix('K') {
        Some(n) => (n, 1024.0),
        None => (least, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| Error::unreadable(what, value))?;
    Ok((number * factor) as u32)
}
