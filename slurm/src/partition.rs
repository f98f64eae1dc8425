//! Asks for partitions, and reads `scontrol show partition -o`, where no value holds a space and none is a user's.

use crate::fields::duration;
use crate::{Error, Slurm};

/// A partition as slurmctld shows it to this user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Name.
    pub name: String,
    /// Whether jobs that name no partition go to it.
    pub is_default: bool,
    /// Whether it takes jobs and starts them.
    pub is_up: bool,
    /// Whether other jobs may push out those that run in it.
    pub is_preemptible: bool,
    /// Longest time of a job, s; nothing where there is no limit.
    pub max_time_s: Option<u64>,
}

impl Slurm {
    /// The partitions that this user may see.
    pub fn partitions(&self) -> Result<Vec<Partition>, Error> {
        parse_partitions(&self.output("scontrol", &["show", "partition", "-o"])?)
    }
}

/// The partitions in the output of `scontrol show partition -o`.
pub fn parse_partitions(text: &str) -> Result<Vec<Partition>, Error> {
    text.lines().filter(|l| l.starts_with("PartitionName=")).map(parse_partition).collect()
}

fn parse_partition(line: &str) -> Result<Partition, Error> {
    let need = |key: &'static str| {
        let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.find(|(k, _)| *k == key).map(|(_, value)| value).ok_or_else(|| Error::unreadable(key, "(absent)"))
    };
    Ok(Partition {
        name: need("PartitionName")?.to_owned(),
        is_default: need("Default")? == "YES",
        is_up: need("State")? == "UP",
        is_preemptible: need("PreemptMode")? != "OFF",
        max_time_s: duration("MaxTime", need("MaxTime")?)?,
    })
}
