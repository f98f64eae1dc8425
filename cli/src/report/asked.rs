//! Which jobs a report is asked for, as sacct's users write them.

use crate::Failure;
use slurm::Slurm;
use std::path::Path;

/// Jobs as the services read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Job ids; that of an array stands for all its tasks.
    pub whole: Vec<u32>,
    /// Ids of tasks that were meant alone.
    pub tasks: Vec<u32>,
}

impl Jobs {
    /// Their ids.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.whole.iter().chain(&self.tasks).copied()
    }

    /// Their ids, with commas between them.
    pub fn list(&self) -> String {
        listed(self.ids())
    }

    /// The parts of a question to `/v1/report` that name them.
    pub fn parts(&self) -> [(&'static str, Option<String>); 2] {
        let named = |of: &[u32]| (!of.is_empty()).then(|| listed(of.iter().copied()));
        [("job", named(&self.whole)), ("task", named(&self.tasks))]
    }
}

fn listed(ids: impl Iterator<Item = u32>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}

/// Job ids as the services read them; what Slurm knows of tasks of arrays is asked.
///
/// # Errors
/// What is no job id, or that Slurm does not know a task.
pub fn known_jobs(text: &str, conf: &Path) -> Result<Jobs, Failure> {
    let slurm = Slurm::new(crate::site(conf)?.slurm_bin);
    jobs(text, &|array, task| slurm.array_task(array, task).map_err(|e| e.to_string())).map_err(Failure::Usage)
}

/// Job ids as the services read them; `task` finds that of a task of an array.
fn jobs(text: &str, task: &dyn Fn(u32, u32) -> Result<Option<u32>, String>) -> Result<Jobs, String> {
    let mut all = Jobs::default();
    for id in text.split(',') {
        let job = id.trim().split('.').next().unwrap_or_default();
        let read = |text: &str| {
            let wrong = || format!("'{id}' is not a job id; accepted: 12, 12_3, 12+1, 12.0, 12,13");
            text.parse::<u32>().map_err(|_| wrong())
        };
        match (job.split_once('_'), job.split_once('+')) {
            (Some((array, n)), _) => {
                let unknown = || format!("Slurm knows no task {job}: give the job id of the task itself");
                all.tasks.push(task(read(array)?, read(n)?)?.ok_or_else(unknown)?);
            }
            // The components of a heterogeneous job are numbered one after the other.
            (None, Some((leader, n))) => all.tasks.push(read(leader)?.saturating_add(read(n)?)),
            (None, None) => all.whole.push(read(job)?),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_as_sacct_reads_them() {
        let jobs = |text| jobs(text, &|array, task| Ok((task < 9).then_some(array + task)));
        let of = |whole: &[u32], tasks: &[u32]| Ok(Jobs { whole: whole.into(), tasks: tasks.into() });
        assert_eq!(jobs("12,13.0, 14.batch"), of(&[12, 13, 14], &[]));
        assert_eq!(jobs("20_1,20_2.0"), of(&[], &[21, 22]));
        assert_eq!(jobs("30+1,12"), of(&[12], &[31]));
        assert!(jobs("12_9").is_err_and(|e| e.contains("no task 12_9")));
        for wrong in ["12,x", "12_x", "_1", "12_", "12+", "+1"] {
            assert!(jobs(wrong).is_err_and(|e| e.contains("is not a job id")), "{wrong}");
        }
    }
}
