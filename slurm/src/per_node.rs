//! Reads from `scontrol show job` what a job asks for on each of its nodes and no column of `squeue` tells: in JSON, and
//! in the text of series without it.
//!
//! Not what it asks for by GRES: Slurm gives that to a helper job by itself, with the memory for each of them.

use crate::Error;
use crate::fields::Fields;
use crate::gpus::{KEYS, record_of};
use serde::Deserialize;

/// What is read of the JSON.
#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    job_id: u32,
    /// MiB.
    #[serde(default)]
    memory_per_node: Number,
    /// MiB.
    #[serde(default)]
    memory_per_cpu: Number,
    #[serde(default)]
    memory_per_tres: String,
    #[serde(default)]
    threads_per_core: Number,
}

#[derive(Default, Deserialize)]
struct Number {
    set: bool,
    number: u64,
}

impl Number {
    fn get(&self) -> Option<u64> {
        self.set.then_some(self.number)
    }
}

/// What a job asks for on each of its nodes, in words for `salloc`, by the output of `scontrol show job -d ID --json`.
pub(crate) fn parse_per_node_json(text: &str, id: u32) -> Result<Vec<String>, Error> {
    let answer: Answer =
        serde_json::from_str(text).map_err(|e| Error::unreadable("JSON of scontrol", &e.to_string()))?;
    let job = answer.jobs.into_iter().find(|j| j.job_id == id);
    let job = job.ok_or_else(|| Error::unreadable("job in scontrol's JSON", "(absent)"))?;
    let mib = |number: &Number| number.get().map(|mib| format!("{mib}M"));
    let (node, cpu) = (mib(&job.memory_per_node), mib(&job.memory_per_cpu));
    Ok(words(node.as_deref(), cpu.as_deref(), &job.memory_per_tres, job.threads_per_core.get()))
}

/// The same by the output of `scontrol show job -d -o ID`, in which the job's own texts stand, too: a record in which a
/// text holds a field's name is not believed.
pub(crate) fn parse_per_node(text: &str, id: u32) -> Result<Vec<String>, Error> {
    let record = record_of(text, id)?;
    let f = Fields::split(format!("job {id}"), &record, KEYS);
    let threads = f.get("ReqB:S:C:T")?.and_then(|boards| boards.rsplit(':').next()?.parse().ok());
    Ok(words(f.get("MinMemoryNode")?, f.get("MinMemoryCPU")?, &f.text("MemPerTres")?, threads))
}

/// Slurm shows memory by node or by CPU, whichever was asked for or is the cluster's default.
fn words(by_node: Option<&str>, by_cpu: Option<&str>, by_tres: &str, threads: Option<u64>) -> Vec<String> {
    let memory = match (by_node, by_cpu) {
        _ if !by_tres.is_empty() => None,
        (Some(node), None) => Some(format!("--mem={node}")),
        (None, Some(cpu)) => Some(format!("--mem-per-cpu={cpu}")),
        _ => None,
    };
    // How many CPUs of a core count, and how much memory that makes.
    let threads = threads.filter(|t| *t > 0).map(|t| format!("--threads-per-core={t}"));
    memory.into_iter().chain(threads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_asks_for_on_each_node_is_read_from_json() {
        let said = |fields: &str| {
            let text =
                format!(r#"{{"jobs": [{{"job_id": 6}}, {{"job_id": 7, "name": "MinMemoryNode=5", {fields}}}]}}"#);
            parse_per_node_json(&text, 7).expect("read")
        };
        let number =
            |key: &str, number: u64| format!(r#""{key}": {{"set": true, "infinite": false, "number": {number}}}"#);
        let unset = |key: &str| format!(r#""{key}": {{"set": false, "infinite": true, "number": 0}}"#);
        let (node, cpu, threads) = ("memory_per_node", "memory_per_cpu", "threads_per_core");
        assert_eq!(said(&[number(node, 2000), unset(cpu), unset(threads)].join(",")), ["--mem=2000M"]);
        assert_eq!(said(&[number(node, 0), unset(cpu)].join(",")), ["--mem=0M"], "all of a node's");
        let by_cpu = [unset(node), number(cpu, 500), number(threads, 1)].join(",");
        assert_eq!(said(&by_cpu), ["--mem-per-cpu=500M", "--threads-per-core=1"]);
        let by_gpu = format!(r#"{}, "memory_per_tres": "gres/gpu:1024""#, number(node, 0));
        assert!(said(&by_gpu).is_empty(), "Slurm does that by itself");
        assert!(parse_per_node_json(r#"{"jobs": []}"#, 7).is_err());
    }

    #[test]
    fn the_same_is_read_from_text_unless_a_users_words_hide_it() {
        let said = |memory: &str, threads: &str, name: &str| {
            let text = format!(
                "JobId=7 JobName={name} UserId=a(1000) GroupId=g(1) NumNodes=2 ReqB:S:C:T=0:0:*:{threads} \
                 TRES=cpu=2,node=2 MinCPUsNode=1 {memory} MinTmpDiskNode=0 Features=(null) Command=/x\n"
            );
            parse_per_node(&text, 7)
        };
        assert_eq!(said("MinMemoryNode=1500M", "*", "x").expect("read"), ["--mem=1500M"]);
        let by_cpu = said("MinMemoryCPU=1G", "1", "x").expect("read");
        assert_eq!(by_cpu, ["--mem-per-cpu=1G", "--threads-per-core=1"]);
        assert!(said("MinMemoryNode=1G", "*", "x MinMemoryNode=9G").is_err());
        assert!(said("MinMemoryNode=0 MemPerTres=gres:gpu:64", "*", "x").expect("read").is_empty());
    }
}
