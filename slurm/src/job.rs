//! Reads `scontrol show job -o`.

use crate::Error;
use crate::fields::{Fields, duration};
use crate::gpus;
use crate::nodelist::expand_nodelist;
use std::collections::{BTreeMap, BTreeSet};

/// The keys that `scontrol show job -o` prints from 22.05 to 26.05.
const KEYS: &[&str] = &[
    "JobId",
    "ArrayJobId",
    "ArrayTaskId",
    "ArrayTaskThrottle",
    "HetJobId",
    "HetJobOffset",
    "HetJobIdSet",
    "SLUID",
    "JobName",
    "UserId",
    "GroupId",
    "MCS_label",
    "Priority",
    "Nice",
    "Account",
    "QOS",
    "WCKey",
    "JobState",
    "Reason",
    "FailedNode",
    "Dependency",
    "Requeue",
    "Restarts",
    "BatchFlag",
    "Reboot",
    "ExitCode",
    "DerivedExitCode",
    "RunTime",
    "TimeLimit",
    "TimeMin",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "Deadline",
    "ResizeTime",
    "PreemptEligibleTime",
    "PreemptTime",
    "SuspendTime",
    "SecsPreSuspend",
    "LastSchedEval",
    "Scheduler",
    "Partition",
    "AllocNode:Sid",
    "ReqNodeList",
    "ExcNodeList",
    "NodeList",
    "SchedNodeList",
    "StepMgrEnabled",
    "BatchHost",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "CPUs/Task",
    "ReqB:S:C:T",
    "TRES",
    "ReqTRES",
    "AllocTRES",
    "Socks/Node",
    "NtasksPerN:B:S:C",
    "CoreSpec",
    "ThreadSpec",
    "MinCPUsNode",
    "MinMemoryNode",
    "MinMemoryCPU",
    "MinTmpDiskNode",
    "Features",
    "Prefer",
    "DelayBoot",
    "Reservation",
    "OverSubscribe",
    "Exclusive",
    "Contiguous",
    "Licenses",
    "LicensesAlloc",
    "Network",
    "Command",
    "WorkDir",
    "AdminComment",
    "SystemComment",
    "Comment",
    "Extra",
    "ResvSegments",
    "StdErr",
    "StdIn",
    "StdOut",
    "BatchFeatures",
    "BurstBuffer",
    "BurstBufferState",
    "ClusterFeatures",
    "CpusPerTres",
    "MemPerTres",
    "TresBind",
    "TresFreq",
    "TresPerJob",
    "TresPerNode",
    "TresPerSocket",
    "TresPerTask",
    "MailUser",
    "MailType",
    "Container",
    "ContainerId",
    "NtasksPerTRES",
    "Power",
    "Cluster",
    "SiblingsActiveRaw",
    "SegmentSize",
    "CronJob",
    "Switches",
    "SubmitLine",
    "OriginCluster",
    "SicpMode",
];

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
            _ => return Err(Error::unreadable("JobState", text)),
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
    /// Reads `code:signal`.
    pub(crate) fn read(text: &str) -> Result<Exit, Error> {
        let wrong = || Error::unreadable("ExitCode", text);
        let (code, signal) = text.split_once(':').ok_or_else(wrong)?;
        let number = |t: &str| t.parse().map_err(|_| wrong());
        Ok(Exit { code: number(code)?, signal: number(signal)? })
    }
}

/// A job as slurmctld knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Job id.
    pub id: u32,
    /// Job name.
    pub name: String,
    /// User name.
    pub user: String,
    /// User id.
    pub uid: u32,
    /// Account, empty if none.
    pub account: String,
    /// Slurm's priority: the higher starts first.
    pub priority: u64,
    /// Whether it is neither part of an array nor of a heterogeneous job.
    pub alone: bool,
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
    /// When it was submitted, or requeued.
    pub submit_s: Option<f64>,
    /// From when it may start.
    pub eligible_s: Option<f64>,
    /// When it started, or is expected to.
    pub start_s: Option<f64>,
    /// When it ended, or will be ended.
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
    /// Nodes that it must not have, as Slurm lists them.
    pub excluded_nodes: String,
    /// Features that its nodes must have, as its user joined them; empty if none.
    pub features: String,
    /// Whether it asks for more than nodes, CPUs, memory and features: GRES, licenses, burst buffers, a place in the
    /// network.
    pub asks_more: bool,
    /// The script and its arguments.
    pub command: String,
    /// Working directory.
    pub work_dir: String,
    /// The user's comment.
    pub comment: String,
    /// The operators' comment.
    pub admin_comment: String,
}

