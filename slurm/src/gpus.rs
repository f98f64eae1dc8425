//! Reads from `scontrol show job -d` which GPUs of a node a job holds: in JSON, and in the text of series without it.

use crate::Error;
use crate::fields::Fields;
use crate::nodelist::expand_nodelist;
use serde::Deserialize;

/// What is read of the JSON.
#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    job_id: u32,
    nodes: String,
    /// For each of the nodes, in their order.
    gres_detail: Vec<String>,
}

/// The GPUs of `node` that the job holds, by the output of `scontrol show job -d ID --json`, as Slurm counts them there;
/// nothing where Slurm does not say which.
pub fn parse_gpus_json(text: &str, id: u32, node: &str) -> Result<Option<Vec<u32>>, Error> {
    let answer: Answer =
        serde_json::from_str(text).map_err(|e| Error::unreadable("JSON of scontrol", &e.to_string()))?;
    let job = answer.jobs.into_iter().find(|j| j.job_id == id);
    let job = job.ok_or_else(|| Error::unreadable("job in scontrol's JSON", "(absent)"))?;
    let nodes = expand_nodelist(&job.nodes)?;
    let place = nodes.iter().position(|n| n == node);
    let place = place.ok_or_else(|| Error::unreadable("the job's part of its node", &job.nodes))?;
    match job.gres_detail.get(place) {
        Some(gres) => indices(gres),
        // A job without any has none of its nodes here.
        None if job.gres_detail.is_empty() => Ok(Some(Vec::new())),
        None => Err(Error::unreadable("gres_detail", &job.gres_detail.join(" "))),
    }
}

/// The keys that `scontrol show job -d -o` prints in the series without JSON.
pub(crate) const KEYS: &[&str] = &[
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

/// The same by the output of `scontrol show job -d -o ID`, in which the job's own texts stand, too: a record in which a
/// text holds a field's name is not believed.
pub fn parse_gpus(text: &str, id: u32, node: &str) -> Result<Option<Vec<u32>>, Error> {
    let record = record_of(text, id)?;
    let f = Fields::split(format!("job {id}"), &record, KEYS);
    // Nothing that a user writes stands between these fields and the next.
    let details = match f.get("CoreSpec")? {
        Some(details) => details,
        None => f.need("ThreadSpec")?,
    };
    held(details, node)
}

/// The record of a job in such an output.
pub(crate) fn record_of(text: &str, id: u32) -> Result<String, Error> {
    let record = records(text).into_iter().find(|r| record_id(r) == Some(id));
    record.ok_or_else(|| Error::unreadable("JobId", text))
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

/// The GPUs that a job holds on `node`, counted as Slurm counts them there (`IDX`), from what stands between the
/// job's own fields: `Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1) Nodes=n3 ...`.
///
/// Nothing where Slurm does not say which: of GPUs that it only counts, and of shares of a GPU.
fn held(details: &str, node: &str) -> Result<Option<Vec<u32>>, Error> {
    for part in details.split(" Nodes=").skip(1) {
        let nodes = part.split(' ').next().unwrap_or_default();
        if expand_nodelist(nodes)?.iter().any(|n| n == node) {
            let gres = part.split(' ').find_map(|word| word.strip_prefix("GRES=")).unwrap_or_default();
            return indices(gres);
        }
    }
    Err(Error::unreadable("the job's part of its node", details))
}

/// The `IDX` of all GPUs in a list such as `gpu:a100:2(IDX:0,2-3),nic:1(IDX:0)`.
fn indices(gres: &str) -> Result<Option<Vec<u32>>, Error> {
    let wrong = || Error::unreadable("GRES", gres);
    let mut all = Vec::new();
    for item in items(gres) {
        let name = item.split([':', '(']).next().unwrap_or_default();
        let Some((_, set)) = item.split_once("(IDX:").filter(|_| name == "gpu") else {
            match name {
                "gpu" | "shard" | "mps" => return Ok(None),
                _ => continue,
            }
        };
        for range in set.trim_end_matches(')').split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u16, u16) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            all.extend((first..=last).map(u32::from));
        }
    }
    Ok(Some(all))
}

/// The parts between commas that stand outside brackets.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_read_for_one_node() {
        let details = "* JOB_GRES=gpu:a100:3,nic:1   Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:1(IDX:3),nic:1(IDX:0)  \
                       Nodes=n3 CPU_IDs=0-3 Mem=0 GRES=gpu:a100:3(IDX:0,2-3)  Nodes=n4 CPU_IDs=0 Mem=0 GRES=";
        for (node, gpus) in [("n1", vec![3]), ("n2", vec![3]), ("n3", vec![0, 2, 3]), ("n4", vec![])] {
            assert_eq!(held(details, node).expect("read"), Some(gpus), "{node}");
        }
        assert!(held(details, "n5").is_err());
    }

    #[test]
    fn what_slurm_only_counts_or_shares_is_not_known() {
        for gres in ["gpu:2", "gpu:2(CNT:2)", "shard:1(1/4,0/4)", "gpu:1(IDX:0),mps:50(50/100)"] {
            assert_eq!(indices(gres).expect("read"), None, "{gres}");
        }
        assert_eq!(indices("gpu:0(IDX:)").expect("read"), Some(vec![]));
        assert!(indices("gpu:1(IDX:x)").is_err());
    }
}