impl Job {
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

/// The job with this id in the output of `scontrol show job -o ID`.
pub fn parse_job(text: &str, id: u32) -> Result<Option<Job>, Error> {
    match records(text).into_iter().find(|r| record_id(r) == Some(id)) {
        None => Ok(None),
        Some(record) => parse_record(&record).map(Some),
    }
}

/// The GPUs of `node` that the job holds, by the output of `scontrol show job -d -o ID`, as Slurm counts them there;
/// nothing where Slurm does not say which.
pub fn parse_gpus(text: &str, id: u32, node: &str) -> Result<Option<Vec<u32>>, Error> {
    let record = records(text).into_iter().find(|r| record_id(r) == Some(id));
    let record = record.ok_or_else(|| Error::unreadable("JobId", text))?;
    let f = Fields::split(format!("job {id}"), &record, KEYS);
    // Nothing that a user writes stands between these fields and the next.
    let details = match f.get("CoreSpec")? {
        Some(details) => details,
        None => f.need("ThreadSpec")?,
    };
    gpus::held(details, node)
}

/// The jobs in the output of `scontrol show job -o`, and the ids of those whose record cannot be trusted: another
/// record claims the same id, or a text forges a field. Ask for them one by one.
pub fn parse_jobs(text: &str) -> (Vec<Job>, BTreeSet<u32>) {
    let records = records(text);
    let mut claimed: BTreeMap<u32, u32> = BTreeMap::new();
    records.iter().filter_map(|r| record_id(r)).for_each(|id| *claimed.entry(id).or_default() += 1);
    let mut doubtful: BTreeSet<u32> = claimed.iter().filter(|(_, n)| **n > 1).map(|(id, _)| *id).collect();
    let mut jobs = Vec::new();
    for record in &records {
        match parse_record(record) {
            Ok(job) if !doubtful.contains(&job.id) => jobs.push(job),
            Ok(_) => {}
            Err(_) => doubtful.extend(record_id(record)),
        }
    }
    (jobs, doubtful)
}

/// Joins lines that a line break in a comment has parted.
fn records(text: &str) -> Vec<String> {
    let mut records: Vec<String> = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && *l != "No jobs in the system") {
        match records.last_mut() {
            Some(last) if !line.starts_with("JobId=") => {
                last.push('\n');
                last.push_str(line);
            }
            _ => records.push(line.to_owned()),
        }
    }
    records
}

fn record_id(record: &str) -> Option<u32> {
    record.strip_prefix("JobId=")?.split(' ').next()?.parse().ok()
}

fn parse_record(record: &str) -> Result<Job, Error> {
    let id = record_id(record).ok_or_else(|| Error::unreadable("JobId", record))?;
    let f = Fields::split(format!("job {id}"), record, KEYS);
    let (state, flag) = JobState::read(f.need("JobState")?)?;
    let (user, uid) = user(f.need("UserId")?)?;
    let yes = |key| f.get(key).map(|v| v == Some("1"));
    Ok(Job {
        id,
        name: f.text("JobName")?,
        user,
        uid,
        account: f.text("Account")?,
        priority: f.number("Priority")?.unwrap_or(0),
        alone: f.get("ArrayJobId")?.is_none() && f.get("HetJobId")?.is_none(),
        partition: f.text("Partition")?,
        state,
        flags: flag.map(str::to_owned).into_iter().collect(),
        reason: f.text("Reason")?,
        nodes: expand_nodelist(f.get("NodeList")?.unwrap_or_default())?,
        planned_nodes: expand_nodelist(&f.text("SchedNodeList")?)?,
        batch_host: Some(f.text("BatchHost")?).filter(|h| !h.is_empty()),
        batch: yes("BatchFlag")?,
        restarts: f.number("Restarts")?.unwrap_or(0),
        preempted: f.time("PreemptTime")?.is_some(),
        requeue: yes("Requeue")?,
        exit: f.get("ExitCode")?.map_or(Ok(Exit::default()), Exit::read)?,
        submit_s: f.time("SubmitTime")?,
        eligible_s: f.time("EligibleTime")?,
        start_s: f.time("StartTime")?,
        end_s: f.time("EndTime")?,
        time_limit_s: duration("TimeLimit", f.get("TimeLimit")?.unwrap_or_default())?,
        reservation: f.text("Reservation")?,
        exclusive: [f.text("OverSubscribe")?, f.text("Exclusive")?].iter().any(|v| is_exclusive(v)),
        num_cpus: count("NumCPUs", f.get("NumCPUs")?.unwrap_or("0"))?,
        num_nodes: count("NumNodes", f.get("NumNodes")?.unwrap_or("0"))?,
        required_nodes: f.text("ReqNodeList")?,
        excluded_nodes: f.text("ExcNodeList")?,
        features: f.text("Features")?,
        asks_more: asks_more(&f)?,
        command: f.text("Command")?,
        work_dir: f.text("WorkDir")?,
        comment: f.text("Comment")?,
        admin_comment: f.text("AdminComment")?,
    })
}

/// Whether a job asks for more than nodes, CPUs, memory and features. 23.11 shows `--cpus-per-task` as a TRES as well.
fn asks_more(f: &Fields<'_>) -> Result<bool, Error> {
    let tres = ["TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask"];
    let asked = ["Licenses", "BurstBuffer", "Switches"].into_iter().chain(tres).map(|key| f.text(key));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let more = asked.iter().flat_map(|list| list.split(',')).any(|t| !t.is_empty() && !t.starts_with("cpu"));
    Ok(more || f.get("Contiguous")? == Some("1"))
}

/// Whether `OverSubscribe=` (or 26.05's `Exclusive=`) keeps the nodes for one job.
fn is_exclusive(value: &str) -> bool {
    matches!(value, "NO" | "EXCLUSIVE" | "NODE")
}

/// Reads `name(uid)`.
fn user(text: &str) -> Result<(String, u32), Error> {
    let wrong = || Error::unreadable("UserId", text);
    let (name, rest) = text.rsplit_once('(').ok_or_else(wrong)?;
    let uid = rest.strip_suffix(')').and_then(|u| u.parse().ok()).ok_or_else(wrong)?;
    Ok((name.to_owned(), uid))
}

/// Reads a number of CPUs or nodes: `4`, `2-8` (of a waiting job: the least), `1K`.
fn count(key: &'static str, text: &str) -> Result<u32, Error> {
    let least = text.split('-').next().unwrap_or(text);
    let (number, factor) = match least.strip_suffix('K') {
        Some(n) => (n, 1024.0),
        None => (least, 1.0),
    };
    let value: f64 = number.parse().map_err(|_| Error::unreadable(key, text))?;
    Ok((value * factor) as u32)
}
